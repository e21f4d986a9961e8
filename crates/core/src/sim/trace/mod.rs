//! Traces of radio links: at which moments so many bytes could leave.

use std::{str::FromStr, time::Duration};

mod store;
mod synthetic;

pub use store::{MissingTrace, Traces};
pub use synthetic::{Radio, UnknownRadio};

/// The moments at which a link takes [`OPPORTUNITY_BYTES`] away, repeated for ever.
///
/// The format of mahimahi (Netravali et al., "Mahimahi: Accurate Record-and-Replay for HTTP", USENIX ATC 2015): one line for each
/// moment, milliseconds from the start, never decreasing. The last line is the length of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    /// Milliseconds, never decreasing; at most [`OPPORTUNITIES_MAX`], the last at least 1.
    moments_ms: Vec<u32>,
}

/// Why a text is no trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// A moment lies before the one above it.
    #[error("line {line}: {moment_ms} is less than the line above")]
    Decreasing {
        /// The line, from 1.
        line: usize,
        /// The moment.
        moment_ms: u32,
    },
    /// It says of no moment that bytes leave, or all leave at the very start.
    #[error("no moment after the start")]
    Empty,
    /// A line is no number of milliseconds.
    #[error("line {line}: expected whole milliseconds up to {max}", max = u32::MAX)]
    NoNumber {
        /// The line, from 1.
        line: usize,
    },
    /// There are more moments than a trace holds.
    #[error("more than {OPPORTUNITIES_MAX} lines")]
    TooLong,
}

impl Trace {
    /// Makes a trace of moments in milliseconds.
    ///
    /// # Errors
    ///
    /// A [`TraceError`] if they decrease, are too many, or none lies after the start.
    pub fn new(moments_ms: Vec<u32>) -> Result<Self, TraceError> {
        if moments_ms.len() > OPPORTUNITIES_MAX {
            return Err(TraceError::TooLong);
        }
        if let Some(at) = (1..moments_ms.len()).find(|&at| moments_ms[at] < moments_ms[at - 1]) {
            return Err(TraceError::Decreasing { line: at + 1, moment_ms: moments_ms[at] });
        }
        if moments_ms.last().is_none_or(|&last| last == 0) {
            return Err(TraceError::Empty);
        }
        Ok(Self { moments_ms })
    }

    /// Returns how long the trace is before it repeats.
    #[must_use]
    pub fn period(&self) -> Duration {
        Duration::from_millis(self.period_ms())
    }

    /// Returns the mean rate, bits a second.
    #[must_use]
    pub fn mean_bits_per_s(&self) -> f64 {
        let bits = self.moments_ms.len() as f64 * OPPORTUNITY_BYTES as f64 * 8.0;
        bits / self.period().as_secs_f64()
    }

    /// Returns every stretch of at least `least` in which nothing leaves, the one around the end of the period included.
    pub fn gaps(&self, least: Duration) -> impl Iterator<Item = Duration> {
        let around_the_end = u64::from(self.moments_ms[0]);
        let between = self.moments_ms.windows(2).map(|pair| u64::from(pair[1] - pair[0]));
        between.chain([around_the_end]).map(Duration::from_millis).filter(move |gap| *gap >= least)
    }

    /// Returns how many bytes can leave in a span of time, counted from the start of the trace.
    #[must_use]
    pub fn bytes_between(&self, start: Duration, end: Duration) -> u64 {
        self.first_from(end).saturating_sub(self.first_from(start)) * OPPORTUNITY_BYTES
    }

    /// Returns the number of the first opportunity at or after a time since the start of the trace.
    pub(crate) fn first_from(&self, since_start: Duration) -> u64 {
        let ms = u64::try_from(since_start.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        // The end of a round is the start of the next, so a round reaches from after its start to its end.
        let round = ms.saturating_sub(1) / self.period_ms();
        let within = ms - round * self.period_ms();
        let before = self.moments_ms.partition_point(|&moment| u64::from(moment) < within);
        round * self.moments_ms.len() as u64 + before as u64
    }

    /// Returns when an opportunity comes, counted from the start of the trace.
    pub(crate) fn moment(&self, opportunity: u64) -> Duration {
        let length = self.moments_ms.len() as u64;
        let (round, within) = (opportunity / length, opportunity % length);
        let within = usize::try_from(within).expect("below the length of a list");
        Duration::from_millis(round * self.period_ms() + u64::from(self.moments_ms[within]))
    }

    fn period_ms(&self) -> u64 {
        u64::from(*self.moments_ms.last().expect("a trace has moments"))
    }
}

impl FromStr for Trace {
    type Err = TraceError;

    /// Reads the format of mahimahi.
    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut moments_ms = Vec::new();
        for (at, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            if moments_ms.len() == OPPORTUNITIES_MAX {
                return Err(TraceError::TooLong);
            }
            let moment_ms = line.trim().parse().map_err(|_| TraceError::NoNumber { line: at + 1 })?;
            if moments_ms.last().is_some_and(|&last| moment_ms < last) {
                return Err(TraceError::Decreasing { line: at + 1, moment_ms });
            }
            moments_ms.push(moment_ms);
        }
        Self::new(moments_ms)
    }
}

/// Bytes that one opportunity takes away: one packet of the largest common size, as in mahimahi.
pub const OPPORTUNITY_BYTES: u64 = 1_500;

/// Moments a trace holds; the longest public one, NYC 3G of 5 Mbit/s for 20 minutes, has half a million.
pub const OPPORTUNITIES_MAX: usize = 4_000_000;

#[cfg(test)]
mod tests;
