//! The sections of the access list and the policy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use ropeway_core::policy::{DEFAULT_LADDER, LadderStep};
use ropeway_core::wire::list::HostAddress;

use super::read::{Node, Reader};
use super::section::{Key, Rule, Setting, Shape, any, between, joined, section, such};
use super::value::{PIPE_NAME, is_host, is_host_pattern, is_path_prefix, is_pipe_name_given, is_word, quoted};

section! {
    /// The access list: what the gateway tells clients of gateways and hosts, signed.
    pub struct ListConfig {
        /// Ed25519 private key that signs the list, PEM. `list.key` in `gateway.data_dir` when not given, made on first
        /// start. Gateways of one app share a key, so that apps carry one public half: `openssl genpkey -algorithm ed25519`
        /// makes one.
        pub key_file: Option<PathBuf> = None, "./ropeway-data/list.key";
        /// Time for which the permissions of a list hold. Its addresses are good for 30 days more.
        pub ttl: Duration [between(MINUTE, MONTH)] = Duration::from_secs(24 * 60 * 60);
        /// Time for which clients may keep an answer of `/.ropeway/resolve` and `/dns-query`.
        pub answer_ttl: Duration [between(SECOND, DAY)] = Duration::from_secs(60);
        /// Addresses that clients are not to use, as IP or IP:PORT.
        pub bans: Vec<HostAddress> = Vec::new();
    }
}

section! {
    /// One site. Units stand in for each other in the order of the file.
    pub struct UnitConfig {
        /// Its name. Must be given.
        pub name: String [such("a non-empty name without spaces", is_word)] = "north".to_owned();
        /// Where its gateways answer for the list over HTTPS, as IP:PORT.
        pub dispatch: Vec<SocketAddr> = Vec::new();
        /// Slots of the users that the unit owns, of 0 to 65535, as "FIRST-LAST".
        pub slots: Vec<Slots> = Vec::new();
        /// Users that the unit owns whatever their slot.
        pub users: Vec<String> = Vec::new();
        /// Its access points, in the order in which clients try them.
        pub access_points("access_point"): Vec<AccessPointConfig> = Vec::new();
    }
}

section! {
    /// One address of a gateway.
    pub struct AccessPointConfig {
        /// The address as clients reach it. Must be given.
        pub address: SocketAddr = SocketAddr::from(([192, 0, 2, 1], 443));
        /// What it speaks: links over quic, tls and ws; h3 for short links; pipe and plain over plain HTTP.
        pub speaks: Vec<Speaks> = vec![Speaks::Quic, Speaks::Tls, Speaks::Ws];
        /// Name on the certificate there. `gateway.name` when not given.
        pub gateway: Option<String> [such("a lower-case host name", is_host_given)] = None, "gw.example.com";
        /// Name of the sealed pipe there, the `pipe.name` of that gateway. The name on its certificate when not given.
        pub pipe_name: Option<String> [such(PIPE_NAME, is_pipe_name_given)] = None, "north-1";
        /// Network operator that the address belongs to, one of the `[[operator]]` names.
        pub operator: String = String::new();
        /// Region that it stands in.
        pub region: String = String::new();
    }
}

section! {
    /// Where short links to one host may go besides its name. Hosts of routes go to the access points by default.
    pub struct HostConfig {
        /// Its name, or "*.HOST" for all names below one. Must be given.
        pub name: String [such(r#"a lower-case host name or "*.HOST""#, is_host_pattern)] = "api.example.com".to_owned();
        /// Its addresses as IP or IP:PORT; without a port, that of the URL.
        pub addresses: Vec<HostAddress> = Vec::new();
        /// It speaks HTTP/3.
        pub speaks_h3: bool = false;
        /// Name of the query parameter that tells routes of this host apart.
        pub route_key: String = String::new();
        /// Name servers may answer it with private addresses. Clients refuse those otherwise, where they are not `addresses`.
        pub private: bool = false;
    }
}

section! {
    /// A network operator: its clients get the addresses first that belong to it.
    pub struct OperatorConfig {
        /// Its name. Must be given.
        pub name: String [such("a non-empty name without spaces", is_word)] = "operator-1".to_owned();
        /// Its clients, as prefixes in CIDR; the longest that fits counts.
        pub prefixes: Vec<Prefix> = Vec::new();
    }
}

section! {
    /// What the gateway asks of clients. Where a key is not given, clients go by their own constants.
    pub struct PolicyConfig {
        /// Time to the first byte of an answer, before the bytes to be sent and any waiting are added. The first try
        /// of a request has half of it, those from the third on half as much again.
        pub first_byte_base: Option<Duration> [between(Some(SECOND), Some(MINUTE))] = None, "12s";
        /// Most of that time.
        pub first_byte_cap: Option<Duration> [between(Some(SECOND), Some(2 * MINUTE))] = None, "22s";
        /// Slowest rate that is waited for, in bytes a second.
        pub rate_min_bytes_per_s: Option<u32> [between(Some(256), Some(16 << 20))] = None, 12288;
        /// Longest pause between two bytes of an answer.
        pub gap: Option<Duration> [between(Some(SECOND), Some(2 * MINUTE))] = None, "8s";
        /// Longest pause between two candidates of a race.
        pub stagger_max: Option<Duration> [between(Some(100 * MILLISECOND), Some(10 * SECOND))] = None, "2s";
        /// Resends of requests that may have been executed, per thousand requests.
        pub retry_budget_permille: Option<u32> [between(Some(0), Some(1_000))] = None, 200;
        /// Such resends that a client starts with.
        pub retry_budget_start: Option<u32> [between(Some(0), Some(100))] = None, 10;
        /// What holds for the requests of one place. The closest route counts alone.
        pub routes("route"): Vec<RoutePolicyConfig> = Vec::new();
    }
}

section! {
    /// What clients do with the requests of one host and path prefix. A `[[route]]` of the same place says the rest:
    /// `plain_http`, `server_time` and `upstream_honours_keys`.
    pub struct RoutePolicyConfig {
        /// Host of the requests, without a port; "*.HOST" for all names below one, "*" for every host.
        pub host: String [such(r#"a lower-case host name, "*.HOST" or "*""#, is_host_pattern)] = "*".to_owned();
        /// Start of the path of the requests, in whole segments.
        pub path_prefix: String [such(r#"a path that starts with "/""#, is_path_prefix)] = "/".to_owned();
        /// The ways in their order, each with its tries from 0 to 3: link, name, address, pipe, plain, original.
        pub ladder: Vec<LadderStep> = default_ladder();
        /// Requests of one client at once.
        pub concurrency_max: Option<u32> [between(Some(1), Some(1_000))] = None, 8;
        /// Identical GETs in flight may share one answer.
        pub coalesce: bool = true;
        /// Small uploads may travel together.
        pub batch: bool = false;
    }
}

/// What an address speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaks {
    /// Short links over HTTP/3.
    H3,
    /// The sealed pipe over plain HTTP.
    Pipe,
    /// Plain HTTP, where the route allows it.
    Plain,
    /// Links over QUIC.
    Quic,
    /// Links over TLS.
    Tls,
    /// Links over WebSocket.
    Ws,
}

/// A range of user slots, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// A prefix of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix(pub ipnet::IpNet);

impl Speaks {
    const ALL: [(Self, &'static str); 6] = [
        (Self::H3, "h3"),
        (Self::Pipe, "pipe"),
        (Self::Plain, "plain"),
        (Self::Quic, "quic"),
        (Self::Tls, "tls"),
        (Self::Ws, "ws"),
    ];
}

/// Declares how a type is read from and written as a text.
macro_rules! text_setting {
    ($type:ty, $expected:literal, $read:expr, $write:expr) => {
        impl Setting for $type {
            const EXPECTED: &'static str = $expected;

            fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
                let read: fn(&str) -> Option<Self> = $read;
                node.get_ref().as_str().and_then(read).or_else(|| reader.refuse::<Self>(node))
            }

            fn write(&self) -> String {
                let write: fn(&Self) -> String = $write;
                quoted(&write(self))
            }
        }
    };
}

text_setting!(
    HostAddress,
    "an IP address, with or without a port, in quotes",
    |text| text.parse().ok(),
    ToString::to_string
);
text_setting!(
    Speaks,
    r#""quic", "tls", "ws", "h3", "pipe" or "plain""#,
    |text| Self::ALL.iter().find(|(_, name)| *name == text).map(|(speaks, _)| *speaks),
    |speaks| Self::ALL
        .iter()
        .find(|(known, _)| known == speaks)
        .map_or_else(String::new, |(_, name)| (*name).to_owned())
);
text_setting!(
    Slots,
    "\"FIRST-LAST\" within 0 and 65535",
    |text| {
        let (first, last) = text.split_once('-')?;
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first <= last).then_some(Self { first, last })
    },
    |slots| format!("{}-{}", slots.first, slots.last)
);
text_setting!(
    LadderStep,
    "a way and its tries from 0 to 3, such as \"link:2\"",
    |text| {
        let (way, tries) = text.split_once(':').unwrap_or((text, "1"));
        let tries = tries.parse().ok().filter(|tries| *tries <= ropeway_core::policy::TRIES_MAX)?;
        Some(Self { way: way.parse().ok()?, tries })
    },
    |step| format!("{}:{}", step.way, step.tries)
);
text_setting!(Prefix, "a prefix such as \"192.0.2.0/24\"", |text| text.parse().ok().map(Self), |prefix| prefix
    .0
    .to_string());

fn default_ladder() -> Vec<LadderStep> {
    DEFAULT_LADDER.to_vec()
}

fn is_host_given(host: &Option<String>) -> bool {
    host.as_deref().is_none_or(is_host)
}

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MONTH: Duration = Duration::from_secs(31 * 24 * 60 * 60);
