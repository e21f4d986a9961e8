//! The names that pass over the bus, each a type of its own that holds only what is allowed.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not a name of the wanted kind.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdError {
    /// A character stands in it that names of this kind do not have.
    #[error("{what} with the character {character:?}, where only {allowed} may stand")]
    Character {
        /// The kind of name.
        what: &'static str,
        /// The first such character.
        character: char,
        /// The characters that may stand.
        allowed: &'static str,
    },
    /// There is nothing in it.
    #[error("{what} without any character")]
    Empty {
        /// The kind of name.
        what: &'static str,
    },
    /// It is too long.
    #[error("{what} of {chars} characters, where {max} are the most")]
    Long {
        /// The kind of name.
        what: &'static str,
        /// Its length, characters.
        chars: usize,
        /// The most characters of this kind.
        max: usize,
    },
}

/// The characters a kind of name may have.
struct Alphabet {
    words: &'static str,
    has: fn(char) -> bool,
}

/// What can stand in a path of a URL as it is (RFC 3986 section 2.3, "unreserved", and the colon).
const UNRESERVED: Alphabet = Alphabet {
    words: "letters, digits and . _ ~ : -",
    has: |character| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '~' | ':' | '-'),
};

/// What can be seen, in any script: no space, and nothing that steers a terminal or the direction of writing.
const VISIBLE: Alphabet = Alphabet {
    words: "visible characters without spaces",
    has: |character| {
        let is_format = matches!(character, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
        !character.is_control() && !character.is_whitespace() && !is_format
    },
};

/// What a field value of HTTP may have (RFC 9110 section 5.5), less what lies outside ASCII.
const FIELD_VALUE: Alphabet =
    Alphabet { words: "visible ASCII characters and spaces", has: |character| matches!(character, ' '..='~') };

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:expr, $alphabet:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
        #[serde(into = "String", try_from = "String")]
        pub struct $name(Arc<str>);

        impl $name {
            /// Most characters of such a name.
            pub const CHARS_MAX: usize = $max;

            /// Makes the name from a text.
            ///
            /// # Errors
            ///
            /// When the text is empty, too long, or has a character that may not stand in it.
            pub fn new(text: impl Into<Arc<str>>) -> Result<Self, IdError> {
                let text = text.into();
                check(&text, $what, $max, &$alphabet)?;
                Ok(Self(text))
            }

            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0.as_ref().to_owned()
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
    };
}

name! {
    /// What makes an older undelivered message superfluous once a newer one bears the same key; at most 64 characters.
    CollapseKey, "a collapse key", 64, VISIBLE
}
name! {
    /// The media type of a payload; at most 255 characters.
    ContentType, "a content type", 255, FIELD_VALUE
}
name! {
    /// One installation of an app, as its ticket names it; at most 64 characters.
    DeviceId, "a device id", 64, VISIBLE
}
name! {
    /// One gateway of the cluster; at most 64 characters, all fit for a URL.
    GatewayId, "a gateway id", 64, UNRESERVED
}
name! {
    /// One message, named by its sender or by the gateway that took it; at most 64 characters, all fit for a URL.
    MessageId, "a message id", 64, UNRESERVED
}
name! {
    /// What devices subscribe to and messages are sent to; at most 128 characters.
    Topic, "a topic", 128, VISIBLE
}
name! {
    /// One user, as the ticket's subject names them; at most 128 characters.
    UserId, "a user id", 128, VISIBLE
}

fn check(text: &str, what: &'static str, max: usize, alphabet: &Alphabet) -> Result<(), IdError> {
    if text.is_empty() {
        return Err(IdError::Empty { what });
    }
    let chars = text.chars().count();
    if chars > max {
        return Err(IdError::Long { what, chars, max });
    }
    match text.chars().find(|character| !(alphabet.has)(*character)) {
        Some(character) => Err(IdError::Character { what, character, allowed: alphabet.words }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_most_characters_is_taken_and_one_more_is_not() {
        assert!(MessageId::new("a".repeat(64)).is_ok());
        let error = MessageId::new("a".repeat(65)).map(drop);
        assert_eq!(error, Err(IdError::Long { what: "a message id", chars: 65, max: 64 }));
        assert!(UserId::new("é".repeat(128)).is_ok());
        assert!(UserId::new("é".repeat(129)).is_err());
    }

    #[test]
    fn an_empty_name_is_refused() {
        assert_eq!(Topic::new("").map(drop), Err(IdError::Empty { what: "a topic" }));
    }

    #[test]
    fn each_kind_of_name_has_its_characters() {
        assert!(MessageId::new("order:17_a~b.c-d").is_ok());
        for bad in ["a/b", "a b", "a?", "é", "a%20"] {
            assert!(MessageId::new(bad).is_err(), "{bad}");
        }
        assert!(UserId::new("ada@example.org").is_ok() && Topic::new("订单/17").is_ok());
        for bad in ["a b", "a\nb", "a\u{1b}[2Jb", "a\u{a0}b", "a\u{202e}b"] {
            assert!(UserId::new(bad).is_err(), "{bad:?}");
        }
        assert!(ContentType::new("text/plain; charset=utf-8").is_ok());
        assert!(ContentType::new("text/plain\r\nx: y").is_err());
    }

    #[test]
    fn an_error_says_what_is_wrong_with_which_kind_of_name() {
        let error = "a b".parse::<GatewayId>().expect_err("a space may not stand in it");
        assert_eq!(
            error.to_string(),
            "a gateway id with the character ' ', where only letters, digits and . _ ~ : - may stand"
        );
    }

    #[test]
    fn a_name_read_from_json_is_checked_too() {
        let id: MessageId = serde_json::from_str("\"order-17\"").expect("a good id");
        assert_eq!(serde_json::to_string(&id).expect("an id is a string"), "\"order-17\"");
        assert!(serde_json::from_str::<MessageId>("\"a b\"").is_err());
    }
}
