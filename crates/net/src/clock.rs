//! The clock that feeds the machines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ropeway_core::Time;
use tokio::time::Instant;

/// Tells the time since it was made, on tokio's clock, so that tests can pause it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// Makes a clock whose origin is now.
    #[must_use]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Returns the time.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_origin(self.origin.elapsed())
    }

    /// Returns the moment on tokio's clock.
    #[must_use]
    pub fn instant(&self, time: Time) -> Instant {
        self.origin.checked_add(time.since_origin()).unwrap_or_else(|| self.origin + FAR_FUTURE)
    }

    /// Returns the time of a moment on tokio's clock; its origin for one before that.
    #[must_use]
    pub fn time(&self, moment: Instant) -> Time {
        Time::from_origin(moment.saturating_duration_since(self.origin))
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns milliseconds since the Unix epoch, zero on a machine whose clock stands before it.
#[must_use]
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Deadlines beyond it (30 years) never come.
const FAR_FUTURE: Duration = Duration::from_secs(30 * 365 * 86_400);
