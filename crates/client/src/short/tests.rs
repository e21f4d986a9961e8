//! Short links against hosts on loopback.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::*;

mod host;
mod records;

use self::host::{Authority, Host};

/// Short links that find every name at `address`.
fn short(authority: &Authority, address: SocketAddr) -> Short {
    short_with(authority, address, |_| ())
}

fn short_with(authority: &Authority, address: SocketAddr, change: impl FnOnce(&mut Setup)) -> Short {
    let clock = Clock::new();
    let resolver: Resolver = Arc::new(move |_, _, _| {
        Box::pin(async move { Ok(resolve::Resolved { addresses: vec![address], ..resolve::Resolved::default() }) })
    });
    let mut setup = Setup {
        trust: vec![authority.certificate()],
        h3_hosts: Hosts::default(),
        limits: Limits::default(),
        race: RaceConfig::default(),
        resolver,
        on_untrusted: Arc::new(|_, _| ()),
        log: Arc::new(AttemptLog::new(clock)),
        pace: Arc::new(Pace::new(clock)),
        clock,
    };
    change(&mut setup);
    Short::new(setup)
}

fn unresolved() -> Resolver {
    Arc::new(|_, _, _| Box::pin(async { Err(std::io::ErrorKind::NotFound.into()) }))
}

async fn ask(short: &Short, request: Request<Body>, to: To<'_>) -> Result<Response<Body>, (Failed, Trace)> {
    let trace = Trace::default();
    let sent = timeout(PATIENCE, short.send(request, to, &Been::default(), &trace)).await.expect("it never ended");
    sent.map_err(|failed| (failed, trace))
}

fn get(path: &str) -> Request<Body> {
    Request::get(format!("https://api.test{path}")).body(Body::empty()).unwrap()
}

fn post(path: &str, body: &'static str) -> Request<Body> {
    let request = Request::post(format!("https://api.test{path}")).header(header::CONTENT_LENGTH, body.len());
    request.body(Body::from(body)).unwrap()
}

async fn text(answer: Response<Body>) -> String {
    String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

#[tokio::test]
async fn by_address_the_server_name_host_and_certificate_stay_those_of_the_url() {
    let authority = Authority::new();
    for alpn in ["h2", "http/1.1"] {
        let host = Host::start(authority.issue("api.test"), &[alpn]).await;
        let short = short_with(&authority, host.address, |setup| setup.resolver = unresolved());
        let listed = [Listed { address: host.address, h3: false }];
        let answer = ask(&short, get("/who"), To::Addresses(&listed)).await.map_err(|(failed, _)| failed).unwrap();
        assert_eq!(text(answer).await, "api.test api.test", "{alpn}: server name and host");
        let (failed, trace) = ask(&short, get("/who"), To::Name).await.unwrap_err();
        assert!(matches!(failed.cause, Cause::Connect(ConnectError::Unresolved(_))), "{failed}");
        assert_eq!((failed.executed, trace.is_handed_off()), (Executed::NotSent, false));
    }
}

#[tokio::test]
async fn a_wrong_certificate_is_untrusted_over_tcp_and_quic() {
    let (authority, other) = (Authority::new(), Authority::new());
    for certificate in [other.issue("api.test"), authority.issue("other.test")] {
        let host = Host::start(certificate, &["h2", "h3"]).await;
        let short = short(&authority, host.address);
        for h3 in [false, true] {
            let listed = [Listed { address: host.address, h3 }];
            let (failed, _) = ask(&short, post("/pay", "1"), To::Addresses(&listed)).await.unwrap_err();
            assert!(matches!(failed.cause, Cause::Connect(ConnectError::Untrusted(_))), "{failed}");
            assert_eq!(failed.executed, Executed::NotSent);
        }
        assert_eq!(host.requests(), 0);
    }
}

#[tokio::test]
async fn requests_at_once_share_one_connection_that_can_carry_them() {
    let authority = Authority::new();
    for (alpn, most) in [("h2", 1), ("h3", 1), ("http/1.1", 6)] {
        let host = Host::start(authority.issue("api.test"), &[alpn]).await;
        let short = short(&authority, host.address);
        let listed = [Listed { address: host.address, h3: alpn == "h3" }];
        let asked =
            (0..20).map(|_| async { text(ask(&short, get("/who"), To::Addresses(&listed)).await.ok().unwrap()).await });
        futures_util::future::join_all(asked).await;
        assert_eq!(host.requests(), 20, "{alpn}");
        assert!(host.connections() <= most, "{alpn}: {}", host.connections());
        assert_eq!(short.pool.connections(), host.connections());
    }
}

#[tokio::test]
async fn on_request_several_connections_carry_what_one_could() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("api.test"), &["h2"]).await;
    let short = short_with(&authority, host.address, |setup| setup.limits.host_multiplexed_max = 3);
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(ask(&short, get("/hold"), To::Name).await.ok().unwrap());
        tokio::task::yield_now().await;
    }
    until(|| host.connections() == 3).await;
    assert_eq!(host.requests(), 10);
}

#[tokio::test]
async fn http3_is_used_once_the_host_has_said_so() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("api.test"), &["http/1.1", "h3"]).await;
    let short = short(&authority, host.address);
    let first = ask(&short, get("/alt-svc"), To::Name).await.ok().unwrap();
    assert_eq!(first.headers()["x-version"], "1.1");
    text(first).await;
    assert_eq!(host.quic_connections(), 0, "nobody had promised it");
    // The next connection is raced; without TCP it is QUIC's.
    host.close_tcp().await;
    until(|| host.open_tcp() == 0).await;
    let body = "x".repeat(200_000);
    let request = Request::post("https://api.test/echo").body(Body::from(body.clone())).unwrap();
    let trace = Trace::default();
    let answer = timeout(PATIENCE, short.send(request, To::Name, &Been::default(), &trace)).await.unwrap().unwrap();
    assert_eq!((answer.version(), trace.peer().unwrap().carrier), (http::Version::HTTP_3, CarrierKind::Quic));
    assert!(text(answer).await == body);
}

#[tokio::test]
async fn http3_that_does_not_work_costs_nothing_and_is_left_alone() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("api.test"), &["http/1.1"]).await;
    // Somebody listens there and never answers.
    let silent = std::net::UdpSocket::bind(host.address).unwrap();
    silent.set_nonblocking(true).unwrap();
    let short = short_with(&authority, host.address, |setup| {
        setup.h3_hosts = Hosts::new(["api.test"]);
        setup.race.attempt_timeout = Duration::from_secs(2);
    });
    let port = host.address.port();
    let request = Request::get(format!("https://api.test:{port}/who")).body(Body::empty()).unwrap();
    let answer = ask(&short, request, To::Name).await.ok().unwrap();
    assert_eq!(answer.headers()["x-version"], "1.1");
    let origin = ropeway_core::connect::Origin { host: "api.test".into(), port };
    assert!(!short.is_h3_broken(&origin), "its attempt is still under way: TCP did not wait for it");
    let mut datagram = [0; 2048];
    until(|| silent.recv(&mut datagram).is_ok()).await;
    text(answer).await;
    until(|| short.is_h3_broken(&origin)).await;
    while silent.recv(&mut datagram).is_ok() {}
    host.hang_up();
    until(|| host.open_tcp() == 0).await;
    let request = Request::get(format!("https://api.test:{port}/who")).body(Body::empty()).unwrap();
    text(ask(&short, request, To::Name).await.ok().unwrap()).await;
    assert_eq!(host.connections(), 2);
    assert!(silent.recv(&mut datagram).is_err(), "its time has not come");
}

#[tokio::test]
async fn a_request_for_other_addresses_does_not_wait_for_dead_ones() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("api.test"), &["h2"]).await;
    let short = short(&authority, host.address);
    // It accepts nothing, and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = [Listed { address: silent.local_addr().unwrap(), h3: false }];
    let trace = Trace::default();
    let been = Been::default();
    let waiting = short.send(get("/who"), To::Addresses(&dead), &been, &trace);
    assert!(timeout(Duration::from_millis(50), waiting).await.is_err());
    let alive = [Listed { address: host.address, h3: false }];
    let answer = ask(&short, get("/who"), To::Addresses(&alive)).await.ok().unwrap();
    assert_eq!(text(answer).await, "api.test api.test");
}

#[tokio::test]
async fn no_try_goes_on_the_connection_of_one_before_or_to_its_address_while_there_are_others() {
    let authority = Authority::new();
    for alpn in ["h2", "http/1.1"] {
        let hosts = [
            Host::start(authority.issue("api.test"), &[alpn]).await,
            Host::start(authority.issue("api.test"), &[alpn]).await,
        ];
        let addresses = [hosts[0].address, hosts[1].address];
        let short = short_with(&authority, hosts[0].address, |setup| {
            setup.resolver = Arc::new(move |_, _, _| {
                Box::pin(async move {
                    Ok(resolve::Resolved { addresses: addresses.to_vec(), ..resolve::Resolved::default() })
                })
            });
        });
        let listed = addresses.map(|address| Listed { address, h3: false });
        for to in [To::Addresses(&listed), To::Name] {
            let mut traces: Vec<Trace> = Vec::new();
            for _ in 0..3 {
                let (been, trace) = (Been::of(&traces), Trace::default());
                let sent = timeout(PATIENCE, short.send(get("/who"), to, &been, &trace)).await.unwrap().unwrap();
                text(sent).await;
                traces.push(trace);
            }
            let peer = |number: usize| traces[number].peer().unwrap().address;
            assert_ne!(peer(0), peer(1), "{alpn}: {to:?}");
            assert_eq!(peer(0), peer(2), "{alpn}: {to:?}, the one whose last try is longest ago");
            assert_ne!(traces[0].connection(), traces[2].connection(), "{alpn}: {to:?}");
            let fresh = Trace::default();
            text(short.send(get("/who"), to, &Been::default(), &fresh).await.unwrap()).await;
            let is_kept = traces.iter().any(|trace| trace.connection() == fresh.connection());
            assert!(is_kept, "{alpn}: {to:?}, others may use it");
        }
    }
}

#[test]
fn http3_at_the_port_of_another_address_of_the_machine_is_that_other_address() {
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let peer = |port| Candidate { address: at(port), carrier: CarrierKind::Quic };
    let leads = |to, among: &[SocketAddr]| leads_to(peer(8443), at(to), among);
    assert!(leads(443, &[at(443)]), "the port of HTTP/3 is another");
    assert!(!leads(9443, &[at(8443), at(9443)]) && leads(8443, &[at(8443), at(9443)]));
}

#[tokio::test]
async fn a_try_whose_addresses_gave_no_connection_has_been_to_each_of_them() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("api.test"), &["h2"]).await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let nobody = closed.local_addr().unwrap();
    drop(closed);
    let short = short(&authority, nobody);
    let listed = [nobody, host.address].map(|address| Listed { address, h3: false });
    let first = Trace::default();
    text(short.send(get("/who"), To::Addresses(&listed), &Been::default(), &first).await.unwrap()).await;
    assert_eq!(first.peer().unwrap().address, host.address);
    let second = Trace::default();
    let failed = short.send(get("/who"), To::Addresses(&listed), &Been::of([&first]), &second).await.unwrap_err();
    assert_eq!(failed.executed, Executed::NotSent, "there was one other, where nobody listens");
    let third = Trace::default();
    let been = Been::of([&first, &second]);
    text(short.send(get("/who"), To::Addresses(&listed), &been, &third).await.unwrap()).await;
    assert_eq!(third.peer().unwrap().address, host.address);
}

#[tokio::test]
async fn a_request_on_a_connection_that_died_idle_takes_another() {
    let authority = Authority::new();
    for alpn in ["http/1.1", "h2"] {
        let host = Host::start(authority.issue("api.test"), &[alpn]).await;
        let short = short(&authority, host.address);
        text(ask(&short, get("/who"), To::Name).await.ok().unwrap()).await;
        host.hang_up();
        until(|| host.open_tcp() == 0).await;
        let (failed, answered) = match ask(&short, post("/echo", "pay"), To::Name).await {
            Ok(answer) => (None, Some(text(answer).await)),
            Err((failed, _)) => (Some(failed), None),
        };
        // Noticed before anything was written; nothing was sent twice.
        assert_eq!(answered.as_deref(), Some("pay"), "{alpn}: {failed:?}");
        assert_eq!((host.requests(), host.connections()), (2, 2), "{alpn}");
    }
}

#[tokio::test]
async fn a_post_on_a_reused_connection_that_breaks_may_have_been_executed() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("api.test"), &["http/1.1"]).await;
    let short = short(&authority, host.address);
    text(ask(&short, get("/who"), To::Name).await.ok().unwrap()).await;
    let (failed, trace) = ask(&short, post("/break", "pay"), To::Name).await.unwrap_err();
    assert!(matches!(failed.cause, Cause::Exchange(_)), "{failed}");
    assert_eq!((failed.executed, failed.is_reused, trace.is_handed_off()), (Executed::Maybe, true, true));
    assert_eq!((trace.peer().unwrap().address, host.requests()), (host.address, 2));
}

#[tokio::test]
async fn what_a_host_refuses_over_http2_or_http3_was_not_executed() {
    let authority = Authority::new();
    for alpn in ["h2", "h3"] {
        let host = Host::start(authority.issue("api.test"), &[alpn]).await;
        let short = short(&authority, host.address);
        let listed = [Listed { address: host.address, h3: alpn == "h3" }];
        let (failed, trace) = ask(&short, post("/refuse", "pay"), To::Addresses(&listed)).await.unwrap_err();
        assert_eq!((failed.executed, trace.is_handed_off()), (Executed::No, true), "{alpn}: {failed}");
        let (failed, _) = ask(&short, post("/break", "pay"), To::Addresses(&listed)).await.unwrap_err();
        assert_eq!(failed.executed, Executed::Maybe, "{alpn}: {failed}");
    }
}

#[tokio::test]
async fn an_answer_shorter_than_it_says_is_cut() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("api.test"), &["h3"]).await;
    let h3 = short(&authority, host.address);
    let listed = [Listed { address: host.address, h3: true }];
    let over_h3 = ask(&h3, get("/short"), To::Addresses(&listed)).await.ok().unwrap();

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let _ = tcp.read(&mut [0; 1024]).await;
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await.unwrap();
    });
    let plain = short(&authority, address);
    let request = Request::get(format!("http://{address}/")).body(Body::empty()).unwrap();
    let over_h1 = ask(&plain, request, To::Name).await.ok().unwrap();
    for answer in [over_h3, over_h1] {
        let version = answer.version();
        let error = answer.into_body().collect().await.unwrap_err();
        assert!(matches!(error, Error::BodyCut { .. }), "{version:?}: {error:?}");
    }
}

#[tokio::test]
async fn a_head_without_end_is_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    tokio::spawn(async move {
        let (mut tcp, _): (TcpStream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let _ = tcp.read(&mut request).await;
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\n").await;
        while tcp.write_all(&b"x-filler: 0123456789\r\n".repeat(100)).await.is_ok() {
            counter.fetch_add(2_200, Ordering::Relaxed);
        }
    });
    let short = short(&Authority::new(), address);
    let request = Request::get(format!("http://{address}/")).body(Body::empty()).unwrap();
    let (failed, _) = ask(&short, request, To::Name).await.unwrap_err();
    assert!(matches!(failed.cause, Cause::Head(_)), "{failed}");
}

#[tokio::test]
async fn the_connections_in_all_are_bounded_and_idle_ones_make_room() {
    let authority = Authority::new();
    let host = Host::start(authority.issue("*.host.test"), &["http/1.1"]).await;
    let short = short_with(&authority, host.address, |setup| setup.limits.connections_max = 2);
    let ask_of = |name: &'static str, path: &'static str| {
        ask(&short, Request::get(format!("https://{name}.host.test{path}")).body(Body::empty()).unwrap(), To::Name)
    };
    let held = [ask_of("a", "/hold").await.ok().unwrap(), ask_of("b", "/hold").await.ok().unwrap()];
    let (failed, _) = ask_of("c", "/who").await.unwrap_err();
    assert!(matches!(failed.cause, Cause::Connect(ConnectError::TooMany { max: 2 })), "{failed}");
    drop(held);
    until(|| short.pool.connections() < 2).await;
    for name in ["a", "b", "c", "d"] {
        text(ask_of(name, "/who").await.ok().unwrap()).await;
        until(|| short.pool.connections() <= 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_after_its_time() {
    let (near, mut far) = tokio::io::duplex(1024);
    let pool = Pool::new(Limits::default());
    let origin = ropeway_core::connect::Origin { host: "api.test".into(), port: 80 };
    let key = Key { encrypted: false, origin, way: Way::Name };
    let peer = Candidate { address: "192.0.2.1:80".parse().unwrap(), carrier: CarrierKind::Tls };
    let near = Mutex::new(Some(near));
    let open = || {
        let near = lock(&near).take().unwrap();
        async move {
            let (mut sender, connection) = http1::handshake(TokioIo::new(near)).await.unwrap();
            tokio::spawn(connection);
            sender.ready().await.unwrap();
            Ok((peer, Sender::H1(sender)))
        }
    };
    let (lease, sender) = pool.acquire(&key, &[], &Been::default(), open).await.ok().unwrap();
    let Sender::H1(sender) = sender else { panic!("it is HTTP/1") };
    lease.finish(sender);
    assert_eq!(pool.connections(), 1);
    assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0, "closed in the end");
    assert_eq!(pool.connections(), 0);
}

/// Waits until something becomes true that must.
async fn until(mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("it never became true");
}

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
