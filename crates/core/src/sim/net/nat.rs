//! The provider's NAT: which flow of which address is known to the servers by which mapping.

use std::{collections::BTreeMap, time::Duration};

use super::{Flow, LocalAddress, Packet};
use crate::{Time, sim::transport::Transport};

/// What servers take for the client's address and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mapping(u64);

/// The mappings of the provider. IPv6 has them too, and they never end: there an address is its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Nat {
    flows: BTreeMap<Flow, Entry>,
    made: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    mapping: Mapping,
    from: LocalAddress,
    used: Time,
    is_forgotten: bool,
}

/// How long idle flows are remembered, and what the client hears of one that is not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) tcp_idle: Option<Duration>,
    pub(super) udp_idle: Option<Duration>,
    /// A forgotten flow of TCP is reset.
    pub(super) resets: bool,
}

/// What becomes of a packet of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    By(Mapping),
    /// It belongs to a flow of TCP that was forgotten.
    Expired,
}

impl Nat {
    /// Maps a packet of the client, and makes a mapping where there is none.
    pub(super) fn outbound(&mut self, packet: &Packet, from: LocalAddress, rules: Rules, now: Time) -> Mapped {
        let is_tcp = packet.transport() == Some(Transport::Tcp);
        if let Some(entry) = self.flows.get_mut(&packet.flow).filter(|entry| entry.from == from) {
            let is_expired = !packet.server.is_ipv6() && rules.has_expired(is_tcp, now.since(entry.used));
            if !entry.is_forgotten && !is_expired {
                entry.used = now;
                return Mapped::By(entry.mapping);
            }
            if is_expired && is_tcp && !packet.is_syn() {
                return Mapped::Expired;
            }
        }
        self.made += 1;
        let mapping = Mapping(self.made);
        self.flows.insert(packet.flow, Entry { mapping, from, used: now, is_forgotten: false });
        Mapped::By(mapping)
    }

    /// Finds where a packet for the client goes; nowhere if its mapping is not there any more.
    pub(super) fn inbound(
        &mut self,
        packet: &Packet,
        mapping: Mapping,
        rules: impl Fn(usize) -> Rules,
        now: Time,
    ) -> Option<LocalAddress> {
        let entry = self.flows.get_mut(&packet.flow).filter(|entry| entry.mapping == mapping && !entry.is_forgotten)?;
        let is_tcp = packet.transport() == Some(Transport::Tcp);
        let idle = now.since(entry.used);
        if !packet.server.is_ipv6() && rules(entry.from.link).has_expired(is_tcp, idle) {
            return None;
        }
        entry.used = now;
        Some(entry.from)
    }

    /// Forgets every flow of an access link.
    pub(super) fn forget(&mut self, link: usize) {
        for entry in self.flows.values_mut().filter(|entry| entry.from.link == link) {
            entry.is_forgotten = true;
        }
    }
}

impl Rules {
    fn has_expired(self, is_tcp: bool, idle: Duration) -> bool {
        let limit = if is_tcp { self.tcp_idle } else { self.udp_idle };
        limit.is_some_and(|limit| idle >= limit)
    }
}
