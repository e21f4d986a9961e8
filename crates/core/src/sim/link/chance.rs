//! The chances of a link: one stream of random numbers for each cause.

use std::time::Duration;

use rand_pcg::Pcg32;

use super::{GilbertElliott, Impairments};
use crate::random::{below, hits, stream, within};

/// Decides by chance what becomes of packets.
///
/// Each cause draws from a stream of its own, so that the same seed loses the same packets whether or not others are duplicated.
#[derive(Clone, Debug)]
pub(super) struct Chance {
    burst: Pcg32,
    corrupt: Pcg32,
    duplicate: Pcg32,
    jitter: Pcg32,
    loss: Pcg32,
    reorder: Pcg32,
    is_bad: bool,
}

/// Why a packet is lost by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    Burst,
    Random,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Self {
        let own = |number| stream(seed, number);
        Self {
            burst: own(0),
            corrupt: own(1),
            duplicate: own(2),
            jitter: own(3),
            loss: own(4),
            reorder: own(5),
            is_bad: false,
        }
    }

    pub(super) fn loss(&mut self, impairments: &Impairments) -> Option<Loss> {
        let in_burst = impairments.burst.is_some_and(|burst| self.is_lost_in_burst(&burst));
        // Both are drawn for every packet, so that neither moves the other's stream.
        let alone = hits(&mut self.loss, impairments.loss);
        match (in_burst, alone) {
            (true, _) => Some(Loss::Burst),
            (false, true) => Some(Loss::Random),
            (false, false) => None,
        }
    }

    /// Gives the bit to flip in a packet of this length.
    pub(super) fn corrupted_bit(&mut self, impairments: &Impairments, length: usize) -> Option<usize> {
        let bits = length as u64 * 8;
        if bits == 0 || !hits(&mut self.corrupt, impairments.corrupt) {
            return None;
        }
        usize::try_from(below(&mut self.corrupt, bits)).ok()
    }

    pub(super) fn is_duplicated(&mut self, impairments: &Impairments) -> bool {
        hits(&mut self.duplicate, impairments.duplicate)
    }

    pub(super) fn is_reordered(&mut self, impairments: &Impairments) -> bool {
        hits(&mut self.reorder, impairments.reorder)
    }

    /// Draws the time a packet travels.
    pub(super) fn delay(&mut self, impairments: &Impairments) -> Duration {
        let jitter = impairments.jitter.min(impairments.delay);
        if jitter.is_zero() {
            return impairments.delay;
        }
        impairments.delay - jitter + within(&mut self.jitter, jitter * 2)
    }

    fn is_lost_in_burst(&mut self, burst: &GilbertElliott) -> bool {
        let change = if self.is_bad { burst.to_good } else { burst.to_bad };
        self.is_bad ^= hits(&mut self.burst, change);
        hits(&mut self.burst, if self.is_bad { burst.loss_bad } else { burst.loss_good })
    }
}
