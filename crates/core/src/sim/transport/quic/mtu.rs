//! The search for the largest datagram that a path takes: each end of QUIC tries longer ones while it has nothing else to send.

/// One end's search (RFC 8899): by halves between what passes and what would be too much.
#[derive(Clone, Copy, Debug)]
pub(super) struct MtuSearch {
    /// The largest datagram that passed.
    passed: usize,
    /// The largest that may still pass.
    most: usize,
    /// The one that is tried, or was tried last.
    tried: usize,
    /// The packet that tries it.
    under_way: Option<u64>,
    losses: u32,
    is_over: bool,
}

impl MtuSearch {
    pub(super) const fn new() -> Self {
        let (passed, most) = (DATAGRAM_BYTES, DATAGRAM_BYTES_MAX);
        Self { passed, most, tried: passed, under_way: None, losses: 0, is_over: false }
    }

    /// Returns the datagram that may be sent.
    pub(super) const fn datagram_bytes(&self) -> usize {
        self.passed
    }

    /// Returns the packet that is under way for the search.
    pub(super) const fn under_way(&self) -> Option<u64> {
        self.under_way
    }

    /// Returns the size of a datagram to try with the packet of this number, if it is time for one.
    pub(super) fn poll(&mut self, number: u64) -> Option<usize> {
        if self.is_over || self.under_way.is_some() {
            return None;
        }
        match self.next() {
            Some(bytes) => {
                (self.tried, self.under_way) = (bytes, Some(number));
                Some(bytes)
            }
            None => {
                self.is_over = true;
                None
            }
        }
    }

    /// Takes in what became of the packet under way.
    pub(super) const fn handle_result(&mut self, has_passed: bool) {
        self.under_way = None;
        if has_passed {
            (self.passed, self.losses) = (self.tried, 0);
        } else {
            self.losses += 1;
        }
    }

    fn next(&mut self) -> Option<usize> {
        if self.losses >= TRIES {
            (self.most, self.losses) = (self.tried - 1, 0);
        }
        if self.losses > 0 {
            return Some(self.tried);
        }
        let middle = usize::midpoint(self.passed, self.most);
        if middle.abs_diff(self.tried) >= STEP_BYTES_MIN {
            return Some(middle);
        }
        (self.most.saturating_sub(self.tried) >= STEP_BYTES_MIN).then_some(self.most)
    }
}

/// Smallest datagram a path must carry, and the one to begin with (RFC 9000 section 14).
pub(super) const DATAGRAM_BYTES: usize = 1_200;

/// The longest datagram that is tried. 1,452; an Ethernet's 1,500 bytes less the headers of IPv6 and UDP; noq's default.
const DATAGRAM_BYTES_MAX: usize = 1_452;

/// A step of fewer bytes ends the search. 20; noq's default.
const STEP_BYTES_MIN: usize = 20;

/// How often a datagram is tried before it counts as too long. 3; RFC 8899 section 5.1.2, MAX_PROBES.
const TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a path that takes so many bytes; gives what was tried and what was found.
    fn search(path: usize) -> (Vec<usize>, usize) {
        let mut search = MtuSearch::new();
        let mut tried = Vec::new();
        while let Some(bytes) = search.poll(tried.len() as u64) {
            tried.push(bytes);
            search.handle_result(bytes <= path);
        }
        (tried, search.datagram_bytes())
    }

    #[test]
    fn a_search_halves_what_it_does_not_know() {
        assert_eq!(search(1_472), (vec![1_326, 1_389, 1_420, 1_452], 1_452));
    }

    #[test]
    fn what_is_lost_is_tried_three_times_and_not_believed() {
        let (tried, found) = search(1_252);
        assert_eq!(tried[..6], [1_326, 1_326, 1_326, 1_262, 1_262, 1_262]);
        assert!((1_220..=1_252).contains(&found), "{found}");
    }
}
