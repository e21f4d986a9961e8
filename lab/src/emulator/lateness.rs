//! How late packets left, by which a run is judged: an emulator that did not get the processor measures itself.

use std::time::Duration;

use serde::Serialize;

/// A count of how late packets were, in classes that are each an eighth of their power of two wide.
#[derive(Clone, Debug)]
pub(crate) struct Lateness {
    classes: Box<[u64; CLASSES]>,
    count: u64,
    most: Duration,
}

/// What is told of lateness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatenessSummary {
    /// Packets that were timed.
    pub packets: u64,
    /// Half of them were at most so late, milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 were at most so late, milliseconds.
    pub p99_ms: f64,
    /// The latest, milliseconds.
    pub most_ms: f64,
}

impl LatenessSummary {
    /// Says whether a run measured the emulator rather than the network.
    #[must_use]
    pub fn is_void(&self) -> bool {
        self.p99_ms > P99_MAX_MS
    }
}

impl Lateness {
    /// Makes an empty count.
    pub(crate) fn new() -> Self {
        Self { classes: Box::new([0; CLASSES]), count: 0, most: Duration::ZERO }
    }

    /// Counts one packet.
    pub(crate) fn note(&mut self, late: Duration) {
        let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
        self.classes[class(micros)] += 1;
        self.count += 1;
        self.most = self.most.max(late);
    }

    /// Sums the count up.
    pub(crate) fn summary(&self) -> LatenessSummary {
        LatenessSummary {
            packets: self.count,
            p50_ms: self.quantile_ms(50),
            p99_ms: self.quantile_ms(99),
            most_ms: self.most.as_secs_f64() * 1e3,
        }
    }

    /// Gives the upper end of the class in which the given percentile lies.
    fn quantile_ms(&self, percent: u64) -> f64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (class, count) in self.classes.iter().enumerate() {
            seen += count;
            if seen >= rank && *count > 0 {
                return (upper_end(class) as f64 / 1e3).min(self.most.as_secs_f64() * 1e3);
            }
        }
        0.0
    }
}

/// Gives the class of a number of microseconds: the first eight have their own, then eight share each power of two.
fn class(micros: u64) -> usize {
    let exponent = micros.max(1).ilog2();
    let within = if exponent < 3 { micros } else { u64::from(exponent - 2) * 8 + ((micros >> (exponent - 3)) - 8) };
    usize::try_from(within).map_or(CLASSES - 1, |class| class.min(CLASSES - 1))
}

/// Gives the largest number of microseconds of a class.
fn upper_end(class: usize) -> u64 {
    let class = class as u64;
    if class < 8 { class } else { ((class % 8 + 9) << (class / 8 - 1)) - 1 }
}

/// Classes of lateness; the last begins beyond an hour.
const CLASSES: usize = 256;

/// Most lateness of 99 of 100 packets, milliseconds, above which a run is void.
pub(crate) const P99_MAX_MS: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_lies_in_a_class_that_is_at_most_an_eighth_too_wide() {
        for micros in (0..5000).chain([1 << 20, (1 << 20) + 77, 3_600_000_000]) {
            let upper = upper_end(class(micros));
            assert!(upper >= micros && upper <= micros + micros / 8, "{micros} in a class up to {upper}");
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
    }

    #[test]
    fn percentiles_are_of_all_that_was_noted() {
        let mut lateness = Lateness::new();
        assert_eq!(lateness.summary(), LatenessSummary::default());
        for micros in 1..=1000 {
            lateness.note(Duration::from_micros(micros));
        }
        let summary = lateness.summary();
        assert_eq!((summary.packets, summary.most_ms), (1000, 1.0));
        assert!((0.5..0.57).contains(&summary.p50_ms) && (0.99..=1.0).contains(&summary.p99_ms), "{summary:?}");
        assert!(!summary.is_void());
        lateness.note(Duration::from_millis(80));
        assert!(!lateness.summary().is_void(), "one stall in a thousand packets is the machine's");
    }
}
