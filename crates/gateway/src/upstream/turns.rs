//! Whether anything of a request has been written to its connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Counts on one HTTP/1 connection how often writing began after something had been read, and how many requests have been
/// answered.
///
/// Each request that is written begins a turn of its own: the answer before it has been read by then. So where there were no more
/// turns than answers, nothing of the request that came after these has been written, whatever became of the connection. Turns may
/// be counted that were none (a service that answers early is written to on behind its answer); then nothing is known.
#[derive(Clone, Debug, Default)]
pub struct Turns(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    begun: AtomicU64,
    answered: AtomicU64,
    is_writing: AtomicBool,
}

impl Turns {
    /// Takes in that bytes were written, or may have been.
    pub(super) fn wrote(&self) {
        if !self.0.is_writing.swap(true, Ordering::AcqRel) {
            self.0.begun.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Takes in that bytes were read.
    pub(super) fn read(&self) {
        self.0.is_writing.store(false, Ordering::Release);
    }

    /// Takes in that a request was answered.
    pub fn answered(&self) {
        self.0.answered.fetch_add(1, Ordering::AcqRel);
    }

    /// Says whether a request was answered on the connection before the one that is on it now.
    pub fn is_used(&self) -> bool {
        self.0.answered.load(Ordering::Acquire) > 0
    }

    /// Says whether nothing was written behind the requests that have been answered.
    pub fn is_unwritten(&self) -> bool {
        self.0.begun.load(Ordering::Acquire) <= self.0.answered.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_was_not_written_is_told_from_one_that_was() {
        let turns = Turns::default();
        assert!(turns.is_unwritten() && !turns.is_used(), "a fresh connection");
        for _ in 0..3 {
            turns.wrote();
            turns.wrote();
            assert!(!turns.is_unwritten(), "written and not answered");
            turns.read();
            assert!(!turns.is_unwritten(), "a part of an answer");
            turns.answered();
            assert!(turns.is_unwritten() && turns.is_used(), "pooled");
        }
    }

    #[test]
    fn what_comes_unasked_says_nothing_about_the_request() {
        let turns = Turns::default();
        turns.wrote();
        turns.read();
        turns.answered();
        turns.read();
        assert!(turns.is_unwritten());
        turns.wrote();
        turns.read();
        assert!(!turns.is_unwritten());
    }

    #[test]
    fn a_service_that_answers_early_leaves_the_next_request_in_doubt() {
        let turns = Turns::default();
        turns.wrote();
        turns.read();
        turns.answered();
        turns.wrote();
        assert!(!turns.is_unwritten());
    }
}
