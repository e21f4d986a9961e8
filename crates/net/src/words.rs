//! What other libraries say of a failure, as it may be shown.

use std::error::Error;

/// Returns the innermost words of an error, which say most, without the page of a library's manual that some end with.
#[must_use]
pub fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    let words = innermost.to_string();
    words.split_once(MANUAL).map_or(words.as_str(), |(before, _)| before).to_owned()
}

/// Where a reference to a manual begins.
const MANUAL: &str = ": https://docs.rs/";

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn the_innermost_words_are_told_without_the_page_of_a_manual() {
        let told =
            "peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls/manual";
        let error = io::Error::other(io::Error::new(io::ErrorKind::UnexpectedEof, told));
        assert_eq!(innermost(&error), "peer closed connection without sending TLS close_notify");
        assert_eq!(innermost(&io::Error::other("gone: https://example.org/")), "gone: https://example.org/");
    }
}
