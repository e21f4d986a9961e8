//! Who has which address: numbers of a lab, the same in every lab, since each has namespaces of its own.
//!
//! Public-looking addresses are of ranges that nobody has: 198.18.0.0/15 for benchmarks (RFC 2544), 198.51.100.0/24 and
//! 2001:db8::/32 for documents (RFC 5737, RFC 3849). Unique local IPv6 addresses would hide faults of IPv6, since
//! resolvers put IPv4 before them.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    time::Duration,
};

use ropeway_core::sim::Scenario;

/// Addresses of one lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The access links; the first has the default route.
    pub links: Vec<LinkPlan>,
    /// The sites; there is at least one.
    pub sites: Vec<SitePlan>,
}

/// One access link between the client and its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkPlan {
    /// Name in the scenario, such as `cell`.
    pub name: String,
    /// Name of the interface, the same at both ends.
    pub interface: String,
    /// Network of the client's address, of which the provider has `.1` and the client `.2`, after a change of address
    /// `.3` and so on.
    pub v4_network: [u8; 3],
    /// The same for IPv6.
    pub v6_network: [u16; 4],
    /// Number of the routing table for what is sent from this link's address.
    pub table: u32,
}

/// One site: a data centre with the addresses of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SitePlan {
    /// Name in the scenario, such as `a`.
    pub name: String,
    /// Name of the interface between provider and site, the same at both ends.
    pub interface: String,
    /// Delay beyond that of the access link, both ways together.
    pub extra_rtt: Duration,
    /// Network of the IPv4 addresses.
    pub v4_network: [u8; 3],
    /// Network of the IPv6 addresses.
    pub v6_network: [u16; 4],
    /// IPv4 addresses.
    pub v4: Vec<Ipv4Addr>,
    /// IPv6 addresses.
    pub v6: Vec<Ipv6Addr>,
    /// The provider's address on the way to this site, which the site sees clients come from.
    pub nat: Ipv4Addr,
    /// The provider's IPv6 address on the way to this site.
    pub gateway_v6: Ipv6Addr,
    /// The site's own addresses on that way.
    pub router: (Ipv4Addr, Ipv6Addr),
    /// Number of the routing table for what this site answers.
    pub table: u32,
    /// Where what stands at this site finds the backend: an address of its own, so that the way can be cut for one site alone.
    pub backend: Ipv4Addr,
}

impl LinkPlan {
    /// Plans an access link by its name, `cell` or `wifi`, and its place among the links of its scenario.
    #[must_use]
    pub fn new(name: &str, index: usize) -> Self {
        // Wi-Fi as a phone gives it, and else an address behind a carrier's NAT.
        let (v4_network, v6_network) = match name {
            "wifi" => ([192, 168, 43], [0x2001, 0xdb8, 0x43, 0]),
            _ => ([10, 64, 0], [0x2001, 0xdb8, 0x64, 0]),
        };
        Self {
            name: name.to_owned(),
            interface: format!("{name}0"),
            v4_network,
            v6_network,
            table: FIRST_LINK_TABLE + index as u32,
        }
    }

    /// Gives the client's address after `changes` changes of it.
    #[must_use]
    pub fn client(&self, changes: u32) -> (Ipv4Addr, Ipv6Addr) {
        let host = 2 + changes % ADDRESSES_MAX;
        (v4(self.v4_network, host), v6(self.v6_network, host))
    }

    /// Gives the provider's address.
    #[must_use]
    pub fn provider(&self) -> (Ipv4Addr, Ipv6Addr) {
        (v4(self.v4_network, 1), v6(self.v6_network, 1))
    }
}

impl SitePlan {
    /// Plans the site of an index with so many addresses.
    #[must_use]
    pub fn new(name: &str, index: usize, addresses: (u32, u32), extra_rtt: Duration) -> Self {
        let number = narrow(index);
        let (v4_network, v6_network) = match number.checked_sub(1) {
            None => ([198, 18, 0], [0x2001, 0xdb8, 0x18, 0]),
            Some(other) => ([198, 19, other], [0x2001, 0xdb8, 0x19, other.into()]),
        };
        let between = [198, 51, 100];
        let between_v6 = [0x2001, 0xdb8, 0x66, number.into()];
        let host = 4 * u32::from(number);
        Self {
            name: name.to_owned(),
            interface: SITE_INTERFACES.replace('*', name),
            extra_rtt,
            v4_network,
            v6_network,
            v4: (0..addresses.0).map(|at| v4(v4_network, FIRST_HOST + at)).collect(),
            v6: (0..addresses.1).map(|at| v6(v6_network, FIRST_HOST_V6 + at)).collect(),
            nat: v4(between, host + 1),
            gateway_v6: v6(between_v6, 1),
            router: (v4(between, host + 2), v6(between_v6, 2)),
            table: FIRST_SITE_TABLE + u32::from(number),
            backend: v4(BACKEND_NETWORK, FIRST_BACKEND_HOST + u32::from(number)),
        }
    }

    /// Gives every address of the site, IPv4 first.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.v4.iter().copied().map(IpAddr::V4).chain(self.v6.iter().copied().map(IpAddr::V6))
    }
}

impl Plan {
    /// Plans the network of a scenario.
    #[must_use]
    pub fn of(scenario: &Scenario) -> Self {
        let links = scenario.access.iter().enumerate().map(|(index, link)| LinkPlan::new(&link.name, index));
        let sites = scenario.sites.iter().enumerate();
        let sites = sites.map(|(index, site)| SitePlan::new(&site.name, index, (site.v4, site.v6), site.extra_rtt));
        Self { links: links.collect(), sites: sites.collect() }
    }

    /// Gives every address of every site, IPv4 first within a site.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.sites.iter().flat_map(SitePlan::addresses)
    }

    /// Finds an access link by its name in the scenario.
    #[must_use]
    pub fn link(&self, name: &str) -> Option<&LinkPlan> {
        self.links.iter().find(|link| link.name == name)
    }

    /// Finds a site by its name.
    #[must_use]
    pub fn site(&self, name: &str) -> Option<&SitePlan> {
        self.sites.iter().find(|site| site.name == name)
    }
}

fn v4([a, b, c]: [u8; 3], host: u32) -> Ipv4Addr {
    Ipv4Addr::new(a, b, c, host as u8)
}

fn v6([a, b, c, d]: [u16; 4], host: u32) -> Ipv6Addr {
    Ipv6Addr::new(a, b, c, d, 0, 0, 0, host as u16)
}

/// Scenarios have a handful of links and sites; their parser sees to it.
fn narrow(index: usize) -> u8 {
    u8::try_from(index).expect("a scenario has a handful of links and sites")
}

/// Name of the origin.
pub(crate) const ORIGIN_NAME: &str = "api.test";

/// The name server that clients are given; it stands beside the servers, those that lie with the provider.
pub(crate) const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(198, 18, 1, 53);

/// The name server that answers in its place when names are hijacked.
pub(crate) const HIJACKER: Ipv4Addr = Ipv4Addr::new(198, 18, 9, 9);

/// The name server that knows no name.
pub(crate) const DENIER: Ipv4Addr = Ipv4Addr::new(198, 18, 9, 10);

/// The name server that answers 127.0.0.2 whatever it is asked.
pub(crate) const LOOPBACK_ANSWERER: Ipv4Addr = Ipv4Addr::new(198, 18, 9, 11);

/// Where hijacked names lead.
pub(crate) const HIJACKED_ORIGIN: Ipv4Addr = Ipv4Addr::new(198, 18, 9, 80);

/// The servers' address on the way to the backend.
pub(crate) const BACKEND_CLIENT: Ipv4Addr = Ipv4Addr::new(10, 67, 0, 1);

/// Name of the interface between server and backend, at the server.
pub(crate) const BACKEND_INTERFACE: &str = "backend0";

/// Names of the interfaces between provider and sites, as a pattern.
pub(crate) const SITE_INTERFACES: &str = "site-*";

/// Bits of every IPv4 network here.
pub(crate) const V4_BITS: u8 = 24;

/// Bits of every IPv6 network here.
pub(crate) const V6_BITS: u8 = 64;

/// Network between servers and backend.
const BACKEND_NETWORK: [u8; 3] = [10, 67, 0];

/// Host number of the backend's address for the first site; those for the next sites follow.
const FIRST_BACKEND_HOST: u32 = 2;

/// Host number of a site's first IPv4 address.
const FIRST_HOST: u32 = 10;

/// Host number of a site's first IPv6 address, 0x10.
const FIRST_HOST_V6: u32 = 0x10;

/// Addresses that an access link goes through when it is given new ones; the first comes again after the last.
const ADDRESSES_MAX: u32 = 200;

/// Routing tables of access links start here; the kernel itself uses 253 to 255.
const FIRST_LINK_TABLE: u32 = 101;

/// Routing tables of sites start here.
const FIRST_SITE_TABLE: u32 = 111;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_sites_have_addresses_of_their_own() {
        let cell = LinkPlan::new("cell", 0);
        assert_eq!(cell.client(0).0.to_string(), "10.64.0.2");
        assert_eq!(cell.client(1).1.to_string(), "2001:db8:64::3");
        assert_eq!(LinkPlan::new("wifi", 1).client(0).0.to_string(), "192.168.43.2");

        let first = SitePlan::new("a", 0, (2, 1), Duration::ZERO);
        let second = SitePlan::new("b", 1, (1, 1), Duration::from_millis(8));
        assert_eq!([first.backend, second.backend].map(|address| address.to_string()), ["10.67.0.2", "10.67.0.3"]);
        let plan = Plan { links: vec![cell], sites: vec![first, second] };
        let addresses: Vec<String> = plan.addresses().map(|address| address.to_string()).collect();
        assert_eq!(addresses, ["198.18.0.10", "198.18.0.11", "2001:db8:18::10", "198.19.0.10", "2001:db8:19::10"],);
    }
}
