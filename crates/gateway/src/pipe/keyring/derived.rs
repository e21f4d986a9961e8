//! Keys that follow from a secret: of every pipe and every day, for each gateway that has the secret.

use std::path::Path;

use base64::{Engine, engine::general_purpose::STANDARD};
use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use ropeway_core::pipe::KeyDay;
use ropeway_net::pipe::PipeKey;

use super::{Held, PublicKey};
use crate::secret;

/// The secret, ready to derive from (RFC 5869 section 2.2, without a salt). It does not print itself.
#[derive(Clone, Debug)]
pub(super) struct Derived(Prk);

impl Derived {
    /// Reads the secret of a file.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let text = secret::read(path).map_err(|error| error.to_string())?;
        parse(&text.ok_or_else(|| format!("there is no such file; {MAKE_ONE}"))?).map(Self::new)
    }

    pub(super) fn new(secret: [u8; SECRET_BYTES]) -> Self {
        Self(Salt::new(HKDF_SHA256, &[]).extract(&secret))
    }

    /// Returns the keys of a pipe that are accepted, the one to use first, and when there are others.
    pub(super) fn keys(&self, name: &str, unix_ms: u64) -> Result<(Vec<Held>, u64), String> {
        let keys = KeyDay::accepted(unix_ms).map(|day| self.held(name, day));
        Ok((keys.collect::<Result<_, _>>()?, KeyDay::next_turn_ms(unix_ms)))
    }

    /// Returns the public key of a pipe that is the one to use.
    pub(super) fn public(&self, name: &str, unix_ms: u64) -> Option<PublicKey> {
        // No seed is known that gives no key.
        self.held(name, KeyDay::at(unix_ms)).ok().map(|held| held.public(name))
    }

    fn held(&self, name: &str, day: KeyDay) -> Result<Held, String> {
        let key = PipeKey::from_seed(day.key_id(), &self.seed(name, day)).map_err(|error| error.to_string())?;
        Ok(Held { key, expires_ms: day.expires_ms() })
    }

    /// Derives what the key of a pipe and a day follows from (RFC 5869 section 2.3). No name has a zero byte, so no two pairs
    /// of a name and a day read alike.
    fn seed(&self, name: &str, day: KeyDay) -> [u8; 32] {
        let info: [&[u8]; 4] = [LABEL, name.as_bytes(), &[0], &day.number().to_be_bytes()];
        let mut seed = [0; 32];
        let derived = self.0.expand(&info, HKDF_SHA256).and_then(|output| output.fill(&mut seed));
        derived.expect("one hash is not too long for HKDF");
        seed
    }
}

/// Reads a secret: Base64, alone or between the lines of PEM (RFC 7468).
fn parse(text: &str) -> Result<[u8; SECRET_BYTES], String> {
    let text = text.trim();
    let text = match text.strip_prefix(BEGIN) {
        Some(rest) => rest.strip_suffix(END).ok_or_else(|| format!("it does not end with `{END}`"))?,
        None if text.starts_with("-----") => return Err(format!("it is no secret of the sealed pipe; {MAKE_ONE}")),
        None => text,
    };
    let text: String = text.split_ascii_whitespace().collect();
    let secret = STANDARD.decode(text).map_err(|_| format!("it is not Base64; {MAKE_ONE}"))?;
    let found = secret.len();
    secret.try_into().map_err(|_| format!("it has {found} bytes, not {SECRET_BYTES}; {MAKE_ONE}"))
}

/// What a key is derived for, with a zero byte after it.
const LABEL: &[u8] = b"ropeway pipe key v1\0";

/// Bytes of a secret: as many as its hash gives, and X25519 takes.
const SECRET_BYTES: usize = 32;

const BEGIN: &str = "-----BEGIN ROPEWAY PIPE SECRET-----";
const END: &str = "-----END ROPEWAY PIPE SECRET-----";

/// What to do about a file that cannot be used.
const MAKE_ONE: &str = "make a secret with `openssl rand -base64 32`, and give all gateways of one operator the same";

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;

    fn secret() -> [u8; SECRET_BYTES] {
        std::array::from_fn(|place| u8::try_from(place).expect("32 numbers"))
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Seed and configuration, computed in Python with `hmac` and integers: RFC 5869, DeriveKeyPair of RFC 9180 section 7.1.3,
    /// X25519 of RFC 7748 section 5.
    #[test]
    fn keys_are_those_that_another_implementation_derives() {
        let derived = Derived::new(secret());
        for (name, day, seed, public) in [
            (
                "north.example",
                20_700,
                "03fc5fdfa165b3a5c6e757c9c4f9ab9027b95257f2ed63553809fbe754636c1e",
                "81bbc7d5cd86f69174d008f362e72f6c342d405617e98c3762c203a5ff72ed01",
            ),
            (
                "north.example",
                20_701,
                "5cc509cdf966de51efdd5cb2dcdcf1142a0b5203963c2d6e5e20ee695b0dbeac",
                "baafb8b33865ba30e3c144dff72a03afad6bff8fc0b08c77c04259951bc95f5b",
            ),
            (
                "south.example",
                20_700,
                "2e5fc3d20254130847a3d42b5fbf9aae577bb9363d8d1f2eda71433a5b363550",
                "86430959924485386c4e95899426d01bd56e9e721786f152729ad613127b2250",
            ),
        ] {
            assert_eq!(hex(&derived.seed(name, KeyDay::at(day * DAY_MS))), seed, "{name} {day}");
            let key = derived.public(name, day * DAY_MS + 1).expect("a key");
            let id = u8::try_from(day % 256).expect("below 256");
            assert_eq!(hex(&key.config), format!("{id:02x}0020{public}00080001000100010003"), "{name} {day}");
            assert_eq!((key.name.as_str(), key.id, key.expires_ms), (name, id, (day + 2) * DAY_MS));
        }
    }

    #[test]
    fn a_secret_reads_as_base64_alone_and_as_pem() {
        let base64 = STANDARD.encode(secret());
        let (first, second) = base64.split_at(20);
        for text in [format!("{base64}\n"), format!("{BEGIN}\r\n{first}\r\n{second}\r\n{END}\r\n")] {
            assert_eq!(parse(&text), Ok(secret()), "{text}");
        }
    }

    #[test]
    fn a_file_that_is_no_secret_is_refused_with_what_to_do() {
        let short = STANDARD.encode([7; 31]);
        let pem = |label: &str| format!("-----BEGIN {label}-----\n{short}\n-----END {label}-----\n");
        for (text, expected) in [
            ("", "it has 0 bytes, not 32; make a secret with `openssl rand -base64 32`"),
            (&*short, "it has 31 bytes, not 32; "),
            ("two pears!", "it is not Base64; "),
            (&*pem("PRIVATE KEY"), "it is no secret of the sealed pipe; "),
            (&*pem("ROPEWAY PIPE SECRET"), "it has 31 bytes"),
            (BEGIN, "it does not end with"),
        ] {
            let refused = parse(text).expect_err(text);
            assert!(refused.starts_with(expected), "{text}: {refused}");
        }
        let missing = Derived::read("/nowhere/pipe.secret".as_ref()).expect_err("nothing there");
        assert!(missing.starts_with("there is no such file; make a secret"), "{missing}");
    }
}
