//! Faults between the provider and the servers.

use std::{ops::RangeInclusive, time::Duration};

use super::{
    Scenario,
    error::{ScenarioError, hint},
    read::{Table, clip},
    when::{WHEN_KEYS, When},
};

/// Something that is broken between the provider and the servers, the servers' entries included.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When.
    pub when: When,
    /// For what comes by which access link, by its place in [`Scenario::access`]; for all where none is named.
    pub link: Option<usize>,
    /// What.
    pub kind: FaultKind,
}

/// What is broken.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// Addresses cannot be reached, or badly.
    Address {
        /// Which.
        target: Target,
        /// How they answer.
        how: AddressFault,
    },
    /// A balancer stands at addresses and has nothing behind it.
    Balancer {
        /// At which.
        target: Target,
        /// What it does with connections.
        how: BalancerFault,
    },
    /// Names are answered wrongly.
    Dns {
        /// How.
        how: DnsFault,
        /// Share of the questions.
        share: f64,
    },
    /// Gateways are reached but cannot reach their backend.
    Island {
        /// Which site's, by its place in [`Scenario::sites`]; all where none is named.
        site: Option<usize>,
    },
    /// An old box meddles with plain HTTP on port 80.
    Middlebox {
        /// What it cannot bear.
        how: MiddleboxFault,
    },
    /// Packets larger than this vanish without a word.
    Mtu {
        /// The largest packet that passes, bytes of IP.
        bytes: u64,
        /// Of which family; of both where none is named.
        family: Option<Family>,
    },
    /// The provider's NAT forgets idle flows.
    Nat {
        /// How long a TCP flow may be idle.
        tcp_idle: Option<Duration>,
        /// What the ends of a forgotten TCP flow hear.
        at_expiry: NatExpiry,
        /// How long a UDP flow may be idle.
        udp_idle: Option<Duration>,
    },
    /// A captive portal: plain HTTP is answered by a redirect to it, names are answered, and all else is dropped.
    Portal,
    /// Only these destination ports pass, and port 53.
    Ports {
        /// The ports.
        allow: Vec<u16>,
    },
    /// The bodies of plain HTTP answers on port 80 are altered.
    Tamper,
    /// TLS over TCP is disturbed, on every port.
    Tls {
        /// How.
        how: TlsFault,
    },
    /// UDP is disturbed, but for port 53.
    Udp {
        /// How.
        how: UdpFault,
    },
    /// IPv6 is broken.
    V6 {
        /// How.
        how: V6Fault,
    },
}

/// Addresses of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The site, by its place in [`Scenario::sites`].
    pub site: usize,
    /// Addresses of one family; of both where none is named.
    pub family: Option<Family>,
    /// One address, from 0; all where none is named.
    pub address: Option<u32>,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// How an address cannot be reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AddressFault {
    /// Packets vanish.
    Drop,
    /// Packets are lost at random, both ways.
    Lossy {
        /// Share that is lost, each way.
        share: f64,
    },
    /// Nobody listens: TCP is reset, UDP answered by ICMP.
    Refuse,
    /// The answer to a SYN takes its time.
    SlowSyn {
        /// How long.
        delay: Duration,
    },
}

/// What a balancer without backends does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancerFault {
    /// It speaks TLS and answers every request with status 502.
    BadGateway,
    /// It accepts connections and says nothing.
    Hang,
    /// It accepts connections and resets them.
    Reset,
}

/// How names are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DnsFault {
    /// Not at all.
    Drop,
    /// With an address of somebody else.
    Hijack,
    /// With 127.0.0.2.
    Loopback,
    /// That there is no such name.
    NoSuchName,
}

/// What an old box cannot bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MiddleboxFault {
    /// Bodies in chunks: it cuts them.
    NoChunked,
    /// A second request on a connection: it swallows it.
    NoKeepAlive,
}

/// What the ends of a TCP flow hear when a NAT has forgotten it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatExpiry {
    /// A reset.
    Reset,
    /// Nothing.
    Silent,
}

/// What happens to the handshake of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// ClientHello is answered by a reset.
    Reset,
    /// ClientHello vanishes.
    Swallow,
    /// Somebody else answers, with a certificate of his own.
    WrongCertificate,
}

/// What happens to UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpFault {
    /// Nothing passes.
    Block,
    /// The first packet of a flow passes, and none after it.
    FirstPacket,
    /// A policer drops what exceeds a rate.
    Police {
        /// Bits a second.
        bits_per_s: u64,
    },
}

/// What happens to IPv6.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum V6Fault {
    /// Nothing passes.
    Drop,
    /// TCP does not pass.
    DropTcp,
    /// SYNs are lost at random.
    LoseSyn {
        /// Share that is lost.
        share: f64,
    },
}

impl Target {
    /// Says whether an address, by its place among those of its family, is meant.
    #[must_use]
    pub fn covers(&self, site: usize, family: Family, address: u32) -> bool {
        self.site == site
            && self.family.is_none_or(|meant| meant == family)
            && self.address.is_none_or(|meant| meant == address)
    }
}

impl Fault {
    pub(super) fn read(table: &Table<'_, '_>, scenario: &Scenario) -> Result<Self, ScenarioError> {
        let when = When::read(table, scenario.duration)?;
        let link = scenario.read_link(table)?;
        let kind = table.text("kind")?.ok_or_else(|| table.missing("kind"))?;
        let Some((_, keys)) = KINDS.iter().find(|(name, _)| *name == kind) else {
            return Err(ScenarioError::UnknownName {
                place: table.place("kind"),
                what: "kind of fault",
                name: clip(&kind),
                hint: hint(&kind, KINDS.iter().map(|(name, _)| *name)),
            });
        };
        // The keys of one kind are not those of another, so the table is opened again now that the kind is known.
        let table = table.narrowed(&[&["kind", "link"], WHEN_KEYS, keys].concat())?;
        if kind == "portal" && link.is_none() {
            return Err(table.missing("link"));
        }
        Ok(Self { when, link, kind: FaultKind::read(&kind, &table, scenario)? })
    }

    /// Says whether it meets what comes by this access link.
    #[must_use]
    pub fn concerns(&self, link: usize) -> bool {
        self.link.is_none_or(|named| named == link)
    }

    /// Every key that some kind of fault has.
    pub(super) fn keys() -> Vec<&'static str> {
        let mut keys = [&["kind", "link"], WHEN_KEYS].concat();
        keys.extend(KINDS.iter().flat_map(|(_, keys)| *keys));
        keys
    }
}

impl FaultKind {
    /// Reads what a fault of one of [`KINDS`] says beside when and where.
    fn read(kind: &str, table: &Table<'_, '_>, scenario: &Scenario) -> Result<Self, ScenarioError> {
        Ok(match kind {
            "address" => Self::Address { target: Target::read(table, scenario)?, how: read_address(table)? },
            "balancer" => {
                let words = [
                    ("bad-gateway", BalancerFault::BadGateway),
                    ("hang", BalancerFault::Hang),
                    ("reset", BalancerFault::Reset),
                ];
                Self::Balancer { target: Target::read(table, scenario)?, how: how(table, &words)? }
            }
            "dns" => read_dns(table)?,
            "island" => Self::Island { site: scenario.read_site(table)? },
            "middlebox" => {
                let words = [("no-chunked", MiddleboxFault::NoChunked), ("no-keep-alive", MiddleboxFault::NoKeepAlive)];
                Self::Middlebox { how: how(table, &words)? }
            }
            "mtu" => Self::Mtu {
                bytes: table.count("bytes", MTU_BYTES)?.ok_or_else(|| table.missing("bytes"))?,
                family: read_family(table)?,
            },
            "nat" => read_nat(table)?,
            "portal" => Self::Portal,
            "ports" => {
                let ports = table.numbers("allow", 1.0..=65_535.0, PORTS_MAX)?;
                let ports = ports.ok_or_else(|| table.missing("allow"))?;
                Self::Ports { allow: ports.into_iter().map(|port| port as u16).collect() }
            }
            "tamper" => Self::Tamper,
            "tls" => {
                let words = [
                    ("reset", TlsFault::Reset),
                    ("swallow", TlsFault::Swallow),
                    ("wrong-certificate", TlsFault::WrongCertificate),
                ];
                Self::Tls { how: how(table, &words)? }
            }
            "udp" => Self::Udp { how: read_udp(table)? },
            // The kind is one of [`KINDS`].
            _ => Self::V6 { how: read_v6(table)? },
        })
    }
}

impl Target {
    fn read(table: &Table<'_, '_>, scenario: &Scenario) -> Result<Self, ScenarioError> {
        let site = scenario.read_site(table)?.unwrap_or_default();
        let mut family = read_family(table)?;
        let mut address = None;
        if table.node("address").is_some() {
            let family = *family.get_or_insert(Family::V4);
            let count = match family {
                Family::V4 => scenario.sites[site].v4,
                Family::V6 => scenario.sites[site].v6,
            };
            let Some(last) = count.checked_sub(1) else {
                return Err(table.refuse("address", "left out: the site has no address of this family"));
            };
            address = table.count("address", 0..=u64::from(last))?.and_then(|address| u32::try_from(address).ok());
        }
        Ok(Self { site, family, address })
    }
}

fn how<T: Copy>(table: &Table<'_, '_>, words: &[(&str, T)]) -> Result<T, ScenarioError> {
    table.word("how", words)?.ok_or_else(|| table.missing("how"))
}

fn read_family(table: &Table<'_, '_>) -> Result<Option<Family>, ScenarioError> {
    table.word("family", &[("v4", Family::V4), ("v6", Family::V6)])
}

/// Reads a key that one way of a fault needs and the others do not have.
fn only_for<T>(
    table: &Table<'_, '_>,
    key: &'static str,
    is_needed: bool,
    value: Option<T>,
) -> Result<Option<T>, ScenarioError> {
    match (is_needed, value) {
        (true, None) => Err(table.missing(key)),
        (false, Some(_)) => Err(table.refuse(key, "left out with this `how`")),
        (_, value) => Ok(value),
    }
}

fn read_address(table: &Table<'_, '_>) -> Result<AddressFault, ScenarioError> {
    let word = how(table, &[("drop", 'd'), ("lossy", 'l'), ("refuse", 'r'), ("slow-syn", 's')])?;
    let share = only_for(table, "share", word == 'l', table.share("share")?)?;
    let delay = only_for(table, "delay_s", word == 's', table.seconds("delay_s", SYN_DELAY_S)?)?;
    Ok(match (word, share, delay) {
        (_, Some(share), _) => AddressFault::Lossy { share },
        (_, _, Some(delay)) => AddressFault::SlowSyn { delay },
        ('r', ..) => AddressFault::Refuse,
        _ => AddressFault::Drop,
    })
}

fn read_dns(table: &Table<'_, '_>) -> Result<FaultKind, ScenarioError> {
    let words = [
        ("drop", DnsFault::Drop),
        ("hijack", DnsFault::Hijack),
        ("loopback", DnsFault::Loopback),
        ("nxdomain", DnsFault::NoSuchName),
    ];
    Ok(FaultKind::Dns { how: how(table, &words)?, share: table.share("share")?.unwrap_or(1.0) })
}

fn read_nat(table: &Table<'_, '_>) -> Result<FaultKind, ScenarioError> {
    let tcp_idle = table.seconds("tcp_idle_s", NAT_IDLE_S)?;
    let udp_idle = table.seconds("udp_idle_s", NAT_IDLE_S)?;
    if tcp_idle.is_none() && udp_idle.is_none() {
        return Err(table.missing("tcp_idle_s"));
    }
    let at_expiry = table.word("at_expiry", &[("reset", NatExpiry::Reset), ("silent", NatExpiry::Silent)])?;
    Ok(FaultKind::Nat { tcp_idle, at_expiry: at_expiry.unwrap_or(NatExpiry::Silent), udp_idle })
}

fn read_udp(table: &Table<'_, '_>) -> Result<UdpFault, ScenarioError> {
    let word = how(table, &[("block", 'b'), ("first-packet", 'f'), ("police", 'p')])?;
    let kbit = only_for(table, "rate_kbit", word == 'p', table.number("rate_kbit", 1.0..=1_000_000.0)?)?;
    Ok(match (word, kbit) {
        (_, Some(kbit)) => UdpFault::Police { bits_per_s: (kbit * 1e3) as u64 },
        ('f', _) => UdpFault::FirstPacket,
        _ => UdpFault::Block,
    })
}

fn read_v6(table: &Table<'_, '_>) -> Result<V6Fault, ScenarioError> {
    let word = how(table, &[("drop", 'd'), ("drop-tcp", 't'), ("lose-syn", 's')])?;
    let share = only_for(table, "share", word == 's', table.share("share")?)?;
    Ok(match (word, share) {
        (_, Some(share)) => V6Fault::LoseSyn { share },
        ('t', _) => V6Fault::DropTcp,
        _ => V6Fault::Drop,
    })
}

/// Every kind of fault, and the keys it has beside those of all.
const KINDS: &[(&str, &[&str])] = &[
    ("address", &["how", "site", "family", "address", "share", "delay_s"]),
    ("balancer", &["how", "site", "family", "address"]),
    ("dns", &["how", "share"]),
    ("island", &["site"]),
    ("middlebox", &["how"]),
    ("mtu", &["bytes", "family"]),
    ("nat", &["tcp_idle_s", "at_expiry", "udp_idle_s"]),
    ("portal", &[]),
    ("ports", &["allow"]),
    ("tamper", &[]),
    ("tls", &["how"]),
    ("udp", &["how", "rate_kbit"]),
    ("v6", &["how", "share"]),
];

/// Largest packets that pass an MTU hole: from IPv4's least (RFC 791) to below Ethernet's.
const MTU_BYTES: RangeInclusive<u64> = 576..=1_499;

/// Times after which a NAT forgets; RFC 5382 asks for more than two hours.
const NAT_IDLE_S: RangeInclusive<f64> = 0.1..=7_440.0;

/// Delays of a slow SYN's answer.
const SYN_DELAY_S: RangeInclusive<f64> = 0.1..=60.0;

/// Ports that may pass.
const PORTS_MAX: usize = 16;
