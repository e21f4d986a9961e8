//! Decides when a key is made, how long it is accepted, and when it goes.

use std::{collections::VecDeque, time::Duration};

/// How a [`Rotation`] turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RotationConfig {
    /// Time a key is the one to use; as the previous one it is accepted for as long again. Default: [`PERIOD`].
    pub period: Duration,
}

impl Default for RotationConfig {
    fn default() -> Self {
        Self { period: PERIOD }
    }
}

/// A key, as far as its rotation is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its number in key configurations (RFC 9458 section 3.1).
    pub id: u8,
    /// When it was made, Unix time in ms.
    pub made_ms: u64,
}

/// What the owner of the keys is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RotationOutput {
    /// Destroy a key.
    Forget {
        /// Its number.
        id: u8,
    },
    /// Make a key, which is the one to use from now on.
    Make {
        /// Its record, to be kept with it.
        key: KeyRecord,
    },
}

/// Turns the keys of one gateway: one to use, and the previous one, which is still accepted.
///
/// Unlike other machines it counts in Unix time, since keys outlive the process. A key from the future is replaced: its age
/// cannot be known.
#[derive(Debug)]
pub struct Rotation {
    config: RotationConfig,
    seed: u64,
    /// The newest first.
    keys: Vec<KeyRecord>,
    outputs: VecDeque<RotationOutput>,
}

impl Rotation {
    /// Begins with the keys that are there, whatever their order; `seed` chooses the number of the first one.
    #[must_use]
    pub fn new(config: RotationConfig, seed: u64, known: Vec<KeyRecord>, unix_ms: u64) -> Self {
        let mut keys = known;
        keys.sort_by_key(|key| std::cmp::Reverse(key.made_ms));
        let mut rotation = Self { config, seed, keys, outputs: VecDeque::new() };
        rotation.handle_timeout(unix_ms);
        rotation
    }

    /// Says what time it is; keys are made and forgotten as they are due.
    pub fn handle_timeout(&mut self, unix_ms: u64) {
        let period_ms = self.period_ms();
        for key in &mut self.keys {
            // The age of a key from the future begins now, and ends in time.
            if key.made_ms > unix_ms.saturating_add(AHEAD_MAX_MS) {
                key.made_ms = unix_ms.saturating_sub(period_ms);
            }
        }
        let is_due = self.keys.first().is_none_or(|newest| newest.made_ms.saturating_add(period_ms) <= unix_ms);
        if is_due {
            let key = KeyRecord { id: self.next_id(), made_ms: unix_ms };
            self.keys.insert(0, key);
            self.outputs.push_back(RotationOutput::Make { key });
        }
        let expired = |key: &KeyRecord| key.made_ms.saturating_add(period_ms.saturating_mul(2)) <= unix_ms;
        let gone = self.keys.iter().enumerate().filter(|(place, key)| *place >= KEYS_MAX || expired(key));
        self.outputs.extend(gone.map(|(_, key)| RotationOutput::Forget { id: key.id }));
        self.keys.truncate(KEYS_MAX);
        self.keys.retain(|key| !expired(key));
    }

    /// Returns when to call [`handle_timeout`](Self::handle_timeout) next, Unix time in ms, and what for.
    #[must_use]
    pub fn poll_timeout(&self) -> (u64, &'static str) {
        let newest = self.keys.first().map_or(0, |key| key.made_ms.saturating_add(self.period_ms()));
        let oldest = self.keys.last().map_or(u64::MAX, |key| self.expires_ms(key));
        if newest <= oldest { (newest, "next key") } else { (oldest, "end of a key") }
    }

    /// Returns what to do next.
    pub fn poll_output(&mut self) -> Option<RotationOutput> {
        self.outputs.pop_front()
    }

    /// Returns the keys that are accepted, the one to use first.
    #[must_use]
    pub fn keys(&self) -> &[KeyRecord] {
        &self.keys
    }

    /// Returns until when a key is accepted, Unix time in ms.
    #[must_use]
    pub fn expires_ms(&self, key: &KeyRecord) -> u64 {
        key.made_ms.saturating_add(self.period_ms().saturating_mul(2))
    }

    fn period_ms(&self) -> u64 {
        u64::try_from(self.config.period.as_millis()).unwrap_or(u64::MAX)
    }

    fn next_id(&self) -> u8 {
        let first = self.keys.first().map_or(self.seed.to_le_bytes()[0], |newest| newest.id.wrapping_add(1));
        let mut ids = (0..=u8::MAX).map(|step| first.wrapping_add(step));
        ids.find(|id| self.keys.iter().all(|key| key.id != *id)).unwrap_or(first)
    }
}

/// Time a key is the one to use. One day: who learns the key of a gateway reads two days of requests at most, and a client
/// that was offline for a day can still use the key it has.
pub const PERIOD: Duration = Duration::from_hours(24);

/// Keys accepted at once: the one to use and the previous one.
pub const KEYS_MAX: usize = 2;

/// How far in the future a key may have been made: clocks are corrected by seconds all the time. One minute, in ms.
const AHEAD_MAX_MS: u64 = 60_000;

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    const START_MS: u64 = 20_000 * DAY_MS;

    fn rotation(known: Vec<KeyRecord>) -> Rotation {
        Rotation::new(RotationConfig::default(), 7, known, START_MS)
    }

    fn outputs(rotation: &mut Rotation) -> Vec<RotationOutput> {
        std::iter::from_fn(|| rotation.poll_output()).collect()
    }

    #[test]
    fn the_first_key_is_made_at_once_and_the_next_one_a_day_later() {
        let mut rotation = rotation(Vec::new());
        let first = KeyRecord { id: 7, made_ms: START_MS };
        assert_eq!(outputs(&mut rotation), [RotationOutput::Make { key: first }]);
        assert_eq!(rotation.poll_timeout(), (START_MS + DAY_MS, "next key"));
        rotation.handle_timeout(START_MS + DAY_MS - 1);
        assert_eq!(outputs(&mut rotation), []);
        rotation.handle_timeout(START_MS + DAY_MS);
        let second = KeyRecord { id: 8, made_ms: START_MS + DAY_MS };
        assert_eq!(outputs(&mut rotation), [RotationOutput::Make { key: second }]);
        assert_eq!(rotation.keys(), [second, first]);
        assert_eq!(rotation.expires_ms(&first), START_MS + 2 * DAY_MS);
    }

    #[test]
    fn a_key_is_forgotten_when_the_one_after_the_next_is_made() {
        let mut rotation = rotation(vec![KeyRecord { id: 255, made_ms: START_MS }]);
        rotation.handle_timeout(START_MS + DAY_MS);
        rotation.handle_timeout(START_MS + 2 * DAY_MS);
        let ids: Vec<_> = rotation.keys().iter().map(|key| key.id).collect();
        assert_eq!(ids, [1, 0]);
        assert_eq!(outputs(&mut rotation).last(), Some(&RotationOutput::Forget { id: 255 }));
    }

    #[test]
    fn a_gateway_that_was_away_for_long_begins_anew() {
        let mut rotation = rotation(vec![KeyRecord { id: 3, made_ms: START_MS - 5 * DAY_MS }]);
        assert_eq!(rotation.keys(), [KeyRecord { id: 4, made_ms: START_MS }]);
        assert!(outputs(&mut rotation).contains(&RotationOutput::Forget { id: 3 }));
    }

    #[test]
    fn a_key_from_the_future_is_replaced_and_goes_within_a_day() {
        let mut rotation = rotation(vec![KeyRecord { id: 3, made_ms: START_MS + 300 * DAY_MS }]);
        assert_eq!(rotation.keys()[0], KeyRecord { id: 4, made_ms: START_MS });
        assert_eq!(rotation.keys()[1].id, 3);
        rotation.handle_timeout(START_MS + DAY_MS);
        assert!(outputs(&mut rotation).contains(&RotationOutput::Forget { id: 3 }));
    }

    #[test]
    fn more_keys_than_two_and_keys_of_one_number_do_no_harm() {
        let known = (0..=u8::MAX).map(|id| KeyRecord { id, made_ms: START_MS }).collect();
        assert_eq!(rotation(known).keys().len(), KEYS_MAX);
    }

    #[test]
    fn there_is_always_a_deadline_ahead() {
        let mut rotation = rotation(Vec::new());
        let mut now_ms = START_MS;
        for _ in 0..20 {
            let (next_ms, _) = rotation.poll_timeout();
            assert!(next_ms > now_ms, "{next_ms} is not after {now_ms}");
            now_ms = next_ms;
            rotation.handle_timeout(now_ms);
        }
    }
}
