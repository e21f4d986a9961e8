//! Address sources against servers on loopback and files on disk.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use ropeway::{
    Builder, CarrierKind, Client, Error, Event, Phase, Way,
    sources::{ListKey, ListOrigin, ListTrouble, Origin, Sources, SourcesEvent, SourcesSetup, SourcesWarning},
};
use ropeway_core::{
    connect::{Source, sources::DispatchSeed},
    policy::Policy,
    wire::list::{AccessList, AccessPoint, Host, PipeKey, Unit},
};
use ropeway_net::{Clock, unix_ms};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tempfile::TempDir;
use tokio::net::{TcpListener, UdpSocket};

use crate::support::{Authority, TestGateway, builder, soon, world};

/// A dispatcher that serves one list, and what a client needs to believe it.
pub(crate) struct Dispatcher {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    pem: String,
    fetched: Arc<Mutex<Vec<String>>>,
}

impl Dispatcher {
    pub(crate) async fn new(document: Bytes) -> Self {
        Self::named("gw.test", document).await
    }

    /// Makes one whose certificate carries another name.
    async fn named(name: &str, document: Bytes) -> Self {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]).unwrap();
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let fetched = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&fetched);
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let (acceptor, document, log) = (acceptor.clone(), document.clone(), Arc::clone(&log));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(tcp).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        log.lock().unwrap().push(request.uri().path().to_owned());
                        let is_list = request.uri().path() == "/.ropeway/list";
                        let body = if is_list { document.clone() } else { Bytes::new() };
                        let mut response = Response::new(Full::new(body));
                        *response.status_mut() = if is_list { StatusCode::OK } else { StatusCode::NOT_FOUND };
                        async move { Ok::<_, Infallible>(response) }
                    });
                    let mut builder = hyper::server::conn::http1::Builder::new();
                    let _ = builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, certificate, pem: made.cert.pem(), fetched }
    }
}

pub(crate) fn key() -> SigningKey {
    SigningKey::from_bytes(&[1; 32])
}

pub(crate) fn list() -> AccessList {
    let epoch_ms = unix_ms();
    let point = AccessPoint {
        gateway: "north.test".into(),
        serves_pipe: true,
        pipe_name: "north".into(),
        ..AccessPoint::new("192.0.2.1:443".parse().unwrap(), [CarrierKind::Quic, CarrierKind::Tls])
    };
    AccessList {
        epoch_ms,
        expires_ms: epoch_ms + 3_600_000,
        units: vec![Unit { name: "north".into(), access_points: vec![point], dispatch: Vec::new() }],
        hosts: vec![Host {
            name: "api.test".into(),
            addresses: vec!["192.0.2.1".parse().unwrap(), "192.0.2.2:8443".parse().unwrap()],
            speaks_h3: true,
            ..Host::default()
        }],
        pipe_keys: vec![PipeKey { key_id: 1, config: "k".into(), expires_ms: u64::MAX, name: "north".into() }],
        policy: Policy { epoch_ms, gap: Some(Duration::from_secs(8)), ..Policy::default() },
        ..AccessList::default()
    }
}

pub(crate) fn sealed(list: &AccessList) -> Bytes {
    list.seal("k", &|message| key().sign(message).to_bytes())
}

fn setup() -> SourcesSetup {
    SourcesSetup {
        list_keys: vec![ListKey { id: "k".into(), public_key: key().verifying_key().to_bytes() }],
        gateway: "gw.test".into(),
        // Nobody must be asked by accident.
        name_servers: vec!["127.0.0.1:9".parse().unwrap()],
        ..SourcesSetup::default()
    }
}

#[tokio::test]
async fn a_list_that_a_link_brings_leads_to_a_gateway_that_the_app_never_named() {
    let folder = TempDir::new().unwrap();
    let authority = Authority::new();
    let (named, other) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
    let key = key().verifying_key().to_bytes();
    let made = || builder(&authority, &[&named], CarrierKind::Tls).list_key("k", key).state_dir(folder.path());
    let client = made().build().unwrap();
    soon(client.get("https://api.test/greeting").send()).await.unwrap();
    assert_eq!(named.hellos()[0].list_epoch, 0, "it has none and wants one");
    let mut list = list();
    list.units[0].access_points = vec![AccessPoint::new(other.address(), [CarrierKind::Tls])];
    named.send_list(&sealed(&list));
    until("the list is kept", || kept(folder.path())).await;
    named.stay_silent();
    named.forget();
    named.kill_links();
    let moved = soon(client.get("https://api.test/greeting").send()).await.unwrap();
    assert_eq!(moved.timeline().answered().unwrap().address, Some(other.address()));
    assert_eq!(other.hellos()[0].list_epoch, list.epoch_ms);
    drop(client);

    // The next process knows it from the start.
    let again = made().build().unwrap();
    soon(again.get("https://api.test/greeting").send()).await.unwrap();
    assert_eq!(other.hellos().last().unwrap().list_epoch, list.epoch_ms);
}

#[tokio::test]
async fn without_a_key_no_list_is_wanted() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    soon(client.get("https://api.test/greeting").send()).await.unwrap();
    assert_eq!(gateway.hellos()[0].list_epoch, u64::MAX);
}

#[tokio::test]
async fn an_access_point_is_found_by_a_name_that_the_device_itself_knows() {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let client = builder(&authority, &[], CarrierKind::Tls).carrier(CarrierKind::Tls);
    let client = client.access_point(format!("localhost:{}", gateway.address().port())).build().unwrap();
    let answer = soon(client.get("https://api.test/greeting").send()).await.unwrap();
    assert_eq!(answer.timeline().answered().unwrap().address, Some(gateway.address()));
}

/// Sources and the events they told.
fn started(setup: SourcesSetup) -> (Sources, Arc<Mutex<Vec<SourcesEvent>>>) {
    let events = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&events);
    let sources = Sources::start(setup, Clock::new(), move |event| told.lock().unwrap().push(event)).unwrap();
    (sources, events)
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        while !holds() {
            looks.tick().await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(30), waiting).await.is_ok(), "waited in vain: {what}");
}

pub(crate) fn kept(folder: &Path) -> bool {
    folder.join("access-list.state").exists()
}

#[tokio::test]
async fn a_fetched_list_gives_candidates_addresses_and_policy_and_outlives_the_process() {
    let folder = TempDir::new().unwrap();
    let dispatcher = Dispatcher::new(sealed(&list())).await;
    let setup = SourcesSetup { state_dir: Some(folder.path().into()), ..setup() };
    let with_dispatch = SourcesSetup {
        dispatch: vec![DispatchSeed { address: dispatcher.address, unit: None }],
        trust: vec![dispatcher.certificate.clone()],
        carriers: vec![CarrierKind::Tls],
        ..setup.clone()
    };
    let (sources, events) = started(with_dispatch);
    let mut candidates = sources.candidates();
    tokio::time::timeout(Duration::from_secs(30), candidates.wait_for(|known| !known.is_empty()))
        .await
        .unwrap()
        .unwrap();
    let known = candidates.borrow().clone();
    assert_eq!((known.len(), known[0].candidate.carrier), (1, CarrierKind::Tls), "only what is allowed");
    assert_eq!((known[0].gateway.as_deref(), known[0].source), (Some("north.test"), Source::List));
    until("the list is kept", || kept(folder.path())).await;
    assert_eq!(*dispatcher.fetched.lock().unwrap(), ["/.ropeway/list"]);

    // The next process has no dispatcher to ask.
    let (again, _) = started(setup);
    for sources in [&sources, &again] {
        let direct: Vec<String> = sources.direct_addresses("api.test", 443).iter().map(ToString::to_string).collect();
        assert_eq!(direct, ["192.0.2.1:443", "192.0.2.2:8443"]);
        assert_eq!(sources.pipe_targets()[0].address, "192.0.2.1:443".parse().unwrap());
        assert_eq!(sources.policy().gap, Some(Duration::from_secs(8)));
        assert!(sources.speaks_h3("api.test") && sources.plain_targets().is_empty());
        assert!(sources.list_epoch_ms() > 0);
    }
    assert_eq!(*events.lock().unwrap(), []);
}

#[tokio::test]
async fn state_that_cannot_be_used_is_set_aside_with_a_word_and_never_a_failure() {
    let mut old = list();
    old.epoch_ms -= 60 * 86_400_000;
    old.expires_ms = old.epoch_ms + 1;
    let head = b"ropeway access list state 1\n";
    let foreign = list().seal("other", &|message| key().sign(message).to_bytes());
    for bytes in [
        b"garbage".to_vec(),
        [&head[..], b"more garbage"].concat(),
        [&head[..], &sealed(&list())[..40]].concat(),
        [&head[..], &foreign].concat(),
        [&head[..], &sealed(&old)].concat(),
    ] {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("access-list.state"), &bytes).unwrap();
        let (sources, events) = started(SourcesSetup { state_dir: Some(folder.path().into()), ..setup() });
        assert!(matches!(events.lock().unwrap()[..], [SourcesEvent::StateIgnored { .. }]));
        assert!(!kept(folder.path()) && folder.path().join("access-list.bad").exists());
        sources.handle_list(&sealed(&list()));
        assert_eq!(sources.direct_addresses("api.test", 443).len(), 2, "it goes on without");
        until("the new list is kept", || kept(folder.path())).await;
    }
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_is_told_and_nothing_else() {
    let folder = TempDir::new().unwrap();
    let in_the_way = folder.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    let (sources, events) = started(SourcesSetup { state_dir: Some(in_the_way.join("deeper")), ..setup() });
    sources.handle_list(&sealed(&list()));
    let is_told = |event: &SourcesEvent| matches!(event, SourcesEvent::StateNotKept { .. });
    until("it is told", || events.lock().unwrap().iter().any(is_told)).await;
    assert!(!sources.pipe_targets().is_empty());
}

#[tokio::test]
async fn a_list_that_is_not_believed_is_told() {
    let (sources, events) = started(setup());
    sources.handle_list(&Bytes::from_static(b"\xff"));
    let told = events.lock().unwrap().pop();
    let Some(SourcesEvent::Warning(SourcesWarning::List(trouble))) = told else { panic!("{told:?}") };
    assert!(matches!(trouble, ListTrouble::Refused { from: ListOrigin::Link, .. }), "{trouble}");
    assert_eq!(sources.list_trouble(), Some(trouble));
    sources.handle_policy(&Policy { epoch_ms: 9, gap: Some(Duration::from_secs(3)), ..Policy::default() }.encode());
    assert_eq!(sources.policy().gap, Some(Duration::from_secs(3)));
}

#[tokio::test]
async fn addresses_are_given_at_once_and_names_by_the_first_who_knows() {
    let (sources, _) = started(setup());
    let literal = sources.resolve("[2001:db8::1]", 8443).await.unwrap();
    assert_eq!(literal[0].0, "[2001:db8::1]:8443".parse().unwrap());
    sources.handle_list(&sealed(&list()));
    // Nobody answers at the name server, so the list has the word.
    let listed = sources.resolve("api.test", 443).await.unwrap();
    assert_eq!(listed[0], ("192.0.2.1:443".parse().unwrap(), Origin::List));
}

#[tokio::test]
async fn a_dispatcher_of_another_unit_is_asked_by_the_name_of_that_units_gateways() {
    let dispatcher = Dispatcher::named("north.test", Bytes::new()).await;
    let (trust, public_hosts) = (vec![dispatcher.certificate.clone()], vec!["public.test".into()]);
    let (sources, _) = started(SourcesSetup { trust, public_hosts, ..setup() });
    let mut list = list();
    list.units[0].dispatch.push(dispatcher.address);
    sources.handle_list(&sealed(&list));
    assert!(sources.resolve("public.test", 443).await.is_err());
    assert_eq!(*dispatcher.fetched.lock().unwrap(), ["/.ropeway/resolve"]);
}

#[tokio::test]
async fn a_name_server_that_lies_about_a_public_name_is_not_believed() {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let name_server = socket.local_addr().unwrap();
    tokio::spawn(async move {
        let mut buffer = [0; 2_048];
        loop {
            let (length, peer) = socket.recv_from(&mut buffer).await.unwrap();
            let reply = lie(&buffer[..length]);
            socket.send_to(&reply, peer).await.unwrap();
        }
    });
    let setup = SourcesSetup { name_servers: vec![name_server], public_hosts: vec!["public.test".into()], ..setup() };
    let (sources, events) = started(setup);
    let unknown = sources.resolve("www.unknown.test", 443).await.unwrap();
    assert_eq!(unknown, [("127.0.0.2:443".parse().unwrap(), Origin::System)]);
    assert!(sources.resolve("public.test", 443).await.is_err());
    let told = events.lock().unwrap().clone();
    assert!(told.iter().any(|event| matches!(event, SourcesEvent::Warning(SourcesWarning::Hijacked { .. }))));
}

/// Answers every question for IPv4 with 127.0.0.2, written by hand: RFC 1035 section 4.
fn lie(query: &[u8]) -> Vec<u8> {
    let end = 12 + query[12..].iter().position(|byte| *byte == 0).unwrap() + 5;
    let is_v4 = query[end - 3] == 1;
    let mut reply = query[..end].to_vec();
    (reply[2], reply[3]) = (0x81, 0x80);
    reply[6..12].fill(0);
    if is_v4 {
        reply[7] = 1;
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 127, 0, 0, 2]);
    }
    reply
}

/// A client that knows a dispatcher, and takes no way but this.
pub(crate) fn client_of(dispatcher: &Dispatcher, way: Way) -> Builder {
    Client::builder()
        .gateway("gw.test")
        .app("app")
        .ticket("none")
        .trust(dispatcher.pem.as_str())
        .list_key("k", key().verifying_key().to_bytes())
        .dispatch("north", dispatcher.address)
        .served_host("api.test")
        .way(way)
        .link_wait(Duration::from_secs(1))
}

#[tokio::test]
async fn a_list_that_was_refused_is_the_reason_that_a_request_has_no_way_and_is_told_as_it_happens() {
    let mut ahead = list();
    (ahead.epoch_ms, ahead.expires_ms) = (ahead.epoch_ms + 86_400_000, ahead.expires_ms + 86_400_000);
    let strange = SigningKey::from_bytes(&[2; 32]);
    let forged = list().seal("k", &|message| strange.sign(message).to_bytes());
    for (document, name, words) in [
        (forged, "bad_signature", "signature of the access list is not that of key \"k\""),
        (sealed(&ahead), "future", "s in the future; is the clock of this device behind?"),
    ] {
        let dispatcher = Dispatcher::new(document).await;
        for way in [Way::Address, Way::Pipe, Way::Plain] {
            let events = Arc::new(Mutex::new(Vec::new()));
            let told = Arc::clone(&events);
            let client = client_of(&dispatcher, way).on_event(move |event| told.lock().unwrap().push(event));
            let error = client.build().unwrap().get("https://api.test/").send().await.unwrap_err();
            let text = error.to_string();
            assert!(text.contains(words) && text.contains(&dispatcher.address.to_string()), "{way}: {text}");
            assert!(!text.contains("no access list has come"), "one has come: {text}");
            assert!(!text.contains("no route"), "{way}: what routes allow is not known: {text}");
            let Error::NoList { trouble, .. } = &error else { panic!("{error:?}") };
            let ListTrouble::Refused { error: reason, .. } = &**trouble else { panic!("{trouble:?}") };
            assert_eq!(reason.name(), name);
            let chain = std::iter::successors(std::error::Error::source(&error), |error| error.source());
            assert_eq!(chain.last().unwrap().to_string(), reason.to_string());
            let is_told =
                |event: &Event| matches!(event, Event::Sources(SourcesEvent::Warning(SourcesWarning::List(_))));
            assert!(events.lock().unwrap().iter().any(is_told));
        }
    }
}

#[tokio::test]
async fn where_the_server_of_the_list_does_not_answer_that_is_told_too() {
    let dispatcher = Dispatcher::new(Bytes::new()).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = client_of(&dispatcher, Way::Plain).dispatch("north", gone).build().unwrap();
    let client_alone =
        Client::builder().gateway("gw.test").list_key("k", [1; 32]).dispatch("north", gone).way(Way::Pipe);
    let error = client_alone.link_wait(Duration::from_secs(1)).build().unwrap().get("https://api.test/").send().await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains(&format!("{gone} gave no access list: ")) && text.contains("refused"), "{text}");
    let forced = client.get("https://api.test/").way(Way::Plain).send().await.unwrap_err();
    assert!(matches!(forced, Error::NoList { .. }), "{forced}");
}

#[tokio::test]
async fn a_request_whose_time_is_over_while_it_waits_for_a_list_tells_why_none_has_come() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = Client::builder().gateway("gw.test").list_key("k", [1; 32]).dispatch("north", gone).way(Way::Address);
    let client = client.build().unwrap();
    let error = client.get("https://api.test/").timeout(Duration::from_millis(800)).send().await.unwrap_err();
    let Error::Timeout { phase: Phase::Connect, list: Some(trouble), .. } = &error else { panic!("{error:?}") };
    assert!(matches!(**trouble, ListTrouble::Failed { address, .. } if address == gone), "{trouble}");
    assert!(error.to_string().contains(&format!("; {gone} gave no access list: ")), "{error}");
}

#[tokio::test]
async fn who_was_asked_for_a_list_and_is_silent_is_named_when_the_time_is_over() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let client =
        Client::builder().gateway("gw.test").list_key("k", [1; 32]).dispatch("north", address).way(Way::Address);
    let client = client.build().unwrap();
    let error = client.get("https://api.test/").timeout(Duration::from_millis(800)).send().await.unwrap_err();
    let told = format!("; {address} gave no access list: it has not answered yet");
    assert!(matches!(error, Error::Timeout { .. }) && error.to_string().contains(&told), "{error}");
}

#[tokio::test]
async fn an_empty_list_is_told_as_such() {
    let dispatcher = Dispatcher::new(Bytes::new()).await;
    let client = client_of(&dispatcher, Way::Address).build().unwrap();
    let error = client.get("https://api.test/").send().await.unwrap_err();
    let told = format!("{} gave no access list: answer is malformed: it is empty", dispatcher.address);
    assert!(matches!(error, Error::NoList { .. }) && error.to_string().contains(&told), "{error}");
}

#[tokio::test]
async fn a_request_whose_links_are_refused_has_the_list_fetched_at_once() {
    let dispatcher = Dispatcher::new(sealed(&list())).await;
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let client = client_of(&dispatcher, Way::Link).way(Way::Address).access_point_on(gone, [CarrierKind::Tls]);
    let client = client.build().unwrap();
    let began = std::time::Instant::now();
    let request = client.get("https://api.test/").timeout(Duration::from_secs(10));
    tokio::select! {
        _ = request.send() => {}
        () = until("the list is fetched", || !dispatcher.fetched.lock().unwrap().is_empty()) => {}
    }
    assert_eq!(dispatcher.fetched.lock().unwrap()[..1], ["/.ropeway/list"]);
    assert!(began.elapsed() < Duration::from_millis(4_500), "it was waited for as if a link would bring it");
}
