//! Draws from a seeded stream of random numbers.

use std::time::Duration;

use rand_core::Rng;
use rand_pcg::Pcg32;

/// Draws a number below `end`, which must not be zero, evenly.
pub(crate) fn below(rng: &mut Pcg32, end: u64) -> u64 {
    let product = u128::from(rng.next_u64()) * u128::from(end);
    u64::try_from(product >> 64).expect("the upper half of a product of two 64-bit numbers fits 64 bits")
}

/// Draws a duration from zero to `window`, evenly.
pub(crate) fn within(rng: &mut Pcg32, window: Duration) -> Duration {
    let nanos = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX - 1);
    Duration::from_nanos(below(rng, nanos.saturating_add(1)))
}

/// Draws a number from 0 to below 1, evenly.
#[cfg(feature = "sim")]
pub(crate) fn unit(rng: &mut Pcg32) -> f64 {
    f64::from(rng.next_u32()) / (f64::from(u32::MAX) + 1.0)
}

/// Says yes with the probability `share`, without a draw where there is no chance.
#[cfg(feature = "sim")]
pub(crate) fn hits(rng: &mut Pcg32, share: f64) -> bool {
    share > 0.0 && unit(rng) < share
}
