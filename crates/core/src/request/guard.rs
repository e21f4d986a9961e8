//! The frequency guard: finds a loop in the app, which sends one and the same request over and over.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    time::Duration,
};

use thiserror::Error;

use crate::Time;

/// When the same request is taken for a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// How often the same request may be sent within [`within`](Self::within). By default 105; Mars `stn/src/frequency_limit.cc`,
    /// `RECORD_INTERCEPT_COUNT`.
    pub times_max: u32,
    /// The time over which it is counted. By default 1 min, our choice: Mars counts for an hour, which would take a poll every half
    /// minute for a loop.
    pub within: Duration,
    /// Requests that are told apart; beyond it the one that came longest ago is forgotten. By default 256, our choice: Mars has 30, and
    /// a loop over a list of things is longer.
    pub remembered_max: usize,
}

/// What of a request says whether another is the same: method, URL and body. Two that differ have the same one with a chance of 2^-128.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64, u64);

/// The same request came too often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the same request was sent more than {times_max} times within {} s", within.as_secs_f32())]
pub struct TooFrequent {
    /// How often it may be sent.
    pub times_max: u32,
    /// Within which time.
    pub within: Duration,
}

/// Counts the same requests.
#[derive(Debug)]
pub struct Guard {
    config: GuardConfig,
    marks: BTreeMap<Fingerprint, Mark>,
    /// By last use, the one that came longest ago first.
    uses: BTreeMap<u64, Fingerprint>,
    next: u64,
}

#[derive(Debug)]
struct Mark {
    since: Time,
    times: u32,
    used: u64,
}

impl Fingerprint {
    /// Makes that of a request.
    #[must_use]
    pub fn new(method: &str, url: &str, body: &[u8]) -> Self {
        let half = |salt: u8| {
            let mut hasher = DefaultHasher::new();
            (salt, method, url, body).hash(&mut hasher);
            hasher.finish()
        };
        Self(half(0), half(1))
    }
}

impl Guard {
    /// Makes a guard that has seen nothing.
    #[must_use]
    pub const fn new(config: GuardConfig) -> Self {
        Self { config, marks: BTreeMap::new(), uses: BTreeMap::new(), next: 0 }
    }

    /// Takes in that a request is to be sent.
    ///
    /// # Errors
    ///
    /// [`TooFrequent`] if it is one of a loop. It may be sent again when the time is over that counts.
    pub fn handle_request(&mut self, request: Fingerprint, now: Time) -> Result<(), TooFrequent> {
        let GuardConfig { times_max, within, remembered_max } = self.config;
        let used = self.next;
        self.next += 1;
        let mark = self.marks.entry(request).or_insert(Mark { since: now, times: 0, used });
        self.uses.remove(&mark.used);
        self.uses.insert(used, request);
        mark.used = used;
        if now.since(mark.since) >= within {
            (mark.since, mark.times) = (now, 0);
        }
        let too_often = mark.times >= times_max;
        if !too_often {
            mark.times += 1;
        }
        while self.marks.len() > remembered_max.max(1)
            && let Some((_, oldest)) = self.uses.pop_first()
        {
            self.marks.remove(&oldest);
        }
        if too_often { Err(TooFrequent { times_max, within }) } else { Ok(()) }
    }
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self { times_max: TIMES_MAX, within: WITHIN, remembered_max: REMEMBERED_MAX }
    }
}

/// 105 times; see [`GuardConfig::times_max`].
const TIMES_MAX: u32 = 105;

/// 1 min; see [`GuardConfig::within`].
const WITHIN: Duration = Duration::from_secs(60);

/// 256 requests; see [`GuardConfig::remembered_max`].
const REMEMBERED_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_loop_is_stopped_and_may_go_on_a_minute_after_it_began() {
        let mut guard = Guard::new(GuardConfig::default());
        let request = Fingerprint::new("POST", "https://api.test/", b"same");
        for _ in 0..105 {
            assert_eq!(guard.handle_request(request, at(5)), Ok(()));
        }
        let refused = TooFrequent { times_max: 105, within: Duration::from_secs(60) };
        assert_eq!(guard.handle_request(request, at(64)), Err(refused));
        assert_eq!(guard.handle_request(request, at(65)), Ok(()));
    }

    #[test]
    fn a_poll_every_second_is_no_loop() {
        let mut guard = Guard::new(GuardConfig::default());
        let request = Fingerprint::new("GET", "https://api.test/status", b"");
        assert!((0..100_000).all(|second| guard.handle_request(request, at(second)).is_ok()));
    }

    #[test]
    fn requests_that_differ_are_counted_apart() {
        let mut guard = Guard::new(GuardConfig { times_max: 1, ..GuardConfig::default() });
        for (method, url, body) in [
            ("GET", "https://api.test/", ""),
            ("POST", "https://api.test/", ""),
            ("GET", "https://api.test/1", ""),
            ("POST", "https://api.test/", "1"),
            ("POST", "https://api.test/1", ""),
        ] {
            let request = Fingerprint::new(method, url, body.as_bytes());
            assert_eq!(guard.handle_request(request, at(0)), Ok(()), "{method} {url} {body}");
            assert!(guard.handle_request(request, at(0)).is_err());
        }
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_loop_is_not_what_is_forgotten() {
        let mut guard = Guard::new(GuardConfig { remembered_max: 10, ..GuardConfig::default() });
        let looping = Fingerprint::new("GET", "https://api.test/loop", b"");
        let mut refused = 0;
        for round in 0..200 {
            refused += u32::from(guard.handle_request(looping, at(0)).is_err());
            for other in 0..5 {
                let other = Fingerprint::new("GET", &format!("https://api.test/{round}/{other}"), b"");
                assert_eq!(guard.handle_request(other, at(0)), Ok(()));
            }
        }
        assert_eq!(refused, 95);
        assert_eq!((guard.marks.len(), guard.uses.len()), (10, 10));
    }
}
