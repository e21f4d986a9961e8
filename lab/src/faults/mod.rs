//! The faults of a network beyond its access links: packet rules, NAT, and who answers in another's place.

use std::net::IpAddr;

use ropeway_core::sim::{
    Scenario,
    scenario::{
        AddressFault, BalancerFault, DnsFault, Family, Fault, FaultKind, MiddleboxFault, NatExpiry, Target, TlsFault,
        UdpFault, V6Fault,
    },
};

pub(crate) mod nft;
mod rules;

use self::{nft::Table, rules::Traffic};
use crate::{
    servers::{dns::Answers, impostor::Balancer, middlebox::Meddling},
    topology::plan::Plan,
};

/// What a fault takes to be installed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Installation {
    /// Packet rules at the provider.
    pub(crate) isp: Table,
    /// Packet rules at the servers.
    pub(crate) server: Table,
    /// Settings of the provider, each named as in `sysctl`.
    pub(crate) settings: Vec<(&'static str, String)>,
}

impl Installation {
    /// Works out what a fault of a scenario takes in a network of these addresses.
    pub(crate) fn of(fault: &Fault, scenario: &Scenario, plan: &Plan, seed: u64) -> Self {
        let interfaces: Vec<&str> = plan.links.iter().map(|link| link.interface.as_str()).collect();
        let concerned: Vec<&str> = match fault.link.and_then(|link| interfaces.get(link)) {
            Some(interface) => vec![interface],
            None => interfaces,
        };
        let traffic = Traffic::of(&concerned);
        let addresses = |target: &Target| addresses(target, scenario, plan);
        // The lower half is as random as the whole.
        let seed = seed as u32;
        match &fault.kind {
            FaultKind::Address { target, how } => {
                Self::at_isp(addresses(target).into_iter().map(|address| address_fault(&traffic, address, *how)))
            }
            FaultKind::Balancer { target, how } => {
                let balancer = match how {
                    BalancerFault::BadGateway => Balancer::BadGateway,
                    BalancerFault::Hang => Balancer::Hangs,
                    BalancerFault::Reset => Balancer::Resets,
                };
                let addresses = addresses(target);
                let mut installed =
                    Self::at_isp(addresses.iter().map(|address| traffic.balancer_udp(*address, balancer)));
                installed.server = joined(addresses.into_iter().map(|address| rules::balancer(address, balancer)));
                installed
            }
            FaultKind::Dns { how, share } => Self::at_isp([match how {
                DnsFault::Drop => traffic.names_unanswered(*share, seed),
                DnsFault::Hijack => traffic.names_hijacked(Answers::Hijacked, *share, seed),
                DnsFault::Loopback => traffic.names_hijacked(Answers::Loopback, *share, seed),
                DnsFault::NoSuchName => traffic.names_hijacked(Answers::NoSuchName, *share, seed),
            }]),
            FaultKind::Island { site } => {
                let sites = plan.sites.iter().enumerate().filter(|(place, _)| site.is_none_or(|cut| cut == *place));
                Self { server: joined(sites.map(|(_, site)| rules::island(site.backend))), ..Self::default() }
            }
            FaultKind::Middlebox { how } => Self::at_isp([traffic.meddled(match how {
                MiddleboxFault::NoChunked => Meddling::BreaksChunked,
                MiddleboxFault::NoKeepAlive => Meddling::BreaksKeepAlive,
            })]),
            FaultKind::Mtu { bytes, family } => {
                let of = |meant| family.is_none_or(|family| family == meant);
                Self::at_isp([traffic.mtu_hole(*bytes, of(Family::V4), of(Family::V6))])
            }
            FaultKind::Nat { tcp_idle, at_expiry, udp_idle } => {
                let mut installed = Self::at_isp(match at_expiry {
                    NatExpiry::Reset => Some(traffic.expired_reset()),
                    NatExpiry::Silent => None,
                });
                let timeouts = [(TCP_TIMEOUTS, tcp_idle), (UDP_TIMEOUTS, udp_idle)];
                let set = timeouts.into_iter().filter_map(|(keys, idle)| Some((keys, (*idle)?)));
                installed.settings = set
                    .flat_map(|(keys, idle)| {
                        // The kernel counts whole seconds, and 0 would be for ever.
                        let seconds = idle.as_secs_f64().round().max(1.0).to_string();
                        keys.iter().map(move |key| (*key, seconds.clone()))
                    })
                    .collect();
                installed
            }
            FaultKind::Portal => Self::at_isp([traffic.portal()]),
            FaultKind::Ports { allow } => Self::at_isp([traffic.ports_filtered(allow)]),
            FaultKind::Tamper => Self::at_isp([traffic.meddled(Meddling::Tampers)]),
            FaultKind::Tls { how } => Self::at_isp([match how {
                TlsFault::Reset => traffic.tls_reset(),
                TlsFault::Swallow => traffic.tls_swallowed(),
                TlsFault::WrongCertificate => traffic.tls_wrong_certificate(),
            }]),
            FaultKind::Udp { how } => Self::at_isp([match how {
                UdpFault::Block => traffic.udp_blocked(),
                UdpFault::FirstPacket => traffic.udp_first_packet(),
                UdpFault::Police { bits_per_s } => traffic.udp_policed(*bits_per_s),
            }]),
            FaultKind::V6 { how } => Self::at_isp([match how {
                V6Fault::Drop => traffic.v6_dead(),
                V6Fault::DropTcp => traffic.v6_without_tcp(),
                V6Fault::LoseSyn { share } => traffic.v6_loses_first(*share),
            }]),
        }
    }

    fn at_isp(tables: impl IntoIterator<Item = Table>) -> Self {
        Self { isp: joined(tables), ..Self::default() }
    }
}

fn address_fault(traffic: &Traffic, address: IpAddr, how: AddressFault) -> Table {
    match how {
        AddressFault::Drop => traffic.address_dead(address),
        AddressFault::Lossy { share } => traffic.address_lossy(address, share),
        AddressFault::Refuse => traffic.address_refuses(address),
        AddressFault::SlowSyn { delay } => traffic.address_slow(address, delay),
    }
}

/// Gives the addresses that a fault is about.
fn addresses(target: &Target, scenario: &Scenario, plan: &Plan) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for (place, site) in plan.sites.iter().enumerate().take(scenario.sites.len()) {
        let covered = |family, number: usize| target.covers(place, family, u32::try_from(number).unwrap_or(u32::MAX));
        let v4 = site.v4.iter().enumerate().filter(|(number, _)| covered(Family::V4, *number));
        let v6 = site.v6.iter().enumerate().filter(|(number, _)| covered(Family::V6, *number));
        found.extend(v4.map(|(_, address)| IpAddr::V4(*address)));
        found.extend(v6.map(|(_, address)| IpAddr::V6(*address)));
    }
    found
}

fn joined(tables: impl IntoIterator<Item = Table>) -> Table {
    let mut joined = Table::default();
    tables.into_iter().for_each(|table| joined.merge(table));
    joined
}

/// Settings that say how long a TCP connection may be idle before the NAT forgets it.
const TCP_TIMEOUTS: &[&str] = &["net.netfilter.nf_conntrack_tcp_timeout_established"];

/// The same for UDP: of flows with and without answers.
const UDP_TIMEOUTS: &[&str] =
    &["net.netfilter.nf_conntrack_udp_timeout", "net.netfilter.nf_conntrack_udp_timeout_stream"];

#[cfg(test)]
mod tests;
