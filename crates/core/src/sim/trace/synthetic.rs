//! Synthetic traces of radio links, made from a seed.
//!
//! The rate wanders as a log-normal process with a memory, and stops in gaps. Means, numbers of gaps and their lengths are those
//! measured on public recordings, which are named at each profile and are not part of this project.

use std::{fmt, str::FromStr, time::Duration};

use rand_pcg::Pcg32;

use super::{OPPORTUNITY_BYTES, Trace};
use crate::{
    random::{stream, unit, within},
    sim::link::Direction,
};

/// What a phone's radio goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Radio {
    /// 3G in a car.
    Drive,
    /// 4G while a lift goes up: nothing for ten seconds.
    Elevator,
    /// 3G in an underground train: nothing between some stations.
    Subway,
    /// 3G in a train on the surface: cell after cell.
    Train,
    /// 4G on foot.
    Walk,
}

impl Radio {
    /// Every radio there is.
    pub const ALL: [Self; 5] = [Self::Drive, Self::Elevator, Self::Subway, Self::Train, Self::Walk];

    /// Returns the radio's name as scenarios spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Drive => "drive",
            Self::Elevator => "elevator",
            Self::Subway => "subway",
            Self::Train => "train",
            Self::Walk => "walk",
        }
    }

    /// Makes the trace of one direction. Both directions of a seed stop in the same gaps, as they hang on one radio.
    #[must_use]
    pub fn trace(self, direction: Direction, seed: u64) -> Trace {
        let profile = self.profile();
        let gaps = profile.gaps(seed);
        let (mean_kbit, number) = match direction {
            Direction::Down => (profile.down_kbit, 0),
            Direction::Up => (profile.up_kbit, 1),
        };
        let weights = profile.weights(&gaps, &mut stream(seed, number));
        let bytes = mean_kbit * 1000 / 8 * profile.period_ms / 1000;
        Trace::new(spread(&weights, bytes / OPPORTUNITY_BYTES)).expect("the moments rise and end with the period")
    }

    const fn profile(self) -> Profile {
        match self {
            // mahimahi's TMobile-UMTS-driving: 928 s, 2.02 and 0.94 Mbit/s, 28 gaps above 1 s, the longest 5.8 s.
            Self::Drive => Profile {
                period_ms: 928_000,
                down_kbit: 2_020,
                up_kbit: 940,
                deviation: 0.8,
                cell_ms: 0,
                gaps: Gaps::Scattered { count: 28, longest_ms: 5_800 },
            },
            // As on foot; ten seconds of nothing is the scenario's assumption, with the fade of closing doors around it.
            Self::Elevator => Profile {
                period_ms: 60_000,
                down_kbit: 5_000,
                up_kbit: 6_000,
                deviation: 0.5,
                cell_ms: 0,
                gaps: Gaps::At(&[(3_000, 10_000)]),
            },
            // NYC 3G subway (Cellular-Traces-NYC): 4.98 and 0.71 Mbit/s, longest gap 23.1 s; a second gap as long as the longest of
            // mahimahi's Verizon-EVDO-driving, 11.6 s.
            Self::Subway => Profile {
                period_ms: 180_000,
                down_kbit: 4_980,
                up_kbit: 710,
                deviation: 0.8,
                cell_ms: 0,
                gaps: Gaps::At(&[(3_000, 23_100), (110_000, 11_600)]),
            },
            // Norway HSDPA, metro: 1.17 Mbit/s, without outages; the uplink's half is an assumption, as is a cell each 15 s.
            Self::Train => Profile {
                period_ms: 120_000,
                down_kbit: 1_170,
                up_kbit: 585,
                deviation: 0.5,
                cell_ms: 15_000,
                gaps: Gaps::At(&[]),
            },
            // mahimahi's Verizon-LTE-short: 5.0 and 6.0 Mbit/s, no gap above 1 s.
            Self::Walk => Profile {
                period_ms: 120_000,
                down_kbit: 5_000,
                up_kbit: 6_000,
                deviation: 0.5,
                cell_ms: 0,
                gaps: Gaps::At(&[]),
            },
        }
    }
}

impl fmt::Display for Radio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Radio {
    type Err = UnknownRadio;

    fn from_str(name: &str) -> Result<Self, UnknownRadio> {
        Self::ALL.into_iter().find(|radio| radio.as_str() == name).ok_or(UnknownRadio)
    }
}

/// A name that is none of the radios'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown radio, expected one of drive, elevator, subway, train, walk")]
#[non_exhaustive]
pub struct UnknownRadio;

/// The numbers of a synthetic trace.
struct Profile {
    period_ms: u64,
    down_kbit: u64,
    up_kbit: u64,
    /// Standard deviation of the rate's natural logarithm.
    deviation: f64,
    /// Time between two cells, at whose border the rate is least; zero where cells do not show.
    cell_ms: u64,
    gaps: Gaps,
}

/// Where nothing leaves.
enum Gaps {
    /// Starts and lengths, milliseconds; the starts are moved by up to [`GAP_SHIFT`].
    At(&'static [(u64, u64)]),
    /// So many, from a little more than a second to the longest, anywhere.
    Scattered { count: u64, longest_ms: u64 },
}

impl Profile {
    /// Gives starts and ends of the gaps, milliseconds.
    fn gaps(&self, seed: u64) -> Vec<(u64, u64)> {
        let mut rng = stream(seed, GAP_STREAM);
        let mut draw_ms = |most_ms: u64| within(&mut rng, Duration::from_millis(most_ms)).as_millis() as u64;
        match self.gaps {
            Gaps::At(gaps) => {
                let shifted = |&(at, length): &(u64, u64)| {
                    let start = at + draw_ms(GAP_SHIFT_MS);
                    (start, start + length)
                };
                gaps.iter().map(shifted).collect()
            }
            Gaps::Scattered { count, longest_ms } => {
                let slot_ms = self.period_ms / count;
                let first = draw_ms(count);
                let gap = |slot: u64| {
                    // Cubes: most gaps are short. The order within a period depends on the seed alone.
                    let rank = (slot * GAP_STRIDE + first) % count;
                    let share = rank as f64 / (count - 1) as f64;
                    let length = (GAP_LEAST_MS as f64 + share.powi(3) * (longest_ms - GAP_LEAST_MS) as f64) as u64;
                    let start = slot * slot_ms + draw_ms(slot_ms - length - GAP_LEAST_MS);
                    (start, start + length)
                };
                (0..count).map(gap).collect()
            }
        }
    }

    /// Gives the relative rate of each step of the period.
    fn weights(&self, gaps: &[(u64, u64)], rng: &mut Pcg32) -> Vec<f64> {
        let kept = (-(STEP_MS as f64) / MEMORY_MS).exp();
        let fresh = self.deviation * (1.0 - kept * kept).sqrt();
        let mut level = 0.0_f64;
        let step = |at_ms: u64| {
            level = kept.mul_add(level, fresh * normal(rng));
            // Within these bounds no fade is so deep that it looks like a gap.
            let wander = level.clamp(-LEVEL_MAX, LEVEL_MAX).exp();
            let is_gap = gaps.iter().any(|&(start, end)| (start..end).contains(&at_ms));
            if is_gap { 0.0 } else { wander * self.cell(at_ms) }
        };
        (0..self.period_ms / STEP_MS).map(|step| step * STEP_MS).map(step).collect()
    }

    /// Gives what the place in the cell leaves of the rate: all in its middle, a fifth at its border.
    fn cell(&self, at_ms: u64) -> f64 {
        if self.cell_ms == 0 {
            return 1.0;
        }
        let place = (at_ms % self.cell_ms) as f64 / self.cell_ms as f64;
        0.8_f64.mul_add((place * std::f64::consts::PI).sin(), 0.2)
    }
}

/// Spreads so many opportunities over steps by their weights; the last lies at the end of the last step.
fn spread(weights: &[f64], count: u64) -> Vec<u32> {
    let each = weights.iter().sum::<f64>() / count as f64;
    let mut moments = Vec::with_capacity(usize::try_from(count).unwrap_or_default());
    let mut before = 0.0;
    for (step, weight) in weights.iter().enumerate() {
        let start_ms = step as u64 * STEP_MS;
        while (moments.len() as u64) < count && (moments.len() + 1) as f64 * each <= before + weight {
            let within = ((moments.len() + 1) as f64 * each - before) / weight;
            moments.push(u32::try_from(start_ms + (within * STEP_MS as f64) as u64).unwrap_or(u32::MAX));
        }
        before += weight;
    }
    // The sum of the weights is rounded, so the last may be missing.
    moments.resize(usize::try_from(count - 1).unwrap_or_default(), moments.last().copied().unwrap_or_default());
    moments.push(u32::try_from(weights.len() as u64 * STEP_MS).unwrap_or(u32::MAX));
    moments
}

/// Draws from the normal distribution of mean 0 and deviation 1: the sum of twelve even draws, less its mean.
fn normal(rng: &mut Pcg32) -> f64 {
    (0..12).map(|_| unit(rng)).sum::<f64>() - 6.0
}

/// Step of the rate. 20 ms; a frame of 3G is 10 or 20 ms.
const STEP_MS: u64 = 20;

/// Time after which the rate has forgotten two thirds of what it was. 1 s; our choice: a few metres on foot.
const MEMORY_MS: f64 = 1_000.0;

/// Most that the logarithm of the rate leaves its mean. 2: an eighth, or seven times as much.
const LEVEL_MAX: f64 = 2.0;

/// Shortest scattered gap. 1,050 ms, so that it counts among those above 1 s.
const GAP_LEAST_MS: u64 = 1_050;

/// Most that a gap with a place begins later. 400 ms; our choice, so that no request of a scenario always meets its edge.
const GAP_SHIFT_MS: u64 = 400;

/// Step through the lengths of scattered gaps, without a factor in common with their number.
const GAP_STRIDE: u64 = 11;

/// Stream of random numbers for the gaps, which both directions share.
const GAP_STREAM: u64 = 2;
