//! What is broken at the provider and at the sites' entries.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use rand_pcg::Pcg32;

use super::{Addresses, Content, Flow, Packet, nat::Rules};
use crate::{
    Time,
    random::{hits, stream},
    sim::{
        scenario::{
            AddressFault, BalancerFault, DnsFault, Family, Fault, FaultKind, NatExpiry, Target, TlsFault, UdpFault,
            V6Fault,
        },
        transport::{End, Transport},
    },
};

/// The faults of a scenario and whether they are there.
#[derive(Clone, Debug)]
pub(super) struct Faults {
    faults: Vec<State>,
    rng: Pcg32,
}

#[derive(Clone, Debug)]
struct State {
    fault: Fault,
    is_on: bool,
    /// When the first SYN of a flow was seen.
    first_syns: BTreeMap<Flow, Time>,
    /// Packets of a flow, up and down.
    passed: BTreeMap<(Flow, bool), u64>,
    /// Up and down.
    policers: [Policer; 2],
}

/// Lets bytes through at a rate, and a burst of them at once.
#[derive(Clone, Copy, Debug)]
struct Policer {
    bytes: f64,
    at: Time,
}

/// What the provider does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Drop,
    Pass,
    /// Answer it in the server's name that nobody listens.
    Refuse,
}

impl Faults {
    pub(super) fn new(faults: &[Fault], seed: u64) -> Self {
        let state = |fault: &Fault| State {
            fault: fault.clone(),
            is_on: false,
            first_syns: BTreeMap::new(),
            passed: BTreeMap::new(),
            policers: [Policer { bytes: POLICER_BURST_BYTES, at: Time::ZERO }; 2],
        };
        Self { faults: faults.iter().map(state).collect(), rng: stream(seed, FAULT_STREAM) }
    }

    pub(super) fn set(&mut self, fault: usize, is_on: bool) {
        self.faults[fault].is_on = is_on;
    }

    /// Judges a packet that goes by an access link, sent by one of the ends.
    pub(super) fn verdict(
        &mut self,
        packet: &Packet,
        sender: End,
        link: usize,
        addresses: &Addresses,
        now: Time,
    ) -> Verdict {
        let Self { faults, rng } = self;
        let active = faults.iter_mut().filter(|state| state.is_on && state.fault.concerns(link));
        let mut verdicts = active.map(|state| state.verdict(packet, sender, addresses, rng, now));
        verdicts.find(|verdict| *verdict != Verdict::Pass).unwrap_or(Verdict::Pass)
    }

    /// Says how names are answered for what comes by an access link, and which share of them.
    pub(super) fn dns(&self, link: usize) -> Option<(DnsFault, f64)> {
        self.active(link).find_map(|kind| {
            let FaultKind::Dns { how, share } = kind else { return None };
            Some((*how, *share))
        })
    }

    /// Says how long the NAT remembers idle flows of an access link.
    pub(super) fn nat(&self, link: usize) -> Rules {
        let rules = self.active(link).find_map(|kind| {
            let FaultKind::Nat { tcp_idle, at_expiry, udp_idle } = kind else { return None };
            Some(Rules { tcp_idle: *tcp_idle, udp_idle: *udp_idle, resets: *at_expiry == NatExpiry::Reset })
        });
        rules.unwrap_or_default()
    }

    pub(super) fn balancer(&self, addresses: &Addresses, server: SocketAddr) -> Option<BalancerFault> {
        self.anywhere().find_map(|kind| {
            let FaultKind::Balancer { target, how } = kind else { return None };
            meets(target, addresses, server).then_some(*how)
        })
    }

    pub(super) fn is_island(&self, addresses: &Addresses, server: SocketAddr) -> bool {
        let place = addresses.place(server.ip());
        self.anywhere().any(|kind| {
            let FaultKind::Island { site } = kind else { return false };
            site.is_none_or(|site| place.is_some_and(|place| place.site == site))
        })
    }

    pub(super) fn has_wrong_certificate(&self) -> bool {
        self.anywhere().any(|kind| matches!(kind, FaultKind::Tls { how: TlsFault::WrongCertificate }))
    }

    fn active(&self, link: usize) -> impl Iterator<Item = &FaultKind> {
        let active = self.faults.iter().filter(move |state| state.is_on && state.fault.concerns(link));
        active.map(|state| &state.fault.kind)
    }

    fn anywhere(&self) -> impl Iterator<Item = &FaultKind> {
        self.faults.iter().filter(|state| state.is_on).map(|state| &state.fault.kind)
    }
}

impl State {
    fn verdict(&mut self, packet: &Packet, sender: End, addresses: &Addresses, rng: &mut Pcg32, now: Time) -> Verdict {
        let (is_up, is_udp) = (sender == End::Client, packet.transport() == Some(Transport::Quic));
        let drop_if = |drops: bool| if drops { Verdict::Drop } else { Verdict::Pass };
        match self.fault.kind.clone() {
            FaultKind::Address { target, how } if meets(&target, addresses, packet.server) => match how {
                AddressFault::Drop => Verdict::Drop,
                AddressFault::Lossy { share } => drop_if(hits(rng, share)),
                AddressFault::Refuse if is_up => Verdict::Refuse,
                AddressFault::SlowSyn { delay } if is_up && packet.is_syn() => {
                    drop_if(self.is_slow(packet, delay, now))
                }
                AddressFault::Refuse | AddressFault::SlowSyn { .. } => Verdict::Pass,
            },
            FaultKind::Balancer { target, .. } => drop_if(is_udp && meets(&target, addresses, packet.server)),
            FaultKind::Mtu { bytes, family } => {
                let is_of_family = family.is_none_or(|family| family == family_of(packet.server));
                drop_if(is_of_family && packet.ip_bytes() as u64 > bytes)
            }
            FaultKind::Portal => drop_if(is_up),
            FaultKind::Ports { allow } => drop_if(is_up && !allow.contains(&packet.server.port())),
            FaultKind::Tls { how } if is_up && has_client_hello(packet) => match how {
                TlsFault::Reset => Verdict::Refuse,
                TlsFault::Swallow => Verdict::Drop,
                TlsFault::WrongCertificate => Verdict::Pass,
            },
            FaultKind::Udp { how } if is_udp => drop_if(match how {
                UdpFault::Block => true,
                UdpFault::FirstPacket => self.has_passed(packet, is_up),
                UdpFault::Police { bits_per_s } => {
                    !self.policers[usize::from(is_up)].takes(packet.ip_bytes(), bits_per_s, now)
                }
            }),
            FaultKind::V6 { how } if packet.server.is_ipv6() => drop_if(match how {
                V6Fault::Drop => true,
                V6Fault::DropTcp => !is_udp,
                V6Fault::LoseSyn { share } => is_up && packet.is_syn() && hits(rng, share),
            }),
            // The rest is not of single packets, or of plain HTTP, which no link travels over.
            FaultKind::Address { .. }
            | FaultKind::Dns { .. }
            | FaultKind::Island { .. }
            | FaultKind::Middlebox { .. }
            | FaultKind::Nat { .. }
            | FaultKind::Tamper
            | FaultKind::Tls { .. }
            | FaultKind::Udp { .. }
            | FaultKind::V6 { .. } => Verdict::Pass,
        }
    }

    /// Says whether a SYN comes before the answer's time; those that come again after it pass.
    fn is_slow(&mut self, packet: &Packet, delay: Duration, now: Time) -> bool {
        let first = *self.first_syns.entry(packet.flow).or_insert(now);
        now + SLOW_MARGIN < first + delay
    }

    fn has_passed(&mut self, packet: &Packet, is_up: bool) -> bool {
        let passed = self.passed.entry((packet.flow, is_up)).or_default();
        *passed += 1;
        *passed > 1
    }
}

impl Policer {
    fn takes(&mut self, bytes: usize, bits_per_s: u64, now: Time) -> bool {
        let gained = now.since(self.at).as_secs_f64() * bits_per_s as f64 / 8.0;
        self.bytes = (self.bytes + gained).min(POLICER_BURST_BYTES);
        self.at = now;
        let takes = bytes as f64 <= self.bytes;
        if takes {
            self.bytes -= bytes as f64;
        }
        takes
    }
}

fn meets(target: &Target, addresses: &Addresses, server: SocketAddr) -> bool {
    addresses.place(server.ip()).is_some_and(|place| target.covers(place.site, place.family, place.address))
}

const fn family_of(server: SocketAddr) -> Family {
    if server.is_ipv6() { Family::V6 } else { Family::V4 }
}

fn has_client_hello(packet: &Packet) -> bool {
    let over_tcp = packet.transport() == Some(Transport::Tcp);
    matches!(&packet.content, Content::Segment(_, segment) if over_tcp && segment.has_client_hello(End::Client))
}

/// Bytes that a policer lets through at once, as in the lab.
const POLICER_BURST_BYTES: f64 = 5_000.0;

/// By so much a SYN that is sent again may come before its time, as in the lab.
const SLOW_MARGIN: Duration = Duration::from_millis(250);

/// Stream of random numbers for faults.
const FAULT_STREAM: u64 = 101;
