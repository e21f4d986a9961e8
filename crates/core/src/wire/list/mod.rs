//! The access list: the signed document that tells clients where gateways and hosts are. The prose is in
//! `docs/protocol/access-list.md`.
//!
//! [`Verifier`] turns bytes from anywhere into an [`AccessList`], or says why not. What it gives is within bounds: entries beyond
//! them, and entries that make no sense, are left out rather than the whole list refused.

pub mod message;
mod read;
mod unit_map;
mod verify;
mod write;

use std::{
    fmt,
    net::{AddrParseError, IpAddr, SocketAddr},
    str::FromStr,
};

use bytes::Bytes;

use crate::{CarrierKind, policy::Policy};

pub use unit_map::{UnitMap, UnitRange, slot, user_hash};
pub use verify::{
    ADDRESSES_AFTER_EXPIRY, EPOCH_TOLERANCE, FUTURE_TOLERANCE, LIST_CONTEXT, ListError, ListKey, TRUSTED_KEYS_MAX,
    Validity, Verifier,
};

/// Where gateways and hosts are, who belongs where, and what clients may do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessList {
    /// When it was issued, milliseconds since the Unix epoch: the newer of two lists has the larger one.
    pub epoch_ms: u64,
    /// Until when its permissions hold, milliseconds since the Unix epoch.
    pub expires_ms: u64,
    /// The sites, in the order in which they stand in for each other; at most [`UNITS_MAX`].
    pub units: Vec<Unit>,
    /// Where short links to hosts may go; at most [`HOSTS_MAX`].
    pub hosts: Vec<Host>,
    /// Addresses that are not to be used for a while; at most [`BANS_MAX`].
    pub bans: Vec<Ban>,
    /// Which unit owns which user.
    pub unit_map: UnitMap,
    /// Public keys of the sealed pipes, of each pipe the one to use first; at most [`PIPE_KEYS_MAX`].
    pub pipe_keys: Vec<PipeKey>,
    /// Keys that sign answers over plain HTTP; at most [`PLAIN_KEYS_MAX`].
    pub plain_keys: Vec<PlainKey>,
    /// What gateways ask of clients.
    pub policy: Policy,
}

/// A site.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Its access points, in the order in which they are to be tried; at most [`ACCESS_POINTS_MAX`].
    pub access_points: Vec<AccessPoint>,
    /// Where it answers for the list over HTTPS; at most [`DISPATCH_MAX`].
    pub dispatch: Vec<SocketAddr>,
}

/// An address of a gateway and what it speaks there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessPoint {
    /// The address.
    pub address: SocketAddr,
    /// Carriers of links.
    pub carriers: Vec<CarrierKind>,
    /// It serves short links over HTTP/3.
    pub serves_h3: bool,
    /// It takes sealed pipe requests over plain HTTP.
    pub serves_pipe: bool,
    /// It serves routes that allow it over plain HTTP.
    pub serves_plain: bool,
    /// Name on the gateway's certificate; empty leaves it to the client's own settings.
    pub gateway: String,
    /// Network operator the address belongs to, or empty.
    pub operator: String,
    /// Region it stands in, or empty.
    pub region: String,
    /// Name of the sealed pipe there, that of its key; empty where there is none.
    pub pipe_name: String,
}

/// A host of short links.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Its name in lower case, without a port; `*.` at the start stands for any name before it.
    pub name: String,
    /// Where it is; at most [`HOST_ADDRESSES_MAX`].
    pub addresses: Vec<HostAddress>,
    /// It speaks HTTP/3.
    pub speaks_h3: bool,
    /// Name of the query parameter that tells routes of this host apart, or empty.
    pub route_key: String,
    /// Name servers may answer it with private addresses; otherwise only those of the list are believed.
    pub private: bool,
}

/// An address of a host, with a port where it is not the URL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostAddress {
    /// The IP address.
    pub ip: IpAddr,
    /// The port; `None` takes that of the URL.
    pub port: Option<u16>,
}

/// An address that is not to be used for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The address; without a port, all of them.
    pub address: HostAddress,
    /// Until when, milliseconds since the Unix epoch.
    pub until_ms: u64,
}

/// A public key of the sealed pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeKey {
    /// Its identifier in requests, RFC 9458 section 3.1.
    pub key_id: u8,
    /// The key configuration of RFC 9458 section 3.1.
    pub config: Bytes,
    /// Until when its gateway takes it, milliseconds since the Unix epoch.
    pub expires_ms: u64,
    /// Which pipe it is for, as [`AccessPoint::pipe_name`]; never empty.
    pub name: String,
}

/// An Ed25519 key that signs answers over plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainKey {
    /// Its name in answers.
    pub key_id: String,
    /// The key.
    pub public_key: [u8; 32],
    /// Until when it is believed, milliseconds since the Unix epoch.
    pub expires_ms: u64,
}

impl AccessList {
    /// Finds what the list says of a host: the entry of its full name, else of the longest `*.` that covers it.
    #[must_use]
    pub fn host(&self, name: &str) -> Option<&Host> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        self.hosts.iter().find(|host| host.name == name).or_else(|| {
            let covers = |host: &&Host| host.name.strip_prefix('*').is_some_and(|suffix| name.ends_with(suffix));
            self.hosts.iter().filter(covers).max_by_key(|host| host.name.len())
        })
    }

    /// Finds the key that requests for the sealed pipe of an access point are sealed with; `None` where there is no such pipe, or no
    /// key of its name that has not expired.
    #[must_use]
    pub fn pipe_key(&self, point: &AccessPoint, wall_ms: u64) -> Option<&PipeKey> {
        let fits = |key: &&PipeKey| key.name == point.pipe_name && key.expires_ms > wall_ms;
        self.pipe_keys.iter().find(fits).filter(|_| point.serves_pipe)
    }

    /// Finds a unit by its name.
    #[must_use]
    pub fn unit(&self, name: &str) -> Option<&Unit> {
        self.units.iter().find(|unit| unit.name == name)
    }

    /// Says whether an address is banned.
    #[must_use]
    pub fn is_banned(&self, address: SocketAddr, wall_ms: u64) -> bool {
        self.bans.iter().any(|ban| {
            let port_fits = ban.address.port.is_none_or(|port| port == address.port());
            ban.until_ms > wall_ms && ban.address.ip == address.ip() && port_fits
        })
    }
}

impl AccessPoint {
    /// Makes an access point that speaks these carriers and nothing else.
    #[must_use]
    pub fn new(address: SocketAddr, carriers: impl IntoIterator<Item = CarrierKind>) -> Self {
        Self {
            address,
            carriers: carriers.into_iter().collect(),
            serves_h3: false,
            serves_pipe: false,
            serves_plain: false,
            gateway: String::new(),
            operator: String::new(),
            region: String::new(),
            pipe_name: String::new(),
        }
    }
}

impl From<SocketAddr> for HostAddress {
    fn from(address: SocketAddr) -> Self {
        Self { ip: address.ip(), port: Some(address.port()) }
    }
}

impl From<IpAddr> for HostAddress {
    fn from(ip: IpAddr) -> Self {
        Self { ip, port: None }
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.ip, port).fmt(f),
            None => self.ip.fmt(f),
        }
    }
}

impl FromStr for HostAddress {
    type Err = AddrParseError;

    /// Reads an IP address, or one with a port as `192.0.2.1:443` or `[2001:db8::1]:443`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<SocketAddr>().map(Self::from).or_else(|_| text.parse::<IpAddr>().map(Self::from))
    }
}

impl HostAddress {
    /// Returns where to connect for a URL of this port.
    #[must_use]
    pub fn at(self, url_port: u16) -> SocketAddr {
        SocketAddr::new(self.ip, self.port.unwrap_or(url_port))
    }
}

/// Authority of requests that are for the gateway itself (DESIGN section 4).
pub const INTERNAL_AUTHORITY: &str = "ropeway.internal";

/// Path of the signed list on every authority of a gateway.
pub const LIST_PATH: &str = "/.ropeway/list";

/// Path of HTTPDNS on every authority of a gateway.
pub const RESOLVE_PATH: &str = "/.ropeway/resolve";

/// Path of DNS over HTTPS, as in the examples of RFC 8484; on a gateway's own name, on addresses and on [`INTERNAL_AUTHORITY`], for
/// elsewhere it may be a path of the service.
pub const DNS_PATH: &str = "/dns-query";

/// Media type of a signed list.
pub const LIST_MEDIA_TYPE: &str = "application/vnd.ropeway.list";

/// Context of the signature under an answer of HTTPDNS.
pub const RESOLVE_CONTEXT: &str = "ropeway resolve v1";

/// Header of that signature: the name of the key, a semicolon, the signature in Base64.
pub const SIGNATURE_HEADER: &str = "ropeway-signature";

/// Hosts of one query of HTTPDNS. 8, as many as Tencent's takes.
pub const RESOLVE_HOSTS_MAX: usize = 8;

/// Bytes of a signed list that are read. 256 KiB: 10,000 IPv6 addresses with their framing and room for the rest; our choice.
pub const LIST_BYTES_MAX: usize = 256 * 1024;

/// Units of a list. 64; more sites than any of the systems in the comparison of dispatchers names. Our choice.
pub const UNITS_MAX: usize = 64;

/// Access points of one unit. 64, as many candidates as a client keeps of all sources together
/// ([`CANDIDATES_MAX`](crate::connect::candidate::CANDIDATES_MAX)).
pub const ACCESS_POINTS_MAX: usize = 64;

/// Dispatch addresses of one unit. 8; two units are asked at once, at two addresses each.
pub const DISPATCH_MAX: usize = 8;

/// Hosts of a list. 1,000, as many as a client takes of WELCOME.
pub const HOSTS_MAX: usize = 1_000;

/// Addresses of one host. 32, the first ones; a ladder tries a handful, the others are room for bans. Our choice.
pub const HOST_ADDRESSES_MAX: usize = 32;

/// Bans of a list. 1,024; our choice.
pub const BANS_MAX: usize = 1_024;

/// Ranges of the unit map. 1,024; our choice.
pub const RANGES_MAX: usize = 1_024;

/// Overrides of the unit map. 4,096, 64 KiB at 16 bytes; our choice.
pub const OVERRIDES_MAX: usize = 4_096;

/// Keys of sealed pipes. 256: one of each of four gateways in 64 units, 25 KB. Our choice.
pub const PIPE_KEYS_MAX: usize = 256;

/// Keys that sign answers over plain HTTP. 8: gateways share one, and room for those that do not and for a change. Our choice.
pub const PLAIN_KEYS_MAX: usize = 8;

/// Bytes of a name. 253, the longest host name (RFC 1035 section 3.1).
pub const NAME_BYTES_MAX: usize = 253;

/// Bytes of a key configuration. 1 KiB; one with X25519 and two cipher suites takes 45.
pub const KEY_CONFIG_BYTES_MAX: usize = 1_024;

#[cfg(test)]
mod tests;
