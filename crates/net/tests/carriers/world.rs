//! A session over any carrier: a device, a gateway, and a service behind it.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use ropeway_core::{
    CarrierKind, Time,
    session::{
        Accept, Client, ClientConfig, ClientEvent, Closed, Cookie, HelloFacts, LinkError, Machine, Server,
        ServerConfig, SessionId,
    },
    wire::{
        Frame, FrameRef, Kind,
        fields::{RequestHead, ResponseHead},
        message::{NetworkKind, Proof, ResetCode},
    },
};
use ropeway_net::{
    Clock,
    carrier::{Carrier, CarrierError},
    link::{BodyReader, LinkPeer, NewRequest, Session, drive},
};
use tokio::task::JoinHandle;

use crate::rig::{BoxedCarrier, NAME, Rig, pattern, within};

/// A device and a gateway that know each other's session.
pub(crate) struct World {
    pub(crate) rig: Rig,
    pub(crate) client: Session<Client>,
    pub(crate) server: Session<Server>,
    /// Body bytes that the gateway took from the service.
    pub(crate) taken: Arc<AtomicU64>,
    key: SigningKey,
}

/// Both ends of one link, driven by tasks of their own.
pub(crate) struct Link {
    pub(crate) client: JoinHandle<Result<(), CarrierError>>,
    pub(crate) server: JoinHandle<Result<(), CarrierError>>,
}

impl World {
    pub(crate) async fn new() -> Self {
        let clock = Clock::new();
        let key = SigningKey::from_bytes(&[7; 32]);
        let config = ServerConfig {
            gateway: NAME.into(),
            heartbeat: (Duration::from_secs(15), Duration::from_secs(600)),
            ..ServerConfig::default()
        };
        let cookie = Cookie::new(SessionId(1), [1; 16]);
        let server = Server::new(Arc::new(config), cookie, key.verifying_key().to_bytes(), clock.now());
        Self {
            rig: Rig::new().await,
            client: Session::new(Client::new(ClientConfig::default(), clock.now()), clock),
            server: Session::new(server, clock),
            taken: Arc::default(),
            key,
        }
    }

    pub(crate) async fn link(&self, kind: CarrierKind) -> Link {
        let (client, server) = self.rig.connect(kind).await;
        let link = Link { client: self.drive_client(client), server: self.drive_server(server) };
        self.until(|world| world.client.peek(|client| client.mux().is_attached())).await;
        link
    }

    fn drive_client(&self, mut carrier: BoxedCarrier) -> JoinHandle<Result<(), CarrierError>> {
        let facts = HelloFacts {
            ticket: "t".into(),
            gateway: NAME.into(),
            network: NetworkKind::Wired,
            unix_ms: 1_000,
            nonce: [3; 16],
            trace_parent: String::new(),
            ordered: carrier.kind() != CarrierKind::Quic,
            heartbeat: Duration::from_secs(270),
        };
        let (number, ()) = self.client.begin_link_with(|client, now| {
            client.connect(facts, &|message| self.key.sign(message).to_bytes(), now);
            if let Some(binding) = carrier.binding() {
                client.prove(&binding, &|message| self.key.sign(message).to_bytes());
            }
        });
        let mut device = Device { session: self.client.clone(), number, key: self.key.clone() };
        tokio::spawn(async move {
            let ended = drive(carrier.as_mut(), &mut device).await;
            device.session.end_link(number);
            ended
        })
    }

    fn drive_server(&self, mut carrier: BoxedCarrier) -> JoinHandle<Result<(), CarrierError>> {
        let challenge = (carrier.kind() == CarrierKind::Ws).then_some([9; 32]);
        let proof = |challenge: [u8; 32]| Proof { challenge: challenge.to_vec().into(), signature: Bytes::new() };
        let mut gate = Gate {
            session: self.server.clone(),
            taken: Arc::clone(&self.taken),
            device_key: self.key.verifying_key().to_bytes(),
            accept: Accept::new(NAME.into(), Duration::from_secs(60)),
            output: challenge.map(|challenge| Frame::control(Kind::Proof, &proof(challenge))).into_iter().collect(),
            challenge,
            kept: VecDeque::new(),
            number: None,
            waker: None,
        };
        tokio::spawn(async move {
            let ended = drive(carrier.as_mut(), &mut gate).await;
            if let Some(number) = gate.number {
                gate.session.end_link(number);
            }
            ended
        })
    }

    /// Waits for a condition; whatever brings it about is at work.
    pub(crate) async fn until(&self, mut holds: impl FnMut(&Self) -> bool) {
        within(async {
            while !holds(self) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Waits until neither end holds anything of an exchange.
    pub(crate) async fn until_empty(&self) {
        self.until(|world| {
            let left = world.client.exchanges() + world.server.exchanges();
            let running =
                world.client.peek(|client| client.mux().running()) + world.server.peek(|server| server.mux().running());
            left + running == 0
        })
        .await;
    }

    pub(crate) fn open(&self, path: &str, end: bool) -> u64 {
        let uri = format!("https://api.test{path}").parse().unwrap();
        let head = RequestHead { method: Method::POST, uri, headers: HeaderMap::new() };
        self.client.request(head, end).expect("not too many exchanges are open")
    }

    pub(crate) async fn head(&self, channel: u64) -> Result<ResponseHead, Closed> {
        within(poll_fn(|cx| self.client.poll_head(channel, cx))).await
    }

    /// Sends a body to the echo and returns what comes back.
    pub(crate) async fn echo(&self, body: Bytes) -> Bytes {
        let channel = self.open("/echo", false);
        let mut writer = self.client.writer(channel);
        let upload = async {
            writer.write(body).await.unwrap();
            writer.finish(None);
        };
        let download = async {
            self.head(channel).await.unwrap();
            within(self.client.reader(channel).collect()).await.unwrap().to_bytes()
        };
        tokio::join!(upload, download).1
    }
}

/// The client's end.
struct Device {
    session: Session<Client>,
    number: u64,
    key: SigningKey,
}

impl LinkPeer for Device {
    fn register(&mut self, waker: &Waker) {
        (&self.session, self.number).register(waker);
    }

    fn is_current(&self) -> bool {
        self.session.is_current(self.number)
    }

    fn now(&self) -> Time {
        self.session.clock().now()
    }

    fn clock(&self) -> Clock {
        *self.session.clock()
    }

    fn handle_frame(&mut self, frame: FrameRef<'_>, early: bool) -> Result<(), LinkError> {
        (&self.session, self.number).handle_frame(frame, early)?;
        while let Some(event) = self.session.peek(Client::poll_event) {
            if let ClientEvent::Challenge(challenge) = event {
                self.session.with(|client, _| client.prove(&challenge, &|message| self.key.sign(message).to_bytes()));
            }
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        (&self.session, self.number).handle_timeout(now)
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        (&self.session, self.number).poll_timeout()
    }

    fn poll_output(&mut self) -> Option<Frame> {
        (&self.session, self.number).poll_output()
    }
}

/// The gateway's end: admits the device and serves its requests.
struct Gate {
    session: Session<Server>,
    taken: Arc<AtomicU64>,
    device_key: [u8; 32],
    accept: Accept,
    challenge: Option<[u8; 32]>,
    kept: VecDeque<Frame>,
    output: VecDeque<Frame>,
    number: Option<u64>,
    waker: Option<Waker>,
}

impl LinkPeer for Gate {
    fn register(&mut self, waker: &Waker) {
        match self.number {
            Some(number) => (&self.session, number).register(waker),
            None => self.waker = Some(waker.clone()),
        }
    }

    fn is_current(&self) -> bool {
        self.number.is_none_or(|number| self.session.is_current(number))
    }

    fn now(&self) -> Time {
        self.session.clock().now()
    }

    fn clock(&self) -> Clock {
        *self.session.clock()
    }

    fn handle_frame(&mut self, frame: FrameRef<'_>, early: bool) -> Result<(), LinkError> {
        match self.number {
            Some(number) => (&self.session, number).handle_frame(frame, early),
            None => {
                self.kept.push_back(frame.to_owned());
                Ok(())
            }
        }
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        self.number.map_or(Ok(()), |number| (&self.session, number).handle_timeout(now))
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        (&self.session, self.number?).poll_timeout()
    }

    fn poll_output(&mut self) -> Option<Frame> {
        self.output.pop_front().or_else(|| (&self.session, self.number?).poll_output())
    }

    fn handle_turn(&mut self, carrier: &mut dyn Carrier) {
        while self.number.is_none()
            && let Some(frame) = self.kept.pop_front()
        {
            if frame.kind == Kind::Hello {
                self.accept.handle_hello(frame.as_ref(), 1_000).unwrap();
                self.accept.handle_device_key(&self.device_key).unwrap();
                continue;
            }
            let binding = self.challenge.or_else(|| carrier.binding()).unwrap();
            let hello = self.accept.handle_proof(frame.as_ref(), &binding).unwrap().hello;
            let ordered = carrier.kind() != CarrierKind::Quic;
            let resumed = !hello.resume.is_empty();
            let (number, ()) =
                self.session.begin_link_with(|server, now| server.attach(&hello, ordered, resumed, 1_000, now));
            self.number = Some(number);
            carrier.admit();
            if let Some(waker) = self.waker.take() {
                self.register(&waker);
            }
        }
        for request in self.session.take_requests() {
            tokio::spawn(serve(self.session.clone(), Arc::clone(&self.taken), request));
        }
    }
}

async fn serve(session: Session<Server>, taken: Arc<AtomicU64>, request: NewRequest) {
    let channel = request.channel;
    let body = session.reader(channel).keeping_exchange();
    tokio::select! {
        () = answer(&session, &taken, request, body) => {}
        _ = session.cancelled(channel) => {}
    }
    session.forget(channel);
}

/// `/echo` sends the body back with a trailer, `/much` as many bytes as the query says, `/cut` breaks its answer off,
/// `/never` says nothing, and `/refuse` answers before the request has come.
async fn answer(session: &Session<Server>, taken: &AtomicU64, request: NewRequest, body: BodyReader<Server>) {
    let channel = request.channel;
    let respond = |end| {
        let head = ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() };
        session.with(|server, _| server.mux().respond(channel, head, end));
    };
    match request.head.uri.path() {
        "/echo" => {
            let Ok(body) = body.collect().await else { return };
            respond(false);
            let mut writer = session.writer(channel);
            if writer.write(body.to_bytes()).await.is_ok() {
                let trailers = HeaderMap::from_iter([(http::header::ETAG, HeaderValue::from_static("whole"))]);
                writer.finish(Some(trailers));
            }
        }
        "/much" => {
            drop(body);
            respond(false);
            let mut writer = session.writer(channel);
            let bytes: usize = request.head.uri.query().unwrap().parse().unwrap();
            for at in (0..bytes).step_by(MUCH_PIECE) {
                let piece = pattern(at, MUCH_PIECE.min(bytes - at));
                let length = piece.len() as u64;
                if writer.write(piece).await.is_err() {
                    return;
                }
                taken.fetch_add(length, Ordering::Relaxed);
            }
            writer.finish(None);
        }
        "/cut" => {
            respond(false);
            let mut writer = session.writer(channel);
            let _ = writer.write(Bytes::from_static(b"half")).await;
            writer.reset(ResetCode::UpstreamCut, "the service is gone");
        }
        "/refuse" => {
            drop(body);
            respond(true);
            session.writer(channel).completed();
        }
        _ => std::future::pending().await,
    }
}

/// Bytes the service writes at a time: a multiple of the pattern's period, so that the whole is one pattern.
pub(crate) const MUCH_PIECE: usize = 251 * 64;
