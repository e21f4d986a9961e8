//! Hosts that answer what no honest one does: bounded, told, and nothing else disturbed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{net::SocketAddr, sync::Arc, time::Duration};

use ropeway::{Client, Error, Retry, Side, Way};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::support::soon;

/// A host that answers each request with the same bytes, `repeated` over and over, and then closes.
async fn host(begins: &'static str, repeated: &'static str, times: usize) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let block = Arc::new(repeated.repeat(1_000));
        loop {
            let (mut tcp, _) = listener.accept().await.unwrap();
            let block = Arc::clone(&block);
            tokio::spawn(async move {
                let _ = tcp.read(&mut [0; 4_096]).await;
                let mut sent = tcp.write_all(begins.as_bytes()).await;
                for _ in 0..times {
                    if sent.is_err() {
                        return;
                    }
                    sent = tcp.write_all(block.as_bytes()).await;
                }
            });
        }
    });
    address
}

fn client() -> Client {
    Client::builder().way(Way::Name).allow_plain_http(true).timeout(Duration::from_secs(20)).build().unwrap()
}

#[tokio::test]
async fn endless_headers_end_in_an_error_after_a_bounded_head() {
    let address = host("HTTP/1.1 200 OK\r\n", "x-more: and more\r\n", 100_000).await;
    let error = soon(client().get(format!("http://{address}/")).send()).await.unwrap_err();
    assert!(matches!(error, Error::BrokeOff { .. }), "{error:?}");
}

#[tokio::test]
async fn an_answer_without_an_end_to_its_first_line_ends_in_an_error() {
    let address = host("HTTP/1.1 200 ", "OK", 10_000).await;
    let error = soon(client().get(format!("http://{address}/")).send()).await.unwrap_err();
    assert!(matches!(error, Error::BrokeOff { .. }), "{error:?}");
}

#[tokio::test]
async fn a_body_that_is_shorter_than_its_length_is_cut_and_one_that_is_longer_ends_there() {
    let short = host("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this", "", 0).await;
    let answer = soon(client().get(format!("http://{short}/")).send()).await.unwrap();
    let error = soon(answer.bytes()).await.unwrap_err();
    assert!(matches!(error, Error::BodyCut { .. }), "{error:?}");
    let long = host("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nthis", " and no more", 1).await;
    let client = client();
    for _ in 0..2 {
        let answer = soon(client.get(format!("http://{long}/")).send()).await.unwrap();
        assert_eq!(soon(answer.text()).await.unwrap(), "this", "what follows is no answer to the next request");
    }
}

#[tokio::test]
async fn two_lengths_that_differ_are_refused() {
    let address = host("HTTP/1.1 200 OK\r\ncontent-length: 4\r\ncontent-length: 9\r\n\r\nthis", "", 0).await;
    let error = soon(client().get(format!("http://{address}/")).send()).await.unwrap_err();
    assert!(matches!(error, Error::BrokeOff { .. }), "{error:?}");
}

#[tokio::test]
async fn redirects_that_lead_round_or_nowhere_end_in_a_clear_error_and_are_answers_if_the_app_says_so() {
    let round = "HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n";
    let nowhere = "HTTP/1.1 302 Found\r\nlocation: ftp://api.test/\r\ncontent-length: 0\r\n\r\n";
    for (found, location) in [(round, "/"), (nowhere, "ftp://api.test/")] {
        let address = host(found, "", 0).await;
        let url = format!("http://{address}/");
        let error = soon(client().get(&*url).send()).await.unwrap_err();
        assert!(matches!(&error, Error::Redirect { url: at, .. } if *at == url), "{error:?}");
        assert_eq!((error.side(), error.retry()), (Side::Service, Retry::Never));
        let told = if location == "/" { "for longer than 10 times" } else { "no URL of http or https" };
        assert!(error.to_string().contains(told), "{error}");
        let answer = soon(client().get(&*url).redirects(0).send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), answer.headers()["location"].to_str().unwrap()), (302, location));
    }
}
