//! A gateway that does as it is told: it loses links, memory and patience on demand.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use ed25519_dalek::SigningKey;
use http::{HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};
use ropeway_core::{
    CarrierKind, Time,
    policy::Policy,
    session::{Accept, Cookie, LinkError, Machine as _, PushMessage, Refusal, Server, ServerConfig, SessionId},
    wire::{
        Frame, FrameRef, Kind,
        message::{Hello, Proof, RefuseCode},
    },
};
use ropeway_net::{
    Clock,
    carrier::{Carrier, QuicCarrier, TlsCarrier, WsCarrier, link_transport, ws_limits},
    link::{LinkPeer, Session, drive},
    scratch::with_scratch,
    tls::{Alpn, ServerTls, ServerTlsOptions, quic_server_config, server_config},
    unix_ms,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::AbortHandle,
};

use super::{Authority, DEVICE_SEED, lock, service};

/// A gateway of the tests.
pub(crate) struct TestGateway {
    address: SocketAddr,
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
}

/// What its links share.
pub(crate) struct Shared {
    clock: Clock,
    config: Mutex<Arc<ServerConfig>>,
    sessions: Mutex<HashMap<SessionId, Session<Server>>>,
    links: Mutex<Vec<AbortHandle>>,
    refusal: Mutex<Option<Refusal>>,
    hellos: Mutex<Vec<Hello>>,
    executed: Mutex<Vec<String>>,
    active: Arc<Mutex<(usize, usize)>>,
    released: watch::Sender<bool>,
    next: AtomicU64,
    /// Connections that came, whatever became of them.
    connections: AtomicU64,
    /// Cookies are refused.
    disowning: Mutex<bool>,
    /// Connections are taken and never answered.
    silent: Mutex<bool>,
}

impl TestGateway {
    pub(crate) async fn start(authority: &Authority) -> Self {
        Self::start_on(authority, [127, 0, 0, 1]).await
    }

    /// Starts one at another address of this machine, as that of another unit.
    pub(crate) async fn start_on(authority: &Authority, ip: [u8; 4]) -> Self {
        Self::start_at(authority, SocketAddr::from((ip, 0))).await
    }

    pub(crate) async fn start_at(authority: &Authority, address: SocketAddr) -> Self {
        Self::start_as("gw.test", authority, address).await
    }

    /// Starts one of another name.
    pub(crate) async fn start_as(name: &str, authority: &Authority, address: SocketAddr) -> Self {
        let certificates = authority.issue(name);
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let config = ServerConfig {
            gateway: name.into(),
            hosts: vec!["api.test".into(), "*.wild.test".into()],
            heartbeat: (Duration::from_secs(15), Duration::from_secs(600)),
            topics_max: 100,
            ..ServerConfig::default()
        };
        let shared = Arc::new(Shared {
            clock: Clock::new(),
            config: Mutex::new(Arc::new(config)),
            sessions: Mutex::default(),
            links: Mutex::default(),
            refusal: Mutex::default(),
            hellos: Mutex::default(),
            executed: Mutex::default(),
            active: Arc::default(),
            released: watch::Sender::new(false),
            next: AtomicU64::new(1),
            connections: AtomicU64::new(0),
            disowning: Mutex::default(),
            silent: Mutex::default(),
        });
        let tls = server_config(ServerTlsOptions::new(Arc::clone(&certificates), vec![Alpn::Link, Alpn::Http11]));
        let quic = quic_server_config(ServerTlsOptions::new(certificates, vec![Alpn::Link]));
        let crypto = noq::crypto::rustls::QuicServerConfig::try_from(quic).unwrap();
        let mut server = noq::ServerConfig::with_crypto(Arc::new(crypto));
        server.transport_config(Arc::new(link_transport()));
        let socket = std::net::UdpSocket::bind(address).unwrap();
        let runtime = Arc::new(noq::TokioRuntime);
        let endpoint = noq::Endpoint::new(noq::EndpointConfig::default(), Some(server), socket, runtime).unwrap();
        let tasks = vec![
            tokio::spawn(accept_tcp(Arc::clone(&shared), listener, tls)).abort_handle(),
            tokio::spawn(accept_quic(Arc::clone(&shared), endpoint)).abort_handle(),
        ];
        Self { address, shared, tasks }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections came, over TCP and QUIC.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Breaks every link without a word.
    pub(crate) fn kill_links(&self) {
        lock(&self.shared.links).drain(..).for_each(|link| link.abort());
    }

    /// Forgets every session.
    pub(crate) fn forget(&self) {
        for (_, session) in lock(&self.shared.sessions).drain() {
            session.dissolve();
        }
    }

    /// Refuses links from now on, or no longer.
    pub(crate) fn refuse(&self, refusal: Option<Refusal>) {
        *lock(&self.shared.refusal) = refusal;
    }

    /// Takes no session back, though it has them all.
    pub(crate) fn refuse_resume(&self) {
        *lock(&self.shared.disowning) = true;
    }

    /// Never answers a HELLO from now on.
    pub(crate) fn stay_silent(&self) {
        *lock(&self.shared.silent) = true;
    }

    /// Asks every client to move.
    pub(crate) fn drain(&self) {
        for session in lock(&self.shared.sessions).values() {
            session.with(|server, _| server.drain(Duration::from_secs(30)));
        }
    }

    /// Takes no more requests on the links that are up.
    pub(crate) fn stop(&self) {
        for session in lock(&self.shared.sessions).values() {
            session.with(|server, _| server.stop());
        }
    }

    /// Sends a policy to every client.
    pub(crate) fn send_policy(&self, policy: &Policy) {
        for session in lock(&self.shared.sessions).values() {
            session.with(|server, _| server.send_policy(&policy.encode()));
        }
    }

    /// Lets `/hold` answer.
    pub(crate) fn release(&self) {
        self.shared.released.send_replace(true);
    }

    /// Pushes a message to every session that subscribed to its topic, or to all if it has none.
    pub(crate) fn push(&self, id: &str, topic: &str) {
        for session in lock(&self.shared.sessions).values() {
            let message = PushMessage {
                id: id.into(),
                topic: topic.into(),
                content_type: "text/plain".into(),
                payload: Bytes::from(format!("payload of {id}")),
                time_ms: 1,
            };
            session.with(|server, _| {
                if topic.is_empty() || server.topics().any(|known| known == topic) {
                    server.push(message);
                }
            });
        }
    }

    /// Sends an access list over every link.
    pub(crate) fn send_list(&self, document: &Bytes) {
        for session in lock(&self.shared.sessions).values() {
            session.with(|server, _| server.send_list(document));
        }
    }

    /// Returns what the service executed.
    pub(crate) fn executed(&self) -> Vec<String> {
        lock(&self.shared.executed).clone()
    }

    /// Returns how many requests the service had at once at most.
    pub(crate) fn peak(&self) -> usize {
        lock(&self.shared.active).1
    }

    /// Returns the HELLOs that were taken.
    pub(crate) fn hellos(&self) -> Vec<Hello> {
        lock(&self.shared.hellos).clone()
    }

    /// Returns how many exchanges are under way.
    pub(crate) fn running(&self) -> usize {
        lock(&self.shared.sessions).values().map(|session| session.peek(|server| server.mux().running())).sum()
    }

    /// Returns how many links are up.
    pub(crate) fn links(&self) -> usize {
        let mut links = lock(&self.shared.links);
        links.retain(|link| !link.is_finished());
        links.len()
    }

    /// Returns the ids of the messages that were acknowledged.
    pub(crate) fn acked(&self) -> Vec<String> {
        let mut acked = Vec::new();
        for session in lock(&self.shared.sessions).values() {
            while let Some(event) = session.peek(Server::poll_event) {
                if let ropeway_core::session::ServerEvent::Acked(ids) = event {
                    acked.extend(ids);
                }
            }
        }
        acked
    }

    /// Returns the topics of all sessions.
    pub(crate) fn topics(&self) -> Vec<String> {
        let sessions = lock(&self.shared.sessions);
        let topics =
            |session: &Session<Server>| session.peek(|server| server.topics().map(str::to_owned).collect::<Vec<_>>());
        sessions.values().flat_map(topics).collect()
    }
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.kill_links();
    }
}

impl Shared {
    pub(super) fn note(&self, what: String) {
        lock(&self.executed).push(what);
    }

    /// Counts a request until the guard is dropped.
    pub(super) fn active(&self) -> Active {
        let mut active = lock(&self.active);
        active.0 += 1;
        active.1 = active.1.max(active.0);
        Active(Arc::clone(&self.active))
    }

    pub(super) fn released(&self) -> watch::Receiver<bool> {
        self.released.subscribe()
    }

    fn spawn_link(self: &Arc<Self>, carrier: Box<dyn Carrier>) {
        let link = tokio::spawn(serve_link(Arc::clone(self), carrier)).abort_handle();
        lock(&self.links).push(link);
    }
}

/// One request the service has: those that run, and the most there were.
pub(super) struct Active(Arc<Mutex<(usize, usize)>>);

impl Drop for Active {
    fn drop(&mut self) {
        lock(&self.0).0 -= 1;
    }
}

async fn accept_tcp(shared: Arc<Shared>, listener: TcpListener, tls: Arc<rustls::ServerConfig>) {
    loop {
        let (tcp, peer) = listener.accept().await.unwrap();
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let (shared, tls) = (Arc::clone(&shared), Arc::clone(&tls));
        tokio::spawn(async move { serve_tcp(shared, tcp, peer, tls).await });
    }
}

async fn serve_tcp(shared: Arc<Shared>, tcp: TcpStream, peer: SocketAddr, config: Arc<rustls::ServerConfig>) {
    let mut tls = ServerTls::new(tcp, config).unwrap();
    let Ok(greeting) = tls.handshake().await else { return };
    if greeting.alpn == Some(Alpn::Link) {
        return shared.spawn_link(Box::new(TlsCarrier::new(tls, peer)));
    }
    let server = tokio_websockets::ServerBuilder::new().limits(ws_limits());
    let server = server.add_header(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("ropeway.v1")).unwrap();
    if let Ok((_, socket)) = server.accept(tls.into_stream()).await {
        shared.spawn_link(Box::new(WsCarrier::new(socket, peer)));
    }
}

async fn accept_quic(shared: Arc<Shared>, endpoint: noq::Endpoint) {
    while let Some(incoming) = endpoint.accept().await {
        shared.connections.fetch_add(1, Ordering::Relaxed);
        let (shared, peer) = (Arc::clone(&shared), incoming.remote_address());
        tokio::spawn(async move {
            if let Ok(connection) = incoming.accept().unwrap().await {
                shared.spawn_link(Box::new(QuicCarrier::new(connection, peer, false)));
            }
        });
    }
}

async fn serve_link(shared: Arc<Shared>, mut carrier: Box<dyn Carrier>) {
    let kind = carrier.kind();
    let challenge = matches!(kind, CarrierKind::Ws).then_some([9; 32]);
    let mut output = std::collections::VecDeque::new();
    if let Some(challenge) = challenge {
        let proof = Proof { challenge: challenge.to_vec().into(), signature: Bytes::new() };
        output.push_back(Frame::control(Kind::Proof, &proof));
    }
    let accept = Accept::new(lock(&shared.config).gateway.clone(), Duration::from_secs(60));
    let mut link =
        Link { shared, kind, challenge, accept, kept: Vec::new(), output, open: None, closing: false, waker: None };
    let _ = drive(carrier.as_mut(), &mut link).await;
    if let Some((session, number)) = &link.open {
        session.end_link(*number);
    }
    std::future::poll_fn(|cx| with_scratch(|scratch| carrier.poll_close(cx, scratch))).await;
}

struct Link {
    shared: Arc<Shared>,
    kind: CarrierKind,
    challenge: Option<[u8; 32]>,
    accept: Accept,
    kept: Vec<Frame>,
    output: std::collections::VecDeque<Frame>,
    open: Option<(Session<Server>, u64)>,
    closing: bool,
    waker: Option<Waker>,
}

impl Link {
    fn step(&mut self, frame: &Frame, carrier: &mut dyn Carrier) -> Result<(), Refusal> {
        if self.accept.awaits_hello() {
            self.accept.handle_hello(frame.as_ref(), unix_ms())?;
            let key = SigningKey::from_bytes(&DEVICE_SEED).verifying_key().to_bytes();
            return self.accept.handle_device_key(&key);
        }
        let binding = self.challenge.or_else(|| carrier.binding()).unwrap();
        let admitted = self.accept.handle_proof(frame.as_ref(), &binding)?;
        if let Some(refusal) = lock(&self.shared.refusal).clone() {
            return Err(refusal);
        }
        let hello = &admitted.hello;
        if !hello.resume.is_empty() && *lock(&self.shared.disowning) {
            return Err(Refusal::new(RefuseCode::ResumeRefused, "the cookie is not liked"));
        }
        let cookie = Cookie::decode(&hello.resume);
        let mut sessions = lock(&self.shared.sessions);
        let known = cookie.as_ref().and_then(|cookie| sessions.get(&cookie.session()).cloned());
        let resumed = known.is_some();
        let session = match (known, cookie) {
            (Some(session), Some(cookie)) => {
                session.peek(|server| server.check_resume(&cookie, &admitted.device_key))?;
                session
            }
            (None, _) | (_, None) => {
                let id = SessionId(self.shared.next.fetch_add(1, Ordering::Relaxed));
                let config = Arc::clone(&lock(&self.shared.config));
                let now = self.shared.clock.now();
                let server = Server::new(config, Cookie::new(id, [id.0 as u8; 16]), admitted.device_key, now);
                let session = Session::new(server, self.shared.clock);
                sessions.insert(id, session.clone());
                session
            }
        };
        drop(sessions);
        let ordered = !matches!(self.kind, CarrierKind::Quic);
        let number = session.begin_link();
        session.with(|server, now| server.attach(hello, ordered, resumed, unix_ms(), now));
        carrier.admit();
        lock(&self.shared.hellos).push(admitted.hello);
        self.open = Some((session, number));
        Ok(())
    }

    fn serve_requests(&self) {
        let Some((session, _)) = &self.open else { return };
        for request in session.take_requests() {
            let (shared, session) = (Arc::clone(&self.shared), session.clone());
            tokio::spawn(async move {
                let channel = request.channel;
                tokio::select! {
                    () = service::serve(&shared, session.clone(), request) => {}
                    _ = session.cancelled(channel) => {}
                }
                session.forget(channel);
            });
        }
    }
}

impl LinkPeer for Link {
    fn register(&mut self, waker: &Waker) {
        self.waker = Some(waker.clone());
        if let Some((session, number)) = &self.open {
            (session, *number).register(waker);
        }
    }

    fn is_current(&self) -> bool {
        self.open.as_ref().is_none_or(|(session, number)| session.is_current(*number))
    }

    fn now(&self) -> Time {
        self.shared.clock.now()
    }

    fn clock(&self) -> Clock {
        self.shared.clock
    }

    fn handle_frame(&mut self, frame: FrameRef<'_>, early: bool) -> Result<(), LinkError> {
        if let Some((session, number)) = &self.open {
            (session, *number).handle_frame(frame, early)?;
            self.serve_requests();
        } else if !self.closing && !*lock(&self.shared.silent) {
            self.kept.push(frame.to_owned());
        }
        Ok(())
    }

    fn handle_turn(&mut self, carrier: &mut dyn Carrier) {
        for frame in std::mem::take(&mut self.kept) {
            if let Some((session, number)) = &self.open {
                let _ = (session, *number).handle_frame(frame.as_ref(), false);
                self.serve_requests();
            } else if let Err(refusal) = self.step(&frame, carrier) {
                self.output.push_back(refusal.frame());
                self.closing = true;
            }
        }
        if let (Some((session, number)), Some(waker)) = (&self.open, &self.waker) {
            (session, *number).register(waker);
        }
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        self.open.as_ref().map_or(Ok(()), |(session, number)| (session, *number).handle_timeout(now))
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.open.as_ref().and_then(|(session, number)| (session, *number).poll_timeout())
    }

    fn poll_output(&mut self) -> Option<Frame> {
        let own = self.output.pop_front();
        own.or_else(|| self.open.as_ref().and_then(|(session, number)| (session, *number).poll_output()))
    }

    fn is_closing(&self) -> bool {
        self.closing && self.output.is_empty()
    }
}
