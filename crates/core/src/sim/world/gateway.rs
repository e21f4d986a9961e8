//! The servers of a simulated world: gateways that drive the real machines of the session, and what may stand in their place.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::Uri;
use rand_core::Rng as _;
use rand_pcg::Pcg32;

use super::{
    ORIGIN, UNIX_MS,
    carrier::{Carrier, binding},
    origin::{self, Origin},
};
use crate::{
    CarrierKind, Time,
    random::stream,
    request::KEY_HEADER,
    session::{
        Accept, Admitted, Cookie, LinkError, Machine as _, MuxConfig, MuxEvent, OutboxConfig, Refusal, Server,
        ServerConfig, SessionId,
    },
    sim::{
        net::{Content, Flow, Mapping, Network, Packet},
        scenario::BalancerFault,
        transport::{End, Transport, transport},
    },
    wire::{
        Frame, FrameRef, Kind,
        fields::ResponseHead,
        message::{Proof, RefuseCode},
    },
};

/// The gateways of a world, one at each site, as a process that listens on all addresses of it; of sessions each knows its own.
#[derive(Debug)]
pub(super) struct Gateway {
    config: Arc<ServerConfig>,
    /// Keys of the devices, in the place of tickets.
    keys: BTreeMap<String, [u8; 32]>,
    ends: BTreeMap<Flow, ServerEnd>,
    sessions: BTreeMap<SessionId, Held>,
    answers: BTreeMap<(Time, u64), Answer>,
    pub(super) origin: Origin,
    rng: Pcg32,
    scheduled: u64,
}

/// The server's end of a connection.
#[derive(Debug)]
struct ServerEnd {
    carrier: Carrier,
    mapping: Mapping,
    server: SocketAddr,
    /// The site that has this address.
    site: Option<usize>,
    host: Host,
    phase: Phase,
    output: VecDeque<Frame>,
}

/// Who answers at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    Balancer(BalancerFault),
    Gateway,
}

#[derive(Debug)]
enum Phase {
    Greeting {
        /// What came for exchanges.
        held: Vec<Frame>,
        accept: Box<Accept>,
        challenge: Option<[u8; 32]>,
        deadline: Time,
    },
    Open {
        session: SessionId,
    },
    /// What waits is sent, and then the connection is over.
    Over,
}

/// A session and what it is at.
#[derive(Debug)]
struct Held {
    machine: Server,
    /// Where its gateway is.
    site: Option<usize>,
    flow: Option<Flow>,
    /// When it is forgotten, where it has no link.
    expires: Option<Time>,
    requests: BTreeMap<u64, Request>,
    /// Bodies of answers, as far as they found no room yet.
    bodies: BTreeMap<u64, Bytes>,
}

#[derive(Debug)]
struct Request {
    uri: Uri,
    has_key: bool,
    body_bytes: u64,
}

/// An answer that is being made.
#[derive(Debug)]
struct Answer {
    session: SessionId,
    channel: u64,
    /// `None` where the origin cannot be reached.
    request: Option<Request>,
}

impl Gateway {
    pub(super) fn new(seed: u64) -> Self {
        let config = ServerConfig {
            gateway: ORIGIN.to_owned(),
            hosts: vec![ORIGIN.to_owned()],
            mux: MuxConfig { channels_max: REQUESTS_PER_LINK_MAX, ..MuxConfig::default() },
            outbox: OutboxConfig::default(),
            heartbeat: HEARTBEAT,
            silence_timeout: SILENCE_TIMEOUT,
            topics_max: 0,
        };
        Self {
            config: Arc::new(config),
            keys: BTreeMap::new(),
            ends: BTreeMap::new(),
            sessions: BTreeMap::new(),
            answers: BTreeMap::new(),
            origin: Origin::default(),
            rng: stream(seed, GATEWAY_STREAM),
            scheduled: 0,
        }
    }

    /// Lets a device in.
    pub(super) fn admit(&mut self, device: String, key: [u8; 32]) {
        self.keys.insert(device, key);
    }

    /// Takes a packet of a client.
    pub(super) fn handle_packet(&mut self, packet: Packet, mapping: Mapping, network: &mut Network, now: Time) {
        let Packet { flow, server, content } = packet;
        let Content::Segment(kind, segment) = content else { return };
        let is_tcp = transport(kind) == Transport::Tcp;
        let is_known = self.ends.get(&flow).is_some_and(|end| end.mapping == mapping || !is_tcp);
        if !is_known {
            let begins = if is_tcp { segment.opens } else { segment.has_client_hello(End::Client) };
            if !begins && is_tcp && !segment.closes {
                network.answer(Packet { flow, server, content: Content::Reset }, mapping, now);
            }
            if !begins || segment.closes || (!is_tcp && !network.is_served(server)) {
                return;
            }
            let host = network.balancer(server).map_or(Host::Gateway, Host::Balancer);
            let end =
                ServerEnd { site: network.site(server), ..ServerEnd::new(kind, flow, mapping, server, host, now) };
            self.ends.insert(flow, end);
        }
        if segment.closes {
            return self.lose_link(flow, now);
        }
        if let Some(end) = self.ends.get_mut(&flow) {
            // A client that moved is answered where it is now.
            if std::mem::replace(&mut end.mapping, mapping) != mapping {
                end.carrier.connection.handle_moved(now);
            }
            end.carrier.connection.handle_segment(segment, now);
        }
    }

    /// Does what is due and sends what there is to send.
    pub(super) fn turn(&mut self, network: &mut Network, now: Time) {
        self.handle_timeouts(now);
        for flow in self.ends.keys().copied().collect::<Vec<_>>() {
            self.read(flow, network, now);
        }
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.serve(session, network, now);
        }
        for flow in self.ends.keys().copied().collect::<Vec<_>>() {
            self.write(flow, network, now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let ends = self.ends.values().filter_map(|end| end.carrier.connection.poll_timeout());
        let greetings = self.ends.values().filter_map(|end| match end.phase {
            Phase::Greeting { deadline, .. } => Some(deadline),
            Phase::Open { .. } | Phase::Over => None,
        });
        let machines = self.sessions.values().filter_map(|held| held.machine.poll_timeout().map(|(at, _)| at));
        let expiries = self.sessions.values().filter_map(|held| held.expires);
        let answers = self.answers.first_key_value().map(|((at, _), _)| *at);
        ends.chain(greetings).chain(machines).chain(expiries).chain(answers).min()
    }

    fn handle_timeouts(&mut self, now: Time) {
        for end in self.ends.values_mut() {
            if end.carrier.connection.poll_timeout().is_some_and(|at| at <= now) {
                end.carrier.connection.handle_timeout(now);
            }
            if matches!(end.phase, Phase::Greeting { deadline, .. } if deadline <= now) {
                end.phase = Phase::Over;
            }
        }
        let mut silent = Vec::new();
        for held in self.sessions.values_mut() {
            if held.machine.handle_timeout(now).is_err() {
                silent.extend(held.flow);
            }
        }
        for flow in silent {
            self.lose_link(flow, now);
        }
        self.sessions.retain(|_, held| held.expires.is_none_or(|at| at > now));
        while let Some(entry) = self.answers.first_entry().filter(|entry| entry.key().0 <= now) {
            let answer = entry.remove();
            self.answer(answer);
        }
    }

    /// Takes the frames that arrived on a connection.
    fn read(&mut self, flow: Flow, network: &mut Network, now: Time) {
        let Some(end) = self.ends.get_mut(&flow) else { return };
        let mut frames = Vec::new();
        let taken = end.carrier.receive(&mut |frame| {
            frames.push(frame.to_owned());
            Ok(())
        });
        if let Host::Balancer(how) = end.host {
            let is_served = taken.is_ok_and(|arrived| arrived);
            return self.balance(flow, how, is_served, network, now);
        }
        let taken = taken.and_then(|_| frames.iter().try_for_each(|frame| self.take(flow, frame.as_ref(), now)));
        if let Err(error) = taken {
            let refusal = Refusal::new(RefuseCode::Protocol, error.to_string());
            self.refuse(flow, &refusal, now);
        }
    }

    /// Does with a connection what a balancer without backends does.
    fn balance(&mut self, flow: Flow, how: BalancerFault, is_served: bool, network: &mut Network, now: Time) {
        let Some(end) = self.ends.get(&flow) else { return };
        match how {
            BalancerFault::Hang => {}
            BalancerFault::BadGateway if is_served => self.close(flow, network, now),
            BalancerFault::Reset if end.carrier.connection.has_data() => {
                let packet = Packet { flow, server: end.server, content: Content::Reset };
                network.answer(packet, end.mapping, now);
                self.ends.remove(&flow);
            }
            BalancerFault::BadGateway | BalancerFault::Reset => {}
        }
    }

    /// Takes one frame.
    fn take(&mut self, flow: Flow, frame: FrameRef<'_>, now: Time) -> Result<(), LinkError> {
        let Some(end) = self.ends.get_mut(&flow) else { return Ok(()) };
        match &mut end.phase {
            // Streams of QUIC may overtake each other: what is of exchanges waits until the link is admitted.
            Phase::Greeting { held, .. } if frame.kind.is_exchange() && held.len() < HELD_MAX => {
                held.push(frame.to_owned());
                Ok(())
            }
            Phase::Greeting { accept, challenge, held, .. } => {
                let proven = challenge.unwrap_or_else(|| binding(flow));
                match greet(accept, &self.keys, frame, &proven, now) {
                    Ok(None) => {}
                    Ok(Some(admitted)) => {
                        let held = std::mem::take(held);
                        if let Err(refusal) = self.open(flow, &admitted, now) {
                            self.refuse(flow, &refusal, now);
                        }
                        return held.iter().try_for_each(|frame| self.take(flow, frame.as_ref(), now));
                    }
                    Err(refusal) => self.refuse(flow, &refusal, now),
                }
                Ok(())
            }
            Phase::Open { session } => match self.sessions.get_mut(session) {
                Some(held) => held.machine.handle_frame(frame, now),
                None => Ok(()),
            },
            Phase::Over => Ok(()),
        }
    }

    /// Gives whoever proved themselves a session: the one their cookie names, or a new one.
    fn open(&mut self, flow: Flow, admitted: &Admitted, now: Time) -> Result<(), Refusal> {
        let site = self.ends.get(&flow).and_then(|end| end.site);
        let is_known = |session: SessionId| self.sessions.get(&session).is_some_and(|held| held.site == site);
        let cookie = Cookie::decode(&admitted.hello.resume).filter(|cookie| is_known(cookie.session()));
        let id = match &cookie {
            Some(cookie) => {
                let held = self.sessions.get(&cookie.session()).expect("it was just found");
                held.machine.check_resume(cookie, &admitted.device_key)?;
                cookie.session()
            }
            None => self.create(admitted.device_key, site, now),
        };
        let ordered = self.ends.get(&flow).is_some_and(|end| end.carrier.kind() != CarrierKind::Quic);
        let held = self.sessions.get_mut(&id).expect("it was found or made");
        held.machine.handle_detached(now);
        held.machine.attach(&admitted.hello, ordered, cookie.is_some(), unix_ms(now), now);
        held.expires = None;
        if let Some(replaced) = held.flow.replace(flow)
            && let Some(end) = self.ends.get_mut(&replaced)
        {
            end.phase = Phase::Over;
        }
        if let Some(end) = self.ends.get_mut(&flow) {
            end.phase = Phase::Open { session: id };
        }
        Ok(())
    }

    fn create(&mut self, device_key: [u8; 32], site: Option<usize>, now: Time) -> SessionId {
        let id = SessionId(self.rng.next_u64());
        let mut secret = [0; 16];
        self.rng.fill_bytes(&mut secret);
        let machine = Server::new(Arc::clone(&self.config), Cookie::new(id, secret), device_key, now);
        let (requests, bodies) = (BTreeMap::new(), BTreeMap::new());
        let held = Held { machine, site, flow: None, expires: None, requests, bodies };
        self.sessions.insert(id, held);
        id
    }

    fn refuse(&mut self, flow: Flow, refusal: &Refusal, now: Time) {
        self.detach(flow, now);
        if let Some(end) = self.ends.get_mut(&flow) {
            end.output.push_back(refusal.frame());
            end.phase = Phase::Over;
        }
    }

    /// Works through what came of a session's frames.
    fn serve(&mut self, id: SessionId, network: &Network, now: Time) {
        let Some(held) = self.sessions.get_mut(&id) else { return };
        while held.machine.poll_event().is_some() {}
        let server = held.flow.and_then(|flow| self.ends.get(&flow)).map(|end| end.server);
        let mut complete = Vec::new();
        while let Some(event) = held.machine.mux().poll_event() {
            match event {
                MuxEvent::Request { channel, head, end } => {
                    held.requests.insert(
                        channel,
                        Request { uri: head.uri, has_key: head.headers.contains_key(KEY_HEADER), body_bytes: 0 },
                    );
                    complete.extend(end.then_some(channel));
                }
                MuxEvent::Body { channel, data } => {
                    held.machine.mux().consumed(channel, data.len() as u64);
                    if let Some(request) = held.requests.get_mut(&channel) {
                        request.body_bytes += data.len() as u64;
                    }
                }
                MuxEvent::End { channel, .. } => complete.push(channel),
                MuxEvent::Closed { channel, .. } => {
                    held.requests.remove(&channel);
                    held.bodies.remove(&channel);
                }
                MuxEvent::Writable { channel } => held.write(channel),
                MuxEvent::Response { .. } => {}
            }
        }
        for channel in complete {
            let Some(request) = held.requests.remove(&channel) else { continue };
            let is_island = server.is_some_and(|server| network.is_island(server));
            let (after, request) = if is_island { (CONNECT_TIMEOUT, None) } else { (SERVICE_TIME, Some(request)) };
            self.scheduled += 1;
            self.answers.insert((now + after, self.scheduled), Answer { session: id, channel, request });
        }
    }

    /// Sends what an origin says.
    fn answer(&mut self, answer: Answer) {
        let Answer { session, channel, request } = answer;
        let Some(held) = self.sessions.get_mut(&session) else { return };
        let (head, body): (ResponseHead, Bytes) = match request {
            Some(request) => self.origin.execute(&request.uri, request.has_key, request.body_bytes),
            None => origin::unreachable(),
        };
        held.machine.mux().respond(channel, head, body.is_empty());
        held.bodies.insert(channel, body);
        held.write(channel);
    }

    /// Gives a connection what its session has to say, and the network what the connection has.
    fn write(&mut self, flow: Flow, network: &mut Network, now: Time) {
        let Some(end) = self.ends.get_mut(&flow) else { return };
        if end.carrier.connection.is_open() {
            while let Some(frame) = end.output.pop_front() {
                end.carrier.send(&frame);
            }
            if let Phase::Open { session } = &end.phase
                && let Some(held) = self.sessions.get_mut(session)
            {
                while !end.carrier.connection.is_full()
                    && let Some(frame) = held.machine.poll_output(now)
                {
                    end.carrier.send(&frame);
                }
            }
        }
        let kind = end.carrier.kind();
        while let Some(segment) = end.carrier.connection.poll_transmit(now) {
            let packet = Packet { flow, server: end.server, content: Content::Segment(kind, segment) };
            network.answer(packet, end.mapping, now);
        }
        if matches!(end.phase, Phase::Over) && !end.carrier.connection.is_busy() {
            self.close(flow, network, now);
        }
    }

    fn close(&mut self, flow: Flow, network: &mut Network, now: Time) {
        let Some(mut end) = self.ends.remove(&flow) else { return };
        let content = Content::Segment(end.carrier.kind(), end.carrier.connection.goodbye(now));
        network.answer(Packet { flow, server: end.server, content }, end.mapping, now);
    }

    fn lose_link(&mut self, flow: Flow, now: Time) {
        self.detach(flow, now);
        self.ends.remove(&flow);
    }

    /// Leaves a session to its next link.
    fn detach(&mut self, flow: Flow, now: Time) {
        for held in self.sessions.values_mut().filter(|held| held.flow == Some(flow)) {
            held.flow = None;
            held.machine.handle_detached(now);
            held.expires = Some(now + SESSION_TTL);
        }
    }
}

impl ServerEnd {
    fn new(kind: CarrierKind, flow: Flow, mapping: Mapping, server: SocketAddr, host: Host, now: Time) -> Self {
        let carrier = match host {
            Host::Balancer(BalancerFault::Hang | BalancerFault::Reset) => Carrier::mute(kind, now),
            Host::Balancer(BalancerFault::BadGateway) | Host::Gateway => Carrier::new(kind, End::Server, now),
        };
        let challenge = (kind == CarrierKind::Ws).then(|| binding(!flow));
        let proof = challenge.map(|challenge| Proof { challenge: challenge.to_vec().into(), signature: Bytes::new() });
        let output = proof.iter().map(|proof| Frame::control(Kind::Proof, proof)).collect();
        let accept = Box::new(Accept::new(ORIGIN.to_owned(), CLOCK_SKEW_MAX));
        let phase = Phase::Greeting { held: Vec::new(), accept, challenge, deadline: now + HELLO_TIMEOUT };
        Self { carrier, mapping, server, site: None, host, phase, output }
    }
}

impl Held {
    /// Writes as much of an answer as there is room for.
    fn write(&mut self, channel: u64) {
        let Some(body) = self.bodies.get_mut(&channel) else { return };
        let goes_on = body.is_empty() || self.machine.mux().write(channel, body);
        if !goes_on || body.is_empty() {
            self.bodies.remove(&channel);
            self.machine.mux().finish(channel, None);
        }
    }
}

/// Takes a frame of a handshake; gives who proved themselves by it.
fn greet(
    accept: &mut Accept,
    keys: &BTreeMap<String, [u8; 32]>,
    frame: FrameRef<'_>,
    proven: &[u8; 32],
    now: Time,
) -> Result<Option<Admitted>, Refusal> {
    if !accept.awaits_hello() {
        return accept.handle_proof(frame, proven).map(Some);
    }
    let hello = accept.handle_hello(frame, unix_ms(now))?;
    let key = keys.get(&hello.device).copied();
    let key = key.ok_or_else(|| Refusal::new(RefuseCode::TicketInvalid, "nobody knows this device"))?;
    accept.handle_device_key(&key).map(|()| None)
}

fn unix_ms(now: Time) -> u64 {
    UNIX_MS + u64::try_from(now.since_origin().as_millis()).expect("a run is short")
}

/// Requests in flight on one link; the gateway's default.
const REQUESTS_PER_LINK_MAX: u32 = 128;

/// Heartbeats that devices may choose between; the gateway's default.
const HEARTBEAT: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(590));

/// A silent link is closed after this; the gateway's default.
const SILENCE_TIMEOUT: Duration = Duration::from_mins(20);

/// Frames of exchanges held until a link is admitted: the gateway's.
const HELD_MAX: usize = 16;

/// How long HELLO may take; the gateway's default.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a session outlives its link; the gateway's default.
const SESSION_TTL: Duration = Duration::from_mins(5);

/// How far a device's clock may be off; the gateway's.
const CLOCK_SKEW_MAX: Duration = Duration::from_mins(1);

/// How long a connection to an origin may take; the gateway's default.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long gateway and origin take. 2.3 ms; between a request and its answer at the gateway of the lab, where nothing else runs.
const SERVICE_TIME: Duration = Duration::from_micros(2_300);

/// Stream of random numbers for sessions.
const GATEWAY_STREAM: u64 = 102;
