//! A service that nobody can reach: who still waits for a connection, and who is told at once.

use std::time::Duration;

use crate::Time;

/// Follows the attempts to connect to one service.
///
/// Several in a row that waited in vain open it: requests are then refused without waiting, and one attempt at a time, further
/// and further apart, finds out whether the service is back. What fails quickly is no reason to open it, for then nobody waits.
#[derive(Debug)]
pub struct Breaker {
    config: BreakerConfig,
    state: State,
}

/// When a [`Breaker`] opens, and how often it tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Attempts in a row that have to wait in vain. Default: 3.
    pub failures: u32,
    /// Time within which they have to end; older ones do not count. Default: 30 s.
    pub window: Duration,
    /// Waiting time from which on a failure counts. Default: 250 ms.
    pub slow: Duration,
    /// First pause before it is tried again; doubled each time. Default: 1 s.
    pub pause_min: Duration,
    /// Longest pause. Default: 10 s.
    pub pause_max: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self { failures: FAILURES, window: WINDOW, slow: SLOW, pause_min: PAUSE_MIN, pause_max: PAUSE_MAX }
    }
}

/// What to do where a connection is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Do not try: it would be in vain.
    Hopeless,
    /// Try, for the request's sake.
    Normal,
    /// Try, to find out whether the service is back; only one such attempt is under way.
    Probe,
}

impl Breaker {
    /// Makes the breaker of a service that nothing is known about.
    #[must_use]
    pub const fn new(config: BreakerConfig) -> Self {
        Self { config, state: State::Closed { failures: 0, first: Time::ZERO } }
    }

    /// Decides about a connection that is wanted.
    pub fn handle_wanted(&mut self, now: Time) -> Attempt {
        match self.state {
            State::Closed { .. } => Attempt::Normal,
            State::Open { until, pause } if now >= until => {
                self.state = State::HalfOpen { pause };
                Attempt::Probe
            }
            State::HalfOpen { .. } | State::Open { .. } => Attempt::Hopeless,
        }
    }

    /// Takes in that an attempt has led to a connection.
    pub const fn handle_connected(&mut self) {
        self.state = State::Closed { failures: 0, first: Time::ZERO };
    }

    /// Takes in that an attempt has failed after it took so long.
    pub fn handle_failed(&mut self, attempt: Attempt, took: Duration, now: Time) {
        if took < self.config.slow {
            // It fails without waiting, breaker or not, and is back the moment it is back.
            return self.handle_connected();
        }
        self.state = match (self.state, attempt) {
            (State::Closed { failures, first }, _) => {
                let goes_on = failures > 0 && now.since(first) <= self.config.window;
                let (failures, first) = if goes_on { (failures + 1, first) } else { (1, now) };
                if failures >= self.config.failures {
                    self.opened(self.config.pause_min, now)
                } else {
                    State::Closed { failures, first }
                }
            }
            (State::HalfOpen { pause }, Attempt::Probe) => self.opened(pause * 2, now),
            // An attempt from before.
            (state @ (State::HalfOpen { .. } | State::Open { .. }), _) => state,
        };
    }

    /// Says whether requests are refused without waiting.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }

    fn opened(&self, pause: Duration, now: Time) -> State {
        let pause = pause.min(self.config.pause_max);
        State::Open { until: now + pause, pause }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Closed {
        failures: u32,
        first: Time,
    },
    /// A probe is under way; the pause is the one before it.
    HalfOpen {
        pause: Duration,
    },
    Open {
        until: Time,
        pause: Duration,
    },
}

/// Attempts that wait in vain before others are spared. Envoy's outlier detection takes 5 (`consecutive_5xx`), linkerd's failure
/// accrual 7, nginx 1 (`max_fails`), all of them to choose another server; here there is no other, so one lost packet must not do.
const FAILURES: u32 = 3;

/// Time within which they have to end: three connects of 3 s after one another, and as much again twice for a quiet service.
const WINDOW: Duration = Duration::from_secs(30);

/// Waiting time that counts: what a request may wait for nothing without anyone's noticing, and several round trips within a site.
const SLOW: Duration = Duration::from_millis(250);

/// First pause: linkerd's `failure-accrual-consecutive-min-penalty`.
const PAUSE_MIN: Duration = Duration::from_secs(1);

/// Longest pause: nginx's `fail_timeout`. linkerd waits up to 1 min; a phone's user would have given up.
const PAUSE_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(3);

    fn at(millis: u64) -> Time {
        Time::from_origin(Duration::from_millis(millis))
    }

    fn open_at(now: Time) -> Breaker {
        let mut breaker = Breaker::new(BreakerConfig::default());
        for _ in 0..FAILURES {
            assert_eq!(breaker.handle_wanted(now), Attempt::Normal);
            breaker.handle_failed(Attempt::Normal, TIMEOUT, now);
        }
        assert!(breaker.is_open());
        breaker
    }

    #[test]
    fn it_opens_after_three_waits_in_vain_in_a_row() {
        let mut breaker = open_at(at(0));
        assert_eq!(breaker.handle_wanted(at(999)), Attempt::Hopeless);
        let mut lucky = Breaker::new(BreakerConfig::default());
        for _ in 0..10 {
            lucky.handle_failed(Attempt::Normal, TIMEOUT, at(0));
            lucky.handle_failed(Attempt::Normal, TIMEOUT, at(0));
            lucky.handle_connected();
        }
        assert!(!lucky.is_open());
    }

    #[test]
    fn what_fails_at_once_or_long_ago_does_not_count() {
        let mut breaker = Breaker::new(BreakerConfig::default());
        for _ in 0..100 {
            breaker.handle_failed(Attempt::Normal, Duration::from_millis(1), at(0));
        }
        for seconds in [0, 20, 40, 60, 80] {
            breaker.handle_failed(Attempt::Normal, TIMEOUT, at(seconds * 1_000));
        }
        assert!(!breaker.is_open());
    }

    #[test]
    fn one_probe_at_a_time_finds_out_and_closes_it() {
        let mut breaker = open_at(at(0));
        assert_eq!(breaker.handle_wanted(at(1_000)), Attempt::Probe);
        assert_eq!(breaker.handle_wanted(at(1_000)), Attempt::Hopeless);
        // One from before it opened says nothing about the probe.
        breaker.handle_failed(Attempt::Normal, TIMEOUT, at(1_100));
        assert_eq!(breaker.handle_wanted(at(60_000)), Attempt::Hopeless);
        breaker.handle_connected();
        assert_eq!((breaker.is_open(), breaker.handle_wanted(at(60_000))), (false, Attempt::Normal));
    }

    #[test]
    fn probes_are_further_and_further_apart_up_to_a_limit() {
        let mut breaker = open_at(at(0));
        let (mut now, mut pauses) = (0, Vec::new());
        for _ in 0..6 {
            let from = now;
            while breaker.handle_wanted(at(now)) != Attempt::Probe {
                now += 100;
            }
            pauses.push(now - from);
            breaker.handle_failed(Attempt::Probe, TIMEOUT, at(now));
        }
        assert_eq!(pauses, [1_000, 2_000, 4_000, 8_000, 10_000, 10_000]);
    }

    #[test]
    fn a_probe_that_is_refused_at_once_closes_it() {
        let mut breaker = open_at(at(0));
        assert_eq!(breaker.handle_wanted(at(1_000)), Attempt::Probe);
        breaker.handle_failed(Attempt::Probe, Duration::from_millis(1), at(1_001));
        assert!(!breaker.is_open());
    }
}
