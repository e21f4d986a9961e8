//! What is wrong with a scenario, and where.

use std::fmt;

/// Why a text is no scenario: the place, what is wrong there, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Two keys that exclude each other, or none of several of which one is needed.
    #[error("{place}: {table} needs exactly one of {choices}, and has {found}")]
    Choice {
        /// Where the table stands.
        place: Place,
        /// The table.
        table: String,
        /// The keys.
        choices: String,
        /// Those that are there.
        found: String,
    },
    /// A required key is not there.
    #[error("{place}: `{key}` is missing in {table}")]
    Missing {
        /// Where the table stands.
        place: Place,
        /// The key.
        key: &'static str,
        /// The table.
        table: String,
    },
    /// A value that its key does not allow.
    #[error("{place}: `{key}` must be {allowed}, not {found}")]
    NotAllowed {
        /// Where the value stands.
        place: Place,
        /// The key.
        key: String,
        /// What it may be, with its range.
        allowed: String,
        /// What it is.
        found: String,
    },
    /// The text is no TOML.
    #[error("{place}: {message}")]
    Syntax {
        /// Where reading stopped.
        place: Place,
        /// What the reader expected.
        message: String,
    },
    /// A key that its table does not have.
    #[error("{place}: unknown key `{key}` in {table}; {hint}")]
    UnknownKey {
        /// Where the key stands.
        place: Place,
        /// The key.
        key: String,
        /// The table.
        table: String,
        /// The nearest known key, or all of them.
        hint: String,
    },
    /// A name that stands for nothing in this scenario: an access link, a site or a variant.
    #[error("{place}: there is no {what} `{name}`; {hint}")]
    UnknownName {
        /// Where the name stands.
        place: Place,
        /// What it should name.
        what: &'static str,
        /// The name.
        name: String,
        /// The nearest name there is, or all of them.
        hint: String,
    },
}

/// A line of a scenario's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Says which of the known words a mistyped one most likely meant, or which there are.
pub(super) fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    // A unit is easily forgotten: `rtt` for `rtt_ms`.
    let without_unit = |known: &str| known.rsplit_once('_').is_some_and(|(stem, _)| stem == word);
    let distances =
        known.clone().into_iter().map(|known| (if without_unit(known) { 0 } else { distance(word, known) }, known));
    // A third of the word: `tiemout` is a typing error, `port` for `host` another word.
    let far = (word.chars().count() / 3).max(1);
    match distances.filter(|(distance, _)| *distance <= far).min_by_key(|(distance, _)| *distance) {
        Some((_, nearest)) => format!("did you mean `{nearest}`?"),
        None => format!("known here: {}", known.into_iter().collect::<Vec<_>>().join(", ")),
    }
}

/// Counts the letters to add, to take away, to replace or to swap with a neighbour: the optimal string alignment distance.
fn distance(from: &str, to: &str) -> usize {
    let fold = |word: &str| -> Vec<char> {
        word.chars()
            .take(WORD_CHARS_MAX)
            .map(|letter| if letter == '-' { '_' } else { letter.to_ascii_lowercase() })
            .collect()
    };
    let (from, to) = (fold(from), fold(to));
    let mut two_before = Vec::new();
    let mut before: Vec<usize> = (0..=to.len()).collect();
    for row in 1..=from.len() {
        let mut current = vec![row];
        for column in 1..=to.len() {
            let replaced = before[column - 1] + usize::from(from[row - 1] != to[column - 1]);
            let mut least = replaced.min(before[column] + 1).min(current[column - 1] + 1);
            let is_swap = row > 1 && column > 1 && from[row - 1] == to[column - 2] && from[row - 2] == to[column - 1];
            if is_swap {
                least = least.min(two_before[column - 2] + 1);
            }
            current.push(least);
        }
        two_before = std::mem::replace(&mut before, current);
    }
    before[to.len()]
}

/// Letters of a word that are compared: the comparison takes time by the product of both lengths.
const WORD_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_word_is_found_through_swapped_missing_and_foreign_letters() {
        let known = ["at_s", "duration_s", "for_s", "queue_kb", "rtt_ms"];
        for (typed, meant) in [
            ("rt_ms", "rtt_ms"),
            ("rtt", "rtt_ms"),
            ("durtaion_s", "duration_s"),
            ("queue-kb", "queue_kb"),
            ("fro_s", "for_s"),
        ] {
            assert_eq!(hint(typed, known), format!("did you mean `{meant}`?"), "{typed}");
        }
        assert_eq!(hint("colour", ["a", "b"]), "known here: a, b");
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
