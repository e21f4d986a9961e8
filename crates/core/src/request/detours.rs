//! Ways that do not get a host's requests across on this network for a while.

use std::{collections::BTreeMap, time::Duration};

use super::Way;
use crate::{Time, policy::LadderStep};

/// Remembers which ways failed to get requests handed over, so that the next requests take them last.
///
/// Nothing is given up: a way that is taken last is tried when the others fail, and comes back to its place when its time is over or
/// once it works. The link is never among them; how it is, its keeper says.
#[derive(Clone, Debug, Default)]
pub struct Detours {
    failed: BTreeMap<(String, Way), Failed>,
}

#[derive(Clone, Copy, Debug)]
struct Failed {
    until: Time,
    times: u32,
}

impl Detours {
    /// Makes the memory of a network of which nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        Self { failed: BTreeMap::new() }
    }

    /// Takes in that a request to this host was not handed over by this way: it is taken last for 30 s, and for twice as long with each
    /// further time, up to 10 min. What fails while it is taken last anyway changes nothing.
    pub fn handle_failed(&mut self, host: &str, way: Way, now: Time) {
        if way == Way::Link {
            return;
        }
        let key = (host.to_owned(), way);
        let known = self.failed.get(&key).copied().unwrap_or(Failed { until: Time::ZERO, times: 0 });
        if now < known.until {
            return;
        }
        if self.failed.len() >= DETOURS_MAX && !self.failed.contains_key(&key) {
            let soonest = self.failed.iter().min_by_key(|(_, failed)| failed.until).map(|(key, _)| key.clone());
            if let Some(soonest) = soonest {
                self.failed.remove(&soonest);
            }
        }
        let lasts = FAILED_FOR.saturating_mul(1 << known.times.min(FAILED_DOUBLINGS)).min(FAILED_FOR_MAX);
        self.failed.insert(key, Failed { until: now + lasts, times: known.times + 1 });
    }

    /// Takes in that a request to this host was handed over by this way.
    pub fn handle_worked(&mut self, host: &str, way: Way) {
        if !self.failed.is_empty() {
            self.failed.remove(&(host.to_owned(), way));
        }
    }

    /// Puts the ways last that failed lately, all else in its order.
    pub fn order(&self, host: &str, steps: &mut [LadderStep], now: Time) {
        let has_failed =
            |step: &LadderStep| self.failed.get(&(host.to_owned(), step.way)).is_some_and(|failed| now < failed.until);
        if !self.failed.is_empty() {
            steps.sort_by_key(has_failed);
        }
    }
}

/// How long a way that failed is taken last. 30 s; our choice: a burst of requests goes around it, the next burst looks again.
const FAILED_FOR: Duration = Duration::from_secs(30);

/// How long at most. 10 min; the longest time for which HTTP/3 is left alone after it failed is of this order in Chromium
/// (`broken_alternative_services.cc`: 5 min, doubling).
const FAILED_FOR_MAX: Duration = Duration::from_secs(600);

/// Doublings until the longest time is reached.
const FAILED_DOUBLINGS: u32 = 5;

/// Hosts and ways remembered. 512: two ways of as many hosts as connections are kept for.
const DETOURS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    fn order(detours: &Detours, now: Time) -> String {
        let mut steps = [Way::Link, Way::Name, Way::Address, Way::Pipe].map(|way| LadderStep { way, tries: 1 });
        detours.order("api.test", &mut steps, now);
        steps.map(|step| step.way.as_str()).join(" ")
    }

    #[test]
    fn what_failed_is_taken_last_for_longer_each_time_until_it_works() {
        let mut detours = Detours::new();
        detours.handle_failed("api.test", Way::Name, at(0));
        detours.handle_failed("other.test", Way::Address, at(0));
        detours.handle_failed("api.test", Way::Link, at(0));
        assert_eq!(order(&detours, at(29)), "link address pipe name");
        assert_eq!(order(&detours, at(30)), "link name address pipe");
        detours.handle_failed("api.test", Way::Name, at(30));
        detours.handle_failed("api.test", Way::Name, at(31));
        assert_eq!(order(&detours, at(89)), "link address pipe name");
        assert_eq!(order(&detours, at(90)), "link name address pipe");
        let mut now = 90;
        for lasts in [120, 240, 480, 600, 600] {
            detours.handle_failed("api.test", Way::Name, at(now));
            assert_eq!(order(&detours, at(now + lasts - 1)), "link address pipe name");
            now += lasts;
            assert_eq!(order(&detours, at(now)), "link name address pipe");
        }
        detours.handle_failed("api.test", Way::Name, at(now));
        detours.handle_worked("api.test", Way::Name);
        assert_eq!(order(&detours, at(now)), "link name address pipe");
    }

    #[test]
    fn where_everything_fails_the_order_stays_and_the_memory_is_bounded() {
        let mut detours = Detours::new();
        for way in [Way::Name, Way::Address, Way::Pipe] {
            detours.handle_failed("api.test", way, at(0));
        }
        assert_eq!(order(&detours, at(1)), "link name address pipe");
        for number in 0..2_000 {
            detours.handle_failed(&format!("{number}.test"), Way::Name, at(1));
        }
        assert_eq!(detours.failed.len(), DETOURS_MAX);
    }
}
