//! One attempt of a device to get a link, from the names to WELCOME.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::device::{Broken, Device, SPARE_FOR};
use crate::{
    CarrierKind, Time,
    connect::{
        AttemptId, Candidate, Establish, EstablishConfig, EstablishOutput, FailReason, GreetFailure, LostReason, Means,
        Remedy, Source, candidate, remedy,
    },
    sim::net::{self, Content, Flow, Network, Packet},
    wire::message::RefuseCode,
};

/// An attempt to get a link.
#[derive(Debug)]
pub(super) struct Connecting {
    /// `None` while names are asked for.
    establish: Option<Establish>,
    lookup: Lookup,
    attempts: BTreeMap<AttemptId, Flow>,
    /// Those on which something came back.
    alive: BTreeSet<AttemptId>,
    dialed: BTreeMap<AttemptId, Flow>,
    /// HELLO is out on it, WELCOME is awaited.
    greeting: Option<(AttemptId, Flow)>,
    restarts: u32,
    retry_after: Option<Duration>,
}

/// Questions for the addresses of the gateways' name.
#[derive(Clone, Debug)]
struct Lookup {
    unanswered: BTreeSet<Flow>,
    addresses: BTreeSet<IpAddr>,
    until: Time,
}

/// A connection that a race left over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spare {
    pub(super) flow: Flow,
    candidate: Candidate,
    pub(super) until: Time,
}

impl Connecting {
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match &self.establish {
            Some(establish) => establish.poll_timeout().map(|(at, _)| at),
            None => Some(self.lookup.until),
        }
    }

    /// Says whether no connection is being greeted.
    pub(super) const fn is_racing(&self) -> bool {
        self.greeting.is_none()
    }

    fn is_undecided(&self) -> bool {
        self.establish.as_ref().is_none_or(Establish::is_undecided)
    }
}

impl Device {
    /// Begins to get a link, or hurries the attempt that is under way.
    pub(super) fn connect(&mut self, network: &mut Network, now: Time) {
        if self.is_blocked {
            return;
        }
        match &mut self.connecting {
            Some(connecting) if connecting.is_undecided() => {
                if let Some(establish) = &mut connecting.establish {
                    establish.handle_hurry(now);
                    self.follow_establish(network, now);
                }
            }
            Some(_) | None => self.prepare(0, network, now),
        }
    }

    /// Asks for the addresses of the gateways' name, IPv4 and IPv6.
    fn prepare(&mut self, restarts: u32, network: &mut Network, now: Time) {
        self.stop_connecting(network, now);
        let mut lookup = Lookup { unanswered: BTreeSet::new(), addresses: BTreeSet::new(), until: now + LOOKUP_WITHIN };
        if network.local_address().is_none() {
            lookup.until = now;
        } else {
            for _family in 0..2 {
                let flow = network.new_flow();
                lookup.unanswered.insert(flow);
                let packet = Packet { flow, server: NAME_SERVER, content: Content::Question };
                network.send(packet, net::Source::Any, now);
            }
        }
        self.connecting = Some(Connecting {
            establish: None,
            lookup,
            attempts: BTreeMap::new(),
            alive: BTreeSet::new(),
            dialed: BTreeMap::new(),
            greeting: None,
            restarts,
            retry_after: None,
        });
    }

    pub(super) fn handle_answer(&mut self, flow: Flow, addresses: &[IpAddr]) {
        if let Some(connecting) = &mut self.connecting
            && connecting.lookup.unanswered.remove(&flow)
        {
            connecting.lookup.addresses.extend(addresses);
        }
    }

    pub(super) fn handle_connect_timeout(&mut self, network: &mut Network, now: Time) {
        let Some(connecting) = &mut self.connecting else { return };
        match &mut connecting.establish {
            Some(establish) => {
                establish.handle_timeout(now);
                self.follow_establish(network, now);
            }
            None if connecting.lookup.unanswered.is_empty() || connecting.lookup.until <= now => {
                self.handle_prepared(network, now);
            }
            None => {}
        }
    }

    /// Starts the race, or greets the connection that an earlier one left over.
    fn handle_prepared(&mut self, network: &mut Network, now: Time) {
        let Some(connecting) = &mut self.connecting else { return };
        let lookup = &mut connecting.lookup;
        // Both families are asked for; an answer that is late counts as none.
        let is_complete = lookup.unanswered.is_empty();
        let named = std::mem::take(&mut lookup.addresses).into_iter().filter(|_| is_complete);
        let known = network.addresses.all().map(|address| (address, Source::Config));
        let addresses = named.map(|address| (address, Source::Dns)).chain(known);
        self.candidates = addresses
            .flat_map(|(address, source)| {
                let candidate = move |carrier| Candidate { address: SocketAddr::new(address, PORT), carrier };
                CarrierKind::ALL.map(|carrier| (candidate(carrier), source))
            })
            .collect();
        let known = candidate::merge(self.candidates.iter().copied());
        self.seed = self.seed.wrapping_add(1);
        let ranked = candidate::rank(&known, &self.records, self.seed, now);
        let config = EstablishConfig::default();
        connecting.establish = Some(match self.spare.take() {
            Some(Spare { flow, candidate, .. }) => {
                connecting.dialed.insert(AttemptId(0), flow);
                Establish::with_spare(config, ranked, candidate, now)
            }
            None => Establish::new(config, ranked, now),
        });
        self.follow_establish(network, now);
    }

    /// Tells the race which connections are open, and which have failed.
    pub(super) fn handle_dialed(&mut self, network: &mut Network, now: Time) {
        let Some(connecting) = &mut self.connecting else { return };
        let Some(establish) = &mut connecting.establish else { return };
        let mut failed = Vec::new();
        for (attempt, flow) in connecting.attempts.clone() {
            let Some(end) = self.ends.get(&flow) else { continue };
            let connection = &end.carrier.connection;
            let reason = match end.broken {
                Some(Broken::Reset) if !connection.is_answered() => Some(FailReason::Refused),
                Some(_) => Some(FailReason::Closed),
                None if !connection.is_open() => {
                    if connection.is_answered() && connecting.alive.insert(attempt) {
                        establish.handle_alive(attempt, connection.rtt(), now);
                        self.alive_at = Some(now);
                    }
                    continue;
                }
                None if network.is_impostor(end.candidate.address) && end.candidate.carrier != CarrierKind::Quic => {
                    Some(FailReason::Untrusted)
                }
                None => None,
            };
            connecting.attempts.remove(&attempt);
            match reason {
                Some(reason) => {
                    failed.push(flow);
                    establish.handle_failed(attempt, reason, now);
                }
                None => {
                    connecting.dialed.insert(attempt, flow);
                    establish.handle_connected(attempt, connection.rtt(), now);
                    self.alive_at = Some(now);
                }
            }
        }
        for flow in failed {
            self.drop_end(flow, network, now);
        }
        self.follow_establish(network, now);
    }

    /// Does what the machine asks for.
    fn follow_establish(&mut self, network: &mut Network, now: Time) {
        while let Some(connecting) = &mut self.connecting
            && let Some(output) = connecting.establish.as_mut().and_then(Establish::poll_output)
        {
            match output {
                EstablishOutput::Abandon { attempt } => {
                    let flow = connecting.attempts.remove(&attempt).or(connecting.dialed.remove(&attempt));
                    let greeted = connecting.greeting.take_if(|(greeted, _)| *greeted == attempt);
                    for flow in flow.into_iter().chain(greeted.map(|(_, flow)| flow)) {
                        self.drop_end(flow, network, now);
                    }
                }
                EstablishOutput::Greet { attempt, .. } => {
                    if let Some(flow) = connecting.dialed.remove(&attempt) {
                        connecting.greeting = Some((attempt, flow));
                        self.begin_link(flow, network, now);
                    }
                }
                EstablishOutput::KeepSpare { attempt, candidate } => {
                    let flow = connecting.dialed.remove(&attempt);
                    self.spare = flow.map(|flow| Spare { flow, candidate, until: now + SPARE_FOR });
                }
                EstablishOutput::Lost { .. } => {
                    let retry_after = connecting.retry_after;
                    self.stop_connecting(network, now);
                    self.with_reconnect(|reconnect| {
                        if let Some(after) = retry_after {
                            reconnect.handle_retry_after(after, now);
                        }
                        reconnect.handle_lost(now, LostReason::RaceLost);
                    });
                }
                EstablishOutput::Scored { candidate, score } => self.records.observe(candidate, score, now),
                EstablishOutput::Start { attempt, candidate } => self.dial(attempt, candidate, network, now),
            }
        }
        let establish = self.connecting.as_ref().and_then(|connecting| connecting.establish.as_ref());
        if establish.is_some_and(Establish::is_finished) {
            self.connecting = None;
        }
    }

    fn dial(&mut self, attempt: AttemptId, candidate: Candidate, network: &mut Network, now: Time) {
        let opened = self.open(candidate, network, now);
        let Some(connecting) = &mut self.connecting else { return };
        match opened {
            Ok(flow) => drop(connecting.attempts.insert(attempt, flow)),
            Err(reason) => {
                if let Some(establish) = &mut connecting.establish {
                    establish.handle_failed(attempt, reason, now);
                }
            }
        }
    }

    /// Says whether WELCOME is awaited on a connection.
    pub(super) fn greets(&self, flow: Flow) -> bool {
        let greeting = self.connecting.as_ref().and_then(|connecting| connecting.greeting);
        greeting.is_some_and(|(_, greeted)| greeted == flow)
    }

    /// Takes in that WELCOME came; says whether it was awaited.
    pub(super) fn finish_greeting(&mut self, flow: Flow) -> bool {
        let is_awaited = self.greets(flow);
        if let Some(connecting) = self.connecting.as_mut().filter(|_| is_awaited) {
            connecting.greeting = None;
            if let Some(establish) = &mut connecting.establish {
                establish.handle_welcomed();
            }
        }
        is_awaited
    }

    /// The greeted connection broke.
    pub(super) fn handle_greeting_broken(&mut self, network: &mut Network, now: Time) {
        self.end_greeting(GreetFailure::Broken, network, now);
    }

    /// A gateway refused a link.
    pub(super) fn handle_refused(
        &mut self,
        flow: Flow,
        code: RefuseCode,
        retry_after: Duration,
        network: &mut Network,
        now: Time,
    ) {
        if !self.greets(flow) {
            return self.with_reconnect(|reconnect| {
                if !retry_after.is_zero() {
                    reconnect.handle_retry_after(retry_after, now);
                }
            });
        }
        let Some(connecting) = &mut self.connecting else { return };
        let restarts = connecting.restarts;
        match remedy(code, Means { ticket_source: false, restarts }) {
            Remedy::Elsewhere => {
                if !retry_after.is_zero() {
                    let known = connecting.retry_after;
                    connecting.retry_after = Some(known.map_or(retry_after, |known| known.min(retry_after)));
                }
                self.end_greeting(GreetFailure::Refused, network, now);
            }
            Remedy::Fail { heals } => {
                self.stop_connecting(network, now);
                self.is_blocked = !heals;
                self.with_reconnect(|reconnect| reconnect.handle_lost(now, LostReason::RaceLost));
            }
            Remedy::Restart { fresh_session, .. } => {
                self.stop_connecting(network, now);
                if fresh_session {
                    self.disown(network, now);
                }
                self.prepare(restarts + 1, network, now);
            }
        }
    }

    fn end_greeting(&mut self, failure: GreetFailure, network: &mut Network, now: Time) {
        let Some(connecting) = &mut self.connecting else { return };
        let Some((attempt, flow)) = connecting.greeting.take() else { return };
        if let Some(establish) = &mut connecting.establish {
            establish.handle_greet_failed(attempt, failure, now);
        }
        self.drop_end(flow, network, now);
        self.follow_establish(network, now);
    }

    /// Drops the attempt that is under way, if there is one.
    pub(super) fn stop_connecting(&mut self, network: &mut Network, now: Time) {
        let Some(connecting) = self.connecting.take() else { return };
        let greeted = connecting.greeting.map(|(_, flow)| flow);
        for flow in connecting.attempts.into_values().chain(connecting.dialed.into_values()).chain(greeted) {
            self.drop_end(flow, network, now);
        }
    }
}

/// How long the names of access points may take; the client's.
const LOOKUP_WITHIN: Duration = Duration::from_secs(2);

/// Port of every gateway.
const PORT: u16 = 443;

/// The name server that clients are given.
const NAME_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 1, 53)), 53);
