//! Which of several gateways the next try of a way goes to.

use std::net::SocketAddr;

use crate::{
    CarrierKind, Time,
    connect::{Candidate, Records},
};

/// Picks one of several places, each an address and the name of its site, and returns its number.
///
/// A site that the request has not tried goes first, then an address that it has not, then one that has not failed too often on this
/// network, then the order in which they are given. `None` if there is no place at all.
#[must_use]
pub fn pick(places: &[(SocketAddr, &str)], tried: &[SocketAddr], records: &Records, now: Time) -> Option<usize> {
    let sites: Vec<&str> =
        places.iter().filter(|(address, _)| tried.contains(address)).map(|(_, site)| *site).collect();
    let rank = |(number, (address, site)): (usize, &(SocketAddr, &str))| {
        let is_banned = records.get(spot(*address), now).is_some_and(|record| record.banned_until(now).is_some());
        ((sites.contains(site), tried.contains(address), is_banned), number)
    };
    places.iter().enumerate().map(rank).min().map(|(_, number)| number)
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
        for expected in [1, 3, 2, 1] {
            let number = pick(&places, &tried, &records, Time::ZERO).unwrap();
            assert_eq!(places[number].0, address(expected));
            tried.push(places[number].0);
            if tried.len() == 3 {
                tried.clear();
            }
        }
        assert_eq!(pick(&[], &[], &records, Time::ZERO), None);
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
