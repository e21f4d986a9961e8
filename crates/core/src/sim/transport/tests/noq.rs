//! The model of QUIC beside noq itself: both in virtual time, over the same model of a link, with the same chances.
#![expect(clippy::disallowed_methods, reason = "noq's time is std's, and has to begin somewhere")]

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use noq_proto::{
    ClientConfig, Connection as Noq, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, FourTuple,
    MtuDiscoveryConfig, ServerConfig, Side, StreamId, TransportConfig, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::pki_types::PrivatePkcs8KeyDer;

use super::{Capacity, Direction, DirectionSpec, LinkModel};
use crate::{
    CarrierKind, Time,
    sim::transport::{Connection, End, Segment, Transport, quic::mtu::STEP_BYTES_MIN},
};

/// Both ends of a connection.
trait Ends {
    type Packet: Clone;

    fn new(seed: u64) -> Self;
    /// Returns the next packet that an end sends, and the bytes of it in IP.
    fn transmit(&mut self, end: End, now: Time) -> Option<(Self::Packet, usize)>;
    fn receive(&mut self, end: End, packet: Self::Packet, now: Time);
    fn handle_timeout(&mut self, now: Time);
    fn poll_timeout(&self) -> Option<Time>;
    fn is_open(&self) -> bool;
    fn write(&mut self, end: End, stream: u64, bytes: usize);
    /// Returns how many bytes an end has read of a stream.
    fn read(&mut self, end: End, stream: u64) -> usize;
}

/// The model.
struct Model {
    client: Connection,
    /// It begins with the first packet.
    server: Option<Connection>,
    read: BTreeMap<(bool, u64), usize>,
}

impl Model {
    fn end(&mut self, end: End) -> Option<&mut Connection> {
        match end {
            End::Client => Some(&mut self.client),
            End::Server => self.server.as_mut(),
        }
    }
}

impl Ends for Model {
    type Packet = Segment;

    fn new(_seed: u64) -> Self {
        let client = Connection::new(CarrierKind::Quic, End::Client, Time::ZERO);
        Self { client, server: None, read: BTreeMap::new() }
    }

    fn transmit(&mut self, end: End, now: Time) -> Option<(Segment, usize)> {
        let segment = self.end(end)?.poll_transmit(now)?;
        let bytes = segment.ip_bytes(Transport::Quic, false);
        Some((segment, bytes))
    }

    fn receive(&mut self, end: End, packet: Segment, now: Time) {
        if end == End::Server {
            self.server.get_or_insert_with(|| Connection::new(CarrierKind::Quic, End::Server, now));
        }
        self.end(end).unwrap().handle_segment(packet, now);
    }

    fn handle_timeout(&mut self, now: Time) {
        for end in [End::Client, End::Server] {
            if let Some(end) = self.end(end)
                && end.poll_timeout().is_some_and(|at| at <= now)
            {
                end.handle_timeout(now);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let server = self.server.as_ref().and_then(Connection::poll_timeout);
        [self.client.poll_timeout(), server].into_iter().flatten().min()
    }

    fn is_open(&self) -> bool {
        self.client.is_open()
    }

    fn write(&mut self, end: End, stream: u64, bytes: usize) {
        self.end(end).unwrap().write(stream, Bytes::from(vec![0; bytes]));
    }

    fn read(&mut self, end: End, stream: u64) -> usize {
        while let Some((stream, data)) = self.end(end).and_then(Connection::read) {
            *self.read.entry((end == End::Client, stream)).or_default() += data.len();
        }
        self.read.get(&(end == End::Client, stream)).copied().unwrap_or_default()
    }
}

/// noq itself.
struct Real {
    origin: Instant,
    client: RealEnd,
    server: RealEnd,
}

/// One end of noq.
struct RealEnd {
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Noq)>,
    output: VecDeque<Bytes>,
    read: BTreeMap<u64, usize>,
    unsent: BTreeMap<u64, usize>,
}

impl Real {
    fn at(&self, now: Time) -> Instant {
        self.origin + now.since_origin()
    }

    fn end(&mut self, end: End) -> &mut RealEnd {
        match end {
            End::Client => &mut self.client,
            End::Server => &mut self.server,
        }
    }
}

impl RealEnd {
    fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, connection: None, output: VecDeque::new(), read: BTreeMap::new(), unsent: BTreeMap::new() }
    }

    /// Does what noq asks for, and collects what it sends.
    fn settle(&mut self, now: Instant) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while connection.poll().is_some() {}
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(event);
            }
        }
        for (stream, bytes) in &mut self.unsent {
            if *bytes > 0 {
                let id = StreamId::new(Side::Client, Dir::Bi, *stream);
                if let Ok(written) = connection.send_stream(id).write(&vec![0; *bytes]) {
                    *bytes -= written;
                }
            }
        }
        let mut buffer = Vec::new();
        while let Some(transmit) = connection.poll_transmit(now, NonZeroUsize::MIN, &mut buffer) {
            self.output.push_back(Bytes::copy_from_slice(&buffer[..transmit.size]));
            buffer.clear();
        }
    }
}

fn address() -> SocketAddr {
    SocketAddr::from(([198, 18, 0, 10], 443))
}

/// Settings as the client and the gateway have them, and a chain of certificates as long as the lab's.
fn configs() -> (ClientConfig, ServerConfig) {
    let authority_key = rcgen::KeyPair::generate().unwrap();
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let root = authority.self_signed(&authority_key).unwrap();
    let issuer = rcgen::Issuer::new(authority, authority_key);
    let key = rcgen::KeyPair::generate().unwrap();
    let names = ["api", &"x".repeat(60), &"y".repeat(60), &"z".repeat(60), &"z".repeat(40)];
    let params = rcgen::CertificateParams::new(names.map(|name| format!("{name}.test"))).unwrap();
    let leaf = params.signed_by(&key, &issuer).unwrap();

    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::clone(&provider));
    let client = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap();
    let client = client.with_root_certificates(roots).with_no_client_auth();
    let builder = rustls::ServerConfig::builder_with_provider(provider);
    let server = builder.with_protocol_versions(&[&rustls::version::TLS13]).unwrap().with_no_client_auth();
    let chain = vec![leaf.der().clone(), root.der().clone()];
    let server = server.with_single_cert(chain, PrivatePkcs8KeyDer::from(key.serialize_der()).into()).unwrap();

    // As in `ropeway-net`.
    let mut search = MtuDiscoveryConfig::default();
    search.minimum_change(u16::try_from(STEP_BYTES_MIN).unwrap());
    let transport = |search| {
        let mut transport = TransportConfig::default();
        transport.max_idle_timeout(Some(VarInt::from_u32(150_000).into())).mtu_discovery_config(search);
        Arc::new(transport)
    };
    let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client).unwrap()));
    let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server).unwrap()));
    client.transport_config(transport(None));
    server.transport_config(transport(Some(search)));
    (client, server)
}

impl Ends for Real {
    type Packet = Bytes;

    fn new(seed: u64) -> Self {
        let origin = Instant::now();
        let (client_config, server_config) = configs();
        let endpoint = |server| {
            let mut config = EndpointConfig::default();
            config.rng_seed(Some([seed as u8; 32]));
            Endpoint::new(Arc::new(config), server, true)
        };
        let mut client = RealEnd::new(endpoint(None));
        client.connection = Some(client.endpoint.connect(origin, client_config, address(), "api.test").unwrap());
        let server = RealEnd::new(endpoint(Some(Arc::new(server_config))));
        Self { origin, client, server }
    }

    fn transmit(&mut self, end: End, now: Time) -> Option<(Bytes, usize)> {
        let now = self.at(now);
        let side = self.end(end);
        side.settle(now);
        let packet = side.output.pop_front()?;
        let bytes = packet.len() + 28;
        Some((packet, bytes))
    }

    fn receive(&mut self, end: End, packet: Bytes, now: Time) {
        let now = self.at(now);
        let side = self.end(end);
        let mut buffer = Vec::new();
        let path = FourTuple::new(address(), None);
        match side.endpoint.handle(now, path, None, BytesMut::from(&packet[..]), &mut buffer) {
            Some(DatagramEvent::NewConnection(incoming)) => {
                side.connection = Some(side.endpoint.accept(incoming, now, &mut buffer, None).unwrap());
            }
            Some(DatagramEvent::ConnectionEvent(_, event)) => {
                let (_, connection) = side.connection.as_mut().unwrap();
                connection.handle_event(event);
            }
            Some(DatagramEvent::Response(_)) | None => {}
        }
        side.settle(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        let now = self.at(now);
        for end in [End::Client, End::Server] {
            let side = self.end(end);
            if let Some((_, connection)) = &mut side.connection
                && connection.poll_timeout().is_some_and(|at| at <= now)
            {
                connection.handle_timeout(now);
            }
            side.settle(now);
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let at = |side: &RealEnd| side.connection.as_ref().and_then(|(_, connection)| connection.poll_timeout());
        let next = [at(&self.client), at(&self.server)].into_iter().flatten().min()?;
        Some(Time::from_origin(next.saturating_duration_since(self.origin)))
    }

    fn is_open(&self) -> bool {
        self.client.connection.as_ref().is_some_and(|(_, connection)| !connection.is_handshaking())
    }

    fn write(&mut self, end: End, stream: u64, bytes: usize) {
        let side = self.end(end);
        if end == End::Client {
            let (_, connection) = side.connection.as_mut().unwrap();
            let opened = connection.streams().open(Dir::Bi).unwrap();
            assert_eq!(opened.index(), stream);
        }
        *side.unsent.entry(stream).or_default() += bytes;
    }

    fn read(&mut self, end: End, stream: u64) -> usize {
        let side = self.end(end);
        let Some((_, connection)) = &mut side.connection else { return 0 };
        if end == End::Server {
            while connection.streams().accept(Dir::Bi).is_some() {}
        }
        let id = StreamId::new(Side::Client, Dir::Bi, stream);
        let mut got = 0;
        if let Ok(mut chunks) = connection.recv_stream(id).read(true) {
            while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                got += chunk.bytes.len();
            }
            let _ = chunks.finalize();
        }
        let read = side.read.entry(stream).or_default();
        *read += got;
        *read
    }
}

/// What is said on a link's way to its first answer, in bytes.
#[derive(Clone, Copy, Debug)]
struct Script {
    request: usize,
    answer: usize,
}

/// How long it took, from the first packet, and the bytes both ways.
#[derive(Clone, Copy, Debug)]
struct Talk {
    opened: Duration,
    greeted: Duration,
    answered: Duration,
    bytes: u64,
}

/// What a link does, both ways.
#[derive(Clone, Copy, Debug)]
struct Way {
    rtt_ms: u64,
    down_kbit: u64,
    up_kbit: u64,
    loss: f64,
}

impl Way {
    fn spec(self, direction: Direction) -> DirectionSpec {
        let mut spec = DirectionSpec::transparent(direction);
        let kbit = if direction == Direction::Down { self.down_kbit } else { self.up_kbit };
        spec.capacity = Capacity::Rate { bits_per_s: kbit * 1_000 };
        spec.impairments.delay = Duration::from_millis(self.rtt_ms / 2);
        spec.impairments.loss = self.loss;
        spec
    }
}

/// A talk under way.
struct Course<E: Ends> {
    ends: E,
    up: LinkModel<E::Packet>,
    down: LinkModel<E::Packet>,
    now: Time,
    opened: Option<Time>,
    is_welcomed: bool,
    greeted: Option<Time>,
    is_served: bool,
}

impl<E: Ends> Course<E> {
    /// Puts what the ends send on the link; says whether there was anything.
    fn send(&mut self) -> bool {
        let before = self.up.counts().offered + self.down.counts().offered;
        while let Some((packet, bytes)) = self.ends.transmit(End::Client, self.now) {
            self.up.offer(packet, bytes, self.now);
        }
        while let Some((packet, bytes)) = self.ends.transmit(End::Server, self.now) {
            self.down.offer(packet, bytes, self.now);
        }
        self.up.counts().offered + self.down.counts().offered > before
    }

    /// Says what is next, if its turn has come: HELLO, WELCOME, a request, its answer.
    fn speak(&mut self, script: Script) -> bool {
        if self.opened.is_none() {
            if self.ends.is_open() {
                self.opened = Some(self.now);
                self.ends.write(End::Client, 0, HELLO_BYTES);
                return true;
            }
        } else if !self.is_welcomed {
            if self.ends.read(End::Server, 0) == HELLO_BYTES {
                self.is_welcomed = true;
                self.ends.write(End::Server, 0, WELCOME_BYTES);
                return true;
            }
        } else if self.greeted.is_none() {
            if self.ends.read(End::Client, 0) == WELCOME_BYTES {
                self.greeted = Some(self.now);
                self.ends.write(End::Client, 1, script.request);
                return true;
            }
        } else if !self.is_served && self.ends.read(End::Server, 1) == script.request {
            self.is_served = true;
            self.ends.write(End::Server, 1, script.answer);
            return true;
        }
        false
    }

    /// Lets time pass until something is due, and hands over what arrived.
    fn wait(&mut self) {
        let due = [self.up.poll_timeout(), self.down.poll_timeout(), self.ends.poll_timeout()];
        let next = due.into_iter().flatten().min().expect("something is under way");
        self.now = next.max(self.now + Duration::from_micros(1));
        while let Some(delivery) = self.up.poll_output(self.now) {
            self.ends.receive(End::Server, delivery.payload, self.now);
        }
        while let Some(delivery) = self.down.poll_output(self.now) {
            self.ends.receive(End::Client, delivery.payload, self.now);
        }
        self.ends.handle_timeout(self.now);
    }
}

/// Opens a connection, greets and asks; what takes longer than a minute counts as a minute.
fn talk<E: Ends>(script: Script, way: Way, seed: u64) -> Talk {
    let link = |direction, seed| LinkModel::new(way.spec(direction), seed, Time::ZERO);
    let mut course = Course {
        ends: E::new(seed),
        up: link(Direction::Up, 2 * seed + 1),
        down: LinkModel::new(way.spec(Direction::Down), 2 * seed, Time::ZERO),
        now: Time::ZERO,
        opened: None,
        is_welcomed: false,
        greeted: None,
        is_served: false,
    };
    let end = Time::ZERO + Duration::from_mins(1);
    while course.now < end {
        while course.send() | course.speak(script) {}
        if course.is_served && course.ends.read(End::Client, 1) == script.answer {
            break;
        }
        course.wait();
    }
    let since = |at: Option<Time>| at.unwrap_or(end).since(Time::ZERO);
    Talk {
        opened: since(course.opened),
        greeted: since(course.greeted),
        answered: course.now.since(Time::ZERO),
        bytes: course.up.counts().offered_bytes + course.down.counts().offered_bytes,
    }
}

/// Says whether two times differ by no more than a share of the second, and a few milliseconds.
fn is_near(one: Duration, other: Duration, share: f64) -> bool {
    one.abs_diff(other) <= other.mul_f64(share) + Duration::from_millis(8)
}

#[test]
fn the_model_takes_the_time_and_the_bytes_that_noq_takes() {
    for (rtt_ms, down_kbit, up_kbit) in
        [(20, 50_000, 20_000), (60, 5_000, 2_000), (200, 780, 330), (840, 240, 200), (1_300, 20, 18)]
    {
        for script in [GET, POST] {
            let way = Way { rtt_ms, down_kbit, up_kbit, loss: 0.0 };
            let (model, real) = (talk::<Model>(script, way, 1), talk::<Real>(script, way, 1));
            let place = format!("{way:?} {script:?}: {model:?}, noq {real:?}");
            assert!(is_near(model.opened, real.opened, 0.03), "{place}");
            assert!(is_near(model.greeted, real.greeted, 0.05), "{place}");
            assert!(is_near(model.answered, real.answered, 0.05), "{place}");
            assert!(model.bytes.abs_diff(real.bytes) <= real.bytes / 8, "{place}");
        }
    }
}

#[test]
fn the_model_takes_as_long_as_noq_where_packets_are_lost() {
    // Medians and third quartiles of so many talks; at 40 % a talk takes 0.2 to 60 s, and chance a tenth of what may be missing.
    for (loss, share) in [(0.05, 0.1), (0.2, 0.2), (0.4, 0.5)] {
        let way = Way { rtt_ms: 60, down_kbit: 5_000, up_kbit: 2_000, loss };
        for script in [GET, POST] {
            let model: Vec<Talk> = (0..TALKS).map(|seed| talk::<Model>(script, way, seed)).collect();
            let real: Vec<Talk> = (0..TALKS).map(|seed| talk::<Real>(script, way, seed)).collect();
            for (name, time) in [
                ("opened", (|talk| talk.opened) as fn(&Talk) -> Duration),
                ("greeted", |talk| talk.greeted),
                ("answered", |talk| talk.answered),
            ] {
                let sorted = |talks: &[Talk]| {
                    let mut times: Vec<Duration> = talks.iter().map(time).collect();
                    times.sort();
                    times
                };
                let (model, real) = (sorted(&model), sorted(&real));
                for quantile in [TALKS / 2, TALKS * 3 / 4] {
                    let quantile = quantile as usize;
                    let (model, real) = (model[quantile], &real[quantile - CHANCE..=quantile + CHANCE]);
                    let is_within = real[0] <= model && model <= real[2 * CHANCE];
                    let is_near = is_within || real.iter().any(|real| is_near(model, *real, share));
                    assert!(is_near, "{name}, {way:?}, {script:?}: {model:?}, noq {real:?}");
                }
            }
        }
    }
}

const GET: Script = Script { request: 29, answer: 2_083 };
const POST: Script = Script { request: 10_290, answer: 20 };

const HELLO_BYTES: usize = 614;
const WELCOME_BYTES: usize = 84;

/// Connections with each loss and script.
const TALKS: u64 = 200;

/// Ranks by which a quantile of so many may be off by chance, where times go in steps: two standard deviations of the difference of two
/// third quartiles.
const CHANCE: usize = 17;
