//! A bare client end of a link: a device without the client library.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use http::{HeaderMap, Method, Uri};
use http_body::Body;
use http_body_util::BodyExt;
use ropeway_core::connect::Candidate;
use ropeway_core::session::{Client, ClientConfig, ClientEvent, HelloFacts, LinkError};
use ropeway_core::wire::fields::RequestHead;
use ropeway_core::wire::message::NetworkKind;
use ropeway_core::wire::{ALPN, Frame, FrameRef};
use ropeway_core::{CarrierKind, Time};
use ropeway_net::carrier::{Carrier, EXPORTER_LABEL, StreamCarrier};
use ropeway_net::dial::{Dialer, client_config};
use ropeway_net::link::{BodyReader, LinkPeer, Session, drive};
use ropeway_net::{Clock, unix_ms};
use rustls::client::Resumption;
use rustls::pki_types::ServerName;
use tokio::net::TcpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::BenchError;
use super::gateway::{APP, Gateway, NAME};

/// A device with its key and ticket.
#[derive(Clone, Debug)]
pub(super) struct Device {
    /// Its user, of whom it is the only device.
    pub(super) user: String,
    key: SigningKey,
    ticket: String,
}

/// How devices get to the gateway.
#[derive(Clone)]
pub(super) struct Roads {
    tls: rustls::ClientConfig,
    dialer: Dialer,
    address: SocketAddr,
    udp: SocketAddr,
    sources: Arc<AtomicU32>,
}

/// A link that is open; dropping it cuts it.
pub(super) struct Link {
    session: Session<Client>,
    driver: JoinHandle<()>,
    told: mpsc::Receiver<Told>,
    /// Whether TLS resumed an earlier session; false where it cannot be seen.
    pub(super) is_resumed: bool,
}

/// What a link tells whoever holds it.
#[derive(Debug)]
enum Told {
    Pushed(String),
    Refused(String),
    Welcome,
}

impl Device {
    /// Makes device number `number`.
    pub(super) fn new(gateway: &Gateway, number: u32) -> Result<Self, BenchError> {
        let mut seed = [7; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        let key = SigningKey::from_bytes(&seed);
        let user = format!("user-{number}");
        let ticket = gateway.ticket(&user, &key.verifying_key().to_bytes())?;
        Ok(Self { user, key, ticket })
    }

    /// Makes as many devices.
    pub(super) fn many(gateway: &Gateway, count: u32) -> Result<Vec<Self>, BenchError> {
        (0..count).map(|number| Self::new(gateway, number)).collect()
    }

    /// Opens a link over a carrier.
    pub(super) async fn connect(&self, roads: &Roads, carrier: CarrierKind) -> Result<Link, BenchError> {
        timeout(PATIENCE, self.open(roads, carrier))
            .await
            .map_err(|_| BenchError::TimedOut { what: "opening a link", seconds: PATIENCE.as_secs() })?
    }

    async fn open(&self, roads: &Roads, carrier: CarrierKind) -> Result<Link, BenchError> {
        let (carrier, is_resumed) = roads.dial(carrier).await?;
        let clock = Clock::new();
        let config = ClientConfig { app: APP.into(), device: self.user.clone(), ..ClientConfig::default() };
        let session = Session::new(Client::new(config, clock.now()), clock);
        let (teller, told) = mpsc::channel(TOLD_MAX);
        let driver = self.drive(&session, carrier, teller);
        let mut link = Link { session, driver, told, is_resumed };
        match link.told.recv().await {
            Some(Told::Welcome) => Ok(link),
            Some(Told::Refused(detail)) => Err(BenchError::Refused { detail }),
            Some(Told::Pushed(_)) | None => Err(BenchError::Dial { reason: "the link broke before WELCOME".into() }),
        }
    }

    /// Says HELLO and PROOF, and drives the connection in the background.
    fn drive(
        &self,
        session: &Session<Client>,
        mut carrier: Box<dyn Carrier>,
        teller: mpsc::Sender<Told>,
    ) -> JoinHandle<()> {
        let sign = |message: &[u8]| self.key.sign(message).to_bytes();
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).expect("the system has randomness");
        let facts = HelloFacts {
            ticket: self.ticket.clone(),
            gateway: NAME.into(),
            network: NetworkKind::Wired,
            unix_ms: unix_ms(),
            nonce,
            trace_parent: String::new(),
            ordered: carrier.kind() != CarrierKind::Quic,
            heartbeat: HEARTBEAT,
        };
        let number = session.begin_link();
        session.with(|client, now| {
            client.connect(facts, &sign, now);
            if let Some(binding) = carrier.binding() {
                client.prove(&binding, &sign);
            }
        });
        let session = session.clone();
        let key = self.key.clone();
        tokio::spawn(async move {
            let mut peer = Peer { end: (&session, number), session: &session, key, teller };
            // Whoever waits for an answer hears of the end by the session.
            let _ = drive(carrier.as_mut(), &mut peer).await;
            session.dissolve();
        })
    }
}

impl Roads {
    /// Makes roads to a gateway. With `resumption` a later connection resumes the TLS session of an earlier one.
    pub(super) fn new(gateway: &Gateway, resumption: bool) -> Result<Self, BenchError> {
        let failed = |error: std::io::Error| BenchError::Dial { reason: error.to_string() };
        let mut tls = client_config(gateway.trust(), &[ALPN]).map_err(failed)?;
        if !resumption {
            tls.resumption = Resumption::disabled();
        }
        let dialer = Dialer::new(gateway.trust()).map_err(failed)?;
        let (address, udp) = (gateway.address(CarrierKind::Tls), gateway.address(CarrierKind::Quic));
        Ok(Self { tls, dialer, address, udp, sources: Arc::default() })
    }

    /// Makes the same roads with TLS sessions of their own.
    pub(super) fn apart(&self) -> Self {
        let mut roads = self.clone();
        roads.tls.resumption = Resumption::in_memory_sessions(TLS_SESSIONS);
        roads
    }

    async fn dial(&self, carrier: CarrierKind) -> Result<(Box<dyn Carrier>, bool), BenchError> {
        let address = match carrier {
            CarrierKind::Tls => return self.dial_tls().await,
            CarrierKind::Quic => self.udp,
            CarrierKind::Ws => self.address,
        };
        let dialed = self.dialer.dial(Candidate { address, carrier }, NAME).await;
        let dialed = dialed.map_err(|error| BenchError::Dial { reason: error.to_string() })?;
        Ok((dialed.carrier, false))
    }

    /// Connects from one of many loopback addresses, so that no number of connections uses up the ports of one.
    async fn dial_tls(&self) -> Result<(Box<dyn Carrier>, bool), BenchError> {
        let failed = |error: &dyn std::error::Error| BenchError::Dial { reason: error.to_string() };
        let number = self.sources.fetch_add(1, Ordering::Relaxed) % SOURCES;
        let source = Ipv4Addr::from(u32::from(Ipv4Addr::LOCALHOST) + number);
        let socket = TcpSocket::new_v4().map_err(|error| failed(&error))?;
        socket.set_nodelay(true).map_err(|error| failed(&error))?;
        socket.bind(SocketAddr::new(IpAddr::V4(source), 0)).map_err(|error| failed(&error))?;
        let tcp = socket.connect(self.address).await.map_err(|error| failed(&error))?;
        let name = ServerName::try_from(NAME).map_err(|error| failed(&error))?;
        let connector = TlsConnector::from(Arc::new(self.tls.clone()));
        let stream = connector.connect(name, tcp).await.map_err(|error| failed(&error))?;
        let tls = stream.get_ref().1;
        let is_resumed = tls.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
        let mut binding = [0; 32];
        tls.export_keying_material(&mut binding, EXPORTER_LABEL, None).map_err(|error| failed(&error))?;
        Ok((Box::new(StreamCarrier::new(stream, self.address, binding)), is_resumed))
    }
}

impl Link {
    /// Posts a body and gives the length of the answer's.
    pub(super) async fn post(&self, uri: &Uri, body: Bytes) -> Result<usize, BenchError> {
        let channel = self.request(Method::POST, uri, false)?;
        let mut writer = self.session.writer(channel);
        // A service that does not read it may have answered by now, which ends the exchange; what else ended it, the answer tells.
        if writer.write(body).await.is_ok() {
            writer.finish(None);
        }
        let answer = self.answer(channel).await?.collect().await;
        Ok(answer.map_err(|cut| BenchError::Cut { why: cut.why })?.to_bytes().len())
    }

    /// Gets a resource and gives its body to read.
    pub(super) async fn get(&self, uri: &Uri) -> Result<impl Body<Data = Bytes> + Unpin + use<>, BenchError> {
        let channel = self.request(Method::GET, uri, true)?;
        self.answer(channel).await
    }

    /// Waits for a push, says that it was shown, and gives its text.
    pub(super) async fn pushed(&mut self) -> Result<String, BenchError> {
        match self.told.recv().await {
            Some(Told::Pushed(text)) => Ok(text),
            Some(Told::Refused(detail)) => Err(BenchError::Refused { detail }),
            Some(Told::Welcome) | None => Err(BenchError::Dial { reason: "the link broke".into() }),
        }
    }

    fn request(&self, method: Method, uri: &Uri, end: bool) -> Result<u64, BenchError> {
        let head = RequestHead { method, uri: uri.clone(), headers: HeaderMap::new() };
        let full = || BenchError::WrongAnswer { what: "no more requests fit on the link".into() };
        self.session.request(head, end).ok_or_else(full)
    }

    async fn answer(&self, channel: u64) -> Result<BodyReader<Client>, BenchError> {
        let body = self.session.reader(channel);
        let head = poll_fn(|cx| self.session.poll_head(channel, cx)).await.map_err(|why| BenchError::Cut { why })?;
        if head.status.is_success() {
            return Ok(body);
        }
        Err(BenchError::WrongAnswer { what: format!("status {}", head.status) })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The session's end of a link, with an ear for what the gateway says beside the exchanges.
struct Peer<'a> {
    end: (&'a Session<Client>, u64),
    session: &'a Session<Client>,
    key: SigningKey,
    teller: mpsc::Sender<Told>,
}

impl Peer<'_> {
    fn listen(&mut self) {
        while let Some(event) = self.session.peek(Client::poll_event) {
            let told = match event {
                ClientEvent::Push { message, .. } => {
                    self.session.with(|client, _| client.shown(&message.id));
                    Told::Pushed(String::from_utf8_lossy(&message.payload).into_owned())
                }
                ClientEvent::Refused { detail, .. } => Told::Refused(detail),
                ClientEvent::Welcome { .. } => Told::Welcome,
                ClientEvent::Challenge(challenge) => {
                    let sign = |message: &[u8]| self.key.sign(message).to_bytes();
                    self.session.with(|client, _| client.prove(&challenge, &sign));
                    continue;
                }
                ClientEvent::Doubted { .. }
                | ClientEvent::Draining { .. }
                | ClientEvent::Gap
                | ClientEvent::Late
                | ClientEvent::List(_)
                | ClientEvent::Policy(_)
                | ClientEvent::RoundTrip(_)
                | ClientEvent::Trusted => continue,
            };
            // Nobody listens to a link that is being dropped.
            let _ = self.teller.try_send(told);
        }
    }
}

impl LinkPeer for Peer<'_> {
    fn register(&mut self, waker: &Waker) {
        self.end.register(waker);
    }

    fn is_current(&self) -> bool {
        LinkPeer::is_current(&self.end)
    }

    fn now(&self) -> Time {
        self.end.now()
    }

    fn clock(&self) -> Clock {
        LinkPeer::clock(&self.end)
    }

    fn handle_frame(&mut self, frame: FrameRef<'_>, early: bool) -> Result<(), LinkError> {
        self.end.handle_frame(frame, early)?;
        self.listen();
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        self.end.handle_timeout(now)
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.end.poll_timeout()
    }

    fn poll_output(&mut self) -> Option<Frame> {
        self.end.poll_output()
    }
}

/// Longest wait for a link to open; thousands may open at once.
const PATIENCE: Duration = Duration::from_secs(60);

/// Beats of the heart are longer apart than any benchmark.
const HEARTBEAT: Duration = Duration::from_secs(590);

/// Pushes that may wait for whoever counts them.
const TOLD_MAX: usize = 1_024;

/// Loopback addresses to connect from. Each has 28,000 ports, and a port rests for a minute after its use.
const SOURCES: u32 = 64;

/// TLS sessions that one set of roads keeps; it goes to one gateway only.
const TLS_SESSIONS: usize = 4;
