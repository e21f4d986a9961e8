//! What happened, as a set of numbers.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    mem,
};

/// What a body saw: each number stands for one thing that happened right after another.
pub type Outcome = BTreeSet<u64>;

/// Gathers what a body sees.
#[derive(Default)]
pub(crate) struct Notes {
    seen: Outcome,
    last: u64,
}

impl Notes {
    /// Notes something that happened.
    pub(crate) fn note(&mut self, what: impl Hash) {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let now = hasher.finish();
        self.seen.insert(mem::replace(&mut self.last, now).rotate_left(1) ^ now);
    }

    /// Notes a size by its order of magnitude alone.
    pub(crate) fn size(&mut self, size: usize) {
        self.note(usize::BITS - size.leading_zeros());
    }

    /// Notes the words of an error, less what the input put into them.
    pub(crate) fn error(&mut self, error: &impl ToString) {
        let words = error.to_string();
        self.note(words.split(|c: char| !c.is_ascii_alphabetic()).take(WORDS_MAX).collect::<Vec<_>>());
    }

    /// Returns all of it.
    pub(crate) fn finish(self) -> Outcome {
        self.seen
    }
}

/// The words of an error that count; what follows is more often a quotation.
const WORDS_MAX: usize = 4;
