//! Names and lists from the network: the system's name servers, DNS over HTTPS, HTTPDNS, and the signed access list.
//!
//! Each is asked one thing at a time and has no deadline in here; whoever asks sets one. What came is not judged: that is
//! `ropeway_core::connect::sources`'s.

mod doh;
mod error;
mod httpdns;
mod https;
mod system;

use std::time::Duration;

use ropeway_core::wire::list::HostAddress;

pub use self::{
    doh::Doh,
    error::DnsError,
    httpdns::{Dispatch, Fetched, FetchedList, Signed},
    https::web_config,
    system::SystemResolver,
};

/// Addresses of a host, and how long they may be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The addresses; none where the host exists and has none of this kind.
    pub addresses: Vec<HostAddress>,
    /// How long the answer may be kept.
    pub ttl: Duration,
}

/// What an HTTPS record (RFC 9460) says of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// Application protocols, such as `h3`.
    pub protocols: Vec<String>,
    /// The port, where it is not that of the URL.
    pub port: Option<u16>,
    /// Addresses to begin with, with the record's port where it has one.
    pub hints: Vec<HostAddress>,
    /// How long the record may be kept.
    pub ttl: Duration,
}

/// Returns the name that the HTTPS record for URLs of a host with this port has (RFC 9460 section 9.1).
fn binding_name(host: &str, port: u16) -> String {
    if port == HTTPS_PORT { host.to_owned() } else { format!("_{port}._https.{host}") }
}

/// Kinds of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// IPv4, A records.
    V4,
    /// IPv6, AAAA records.
    V6,
}

/// The port of `https` URLs that name none (RFC 9110 section 4.2.2).
const HTTPS_PORT: u16 = 443;

/// Addresses taken from one answer. 1,024; a message of 64 KiB holds 4,000, and nobody tries as many.
const ADDRESSES_MAX: usize = 1_024;
