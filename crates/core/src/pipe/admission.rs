//! Takes each request of a sealed pipe at most once.

use std::{collections::BTreeSet, time::Duration};

use crate::Time;

/// Bounds of an [`Admission`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionConfig {
    /// Difference allowed between a request's date and the gateway's time, either way. Default: [`SKEW_MAX`].
    pub skew: Duration,
    /// Requests remembered at once. Default: [`REQUESTS_MAX`].
    pub requests_max: usize,
}

impl Default for AdmissionConfig {
    fn default() -> Self {
        Self { skew: SKEW_MAX, requests_max: REQUESTS_MAX }
    }
}

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PipeRefusal {
    /// Its date is too far ahead of the gateway's time. What comes again later may be taken then.
    #[error("date of the request is too far ahead of the gateway's time")]
    ClockAhead,
    /// Its date is too far behind the gateway's time.
    #[error("date of the request is too far behind the gateway's time")]
    ClockBehind,
    /// As many requests are remembered as may be, and none is forgotten for another. What comes again later may be taken then.
    #[error("too many requests to remember")]
    Full,
    /// It was taken before.
    #[error("request was taken before")]
    Replayed,
    /// It could have been taken by an earlier process, or before the gateway's clock was set back, and may not run twice.
    #[error("request may have been taken before a restart")]
    TooEarly {
        /// For how long this process has taken requests. Who sealed the request later than that knows that no earlier one took it.
        up: Duration,
        /// The newest date that is refused like this, Unix time in ms, and stays refused.
        floor_ms: u64,
    },
}

impl PipeRefusal {
    /// Returns the stable name in metrics and headers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClockAhead | Self::ClockBehind => "clock_skew",
            Self::Full => "replay_window_full",
            Self::Replayed => "replayed",
            Self::TooEarly { .. } => "restarted",
        }
    }

    /// Whether another copy of the request may have been executed, or may yet be.
    ///
    /// If not, that holds for who sent the request less than twice the skew ago: for so long every request that ran is
    /// remembered.
    #[must_use]
    pub const fn executed(self) -> bool {
        match self {
            Self::ClockBehind => false,
            // Nothing keeps a copy of the first two out when their date has come, or when there is room.
            Self::ClockAhead | Self::Full | Self::Replayed | Self::TooEarly { .. } => true,
        }
    }
}

/// Remembers the encapsulated keys of the requests that are still young enough to be taken (RFC 9458 section 6.5.1).
///
/// A request counts as young while its date lies within the skew of the gateway's time, so each key is kept for at least
/// twice the skew. Two generations of that age are held; when the older one is dropped, its newest date becomes the floor,
/// below which nothing is taken that may not run twice. So neither a restart nor a clock that is set back opens the way
/// for a request that ran before, or for one that was refused for good.
#[derive(Debug)]
pub struct Admission {
    config: AdmissionConfig,
    current: Generation,
    previous: Generation,
    began: Time,
    turned: Time,
    floor_ms: u64,
    restart: Option<Restart>,
}

/// Requests taken within one span of time.
#[derive(Debug, Default)]
struct Generation {
    keys: BTreeSet<[u8; KEY_BYTES]>,
    newest_ms: u64,
}

/// The start of a process whose keys are older than itself.
#[derive(Clone, Copy, Debug)]
struct Restart {
    at: Time,
    /// Newest date that the last process can have taken, Unix time in ms.
    newest_ms: u64,
}

impl Admission {
    /// Makes an admission for keys that no earlier process had.
    #[must_use]
    pub fn new(config: AdmissionConfig, now: Time) -> Self {
        let (current, previous) = Default::default();
        Self { config, current, previous, began: now, turned: now, floor_ms: 0, restart: None }
    }

    /// Makes an admission for keys that an earlier process may have taken requests with; `unix_ms` is the gateway's time.
    #[must_use]
    pub fn restarted(config: AdmissionConfig, unix_ms: u64, now: Time) -> Self {
        let newest_ms = unix_ms.saturating_add(millis(config.skew));
        Self { restart: Some(Restart { at: now, newest_ms }), floor_ms: newest_ms, ..Self::new(config, now) }
    }

    /// Takes a request that was opened with the private key, by its encapsulated key and its date.
    ///
    /// `repeatable` says that running it twice does no harm. `unix_ms` is the gateway's time, `date_ms` the request's.
    ///
    /// # Errors
    ///
    /// A [`PipeRefusal`]; the request must not be executed then. Whether another copy of it was is for
    /// [`PipeRefusal::executed`] to say.
    pub fn handle_request(
        &mut self,
        enc: &[u8; 32],
        date_ms: u64,
        repeatable: bool,
        unix_ms: u64,
        now: Time,
    ) -> Result<(), PipeRefusal> {
        self.turn(now);
        let key = *enc.first_chunk().expect("32 bytes have 16");
        if self.current.keys.contains(&key) || self.previous.keys.contains(&key) {
            return Err(PipeRefusal::Replayed);
        }
        // Before the date is judged: who hears of a wrong date takes it that the request never ran.
        let kept_for = self.config.skew.saturating_mul(2);
        let restart = self.restart.filter(|restart| now.since(restart.at) < kept_for);
        if !repeatable && restart.is_some_and(|restart| date_ms <= restart.newest_ms) {
            return Err(self.too_early(now));
        }
        if date_ms.abs_diff(unix_ms) > millis(self.config.skew) {
            if date_ms > unix_ms {
                return Err(PipeRefusal::ClockAhead);
            }
            // Its sender sends another in its place, so it stays out though the clock be set back.
            self.floor_ms = self.floor_ms.max(date_ms);
            return Err(PipeRefusal::ClockBehind);
        }
        if !repeatable && date_ms <= self.floor_ms {
            return Err(self.too_early(now));
        }
        if self.remembered() >= self.config.requests_max {
            return Err(PipeRefusal::Full);
        }
        self.current.keys.insert(key);
        self.current.newest_ms = self.current.newest_ms.max(date_ms);
        Ok(())
    }

    /// Returns how many requests are remembered.
    #[must_use]
    pub fn remembered(&self) -> usize {
        self.current.keys.len() + self.previous.keys.len()
    }

    fn too_early(&self, now: Time) -> PipeRefusal {
        PipeRefusal::TooEarly { up: now.since(self.began), floor_ms: self.floor_ms }
    }

    fn turn(&mut self, now: Time) {
        let kept_for = self.config.skew.saturating_mul(2);
        let age = now.since(self.turned);
        if age < kept_for {
            return;
        }
        self.drop_previous();
        self.previous = std::mem::take(&mut self.current);
        if age >= kept_for.saturating_mul(2) {
            self.drop_previous();
        }
        self.turned = now;
    }

    fn drop_previous(&mut self) {
        let dropped = std::mem::take(&mut self.previous);
        self.floor_ms = self.floor_ms.max(dropped.newest_ms);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Difference of clocks allowed, either way. 60 s; as for HELLO, and within the few minutes that most wrong clocks of
/// phones are off, which the refusal corrects.
pub const SKEW_MAX: Duration = Duration::from_secs(60);

/// Requests remembered at once. 500,000; two minutes of 4,000 a second, more than one machine opens (20 MB).
pub const REQUESTS_MAX: usize = 500_000;

/// Bytes kept of an encapsulated key. Two that agree in 128 bits are the same, or one is refused for the other.
const KEY_BYTES: usize = 16;

#[cfg(test)]
mod tests;
