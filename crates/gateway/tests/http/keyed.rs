//! Requests with an `Idempotency-Key`: each runs once, whatever becomes of its clients.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use ropeway_core::request::idempotency::IdempotencyConfig;
use ropeway_gateway::front::Protocol;
use ropeway_gateway::metrics::Metrics;
use ropeway_gateway::proxy::{KeyedConfig, Peer, Proxy, ProxyBody, ProxyError};
use ropeway_gateway::route::{RouteSpec, Router};
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

use crate::door::*;
use crate::support::*;

/// A service that counts what reaches it whole, and answers with the count once it is let.
struct Counting {
    url: String,
    runs: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Counting {
    async fn new() -> Self {
        Self::answering(StatusCode::CREATED, 0).await
    }

    /// Answers with this status, and with so many bytes behind the count.
    async fn answering(status: StatusCode, padding: usize) -> Self {
        let (runs, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (counted, gated) = (Arc::clone(&runs), Arc::clone(&gate));
        let address = http_upstream(false, move |request| {
            let (counted, gated) = (Arc::clone(&counted), Arc::clone(&gated));
            async move {
                request.into_body().collect().await.expect("whole");
                let run = counted.fetch_add(1, Ordering::SeqCst) + 1;
                gated.acquire().await.expect("never closed").forget();
                let mut answer = format!("run {run}").into_bytes();
                answer.resize(answer.len() + padding, b'.');
                let mut response = Response::new(full(answer));
                *response.status_mut() = status;
                response.headers_mut().insert("x-own", HeaderValue::from_static("1"));
                response.headers_mut().insert("ropeway-replayed", HeaderValue::from_static("lie"));
                response
            }
        })
        .await;
        Self { url: format!("http://{address}"), runs, gate }
    }

    /// Lets everything through.
    fn open(&self) {
        self.gate.add_permits(10_000);
    }

    fn runs(&self) -> usize {
        self.runs.load(Ordering::SeqCst)
    }
}

fn keyed(key: &str, body: impl Into<Bytes>) -> Request<ProxyBody> {
    let mut request = post("https://a.test/pay", full(body));
    request.headers_mut().insert("idempotency-key", key.parse().expect("a value"));
    request
}

fn remembering(config: KeyedConfig, spec: RouteSpec) -> (Arc<Proxy>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    let router = Router::new(vec![spec]).expect("valid route");
    (Arc::new(Proxy::remembering(config, router, Arc::clone(&metrics))), metrics)
}

/// Status, whether it came from memory, and body.
async fn told(answer: Result<Response<ProxyBody>, ProxyError>) -> (StatusCode, bool, Bytes) {
    let (parts, body) = answer.expect("answered").into_parts();
    let replayed = parts.headers.get("ropeway-replayed").is_some_and(|value| value == "1");
    (parts.status, replayed, body.collect().await.expect("whole").to_bytes())
}

async fn refused(proxy: &Proxy, request: Request<ProxyBody>) -> ProxyError {
    proxy.forward(request, peer()).await.expect_err("refused")
}

fn user(name: &str) -> Peer {
    Peer { user: Some(name.to_owned()), via_link: true, ..peer() }
}

#[tokio::test]
async fn the_same_post_over_two_connections_at_once_runs_once() {
    let service = Counting::new().await;
    let door = Door::to(&service.url);
    let mut h1 = door.open(Protocol::H1);
    let h1_request = "POST /pay HTTP/1.1\r\nhost: a.test\r\nidempotency-key: \"k\"\r\ncontent-length: 4\r\n\r\nbody";
    h1.write_all(h1_request.as_bytes()).await.expect("written");
    let mut h2 = door.h2().await;
    let second = tokio::spawn(async move { h2.send_request(keyed("k", "body")).await });
    eventually(|| service.runs() == 1).await;
    service.open();
    let response = second.await.expect("no panic").expect("answered");
    assert_eq!(
        (response.status(), &response.headers()["x-own"]),
        (StatusCode::CREATED, &HeaderValue::from_static("1"))
    );
    assert_eq!(response.into_body().collect().await.expect("whole").to_bytes(), "run 1");
    let head = read_until(&mut h1, "run 1").await;
    assert!(head.starts_with("HTTP/1.1 201 Created\r\n") && head.contains("x-own: 1\r\n"), "{head}");
    assert_eq!(service.runs(), 1);
    assert_eq!((door.metrics.keyed().runs.value(), door.metrics.keyed().replays.value()), (1, 1));
}

#[tokio::test]
async fn a_repeat_is_answered_from_memory_and_says_so() {
    let service = Counting::new().await;
    service.open();
    let (proxy, _) = proxy_to(&service.url);
    let first = told(proxy.forward(keyed("k", "body"), peer()).await).await;
    let second = told(proxy.forward(keyed("\"k\"", "body"), peer()).await).await;
    assert_eq!(first, (StatusCode::CREATED, false, "run 1".into()));
    assert_eq!(second, (StatusCode::CREATED, true, "run 1".into()));
    assert_eq!(told(proxy.forward(keyed("other", "body"), peer()).await).await.2, "run 2");
    let unkeyed = proxy.forward(post("https://a.test/pay", full("body")), peer()).await;
    assert_eq!(told(unkeyed).await.2, "run 3");
}

#[tokio::test]
async fn a_request_goes_on_without_its_client_and_the_repeat_finds_the_answer() {
    let service = Counting::new().await;
    let door = Door::to(&service.url);
    for protocol in [Protocol::H1, Protocol::H2] {
        let before = service.runs();
        let key = format!("{protocol:?}");
        if protocol == Protocol::H1 {
            let mut client = door.open(Protocol::H1);
            let request = format!(
                "POST /pay HTTP/1.1\r\nhost: a.test\r\nidempotency-key: {key}\r\ncontent-length: 4\r\n\r\nbody"
            );
            client.write_all(request.as_bytes()).await.expect("written");
            eventually(|| service.runs() == before + 1).await;
        } else {
            let mut client = door.h2().await;
            let request = keyed(&key, "body");
            let sending = tokio::spawn(async move { client.send_request(request).await });
            eventually(|| service.runs() == before + 1).await;
            sending.abort();
        }
        let mut client = door.h2().await;
        let repeat = tokio::spawn(async move { client.send_request(keyed(&key, "body")).await });
        service.gate.add_permits(1);
        let answer = repeat.await.expect("no panic").expect("answered");
        assert_eq!(answer.headers()["ropeway-replayed"], "1");
        let body = answer.into_body().collect().await.expect("whole").to_bytes();
        assert_eq!(body, format!("run {}", before + 1));
        assert_eq!(service.runs(), before + 1);
    }
}

#[tokio::test]
async fn a_key_used_for_another_request_is_refused() {
    let service = Counting::new().await;
    service.open();
    let (proxy, metrics) = proxy_to(&service.url);
    told(proxy.forward(keyed("k", "body"), peer()).await).await;
    assert_eq!(refused(&proxy, keyed("k", "bodY")).await, ProxyError::KeyMismatch);
    let (mut parts, body) = keyed("k", "body").into_parts();
    parts.uri = http::Uri::from_static("https://a.test/other");
    assert_eq!(refused(&proxy, Request::from_parts(parts, body)).await, ProxyError::KeyMismatch);
    assert_counted(&metrics, ProxyError::KeyMismatch, 2);
    assert_eq!(service.runs(), 1);
}

#[tokio::test]
async fn nobody_gets_the_answer_of_another_user() {
    let service = Counting::new().await;
    service.open();
    let (proxy, _) = proxy_to(&service.url);
    let with = |name: &'static str, value: &'static str| {
        let mut request = keyed("k", "body");
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        request
    };
    let secret = "a secret of 16 bytes";
    for (run, request, peer) in [
        (1, keyed("k", "body"), user("ann")),
        (2, keyed("k", "body"), user("bob")),
        (3, keyed("k", "body"), peer()),
        (4, with("authorization", "Bearer a"), peer()),
        (5, with("authorization", "Bearer b"), peer()),
        (6, with("cookie", "Bearer a"), peer()),
        (7, with("ropeway-key-scope", secret), user("eve")),
    ] {
        let (_, replayed, body) = told(proxy.forward(request, peer).await).await;
        assert_eq!((replayed, body), (false, format!("run {run}").into()));
    }
    for (run, request, peer) in [
        (2, keyed("k", "body"), user("bob")),
        (4, with("authorization", "Bearer a"), peer()),
        // The secret leads from a link to a short link.
        (7, with("ropeway-key-scope", secret), peer()),
    ] {
        let (_, replayed, body) = told(proxy.forward(request, peer).await).await;
        assert_eq!((replayed, body), (true, format!("run {run}").into()));
    }
    let stolen = proxy.forward(with("ropeway-key-scope", secret), user("mallory")).await;
    assert_eq!(stolen.expect_err("another user"), ProxyError::KeyMismatch);
}

#[tokio::test(start_paused = true)]
async fn a_finished_request_is_forgotten_after_its_time() {
    let (proxy, metrics) = proxy_to("builtin:echo");
    let ttl = KeyedConfig::default().memory.ttl;
    for (pause, runs) in [(Duration::ZERO, 1), (ttl - Duration::from_secs(1), 1), (Duration::from_secs(1), 2)] {
        tokio::time::advance(pause).await;
        told(proxy.forward(keyed("k", "body"), peer()).await).await;
        assert_eq!(metrics.keyed().runs.value(), runs, "after {pause:?}");
    }
    assert_eq!(metrics.keyed().keys.value(), 1);
    tokio::time::advance(ttl).await;
    proxy.sweep();
    assert_eq!((metrics.keyed().keys.value(), metrics.keyed().bytes.value()), (0, 0));
}

#[tokio::test]
async fn a_full_memory_refuses_new_keys_unexecuted_and_keeps_the_old_ones() {
    let service = Counting::new().await;
    service.open();
    let memory = IdempotencyConfig { keys_max: 1, ..IdempotencyConfig::default() };
    let spec = RouteSpec::new("a.test", &service.url);
    let (proxy, _) = remembering(KeyedConfig { memory, ..KeyedConfig::default() }, spec);
    told(proxy.forward(keyed("k", "body"), peer()).await).await;
    let error = refused(&proxy, keyed("new", "body")).await;
    assert_eq!((error, error.executed()), (ProxyError::KeyMemoryFull, false));
    assert_eq!(error.into_response().headers()["ropeway-not-executed"], "1");
    assert!(told(proxy.forward(keyed("k", "body"), peer()).await).await.1);
    assert_eq!(service.runs(), 1);
}

#[tokio::test]
async fn what_did_not_run_is_not_remembered_and_what_failed_at_the_service_is() {
    let gone = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("binds").local_addr().expect("bound");
    let (proxy, _) = proxy_to(&format!("http://{gone}"));
    assert_eq!(refused(&proxy, keyed("k", "body")).await, ProxyError::UpstreamRefused);
    let service = Counting::answering(StatusCode::SERVICE_UNAVAILABLE, 0).await;
    service.open();
    proxy.replace(Router::new(vec![RouteSpec::new("a.test", &service.url)]).expect("valid"));
    for replayed in [false, true] {
        let answer = told(proxy.forward(keyed("k", "body"), peer()).await).await;
        assert_eq!(answer, (StatusCode::SERVICE_UNAVAILABLE, replayed, "run 1".into()));
    }
}

#[tokio::test]
async fn a_request_that_may_have_run_does_not_run_again() {
    let hits = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&hits);
    let upstream = raw_upstream(move |mut stream, _| {
        let counted = Arc::clone(&counted);
        async move {
            read_head(&mut stream).await;
            counted.fetch_add(1, Ordering::SeqCst);
        }
    })
    .await;
    let (proxy, _) = proxy_to(&format!("http://{upstream}"));
    for _ in 0..3 {
        let error = refused(&proxy, keyed("k", "body")).await;
        assert_eq!((error, error.executed()), (ProxyError::UpstreamReset, true));
    }
    assert_eq!(hits.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_answer_too_long_to_keep_goes_to_the_first_whole_and_is_remembered_as_executed() {
    let length = 1 << 20;
    let service = Counting::answering(StatusCode::OK, length).await;
    service.open();
    let (proxy, metrics) = proxy_to(&service.url);
    let (_, _, body) = told(proxy.forward(keyed("k", "body"), peer()).await).await;
    assert_eq!(body.len(), length + 5);
    let error = refused(&proxy, keyed("k", "body")).await;
    assert_eq!((error, error.executed()), (ProxyError::KeyAnswerGone, true));
    assert_eq!(refused(&proxy, keyed("k", "bodY")).await, ProxyError::KeyMismatch);
    assert_eq!((service.runs(), metrics.keyed().bytes.value()), (1, 0));
}

#[tokio::test]
async fn an_upload_that_was_cut_has_not_run_and_may_come_again() {
    let service = Counting::new().await;
    service.open();
    let (proxy, _) = proxy_to(&service.url);
    let (sender, body) = channel(2);
    sender.send(Ok("bo".into())).await.expect("room");
    sender.send(Err(ProxyError::RequestBodyCut)).await.expect("room");
    let cut = keyed("k", "").map(|_| body);
    let error = refused(&proxy, cut).await;
    assert_eq!(error, ProxyError::RequestBodyHeld);
    assert_eq!(error.into_response().headers()["ropeway-not-executed"], "1");
    assert_eq!(
        told(proxy.forward(keyed("k", "body"), peer()).await).await,
        (StatusCode::CREATED, false, "run 1".into())
    );
}

#[tokio::test]
async fn a_repeat_waits_for_an_upload_and_runs_where_that_was_cut() {
    let service = Counting::new().await;
    service.open();
    let (proxy, _) = proxy_to(&service.url);
    let (sender, body) = channel(1);
    let first = tokio::spawn({
        let (proxy, cut) = (Arc::clone(&proxy), keyed("k", "").map(|_| body));
        async move { proxy.forward(cut, peer()).await }
    });
    sender.send(Ok("bo".into())).await.expect("read");
    let second = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { proxy.forward(keyed("k", "body"), peer()).await }
    });
    // Read already: what is sent now is taken after it.
    sender.reserve().await.expect("read").send(Err(ProxyError::RequestBodyCut));
    assert_eq!(first.await.expect("no panic").expect_err("cut"), ProxyError::RequestBodyHeld);
    assert_eq!(told(second.await.expect("no panic")).await.2, "run 1");
}

#[tokio::test]
async fn a_long_upload_is_sent_on_as_it_comes_and_compared_all_the_same() {
    let service = Counting::new().await;
    service.open();
    let (proxy, _) = proxy_to(&service.url);
    let long = Bytes::from(vec![7; 300_000]);
    let pieces = |last: u8| {
        let (sender, body) = channel(1);
        let mut long = long.to_vec();
        *long.last_mut().expect("not empty") = last;
        tokio::spawn(async move {
            for piece in long.chunks(50_000) {
                let _ = sender.send(Ok(Bytes::copy_from_slice(piece))).await;
            }
        });
        keyed("k", "").map(|_| body)
    };
    assert_eq!(told(proxy.forward(pieces(7), peer()).await).await, (StatusCode::CREATED, false, "run 1".into()));
    assert_eq!(told(proxy.forward(pieces(7), peer()).await).await, (StatusCode::CREATED, true, "run 1".into()));
    assert_eq!(told(proxy.forward(keyed("k", long.clone()), peer()).await).await.2, "run 1");
    assert_eq!(refused(&proxy, pieces(8)).await, ProxyError::KeyMismatch);
}

#[tokio::test]
async fn a_repeat_waits_only_so_long_for_the_first() {
    let service = Counting::new().await;
    let config = KeyedConfig { wait_timeout: Duration::from_millis(20), ..KeyedConfig::default() };
    let (proxy, _) = remembering(config, RouteSpec::new("a.test", &service.url));
    let first = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { proxy.forward(keyed("k", "body"), peer()).await }
    });
    eventually(|| service.runs() == 1).await;
    let error = refused(&proxy, keyed("k", "body")).await;
    assert_eq!((error, error.status()), (ProxyError::KeyInProgress, StatusCode::CONFLICT));
    service.open();
    assert_eq!(told(first.await.expect("no panic")).await.2, "run 1");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_nobody_waits_for_is_given_up_in_the_end() {
    let (proxy, metrics) = proxy_to("builtin:echo");
    let (sender, body) = channel(1);
    // Longer than is held, so that its answer begins, and never ending.
    let request = keyed("k", "").map(|_| body);
    let first = tokio::spawn({
        let proxy = Arc::clone(&proxy);
        async move { proxy.forward(request, peer()).await.map(drop) }
    });
    sender.send(Ok(vec![0; 65 << 10].into())).await.expect("read");
    first.await.expect("no panic").expect("a head");
    tokio::time::sleep(KeyedConfig::default().finish_timeout + Duration::from_secs(1)).await;
    assert!(sender.is_closed());
    assert_eq!(metrics.keyed().keys.value(), 1);
    assert_eq!(refused(&proxy, keyed("k", "body")).await, ProxyError::KeyAnswerGone);
}

#[tokio::test]
async fn a_route_may_want_keys_or_leave_them_to_its_upstream() {
    let service = Counting::new().await;
    service.open();
    let wanted = RouteSpec { key_required: true, ..RouteSpec::new("a.test", &service.url) };
    let (proxy, _) = proxy_with(wanted);
    let error = refused(&proxy, post("https://a.test/pay", full("body"))).await;
    assert_eq!((error, error.status()), (ProxyError::KeyMissing, StatusCode::BAD_REQUEST));
    let left = RouteSpec { upstream_honours_keys: true, ..RouteSpec::new("a.test", &service.url) };
    let (proxy, metrics) = proxy_with(left);
    for run in 1..3 {
        let answer = told(proxy.forward(keyed("k", "body"), peer()).await).await;
        assert_eq!(answer, (StatusCode::CREATED, false, format!("run {run}").into()));
    }
    assert_eq!(metrics.keyed().keys.value(), 0);
}

#[tokio::test]
async fn a_thousand_keyed_posts_with_clients_that_leave_run_once_each() {
    let seen: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
    let counting = Arc::clone(&seen);
    let upstream = http_upstream(false, move |request| {
        let seen = Arc::clone(&counting);
        async move {
            let key = request.headers()["idempotency-key"].to_str().expect("text").to_owned();
            let body = request.into_body().collect().await.expect("whole").to_bytes();
            *seen.lock().expect("unpoisoned").entry(key).or_default() += 1;
            Response::new(full(body))
        }
    })
    .await;
    let (proxy, _) = proxy_to(&format!("http://{upstream}"));
    let clients = (0..1_000_u32).map(|number| {
        let proxy = Arc::clone(&proxy);
        async move {
            let (key, body) = (format!("key-{number}"), format!("body {number}"));
            // As many polls as the number says, then it is gone: some leave before their head, some within their body.
            for polls in [number % 7, number / 7 % 11] {
                let mut once = Box::pin(proxy.forward(keyed(&key, body.clone()), peer()));
                for _ in 0..polls {
                    if futures_util::poll!(once.as_mut()).is_ready() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
            }
            let (status, _, answer) = told(proxy.forward(keyed(&key, body.clone()), peer()).await).await;
            assert_eq!((status, answer), (StatusCode::OK, Bytes::from(body)), "{key}");
        }
    });
    let mut clients: Vec<_> = clients.collect();
    while !clients.is_empty() {
        let wave = clients.split_off(clients.len().saturating_sub(100));
        futures_util::future::join_all(wave).await;
    }
    let seen = seen.lock().expect("unpoisoned");
    assert_eq!((seen.len(), seen.values().copied().max()), (1_000, Some(1)));
}
