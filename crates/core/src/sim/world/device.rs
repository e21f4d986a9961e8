//! A device with the client: the real machines for connecting, for the session and for requests, driven as the client's engine does.

use std::collections::BTreeMap;

use ed25519_dalek::{Signer as _, SigningKey};
use rand_core::Rng as _;
use rand_pcg::Pcg32;

use super::{
    ORIGIN, UNIX_MS,
    carrier::{Carrier, binding},
    connecting::{Lookup, Stage},
    exchange::{CANCELLED, Exchange, Wish},
};
use crate::{
    CarrierKind, Time,
    connect::{Candidate, ConnectionId, FailReason, Keeper, KeeperConfig, LostReason},
    heartbeat::{INTERVAL_QUIC, INTERVAL_TCP},
    quality::Island,
    random::stream,
    request::{Budget, LinkView, Timeouts},
    session::{Client, ClientConfig, ClientEvent, HelloFacts, LinkError, Machine as _, MuxEvent},
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
    pub(super) keeper: Option<Keeper>,
    pub(super) lookup: Option<Lookup>,
    members: BTreeMap<u64, Member>,
    pub(super) ends: BTreeMap<Flow, ClientEnd>,
    exchanges: Vec<Exchange>,
    budget: Budget,
    pub(super) timeouts: Timeouts,
}

/// A session and its link.
#[derive(Debug)]
struct Member {
    machine: Client,
    flow: Option<Flow>,
    /// Its link is closed once nothing runs on it.
    is_leaving: bool,
    island: Island,
}

/// The client's end of a connection.
#[derive(Debug)]
pub(super) struct ClientEnd {
    pub(super) number: ConnectionId,
    pub(super) stage: Stage,
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
            keeper: None,
            lookup: None,
            members: BTreeMap::new(),
            ends: BTreeMap::new(),
            exchanges: Vec::new(),
            budget: Budget::new(),
            timeouts: Timeouts::new(),
        }
    }

    /// Returns the key by which gateways know the device.
    pub(super) fn public_key(&self) -> [u8; 32] {
        self.key.verifying_key().to_bytes()
    }

    /// Opens the link, if that has not begun.
    pub(super) fn connect(&mut self, now: Time) {
        if self.keeper.is_none() {
            self.keeper = Some(Keeper::new(KeeperConfig::default(), self.seed, now));
        }
    }

    /// Begins a request; the first opens a link.
    pub(super) fn request(&mut self, exchange: Exchange, now: Time) {
        self.exchanges.push(exchange);
        self.connect(now);
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
        let keeper = self.keeper.as_ref().and_then(Keeper::poll_timeout);
        let lookup = self.lookup.as_ref().map(|lookup| lookup.until);
        ends.chain(machines).chain(requests).chain(keeper).chain(lookup).min()
    }

    /// Does what is due, works through what arrived, and sends what there is to send.
    pub(super) fn turn(&mut self, network: &mut Network, now: Time) {
        self.handle_timeouts(now);
        for flow in self.ends.keys().copied().collect::<Vec<_>>() {
            self.read(flow, network, now);
        }
        self.handle_looked_up(network, now);
        self.handle_dialed(network, now);
        self.obey_wishes(now);
        self.dismiss_replaced(network, now);
        self.follow_keeper(network, now);
        self.follow_exchanges(now);
        self.write(network, now);
    }

    fn handle_timeouts(&mut self, now: Time) {
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
            self.pass_on(session, flow, now);
        }
        self.with_keeper(|keeper| keeper.handle_timeout(now));
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
            self.pass_on(session, flow, now);
        }
        self.settle_exchanges(session, now);
        if let Some(broken) = broken
            && self.ends.contains_key(&flow)
        {
            self.handle_ended(flow, broken, network, now);
        }
    }

    /// Does what a session says about its link.
    fn pass_on(&mut self, session: u64, flow: Flow, now: Time) {
        let Some(number) = self.ends.get(&flow).map(|end| end.number) else { return };
        while let Some(member) = self.members.get_mut(&session)
            && let Some(keeper) = &mut self.keeper
            && let Some(event) = member.machine.poll_event()
        {
            match event {
                ClientEvent::Challenge(challenge) => {
                    member.machine.prove(&challenge, &|message| self.key.sign(message).to_bytes());
                }
                ClientEvent::Doubted { can_move } => keeper.handle_doubted(number, can_move, now),
                ClientEvent::Draining { .. }
                | ClientEvent::Gap
                | ClientEvent::List(_)
                | ClientEvent::Policy(_)
                | ClientEvent::Push { .. } => {}
                ClientEvent::Late => keeper.handle_late(number, now),
                ClientEvent::RoundTrip(rtt) => {
                    keeper.handle_round_trip(number, rtt);
                    self.timeouts.handle_rtt(rtt, now);
                }
                ClientEvent::Trusted => keeper.handle_trusted(number),
                ClientEvent::Refused { code, detail, retry_after } => {
                    keeper.handle_refused(number, (code, detail, retry_after), false, now);
                }
                ClientEvent::Welcome { .. } => keeper.handle_welcomed(number, now),
            }
        }
    }

    /// Hands what happened to the requests of a session to them.
    fn settle_exchanges(&mut self, session: u64, now: Time) {
        let Some(member) = self.members.get_mut(&session) else { return };
        while let Some(event) = member.machine.mux().poll_event() {
            let channel = super::channel_of(&event);
            if let MuxEvent::Response { .. } = event {
                member.island.handle_answered();
            }
            match self.exchanges.iter_mut().find(|exchange| exchange.is_on(session, channel)) {
                Some(exchange) => {
                    let unserved = exchange.handle_event(session, event, &mut member.machine, &mut self.budget, now);
                    if let Some(answered) = exchange.answered() {
                        self.timeouts.handle_answered(&answered, now);
                    }
                    if let (Some(session), Some(keeper)) = (unserved, &mut self.keeper) {
                        keeper.handle_unserved(session, now);
                    }
                }
                None => {
                    if let MuxEvent::Body { channel, data } = event {
                        member.machine.mux().consumed(channel, data.len() as u64);
                    }
                }
            }
        }
    }

    /// Ends what is under way on a session that has had no link for long.
    pub(super) fn cut(&mut self, session: u64, now: Time) {
        if let Some(member) = self.members.get_mut(&session) {
            member.machine.cut();
            self.settle_exchanges(session, now);
        }
    }

    /// Ends a session: nothing will resume it.
    pub(super) fn settle(&mut self, session: u64, network: &mut Network, now: Time) {
        let Some(member) = self.members.get_mut(&session) else { return };
        member.machine.abandon();
        let flow = member.flow;
        self.settle_exchanges(session, now);
        if let Some(flow) = flow {
            self.drop_end(flow, network, now);
        }
        self.members.remove(&session);
    }

    /// Lets a session go once nothing runs on it.
    pub(super) fn leave(&mut self, session: u64) {
        if let Some(member) = self.members.get_mut(&session) {
            member.is_leaving = true;
        }
    }

    /// Begins a link of a session on a connection.
    pub(super) fn begin_link(&mut self, flow: Flow, session: u64, fresh: bool, now: Time) {
        if fresh {
            let config = ClientConfig { app: "app".to_owned(), device: self.name.clone(), ..ClientConfig::default() };
            let member =
                Member { machine: Client::new(config, now), flow: None, is_leaving: false, island: Island::new() };
            self.members.insert(session, member);
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
        end.session = Some(session);
        let member = self.members.get_mut(&session).expect("a session that is not new is a member");
        let sign = |message: &[u8]| self.key.sign(message).to_bytes();
        member.machine.connect(facts, &sign, now);
        if kind != CarrierKind::Ws {
            member.machine.prove(&binding(flow), &sign);
        }
        member.flow = Some(flow);
    }

    /// Opens a connection.
    pub(super) fn open(
        &mut self,
        number: ConnectionId,
        candidate: Candidate,
        network: &mut Network,
        now: Time,
    ) -> Result<(), FailReason> {
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
        let stage = Stage::Dialing { is_alive: false };
        self.ends.insert(flow, ClientEnd { number, stage, carrier, candidate, source, broken: None, session: None });
        Ok(())
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

    /// Tells the policy of reconnecting whether anybody waits.
    pub(super) fn obey_wishes(&mut self, now: Time) {
        let is_busy = self.exchanges.iter().any(|exchange| !exchange.is_done());
        self.with_keeper(|keeper| keeper.handle_waiting(is_busy, now));
    }

    /// Does what the requests want of the sessions.
    fn follow_exchanges(&mut self, now: Time) {
        let link = self.keeper.as_ref().map_or(LinkView::None, |keeper| keeper.view(now));
        let mut late = Vec::new();
        for exchange in &mut self.exchanges {
            exchange.turn(link, &self.timeouts, &mut self.budget, now);
            while let Some(wish) = exchange.poll_wish(now) {
                match wish {
                    // What a doubted link does not answer says nothing of what is behind it.
                    Wish::Late(session) if matches!(link, LinkView::Open { is_sure: true, .. }) => late.push(session),
                    Wish::Late(_) => {}
                    Wish::Recall(number) => {
                        let Some((session, channel)) = exchange.place(number) else { continue };
                        let Some(member) = self.members.get_mut(&session) else { continue };
                        if member.machine.mux().take_back(channel) {
                            exchange.handle_recalled(number, &mut self.budget, now);
                        }
                    }
                    Wish::Send(number, session) => {
                        let member = self.members.get_mut(&session).filter(|member| member.flow.is_some());
                        let machine = member.map(|member| &mut member.machine);
                        exchange.send(number, session, machine, &mut self.budget, now);
                    }
                }
            }
            for (session, channel) in exchange.take_unwanted() {
                if let Some(member) = self.members.get_mut(&session) {
                    member.machine.mux().reset(channel, CANCELLED.0, CANCELLED.1);
                }
            }
        }
        for session in late {
            if self.members.get_mut(&session).is_some_and(|member| member.island.handle_late()) {
                self.with_keeper(|keeper| _ = keeper.handle_unserved(session, now));
            }
        }
    }

    /// Closes the links of the sessions that another has replaced, once they are done.
    fn dismiss_replaced(&mut self, network: &mut Network, now: Time) {
        let idle = |member: &mut Member| {
            let is_done = member.is_leaving && member.machine.mux().running() == 0;
            member.flow.filter(|_| is_done)
        };
        let done: Vec<Flow> = self.members.values_mut().filter_map(idle).collect();
        for flow in done {
            self.handle_ended(flow, Broken::Closed, network, now);
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
