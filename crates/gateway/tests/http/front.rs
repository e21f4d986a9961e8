//! The front door against clients that behave and clients that do not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use ropeway_gateway::front::{HEALTH_PATH, LINK_PROTOCOL, Protocol};
use ropeway_gateway::proxy::ProxyError;
use ropeway_gateway::route::RouteSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::door::*;
use crate::support::*;

#[tokio::test]
async fn both_versions_reach_the_route_and_are_counted() {
    let door = Door::to("builtin:echo");
    let mut client = door.open(Protocol::H1);
    for _ in 0..2 {
        client
            .write_all(b"POST /x?y HTTP/1.1\r\nhost: a.test\r\ncontent-length: 4\r\n\r\nping")
            .await
            .expect("written");
        let head = read_until(&mut client, "\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(head.contains("echo-path: /x?y\r\n"), "{head}");
        assert_eq!(read_until(&mut client, "ping").await, "ping");
    }
    let mut h2 = door.h2().await;
    let response = h2.send_request(post("https://a.test/x", full("pong"))).await.expect("answered");
    assert_eq!(response.headers()["echo-method"], "POST");
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "pong");
    let text = door.metrics.render();
    for series in ["{protocol=\"h1\"} 1", "{protocol=\"h2\"} 1"] {
        assert!(text.contains(&format!("ropeway_http_connections_total{series}")), "{text}");
    }
}

#[tokio::test]
async fn a_hundred_streams_share_one_h2_connection() {
    let door = Door::to("builtin:echo");
    let h2 = door.h2().await;
    let calls = (0..100).map(|number| {
        let mut h2 = h2.clone();
        async move {
            let body = Bytes::from(vec![number; 100_000]);
            let response = h2.send_request(post("https://a.test/", full(body.clone()))).await.expect("answered");
            assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), body);
        }
    });
    futures_util::future::join_all(calls).await;
}

#[tokio::test]
async fn the_health_probe_answers_on_any_authority_and_tells_of_draining() {
    let mut door = Door::to("builtin:echo");
    door.connection.plain = true;
    let probe = format!("GET {HEALTH_PATH} HTTP/1.1\r\nhost: 10.0.0.1\r\nconnection: close\r\n\r\n");
    let answer = door.say(&probe).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("ok\n"), "{answer}");
    assert_eq!(door.get_h2(HEALTH_PATH).await.expect("answered").status(), StatusCode::OK);
    // A balancer that keeps its connection open learns of the draining over it.
    let mut kept = door.open(Protocol::H1);
    kept.write_all(&probe.as_bytes()[..20]).await.expect("written");
    tokio::task::yield_now().await;
    door.drain.cancel();
    kept.write_all(&probe.as_bytes()[20..]).await.expect("written");
    let answer = read_all(&mut kept).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 503 "), "{answer}");
}

#[tokio::test]
async fn a_cut_upstream_body_is_cut_towards_the_client_too() {
    for (upstream_says, complete) in [
        (&b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"[..], false),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n", false),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nhalf", false),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n\r\n", true),
    ] {
        let upstream = answering(upstream_says).await;
        let door = Door::to(&format!("http://{upstream}"));
        let answer = door.say("GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").await;
        let (_, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let is_whole =
            if answer.contains("content-length: 10") { body.len() == 10 } else { body.ends_with("0\r\n\r\n") };
        assert_eq!(is_whole, complete, "{answer}");

        let upstream = answering(upstream_says).await;
        let door = Door::to(&format!("http://{upstream}"));
        let outcome = match door.get_h2("/").await {
            Ok(response) => response.into_body().collect().await.map(drop),
            Err(error) => Err(error),
        };
        assert_eq!(outcome.is_ok(), complete);
        let cut = u64::from(!complete);
        assert_counted(&door.metrics, ProxyError::UpstreamBodyCut, cut);
        assert_eq!(door.in_flight(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_a_body_before_it_was_cut_reaches_the_client_before_the_cut() {
    for length in [4, 20_000, 300_000] {
        let upstream = cutting(length).await;
        let door = Door::to(&format!("http://{upstream}"));
        for _ in 0..5 {
            let answer = door.say("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
            let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
            assert_eq!(body.len(), length, "HTTP/1");

            let mut body = door.get_h2("/").await.expect("answered").into_body();
            let mut read = 0;
            while let Ok(frame) = body.frame().await.expect("the part is not taken for the whole") {
                read += frame.data_ref().map_or(0, Bytes::len);
            }
            assert_eq!(read, length, "HTTP/2");
        }
        assert_eq!(door.in_flight(), 0);
    }
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_cut_where_that_broke() {
    let upstream = raw_upstream(|mut stream, _| async move {
        read_head(&mut stream).await;
        stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nhalf").await.expect("written");
        // Closed so, the connection is reset behind the last byte.
        stream.set_zero_linger().expect("the socket is open");
    })
    .await;
    let door = Door::to(&format!("http://{upstream}"));
    let answer = door.say("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("4\r\nhalf\r\n"), "{answer}");
    assert_counted(&door.metrics, ProxyError::UpstreamBodyCut, 1);
}

#[tokio::test]
async fn an_upstream_that_goes_silent_midway_is_cut_towards_the_client() {
    let upstream = raw_upstream(|mut stream, _| async move {
        read_head(&mut stream).await;
        let part = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n";
        stream.write_all(part).await.expect("written");
        let mut sink = Vec::new();
        let _ = stream.read_to_end(&mut sink).await;
    })
    .await;
    let door = Door::with(RouteSpec {
        idle_timeout: Duration::from_millis(50),
        ..RouteSpec::new("a.test", format!("http://{upstream}"))
    });
    let answer = door.say("GET / HTTP/1.1\r\nhost: a.test\r\n\r\n").await;
    assert!(answer.ends_with("4\r\nhalf\r\n"), "{answer}");
    let response = door.get_h2("/").await.expect("a head");
    response.into_body().collect().await.expect_err("reset");
    assert_counted(&door.metrics, ProxyError::UpstreamBodyIdle, 2);
}

#[tokio::test]
async fn an_error_before_the_head_is_named_in_the_answer() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let door = Door::to(&format!("http://{address}"));
    let answer = door.say("GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{answer}");
    assert!(answer.contains("ropeway-error: upstream_refused\r\n"), "{answer}");
    assert!(answer.contains("ropeway-not-executed: 1\r\n"), "{answer}");
    let silent = answering(b"").await;
    let door = Door::to(&format!("http://{silent}"));
    let response = door.h2().await.send_request(post("https://a.test/", full("x"))).await.expect("answered");
    assert_eq!(response.status(), StatusCode::BAD_GATEWAY);
    assert_eq!(response.headers()["ropeway-error"], "upstream_reset");
    assert!(!response.headers().contains_key("ropeway-not-executed"));
}

#[tokio::test(start_paused = true)]
async fn events_arrive_one_by_one() {
    let door = Door::to("builtin:demo");
    let mut client = door.open(Protocol::H1);
    client.write_all(b"GET /stream HTTP/1.1\r\nhost: a.test\r\n\r\n").await.expect("written");
    read_until(&mut client, "\r\n\r\n").await;
    let started = tokio::time::Instant::now();
    for number in 0..10 {
        let event = read_until(&mut client, "\n\n").await;
        assert!(event.contains(&format!("tick {} of 10", number + 1)), "{event}");
        assert_eq!(started.elapsed().as_secs(), number);
    }
    let mut body = door.get_h2("/stream").await.expect("answered").into_body();
    let started = tokio::time::Instant::now();
    for number in 0..10 {
        body.frame().await.expect("an event").expect("whole");
        assert_eq!(started.elapsed().as_secs(), number);
    }
    assert_eq!(body.collect().await.expect("whole").to_bytes(), "");
}

#[tokio::test]
async fn a_websocket_passes_through_as_opaque_bytes() {
    let upstream = raw_upstream(|mut stream, _| async move {
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("GET /chat?room=1 HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("upgrade: WebSocket\r\n") && head.contains("connection: upgrade\r\n"), "{head}");
        assert!(head.contains("host: a.test\r\n") && head.contains("sec-websocket-key: k\r\n"), "{head}");
        let switch = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
            sec-websocket-accept: a\r\n\r\nfirst";
        stream.write_all(switch).await.expect("written");
        let (mut read, mut write) = stream.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
    })
    .await;
    let door = Door::to(&format!("http://{upstream}"));
    let mut client = door.open(Protocol::H1);
    let ask = b"GET /chat?room=1 HTTP/1.1\r\nhost: a.test\r\nconnection: keep-alive, Upgrade\r\n\
        upgrade: WebSocket\r\nsec-websocket-key: k\r\nsec-websocket-version: 13\r\n\r\n";
    client.write_all(ask).await.expect("written");
    let head = read_until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: a\r\n"), "{head}");
    assert_eq!(read_until(&mut client, "first").await, "first");
    client.write_all(&[0x81, 0x01, b'x']).await.expect("written");
    let mut echoed = [0; 3];
    client.read_exact(&mut echoed).await.expect("echoed");
    assert_eq!(echoed, [0x81, 0x01, b'x']);
    assert_eq!(door.metrics.tunnels().value(), 1);
    client.shutdown().await.expect("shut");
    assert_eq!(read_all(&mut client).await, "");
    eventually(|| door.metrics.tunnels().value() == 0 && door.in_flight() == 0).await;
}

#[tokio::test]
async fn an_upstream_may_decline_a_websocket() {
    let upstream = http_upstream(false, |_| async {
        let mut response = Response::new(full("no"));
        *response.status_mut() = StatusCode::FORBIDDEN;
        response
    })
    .await;
    let ask = "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n\
        GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";
    let answer = Door::to(&format!("http://{upstream}")).say(ask).await;
    assert_eq!(answer.matches("HTTP/1.1 403 Forbidden").count(), 2, "{answer}");
    let answer = Door::to("builtin:echo").say(ask).await;
    assert!(answer.starts_with("HTTP/1.1 501 "), "{answer}");
    assert!(answer.contains("ropeway-error: upgrade_unsupported\r\n"), "{answer}");
}

fn link_door() -> Door {
    Door::build(RouteSpec::new("a.test", "builtin:echo"), |front| {
        front.with_links(Box::new(|upgraded, connection| {
            tokio::spawn(async move {
                let mut io = TokioIo::new(upgraded);
                io.write_all(connection.address.to_string().as_bytes()).await.expect("written");
                let mut byte = [0];
                io.read_exact(&mut byte).await.expect("read");
                io.write_all(&byte).await.expect("written");
            });
        }))
    })
}

fn link_request(change: impl Fn(String) -> String) -> String {
    change(format!(
        "GET /any HTTP/1.1\r\nhost: anything\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\nsec-websocket-version: 13\r\n\
         sec-websocket-protocol: other, {LINK_PROTOCOL}\r\n\r\n"
    ))
}

#[tokio::test]
async fn a_websocket_with_the_link_protocol_is_handed_over() {
    let door = link_door();
    let mut client = door.open(Protocol::H1);
    client.write_all(link_request(|same| same).as_bytes()).await.expect("written");
    let head = read_until(&mut client, "\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{head}");
    assert!(head.contains("sec-websocket-protocol: ropeway.v1\r\n"), "{head}");
    assert_eq!(read_until(&mut client, ":1234").await, "192.0.2.7:1234");
    client.write_all(b"z").await.expect("written");
    assert_eq!(read_all(&mut client).await, "z");
}

#[tokio::test]
async fn a_link_that_may_not_be_is_refused_by_name() {
    let close = |request: String| request.replace("connection: upgrade", "connection: upgrade, close");
    let door = link_door();
    let answer = door.say(link_request(|r| close(r).replace("version: 13", "version: 8"))).await;
    assert!(answer.starts_with("HTTP/1.1 426 "), "{answer}");
    assert!(answer.contains("sec-websocket-version: 13\r\n"), "{answer}");
    let answer =
        door.say(link_request(|r| close(r).replace("bm9uY2U=", "").replace("dGhlIHNhbXBsZSBub25jZQ==", "c2g="))).await;
    assert!(answer.contains("ropeway-error: request_malformed\r\n"), "{answer}");
    assert_eq!(door.metrics.refusal("websocket_handshake").value(), 2);

    let mut plain = link_door();
    plain.connection.plain = true;
    let answer = plain.say(link_request(close)).await;
    assert!(answer.contains("ropeway-error: plain_http_refused\r\n"), "{answer}");

    let answer = Door::to("builtin:echo").say(link_request(close)).await;
    assert!(answer.contains("ropeway-error: upgrade_unsupported\r\n"), "{answer}");
}

#[tokio::test]
async fn connect_is_refused() {
    let door = Door::to("builtin:echo");
    let answer = door.say("CONNECT a.test:443 HTTP/1.1\r\nhost: a.test:443\r\nconnection: close\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    let request = Request::connect("a.test:443").body(full("")).expect("valid");
    let response = door.h2().await.send_request(request).await.expect("answered");
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn plain_http_is_refused_by_name_unless_the_route_allows_it() {
    let ask = "GET / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\n\r\n";
    let mut door = Door::to("builtin:echo");
    door.connection.plain = true;
    let answer = door.say(ask).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("ropeway-error: plain_http_refused"), "{answer}");
    assert_counted(&door.metrics, ProxyError::PlainHttpRefused, 1);
    let mut door = Door::with(RouteSpec { plain_http: true, ..RouteSpec::new("a.test", "builtin:echo") });
    door.connection.plain = true;
    let answer = door.say(ask).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn early_data_carries_only_safe_requests() {
    let mut door = Door::to("builtin:echo");
    let early = Arc::new(std::sync::atomic::AtomicBool::new(true));
    door.connection.early = Some(Arc::clone(&early));
    let post = "POST / HTTP/1.1\r\nhost: a.test\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let answer = door.say(post).await;
    assert!(answer.starts_with("HTTP/1.1 425 "), "{answer}");
    early.store(false, Ordering::Release);
    let answer = door.say(post).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn http10_gets_answers_with_a_length_only() {
    let known = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
    let ask = "GET / HTTP/1.0\r\nhost: a.test\r\n\r\n";
    let answer = Door::to(&format!("http://{known}")).say(ask).await;
    assert!(answer.starts_with("HTTP/1.0 200 OK") && answer.ends_with("\r\n\r\nok"), "{answer}");
    let streamed = answering(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
    let answer = Door::to(&format!("http://{streamed}")).say(ask).await;
    assert!(answer.starts_with("HTTP/1.0 505 ") && answer.contains("http10_stream"), "{answer}");
}

#[tokio::test]
async fn a_client_that_expects_100_is_told_to_go_on() {
    let upstream = http_upstream(false, |request| async move {
        assert!(!request.headers().contains_key(header::EXPECT));
        let body = request.into_body().collect().await.expect("whole").to_bytes();
        Response::new(full(body))
    })
    .await;
    let door = Door::to(&format!("http://{upstream}"));
    let mut client = door.open(Protocol::H1);
    let head = b"POST / HTTP/1.1\r\nhost: a.test\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n";
    client.write_all(head).await.expect("written");
    assert_eq!(read_until(&mut client, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.write_all(b"ping").await.expect("written");
    assert!(read_until(&mut client, "\r\n\r\n").await.starts_with("HTTP/1.1 200 OK"));
    assert_eq!(read_until(&mut client, "ping").await, "ping");
}

#[tokio::test]
async fn trailers_reach_an_h2_client() {
    let upstream = http_upstream(true, |_| async {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("value"));
        Response::new(full("call").with_trailers(async { Some(Ok(trailers)) }).boxed_unsync())
    })
    .await;
    let door = Door::to(&format!("h2c://{upstream}"));
    let body = door.get_h2("/svc/Call").await.expect("answered").into_body().collect().await.expect("whole");
    assert_eq!(body.trailers().expect("trailers")["grpc-status"], "0");
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_what_is_in_flight_and_closes_the_rest() {
    let door = Door::to("builtin:demo");
    let mut idle = door.open(Protocol::H1);
    let mut busy = door.open(Protocol::H1);
    busy.write_all(b"GET /slow?ms=5000 HTTP/1.1\r\nhost: a.test\r\n\r\n").await.expect("written");
    let mut busy_h2 = door.h2().await;
    let slow = tokio::spawn(busy_h2.send_request(get("https://a.test/slow?ms=5000")));
    eventually(|| door.in_flight() == 2).await;
    door.drain.cancel();
    assert_eq!(read_all(&mut idle).await, "");
    let answer = read_all(&mut busy).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("waited 5000 ms\n"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
    let response = slow.await.expect("joined").expect("answered");
    let body = response.into_body().collect().await.expect("whole").to_bytes();
    assert_eq!(body, "waited 5000 ms\n");
    eventually(|| busy_h2.is_closed()).await;
    assert_eq!(door.in_flight(), 0);
}
