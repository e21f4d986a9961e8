//! Addresses that no host of the public internet has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Says whether a host of the public internet can have this address: none of the ranges that the IANA keeps for other uses (RFC 6890
/// and the registries it founded). The ranges for benchmarks (RFC 2544, RFC 5180) count as public: nobody hijacks a name with them,
/// and test networks stand in them.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(ip) => is_public_v4(ip),
        IpAddr::V6(ip) => is_public_v6(ip),
    }
}

const fn is_public_v4(ip: Ipv4Addr) -> bool {
    let special = match ip.octets() {
        // This network, RFC 791.
        [0, ..] => true,
        // Private use, RFC 1918; loopback, RFC 1122; link-local, RFC 3927.
        [10 | 127, ..] | [172, 16..=31, ..] | [192, 168, ..] | [169, 254, ..] => true,
        // Carrier-grade NAT, RFC 6598.
        [100, 64..=127, ..] => true,
        // Documentation, RFC 5737; protocol assignments, RFC 6890.
        [192, 0, 0 | 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => true,
        // Multicast, reserved and broadcast, RFC 1112.
        [224..=255, ..] => true,
        _ => false,
    };
    !special
}

fn is_public_v6(ip: Ipv6Addr) -> bool {
    match ip.segments() {
        // An IPv4 address behind a NAT64, RFC 6052: as public as that.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => is_public_v4(Ipv4Addr::from((u32::from(high) << 16) | u32::from(low))),
        // Documentation, RFC 3849 and RFC 9637; ORCHID, RFC 7343.
        [0x2001, 0xdb8, ..] | [0x3fff, 0..=0xfff, ..] | [0x2001, 0x20..=0x2f, ..] => false,
        // Global unicast is 2000::/3, RFC 4291 section 2.4 and the registry; everything else is loopback, link-local, unique local,
        // multicast or unassigned.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_ranges_are_not_public_and_their_neighbours_are() {
        for (address, public) in [
            ("0.0.0.1", false),
            ("1.1.1.1", true),
            ("9.255.255.255", true),
            ("10.0.0.1", false),
            ("11.0.0.0", true),
            ("100.63.255.255", true),
            ("100.64.0.1", false),
            ("100.128.0.0", true),
            ("127.0.0.2", false),
            ("169.254.1.1", false),
            ("172.15.0.1", true),
            ("172.31.255.255", false),
            ("172.32.0.1", true),
            ("192.0.2.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", true),
            ("198.51.100.7", false),
            ("203.0.113.7", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::1", false),
            ("::ffff:10.0.0.1", false),
            ("::ffff:1.1.1.1", true),
            ("64:ff9b::a00:1", false),
            ("64:ff9b::101:101", true),
            ("2001:db8::1", false),
            ("2001:4860:4860::8888", true),
            ("2400:3200::1", true),
            ("fc00::1", false),
            ("fd12::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("4000::1", false),
        ] {
            assert_eq!(is_public(address.parse().unwrap()), public, "{address}");
        }
    }
}
