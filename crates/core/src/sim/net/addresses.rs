//! Which address belongs to which site: the plan of the lab.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use crate::sim::{Scenario, scenario::Family};

/// The addresses of every site.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    places: BTreeMap<IpAddr, AddressPlace>,
    ordered: Vec<IpAddr>,
}

/// Where an address belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressPlace {
    pub(crate) site: usize,
    pub(crate) family: Family,
    pub(crate) address: u32,
}

impl Addresses {
    /// Plans the addresses: of ranges for benchmarks (RFC 2544) and documents (RFC 3849), which nobody has.
    pub(super) fn of(scenario: &Scenario) -> Self {
        let mut places = BTreeMap::new();
        let mut ordered = Vec::new();
        for (site, plan) in scenario.sites.iter().enumerate() {
            let v4 = (0..plan.v4).map(|address| (Family::V4, address, v4(site, address)));
            let v6 = (0..plan.v6).map(|address| (Family::V6, address, v6(site, address)));
            for (family, address, ip) in v4.chain(v6) {
                ordered.push(ip);
                places.insert(ip, AddressPlace { site, family, address });
            }
        }
        Self { places, ordered }
    }

    /// Returns every address, site by site, IPv4 first.
    pub(crate) fn all(&self) -> impl Iterator<Item = IpAddr> {
        self.ordered.iter().copied()
    }

    pub(crate) fn place(&self, ip: IpAddr) -> Option<AddressPlace> {
        self.places.get(&ip).copied()
    }
}

fn v4(site: usize, address: u32) -> IpAddr {
    let host = FIRST_HOST + address as u8;
    IpAddr::V4(match site.checked_sub(1) {
        None => Ipv4Addr::new(198, 18, 0, host),
        Some(other) => Ipv4Addr::new(198, 19, other as u8, host),
    })
}

fn v6(site: usize, address: u32) -> IpAddr {
    let host = FIRST_HOST_V6 + address as u16;
    IpAddr::V6(match site.checked_sub(1) {
        None => Ipv6Addr::new(0x2001, 0xdb8, 0x18, 0, 0, 0, 0, host),
        Some(other) => Ipv6Addr::new(0x2001, 0xdb8, 0x19, other as u16, 0, 0, 0, host),
    })
}

/// Where hijacked names lead.
pub(crate) const HIJACKED: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 18, 9, 80));

const FIRST_HOST: u8 = 10;

const FIRST_HOST_V6: u16 = 0x10;
