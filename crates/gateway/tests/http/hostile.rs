//! The front door against clients that want too much, or too little.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use ropeway_gateway::front::Protocol;
use ropeway_gateway::route::RouteSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::door::*;
use crate::support::*;

#[tokio::test]
async fn a_smuggled_request_never_reaches_the_upstream() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let recording = Arc::clone(&seen);
    let upstream = http_upstream(false, move |request| {
        recording.lock().expect("unpoisoned").push(request.uri().path().to_owned());
        async move {
            let lengths = request.headers().get_all(header::CONTENT_LENGTH).iter().count();
            let coded = request.headers().contains_key(header::TRANSFER_ENCODING);
            assert!(!(coded && lengths > 0), "ambiguous length passed on");
            let _ = request.into_body().collect().await;
            Response::new(full("ok"))
        }
    })
    .await;
    let inner = "GET /smuggled HTTP/1.1\r\nhost: a.test\r\n\r\n";
    let refused = [
        format!("content-length: 6\r\ncontent-length: 0\r\n\r\n{inner}"),
        format!("content-length: 0, 6\r\n\r\n{inner}"),
        format!("content-length: +0\r\n\r\n{inner}"),
        format!("content-length: -1\r\n\r\n{inner}"),
        format!("content-length: 0x10\r\n\r\n{inner}"),
        format!("content-length : 0\r\n\r\n{inner}"),
        format!(" content-length: 0\r\n\r\n{inner}"),
        format!("x: y\r\n content-length: 0\r\n\r\n{inner}"),
        format!("x: y\rcontent-length: 0\r\n\r\n{inner}"),
        format!("x: y\0z\r\n\r\n{inner}"),
        format!("transfer-encoding: xchunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n{inner}"),
        format!("transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n{inner}"),
        format!("host: b.test\r\ncontent-length: 0\r\n\r\n{inner}"),
    ];
    for rest in refused {
        let door = Door::to(&format!("http://{upstream}"));
        let answer = door.say(format!("POST /outer HTTP/1.1\r\nhost: a.test\r\n{rest}")).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{rest:?}: {answer}");
        let counted = door.metrics.refusal("http_malformed").value();
        let named = door.metrics.request_error("request_malformed").value();
        assert!(counted + named >= 1, "{rest:?}");
    }
    let http10 = format!("POST /outer HTTP/1.0\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n{inner}");
    let answer = Door::to(&format!("http://{upstream}")).say(http10).await;
    assert!(answer.starts_with("HTTP/1.1 400 ") || answer.starts_with("HTTP/1.0 400 "), "{answer}");
    assert_eq!(*seen.lock().expect("unpoisoned"), [""; 0]);

    // Both length and chunks: RFC 9112 section 6.1 lets a server read the chunks if it closes after the answer.
    for (lengths, body) in [
        ("content-length: 6\r\ntransfer-encoding: chunked", "0\r\n\r\n"),
        ("transfer-encoding: chunked\r\ncontent-length: 6", "0\r\n\r\n"),
    ] {
        let ask = format!("POST /outer HTTP/1.1\r\nhost: a.test\r\n{lengths}\r\n\r\n{body}{inner}");
        let answer = Door::to(&format!("http://{upstream}")).say(ask).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
    }
    // Chunks that do not keep to the grammar cut the request.
    for chunks in
        ["0\n\n", "0;a\nb\r\n\r\n", "-1\r\n\r\n", "0x0\r\n\r\n", "10000000000000000\r\n\r\n", "3\r\nabcd\r\n0\r\n\r\n"]
    {
        let ask = format!("POST /cut HTTP/1.1\r\nhost: a.test\r\ntransfer-encoding: chunked\r\n\r\n{chunks}{inner}");
        let answer = Door::to(&format!("http://{upstream}")).say(ask).await;
        assert!(!answer.contains("200 OK"), "{chunks:?}: {answer}");
    }
    let seen = seen.lock().expect("unpoisoned");
    assert!(!seen.iter().any(|path| path == "/smuggled"), "{seen:?}");
    assert_eq!(seen.iter().filter(|path| *path == "/outer").count(), 2);
}

#[tokio::test]
async fn bare_line_feeds_do_not_change_what_the_upstream_reads() {
    let upstream = raw_upstream(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        let is_strict = head.replace("\r\n", "").chars().all(|c| !c.is_control());
        let answer = if is_strict { "HTTP/1.1 204 No Content\r\n\r\n" } else { "HTTP/1.1 500 Bad\r\n\r\n" };
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await;
    // RFC 9112 section 2.2 allows a lone LF to end a line; what goes on is written anew with CRLF.
    let answer =
        Door::to(&format!("http://{upstream}")).say("GET / HTTP/1.1\nhost: a.test\nx: y\nconnection: close\n\n").await;
    assert!(answer.starts_with("HTTP/1.1 204 ") || answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn a_head_over_the_limit_is_refused() {
    let door = Door::to("builtin:echo");
    let answer = door.say(format!("GET / HTTP/1.1\r\nhost: a.test\r\nx: {}\r\n\r\n", "y".repeat(70 << 10))).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    let many = "x: y\r\n".repeat(200);
    let answer = door.say(format!("GET / HTTP/1.1\r\nhost: a.test\r\n{many}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
    assert_eq!(door.metrics.refusal("http_malformed").value(), 2);
    let request = Request::get("https://a.test/").header("x", "y".repeat(70 << 10)).body(full("")).expect("valid");
    let outcome = door.h2().await.send_request(request).await;
    let refused = outcome.map_or(true, |response| response.status() == StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    assert!(refused);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_one_byte_a_minute_is_cut() {
    let door = Door::to("builtin:echo");
    let mut client = door.open(Protocol::H1);
    let started = tokio::time::Instant::now();
    let mut sent = 0;
    for byte in b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n" {
        if client.write_all(&[*byte]).await.is_err() {
            break;
        }
        sent += 1;
        tokio::time::advance(Duration::from_secs(20)).await;
        tokio::task::yield_now().await;
    }
    assert!(sent < 5, "{sent} bytes taken");
    assert_eq!(read_all(&mut client).await, "");
    assert!(started.elapsed() <= Duration::from_secs(120));
    assert_eq!(door.metrics.refusal("http_head_timeout").value(), 1);
    // HTTP/2: a preface begun, and one ended without any request after it.
    for sent in [&b"PRI"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"] {
        let mut client = door.open(Protocol::H2);
        let started = tokio::time::Instant::now();
        client.write_all(sent).await.expect("written");
        let mut sink = Vec::new();
        let _ = client.read_to_end(&mut sink).await;
        assert!(started.elapsed() <= Duration::from_secs(80), "{:?}", started.elapsed());
    }
    assert_eq!(door.metrics.refusal("http_idle").value(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_take_its_answer_is_cut() {
    let door = Door::to("builtin:demo");
    let mut client = door.open(Protocol::H1);
    client.write_all(b"GET /bytes?n=100000000 HTTP/1.1\r\nhost: a.test\r\n\r\n").await.expect("written");
    eventually(|| door.in_flight() == 1).await;
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(door.in_flight(), 0);
    assert_eq!(door.metrics.refusal("http_stalled").value(), 1);

    // HTTP/2 takes the bytes of the connection, but gives this answer no more credit.
    let response = door.get_h2("/bytes?n=100000000").await.expect("a head");
    tokio::time::sleep(Duration::from_secs(80)).await;
    assert_eq!(door.in_flight(), 0);
    assert_eq!(door.metrics.refusal("http_stalled").value(), 2);
    response.into_body().collect().await.expect_err("cut");
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_is_not_idle() {
    let upstream =
        Door::with(RouteSpec { idle_timeout: Duration::from_secs(3600), ..RouteSpec::new("a.test", "builtin:echo") });
    let mut h2 = upstream.h2().await;
    let (sender, body) = channel(1);
    sender.send(Ok("1".into())).await.expect("room");
    let mut answer = h2.send_request(post("https://a.test/", body)).await.expect("answered").into_body();
    answer.frame().await.expect("a frame").expect("whole");
    tokio::time::sleep(Duration::from_secs(600)).await;
    sender.send(Ok("2".into())).await.expect("read");
    drop(sender);
    assert_eq!(answer.collect().await.expect("whole").to_bytes(), "2");
    assert_eq!(upstream.metrics.refusal("http_idle").value(), 0);
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    let dropped = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&dropped);
    let upstream = raw_upstream(move |mut stream, _| {
        let dropped = Arc::clone(&counted);
        async move {
            let mut sink = Vec::new();
            let _ = stream.read_to_end(&mut sink).await;
            dropped.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let door = Door::to(&format!("http://{upstream}"));
    for protocol in [Protocol::H1, Protocol::H2] {
        if protocol == Protocol::H1 {
            let mut client = door.open(protocol);
            client.write_all(b"GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await.expect("written");
            eventually(|| door.in_flight() == 1).await;
        } else {
            let mut h2 = door.h2().await;
            let call = tokio::spawn(h2.send_request(get("https://a.test/")));
            eventually(|| door.in_flight() == 1).await;
            call.abort();
        }
        eventually(|| door.in_flight() == 0).await;
    }
    eventually(|| dropped.load(Ordering::SeqCst) == 2).await;
}
