//! Refuses a HELLO that was seen before.

use std::{collections::BTreeSet, time::Duration};

use crate::Time;

/// Remembers the nonces of the HELLOs that are still young enough to be accepted.
///
/// A HELLO is accepted only while its time lies within the allowed skew of the gateway's, so a nonce needs to be kept for twice that
/// skew. When the window is full, new HELLOs are turned away rather than old nonces forgotten.
#[derive(Debug)]
pub struct ReplayWindow {
    kept_for: Duration,
    nonces_max: usize,
    /// Nonces by when they may be forgotten, in two generations of `kept_for` each.
    current: BTreeSet<[u8; 16]>,
    previous: BTreeSet<[u8; 16]>,
    turned: Time,
}

/// Why a nonce is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The window holds as many nonces as it may.
    Full,
    /// The nonce was used before.
    Replayed,
}

impl ReplayWindow {
    /// Makes a window for HELLOs whose clock may differ by `skew` either way.
    #[must_use]
    pub const fn new(skew: Duration, nonces_max: usize, now: Time) -> Self {
        let kept_for = skew.saturating_mul(2);
        Self { kept_for, nonces_max, current: BTreeSet::new(), previous: BTreeSet::new(), turned: now }
    }

    /// Takes a nonce.
    ///
    /// # Errors
    ///
    /// [`Rejected`] if it was used before or cannot be remembered.
    pub fn take(&mut self, nonce: [u8; 16], now: Time) -> Result<(), Rejected> {
        let age = now.since(self.turned);
        if age >= self.kept_for {
            self.previous = std::mem::take(&mut self.current);
            if age >= self.kept_for * 2 {
                self.previous.clear();
            }
            self.turned = now;
        }
        if self.current.contains(&nonce) || self.previous.contains(&nonce) {
            return Err(Rejected::Replayed);
        }
        if self.current.len() + self.previous.len() >= self.nonces_max {
            return Err(Rejected::Full);
        }
        self.current.insert(nonce);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SKEW: Duration = Duration::from_secs(60);

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_nonce_is_refused_for_as_long_as_its_hello_could_be_accepted() {
        let mut window = ReplayWindow::new(SKEW, 10, at(0));
        assert_eq!(window.take([1; 16], at(119)), Ok(()));
        for later in [119, 120, 180, 238] {
            assert_eq!(window.take([1; 16], at(later)), Err(Rejected::Replayed), "after {later} s");
        }
        assert_eq!(window.take([1; 16], at(500)), Ok(()));
    }

    #[test]
    fn a_full_window_turns_newcomers_away_and_forgets_nobody() {
        let mut window = ReplayWindow::new(SKEW, 1, at(0));
        assert_eq!(window.take([1; 16], at(0)), Ok(()));
        assert_eq!(window.take([2; 16], at(1)), Err(Rejected::Full));
        assert_eq!(window.take([1; 16], at(1)), Err(Rejected::Replayed));
    }
}
