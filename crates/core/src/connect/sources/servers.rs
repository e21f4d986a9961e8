//! Which servers are left alone for a while, and which hints.

use std::{collections::BTreeMap, time::Duration};

use super::Server;
use crate::Time;

/// The failures of each server.
#[derive(Debug, Default)]
pub(super) struct Servers {
    strikes: BTreeMap<Server, Strikes>,
}

#[derive(Clone, Copy, Debug)]
struct Strikes {
    count: u32,
    until: Time,
}

impl Servers {
    /// Says whether a server may be asked.
    pub(super) fn is_free(&self, server: Server, now: Time) -> bool {
        self.strikes.get(&server).is_none_or(|strikes| strikes.until <= now)
    }

    pub(super) fn succeeded(&mut self, server: Server) {
        self.strikes.remove(&server);
    }

    /// Leaves a server alone for twice as long as the last time.
    pub(super) fn failed(&mut self, server: Server, now: Time) {
        if self.strikes.len() >= SERVERS_MAX && !self.strikes.contains_key(&server) {
            self.strikes.retain(|_, strikes| strikes.until > now);
            if self.strikes.len() >= SERVERS_MAX {
                self.strikes.pop_first();
            }
        }
        let strikes = self.strikes.entry(server).or_insert(Strikes { count: 0, until: now });
        let pause = PAUSE.saturating_mul(1 << strikes.count.min(DOUBLINGS_MAX)).min(PAUSE_MAX);
        strikes.count = strikes.count.saturating_add(1);
        strikes.until = now + pause;
    }
}

/// Hints that a newer list may be had, which anyone on the way can give.
#[derive(Debug, Default)]
pub(super) struct Hints {
    rest_until: Option<Time>,
    in_vain: u32,
}

impl Hints {
    /// Says whether a hint is followed, and takes it that it is in vain until a newer list comes.
    pub(super) fn take(&mut self, now: Time) -> bool {
        if self.rest_until.is_some_and(|until| now < until) {
            return false;
        }
        let pause = HINT_PAUSE.saturating_mul(1 << self.in_vain.min(HINT_DOUBLINGS_MAX)).min(HINT_PAUSE_MAX);
        self.in_vain = self.in_vain.saturating_add(1);
        self.rest_until = Some(now + pause);
        true
    }

    /// A newer list came.
    pub(super) const fn handle_list(&mut self) {
        self.in_vain = 0;
    }
}

/// Pause after a hint that was followed. 30 s, as after a fetch that failed; our choice.
const HINT_PAUSE: Duration = Duration::from_secs(30);

/// Longest such pause. 30 min, as after fetches that failed; our choice.
const HINT_PAUSE_MAX: Duration = Duration::from_secs(1_800);

/// Doublings that are counted; HINT_PAUSE_MAX is reached before.
const HINT_DOUBLINGS_MAX: u32 = 8;

/// Pause after a first failure. 1 s, gRPC's `connection-backoff.md`.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest pause. 2 min, gRPC's `connection-backoff.md`.
const PAUSE_MAX: Duration = Duration::from_secs(120);

/// Doublings that are counted; PAUSE_MAX is reached before.
const DOUBLINGS_MAX: u32 = 10;

/// Servers whose failures are remembered. 128; the dispatch addresses of 16 units.
const SERVERS_MAX: usize = 128;
