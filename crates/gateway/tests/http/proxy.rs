//! The proxy against upstreams that behave and upstreams that do not.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use ropeway_gateway::proxy::{ProxyError, USER_HEADER};
use ropeway_gateway::route::{RouteSpec, Router};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::support::*;

#[tokio::test]
async fn a_request_and_its_answer_cross_with_bodies_and_headers() {
    let upstream = http_upstream(false, |request| async move {
        assert_eq!(request.method(), Method::PUT);
        assert_eq!(request.uri(), "/path?q=1");
        assert_eq!(request.headers()[header::HOST], "a.test");
        assert_eq!(request.headers()[USER_HEADER], "ann");
        let body = request.into_body().collect().await.expect("whole body").to_bytes();
        let mut response = Response::new(full(body));
        response.headers_mut().insert("x-own", "1".parse().expect("value"));
        response.headers_mut().insert("ropeway-error", "lie".parse().expect("value"));
        response
    })
    .await;
    let (proxy, metrics) = proxy_to(&format!("http://{upstream}"));
    let request = Request::put("https://a.test/path?q=1").body(full("hello")).expect("valid");
    let peer = ropeway_gateway::proxy::Peer { user: Some("ann".to_owned()), via_link: true, ..peer() };
    let response = proxy.forward(request, peer).await.expect("answered");
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["x-own"], "1");
    assert!(!response.headers().contains_key("ropeway-error"));
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "hello");
    let text = metrics.render();
    let series = "ropeway_requests_total{route=\"a.test/\",status_class=\"2xx\",via=\"link\"} 1";
    assert!(text.contains(series), "{text}");
    assert!(text.contains("ropeway_request_duration_seconds_count{route=\"a.test/\"} 1"), "{text}");
    assert!(text.contains("ropeway_requests_in_flight{route=\"a.test/\"} 0"), "{text}");
}

#[tokio::test]
async fn both_directions_stream_at_once() {
    for h2 in [false, true] {
        let upstream = http_upstream(h2, |request| async move {
            let body = request.into_body().map_err(|_| ProxyError::RequestBodyCut);
            Response::new(body.boxed_unsync())
        })
        .await;
        let scheme = if h2 { "h2c" } else { "http" };
        let (proxy, _) = proxy_to(&format!("{scheme}://{upstream}"));
        let (sender, body) = channel(1);
        sender.send(Ok("0".into())).await.expect("read");
        let response = proxy.forward(post("https://a.test/", body), peer()).await.expect("answered");
        let mut answer = response.into_body();
        for number in 1..5 {
            let frame = answer.frame().await.expect("a frame").expect("whole").into_data();
            assert_eq!(frame.expect("data"), (number - 1).to_string());
            sender.send(Ok(number.to_string().into())).await.expect("read");
        }
        drop(sender);
        assert_eq!(answer.collect().await.expect("whole").to_bytes(), "4");
    }
}

#[tokio::test]
async fn trailers_of_an_h2c_upstream_pass_both_ways() {
    let upstream = http_upstream(true, |request| async move {
        assert_eq!(request.headers()[header::TE], "trailers");
        let body = request.into_body().collect().await.expect("whole");
        assert_eq!(body.trailers().expect("trailers")["x-up"], "1");
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().expect("value"));
        let body = full(body.to_bytes());
        Response::new(body.with_trailers(async { Some(Ok(trailers)) }).boxed_unsync())
    })
    .await;
    let (proxy, _) = proxy_to(&format!("h2c://{upstream}"));
    let mut trailers = HeaderMap::new();
    trailers.insert("x-up", "1".parse().expect("value"));
    let body = full("call").with_trailers(async { Some(Ok(trailers)) }).boxed_unsync();
    let request = Request::post("https://a.test/svc/Call").header("te", "trailers").body(body);
    let response = proxy.forward(request.expect("valid"), peer()).await.expect("answered");
    let body = response.into_body().collect().await.expect("whole");
    assert_eq!(body.trailers().expect("trailers")["grpc-status"], "0");
    assert_eq!(body.to_bytes(), "call");
}

#[tokio::test]
async fn an_unknown_host_or_path_has_no_route() {
    let (proxy, metrics) =
        proxy_with(RouteSpec { path_prefix: "/api".to_owned(), ..RouteSpec::new("a.test", "builtin:echo") });
    for uri in ["https://b.test/api", "https://a.test/other"] {
        let error = proxy.forward(get(uri), peer()).await.expect_err("no route");
        assert_eq!(error, ProxyError::NoRoute);
    }
    assert_counted(&metrics, ProxyError::NoRoute, 2);
}

#[tokio::test]
async fn a_refusing_upstream_is_named_and_did_not_execute() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("bound");
    drop(listener);
    let (proxy, metrics) = proxy_to(&format!("http://{address}"));
    let error = proxy.forward(get("https://a.test/"), peer()).await.expect_err("refused");
    assert_eq!(error, ProxyError::UpstreamRefused);
    assert!(!error.executed());
    assert_counted(&metrics, error, 1);
}

#[tokio::test]
async fn an_upstream_that_accepts_and_is_silent_runs_into_the_first_byte_limit() {
    let upstream = raw_upstream(|mut stream, _| async move {
        let mut sink = Vec::new();
        let _ = stream.read_to_end(&mut sink).await;
    })
    .await;
    let (proxy, metrics) = proxy_with(RouteSpec {
        first_byte_timeout: Duration::from_millis(50),
        ..RouteSpec::new("a.test", format!("http://{upstream}"))
    });
    let error = proxy.forward(post("https://a.test/", full("x")), peer()).await.expect_err("silent");
    assert_eq!(error, ProxyError::UpstreamFirstByteTimeout);
    assert!(error.executed());
    assert_counted(&metrics, error, 1);
}

#[tokio::test]
async fn a_tls_handshake_that_hangs_runs_into_the_connect_limit() {
    let upstream = raw_upstream(|mut stream, _| async move {
        let mut sink = Vec::new();
        let _ = stream.read_to_end(&mut sink).await;
    })
    .await;
    let (proxy, metrics) = proxy_with(RouteSpec {
        connect_timeout: Duration::from_millis(50),
        upstream_ca_pem: Some(certificate().0),
        ..RouteSpec::new("a.test", format!("https://{upstream}"))
    });
    let error = proxy.forward(get("https://a.test/"), peer()).await.expect_err("hangs");
    assert_eq!(error, ProxyError::UpstreamConnectTimeout);
    assert_counted(&metrics, error, 1);
}

#[tokio::test]
async fn a_slow_upload_does_not_run_into_the_first_byte_limit() {
    let upstream = http_upstream(false, |request| async move {
        let whole = request.into_body().collect().await.expect("whole").to_bytes();
        Response::new(full(whole))
    })
    .await;
    let limit = Duration::from_millis(400);
    let (proxy, _) =
        proxy_with(RouteSpec { first_byte_timeout: limit, ..RouteSpec::new("a.test", format!("http://{upstream}")) });
    let (sender, body) = channel(1);
    let feeding = tokio::spawn(async move {
        let mut pause = tokio::time::interval(limit / 4);
        for _ in 0..8 {
            pause.tick().await;
            sender.send(Ok("x".into())).await.expect("read");
        }
    });
    let response = proxy.forward(post("https://a.test/", body), peer()).await.expect("answered");
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "xxxxxxxx");
    feeding.await.expect("fed");
}

#[tokio::test]
async fn a_client_that_goes_silent_within_its_body_is_cut() {
    let upstream = http_upstream(false, |request| async move {
        let _ = request.into_body().collect().await;
        Response::new(full("never"))
    })
    .await;
    let (proxy, metrics) = proxy_with(RouteSpec {
        idle_timeout: Duration::from_millis(50),
        ..RouteSpec::new("a.test", format!("http://{upstream}"))
    });
    let (sender, body) = channel(1);
    sender.send(Ok("x".into())).await.expect("room");
    let error = proxy.forward(post("https://a.test/", body), peer()).await.expect_err("silent");
    assert_eq!(error, ProxyError::RequestBodyIdle);
    assert_counted(&metrics, error, 1);
}

#[tokio::test]
async fn an_answer_that_hangs_midway_ends_in_an_error() {
    let upstream = raw_upstream(|mut stream, _| async move {
        read_head(&mut stream).await;
        let part = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
        stream.write_all(part).await.expect("written");
        let mut sink = Vec::new();
        let _ = stream.read_to_end(&mut sink).await;
    })
    .await;
    let (proxy, metrics) = proxy_with(RouteSpec {
        idle_timeout: Duration::from_millis(50),
        ..RouteSpec::new("a.test", format!("http://{upstream}"))
    });
    let response = proxy.forward(get("https://a.test/"), peer()).await.expect("a head");
    let error = response.into_body().collect().await.expect_err("cut");
    assert_eq!(error, ProxyError::UpstreamBodyIdle);
    assert_counted(&metrics, error, 1);
}

#[tokio::test]
async fn a_cut_answer_ends_in_an_error_however_its_length_was_told() {
    for bytes in [
        &b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"[..],
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n8\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
    ] {
        let upstream = answering(bytes).await;
        let (proxy, metrics) = proxy_to(&format!("http://{upstream}"));
        let response = proxy.forward(get("https://a.test/"), peer()).await.expect("a head");
        let error = response.into_body().collect().await.expect_err("cut");
        assert_eq!(error, ProxyError::UpstreamBodyCut);
        assert_counted(&metrics, error, 1);
        assert!(metrics.render().contains("ropeway_requests_in_flight{route=\"a.test/\"} 0"));
    }
}

#[tokio::test]
async fn an_answer_that_contradicts_itself_is_set_right() {
    let heads = [
        (
            &b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"[..],
            "hello",
        ),
        (b"HTTP/1.1 204 No Content\r\ncontent-length: 5\r\n\r\nhello", ""),
        (b"HTTP/1.0 200 OK\r\n\r\nhello", "hello"),
    ];
    for (bytes, body) in heads {
        let upstream = answering(bytes).await;
        let (proxy, _) = proxy_to(&format!("http://{upstream}"));
        let response = proxy.forward(get("https://a.test/"), peer()).await.expect("a head");
        assert_eq!((response.version(), response.headers().get("content-length")), (http::Version::HTTP_11, None));
        assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), body);
    }
}

#[tokio::test]
async fn a_switch_of_protocols_that_nobody_asked_for_is_a_bad_response() {
    let upstream = answering(b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await;
    let (proxy, metrics) = proxy_to(&format!("http://{upstream}"));
    let error = proxy.forward(get("https://a.test/"), peer()).await.expect_err("refused");
    assert_eq!(error, ProxyError::UpstreamBadResponse);
    assert_counted(&metrics, error, 1);
}

#[tokio::test]
async fn an_h2c_answer_that_is_reset_ends_in_an_error() {
    let (sender, body) = channel(2);
    let body = Mutex::new(Some(body));
    let upstream = http_upstream(true, move |_| {
        let body = body.lock().expect("unpoisoned").take().expect("one request");
        async move { Response::new(body) }
    })
    .await;
    let (proxy, metrics) = proxy_to(&format!("h2c://{upstream}"));
    sender.send(Ok("half".into())).await.expect("room");
    let response = proxy.forward(get("https://a.test/"), peer()).await.expect("a head");
    let mut body = response.into_body();
    assert!(body.frame().await.expect("a frame").is_ok());
    sender.send(Err(ProxyError::UpstreamBodyCut)).await.expect("read");
    let error = body.collect().await.expect_err("reset");
    assert_eq!(error, ProxyError::UpstreamReset);
    assert_counted(&metrics, error, 1);
}

#[tokio::test]
async fn an_upstream_that_closes_or_babbles_instead_of_answering_is_named() {
    for (bytes, expected) in [
        (&b""[..], ProxyError::UpstreamReset),
        (b"HTTP/1.1 200", ProxyError::UpstreamReset),
        (b"SSH-2.0-OpenSSH_9.2\r\n", ProxyError::UpstreamBadResponse),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab", ProxyError::UpstreamBadResponse),
    ] {
        let upstream = answering(bytes).await;
        let (proxy, metrics) = proxy_to(&format!("http://{upstream}"));
        let error = proxy.forward(post("https://a.test/", full("")), peer()).await.expect_err("no answer");
        assert_eq!(error, expected);
        assert!(error.executed());
        assert_counted(&metrics, error, 1);
    }
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_or_cut() {
    let upstream = http_upstream(false, |request| async move {
        let _ = request.into_body().collect().await;
        Response::new(full("never"))
    })
    .await;
    for upstream in [format!("http://{upstream}"), "builtin:echo".to_owned()] {
        let (proxy, metrics) = proxy_with(RouteSpec { body_bytes_max: 4, ..RouteSpec::new("a.test", &upstream) });
        let error = proxy.forward(post("https://a.test/", full("12345")), peer()).await.expect_err("too large");
        assert_eq!(error, ProxyError::BodyTooLarge);
        let (sender, body) = channel(2);
        sender.send(Ok("123".into())).await.expect("room");
        sender.send(Ok("45".into())).await.expect("room");
        drop(sender);
        let error = match proxy.forward(post("https://a.test/", body), peer()).await {
            Ok(response) => response.into_body().collect().await.expect_err("too large"),
            Err(error) => error,
        };
        assert_eq!(error, ProxyError::BodyTooLarge);
        assert_counted(&metrics, error, 2);
    }
}

#[tokio::test]
async fn a_cut_request_body_is_never_complete_at_the_upstream() {
    for h2 in [false, true] {
        let (began, began_here) = tokio::sync::mpsc::channel::<()>(1);
        let (ended, mut ended_here) = tokio::sync::mpsc::channel::<bool>(1);
        let upstream = http_upstream(h2, move |request| {
            let (began, ended) = (began.clone(), ended.clone());
            async move {
                let mut body = request.into_body();
                body.frame().await.expect("a frame").expect("whole");
                began.send(()).await.expect("the test waits");
                // Runs also where hyper drops the handler together with its connection.
                let mut outcome = OnDrop(ended, false);
                outcome.1 = body.collect().await.is_ok();
                Response::new(full("never"))
            }
        })
        .await;
        let scheme = if h2 { "h2c" } else { "http" };
        let (proxy, metrics) = proxy_to(&format!("{scheme}://{upstream}"));
        let (sender, body) = channel(1);
        let mut began = began_here;
        let cutting = tokio::spawn(async move {
            sender.send(Ok("part".into())).await.expect("read");
            began.recv().await.expect("the upstream has begun");
            sender.send(Err(ProxyError::RequestBodyCut)).await.expect("read");
        });
        let error = proxy.forward(post("https://a.test/", body), peer()).await.expect_err("cut");
        assert_eq!(error, ProxyError::RequestBodyCut);
        assert_counted(&metrics, error, 1);
        assert_eq!(ended_here.recv().await, Some(false), "h2: {h2}");
        cutting.await.expect("cut");
    }
}

struct OnDrop(tokio::sync::mpsc::Sender<bool>, bool);

impl Drop for OnDrop {
    fn drop(&mut self) {
        let _ = self.0.try_send(self.1);
    }
}

#[tokio::test]
async fn requests_over_the_routes_limit_are_refused_until_one_ends() {
    let (proxy, metrics) = proxy_with(RouteSpec { in_flight_max: 1, ..RouteSpec::new("a.test", "builtin:echo") });
    let (sender, body) = channel(1);
    let first = proxy.forward(post("https://a.test/", body), peer()).await.expect("answered");
    let error = proxy.forward(get("https://a.test/"), peer()).await.expect_err("full");
    assert_eq!(error, ProxyError::TooManyInFlight);
    assert_counted(&metrics, error, 1);
    drop(sender);
    first.into_body().collect().await.expect("whole");
    proxy.forward(get("https://a.test/"), peer()).await.expect("room again");
}

#[tokio::test]
async fn echo_tells_method_and_path_and_sends_the_body_back() {
    let (proxy, _) = proxy_to("builtin:echo");
    let request = post("https://a.test/a/b?c", full("ping"));
    let response = proxy.forward(request, peer()).await.expect("answered");
    assert_eq!(response.headers()["echo-method"], "POST");
    assert_eq!(response.headers()["echo-path"], "/a/b?c");
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "ping");
}

#[tokio::test]
async fn only_safe_requests_pass_in_early_data_and_425_comes_back() {
    let upstream = http_upstream(false, |request| async move {
        assert_eq!(request.headers()["early-data"], "1");
        let mut response = Response::new(full(""));
        *response.status_mut() = StatusCode::TOO_EARLY;
        response
    })
    .await;
    let (proxy, _) = proxy_to(&format!("http://{upstream}"));
    let early = ropeway_gateway::proxy::Peer { early: true, ..peer() };
    let error = proxy.forward(post("https://a.test/", full("")), early.clone()).await.expect_err("unsafe");
    assert_eq!(error, ProxyError::TooEarly);
    let response = proxy.forward(get("https://a.test/"), early).await.expect("answered");
    assert_eq!(response.status(), StatusCode::TOO_EARLY);
}

#[tokio::test]
async fn plain_http_is_served_only_where_the_route_allows_it() {
    let (proxy, metrics) = proxy_to("builtin:echo");
    let plain = ropeway_gateway::proxy::Peer { plain: true, ..peer() };
    let error = proxy.forward(get("http://a.test/"), plain.clone()).await.expect_err("refused");
    assert_eq!(error, ProxyError::PlainHttpRefused);
    assert_counted(&metrics, error, 1);
    let allowed = RouteSpec { plain_http: true, ..RouteSpec::new("a.test", "builtin:echo") };
    proxy.replace(Router::new(vec![allowed]).expect("valid"));
    proxy.forward(get("http://a.test/"), plain).await.expect("allowed now");
}

#[tokio::test]
async fn an_https_upstream_is_checked_against_the_given_ca() {
    for h2 in [false, true] {
        let (ca, config) = certificate_for(if h2 { &["h2", "http/1.1"] } else { &["http/1.1"] });
        let upstream = raw_upstream(move |stream, _| {
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::clone(&config));
            async move {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                serve_upstream(stream, h2, |request: Request<Incoming>| async move {
                    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
                    let host = host.or(request.uri().authority().map(|host| host.as_str()));
                    Response::new(full(format!("{:?} {host:?}", request.version())))
                })
                .await;
            }
        })
        .await;
        let url = format!("https://{upstream}");
        let trusted = RouteSpec { upstream_ca_pem: Some(ca), ..RouteSpec::new("a.test", &url) };
        let (proxy, _) = proxy_with(trusted);
        let response = proxy.forward(get("https://a.test/"), peer()).await.expect("answered");
        let version = if h2 { "HTTP/2.0" } else { "HTTP/1.1" };
        let told = response.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(told, format!("{version} Some(\"a.test\")"));
        let foreign = RouteSpec { upstream_ca_pem: Some(certificate().0), ..RouteSpec::new("a.test", &url) };
        let (proxy, metrics) = proxy_with(foreign);
        let error = proxy.forward(get("https://a.test/"), peer()).await.expect_err("untrusted");
        assert_eq!(error, ProxyError::UpstreamTls);
        assert_counted(&metrics, error, 1);
    }
}

#[tokio::test]
async fn a_reload_keeps_the_pool_of_an_unchanged_route() {
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    let upstream = raw_upstream(move |mut stream, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async move {
            while !read_head(&mut stream).await.is_empty() {
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            }
        }
    })
    .await;
    let spec = RouteSpec::new("a.test", format!("http://{upstream}"));
    let (proxy, _) = proxy_with(spec.clone());
    for _ in 0..10 {
        let response = proxy.forward(get("https://a.test/"), peer()).await.expect("answered");
        response.into_body().collect().await.expect("whole");
        let other = RouteSpec::new("b.test", "builtin:echo");
        proxy.replace(Router::new(vec![other, spec.clone()]).expect("valid"));
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    assert_eq!(proxy.router().hosts(), ["a.test", "b.test"]);
}

#[tokio::test]
async fn a_post_reaches_the_upstream_at_most_once_when_pooled_connections_die() {
    let seen: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let counting = Arc::clone(&seen);
    let upstream = raw_upstream(move |mut stream, number| {
        let seen = Arc::clone(&counting);
        async move {
            // Every connection serves a few requests, then closes without saying so: the pool
            // still holds it, and the next request races the closing.
            for _ in 0..=number % 3 {
                let head = read_head(&mut stream).await;
                let Some(path) = head.split(' ').nth(1) else { return };
                *seen.lock().expect("unpoisoned").entry(path.to_owned()).or_default() += 1;
                let mut body = [0; 4];
                if stream.read_exact(&mut body).await.is_err() {
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let (proxy, _) = proxy_to(&format!("http://{upstream}"));
    let mut answered = 0;
    for number in 0..200 {
        let request = post(&format!("https://a.test/{number}"), full("body"));
        let outcome = match proxy.forward(request, peer()).await {
            Ok(response) => response.into_body().collect().await.map(drop),
            Err(error) => Err(error),
        };
        let times = seen.lock().expect("unpoisoned").get(&format!("/{number}")).copied().unwrap_or(0);
        match outcome {
            Ok(()) => {
                answered += 1;
                assert_eq!(times, 1, "request {number} was answered");
            }
            Err(error) if error.executed() => assert!(times <= 1, "request {number}: {error}"),
            Err(error) => assert_eq!(times, 0, "request {number} can be sent again: {error}"),
        }
    }
    assert!(answered >= 100, "only {answered} of 200 answered");
}

#[tokio::test]
async fn a_get_that_met_a_dying_pooled_connection_is_sent_once_more_and_one_on_a_fresh_connection_is_not() {
    let heads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&heads);
    let upstream = raw_upstream(move |mut stream, number| {
        let counted = Arc::clone(&counted);
        async move {
            // The first connection answers once and drops what comes after it; the second answers, and no other does.
            for turn in 0..2 {
                if read_head(&mut stream).await.is_empty() {
                    return;
                }
                counted.fetch_add(1, Ordering::SeqCst);
                if number > 1 || (number, turn) == (0, 1) {
                    return;
                }
                let close = if number == 0 { "" } else { "connection: close\r\n" };
                let head = format!("HTTP/1.1 200 OK\r\n{close}content-length: 2\r\n\r\nok");
                let _ = stream.write_all(head.as_bytes()).await;
            }
        }
    })
    .await;
    let (proxy, metrics) = proxy_to(&format!("http://{upstream}"));
    for (runs, retries) in [(1, 0), (3, 1)] {
        let response = proxy.forward(get("https://a.test/"), peer()).await.expect("answered");
        assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "ok");
        assert_eq!(heads.load(Ordering::SeqCst), runs);
        let series = format!("ropeway_upstream_retries_total{{route=\"a.test/\"}} {retries}");
        assert!(metrics.render().contains(&series), "{}", metrics.render());
    }
    let error = proxy.forward(get("https://a.test/"), peer()).await.expect_err("dropped");
    assert_eq!((error, heads.load(Ordering::SeqCst)), (ProxyError::UpstreamReset, 4));
}

#[tokio::test]
async fn a_huge_answer_is_read_only_as_fast_as_the_client_takes_it() {
    let written = Arc::new(AtomicUsize::new(0));
    for h2 in [false, true] {
        written.store(0, Ordering::SeqCst);
        let counted = Arc::clone(&written);
        let upstream = http_upstream(h2, move |_| {
            let counted = Arc::clone(&counted);
            async move {
                let chunk = Bytes::from(vec![7; 64 << 10]);
                let frames = futures_util::stream::repeat_with(move || {
                    counted.fetch_add(chunk.len(), Ordering::SeqCst);
                    Ok(http_body::Frame::data(chunk.clone()))
                });
                Response::new(StreamBody::new(frames).boxed_unsync())
            }
        })
        .await;
        let scheme = if h2 { "h2c" } else { "http" };
        let (proxy, _) = proxy_to(&format!("{scheme}://{upstream}"));
        let response = proxy.forward(get("https://a.test/"), peer()).await.expect("a head");
        let mut body = response.into_body();
        let mut read = 0;
        while read < 32 << 20 {
            read += body.frame().await.expect("endless").expect("whole").into_data().expect("data").len();
        }
        // What is not read yet sits in two kernels' socket buffers and the proxy's own window.
        let ahead = written.load(Ordering::SeqCst) - read;
        assert!(ahead < 16 << 20, "{ahead} bytes ahead of the reader");
    }
}

/// A fresh CA certificate as PEM, and a server with a certificate of it for 127.0.0.1.
pub(crate) fn certificate() -> (Vec<u8>, Arc<rustls::ServerConfig>) {
    certificate_for(&[])
}

fn certificate_for(alpn: &[&str]) -> (Vec<u8>, Arc<rustls::ServerConfig>) {
    let names = vec!["127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .expect("a usable certificate");
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    (made.cert.pem().into_bytes(), Arc::new(config))
}
