//! How long a service takes to answer, over the last minutes.

use std::time::Duration;

use crate::Time;

/// The times that one service took from a request's last byte to its answer's head, in buckets that are an eighth of their
/// power of two wide: what is read from them is at most 12.5 % too long, and never too short.
///
/// It remembers between 5 and 10 minutes, in two windows, the older of which goes when the newer is full. Memory: 1.2 KB, from
/// the first answer on.
#[derive(Debug)]
pub struct ServerTime {
    current: Option<Box<Counts>>,
    previous: Option<Box<Counts>>,
    began: Time,
}

impl ServerTime {
    /// Makes the record of a service that has not answered yet.
    #[must_use]
    pub const fn new(now: Time) -> Self {
        Self { current: None, previous: None, began: now }
    }

    /// Takes in an answer.
    pub fn handle_answer(&mut self, took: Duration, now: Time) {
        self.rotate(now);
        let counts = self.current.get_or_insert_with(|| Box::new([0; BUCKETS]));
        let count = &mut counts[bucket(took)];
        *count = count.saturating_add(1);
    }

    /// Returns the time within which 99 of 100 answers came; `None` with fewer than [`SERVER_TIME_SAMPLES_MIN`].
    pub fn p99(&mut self, now: Time) -> Option<Duration> {
        self.rotate(now);
        let windows = [&self.current, &self.previous];
        let sum = |index: usize| windows.iter().copied().flatten().map(|counts| u64::from(counts[index])).sum::<u64>();
        let total: u64 = (0..BUCKETS).map(sum).sum();
        if total < SERVER_TIME_SAMPLES_MIN {
            return None;
        }
        let wanted = total - total / 100;
        let mut below = 0;
        (0..BUCKETS)
            .find(|index| {
                below += sum(*index);
                below >= wanted
            })
            .map(upper_bound)
    }

    fn rotate(&mut self, now: Time) {
        let age = now.since(self.began);
        if age < WINDOW {
            return;
        }
        self.previous = if age < WINDOW * 2 { self.current.take() } else { None };
        self.current = None;
        self.began = now;
    }
}

type Counts = [u32; BUCKETS];

/// Finds the bucket of a time: [`STEPS`] of one unit each, then as many for each power of two.
fn bucket(took: Duration) -> usize {
    let units = took.as_micros() / UNIT_MICROS;
    let units = usize::try_from(units).unwrap_or(usize::MAX);
    if units < STEPS {
        return units;
    }
    let octave = (units.ilog2() - STEPS.ilog2()) as usize;
    // The top three bits below the first say which step of the octave.
    (STEPS + octave * STEPS + (units >> octave) - STEPS).min(BUCKETS - 1)
}

fn upper_bound(bucket: usize) -> Duration {
    let units = if bucket < STEPS {
        bucket + 1
    } else {
        let octave = bucket / STEPS - 1;
        (bucket % STEPS + STEPS + 1) << octave
    };
    Duration::from_micros(units as u64 * UNIT_MICROS as u64)
}

/// Answers below which there is no p99: of fewer, the slowest alone would be it.
pub const SERVER_TIME_SAMPLES_MIN: u64 = 100;

/// Time after which the older half of what is remembered goes. Our choice: several samples of a slow route, and a deployment
/// that changed the service is felt within ten minutes.
const WINDOW: Duration = Duration::from_secs(5 * 60);

/// Width of the first buckets, in microseconds: 0.25 ms, what a service on the same machine takes.
const UNIT_MICROS: u128 = 250;

/// Buckets for each power of two, as in the circular log-linear histograms of HdrHistogram with one significant digit.
const STEPS: usize = 8;

/// All buckets: up to 4 min 22 s, beyond which no time-out is set; longer times count in the last.
const BUCKETS: usize = STEPS * 18;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_time_lies_in_its_bucket_and_no_bucket_is_wider_than_an_eighth() {
        let mut last = 0;
        for micros in (0..1 << 17).chain((1 << 17..262_000_000).step_by(99_991)) {
            let took = Duration::from_micros(micros);
            let bucket = bucket(took);
            assert!(bucket == last || bucket == last + 1 || micros > 1 << 17, "{micros}");
            let (lower, upper) = (bucket.checked_sub(1).map_or(Duration::ZERO, upper_bound), upper_bound(bucket));
            assert!((lower..upper).contains(&took), "{took:?} in {lower:?}..{upper:?}");
            assert!(bucket < 8 || upper <= lower * 9 / 8, "{lower:?}..{upper:?}");
            last = bucket;
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn the_p99_needs_a_hundred_answers_and_is_never_too_short() {
        let mut time = ServerTime::new(at(0));
        for _ in 0..98 {
            time.handle_answer(ms(10), at(0));
        }
        time.handle_answer(ms(500), at(0));
        assert_eq!(time.p99(at(0)), None);
        time.handle_answer(ms(10), at(0));
        let p99 = time.p99(at(0)).expect("enough");
        assert!((ms(10)..ms(12)).contains(&p99), "{p99:?}");
        time.handle_answer(ms(500), at(0));
        let p99 = time.p99(at(0)).expect("enough");
        assert!((ms(500)..=ms(563)).contains(&p99), "{p99:?}");
    }

    #[test]
    fn what_is_older_than_ten_minutes_is_forgotten() {
        let mut time = ServerTime::new(at(0));
        for _ in 0..200 {
            time.handle_answer(ms(1_000), at(10));
        }
        for _ in 0..200 {
            time.handle_answer(ms(10), at(310));
        }
        assert!(time.p99(at(599)).expect("enough") >= ms(1_000));
        assert!(time.p99(at(610)).expect("enough") < ms(12));
        assert_eq!(time.p99(at(1_300)), None);
    }
}
