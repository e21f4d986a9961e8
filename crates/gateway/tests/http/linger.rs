//! Clients that still send when their answer has come.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use ropeway_gateway::front::Protocol;
use ropeway_gateway::proxy::ProxyError;
use ropeway_gateway::route::RouteSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::door::*;
use crate::support::*;

#[tokio::test]
async fn a_client_with_too_large_a_body_may_send_it_all_and_is_told() {
    let upstream = http_upstream(false, |request| async move {
        let _ = request.into_body().collect().await;
        Response::new(full("never"))
    })
    .await;
    let door =
        Door::with(RouteSpec { body_bytes_max: 100_000, ..RouteSpec::new("a.test", format!("http://{upstream}")) });
    let (mut read, mut write) = tokio::io::split(door.open(Protocol::H1));
    for _ in 0..2 {
        let sending = async {
            write.write_all(head("a.test", "").as_bytes()).await.expect("taken");
            for _ in 0..CHUNKS {
                write.write_all(&chunk()).await.expect("taken");
            }
            write.write_all(b"0\r\n\r\n").await.expect("taken");
        };
        let reading = async {
            let mut answer = Vec::new();
            while !answer.ends_with(b"body_too_large\n") {
                answer.push(read.read_u8().await.expect("an answer"));
            }
            assert!(answer.starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&answer));
        };
        // The connection carries the next request all the same.
        tokio::join!(sending, reading);
    }

    let (sender, body) = channel(1);
    let sending = async {
        for _ in 0..CHUNKS {
            sender.send(Ok(Bytes::from_static(&[0; CHUNK_BYTES]))).await.expect("no reset");
        }
        drop(sender);
    };
    let mut h2 = door.h2().await;
    let answering = async {
        let response = h2.send_request(post("https://a.test/", body)).await.expect("answered");
        assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "body_too_large\n");
    };
    tokio::join!(sending, answering);
    assert_counted(&door.metrics, ProxyError::BodyTooLarge, 3);
}

#[tokio::test]
async fn an_h2_refusal_is_all_head_only_where_its_client_could_break_off_a_body_of_known_length() {
    let door = Door::to("builtin:echo");
    let mut h2 = door.h2().await;
    for (length, text) in [(1_000, "no_route\n"), (3_000_000, "")] {
        let request = post("https://b.test/", full(vec![0; length]));
        let response = h2.send_request(request).await.expect("answered");
        assert_eq!(
            (response.status(), &response.headers()["ropeway-error"]),
            (StatusCode::NOT_FOUND, &HeaderValue::from_static("no_route"))
        );
        assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), text);
    }
}

#[tokio::test]
async fn an_upstream_that_answers_first_still_gets_the_whole_body() {
    for protocol in [Protocol::H1, Protocol::H2] {
        let (told, mut read) = mpsc::channel(1);
        let upstream = raw_upstream(move |mut stream, _| {
            let told = told.clone();
            async move {
                read_head(&mut stream).await;
                stream.write_all(EARLY_ANSWER).await.expect("written");
                let mut body = vec![0; CHUNKS * CHUNK_BYTES];
                stream.read_exact(&mut body).await.expect("the whole body");
                told.send(body.len()).await.expect("the test waits");
            }
        })
        .await;
        let door = Door::to(&format!("http://{upstream}"));
        let length = CHUNKS * CHUNK_BYTES;
        if protocol == Protocol::H1 {
            let mut client = door.open(Protocol::H1);
            let head = format!("POST / HTTP/1.1\r\nhost: a.test\r\ncontent-length: {length}\r\n\r\n");
            client.write_all(head.as_bytes()).await.expect("taken");
            read_until(&mut client, "early").await;
            for _ in 0..CHUNKS {
                client.write_all(&[0; CHUNK_BYTES]).await.expect("taken");
            }
            assert_eq!(read.recv().await, Some(length));
        } else {
            let (sender, body) = channel(1);
            let mut request = post("https://a.test/", body);
            request.headers_mut().insert("content-length", length.into());
            let response = door.h2().await.send_request(request).await.expect("answered");
            assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "early");
            for _ in 0..CHUNKS {
                sender.send(Ok(Bytes::from_static(&[0; CHUNK_BYTES]))).await.expect("no reset");
            }
            assert_eq!(read.recv().await, Some(length));
        }
        eventually(|| door.in_flight() == 0).await;
    }
}

#[tokio::test]
async fn an_upstream_that_answers_and_never_reads_does_not_keep_the_client() {
    let upstream = raw_upstream(|mut stream, _| async move {
        read_head(&mut stream).await;
        stream.write_all(EARLY_ANSWER).await.expect("written");
        std::future::pending::<()>().await;
    })
    .await;
    let door = Door::to(&format!("http://{upstream}"));
    let (sender, body) = channel(1);
    let response = door.h2().await.send_request(post("https://a.test/", body)).await.expect("answered");
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "early");
    // More than the buffers of two sockets hold.
    for _ in 0..24 << 4 {
        sender.send(Ok(Bytes::from_static(&[0; CHUNK_BYTES]))).await.expect("no reset");
    }
    drop(sender);
    assert_eq!(door.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_for_ever_is_cut_at_the_limit_in_bytes() {
    let door = Door::to("builtin:echo");
    let (mut read, mut write) = refused(&door).await;
    let mut sent = 0;
    while write.write_all(&chunk()).await.is_ok() {
        sent += CHUNK_BYTES;
    }
    assert!((64 << 20..66 << 20).contains(&sent), "{sent} bytes taken");
    assert_eq!(read.read(&mut [0; 1]).await.expect("closed"), 0);

    let (sender, body) = channel(1);
    let response = door.h2().await.send_request(post("https://b.test/", body)).await.expect("answered");
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    let mut sent = 0;
    while sender.send(Ok(Bytes::from_static(&[0; CHUNK_BYTES]))).await.is_ok() {
        sent += CHUNK_BYTES;
    }
    assert!((64 << 20..66 << 20).contains(&sent), "{sent} bytes taken");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_slowly_for_ever_is_cut_at_the_limit_in_time() {
    let door = Door::to("builtin:echo");
    let (_read, mut write) = refused(&door).await;
    let started = Instant::now();
    while write.write_all(b"1\r\nx\r\n").await.is_ok() {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let lasted = started.elapsed().as_secs();
    assert!((30..=31).contains(&lasted), "{lasted} s");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_no_more_is_let_go_also_while_draining() {
    for is_draining in [false, true] {
        let door = Door::to("builtin:echo");
        let (mut read, _write) = refused(&door).await;
        if is_draining {
            door.drain.cancel();
        }
        let started = Instant::now();
        assert_eq!(read.read(&mut [0; 1]).await.expect("closed"), 0);
        assert_eq!(started.elapsed().as_secs(), 5);
        let (sender, body) = channel(1);
        if !is_draining {
            let response = door.h2().await.send_request(post("https://b.test/", body)).await.expect("answered");
            assert_eq!(response.status(), StatusCode::NOT_FOUND);
            let started = Instant::now();
            sender.closed().await;
            assert_eq!(started.elapsed().as_secs(), 5);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_lets_its_client_be_silent() {
    let door = Door::to("builtin:demo");
    let (sender, body) = channel(1);
    let mut h2 = door.h2().await;
    let request = Request::get("https://a.test/stream").body(body).expect("valid");
    let response = h2.send_request(request).await.expect("answered");
    assert_eq!(response.status(), StatusCode::OK);
    tokio::time::sleep(Duration::from_secs(8)).await;
    for _ in 0..CHUNKS {
        sender.send(Ok(Bytes::from_static(&[0; CHUNK_BYTES]))).await.expect("no reset");
    }
    response.into_body().collect().await.expect("whole");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_waits_for_100_is_not_asked_for_behind_a_refusal() {
    let door = Door::to("builtin:echo");
    let expecting = head("b.test", "expect: 100-continue\r\n");
    let answer = door.say(&expecting).await;
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains("connection: close\r\n"), "{answer}");
    assert!(!answer.contains("100 Continue"), "{answer}");

    // A client that did not wait for it is heard out, and what it sends is no request.
    let (mut read, mut write) = tokio::io::split(door.open(Protocol::H1));
    write.write_all(expecting.as_bytes()).await.expect("taken");
    for _ in 0..CHUNKS {
        write.write_all(&chunk()).await.expect("taken");
    }
    write.write_all(b"0\r\n\r\nGET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await.expect("taken");
    let mut answer = Vec::new();
    read.read_to_end(&mut answer).await.expect("closed");
    let answer = String::from_utf8(answer).expect("text");
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

/// Begins a request to a host that is not served and reads its answer.
async fn refused(door: &Door) -> (tokio::io::ReadHalf<DuplexStream>, tokio::io::WriteHalf<DuplexStream>) {
    let mut client = door.open(Protocol::H1);
    client.write_all(head("b.test", "").as_bytes()).await.expect("taken");
    let answer = read_until(&mut client, "\r\n\r\nno_route\n").await;
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    tokio::io::split(client)
}

fn head(host: &str, more: &str) -> String {
    format!("POST / HTTP/1.1\r\nhost: {host}\r\ntransfer-encoding: chunked\r\n{more}\r\n")
}

fn chunk() -> Vec<u8> {
    let mut chunk = format!("{CHUNK_BYTES:x}\r\n").into_bytes();
    chunk.extend([0; CHUNK_BYTES]);
    chunk.extend(b"\r\n");
    chunk
}

/// The answer of an upstream that has not read the body.
const EARLY_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\nearly";

const CHUNK_BYTES: usize = 64 << 10;

/// Chunks of a body larger than what buffers hold on its way.
const CHUNKS: usize = 48;
