//! What a client is told of an upstream that fails it: whether its request can have run, and how soon.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use ropeway_core::quality::SERVER_TIME_SAMPLES_MIN;
use ropeway_gateway::proxy::{Proxy, ProxyError};
use ropeway_gateway::route::RouteSpec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;

use crate::proxy::certificate;
use crate::support::*;

/// An upstream that takes connections and says nothing, until it is healed.
async fn silent(healed: Arc<AtomicBool>) -> RouteSpec {
    let (ca, config) = certificate();
    let upstream = raw_upstream(move |mut stream, _| {
        let (healed, acceptor) = (Arc::clone(&healed), tokio_rustls::TlsAcceptor::from(Arc::clone(&config)));
        async move {
            if healed.load(Ordering::SeqCst) {
                let Ok(stream) = acceptor.accept(stream).await else { return };
                serve_upstream(stream, false, |_: Request<_>| async { Response::new(full("well")) }).await;
            } else {
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
        }
    })
    .await;
    RouteSpec {
        upstream_ca_pem: Some(ca),
        // Just long enough for a failure to count as a wait.
        connect_timeout: Duration::from_millis(260),
        ..RouteSpec::new("a.test", format!("https://{upstream}"))
    }
}

async fn failure(proxy: &Proxy) -> ProxyError {
    proxy.forward(post("https://a.test/", full("x")), peer()).await.expect_err("beyond reach")
}

#[tokio::test]
async fn an_upstream_beyond_reach_is_waited_for_three_times_and_found_again_by_itself() {
    let healed = Arc::new(AtomicBool::new(false));
    let spec = silent(Arc::clone(&healed)).await;
    let limit = spec.connect_timeout;
    let (proxy, metrics) = proxy_with(spec);
    let waits = [failure(&proxy), failure(&proxy), failure(&proxy)];
    assert_eq!(futures_util::future::join_all(waits).await, [ProxyError::UpstreamConnectTimeout; 3]);
    let began = Instant::now();
    let error = failure(&proxy).await;
    assert_eq!((error, error.executed()), (ProxyError::UpstreamDown, false));
    assert!(began.elapsed() < limit, "{:?}", began.elapsed());
    let down = &metrics.route("a.test/").down;
    assert_eq!((down.down.value(), down.openings.value()), (1, 1));
    healed.store(true, Ordering::SeqCst);
    let answer = loop {
        match proxy.forward(post("https://a.test/", full("x")), peer()).await {
            Ok(answer) => break answer,
            Err(error) => assert_eq!(error, ProxyError::UpstreamDown),
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(answer.into_body().collect().await.expect("whole").to_bytes(), "well");
    assert_eq!(down.down.value(), 0);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test]
async fn an_upstream_that_refuses_at_once_is_asked_every_time() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds").local_addr().expect("bound");
    let (proxy, metrics) = proxy_to(&format!("http://{gone}"));
    for _ in 0..10 {
        assert_eq!(failure(&proxy).await, ProxyError::UpstreamRefused);
    }
    assert_eq!(metrics.route("a.test/").down.openings.value(), 0);
}

#[tokio::test]
async fn an_upstreams_own_503_passes_with_its_advice_and_without_our_mark() {
    let upstream = http_upstream(false, |_| async {
        let mut response = Response::new(full("later"));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert("retry-after", HeaderValue::from_static("7"));
        response.headers_mut().insert("ropeway-not-executed", HeaderValue::from_static("1"));
        response
    })
    .await;
    let (proxy, _) = proxy_to(&format!("http://{upstream}"));
    let response = proxy.forward(post("https://a.test/", full("x")), peer()).await.expect("answered");
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(response.headers()["retry-after"], "7");
    assert!(!response.headers().contains_key("ropeway-not-executed"));
}

#[tokio::test]
async fn what_a_connection_reset_leaves_open_is_never_called_unexecuted() {
    let heads = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&heads);
    let upstream = raw_upstream(move |mut stream, number| {
        let counted = Arc::clone(&counted);
        async move {
            // Every third is reset before anything was read, every third behind the head; the others serve one request and are
            // reset while they are pooled.
            if number % 3 != 0 && !read_head(&mut stream).await.is_empty() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            if number % 3 == 2 {
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await;
            }
            let _ = stream.set_zero_linger();
        }
    })
    .await;
    let (proxy, _) = proxy_to(&format!("http://{upstream}"));
    for number in 0..120 {
        let before = heads.load(Ordering::SeqCst);
        let method = if number % 2 == 0 { Method::POST } else { Method::DELETE };
        let request = Request::builder().method(method).uri("https://a.test/").body(full("")).expect("valid");
        match proxy.forward(request, peer()).await {
            Ok(response) => drop(response.into_body().collect().await.expect("whole")),
            Err(error) if error.executed() => assert_eq!(error, ProxyError::UpstreamReset),
            Err(error) => {
                assert_eq!(error, ProxyError::UpstreamClosed);
                assert_eq!(heads.load(Ordering::SeqCst), before, "request {number} was seen");
            }
        }
    }
}

#[tokio::test]
async fn the_server_time_is_what_the_route_says_or_what_was_measured() {
    let pause = Duration::from_millis(20);
    let upstream = http_upstream(false, move |request| async move {
        if request.uri().path() == "/slow" {
            tokio::time::sleep(pause).await;
        }
        Response::new(full("done"))
    })
    .await;
    let spec = RouteSpec::new("a.test", format!("http://{upstream}"));
    let (proxy, metrics) = proxy_with(spec.clone());
    let route = proxy.router().routes()[0].id();
    for number in 0..SERVER_TIME_SAMPLES_MIN {
        assert_eq!(proxy.server_time(route), None);
        let path = if number % 10 == 0 { "slow" } else { "quick" };
        let response = proxy.forward(get(&format!("https://a.test/{path}")), peer()).await.expect("answered");
        response.into_body().collect().await.expect("whole");
    }
    assert!(proxy.server_time(route).expect("enough") >= pause);
    let count = format!("ropeway_upstream_duration_seconds_count{{route=\"a.test/\"}} {SERVER_TIME_SAMPLES_MIN}\n");
    assert!(metrics.render().contains(&count), "{}", metrics.render());
    let said = Duration::from_secs(2);
    let (proxy, _) = proxy_with(RouteSpec { server_time: Some(said), ..spec });
    assert_eq!(proxy.server_time(route), Some(said));
}
