//! A gateway with a certificate of its own, and a bare client end to talk to it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{future::poll_fn, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use futures_util::future::{Either, select};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use ropeway_cluster::{LocalBus, LocalBusConfig};
use ropeway_core::{
    CarrierKind,
    connect::Candidate,
    session::{Client, ClientConfig, ClientEvent, Closed, HelloFacts, Machine, MuxConfig, PushMessage},
    wire::{
        fields::{RequestHead, ResponseHead},
        message::{NetworkKind, Proof, RefuseCode},
    },
};
use ropeway_gateway::{
    Gateway,
    config::{Config, KeySource, RouteConfig, TicketKey},
    tickets::{DeviceRule, TicketIssuer},
};
use ropeway_net::{
    Clock,
    carrier::{Carrier, CarrierError},
    dial::{Dialer, Trust},
    link::{Session, drive},
    scratch::with_scratch,
    unix_ms,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub(crate) struct World {
    pub(crate) gateway: Gateway<LocalBus>,
    pub(crate) issuer: TicketIssuer,
    pub(crate) trust: Trust,
    pub(crate) config: Config,
    _folder: TempDir,
}

impl World {
    pub(crate) async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let folder = TempDir::new().unwrap();
        let signed = rcgen::generate_simple_self_signed(vec!["gw.test".into(), "api.test".into()]).unwrap();
        std::fs::write(folder.path().join("gateway.pem"), signed.cert.pem()).unwrap();
        std::fs::write(folder.path().join("gateway.key"), signed.signing_key.serialize_pem()).unwrap();
        std::fs::write(folder.path().join("admin.token"), "secret").unwrap();
        let issuer = TicketIssuer::generate("test").unwrap();
        let mut config = Config::default();
        config.gateway.name = "gw.test".into();
        config.gateway.data_dir = folder.path().into();
        config.gateway.tcp_listen = "127.0.0.1:0".parse().unwrap();
        config.gateway.udp_listen = "127.0.0.1:0".parse().unwrap();
        config.gateway.session_ttl = Duration::from_millis(200);
        config.admin.listen = "127.0.0.1:0".parse().unwrap();
        config.tickets.keys = vec![TicketKey { kid: "test".into(), public_key: KeySource::Raw(issuer.public_key()) }];
        config.routes = vec![RouteConfig::new("api.test", "builtin:echo".parse().unwrap())];
        change(&mut config);
        let bus = LocalBus::new(LocalBusConfig::default());
        let gateway = Gateway::start(Arc::new(config.clone()), bus).await.unwrap();
        let trust = Trust::Roots(vec![signed.cert.der().clone()]);
        Self { gateway, issuer, trust, config, _folder: folder }
    }

    /// A gateway whose only route leads to `upstream`.
    pub(crate) async fn before(upstream: SocketAddr) -> Self {
        Self::before_with(upstream, |_| ()).await
    }

    pub(crate) async fn before_with(upstream: SocketAddr, change: impl FnOnce(&mut RouteConfig)) -> Self {
        let mut route = RouteConfig::new("up.test", format!("http://{upstream}").parse().unwrap());
        change(&mut route);
        Self::new(|config| config.routes.push(route)).await
    }

    pub(crate) fn address(&self, carrier: CarrierKind) -> SocketAddr {
        let addresses = self.gateway.addresses();
        match carrier {
            CarrierKind::Quic => addresses.udp,
            CarrierKind::Tls | CarrierKind::Ws => addresses.tcp,
        }
    }

    pub(crate) async fn dial(&self, carrier: CarrierKind) -> Box<dyn Carrier> {
        let dialer = Dialer::new(&self.trust).unwrap();
        let candidate = Candidate { address: self.address(carrier), carrier };
        dialer.dial(candidate, "gw.test").await.unwrap().carrier
    }

    pub(crate) fn ticket(&self, user: &str, app: &str, key: &SigningKey) -> String {
        let day = Duration::from_secs(86_400);
        let (key, any) = (key.verifying_key().to_bytes(), DeviceRule::Any);
        self.issuer.issue(user, app, &key, &any, day, unix_ms() / 1000).unwrap()
    }

    pub(crate) fn device(&self, seed: u8) -> Device {
        self.device_of("ada", seed)
    }

    pub(crate) fn device_of(&self, user: &str, seed: u8) -> Device {
        let key = key(seed);
        let ticket = self.ticket(user, "dev", &key);
        // More exchanges than the gateway allows, so that it is the gateway that refuses.
        let mux = MuxConfig { channels_max: 1_000, ..MuxConfig::default() };
        let config =
            ClientConfig { app: "dev".into(), device: format!("device-{seed}"), mux, ..ClientConfig::default() };
        let clock = Clock::new();
        let mut client = Client::new(config, clock.now());
        // Only the tests of lists want any.
        client.set_list_epoch(u64::MAX);
        let session = Session::new(client, clock);
        Device { session, key, ticket, gateway: "gw.test".into() }
    }

    /// A device with an open link.
    pub(crate) async fn connected(&self, seed: u8, carrier: CarrierKind) -> (Device, Link) {
        let device = self.device(seed);
        let link = device.connect(self.dial(carrier).await);
        device.welcome().await;
        (device, link)
    }

    /// Runs `attack` while a healthy device works over a link of its own. Afterwards `reason` was counted once, the attacker holds
    /// nothing, and the healthy device went on undisturbed.
    pub(crate) async fn attack<T>(&self, reason: &'static str, attack: impl Future<Output = T>) -> T {
        let before = self.refused(reason);
        let (healthy, link) = self.connected(HEALTHY, CarrierKind::Tls).await;
        let mut attack = pin!(attack);
        let output = loop {
            let mut working = pin!(healthy.work());
            match select(attack.as_mut(), working.as_mut()).await {
                Either::Left((output, _)) => {
                    working.await;
                    break output;
                }
                Either::Right(((), _)) => {}
            }
        };
        until(reason, || self.refused(reason) == before + 1).await;
        until("the attacker's connections end", || self.links() == 1).await;
        healthy.work().await;
        assert!(healthy.is_open());
        healthy.hang_up(link).await;
        self.empty().await;
        output
    }

    pub(crate) fn refused(&self, reason: &'static str) -> u64 {
        self.gateway.metrics().refusal(reason).value()
    }

    pub(crate) fn failed(&self, error: &'static str) -> u64 {
        self.gateway.metrics().request_error(error).value()
    }

    /// Connections that speak the link protocol.
    pub(crate) fn links(&self) -> i64 {
        CarrierKind::ALL.iter().map(|carrier| self.gateway.metrics().links(carrier.as_str()).value()).sum()
    }

    /// Waits until nothing is left of any link or session.
    pub(crate) async fn empty(&self) {
        until("no link is left", || self.links() == 0).await;
        until("no session is left", || self.gateway.metrics().sessions().value() == 0).await;
    }
}

pub(crate) struct Device {
    pub(crate) session: Session<Client>,
    pub(crate) key: SigningKey,
    pub(crate) ticket: String,
    pub(crate) gateway: String,
}

pub(crate) type Link = JoinHandle<Result<(), CarrierError>>;

impl Device {
    /// Says HELLO and PROOF over a connection and drives it in the background.
    pub(crate) fn connect(&self, mut carrier: Box<dyn Carrier>) -> Link {
        let key = self.key.clone();
        let sign = move |message: &[u8]| key.sign(message).to_bytes();
        let facts = HelloFacts {
            ticket: self.ticket.clone(),
            gateway: self.gateway.clone(),
            network: NetworkKind::Wired,
            unix_ms: unix_ms(),
            nonce: nonce(),
            trace_parent: String::new(),
            ordered: carrier.kind() != CarrierKind::Quic,
            heartbeat: Duration::from_secs(270),
        };
        let number = self.session.begin_link();
        let session = self.session.clone();
        tokio::spawn(async move {
            let binding = match carrier.binding() {
                Some(binding) => binding,
                None => challenge(carrier.as_mut()).await,
            };
            session.with(|client, now| {
                client.connect(facts, &sign, now);
                client.prove(&binding, &sign);
            });
            let ended = drive(carrier.as_mut(), &mut (&session, number)).await;
            session.end_link(number);
            let goodbye = poll_fn(|cx| with_scratch(|scratch| carrier.poll_close(cx, scratch)));
            let _ = tokio::time::timeout(PATIENCE, goodbye).await;
            ended
        })
    }

    /// Ends the link with a goodbye.
    pub(crate) async fn hang_up(&self, link: Link) {
        self.session.begin_link();
        link.await.unwrap().unwrap();
    }

    /// Waits for the next event of the session.
    pub(crate) async fn event(&self) -> ClientEvent {
        let mut event = None;
        until("an event of the session", || {
            event = self.session.peek(Client::poll_event);
            event.is_some()
        })
        .await;
        event.unwrap()
    }

    /// Waits for WELCOME; returns whether the session goes on, and the hosts.
    pub(crate) async fn welcome(&self) -> (bool, Vec<String>) {
        let event = self.event().await;
        let ClientEvent::Welcome { resumed, hosts, .. } = event else { panic!("{event:?} instead of a welcome") };
        (resumed, hosts)
    }

    /// Waits for a refusal.
    pub(crate) async fn refusal(&self) -> (RefuseCode, Duration) {
        let event = self.event().await;
        let ClientEvent::Refused { code, retry_after, .. } = event else { panic!("{event:?} instead of a refusal") };
        (code, retry_after)
    }

    /// Waits for the next message and shows it; returns it and whether it was sent before.
    pub(crate) async fn shown(&self) -> (PushMessage, bool) {
        let (message, redelivered) = self.pushed().await;
        self.session.with(|client, _| client.shown(&message.id));
        (message, redelivered)
    }

    /// Waits for the next message.
    pub(crate) async fn pushed(&self) -> (PushMessage, bool) {
        let event = self.event().await;
        let ClientEvent::Push { message, redelivered } = event else { panic!("{event:?} instead of a message") };
        (message, redelivered)
    }

    pub(crate) fn open(&self, method: Method, uri: &str, end: bool) -> u64 {
        self.open_with(method, uri, HeaderMap::new(), end)
    }

    pub(crate) fn open_with(&self, method: Method, uri: &str, headers: HeaderMap, end: bool) -> u64 {
        let head = RequestHead { method, uri: uri.parse().unwrap(), headers };
        self.session.request(head, end).unwrap()
    }

    /// Waits for the head of an answer.
    pub(crate) async fn head(&self, channel: u64) -> Result<ResponseHead, Closed> {
        in_time(poll_fn(|cx| self.session.poll_head(channel, cx))).await
    }

    /// Waits for the rest of an answer.
    pub(crate) async fn body(&self, channel: u64) -> Result<Bytes, Closed> {
        let collected = in_time(self.session.reader(channel).collect()).await;
        collected.map(http_body_util::Collected::to_bytes).map_err(|cut| cut.why)
    }

    pub(crate) async fn send(&self, method: Method, uri: &str, body: &[u8]) -> (StatusCode, HeaderMap, Bytes) {
        self.send_with(method, uri, HeaderMap::new(), body).await
    }

    pub(crate) async fn send_with(
        &self,
        method: Method,
        uri: &str,
        headers: HeaderMap,
        body: &[u8],
    ) -> (StatusCode, HeaderMap, Bytes) {
        let channel = self.open_with(method, uri, headers, body.is_empty());
        let upload = async {
            if !body.is_empty() {
                let mut writer = self.session.writer(channel);
                writer.write(Bytes::copy_from_slice(body)).await.unwrap();
                writer.finish(None);
            }
        };
        let download = async {
            let head = self.head(channel).await.unwrap();
            (head, self.body(channel).await.unwrap())
        };
        let ((), (head, body)) = tokio::join!(upload, download);
        (head.status, head.headers, body)
    }

    /// One request whose answer is checked.
    pub(crate) async fn work(&self) {
        let (status, _, echoed) = self.send(Method::POST, "https://api.test/work", b"still there?").await;
        assert_eq!((status, &echoed[..]), (StatusCode::OK, &b"still there?"[..]));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.session.peek(|client| client.mux().is_attached())
    }
}

/// Takes the challenge that a gateway sends first over a carrier without an exporter.
async fn challenge(carrier: &mut dyn Carrier) -> [u8; 32] {
    let mut challenge = None;
    while challenge.is_none() {
        let arrived = poll_fn(|cx| {
            with_scratch(|scratch| {
                carrier.poll_recv(cx, scratch, &mut |frame, _| {
                    let proof: Proof = frame.message()?;
                    challenge = Some(proof.challenge.as_ref().try_into().unwrap());
                    Ok(())
                })
            })
        });
        arrived.await.unwrap();
    }
    challenge.unwrap()
}

/// Waits for something that must come, and fails with its name when it does not.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        let mut looks = tokio::time::interval(Duration::from_millis(2));
        while !holds() {
            looks.tick().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "waited in vain: {what}");
}

/// Fails where the future does not end.
pub(crate) async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

pub(crate) fn key(seed: u8) -> SigningKey {
    SigningKey::from_bytes(&[seed; 32])
}

pub(crate) fn nonce() -> [u8; 16] {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).unwrap();
    nonce
}

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Seed of the device that works during an attack.
const HEALTHY: u8 = 250;
