//! Draws from a seeded stream of random numbers.

use std::time::Duration;

use rand_core::Rng;
#[cfg(feature = "sim")]
use rand_core::SeedableRng as _;
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

/// Makes one of the streams of a seed. Neighbouring seeds and streams have nothing in common, as they would have if they were the
/// generator's state itself.
#[cfg(feature = "sim")]
pub(crate) fn stream(seed: u64, number: u64) -> Pcg32 {
    let mut mixer = Pcg32::seed_from_u64(seed);
    let mixed = mixer.next_u64();
    Pcg32::seed_from_u64(mixed.wrapping_add(number.wrapping_mul(GOLDEN)))
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

/// 2^64 by the golden ratio, which keeps multiples far apart (Knuth, The Art of Computer Programming, volume 3, section 6.4).
#[cfg(feature = "sim")]
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(all(test, feature = "sim"))]
mod tests {
    use super::*;

    #[test]
    fn the_first_draws_of_neighbouring_seeds_and_streams_are_even() {
        let hit = |seed, number| hits(&mut stream(seed, number), 0.01);
        for count in [
            (0..40_000).filter(|seed| hit(*seed, 4)).count(),
            (0..40_000).filter(|number| hit(4, *number)).count(),
            (0..200).flat_map(|seed| (0..200).map(move |number| (seed, number))).filter(|(s, n)| hit(*s, *n)).count(),
        ] {
            assert!((350..450).contains(&count), "{count} of 40,000, expected 400");
        }
    }
}
