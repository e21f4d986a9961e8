//! The known word that a mistyped one most likely meant.

/// Finds the candidate with the fewest letters changed, if it is near enough to be meant.
pub(super) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = fold(word);
    let letters = folded.chars().count().min(WORD_CHARS_MAX);
    // A third of the word: `tiemout` and `time_out` are typing errors, `port` for `host` is another word.
    let far = (letters / 3).max(1);
    let within = |candidate: &str| -> Option<usize> {
        let distance = strsim::osa_distance(&folded.chars().take(WORD_CHARS_MAX).collect::<String>(), &fold(candidate));
        (distance <= far).then_some(distance)
    };
    let by_letters = candidates.into_iter().filter_map(|candidate| Some((within(candidate)?, candidate)));
    by_letters.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// Makes `Max-Links` and `max_links` the same.
fn fold(word: &str) -> String {
    word.to_lowercase().replace(['-', ' '], "_")
}

/// Letters of an unknown word that are compared: the comparison takes time by the product of both lengths.
const WORD_CHARS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_word_with_swapped_missing_and_foreign_letters() {
        let words = ["connect_timeout", "drain_timeout", "host", "idle_timeout", "name"];
        for (typed, meant) in [
            ("nmae", "name"),
            ("hots", "host"),
            ("conect_timeout", "connect_timeout"),
            ("idle-timeout", "idle_timeout"),
            ("Drain_Timeout", "drain_timeout"),
            ("drain_time_out_s", "drain_timeout"),
        ] {
            assert_eq!(nearest(typed, words), Some(meant), "{typed}");
        }
    }

    #[test]
    fn offers_nothing_for_a_word_that_is_like_none() {
        assert_eq!(nearest("colour", ["host", "name"]), None);
        assert_eq!(nearest("", ["host", "name"]), None);
        assert_eq!(nearest(&"x".repeat(100_000), ["host"]), None);
    }
}
