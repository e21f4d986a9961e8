//! The packet rules of each fault.
//!
//! Where a fault hits a share of questions for names, it draws lots by a hash of their ports, so that a question sent
//! again fares as the first did; the loss of packets is drawn for each.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use super::nft::{Hook, Table, at_random, came_by, family, from, leaves_by, to};
use crate::{
    servers::{
        dns::Answers,
        impostor::{Balancer, PORTAL_PORT, WRONG_CERTIFICATE_PORT},
        middlebox::Meddling,
    },
    topology::plan::{BACKEND_INTERFACE, SITE_INTERFACES},
};

/// The traffic that a fault concerns: what comes by some access links, and the answers to it.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    up: String,
    down: String,
}

impl Traffic {
    /// Names the traffic of access links by their interfaces.
    pub(super) fn of(interfaces: &[&str]) -> Self {
        Self { up: came_by(interfaces), down: leaves_by(interfaces) }
    }

    /// Every packet to and from an address disappears.
    pub(super) fn address_dead(&self, address: IpAddr) -> Table {
        self.both_ways(address, "drop")
    }

    /// A share of the packets to an address, and of those from it, is lost.
    pub(super) fn address_lossy(&self, address: IpAddr, share: f64) -> Table {
        self.both_ways(address, &format!("{}drop", at_random(share)))
    }

    /// An address refuses connections.
    pub(super) fn address_refuses(&self, address: IpAddr) -> Table {
        let to = format!("{} {}", self.up, to(address));
        Table::of(
            Hook::Forward,
            [format!("{to} meta l4proto tcp reject with tcp reset"), format!("{to} meta l4proto udp reject")],
        )
    }

    /// An address lets a connection in only after a time, as when its queue of half-open connections is full: what comes
    /// before is dropped, and what the client sends again after it passes.
    pub(super) fn address_slow(&self, address: IpAddr, after: Duration) -> Table {
        let flow = format!("{} saddr . tcp sport", family(address));
        let to = format!("{} {}", self.up, to(address));
        // Each address has sets of its own in the table of its fault.
        let [waiting, known] =
            ["waiting", "known"].map(|name| format!("{name}_{}", address.to_string().replace(['.', ':'], "_")));
        let kind = if address.is_ipv4() { "ipv4_addr" } else { "ipv6_addr" };
        let set = |name: &str, kept: Duration| {
            let timeout = kept.as_millis();
            format!("set {name} {{ type {kind} . inet_service; flags dynamic, timeout; timeout {timeout}ms; }}")
        };
        let wait = after.saturating_sub(SLOW_MARGIN).max(Duration::from_millis(1));
        let mut table = Table::of(
            Hook::Forward,
            [
                format!("{to} {flow} @{waiting} drop"),
                format!(
                    "{to} {FIRST_OF_TCP} {flow} != @{known} add @{known} {{ {flow} }} add @{waiting} {{ {flow} }} drop"
                ),
            ],
        );
        table.sets = vec![set(&waiting, wait), set(&known, FLOW_KEPT.max(after * 2))];
        table
    }

    /// A share of the questions for names is answered by another name server.
    pub(super) fn names_hijacked(&self, answers: Answers, share: f64, seed: u32) -> Table {
        let by = |protocol| format!("{}dnat ip to {}", self.questions(protocol, share, seed), answers.address());
        Table::of(Hook::Redirect, ["udp", "tcp"].map(by))
    }

    /// A share of the questions for names disappears.
    pub(super) fn names_unanswered(&self, share: f64, seed: u32) -> Table {
        Table::of(
            Hook::Forward,
            ["udp", "tcp"].map(|protocol| format!("{}drop", self.questions(protocol, share, seed))),
        )
    }

    /// All UDP but that of name servers disappears.
    pub(super) fn udp_blocked(&self) -> Table {
        let [up, down] = self.udp();
        Table::of(Hook::Forward, [format!("{up} drop"), format!("{down} drop")])
    }

    /// All UDP but that of name servers shares a narrow lane, each direction its own.
    pub(super) fn udp_policed(&self, bits_per_s: u64) -> Table {
        let bytes_per_s = (bits_per_s / 8).max(1);
        let above = format!("limit rate over {bytes_per_s} bytes/second burst {POLICER_BURST_BYTES} bytes drop");
        let [up, down] = self.udp();
        Table::of(Hook::Forward, [format!("{up} {above}"), format!("{down} {above}")])
    }

    /// The first packet each way of a UDP flow passes and no other.
    pub(super) fn udp_first_packet(&self) -> Table {
        let [up, down] = self.udp();
        Table::of(
            Hook::Forward,
            [format!("{up} ct original packets > 1 drop"), format!("{down} ct reply packets > 1 drop")],
        )
    }

    /// What looks like the start of a TLS handshake disappears.
    pub(super) fn tls_swallowed(&self) -> Table {
        Table::of(Hook::Forward, [format!("{} {HANDSHAKE_RECORD} drop", self.up)])
    }

    /// What looks like the start of a TLS handshake is answered by a reset.
    pub(super) fn tls_reset(&self) -> Table {
        Table::of(Hook::Forward, [format!("{} {HANDSHAKE_RECORD} reject with tcp reset", self.up)])
    }

    /// TLS is led to a server with a certificate that nobody trusts.
    pub(super) fn tls_wrong_certificate(&self) -> Table {
        let rule = format!("{} tcp dport != {{ 53, 80 }} redirect to :{WRONG_CERTIFICATE_PORT}", self.up);
        Table::of(Hook::Redirect, [rule])
    }

    /// Only some ports pass, and those of name servers.
    pub(super) fn ports_filtered(&self, allowed: &[u16]) -> Table {
        let ports: Vec<String> = [53].iter().chain(allowed).map(ToString::to_string).collect();
        let rule = format!("{} meta l4proto {{ tcp, udp }} th dport != {{ {} }} drop", self.up, ports.join(", "));
        Table::of(Hook::Forward, [rule])
    }

    /// Plain HTTP passes through a proxy that meddles with it.
    pub(super) fn meddled(&self, meddling: Meddling) -> Table {
        Table::of(Hook::Redirect, [format!("{} tcp dport 80 redirect to :{}", self.up, meddling.port())])
    }

    /// A portal answers plain HTTP, names are answered, all else disappears: who has not signed in is denied whatever is not needed for
    /// that (RFC 8952 section 2).
    pub(super) fn portal(&self) -> Table {
        let mut table = Table::of(Hook::Redirect, [format!("{} tcp dport 80 redirect to :{PORTAL_PORT}", self.up)]);
        let rest = format!("{} meta l4proto {{ tcp, udp }} th dport != 53 drop", self.up);
        table.chains.push((Hook::Forward, vec![rest]));
        table
    }

    /// Nothing of IPv6 passes.
    pub(super) fn v6_dead(&self) -> Table {
        self.both_families("meta nfproto ipv6 drop")
    }

    /// No TCP over IPv6 passes.
    pub(super) fn v6_without_tcp(&self) -> Table {
        self.both_families("meta nfproto ipv6 meta l4proto tcp drop")
    }

    /// A share of the first packets of TCP connections over IPv6 is lost.
    pub(super) fn v6_loses_first(&self, share: f64) -> Table {
        let rule = format!("{} meta nfproto ipv6 {FIRST_OF_TCP} {}drop", self.up, at_random(share));
        Table::of(Hook::Forward, [rule])
    }

    /// Packets of more bytes than the way takes disappear without a word.
    pub(super) fn mtu_hole(&self, bytes: u64, v4: bool, v6: bool) -> Table {
        let v4 = v4.then(|| format!("ip length > {bytes} drop"));
        // The length field of IPv6 leaves its header out.
        let v6 = v6.then(|| format!("ip6 length > {} drop", bytes.saturating_sub(IPV6_HEADER_BYTES)));
        let rules = v4.into_iter().chain(v6);
        Table::of(Hook::Forward, rules.flat_map(|rule| [&self.up, &self.down].map(|way| format!("{way} {rule}"))))
    }

    /// What belongs to no connection that the NAT remembers is answered by a reset, at either end.
    pub(super) fn expired_reset(&self) -> Table {
        let mut table = Table::of(Hook::Forward, [format!("{} ct state invalid {RESET_TCP}", self.up)]);
        let answers = format!("iifname \"{SITE_INTERFACES}\" ct state {{ invalid, new }} {RESET_TCP}");
        table.chains.push((Hook::Input, vec![answers]));
        table
    }

    /// QUIC at the address of a broken balancer: one that hangs says nothing, others say that nobody listens.
    pub(super) fn balancer_udp(&self, address: IpAddr, balancer: Balancer) -> Table {
        let verdict = match balancer {
            Balancer::BadGateway | Balancer::Resets => "reject",
            Balancer::Hangs => "drop",
        };
        Table::of(Hook::Forward, [format!("{} {} meta l4proto udp {verdict}", self.up, to(address))])
    }

    fn both_ways(&self, address: IpAddr, verdict: &str) -> Table {
        let up = format!("{} {} {verdict}", self.up, to(address));
        Table::of(Hook::Forward, [up, format!("{} {} {verdict}", self.down, from(address))])
    }

    fn both_families(&self, rule: &str) -> Table {
        Table::of(Hook::Forward, [&self.up, &self.down].map(|way| format!("{way} {rule}")))
    }

    /// Names UDP up and down; the answers of name servers come from their port.
    fn udp(&self) -> [String; 2] {
        [format!("{} udp dport != 53", self.up), format!("{} udp sport != 53", self.down)]
    }

    /// Names a share of the questions for names, by a hash of where they come from.
    fn questions(&self, protocol: &str, share: f64, seed: u32) -> String {
        let all = format!("{} {protocol} dport 53 ", self.up);
        if share >= 1.0 {
            return all;
        }
        let part = (share * f64::from(FLOW_STEPS)).round();
        format!("{all}jhash ip saddr . {protocol} sport mod {FLOW_STEPS} seed {seed:#x} < {part} ")
    }
}

/// Nothing passes from a site's servers to their backend; to be installed at the server.
pub(super) fn island(backend: Ipv4Addr) -> Table {
    Table::of(Hook::Output, [format!("oifname \"{BACKEND_INTERFACE}\" ip daddr {backend} drop")])
}

/// Connections to an address are led to a broken balancer; to be installed at the server.
pub(super) fn balancer(address: IpAddr, balancer: Balancer) -> Table {
    let ((plain, over_tls), to) = (balancer.ports(), to(address));
    let rules =
        [format!("{to} tcp dport 80 redirect to :{plain}"), format!("{to} meta l4proto tcp redirect to :{over_tls}")];
    Table::of(Hook::Redirect, rules)
}

/// A TLS record of a handshake, by the start of a packet's payload (RFC 8446 section 5.1: type 22, major version 3).
const HANDSHAKE_RECORD: &str = "meta l4proto tcp @ih,0,16 0x1603";

/// The first packet of a TCP connection.
const FIRST_OF_TCP: &str = "tcp flags & (syn | ack) == syn";

/// Answers TCP by a reset.
const RESET_TCP: &str = "meta l4proto tcp reject with tcp reset";

/// Bytes that a policer lets through at once.
const POLICER_BURST_BYTES: u32 = 5000;

/// By so much the wait of a slow address is shorter than it says, so that the packet sent again at that time passes.
const SLOW_MARGIN: Duration = Duration::from_millis(250);

/// How long it is remembered that a flow has waited for its address.
const FLOW_KEPT: Duration = Duration::from_secs(60);

/// Steps in which a share of questions is counted.
const FLOW_STEPS: u32 = 10_000;

/// Bytes of an IPv6 header (RFC 8200 section 3).
const IPV6_HEADER_BYTES: u64 = 40;
