//! Signed answers: HTTP Message Signatures (RFC 9421) with Ed25519 over an answer and what it answers.
//!
//! Over plain HTTP anyone on the way can change an answer. A client that asks for it gets answers whose status, headers and
//! content (by its digest, RFC 9530) are signed together with the method, target, headers and content of the request and a
//! number that the client chose, so that no answer passes for that of another request. The rules are in
//! `docs/protocol/plain-http.md`.
//!
//! Nothing here opens a socket: heads and whole bodies go in, headers come out.

mod base;
mod fields;
mod sign;
#[cfg(test)]
mod tests;
mod verify;

pub use base::is_end_to_end;
pub use sign::{AskError, Asked, SigningKey, is_asked};
pub use verify::{Ask, VerifyError, VerifyingKey};

use sha2::{Digest, Sha256};

/// Writes the digest of a content as `Content-Digest` does (RFC 9530 section 2).
#[must_use]
pub fn content_digest(content: &[u8]) -> String {
    format!("sha-256=:{}:", fields::base64(&Sha256::digest(content)))
}

/// Path of the public keys by which answers are verified, on every authority of a gateway; over TLS only.
pub const SIGNING_KEYS_PATH: &str = "/.ropeway/signing-keys";

/// Label of the signature in `Accept-Signature`, `Signature-Input` and `Signature`.
const LABEL: &str = "ropeway";

/// What tells these signatures from those for other purposes (RFC 9421 section 2.3).
const TAG: &str = "ropeway-answer";

/// Name of the algorithm (RFC 9421 section 3.3.6).
const ALGORITHM: &str = "ed25519";

/// Components that one signature covers. 288; 128 headers each of a request and of an answer, and what is derived from them.
const COMPONENTS_MAX: usize = 288;

/// Bytes of a header that asks for a signature or describes one. 16 KiB; half of what a whole head may have.
const FIELD_BYTES_MAX: usize = 16 << 10;

/// Bytes of the number that a client chooses. 16; nobody guesses 128 bits, and none is chosen twice.
const NONCE_BYTES: usize = 16;
