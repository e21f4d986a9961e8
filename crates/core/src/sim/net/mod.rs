//! The network of a simulated world: access links, the provider with its NAT and its faults, and the ways to the sites.
//!
//! A packet of the client passes the link model of its access link, the provider, and the way to a site; an answer goes back through
//! whatever mapping the provider's NAT has for it. All of it is told the time and draws from seeds.

use std::{
    collections::{BTreeMap, VecDeque},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use rand_pcg::Pcg32;

use self::{
    addresses::{Addresses, HIJACKED},
    faults::{Faults, Verdict},
    nat::{Mapped, Nat},
};
use super::{
    Scenario,
    link::{Direction, LinkCounts, LinkModel},
    scenario::{Action, DnsFault, Shapes},
    trace::{MissingTrace, Traces},
    transport::{End, Segment, Transport, transport},
};
use crate::{
    CarrierKind, Time,
    random::{hits, stream},
};

mod addresses;
mod faults;
mod nat;

pub(crate) use nat::Mapping;

/// Number of a connection, or of a question for a name, in the whole world.
pub(crate) type Flow = u64;

/// One packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) flow: Flow,
    /// The server's end, where it comes from or goes to.
    pub(crate) server: SocketAddr,
    pub(crate) content: Content,
}

/// What a packet carries.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Addresses for a name.
    Answer(Vec<IpAddr>),
    /// A question for a name.
    Question,
    /// TCP's RST.
    Reset,
    Segment(CarrierKind, Segment),
}

/// A packet that has arrived.
#[derive(Clone, Debug)]
pub(crate) enum Arrival {
    Client(Packet),
    Server(Packet, Mapping),
}

/// From which address a socket sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The address of the default route, whatever that is.
    Any,
    Bound(LocalAddress),
}

/// An address of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LocalAddress {
    link: usize,
    changes: u32,
}

/// The network of a world.
#[derive(Debug)]
pub(crate) struct Network {
    links: Vec<Link>,
    site_delays: Vec<Duration>,
    pub(crate) addresses: Addresses,
    faults: Faults,
    nat: Nat,
    rng: Pcg32,
    /// Packets between provider and sites, by arrival.
    transit: BTreeMap<(Time, u64), Transit>,
    sent: u64,
    flows: Flow,
    arrivals: VecDeque<Arrival>,
}

#[derive(Debug)]
struct Link {
    up: LinkModel<(Packet, LocalAddress)>,
    down: LinkModel<(Packet, LocalAddress)>,
    is_up: bool,
    address_changes: u32,
}

#[derive(Debug)]
enum Transit {
    ToProvider(Packet, Mapping),
    ToServer(Packet, Mapping),
}

impl Network {
    pub(crate) fn new(scenario: &Scenario, seed: u64, traces: &mut Traces, now: Time) -> Result<Self, MissingTrace> {
        let link = |(place, shapes): (usize, &Shapes)| {
            Ok(Link {
                up: LinkModel::new(shapes.up.spec(Direction::Up, traces)?, link_seed(seed, place, Direction::Up), now),
                down: LinkModel::new(
                    shapes.down.spec(Direction::Down, traces)?,
                    link_seed(seed, place, Direction::Down),
                    now,
                ),
                is_up: true,
                address_changes: 0,
            })
        };
        let links = scenario.access.iter().map(|access| &access.shapes).enumerate().map(link);
        Ok(Self {
            links: links.collect::<Result<_, _>>()?,
            site_delays: scenario.sites.iter().map(|site| site.extra_rtt / 2).collect(),
            addresses: Addresses::of(scenario),
            faults: Faults::new(&scenario.faults, seed),
            nat: Nat::default(),
            rng: stream(seed, DNS_STREAM),
            transit: BTreeMap::new(),
            sent: 0,
            flows: 0,
            arrivals: VecDeque::new(),
        })
    }

    /// Numbers a new connection or question.
    pub(crate) const fn new_flow(&mut self) -> Flow {
        self.flows += 1;
        self.flows
    }

    /// Carries out one step of the scenario.
    pub(crate) fn apply(&mut self, action: Action, traces: &mut Traces, now: Time) -> Result<(), MissingTrace> {
        match action {
            Action::Address { link } => self.links[link].address_changes += 1,
            Action::Fault { fault, is_on } => self.faults.set(fault, is_on),
            Action::Interface { link, is_up } => self.links[link].is_up = is_up,
            Action::NatRebind { link } => self.nat.forget(link),
            Action::Outage { link, outage } => {
                self.links[link].up.set_outage(outage, now);
                self.links[link].down.set_outage(outage, now);
            }
            Action::Shape { link, shapes } => {
                self.links[link].up.set_spec(shapes.up.spec(Direction::Up, traces)?, now);
                self.links[link].down.set_spec(shapes.down.spec(Direction::Down, traces)?, now);
            }
        }
        Ok(())
    }

    /// Returns the address from which a new socket sends: that of the first link that is up.
    pub(crate) fn local_address(&self) -> Option<LocalAddress> {
        let link = self.default_link()?;
        Some(LocalAddress { link, changes: self.links[link].address_changes })
    }

    /// Sends a packet of the client. What is bound to the address of an interface that is down leaves by the first that is up, with the
    /// address it had: so does Linux, which takes the routes away and keeps the address. The servers hear it; what they answer goes to
    /// the interface that is down. From an address that the client no longer has nothing is sent.
    pub(crate) fn send(&mut self, packet: Packet, source: Source, now: Time) {
        let address = match source {
            Source::Any => self.local_address(),
            Source::Bound(address) => Some(address),
        };
        let Some(address) = address.filter(|address| self.links[address.link].address_changes == address.changes)
        else {
            return;
        };
        let way = if self.links[address.link].is_up { Some(address.link) } else { self.default_link() };
        if let Some(link) = way {
            let bytes = packet.ip_bytes();
            self.links[link].up.offer((packet, address), bytes, now);
        }
    }

    /// Sends a packet of a server through a mapping.
    pub(crate) fn answer(&mut self, packet: Packet, mapping: Mapping, now: Time) {
        let at = now + self.site_delay(packet.server);
        self.put(at, Transit::ToProvider(packet, mapping));
    }

    /// Says what a balancer without backends at an address does with connections, if one is there.
    pub(crate) fn balancer(&self, server: SocketAddr) -> Option<super::scenario::BalancerFault> {
        self.faults.balancer(&self.addresses, server)
    }

    /// Returns the site of an address, where it has one.
    pub(crate) fn site(&self, server: SocketAddr) -> Option<usize> {
        self.addresses.place(server.ip()).map(|place| place.site)
    }

    /// Says whether the gateways reached by this address cannot reach their backend.
    pub(crate) fn is_island(&self, server: SocketAddr) -> bool {
        self.faults.is_island(&self.addresses, server)
    }

    /// Says whether somebody else answers TLS over TCP at an address, with a certificate of his own.
    pub(crate) fn is_impostor(&self, server: SocketAddr) -> bool {
        server.ip() == HIJACKED || self.faults.has_wrong_certificate()
    }

    /// Says whether a gateway, or its balancer, has this address.
    pub(crate) fn is_served(&self, server: SocketAddr) -> bool {
        self.site(server).is_some()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let links = self.links.iter().flat_map(|link| [link.up.poll_timeout(), link.down.poll_timeout()]);
        let transit = self.transit.first_key_value().map(|((at, _), _)| *at);
        links.chain([transit]).flatten().min()
    }

    /// Returns the next packet that has arrived by now.
    pub(crate) fn poll(&mut self, now: Time) -> Option<Arrival> {
        for place in 0..self.links.len() {
            while let Some(delivery) = self.links[place].up.poll_output(now) {
                // A flipped bit fails a checksum.
                if delivery.flipped_bit.is_none() {
                    let (packet, address) = delivery.payload;
                    self.provide_up(packet, address, delivery.due);
                }
            }
            while let Some(delivery) = self.links[place].down.poll_output(now) {
                let (packet, address) = delivery.payload;
                if delivery.flipped_bit.is_none() && self.has(address) {
                    self.arrivals.push_back(Arrival::Client(packet));
                }
            }
        }
        while let Some(entry) = self.transit.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((at, _), transit) = entry.remove_entry();
            match transit {
                Transit::ToProvider(packet, mapping) => self.provide_down(packet, mapping, at),
                Transit::ToServer(packet, mapping) => self.arrivals.push_back(Arrival::Server(packet, mapping)),
            }
        }
        self.arrivals.pop_front()
    }

    /// Returns what each access link has done: up, then down.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (LinkCounts, LinkCounts)> {
        self.links.iter().map(|link| (*link.up.counts(), *link.down.counts()))
    }

    /// What the provider does with a packet of the client.
    fn provide_up(&mut self, packet: Packet, from: LocalAddress, now: Time) {
        if let Content::Question = packet.content {
            return self.answer_name(packet, from, now);
        }
        match self.faults.verdict(&packet, End::Client, from.link, &self.addresses, now) {
            Verdict::Drop => return,
            Verdict::Pass => {}
            Verdict::Refuse => return self.refuse(&packet, from, now),
        }
        let rules = self.faults.nat(from.link);
        match self.nat.outbound(&packet, from, rules, now) {
            Mapped::Expired => {
                if rules.resets {
                    self.refuse(&packet, from, now);
                }
            }
            Mapped::By(mapping) => {
                let at = now + self.site_delay(packet.server);
                self.put(at, Transit::ToServer(packet, mapping));
            }
        }
    }

    /// What the provider does with a packet for the client.
    fn provide_down(&mut self, packet: Packet, mapping: Mapping, now: Time) {
        let Some(to) = self.nat.inbound(&packet, mapping, |link| self.faults.nat(link), now) else { return };
        match self.faults.verdict(&packet, End::Server, to.link, &self.addresses, now) {
            Verdict::Drop | Verdict::Refuse => {}
            Verdict::Pass => self.deliver(packet, to, now),
        }
    }

    /// Answers a question for the name of the origin.
    fn answer_name(&mut self, packet: Packet, from: LocalAddress, now: Time) {
        let all = || self.addresses.all().collect();
        let addresses = match self.faults.dns(from.link) {
            Some((how, share)) if hits(&mut self.rng, share) => match how {
                DnsFault::Drop => return,
                DnsFault::Hijack => vec![HIJACKED],
                DnsFault::Loopback => vec![IpAddr::from([127, 0, 0, 2])],
                DnsFault::NoSuchName => Vec::new(),
            },
            Some(_) | None => all(),
        };
        self.deliver(Packet { content: Content::Answer(addresses), ..packet }, from, now);
    }

    fn refuse(&mut self, packet: &Packet, to: LocalAddress, now: Time) {
        // What ICMP says of UDP does not reach a socket that is not connected.
        if packet.transport() == Some(Transport::Tcp) {
            self.deliver(Packet { content: Content::Reset, ..packet.clone() }, to, now);
        }
    }

    fn deliver(&mut self, packet: Packet, to: LocalAddress, now: Time) {
        let bytes = packet.ip_bytes();
        self.links[to.link].down.offer((packet, to), bytes, now);
    }

    fn put(&mut self, at: Time, transit: Transit) {
        self.sent += 1;
        self.transit.insert((at, self.sent), transit);
    }

    fn default_link(&self) -> Option<usize> {
        self.links.iter().position(|link| link.is_up)
    }

    fn has(&self, address: LocalAddress) -> bool {
        let link = &self.links[address.link];
        link.is_up && link.address_changes == address.changes
    }

    fn site_delay(&self, server: SocketAddr) -> Duration {
        self.site(server).map_or(Duration::ZERO, |site| self.site_delays[site])
    }
}

impl Packet {
    pub(crate) const fn transport(&self) -> Option<Transport> {
        match self.content {
            Content::Segment(carrier, _) => Some(transport(carrier)),
            Content::Reset => Some(Transport::Tcp),
            Content::Answer(_) | Content::Question => None,
        }
    }

    /// Says whether it is TCP's SYN.
    fn is_syn(&self) -> bool {
        matches!(&self.content, Content::Segment(_, segment) if segment.opens)
    }

    fn ip_bytes(&self) -> usize {
        match &self.content {
            Content::Answer(addresses) => QUESTION_BYTES + ANSWER_BYTES * addresses.len(),
            Content::Question => QUESTION_BYTES,
            Content::Reset => RESET_BYTES,
            Content::Segment(carrier, segment) => segment.ip_bytes(transport(*carrier), self.server.is_ipv6()),
        }
    }
}

/// Makes a seed for one direction of an access link, from that of a run.
const fn link_seed(run: u64, link: usize, direction: Direction) -> u64 {
    let way = match direction {
        Direction::Down => 0,
        Direction::Up => 1,
    };
    run.wrapping_mul(SEEDS_OF_RUN).wrapping_add(2 * link as u64 + way)
}

/// Seeds that one run has for the directions of its links.
const SEEDS_OF_RUN: u64 = 16;

/// Bytes of the IP packet that asks for the addresses of a short name (RFC 1035 section 4).
const QUESTION_BYTES: usize = 54;

/// Bytes that one address adds to the answer.
const ANSWER_BYTES: usize = 16;

/// Bytes of the IP packet of a RST.
const RESET_BYTES: usize = 40;

/// Stream of random numbers for questions.
const DNS_STREAM: u64 = 100;

#[cfg(test)]
mod tests;
