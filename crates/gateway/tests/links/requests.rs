//! Requests over links: what upstreams and clients do wrong, and who hears of it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use ropeway_core::{
    CarrierKind,
    session::{Client, Closed, Machine},
    wire::{
        batch::{AnswerReader, BATCH_PATH, BATCH_TYPE, PartWriter},
        list::INTERNAL_AUTHORITY,
        message::ResetCode,
    },
};
use ropeway_gateway::proxy::USER_HEADER;
use tokio::{io::AsyncWriteExt as _, net::TcpListener};

use crate::{
    support::{Device, World, until},
    upstream::{Gated, answering, read_head, upstream},
};

/// Sends a request that the gateway answers itself; returns status and the error's name.
async fn failed(device: &Device, uri: &str) -> (StatusCode, String) {
    let (status, headers, _) = device.send(Method::POST, uri, b"").await;
    (status, headers["ropeway-error"].to_str().unwrap().to_owned())
}

fn assert_cut(outcome: &Result<Bytes, Closed>) {
    assert!(matches!(outcome, Err(Closed::Reset { code: ResetCode::UpstreamCut, .. })), "{outcome:?}");
}

#[tokio::test]
async fn an_upstream_that_refuses_or_hangs_is_named_in_the_answer() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let world = World::before(gone).await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    let refused = failed(&device, "https://up.test/").await;
    assert_eq!(refused, (StatusCode::BAD_GATEWAY, "upstream_refused".into()));
    assert_eq!(failed(&device, "https://nobody.test/").await, (StatusCode::NOT_FOUND, "no_route".into()));

    let gated = Gated::new().await;
    let world = World::before_with(gated.address, |route| route.first_byte_timeout = Duration::from_millis(100)).await;
    let (device, _link) = world.connected(1, CarrierKind::Quic).await;
    let hung = failed(&device, "https://up.test/").await;
    assert_eq!(hung, (StatusCode::GATEWAY_TIMEOUT, "upstream_first_byte_timeout".into()));
    assert_eq!(world.failed("upstream_first_byte_timeout"), 1);
    device.work().await;
}

#[tokio::test]
async fn an_answer_cut_in_the_middle_is_never_complete() {
    for carrier in CarrierKind::ALL {
        let by_length = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this").await;
        let by_chunks = answering(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n").await;
        for address in [by_length, by_chunks] {
            let world = World::before(address).await;
            let (device, link) = world.connected(1, carrier).await;
            let channel = device.open(Method::GET, "https://up.test/", true);
            assert_eq!(device.head(channel).await.unwrap().status, StatusCode::OK);
            assert_cut(&device.body(channel).await);
            assert_eq!(world.failed("upstream_body_cut"), 1);
            device.work().await;
            device.hang_up(link).await;
            world.empty().await;
        }
    }
}

#[tokio::test]
async fn an_upstream_that_falls_silent_in_a_body_is_cut_off() {
    let silent = upstream(|mut stream| async move {
        read_head(&mut stream).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nonly this";
        let _ = tokio::io::AsyncWriteExt::write_all(&mut stream, head).await;
        std::future::pending::<()>().await;
    });
    let world = World::before_with(silent.await, |route| route.idle_timeout = Duration::from_millis(100)).await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    let channel = device.open(Method::GET, "https://up.test/", true);
    device.head(channel).await.unwrap();
    assert_cut(&device.body(channel).await);
    assert_eq!(world.failed("upstream_body_idle"), 1);
}

#[tokio::test]
async fn requests_beyond_the_limit_are_refused_unexecuted_and_the_others_go_on() {
    let mut gated = Gated::new().await;
    let route = |config: &mut ropeway_gateway::config::Config| {
        config.gateway.requests_per_link_max = 3;
        let upstream = format!("http://{}", gated.address).parse().unwrap();
        config.routes.push(ropeway_gateway::config::RouteConfig::new("up.test", upstream));
    };
    let world = World::new(route).await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    let open = || device.open(Method::POST, "https://up.test/", true);
    let within = [open(), open(), open()];
    for _ in within {
        gated.arrived.recv().await.unwrap();
    }
    assert_eq!(device.head(open()).await.map(drop), Err(Closed::NeverSeen));
    until("the refusal is counted", || world.refused("request_refused") == 1).await;
    gated.release.add_permits(3);
    for channel in within {
        assert_eq!(device.head(channel).await.unwrap().status, StatusCode::OK);
        assert_eq!(device.body(channel).await.unwrap(), "done");
    }
    device.work().await;
    assert!(gated.arrived.try_recv().is_err(), "the refused one never arrived");
}

#[tokio::test]
async fn a_request_that_is_given_up_is_cancelled_at_the_upstream() {
    let mut gated = Gated::new().await;
    let world = World::before(gated.address).await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    let channel = device.open(Method::POST, "https://up.test/given-up", true);
    gated.arrived.recv().await.unwrap();
    device.session.abandon(channel, ResetCode::Cancelled, "no longer wanted");
    assert_eq!(gated.cancelled.recv().await.unwrap(), "/given-up");
    device.work().await;
}

#[tokio::test]
async fn answers_without_content_have_no_body_over_a_link() {
    let world = World::new(|config| {
        config.routes.push(ropeway_gateway::config::RouteConfig::new("demo.test", "builtin:demo".parse().unwrap()));
    })
    .await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    for uri in ["https://demo.test/", "https://demo.test/bytes?n=5000", "https://nobody.test/"] {
        let (_, _, body) = device.send(Method::HEAD, uri, b"").await;
        assert_eq!(body, "", "{uri}");
    }
    for answer in [&b"HTTP/1.1 204 No Content\r\n\r\n"[..], b"HTTP/1.1 304 Not Modified\r\ncontent-length: 9\r\n\r\n"] {
        let world = World::before(answering(answer).await).await;
        let (device, _link) = world.connected(1, CarrierKind::Tls).await;
        let (status, _, body) = device.send(Method::GET, "https://up.test/", b"").await;
        assert!(matches!(status.as_u16(), 204 | 304));
        assert_eq!(body, "");
    }
}

#[tokio::test]
async fn a_body_of_another_length_than_declared_is_refused_or_cut() {
    let mut gated = Gated::new().await;
    let world = World::before(gated.address).await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    for declared in ["3", "5"] {
        let headers = HeaderMap::from_iter([(http::header::CONTENT_LENGTH, HeaderValue::from_static(declared))]);
        let channel = device.open_with(Method::POST, "https://up.test/", headers, false);
        let mut writer = device.session.writer(channel);
        let _ = writer.write(Bytes::from_static(b"four")).await;
        writer.finish(None);
        let head = device.head(channel).await.unwrap();
        assert_eq!(head.status, StatusCode::BAD_REQUEST);
        assert_eq!(head.headers["ropeway-error"], "request_body_cut");
    }
    assert!(gated.arrived.try_recv().is_err(), "no such request arrived whole");
    // A service that takes its answer's length from the request does not end it early for the client either.
    let headers = HeaderMap::from_iter([(http::header::CONTENT_LENGTH, HeaderValue::from_static("5"))]);
    let channel = device.open_with(Method::POST, "https://api.test/", headers, false);
    let mut writer = device.session.writer(channel);
    writer.write(Bytes::from_static(b"four")).await.unwrap();
    writer.finish(None);
    // The cut may overtake the head.
    let outcome = match device.head(channel).await {
        Ok(_) => device.body(channel).await,
        Err(closed) => Err(closed),
    };
    assert_cut(&outcome);
}

#[tokio::test]
async fn an_answer_that_nobody_reads_holds_no_more_than_its_credit() {
    let world = World::new(|config| {
        config.routes.push(ropeway_gateway::config::RouteConfig::new("demo.test", "builtin:demo".parse().unwrap()));
    })
    .await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    let unread = device.open(Method::GET, "https://demo.test/bytes?n=50000000", true);
    device.head(unread).await.unwrap();
    let held = || device.session.peek(|client: &mut Client| client.mux().held_bytes());
    until("the credit is used up", || held() >= 200_000).await;
    for _ in 0..50 {
        device.work().await;
    }
    assert!(held() <= 256 * 1024, "{} bytes arrived unasked", held());
    device.session.abandon(unread, ResetCode::Cancelled, "no longer wanted");
    device.work().await;
}

#[tokio::test]
async fn a_batch_is_run_part_by_part_with_the_user_of_the_link() {
    let upstream = upstream(|mut stream| async move {
        let head = read_head(&mut stream).await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{head}", head.len());
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await;
    let world = World::before(upstream).await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    let mut writer = PartWriter::new();
    for uri in ["https://up.test/", "https://api.test/echo"] {
        writer.write(&Method::POST, &Uri::from_static(uri), &HeaderMap::new(), b"part").unwrap();
    }
    let headers = HeaderMap::from_iter([(http::header::CONTENT_TYPE, HeaderValue::from_static(BATCH_TYPE))]);
    let url = format!("https://{INTERNAL_AUTHORITY}{BATCH_PATH}");
    let (status, _, body) = device.send_with(Method::POST, &url, headers, &writer.finish()).await;
    assert_eq!(status, StatusCode::OK);
    let mut reader = AnswerReader::new(2);
    reader.handle_data(&body);
    let mut answers: Vec<_> = std::iter::from_fn(|| reader.poll_answer().unwrap()).collect();
    answers.sort_by_key(|answer| answer.index);
    let seen = String::from_utf8_lossy(&answers[0].body).to_lowercase();
    assert!(seen.contains(&format!("{USER_HEADER}: ")), "{seen}");
    assert_eq!(answers[1].body, "part");
}
