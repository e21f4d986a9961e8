//! The search for the largest datagram that a path takes: a gateway tries longer ones while it has nothing else to send.

use crate::sim::transport::End;

/// One end's search (RFC 8899), as noq makes it with the settings of `ropeway-net`: the client has none, the gateway tries the longest.
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
    pub(super) const fn new(end: End) -> Self {
        let (passed, most, is_over) = (DATAGRAM_BYTES, DATAGRAM_BYTES_MAX, matches!(end, End::Client));
        Self { passed, most, tried: passed, under_way: None, losses: 0, is_over }
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

/// A step of fewer bytes ends the search; that of `ropeway-net`.
pub(in crate::sim::transport) const STEP_BYTES_MIN: usize = 200;

/// How often a datagram is tried before it counts as too long. 3; RFC 8899 section 5.1.2, MAX_PROBES.
const TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches on a path that takes so many bytes; gives what was tried and what was found.
    fn search(path: usize) -> (Vec<usize>, usize) {
        let mut search = MtuSearch::new(End::Server);
        let mut tried = Vec::new();
        while let Some(bytes) = search.poll(tried.len() as u64) {
            tried.push(bytes);
            search.handle_result(bytes <= path);
        }
        (tried, search.datagram_bytes())
    }

    #[test]
    fn a_gateway_tries_the_longest_and_a_client_nothing() {
        assert_eq!(search(1_472), (vec![1_452], 1_452));
        assert_eq!(MtuSearch::new(End::Client).poll(0), None);
    }

    #[test]
    fn what_is_lost_is_tried_three_times_and_not_believed() {
        assert_eq!(search(1_252), (vec![1_452; 3], 1_200));
    }
}
