//! The time of the state machines: a duration since an origin the caller chose.

use std::{
    fmt,
    ops::{Add, AddAssign, Sub},
    time::Duration,
};

/// A moment, counted from an origin that the owner of the machines chose.
///
/// The standard library's `Instant` cannot be made up, and on phones it stops while the device sleeps; this type does
/// neither. Callers feed it from a clock that counts suspended time, tests from a counter.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(Duration);

impl Time {
    /// The origin itself.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// Makes the moment that lies `since_origin` after the origin.
    #[must_use]
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// Returns how far this moment lies after the origin.
    #[must_use]
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// Returns how long before this moment `earlier` was, zero if it was not.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(after))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, after: Duration) {
        *self = *self + after;
    }
}

impl Sub<Duration> for Time {
    type Output = Self;

    fn sub(self, before: Duration) -> Self {
        Self(self.0.saturating_sub(before))
    }
}

impl fmt::Debug for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:?}", self.0)
    }
}
