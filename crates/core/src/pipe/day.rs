//! Decides which keys are accepted where there is one for each day.

use std::time::Duration;

/// A day in UTC that has a key of its own: where gateways derive keys from a secret that they share, it says which.
///
/// Keys are changed at midnight. Yesterday's is still accepted, for clients with an older list, and tomorrow's for the last
/// [`EARLY`] of a day, for clients that have it from a gateway whose clock is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyDay(u64);

impl KeyDay {
    /// Returns the day of a Unix time in ms, whose key is the one to use.
    #[must_use]
    pub const fn at(unix_ms: u64) -> Self {
        Self(unix_ms / DAY_MS)
    }

    /// Returns the days whose keys are accepted at a Unix time in ms, the one to use first; at most 3.
    pub fn accepted(unix_ms: u64) -> impl Iterator<Item = Self> {
        let Self(today) = Self::at(unix_ms);
        let is_late = Self::at(unix_ms.saturating_add(EARLY_MS)) > Self(today);
        let others = [today.checked_sub(1), today.checked_add(1).filter(|_| is_late)];
        std::iter::once(today).chain(others.into_iter().flatten()).map(Self)
    }

    /// Returns when other keys are accepted than at this time, both Unix time in ms.
    #[must_use]
    pub const fn next_turn_ms(unix_ms: u64) -> u64 {
        let midnight_ms = (unix_ms / DAY_MS).saturating_add(1).saturating_mul(DAY_MS);
        let early_ms = midnight_ms.saturating_sub(EARLY_MS);
        if unix_ms < early_ms { early_ms } else { midnight_ms }
    }

    /// Returns the number of the day, 0 for 1 January 1970.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Returns the number of its key in key configurations (RFC 9458 section 3.1): that of the day modulo 256.
    #[must_use]
    pub const fn key_id(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// Returns until when its key is accepted, the end of the day after it, Unix time in ms.
    #[must_use]
    pub const fn expires_ms(self) -> u64 {
        self.0.saturating_add(2).saturating_mul(DAY_MS)
    }
}

/// Time before midnight from which the next day's key is accepted already. One hour, far more than the clocks of servers are apart
/// that serve anybody. Our choice.
pub const EARLY: Duration = Duration::from_hours(1);

/// [`EARLY`] in ms.
const EARLY_MS: u64 = 3_600_000;

/// A day, in ms.
const DAY_MS: u64 = 86_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// 4 September 2026, 00:00 UTC; 20,700 is 220 modulo 256.
    const MIDNIGHT_MS: u64 = 20_700 * DAY_MS;

    fn accepted(unix_ms: u64) -> Vec<u64> {
        KeyDay::accepted(unix_ms).map(KeyDay::number).collect()
    }

    #[test]
    fn a_day_accepts_its_key_and_yesterdays_and_its_last_hour_tomorrows() {
        let hour_ms = u64::try_from(EARLY.as_millis()).expect("an hour");
        assert_eq!(hour_ms, EARLY_MS);
        assert_eq!(accepted(MIDNIGHT_MS - hour_ms - 1), [20_699, 20_698]);
        assert_eq!(accepted(MIDNIGHT_MS - hour_ms), [20_699, 20_698, 20_700]);
        assert_eq!(accepted(MIDNIGHT_MS - 1), [20_699, 20_698, 20_700]);
        assert_eq!(accepted(MIDNIGHT_MS), [20_700, 20_699]);
    }

    #[test]
    fn a_key_is_accepted_until_it_expires_and_no_longer() {
        let day = KeyDay::at(MIDNIGHT_MS);
        assert_eq!((day.key_id(), day.expires_ms()), (220, MIDNIGHT_MS + 2 * DAY_MS));
        assert!(accepted(day.expires_ms() - 1).contains(&20_700) && !accepted(day.expires_ms()).contains(&20_700));
    }

    #[test]
    fn keys_that_are_accepted_at_once_have_different_numbers() {
        for day in 250..260 {
            let ids: Vec<_> = KeyDay::accepted((day + 1) * DAY_MS - 1).map(KeyDay::key_id).collect();
            assert!(ids.len() == 3 && ids[0] != ids[1] && ids[1] != ids[2] && ids[2] != ids[0], "{ids:?}");
        }
    }

    #[test]
    fn between_two_turns_nothing_changes_and_at_each_something_does() {
        let mut at_ms = MIDNIGHT_MS;
        for _ in 0..6 {
            let next_ms = KeyDay::next_turn_ms(at_ms);
            assert_eq!(accepted(next_ms - 1), accepted(at_ms));
            assert_ne!(accepted(next_ms), accepted(at_ms));
            at_ms = next_ms;
        }
        assert_eq!(at_ms, MIDNIGHT_MS + 3 * DAY_MS);
    }

    #[test]
    fn no_time_makes_it_panic() {
        for unix_ms in [0, 1, DAY_MS, u64::MAX - 1, u64::MAX] {
            assert!(KeyDay::accepted(unix_ms).count() <= 3 && KeyDay::next_turn_ms(unix_ms) > 0);
            assert!(KeyDay::at(unix_ms).expires_ms() > 0);
        }
        assert_eq!(accepted(0), [0]);
    }
}
