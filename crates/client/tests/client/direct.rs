//! Hosts that no gateway serves.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use ropeway::{Action, Body, BoxError, CarrierKind, Client, Error, Phase, Retry, Side, Step, Way};
use ropeway_net::tls::{Alpn, ServerTls, ServerTlsOptions, server_config};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::AbortHandle,
};

use crate::support::{Authority, Tarpit, TestGateway, builder, service, soon};

/// An HTTPS server for `localhost` that tells the version and echoes, or breaks off at `/break`.
pub(crate) struct Host {
    pub(crate) address: SocketAddr,
    requests: Arc<AtomicUsize>,
    task: AbortHandle,
}

impl Host {
    pub(crate) async fn start(authority: Option<&Authority>, alpn: &[Alpn]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let tls = authority
            .map(|authority| server_config(ServerTlsOptions::new(authority.issue("localhost"), alpn.to_vec())));
        let counter = Arc::clone(&requests);
        let task = tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (tls, counter) = (tls.clone(), Arc::clone(&counter));
                tokio::spawn(async move {
                    let service = service_fn(move |request| answer(request, Arc::clone(&counter)));
                    let server = auto::Builder::new(TokioExecutor::new());
                    let Some(tls) = tls else {
                        let _ = server.serve_connection(TokioIo::new(tcp), service).await;
                        return;
                    };
                    let mut tls = ServerTls::new(tcp, tls).unwrap();
                    if tls.handshake().await.is_ok() && tls.confirm().await.is_ok() {
                        let _ = server.serve_connection(TokioIo::new(tls.into_stream()), service).await;
                    }
                });
            }
        });
        Self { address, requests, task: task.abort_handle() }
    }

    pub(crate) fn url(&self, scheme: &str, path: &str) -> String {
        format!("{scheme}://localhost:{}{path}", self.address.port())
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(request: Request<Incoming>, counter: Arc<AtomicUsize>) -> Result<Response<Full<Bytes>>, BoxError> {
    let number = counter.fetch_add(1, Ordering::Relaxed) + 1;
    if request.uri().path() == "/break" {
        return Err("broken".into());
    }
    if request.uri().path() == "/marked" {
        let marked = Response::builder().status(503).header("ropeway-not-executed", "1");
        return Ok(marked.body(Full::default())?);
    }
    if let Some(times) = request.uri().path().strip_prefix("/unavailable/")
        && number <= times.parse()?
    {
        let unavailable = Response::builder().status(503).header("x-number", number);
        return Ok(unavailable.body(Full::default())?);
    }
    if request.uri().path() == "/never" {
        return std::future::pending().await;
    }
    if request.uri().path() == "/unavailable-then-nothing" {
        return match number {
            1 => Ok(Response::builder().status(503).body(Full::default())?),
            _ => std::future::pending().await,
        };
    }
    if request.uri().path() == "/packed" {
        let body = service::gzip(&service::big(50_000));
        return Ok(Response::builder().header("content-encoding", "gzip").body(Full::new(body))?);
    }
    let version = if request.version() == Version::HTTP_2 { "2" } else { "1.1" };
    let body = request.into_body().collect().await?.to_bytes();
    Ok(Response::builder().header("x-version", version).body(Full::new(body))?)
}

fn direct(authority: &Authority) -> Client {
    Client::builder().trust(authority.pem()).build().unwrap()
}

#[tokio::test]
async fn hosts_are_called_over_the_http_version_they_speak() {
    let authority = Authority::new();
    for (alpn, version) in [(Alpn::H2, "2"), (Alpn::Http11, "1.1")] {
        let host = Host::start(Some(&authority), &[alpn]).await;
        let client = direct(&authority);
        let answer = soon(client.post(host.url("https", "/")).body("hello").send()).await.unwrap();
        assert_eq!(answer.headers()["x-version"], version);
        let steps = answer.timeline().steps();
        assert!(steps.iter().any(|step| step.action == Action::Connect && step.error.is_none()), "{steps:?}");
        let step = answer.timeline().answered().unwrap();
        assert_eq!((step.way, step.address), (Way::Name, Some(host.address)));
        assert_eq!(answer.text().await.unwrap(), "hello");
    }
}

#[tokio::test]
async fn a_service_that_cannot_be_had_is_asked_again_for_what_may_run_twice_and_the_last_answer_is_the_apps() {
    let authority = Authority::new();
    let client = Client::builder().trust(authority.pem()).way(Way::Name).build().unwrap();
    for (method, unavailable, status, requests) in
        [("GET", 2, 200, 3), ("GET", 9, 503, 3), ("POST", 2, 503, 1), ("PUT", 1, 200, 2)]
    {
        let host = Host::start(Some(&authority), &[Alpn::H2]).await;
        let url = host.url("https", &format!("/unavailable/{unavailable}"));
        let answer = soon(client.request(method.parse().unwrap(), url).body("hello").send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), host.requests()), (status, requests), "{method}, {unavailable}");
        let timeline = answer.timeline();
        let failed = timeline.steps().iter().filter(|step| step.error.is_some());
        let is_told = |step: &Step| step.error.as_deref() == Some("503 Service Unavailable: left for another way");
        assert_eq!(failed.filter(|step| is_told(step)).count(), requests - 1, "{timeline}");
        assert!(timeline.answered().is_some(), "{timeline}");
        if status == 503 {
            assert_eq!(answer.headers()["x-number"], requests.to_string());
        }
    }
}

#[tokio::test]
async fn what_says_that_the_service_cannot_be_had_is_the_apps_when_nothing_else_answers_in_time() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let client = Client::builder().trust(authority.pem()).way(Way::Name).build().unwrap();
    let url = host.url("https", "/unavailable-then-nothing");
    let answer = soon(client.get(url).timeout(Duration::from_secs(2)).send()).await.unwrap();
    assert!(answer.status() == 503 && host.requests() > 1, "{}", answer.timeline());
    assert!(soon(answer.bytes()).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_way_by_which_a_service_could_not_be_had_while_it_could_by_another_is_taken_last() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let client = Client::builder().trust(authority.pem()).way(Way::Name).way(Way::Original).build().unwrap();
    let answer = soon(client.get(host.url("https", "/unavailable/3")).send()).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.timeline().answered().unwrap().way), (200, Way::Original));
    let told: Vec<_> =
        answer.timeline().steps().iter().map(|step| (step.action, step.status, step.error.as_deref())).collect();
    let left = Some("503 Service Unavailable: left for another way");
    assert_eq!(
        told[..2],
        [(Action::Connect, None, None), (Action::Exchange, Some(StatusCode::SERVICE_UNAVAILABLE), left)]
    );
    assert_eq!(told.last().unwrap(), &(Action::Exchange, Some(StatusCode::OK), None));
    let next = soon(client.post(host.url("https", "/")).send()).await.unwrap();
    assert_eq!((next.timeline().answered().unwrap().way, host.requests()), (Way::Original, 5));
}

#[tokio::test]
async fn a_packed_answer_is_unpacked() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let answer = soon(direct(&authority).get(host.url("https", "/packed")).send()).await.unwrap();
    assert_eq!(answer.bytes().await.unwrap(), service::big(50_000));
}

#[tokio::test]
async fn what_the_gateway_does_not_serve_goes_directly_and_the_rest_over_the_link() {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let client = builder(&authority, &[&gateway], CarrierKind::Tls).way(Way::Name).build().unwrap();
    let stream = Body::stream(futures_util::stream::iter([Ok::<_, BoxError>(Bytes::from("streamed"))]));
    let answer = soon(client.post(host.url("https", "/")).body(stream).send()).await.unwrap();
    assert_eq!(answer.timeline().answered().unwrap().way, Way::Name);
    assert_eq!(answer.text().await.unwrap(), "streamed");
    let answer = soon(client.get("https://below.wild.test/").send()).await.unwrap();
    assert_eq!(answer.timeline().answered().unwrap().way, Way::Link);
    let forced = soon(client.get(host.url("https", "/")).way(Way::Link).send()).await.unwrap();
    assert_eq!(forced.timeline().answered().unwrap().way, Way::Link);
    assert_eq!((host.requests(), gateway.executed().len()), (1, 2));
}

#[tokio::test]
async fn hosts_known_in_advance_not_to_be_served_need_no_link() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let client = builder(&authority, &[], CarrierKind::Tls)
        .access_point_on("127.0.0.1:9", [CarrierKind::Tls])
        .served_host("api.test")
        .way(Way::Name)
        .link_wait(Duration::from_millis(200))
        .build()
        .unwrap();
    soon(client.get(host.url("https", "/")).send()).await.unwrap();
    assert!(matches!(soon(client.get("https://api.test/").send()).await, Err(Error::NoWay { .. })));
}

#[tokio::test]
async fn a_served_host_is_called_by_its_name_where_no_gateway_can_be_reached() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = builder(&authority, &[], CarrierKind::Tls)
        .access_point_on(refused, [CarrierKind::Tls])
        .served_host("localhost")
        .way(Way::Name)
        .build()
        .unwrap();
    for number in 1..=2 {
        let answer = soon(client.post(host.url("https", "/")).body("pay").send()).await.unwrap();
        assert_eq!(answer.timeline().answered().unwrap().way, Way::Name, "{}", answer.timeline());
        assert_eq!(host.requests(), number);
    }
}

#[tokio::test]
async fn plain_http_is_called_only_where_it_is_allowed() {
    let authority = Authority::new();
    let host = Host::start(None, &[]).await;
    let client = direct(&authority);
    let error = soon(client.get(host.url("http", "/")).send()).await.unwrap_err();
    assert!(matches!(error, Error::PlainHttp { .. }), "{error:?}");
    assert_eq!((error.retry(), host.requests()), (Retry::Never, 0));
    let answer = soon(client.get(host.url("http", "/")).allow_plain_http(true).send()).await.unwrap();
    assert_eq!(answer.headers()["x-version"], "1.1");
}

#[tokio::test]
async fn a_post_that_breaks_off_is_not_repeated_and_a_get_is_as_far_as_the_budget_goes() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::Http11]).await;
    let client = direct(&authority);
    let error = soon(client.post(host.url("https", "/break")).body("pay").send()).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert_eq!(host.requests(), 1);
    let error = soon(client.get(host.url("https", "/break")).send()).await.unwrap_err();
    assert!(matches!(error, Error::BrokeOff { .. }), "{error:?}");
    assert_eq!(host.requests(), 5, "four sends of the GET");
}

#[tokio::test]
async fn what_a_host_says_of_a_request_in_a_gateways_words_is_not_believed() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let served = builder(&authority, &[], CarrierKind::Tls).access_point_on(refused, [CarrierKind::Tls]);
    let served = served.served_host("localhost").way(Way::Name).way(Way::Original).build().unwrap();
    for (number, client) in [direct(&authority), served].into_iter().enumerate() {
        let answer = soon(client.post(host.url("https", "/marked")).body("pay").send()).await.unwrap();
        assert_eq!((answer.status().as_u16(), host.requests()), (503, number + 1), "{}", answer.timeline());
    }
}

#[tokio::test]
async fn a_host_that_cannot_be_reached_or_believed_got_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let host = Host::start(Some(&other), &[Alpn::H2]).await;
    let error = soon(direct(&authority).post(host.url("https", "/")).body("pay").send()).await.unwrap_err();
    assert!(matches!(error, Error::NoWay { .. }), "{error:?}");
    assert!(error.to_string().contains("certificate"), "{error}");
    let gone = host.url("https", "/");
    drop(host);
    let error = soon(direct(&authority).post(gone).body("pay").send()).await.unwrap_err();
    assert!(matches!(error, Error::NoWay { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::BeforeSend);
}

#[tokio::test]
async fn a_timeout_before_there_is_a_connection_says_that_nothing_was_sent() {
    let tarpit = Tarpit::new();
    let client = direct(&Authority::new());
    let url = format!("https://127.0.0.1:{}/", tarpit.address().port());
    let error = soon(client.post(url).timeout(Duration::from_millis(200)).send()).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::Connect, .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::BeforeSend);
}

#[tokio::test]
async fn an_answer_that_comes_to_a_halt_is_given_up_as_one_that_may_be_asked_for_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let stalling = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let _ = tcp.read(&mut [0; 1024]).await.unwrap();
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
        tcp.read(&mut [0; 1024]).await.unwrap()
    });
    let after = Duration::from_millis(100);
    let request = direct(&Authority::new()).get(url).allow_plain_http(true).pause(after);
    let answer = soon(request.send()).await.unwrap();
    let error = soon(answer.bytes()).await.unwrap_err();
    let phase = Phase::Pause { received_bytes: 4 };
    assert!(
        matches!(&error, Error::Timeout { phase: at, after: had, .. } if (*at, *had) == (phase, after)),
        "{error:?}"
    );
    assert_eq!((error.side(), error.retry()), (Side::Network, Retry::IdempotentOnly));
    assert_eq!(soon(stalling).await.unwrap(), 0, "the connection is closed");
}

#[tokio::test]
async fn a_body_of_the_apps_own_that_fails_is_its_own_fault() {
    let authority = Authority::new();
    let host = Host::start(Some(&authority), &[Alpn::H2]).await;
    let gateway = TestGateway::start(&authority).await;
    let client = builder(&authority, &[&gateway], CarrierKind::Tls).way(Way::Name).build().unwrap();
    for url in [host.url("https", "/"), "https://api.test/hold".into()] {
        let pieces = [Ok(Bytes::from("a")), Err::<Bytes, BoxError>("disk failed".into())];
        let body = Body::stream(futures_util::stream::iter(pieces));
        let error = soon(client.post(url).body(body).send()).await.unwrap_err();
        assert!(matches!(&error, Error::Body(source) if source.to_string().contains("disk failed")), "{error:?}");
    }
}
