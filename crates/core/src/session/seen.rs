//! Which request numbers a session has seen, in constant space.

/// A sliding window over the newest request numbers, in the manner of the anti-replay window of RFC 4303 section 3.4.3.
#[derive(Debug, Default)]
pub(super) struct Seen {
    highest: u64,
    /// Bit `n % WINDOW` for each number in `highest - WINDOW + 1 ..= highest`; empty until the first.
    bits: Vec<u64>,
}

impl Seen {
    pub(super) const fn new() -> Self {
        Self { highest: 0, bits: Vec::new() }
    }

    /// Returns the highest number seen, zero before the first.
    pub(super) const fn highest(&self) -> u64 {
        self.highest
    }

    /// Marks `number`; says whether it is new for certain.
    pub(super) fn mark(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        if self.bits.is_empty() {
            self.bits = vec![0; WORDS];
        }
        if number > self.highest {
            if number - self.highest >= WINDOW {
                self.bits.fill(0);
            } else {
                for passed in self.highest + 1..number {
                    self.clear(passed);
                }
            }
            self.highest = number;
        }
        self.bits[word(number)] |= bit(number);
        true
    }

    /// Says whether `number` was never marked; numbers that left the window count as marked.
    pub(super) fn is_new(&self, number: u64) -> bool {
        if number > self.highest {
            return true;
        }
        self.highest - number < WINDOW && !self.bits.is_empty() && self.bits[word(number)] & bit(number) == 0
    }

    fn clear(&mut self, number: u64) {
        self.bits[word(number)] &= !bit(number);
    }
}

const fn word(number: u64) -> usize {
    (number % WINDOW / 64) as usize
}

const fn bit(number: u64) -> u64 {
    1 << (number % 64)
}

/// Numbers remembered one by one. Four times the channels a link may have open, so that whatever a client can still ask about on
/// resume is inside.
const WINDOW: u64 = 1024;
const WORDS: usize = WINDOW as usize / 64;

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    #[test]
    fn a_number_that_was_skipped_is_still_new() {
        let mut seen = Seen::new();
        assert!(seen.mark(1));
        assert!(seen.mark(3));
        assert!(seen.is_new(2));
        assert!(!seen.mark(3));
        assert!(seen.mark(2));
    }

    #[test]
    fn a_number_that_left_the_window_counts_as_seen() {
        let mut seen = Seen::new();
        assert!(seen.mark(1));
        assert!(seen.mark(3 + WINDOW));
        assert!(!seen.is_new(2));
        assert!(seen.is_new(4));
    }

    proptest! {
        #[test]
        fn no_number_is_new_twice(numbers in vec(1u64..3000, 1..400)) {
            let mut seen = Seen::new();
            let mut marked = std::collections::BTreeSet::new();
            for number in numbers {
                let new = seen.mark(number);
                prop_assert!(!(new && marked.contains(&number)));
                if !new && !marked.contains(&number) {
                    prop_assert!(seen.highest() - number >= WINDOW);
                }
                marked.insert(number);
            }
        }
    }
}
