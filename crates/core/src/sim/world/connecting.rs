//! How a device opens connections: it does what the keeper of its link asks for.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use super::device::{Broken, Device};
use crate::{
    CarrierKind, Time,
    connect::{
        Candidate, ConnectionId, Ended, FailReason, Keeper, KeeperOutput, LostReason, Place, Prepared, Source, Unit,
    },
    sim::net::{self, Content, Flow, Network, Packet},
};

/// Questions for the addresses of the gateways' name.
#[derive(Clone, Debug)]
pub(super) struct Lookup {
    generation: u64,
    unanswered: BTreeSet<Flow>,
    addresses: BTreeSet<IpAddr>,
    pub(super) until: Time,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its handshake goes on; whether anything came back is known.
    Dialing { is_alive: bool },
    /// It is open, or a link.
    Open,
}

impl Device {
    /// Does what the keeper asks for.
    pub(super) fn follow_keeper(&mut self, network: &mut Network, now: Time) {
        while let Some(output) = self.keeper.as_mut().and_then(|keeper| keeper.poll_output(now)) {
            match output {
                KeeperOutput::Changed
                | KeeperOutput::Exhausted
                | KeeperOutput::ForgetTicket
                | KeeperOutput::LinkUp { .. } => {}
                KeeperOutput::Cut { session } => self.cut(session, now),
                KeeperOutput::Dial { connection, candidate, .. } => self.dial(connection, candidate, network, now),
                KeeperOutput::Drop { connection, .. } => {
                    if let Some(flow) = self.flow_of(connection) {
                        self.drop_end(flow, network, now);
                    }
                }
                KeeperOutput::Greet { connection, session, fresh, .. } => {
                    if let Some(flow) = self.flow_of(connection) {
                        self.begin_link(flow, session, fresh, now);
                    }
                }
                KeeperOutput::Leave { session } => self.leave(session),
                KeeperOutput::Prepare { generation } => self.look_up(generation, network, now),
                KeeperOutput::Settle { session, .. } => self.settle(session, network, now),
            }
        }
    }

    /// Asks for the addresses of the gateways' name, IPv4 and IPv6.
    fn look_up(&mut self, generation: u64, network: &mut Network, now: Time) {
        let until = now + LOOKUP_WITHIN;
        let mut lookup = Lookup { generation, unanswered: BTreeSet::new(), addresses: BTreeSet::new(), until };
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
        self.lookup = Some(lookup);
    }

    pub(super) fn handle_answer(&mut self, flow: Flow, addresses: &[IpAddr]) {
        if let Some(lookup) = &mut self.lookup
            && lookup.unanswered.remove(&flow)
        {
            lookup.addresses.extend(addresses);
        }
    }

    /// Gives the keeper the addresses, once they are there or late.
    pub(super) fn handle_looked_up(&mut self, network: &Network, now: Time) {
        let is_due = |lookup: &mut Lookup| lookup.unanswered.is_empty() || lookup.until <= now;
        let Some(lookup) = self.lookup.take_if(is_due) else { return };
        // Both families are asked for; an answer that is late counts as none.
        let is_complete = lookup.unanswered.is_empty();
        let named = lookup.addresses.into_iter().filter(|_| is_complete).map(|address| (address, Source::Dns));
        let known = network.addresses.all().map(|address| (address, Source::Config));
        let places = named.chain(known).flat_map(|(address, source)| {
            let unit = network.addresses.place(address).map(|place| Unit::from(place.site.to_string().as_str()));
            CarrierKind::ALL.map(|carrier| {
                let candidate = Candidate { address: SocketAddr::new(address, PORT), carrier };
                Place { candidate, source, unit: unit.clone(), gateway: None }
            })
        });
        let prepared = Prepared { places: places.collect(), ticket: None };
        self.with_keeper(|keeper| keeper.handle_prepared(lookup.generation, prepared, now));
    }

    /// Tells the keeper which connections are open, and which have failed.
    pub(super) fn handle_dialed(&mut self, network: &mut Network, now: Time) {
        let Some(keeper) = &mut self.keeper else { return };
        let mut failed = Vec::new();
        for (flow, end) in &mut self.ends {
            let Stage::Dialing { is_alive } = end.stage else { continue };
            let connection = &end.carrier.connection;
            let reason = match end.broken {
                Some(Broken::Reset) if !connection.is_answered() => Some(FailReason::Refused),
                Some(_) => Some(FailReason::Closed),
                None if !connection.is_open() => {
                    if connection.is_answered() && !is_alive {
                        end.stage = Stage::Dialing { is_alive: true };
                        keeper.handle_answered(end.number, connection.rtt(), now);
                    }
                    continue;
                }
                None if network.is_impostor(end.candidate.address) && end.candidate.carrier != CarrierKind::Quic => {
                    Some(FailReason::Untrusted)
                }
                None => None,
            };
            end.stage = Stage::Open;
            match reason {
                Some(reason) => {
                    failed.push(*flow);
                    keeper.handle_dial_failed(end.number, reason, now);
                }
                None => {
                    self.timeouts.handle_rtt(connection.rtt(), now);
                    keeper.handle_connected(end.number, connection.rtt(), now);
                }
            }
        }
        for flow in failed {
            self.drop_end(flow, network, now);
        }
    }

    fn dial(&mut self, connection: ConnectionId, candidate: Candidate, network: &mut Network, now: Time) {
        if let Err(reason) = self.open(connection, candidate, network, now) {
            self.with_keeper(|keeper| keeper.handle_dial_failed(connection, reason, now));
        }
    }

    /// Tells the keeper that a link, or a connection that was greeted, is gone.
    pub(super) fn handle_ended(&mut self, flow: Flow, broken: Broken, network: &mut Network, now: Time) {
        let Some(number) = self.ends.get(&flow).map(|end| end.number) else { return };
        // Who waits now decides how soon a lost link is sought again.
        self.obey_wishes(now);
        self.drop_end(flow, network, now);
        let ended = match broken {
            Broken::Closed => Ended::Orderly,
            Broken::Link(reason) => Ended::Broken(reason),
            Broken::Reset => Ended::Broken(LostReason::Closed),
        };
        self.with_keeper(|keeper| keeper.handle_ended(number, ended, now));
    }

    pub(super) fn with_keeper<R>(&mut self, change: impl FnOnce(&mut Keeper) -> R) -> Option<R> {
        self.keeper.as_mut().map(change)
    }

    fn flow_of(&self, connection: ConnectionId) -> Option<Flow> {
        self.ends.iter().find(|(_, end)| end.number == connection).map(|(flow, _)| *flow)
    }
}

/// How long the names of access points may take beside addresses that are known; the client's.
const LOOKUP_WITHIN: Duration = Duration::from_millis(300);

/// Port of every gateway.
const PORT: u16 = 443;

/// The name server that clients are given.
const NAME_SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(std::net::Ipv4Addr::new(198, 18, 1, 53)), 53);
