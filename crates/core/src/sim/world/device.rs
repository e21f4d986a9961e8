//! A device with the client: the real machines for connecting, for the session and for requests, driven as the client's engine does.

use std::{collections::BTreeMap, time::Duration};

use ed25519_dalek::{Signer as _, SigningKey};
use rand_core::Rng as _;
use rand_pcg::Pcg32;

use super::{
    ORIGIN, UNIX_MS,
    carrier::{Carrier, binding},
    connecting::{Connecting, Spare},
    exchange::{CANCELLED, Exchange, State},
};
use crate::{
    CarrierKind, Time,
    connect::{Candidate, FailReason, LostReason, Reconnect, ReconnectConfig, ReconnectOutput, Records, Source},
    heartbeat::{INTERVAL_QUIC, INTERVAL_TCP},
    random::stream,
    request::Budget,
    session::{Client, ClientConfig, ClientEvent, Fate, HelloFacts, LinkError, Machine as _, MuxEvent, Succession},
    sim::{
        net::{self, Content, Flow, Network, Packet},
        transport::End,
    },
    wire::message::NetworkKind,
};

/// One device and its client.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) name: String,
    key: SigningKey,
    pub(super) seed: u64,
    rng: Pcg32,
    /// `None` until the first request.
    pub(super) reconnect: Option<Reconnect>,
    pub(super) records: Records,
    succession: Succession,
    members: BTreeMap<u64, Member>,
    pub(super) connecting: Option<Connecting>,
    pub(super) spare: Option<Spare>,
    /// Where a link may be opened, as the names said last.
    pub(super) candidates: Vec<(Candidate, Source)>,
    /// When an attempt to get a link last came further.
    pub(super) alive_at: Option<Time>,
    /// Nothing but another configuration can help.
    pub(super) is_blocked: bool,
    pub(super) ends: BTreeMap<Flow, ClientEnd>,
    exchanges: Vec<Exchange>,
    budget: Budget,
}

/// A session and its link.
#[derive(Debug)]
struct Member {
    machine: Client,
    flow: Option<Flow>,
    /// Its link is closed once nothing runs on it.
    is_leaving: bool,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(super) struct ClientEnd {
    pub(super) carrier: Carrier,
    pub(super) candidate: Candidate,
    source: net::Source,
    pub(super) broken: Option<Broken>,
    /// The session whose link it is.
    session: Option<u64>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// The other end said goodbye.
    Closed,
    /// This end gave the link up.
    Link(LostReason),
    /// It was reset.
    Reset,
}

impl Device {
    pub(super) fn new(number: u64, seed: u64) -> Self {
        let mut rng = stream(seed, DEVICE_STREAM + number);
        let mut secret = [0; 32];
        rng.fill_bytes(&mut secret);
        Self {
            name: format!("device-{number}"),
            key: SigningKey::from_bytes(&secret),
            seed: rng.next_u64(),
            rng,
            reconnect: None,
            records: Records::new(),
            succession: Succession::default(),
            members: BTreeMap::new(),
            connecting: None,
            spare: None,
            candidates: Vec::new(),
            alive_at: None,
            is_blocked: false,
            ends: BTreeMap::new(),
            exchanges: Vec::new(),
            budget: Budget::new(),
        }
    }

    /// Returns the key by which gateways know the device.
    pub(super) fn public_key(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// Begins a request; the first opens a link.
    pub(super) fn request(&mut self, exchange: Exchange, now: Time) {
        self.exchanges.push(exchange);
        if self.reconnect.is_none() {
            self.reconnect = Some(Reconnect::new(ReconnectConfig::default(), self.seed, now));
        }
    }

    pub(super) fn exchanges(&self) -> &[Exchange] {
        &self.exchanges
    }

    /// Takes a packet, if it is of one of this device's flows.
    pub(super) fn handle_packet(&mut self, packet: Packet, now: Time) {
        match packet.content {
            Content::Answer(addresses) => self.handle_answer(packet.flow, &addresses),
            Content::Question => {}
            Content::Reset => {
                if let Some(end) = self.ends.get_mut(&packet.flow) {
                    end.broken = Some(Broken::Reset);
                }
            }
            Content::Segment(_, segment) => {
                if let Some(end) = self.ends.get_mut(&packet.flow) {
                    if segment.closes {
                        end.broken = Some(Broken::Closed);
                    } else {
                        end.carrier.connection.handle_segment(segment, now);
                    }
                }
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let ends = self.ends.values().filter_map(|end| end.carrier.connection.poll_timeout());
        let links = self.members.values().filter(|member| member.flow.is_some());
        let machines = links.filter_map(|member| member.machine.poll_timeout().map(|(at, _)| at));
        let requests = self.exchanges.iter().filter_map(Exchange::poll_timeout);
        let reconnect = self.reconnect.as_ref().and_then(Reconnect::poll_timeout).filter(|_| !self.is_blocked);
        let connecting = self.connecting.as_ref().and_then(Connecting::poll_timeout);
        let spare = self.spare.as_ref().map(|spare| spare.until);
        ends.chain(machines).chain(requests).chain(reconnect).chain(connecting).chain(spare).min()
    }

    /// Lets requests wait on while an attempt to get a link comes further.
    fn prolong_waits(&mut self) {
        let Some(alive_at) = self.alive_at.take() else { return };
        for exchange in &mut self.exchanges {
            exchange.prolong(alive_at);
        }
    }

    /// Does what is due, works through what arrived, and sends what there is to send.
    pub(super) fn turn(&mut self, network: &mut Network, now: Time) {
        self.handle_timeouts(network, now);
        for flow in self.ends.keys().copied().collect::<Vec<_>>() {
            self.read(flow, network, now);
        }
        self.handle_dialed(network, now);
        self.prolong_waits();
        self.obey_wishes(now);
        while let Some(ReconnectOutput::Connect) = self.reconnect.as_mut().and_then(Reconnect::poll_output) {
            self.connect(network, now);
        }
        self.send_waiting(now);
        self.dismiss_replaced(network, now);
        self.write(network, now);
    }

    fn handle_timeouts(&mut self, network: &mut Network, now: Time) {
        for end in self.ends.values_mut() {
            if end.carrier.connection.poll_timeout().is_some_and(|at| at <= now) {
                end.carrier.connection.handle_timeout(now);
            }
        }
        for member in self.members.values_mut() {
            let Some(end) = member.flow.and_then(|flow| self.ends.get_mut(&flow)) else { continue };
            if let Err(error) = member.machine.handle_timeout(now) {
                end.broken = Some(Broken::Link(lost_reason(&error)));
            }
        }
        let links = self.members.iter().filter_map(|(session, member)| Some((*session, member.flow?)));
        for (session, flow) in links.collect::<Vec<_>>() {
            self.pass_on(session, flow, network, now);
        }
        for exchange in &mut self.exchanges {
            let before = exchange.state.clone();
            exchange.handle_timeout(now);
            if let State::Sent { session, channel, .. } = before
                && exchange.is_done()
                && let Some(member) = self.members.get_mut(&session)
            {
                member.machine.mux().reset(channel, CANCELLED.0, CANCELLED.1);
            }
        }
        if let Some(spare) = self.spare.take_if(|spare| spare.until <= now) {
            self.drop_end(spare.flow, network, now);
        }
        if let Some(reconnect) = &mut self.reconnect {
            reconnect.handle_timeout(now);
        }
        self.handle_connect_timeout(network, now);
    }

    /// Takes the frames that arrived on a connection, and its end.
    fn read(&mut self, flow: Flow, network: &mut Network, now: Time) {
        let Some(end) = self.ends.get_mut(&flow) else { return };
        let Some(session) = end.session else { return };
        let mut frames = Vec::new();
        let taken = end.carrier.receive(&mut |frame| {
            frames.push(frame.to_owned());
            Ok(())
        });
        let mut broken = end.broken.or(taken.err().map(|error| Broken::Link(lost_reason(&error))));
        for frame in frames {
            let Some(member) = self.members.get_mut(&session).filter(|member| member.flow == Some(flow)) else {
                return;
            };
            if let Err(error) = member.machine.handle_frame(frame.as_ref(), now) {
                broken = Some(Broken::Link(lost_reason(&error)));
                break;
            }
            self.pass_on(session, flow, network, now);
        }
        self.settle_exchanges(session, now);
        if let Some(broken) = broken
            && self.ends.contains_key(&flow)
        {
            self.handle_ended(session, flow, broken, network, now);
        }
    }

    /// Does what a session says about its link.
    fn pass_on(&mut self, session: u64, flow: Flow, network: &mut Network, now: Time) {
        while let Some(member) = self.members.get_mut(&session)
            && let Some(event) = member.machine.poll_event()
        {
            match event {
                ClientEvent::Challenge(challenge) => {
                    member.machine.prove(&challenge, &|message| self.key.sign(message).to_bytes());
                }
                ClientEvent::Doubted => self.with_reconnect(|reconnect| reconnect.handle_doubted(now)),
                ClientEvent::Draining { .. }
                | ClientEvent::Gap
                | ClientEvent::List(_)
                | ClientEvent::Policy(_)
                | ClientEvent::Push { .. } => {}
                ClientEvent::Trusted => self.handle_trusted(network, now),
                ClientEvent::Refused { code, retry_after, .. } => {
                    self.handle_refused(flow, code, retry_after, network, now);
                }
                ClientEvent::Welcome { .. } => {
                    if self.finish_greeting(flow) {
                        self.succession.handle_open(session);
                        self.with_reconnect(|reconnect| reconnect.handle_connected(now));
                        self.is_blocked = false;
                    }
                }
            }
        }
    }

    /// Hands what happened to the requests of a session to them.
    fn settle_exchanges(&mut self, session: u64, now: Time) {
        let Some(member) = self.members.get_mut(&session) else { return };
        while let Some(event) = member.machine.mux().poll_event() {
            let channel = super::channel_of(&event);
            match self.exchanges.iter_mut().find(|exchange| exchange.channel(session) == Some(channel)) {
                Some(exchange) => exchange.handle_event(event, &mut member.machine, &mut self.budget, now),
                None => {
                    if let MuxEvent::Body { channel, data } = event {
                        member.machine.mux().consumed(channel, data.len() as u64);
                    }
                }
            }
        }
    }

    /// A link is gone.
    fn handle_ended(&mut self, session: u64, flow: Flow, broken: Broken, network: &mut Network, now: Time) {
        // Who waits now decides how soon a lost link is sought again.
        self.obey_wishes(now);
        if self.greets(flow) {
            return self.handle_greeting_broken(network, now);
        }
        self.drop_end(flow, network, now);
        match self.succession.handle_lost(session, broken == Broken::Closed) {
            Fate::Resume => {
                let reason = match broken {
                    Broken::Closed | Broken::Reset => LostReason::Closed,
                    Broken::Link(reason) => reason,
                };
                if matches!(reason, LostReason::Network | LostReason::Silent)
                    && let Some(spare) = self.spare.take()
                {
                    // Whatever took the link took it as well.
                    self.drop_end(spare.flow, network, now);
                }
                self.with_reconnect(|reconnect| reconnect.handle_lost(now, reason));
            }
            Fate::Settle { .. } => self.settle(session, network, now),
        }
    }

    /// The link that was doubted speaks again: none is sought beside it, unless one is being greeted.
    fn handle_trusted(&mut self, network: &mut Network, now: Time) {
        self.with_reconnect(Reconnect::handle_trusted);
        if self.connecting.as_ref().is_some_and(Connecting::is_racing) {
            self.stop_connecting(network, now);
        }
    }

    /// Ends a session: nothing will resume it.
    fn settle(&mut self, session: u64, network: &mut Network, now: Time) {
        let Some(member) = self.members.get_mut(&session) else { return };
        member.machine.abandon();
        let flow = member.flow;
        self.settle_exchanges(session, now);
        if let Some(flow) = flow {
            self.drop_end(flow, network, now);
        }
        self.members.remove(&session);
    }

    /// Gives up the session that no gateway takes back.
    pub(super) fn disown(&mut self, network: &mut Network, now: Time) {
        if let Some((session, Fate::Settle { .. })) = self.succession.handle_disowned() {
            self.settle(session, network, now);
        }
    }

    /// Begins a link of the next session on a connection.
    pub(super) fn begin_link(&mut self, flow: Flow, network: &mut Network, now: Time) {
        let heir = self.succession.heir();
        if let Some(doubted) = self.members.get(&heir.number).and_then(|member| member.flow) {
            self.drop_end(doubted, network, now);
            self.succession.handle_lost(heir.number, false);
            self.with_reconnect(|reconnect| reconnect.handle_replaced(now));
        }
        if heir.fresh {
            let config = ClientConfig { app: "app".to_owned(), device: self.name.clone(), ..ClientConfig::default() };
            let member = Member { machine: Client::new(config, now), flow: None, is_leaving: false };
            self.members.insert(heir.number, member);
        }
        let mut nonce = [0; 16];
        self.rng.fill_bytes(&mut nonce);
        let Some(end) = self.ends.get_mut(&flow) else { return };
        let kind = end.candidate.carrier;
        let facts = HelloFacts {
            ticket: "x".repeat(TICKET_BYTES),
            gateway: ORIGIN.to_owned(),
            network: NetworkKind::Unspecified,
            unix_ms: UNIX_MS + u64::try_from(now.since_origin().as_millis()).expect("a run is short"),
            nonce,
            trace_parent: String::new(),
            ordered: kind != CarrierKind::Quic,
            heartbeat: if kind == CarrierKind::Quic { INTERVAL_QUIC } else { INTERVAL_TCP },
        };
        end.session = Some(heir.number);
        let member = self.members.get_mut(&heir.number).expect("an heir is a member");
        let sign = |message: &[u8]| self.key.sign(message).to_bytes();
        member.machine.connect(facts, &sign, now);
        if kind != CarrierKind::Ws {
            member.machine.prove(&binding(flow), &sign);
        }
        member.flow = Some(flow);
    }

    /// Opens a connection.
    pub(super) fn open(&mut self, candidate: Candidate, network: &mut Network, now: Time) -> Result<Flow, FailReason> {
        let address = network.local_address().ok_or(FailReason::Unreachable)?;
        let is_tcp = candidate.carrier != CarrierKind::Quic;
        if is_tcp && candidate.address.ip().is_loopback() {
            return Err(FailReason::Refused);
        }
        let flow = network.new_flow();
        // The QUIC socket is bound to no address, but noq sends a connection's packets from the one at which it got an answer until it
        // is told of a change of network, which no app here does.
        let source = net::Source::Bound(address);
        let carrier = Carrier::new(candidate.carrier, End::Client, now);
        self.ends.insert(flow, ClientEnd { carrier, candidate, source, broken: None, session: None });
        Ok(flow)
    }

    /// Drops a connection, with a goodbye that may or may not arrive.
    pub(super) fn drop_end(&mut self, flow: Flow, network: &mut Network, now: Time) {
        let Some(mut end) = self.ends.remove(&flow) else { return };
        if let Some(member) = end.session.and_then(|session| self.members.get_mut(&session))
            && member.flow == Some(flow)
        {
            member.flow = None;
            member.machine.handle_detached(now);
        }
        if end.broken.is_none() {
            let content = Content::Segment(end.candidate.carrier, end.carrier.connection.goodbye(now));
            network.send(Packet { flow, server: end.candidate.address, content }, end.source, now);
        }
    }

    pub(super) fn with_reconnect(&mut self, change: impl FnOnce(&mut Reconnect)) {
        if let Some(reconnect) = &mut self.reconnect {
            change(reconnect);
        }
    }

    /// Tells the policy of reconnecting whether anybody waits.
    fn obey_wishes(&mut self, now: Time) {
        let is_busy = self.exchanges.iter().any(|exchange| !exchange.is_done());
        self.with_reconnect(|reconnect| reconnect.handle_waiting(is_busy, now));
    }

    /// Sends the requests that wait, if there is a link.
    fn send_waiting(&mut self, now: Time) {
        let Some(session) = self.succession.for_request() else { return };
        let Some(member) = self.members.get_mut(&session).filter(|member| member.flow.is_some()) else { return };
        for exchange in &mut self.exchanges {
            if matches!(exchange.state, State::Waiting { .. }) {
                exchange.send(session, &mut member.machine, &mut self.budget, now);
            }
        }
    }

    /// Lets the sessions go that another has replaced, once they are done.
    fn dismiss_replaced(&mut self, network: &mut Network, now: Time) {
        let mut done = Vec::new();
        for (number, member) in &mut self.members {
            member.is_leaving |= self.succession.is_replaced(*number);
            if member.is_leaving && member.machine.mux().running() == 0 {
                done.push(*number);
            }
        }
        for session in done {
            self.settle(session, network, now);
        }
    }

    /// Gives the connections what their sessions have to say, and the network what the connections have.
    fn write(&mut self, network: &mut Network, now: Time) {
        for (flow, end) in &mut self.ends {
            if let Some(member) = end.session.and_then(|session| self.members.get_mut(&session)) {
                while member.flow == Some(*flow)
                    && !end.carrier.connection.is_full()
                    && let Some(frame) = member.machine.poll_output(now)
                {
                    end.carrier.send(&frame);
                }
            }
            while let Some(segment) = end.carrier.connection.poll_transmit(now) {
                let content = Content::Segment(end.candidate.carrier, segment);
                network.send(Packet { flow: *flow, server: end.candidate.address, content }, end.source, now);
            }
        }
    }
}

/// Returns why a link was lost, as the client's engine tells the policy of reconnecting.
fn lost_reason(error: &LinkError) -> LostReason {
    if *error == LinkError::Silent { LostReason::Silent } else { LostReason::Network }
}

/// Bytes of a ticket: a JWT with a few claims and an Ed25519 signature.
const TICKET_BYTES: usize = 400;

/// Stream of random numbers for the first device.
const DEVICE_STREAM: u64 = 1_000;

/// How long a connection that a race left over is kept; the client's.
pub(super) const SPARE_FOR: Duration = Duration::from_secs(30);
