//! The parts of structured fields (RFC 9651) that signatures need.

use std::fmt::Write as _;

use base64::{Engine, engine::general_purpose::STANDARD};

/// Something that a signature covers: a header, or what is derived from the message (RFC 9421 section 2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Component {
    /// The header's name in lower case, or a name that begins with `@`.
    pub(super) name: String,
    /// Whether it is the request's, in the signature of an answer.
    pub(super) of_request: bool,
}

/// An inner list of components and its parameters, as `Signature-Input` and `Accept-Signature` have them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Input {
    pub(super) components: Vec<Component>,
    pub(super) created: Option<u64>,
    pub(super) keyid: Option<String>,
    pub(super) alg: Option<String>,
    pub(super) nonce: Option<String>,
    pub(super) tag: Option<String>,
}

impl Component {
    pub(super) fn of_request(name: &str) -> Self {
        Self { name: name.to_owned(), of_request: true }
    }

    pub(super) fn of_answer(name: &str) -> Self {
        Self { name: name.to_owned(), of_request: false }
    }

    /// Writes the identifier.
    pub(super) fn write(&self) -> String {
        format!("\"{}\"{}", self.name, if self.of_request { ";req" } else { "" })
    }
}

impl Input {
    /// Finds the member of a label in a dictionary and reads it; members that are no inner list of ours are passed over.
    pub(super) fn find(dictionary: &str, label: &str, components_max: usize) -> Option<Self> {
        let mut rest = dictionary.trim_matches(OWS);
        loop {
            let (member, tail) = member(rest)?;
            if let Some(list) = member.strip_prefix(label).and_then(|rest| rest.strip_prefix('=')) {
                return Self::parse(list, components_max);
            }
            rest = tail?;
        }
    }

    /// Reads an inner list with its parameters.
    fn parse(text: &str, components_max: usize) -> Option<Self> {
        let mut input = Self::default();
        let mut rest = text.strip_prefix('(')?.trim_start_matches(' ');
        while !rest.starts_with(')') {
            let (name, tail) = string(rest)?;
            let (of_request, tail) = match tail.strip_prefix(";req") {
                Some(tail) => (true, tail),
                None => (false, tail),
            };
            if input.components.len() >= components_max || !tail.starts_with([' ', ')']) {
                return None;
            }
            input.components.push(Component { name: name.to_owned(), of_request });
            rest = tail.trim_start_matches(' ');
        }
        rest = rest.strip_prefix(')')?.trim_end_matches(OWS);
        while let Some(tail) = rest.strip_prefix(';') {
            let tail = tail.trim_start_matches(' ');
            let (key, tail) = tail.split_at(tail.find(['=', ';']).unwrap_or(tail.len()));
            let value = tail.strip_prefix('=');
            rest = match (key, value) {
                ("created", Some(value)) => {
                    let digits = value.len() - value.trim_start_matches(|digit: char| digit.is_ascii_digit()).len();
                    let (digits, tail) = value.split_at(digits);
                    input.created = Some(digits.parse().ok().filter(|_| digits.len() <= DIGITS_MAX)?);
                    tail
                }
                ("keyid", Some(value)) => set(&mut input.keyid, value)?,
                ("alg", Some(value)) => set(&mut input.alg, value)?,
                ("nonce", Some(value)) => set(&mut input.nonce, value)?,
                ("tag", Some(value)) => set(&mut input.tag, value)?,
                // Such as `expires`: nothing of ours has another one.
                _ => return None,
            };
        }
        rest.is_empty().then_some(input)
    }

    /// Writes the inner list with its parameters.
    pub(super) fn write(&self) -> String {
        let components: Vec<_> = self.components.iter().map(Component::write).collect();
        let mut text = format!("({})", components.join(" "));
        if let Some(created) = self.created {
            write!(text, ";created={created}").expect("a String takes any text");
        }
        for (key, value) in [("keyid", &self.keyid), ("alg", &self.alg), ("nonce", &self.nonce), ("tag", &self.tag)] {
            if let Some(value) = value {
                write!(text, ";{key}=\"{value}\"").expect("a String takes any text");
            }
        }
        text
    }
}

/// Reads the bytes of a label's member in a dictionary of byte sequences.
pub(super) fn bytes(dictionary: &str, label: &str) -> Option<Vec<u8>> {
    let mut rest = dictionary.trim_matches(OWS);
    loop {
        let (member, tail) = member(rest)?;
        if let Some(value) = member.strip_prefix(label).and_then(|rest| rest.strip_prefix('=')) {
            let encoded = value.trim_end_matches(OWS).strip_prefix(':')?.strip_suffix(':')?;
            return STANDARD.decode(encoded).ok();
        }
        rest = tail?;
    }
}

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

fn set<'a>(place: &mut Option<String>, value: &'a str) -> Option<&'a str> {
    let (text, rest) = string(value)?;
    *place = Some(text.to_owned());
    Some(rest)
}

/// Splits the first member off a dictionary: up to a comma outside of a string.
fn member(dictionary: &str) -> Option<(&str, Option<&str>)> {
    if dictionary.is_empty() {
        return None;
    }
    let mut is_quoted = false;
    let comma = dictionary.bytes().position(|byte| {
        is_quoted ^= byte == b'"';
        byte == b',' && !is_quoted
    });
    Some(match comma {
        Some(at) => (&dictionary[..at], Some(dictionary[at + 1..].trim_start_matches(OWS))),
        None => (dictionary, None),
    })
}

/// Reads a string at the start of a text. One with escapes is none of ours: names, numbers and Base64 have no quotes.
fn string(text: &str) -> Option<(&str, &str)> {
    let (value, rest) = text.strip_prefix('"')?.split_once('"')?;
    let is_plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~') && byte != b'\\');
    is_plain.then_some((value, rest))
}

const OWS: [char; 2] = [' ', '\t'];

/// Digits of an integer (RFC 9651 section 3.3.1).
const DIGITS_MAX: usize = 15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_also_beside_other_members() {
        let input = Input {
            components: vec![Component::of_request("@method"), Component::of_answer("content-type")],
            created: Some(1_790_000_000),
            keyid: Some("k-1".to_owned()),
            alg: Some("ed25519".to_owned()),
            nonce: Some("AAA=".to_owned()),
            tag: Some("t,t".to_owned()),
        };
        let text = input.write();
        assert_eq!(
            text,
            "(\"@method\";req \"content-type\");created=1790000000;keyid=\"k-1\";alg=\"ed25519\";nonce=\"AAA=\";tag=\"t,t\""
        );
        for dictionary in [format!("ropeway={text}"), format!("a=(\"x\");tag=\"u,\", \tropeway={text} ,b=1")] {
            assert_eq!(Input::find(&dictionary, "ropeway", 2).as_ref(), Some(&input), "{dictionary}");
        }
        assert_eq!(Input::find(&format!("ropeway={text}"), "ropeway", 1), None, "too many components");
        assert_eq!(Input::find("", "ropeway", 9), None);
    }

    #[test]
    fn what_is_malformed_is_nothing() {
        for text in [
            "",
            "ropeway",
            "ropeway=",
            "ropeway=1",
            "ropeway=(",
            "ropeway=(\"a",
            "ropeway=(\"a\"\"b\")",
            "ropeway=(a)",
            "ropeway=();x=1",
            "ropeway=();created=",
            "ropeway=();created=1a",
            "ropeway=();tag=x",
            "ropeway=(\"a\\\"\")",
            "ropeway=()x",
            "ropeway=();tag=\"a\"b",
            "ropeway=();created=9999999999999999",
        ] {
            assert_eq!(Input::find(text, "ropeway", 9), None, "{text}");
        }
        assert_eq!(bytes("ropeway=:AQI=:, b=:", "ropeway"), Some(vec![1, 2]));
        for text in ["", "ropeway=AQI=", "ropeway=:AQI=", "ropeway=:A:", "other=:AQI=:"] {
            assert_eq!(bytes(text, "ropeway"), None, "{text}");
        }
    }
}
