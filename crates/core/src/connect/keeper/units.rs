//! Which unit a place belongs to, where sessions are at home, and which units are avoided.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use super::{Place, Unit};
use crate::Time;

/// What a keeper knows of units.
#[derive(Clone, Debug, Default)]
pub(super) struct Units {
    /// The unit of each place that names one.
    places: BTreeMap<SocketAddr, Unit>,
    /// Of each session that had a link.
    homes: BTreeMap<u64, Home>,
    avoided: BTreeMap<Unit, Avoided>,
}

/// Where a session had its last link.
#[derive(Clone, Debug)]
struct Home {
    address: SocketAddr,
    /// Which may become known later, as a list arrives; it stays where a later list does not name the address.
    unit: Option<Unit>,
}

/// A unit that was left.
#[derive(Clone, Copy, Debug)]
struct Avoided {
    until: Time,
    times: u32,
    /// Its way is rough; it serves whoever has no other.
    serves: bool,
}

impl Units {
    /// Takes in the places that are known from now on.
    pub(super) fn handle_places(&mut self, places: &[Place]) {
        self.places = places.iter().filter_map(|place| Some((place.candidate.address, place.unit.clone()?))).collect();
        for session in self.homes.keys().copied().collect::<Vec<_>>() {
            self.look_up(session);
        }
    }

    /// Takes in that a session has a link to an address.
    pub(super) fn handle_open(&mut self, session: u64, address: SocketAddr) {
        self.homes.insert(session, Home { address, unit: None });
        self.look_up(session);
    }

    /// Takes in that a session is over.
    pub(super) fn handle_over(&mut self, session: u64) {
        self.homes.remove(&session);
    }

    /// Returns the unit of an address; of one at an unknown port, that of its host's others if they have one in common.
    pub(super) fn of(&self, address: SocketAddr) -> Option<&Unit> {
        self.places.get(&address).or_else(|| {
            let mut of_host = self.places.iter().filter(|(known, _)| known.ip() == address.ip()).map(|(_, unit)| unit);
            let first = of_host.next()?;
            of_host.all(|unit| unit == first).then_some(first)
        })
    }

    /// Returns the unit where a session is at home, where that is known.
    pub(super) fn home(&self, session: u64) -> Option<&Unit> {
        self.homes.get(&session)?.unit.as_ref()
    }

    /// Says whether an address is known to belong to another unit than a session.
    pub(super) fn leads_elsewhere(&self, session: u64, address: SocketAddr) -> bool {
        match (self.home(session), self.of(address)) {
            (Some(home), Some(unit)) => home != unit,
            (Some(_) | None, _) => false,
        }
    }

    /// Says whether there is a unit that a session could be left for.
    pub(super) fn has_other(&self, session: u64, now: Time) -> bool {
        let Some(home) = self.home(session) else { return false };
        let may_serve =
            |unit: &Unit| !self.is_avoided(unit, now) || self.avoided.get(unit).is_some_and(|avoided| avoided.serves);
        self.places.values().any(|unit| unit != home && may_serve(unit))
    }

    /// Lets the others come before a unit for a while; `serves` says that it is good enough for whoever has no other.
    pub(super) fn avoid(&mut self, unit: Unit, serves: bool, now: Time) {
        let times = self.avoided.get(&unit).map_or(1, |avoided| avoided.times.saturating_add(1));
        let wait = AVOID_STEP.saturating_mul(1 << (times - 1).min(AVOID_DOUBLINGS_MAX)).min(AVOID_MAX);
        self.avoided.insert(unit, Avoided { until: now + wait, times, serves });
    }

    /// Says whether others come before a unit.
    pub(super) fn is_avoided(&self, unit: &Unit, now: Time) -> bool {
        self.avoided.get(unit).is_some_and(|avoided| now < avoided.until)
    }

    /// Forgets the units that have not been avoided for long.
    pub(super) fn forget_avoided(&mut self, now: Time) {
        self.avoided.retain(|_, avoided| now < avoided.until + AVOID_MAX);
    }

    fn look_up(&mut self, session: u64) {
        let Some(Home { address, unit: None }) = self.homes.get(&session) else { return };
        let unit = self.of(*address).cloned();
        if let Some(home) = self.homes.get_mut(&session) {
            home.unit = unit;
        }
    }
}

/// How long a unit is avoided that did not serve, doubled each time up to [`AVOID_MAX`]. 60 s; our choice: a few times as long as a
/// balancer takes to find a dead backend.
const AVOID_STEP: Duration = Duration::from_secs(60);

/// Longest time that a unit is avoided. 30 min; the longest ban of an address in Mars (`simple_ipport_sort.cc`).
pub(super) const AVOID_MAX: Duration = Duration::from_mins(30);

/// Doublings that are counted: 60 s doubled five times is beyond [`AVOID_MAX`].
const AVOID_DOUBLINGS_MAX: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CarrierKind,
        connect::{Candidate, Source},
    };

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    fn place(port: u16, unit: Option<&str>) -> Place {
        let candidate = Candidate { address: address(port), carrier: CarrierKind::Tls };
        Place { candidate, source: Source::Config, unit: unit.map(Unit::from), gateway: None }
    }

    #[test]
    fn units_at_one_host_are_told_apart_by_their_ports() {
        let mut units = Units::default();
        units.handle_places(&[place(1, Some("a")), place(2, Some("b"))]);
        units.handle_open(7, address(1));
        assert_eq!([1, 2].map(|port| units.leads_elsewhere(7, address(port))), [false, true]);
        assert_eq!(units.of(address(3)), None, "the host has two units");
        units.handle_places(&[place(1, Some("a"))]);
        assert_eq!(units.of(address(3)), Some(&"a".into()), "it has one");
    }

    #[test]
    fn the_home_of_a_session_becomes_known_with_a_later_list_and_stays_so() {
        let mut units = Units::default();
        units.handle_places(&[place(1, None), place(2, None)]);
        units.handle_open(7, address(1));
        assert!(!units.leads_elsewhere(7, address(2)), "nobody knows");
        units.handle_places(&[place(1, Some("a")), place(2, Some("b"))]);
        assert!(units.leads_elsewhere(7, address(2)));
        assert!(units.has_other(7, Time::ZERO));
        units.handle_places(&[place(2, Some("b"))]);
        assert!(units.leads_elsewhere(7, address(2)), "a list without its address changes nothing");
        units.handle_over(7);
        assert!(!units.leads_elsewhere(7, address(2)));
    }
}
