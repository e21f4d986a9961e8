//! Which of several gateways, or of several addresses of a host, the next try of a way goes to.

use std::net::SocketAddr;

use crate::{
    CarrierKind, Time,
    connect::{Candidate, Records},
};

/// Picks one of several places, each an address and the name of its site, and returns its number.
///
/// A site that the request has not tried goes first, or else the one whose last try is longest ago; so does an address of the site.
/// Then goes one that has not failed too often on this network, then one of the family of addresses that fails less there, then the order
/// in which they are given. `None` if there is no place at all.
///
/// `tried` has the oldest try first.
#[must_use]
pub fn pick(places: &[(SocketAddr, &str)], tried: &[SocketAddr], records: &Records, now: Time) -> Option<usize> {
    let site_at = |wanted: &str| {
        let is_there = |tried: &SocketAddr| places.iter().any(|(address, site)| address == tried && *site == wanted);
        tried.iter().rposition(is_there)
    };
    let family = records.prefers_ipv6(now);
    let rank = |(number, (address, site)): (usize, &(SocketAddr, &str))| {
        let is_banned = records.get(spot(*address), now).is_some_and(|record| record.banned_until(now).is_some());
        let tried_at = tried.iter().rposition(|tried| tried == address);
        let is_worse = family.is_some_and(|is_ipv6| is_ipv6 != address.is_ipv6());
        ((site_at(site), tried_at, is_banned, is_worse), number)
    };
    places.iter().enumerate().map(rank).min().map(|(_, number)| number)
}

/// Leaves out the places that tries of the request have gone to, for one that races those that are left. Where all have been tried, those
/// stay whose last try is longest ago: all of them, if one try went to all.
///
/// `last_try` returns the number of the last try that went to a place.
#[must_use]
pub fn fresh<P: Copy>(places: &[P], last_try: impl Fn(&P) -> Option<usize>) -> Vec<P> {
    let oldest = places.iter().map(&last_try).min().flatten();
    places.iter().copied().filter(|place| last_try(place) == oldest).collect()
}

/// Returns what stands for an address in the records of a way that opens a connection for each request.
#[must_use]
pub const fn spot(address: SocketAddr) -> Candidate {
    // The carrier only names the record.
    Candidate { address, carrier: CarrierKind::Tls }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::connect::{FailReason, Score};

    fn address(last: u8) -> SocketAddr {
        ([192, 0, 2, last], 80).into()
    }

    #[test]
    fn each_try_goes_to_another_site_then_to_another_address() {
        let places = [(address(1), "a"), (address(2), "a"), (address(3), "b")];
        let (mut tried, records) = (Vec::new(), Records::new());
        for expected in [1, 3, 2, 3, 1, 3, 2] {
            let number = pick(&places, &tried, &records, Time::ZERO).unwrap();
            assert_eq!(places[number].0, address(expected), "after {tried:?}");
            tried.push(places[number].0);
        }
        assert_eq!(pick(&[], &[], &records, Time::ZERO), None);
    }

    #[test]
    fn places_that_were_tried_are_left_out_until_all_were_and_then_the_newest() {
        let tries: [(&[&[u8]], &[u8]); 8] = [
            (&[], &[1, 2, 3]),
            (&[&[2]], &[1, 3]),
            (&[&[2], &[9], &[2]], &[1, 3]),
            (&[&[2], &[1]], &[3]),
            (&[&[2], &[1], &[3]], &[2]),
            (&[&[2], &[1], &[3], &[2]], &[1]),
            (&[&[1, 2, 3]], &[1, 2, 3]),
            (&[&[2], &[1, 3]], &[2]),
        ];
        for (tried, expected) in tries {
            let last_try = |place: &u8| tried.iter().rposition(|places| places.contains(place));
            assert_eq!(fresh(&[1, 2, 3], last_try), expected, "{tried:?}");
        }
        assert!(fresh(&[], |_: &u8| None).is_empty());
    }

    #[test]
    fn of_one_site_the_family_that_fails_less_goes_first() {
        let v6: SocketAddr = "[2001:db8::1]:80".parse().unwrap();
        let places = [(v6, "a"), (address(1), "a")];
        let mut records = Records::new();
        assert_eq!(pick(&places, &[], &records, Time::ZERO), Some(0));
        let elsewhere = "[2001:db8::2]:80".parse().unwrap();
        records.observe(spot(elsewhere), Score::Failure(FailReason::TimedOut), Time::ZERO);
        assert_eq!(pick(&places, &[], &records, Time::ZERO), Some(1));
    }

    #[test]
    fn what_failed_again_and_again_is_picked_last() {
        let places = [(address(1), "a"), (address(2), "a")];
        let (mut records, mut now) = (Records::new(), Time::ZERO);
        for _ in 0..3 {
            records.observe(spot(address(1)), Score::Failure(FailReason::TimedOut), now);
            now += Duration::from_secs(11);
        }
        assert_eq!(pick(&places, &[], &records, now), Some(1));
        assert_eq!(pick(&places[..1], &[], &records, now), Some(0), "there is no other");
    }
}
