//! A gateway with a certificate of its own, and a bare client end to talk to it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{future::poll_fn, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::BodyExt;
use ropeway_cluster::{LocalBus, LocalBusConfig};
use ropeway_core::{
    CarrierKind,
    connect::Candidate,
    session::{Client, ClientConfig, ClientEvent, HelloFacts, Machine},
    wire::{fields::RequestHead, message::NetworkKind},
};
use ropeway_gateway::{
    Gateway,
    config::{Config, KeySource, RouteConfig, TicketKey},
    tickets::TicketIssuer,
};
use ropeway_net::{
    Clock,
    carrier::{Carrier, CarrierError},
    dial::{Dialer, Trust},
    link::{Session, drive},
    unix_ms,
};
use tempfile::TempDir;
use tokio::task::JoinHandle;

pub(crate) struct World {
    pub(crate) gateway: Gateway<LocalBus>,
    pub(crate) issuer: TicketIssuer,
    pub(crate) trust: Trust,
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
        config.admin.listen = "127.0.0.1:0".parse().unwrap();
        config.tickets.keys = vec![TicketKey { kid: "test".into(), public_key: KeySource::Raw(issuer.public_key()) }];
        config.routes = vec![RouteConfig::new("api.test", "builtin:echo".parse().unwrap())];
        change(&mut config);
        let gateway = Gateway::start(Arc::new(config), LocalBus::new(LocalBusConfig::default())).await.unwrap();
        let trust = Trust::Roots(vec![signed.cert.der().clone()]);
        Self { gateway, issuer, trust, _folder: folder }
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

    pub(crate) fn device(&self, seed: u8) -> Device {
        let key = SigningKey::from_bytes(&[seed; 32]);
        let day = Duration::from_secs(86_400);
        let ticket = self.issuer.issue("ada", "dev", &key.verifying_key().to_bytes(), day, unix_ms() / 1000).unwrap();
        let config = ClientConfig { app: "dev".into(), device: format!("device-{seed}"), ..ClientConfig::default() };
        let clock = Clock::new();
        let session = Session::new(Client::new(config, clock.now()), clock);
        Device { session, key, ticket, gateway: "gw.test".into() }
    }
}

pub(crate) struct Device {
    pub(crate) session: Session<Client>,
    pub(crate) key: SigningKey,
    pub(crate) ticket: String,
    pub(crate) gateway: String,
}

impl Device {
    /// Says HELLO and PROOF over a connection and drives it in the background.
    pub(crate) fn connect(&self, mut carrier: Box<dyn Carrier>) -> JoinHandle<Result<(), CarrierError>> {
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
        self.session.with(|client, now| {
            client.connect(facts, &sign, now);
            if let Some(binding) = carrier.binding() {
                client.prove(&binding, &sign);
            }
        });
        let session = self.session.clone();
        tokio::spawn(async move {
            let ended = drive(carrier.as_mut(), &mut (&session, number)).await;
            session.end_link(number);
            ended
        })
    }

    /// Waits for the next event of the session.
    pub(crate) async fn event(&self) -> ClientEvent {
        loop {
            if let Some(event) = self.session.peek(Client::poll_event) {
                return event;
            }
            tokio::task::yield_now().await;
        }
    }

    pub(crate) fn open(&self, method: Method, uri: &str, end: bool) -> u64 {
        let head = RequestHead { method, uri: uri.parse().unwrap(), headers: HeaderMap::new() };
        self.session.request(head, end).unwrap()
    }

    pub(crate) async fn send(&self, method: Method, uri: &str, body: &[u8]) -> (StatusCode, HeaderMap, Bytes) {
        let channel = self.open(method, uri, body.is_empty());
        let upload = async {
            if !body.is_empty() {
                let mut writer = self.session.writer(channel);
                writer.write(Bytes::copy_from_slice(body)).await.unwrap();
                writer.finish(None);
            }
        };
        let download = async {
            let head = poll_fn(|cx| self.session.poll_head(channel, cx)).await.unwrap();
            (head, self.session.reader(channel).collect().await.unwrap().to_bytes())
        };
        let ((), (head, body)) = tokio::join!(upload, download);
        (head.status, head.headers, body)
    }

    pub(crate) fn is_open(&self) -> bool {
        self.session.peek(|client| client.mux().is_attached())
    }
}

pub(crate) fn nonce() -> [u8; 16] {
    let mut nonce = [0; 16];
    getrandom::fill(&mut nonce).unwrap();
    nonce
}
