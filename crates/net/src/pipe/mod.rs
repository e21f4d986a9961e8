//! The sealed pipe: requests and answers encrypted as Oblivious HTTP (RFC 9458) over Binary HTTP (RFC 9292).
//!
//! Nothing here opens a socket: messages go in and bytes come out, and the other way round. A client seals a request with a
//! gateway's [`PipeConfig`] and keeps the [`AnswerOpener`]; a gateway opens it with its [`PipeKey`] and answers through the
//! [`AnswerSealer`]. There is no relay in between, so nobody is made anonymous: what is wanted is a request that needs no
//! handshake and that nobody on the way can read or change.
//!
//! Requests have no forward secrecy: who learns the private key later can read those recorded while it was in use, and
//! their answers.

mod config;
mod key;
mod message;
#[cfg(test)]
mod tests;

pub use config::{AnswerOpener, PipeConfig, PipeConfigError, SealError};
pub use key::{AnswerSealer, Opened, PipeKey, encode_configs, key_id};
pub use message::{
    Content, FIELDS_MAX, MessageError, decode_request, decode_response, encode_request, encode_response, http_date,
    parse_http_date,
};

use thiserror::Error;

/// Why something sealed could not be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It was not sealed for this key, or was changed on the way.
    #[error("message was not sealed for this key or was changed")]
    Changed,
    /// What was sealed is no HTTP message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// It is too short to be anything sealed.
    #[error("message is too short")]
    Truncated,
    /// It names algorithms that this key does not use.
    #[error("message was sealed with other algorithms")]
    Unsupported,
}

/// Path of the sealed pipe, on every authority of a gateway.
pub const PIPE_PATH: &str = "/.ropeway/pipe";

/// Path of the key configuration that requests are sealed with, on every authority of a gateway; over TLS only.
pub const PIPE_KEYS_PATH: &str = "/.ropeway/pipe-keys";

/// Media type of a sealed request (RFC 9458 section 9.2).
pub const REQUEST_TYPE: &str = "message/ohttp-req";

/// Media type of a sealed answer (RFC 9458 section 9.3).
pub const ANSWER_TYPE: &str = "message/ohttp-res";

/// Media type of a list of key configurations (RFC 9458 section 9.1).
pub const KEYS_TYPE: &str = "application/ohttp-keys";

/// Problem type for a key that the gateway does not know (RFC 9458 section 5.3).
pub const KEY_PROBLEM: &str = "https://iana.org/assignments/http-problem-types#ohttp-key";

/// Problem type for a date too far from the gateway's time (RFC 9458 section 6.5.2).
pub const DATE_PROBLEM: &str = "https://iana.org/assignments/http-problem-types#date";

/// Header of a refusal after a restart: for how many milliseconds the gateway's process has taken requests.
pub const UP_HEADER: &str = "ropeway-up-ms";

/// Header of a refusal after a restart: the first date that the gateway's process takes, as HTTP writes it.
pub const DATE_FROM_HEADER: &str = "ropeway-date-from";

/// DHKEM(X25519, HKDF-SHA256), the only way of agreeing on keys here (RFC 9180 section 7.1).
const KEM_X25519: u16 = 0x0020;

/// HKDF-SHA256 (RFC 9180 section 7.2).
const KDF_SHA256: u16 = 0x0001;

/// AES-128-GCM and ChaCha20Poly1305 (RFC 9180 section 7.3), the preferred one first.
const AEADS: [u16; 2] = [0x0001, 0x0003];

/// Bytes of an X25519 public key.
const PUBLIC_KEY_BYTES: usize = 32;

/// Bytes before the encapsulated key: key number, and the numbers of three algorithms (RFC 9458 section 4.1).
const HEADER_BYTES: usize = 7;
