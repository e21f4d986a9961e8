//! What is thought of a network, from how its last answers came.

use std::time::Duration;

use super::{Answered, class::Class, class::SIZES};
use crate::Time;

/// What is thought of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NetworkState {
    /// Several of the last requests failed: more patience.
    Bad,
    /// Nothing in particular.
    Evaluating,
    /// The last answers were all quick: less patience.
    Excellent,
}

/// Judges a network by its answers, by the rules of Mars `dynamic_timeout.cc`.
#[derive(Clone, Debug)]
pub(super) struct Verdict {
    state: NetworkState,
    /// Answers in a row that came as quickly as expected.
    quick: u32,
    /// When one of them came that was more than small.
    quick_with_bytes_at: Option<Time>,
    /// The last results, the newest in the lowest bit, a failure as 1.
    results: u16,
    /// Since when they are counted.
    since: Time,
    failed_at: Option<Time>,
}

impl Verdict {
    pub(super) const fn new() -> Self {
        Self {
            state: NetworkState::Evaluating,
            quick: 0,
            quick_with_bytes_at: None,
            results: 0,
            since: Time::ZERO,
            failed_at: None,
        }
    }

    pub(super) fn state(&self, now: Time) -> NetworkState {
        match self.state {
            NetworkState::Bad if self.failed_at.is_none_or(|at| now.since(at) > WINDOW) => NetworkState::Evaluating,
            NetworkState::Bad | NetworkState::Evaluating | NetworkState::Excellent => self.state,
        }
    }

    pub(super) fn handle_answered(&mut self, class: &Class, answered: &Answered, now: Time) {
        self.begin(now);
        let bytes = answered.sent_bytes.saturating_add(answered.received_bytes);
        if answered.ended_after > class.expects(bytes) {
            if self.state == NetworkState::Evaluating {
                self.forget_quick();
            }
        } else if self.state == NetworkState::Evaluating {
            self.quick += 1;
            if bytes > SIZES[0] {
                self.quick_with_bytes_at = Some(now);
            }
        }
        self.push(false);
        let is_proven = self.quick_with_bytes_at.is_some_and(|at| now.since(at) <= WINDOW);
        match self.state {
            NetworkState::Bad if self.failures() < BAD_FAILURES => {
                self.turn(NetworkState::Evaluating, NONE_FAILED, now)
            }
            NetworkState::Evaluating if self.quick >= EXCELLENT_ANSWERS && is_proven => {
                self.state = NetworkState::Excellent;
            }
            NetworkState::Bad | NetworkState::Evaluating | NetworkState::Excellent => {}
        }
    }

    pub(super) fn handle_failed(&mut self, now: Time) {
        self.begin(now);
        self.forget_quick();
        self.failed_at = Some(now);
        self.push(true);
        match self.state {
            NetworkState::Bad => {}
            // The way back is as long as from a network on which nothing worked.
            NetworkState::Evaluating if self.failures() >= BAD_FAILURES => {
                self.turn(NetworkState::Bad, ALL_FAILED, now);
            }
            NetworkState::Evaluating | NetworkState::Excellent => self.state = NetworkState::Evaluating,
        }
    }

    /// Begins to count anew where what was counted is old.
    fn begin(&mut self, now: Time) {
        if self.state(now) != self.state {
            self.turn(NetworkState::Evaluating, NONE_FAILED, now);
        } else if now.since(self.since) > WINDOW {
            self.results = if self.state == NetworkState::Bad { ALL_FAILED } else { NONE_FAILED };
            self.since = now;
        }
    }

    const fn turn(&mut self, state: NetworkState, results: u16, now: Time) {
        self.state = state;
        self.results = results;
        self.since = now;
    }

    const fn push(&mut self, failed: bool) {
        self.results = (self.results << 1 | failed as u16) & ALL_FAILED;
    }

    const fn failures(&self) -> u32 {
        self.results.count_ones()
    }

    const fn forget_quick(&mut self) {
        self.quick = 0;
        self.quick_with_bytes_at = None;
    }
}

/// Results that are looked at. 10; Mars `dynamic_timeout.h`.
const RESULTS: u32 = 10;

/// Failures among them that make a network bad. 4; Mars `dynamic_timeout.cc`, where six that are none are too few.
const BAD_FAILURES: u32 = 4;

/// Quick answers in a row that make it excellent. 10; Mars `dynamic_timeout.h`.
const EXCELLENT_ANSWERS: u32 = 10;

/// How long results count. 5 min; Mars `dynamic_timeout.h`.
const WINDOW: Duration = Duration::from_mins(5);

const ALL_FAILED: u16 = (1 << RESULTS) - 1;

const NONE_FAILED: u16 = 0;
