//! When to race for a link again after one was lost.

use std::time::Duration;

use rand_core::SeedableRng;
use rand_pcg::Pcg32;

use crate::{Time, random::within};

/// The policy of reconnecting.
///
/// While a foreground request waits, one attempt is due every [`ReconnectConfig::waiting_gap`] for
/// [`ReconnectConfig::waiting_for`]. Otherwise the wait grows exponentially with full jitter up to a maximum. A changed
/// network ends the wait; a gateway's retry-after is obeyed by all of them.
#[derive(Clone, Debug)]
pub struct Reconnect {
    config: ReconnectConfig,
    rng: Pcg32,
    link: Link,
    /// The window from which the last wait was drawn; zero after a link that lived for `config.settled_after`.
    window: Duration,
    /// Since when a foreground request waits.
    waiting_since: Option<Time>,
    /// Before this the gateways asked not to be called.
    not_before: Time,
    next: Option<Time>,
    last_connect: Option<Time>,
    /// Whether a connect is due and not yet polled.
    connect: bool,
}

/// What the owner of the policy has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconnectOutput {
    /// Start a race; where one is running, hurry it ([`super::Race::handle_hurry`]).
    Connect,
}

/// Why there is no link any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostReason {
    /// The gateway closed or reset the link: probably everybody's, so the first reconnect is spread wider.
    Closed,
    /// The gateway drains, which is everybody's too.
    Drained,
    /// This client leaves the gateway, which cannot do what it is there for.
    Left,
    /// The network of this device went away.
    Network,
    /// The race for a link was lost.
    RaceLost,
    /// The peer fell silent: a heartbeat or a request got no answer.
    Silent,
}

/// The constants of reconnecting. Every field is configurable; see `docs/decisions/0002-race-constants.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReconnectConfig {
    /// The first window from which a wait is drawn; each failure doubles it. 1 s; gRPC's connection backoff
    /// (`connection-backoff.md`) starts there. Drawing from zero to the window is the full jitter of Marc Brooker,
    /// "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
    pub base: Duration,
    /// The largest window. 10 min; the last rung of Mars's ladder (`longlink_connect_monitor.cc`, 600 s).
    pub max: Duration,
    /// The longest retry-after that is obeyed; a longer one counts as this. 1 h; our choice: no gateway's mistake may
    /// keep a device away for a day.
    pub retry_after_max: Duration,
    /// How long a link must live for the next loss to count as the first. 30 s; our choice: longer than any race, so
    /// that a gateway that accepts and drops is still backed away from.
    pub settled_after: Duration,
    /// The window of the first wait after a gateway closed or drained the link. 30 s; our choice: 3.3 % of a lost
    /// gateway's clients come in each second.
    pub spread: Duration,
    /// How long waiting requests speed reconnecting up. 30 s; our choice, as long as a race may take.
    pub waiting_for: Duration,
    /// The gap between two attempts while a request waits, and the least gap ever. 500 ms; Mars wakes 500 ms after a
    /// drop.
    pub waiting_gap: Duration,
}

impl Reconnect {
    /// Makes the policy of a client without a link; the first connect is due at once.
    #[must_use]
    pub fn new(config: ReconnectConfig, seed: u64, now: Time) -> Self {
        let mut reconnect = Self {
            config,
            rng: Pcg32::seed_from_u64(seed),
            link: Link::Down,
            window: Duration::ZERO,
            waiting_since: None,
            not_before: Time::ZERO,
            next: Some(now),
            last_connect: None,
            connect: false,
        };
        reconnect.handle_timeout(now);
        reconnect
    }

    /// Takes in that a race was won.
    pub fn handle_connected(&mut self, now: Time) {
        self.link = Link::Up { since: now };
        self.next = None;
        self.connect = false;
    }

    /// Takes in that the link says nothing although an answer is awaited: another is sought beside it, at once.
    pub fn handle_doubted(&mut self, now: Time) {
        if let Link::Up { since } = self.link {
            self.link = Link::Doubted { since };
            self.connect_soon(now);
        }
    }

    /// Takes in that the link which was doubted speaks again.
    pub fn handle_trusted(&mut self) {
        if let Link::Doubted { since } = self.link {
            self.link = Link::Up { since };
            self.next = None;
            self.connect = false;
        }
    }

    /// Takes in that the link which was doubted is given up for another that is being greeted.
    pub fn handle_replaced(&mut self, now: Time) {
        if matches!(self.link, Link::Doubted { .. }) {
            self.link = Link::Down;
            self.next = Some(self.not_before.max(self.soonest(now)));
        }
    }

    /// Takes in that the link, or a race for one, was lost.
    pub fn handle_lost(&mut self, now: Time, reason: LostReason) {
        if reason == LostReason::RaceLost && matches!(self.link, Link::Doubted { .. }) {
            // It may still speak; a lost race beside it is followed by the next.
            self.next = Some(self.soonest(now).max(self.not_before));
            return;
        }
        if let Link::Doubted { since } | Link::Up { since } = self.link
            && now.since(since) >= self.config.settled_after
        {
            self.window = Duration::ZERO;
            self.waiting_since = self.waiting_since.map(|_| now);
        }
        self.link = Link::Down;
        let least = match reason {
            LostReason::Closed | LostReason::Drained => self.config.spread,
            LostReason::Left | LostReason::Network | LostReason::RaceLost | LostReason::Silent => self.config.base,
        };
        // What a hurried client tried in vain says little of how long the loss lasts: its window grows once it hurries no more.
        let grown = if self.is_hurried(now) { Duration::ZERO } else { self.window.saturating_mul(2) };
        self.window = grown.max(least).min(self.config.max);
        let soonest = self.after_wait(now);
        self.next = Some(self.next.map_or(soonest, |next| next.min(soonest)));
        self.handle_timeout(now);
    }

    /// Takes in whether a foreground request waits for a link. Only the change from none to some speeds reconnecting
    /// up, so a client that always waits does so once.
    pub fn handle_waiting(&mut self, waiting: bool, now: Time) {
        match (self.waiting_since, waiting) {
            (None, true) => {
                self.waiting_since = Some(now);
                self.connect_soon(now);
            }
            (Some(_), false) => {
                self.waiting_since = None;
                self.next = match self.link {
                    Link::Down => self.next.map(|_| self.after_wait(now)),
                    // Nobody minds its silence any more.
                    Link::Doubted { .. } => None,
                    Link::Up { .. } => self.next,
                };
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Takes in that the device's network changed: without a link, the next connect is due at once. A link that is up
    /// is left to show whether it survives.
    pub fn handle_network_changed(&mut self, now: Time) {
        self.window = Duration::ZERO;
        if self.waiting_since.is_some() {
            self.waiting_since = Some(now);
        }
        self.connect_soon(now);
    }

    /// Takes in that a gateway asked to be left alone for so long; up to half as much is added at random, so that
    /// those it asked together do not come back together.
    pub fn handle_retry_after(&mut self, after: Duration, now: Time) {
        let after = after.min(self.config.retry_after_max);
        let until = now + after + within(&mut self.rng, after / 2);
        self.not_before = self.not_before.max(until);
        self.next = self.next.map(|next| next.max(self.not_before));
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.connect = true;
        self.last_connect = Some(now);
        self.next = self.is_hurried(now).then(|| self.not_before.max(now + self.gap()));
    }

    /// Returns when the policy next wants [`Reconnect::handle_timeout`].
    #[must_use]
    pub const fn poll_timeout(&self) -> Option<Time> {
        self.next
    }

    /// Returns the next thing the owner has to do.
    pub fn poll_output(&mut self) -> Option<ReconnectOutput> {
        std::mem::take(&mut self.connect).then_some(ReconnectOutput::Connect)
    }

    /// Brings the next connect forward to now, as far as the least gap and a retry-after allow.
    fn connect_soon(&mut self, now: Time) {
        if !matches!(self.link, Link::Up { .. }) {
            let soon = self.not_before.max(self.soonest(now));
            self.next = Some(self.next.map_or(soon, |next| next.min(soon)));
            self.handle_timeout(now);
        }
    }

    /// Returns when the next connect is due: soon while a request waits, else after a wait drawn from the window.
    fn after_wait(&mut self, now: Time) -> Time {
        let wait = if self.is_hurried(now) { Duration::ZERO } else { within(&mut self.rng, self.window) };
        self.soonest(now + wait).max(self.not_before)
    }

    fn soonest(&self, wanted: Time) -> Time {
        self.last_connect.map_or(wanted, |last| wanted.max(last + self.gap()))
    }

    fn gap(&self) -> Duration {
        self.config.waiting_gap.max(GAP_MIN)
    }

    fn is_hurried(&self, now: Time) -> bool {
        self.waiting_since.is_some_and(|since| now.since(since) < self.config.waiting_for)
    }
}

impl Default for ReconnectConfig {
    fn default() -> Self {
        Self {
            base: Duration::from_secs(1),
            max: Duration::from_mins(10),
            retry_after_max: Duration::from_hours(1),
            settled_after: Duration::from_secs(30),
            spread: Duration::from_secs(30),
            waiting_for: Duration::from_secs(30),
            waiting_gap: Duration::from_millis(500),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Link {
    /// It says nothing although an answer is awaited.
    Doubted {
        since: Time,
    },
    Down,
    Up {
        since: Time,
    },
}

/// The least gap between two connects, whatever the configuration says. 10 ms; RFC 8305 section 8 lets no two attempts
/// be closer.
const GAP_MIN: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests;
