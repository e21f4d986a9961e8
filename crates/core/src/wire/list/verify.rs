//! Which lists are believed, and for how long.

use std::time::Duration;

use bytes::Bytes;
use ed25519_dalek::{Signature, VerifyingKey};
use prost::Message as _;
use thiserror::Error;

use super::{AccessList, LIST_BYTES_MAX, message, write};
use crate::session::signed_input;

/// A key whose signature under a list is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListKey {
    /// Its name in the list.
    pub id: String,
    /// The Ed25519 public key.
    pub public_key: [u8; 32],
}

/// Decides which lists are believed: whose signature counts, and how old one may be beside the newest.
#[derive(Clone, Debug)]
pub struct Verifier {
    keys: Vec<ListKey>,
    newest_epoch_ms: u64,
}

/// What may still be taken from a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Validity {
    /// Nothing.
    Gone,
    /// Its addresses and keys, and none of its permissions.
    Addresses,
    /// All of it.
    Full,
}

/// Why a list is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListError {
    /// The signature is not that key's.
    #[error("signature of the access list is not that of key {key_id:?}")]
    BadSignature {
        /// The key it names.
        key_id: String,
    },
    /// Even its addresses are too old.
    #[error("access list expired {} days ago; is the clock of this device ahead?", since.as_secs() / 86_400)]
    Expired {
        /// Time since it expired.
        since: Duration,
    },
    /// It was issued in the future.
    #[error("access list was issued {} s in the future; is the clock of this device behind?", ahead.as_secs())]
    Future {
        /// How far.
        ahead: Duration,
    },
    /// The bytes are no access list.
    #[error("access list is malformed")]
    Malformed,
    /// It is longer than anyone needs.
    #[error("access list of {bytes} bytes is longer than the {LIST_BYTES_MAX} that are read")]
    Oversized {
        /// Its length.
        bytes: usize,
    },
    /// A newer one was seen, by more than clocks of dispatchers differ.
    #[error("access list was issued {} s before the newest", behind.as_secs())]
    Outdated {
        /// How long before the newest it was issued.
        behind: Duration,
    },
    /// No key of this name is trusted.
    #[error("access list is signed by key {key_id:?}, which is not trusted")]
    UnknownKey {
        /// The key it names.
        key_id: String,
    },
}

impl ListError {
    /// Returns the stable name of the reason, for metrics and events.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::BadSignature { .. } => "bad_signature",
            Self::Expired { .. } => "expired",
            Self::Future { .. } => "future",
            Self::Malformed => "malformed",
            Self::Outdated { .. } => "outdated",
            Self::Oversized { .. } => "oversized",
            Self::UnknownKey { .. } => "unknown_key",
        }
    }
}

impl Verifier {
    /// Makes a verifier that believes these keys, at most [`TRUSTED_KEYS_MAX`], and saw no list yet.
    #[must_use]
    pub fn new(keys: impl IntoIterator<Item = ListKey>) -> Self {
        Self { keys: keys.into_iter().take(TRUSTED_KEYS_MAX).collect(), newest_epoch_ms: 0 }
    }

    /// Says whether any list could be believed.
    #[must_use]
    pub const fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Returns the epoch of the newest list seen, zero before the first.
    #[must_use]
    pub const fn newest_epoch_ms(&self) -> u64 {
        self.newest_epoch_ms
    }

    /// Remembers that a list of this epoch was seen, as the last process did.
    pub fn handle_seen(&mut self, epoch_ms: u64) {
        self.newest_epoch_ms = self.newest_epoch_ms.max(epoch_ms);
    }

    /// Checks a signed list at the time `wall_ms`, milliseconds since the Unix epoch, and reads it.
    ///
    /// # Errors
    ///
    /// A [`ListError`] if it is not to be believed; what was known before stays as it was.
    pub fn verify(&mut self, document: &[u8], wall_ms: u64) -> Result<AccessList, ListError> {
        self.check(document, wall_ms, FUTURE_TOLERANCE)
    }

    /// Checks a signed list that was believed before, and kept since: a clock that stands before its date does not count against it.
    ///
    /// # Errors
    ///
    /// As [`verify`](Self::verify).
    pub fn verify_stored(&mut self, document: &[u8], wall_ms: u64) -> Result<AccessList, ListError> {
        self.check(document, wall_ms, Duration::MAX)
    }

    fn check(&mut self, document: &[u8], wall_ms: u64, ahead_max: Duration) -> Result<AccessList, ListError> {
        let list = self.open(document)?;
        let behind = Duration::from_millis(self.newest_epoch_ms.saturating_sub(list.epoch_ms));
        if behind > EPOCH_TOLERANCE {
            return Err(ListError::Outdated { behind });
        }
        let ahead = Duration::from_millis(list.epoch_ms.saturating_sub(wall_ms));
        if ahead > ahead_max {
            return Err(ListError::Future { ahead });
        }
        if list.validity(wall_ms) == Validity::Gone {
            return Err(ListError::Expired { since: Duration::from_millis(wall_ms - list.expires_ms) });
        }
        self.handle_seen(list.epoch_ms);
        Ok(list)
    }

    /// Checks the signature of a document and reads what it is under.
    fn open(&self, document: &[u8]) -> Result<AccessList, ListError> {
        if document.len() > LIST_BYTES_MAX {
            return Err(ListError::Oversized { bytes: document.len() });
        }
        let signed = message::SignedList::decode(document).map_err(|_| ListError::Malformed)?;
        let Some(key) = self.keys.iter().find(|key| key.id == signed.key_id) else {
            return Err(ListError::UnknownKey { key_id: clip(&signed.key_id) });
        };
        if !key.signed(LIST_CONTEXT, &signed.list, &signed.signature) {
            return Err(ListError::BadSignature { key_id: clip(&signed.key_id) });
        }
        AccessList::decode(&signed.list)
    }

    /// Says whether `signature` is that of one of the trusted keys, under another context.
    #[must_use]
    pub fn is_signed(&self, context: &str, message: &[u8], key_id: &str, signature: &[u8]) -> bool {
        self.keys.iter().any(|key| key.id == key_id && key.signed(context, message, signature))
    }
}

impl ListKey {
    fn signed(&self, context: &str, message: &[u8], signature: &[u8]) -> bool {
        let (Ok(key), Ok(signature)) = (VerifyingKey::from_bytes(&self.public_key), Signature::from_slice(signature))
        else {
            return false;
        };
        key.verify_strict(&signed_input(context, message), &signature).is_ok()
    }
}

impl AccessList {
    /// Says what may be taken from the list at the time `wall_ms`, milliseconds since the Unix epoch. A clock that stands before the
    /// date of the list is wrong and permits nothing.
    #[must_use]
    pub fn validity(&self, wall_ms: u64) -> Validity {
        let ahead = Duration::from_millis(self.epoch_ms.saturating_sub(wall_ms));
        if ahead > FUTURE_TOLERANCE {
            Validity::Addresses
        } else if wall_ms <= self.expires_ms {
            Validity::Full
        } else if Duration::from_millis(wall_ms - self.expires_ms) <= ADDRESSES_AFTER_EXPIRY {
            Validity::Addresses
        } else {
            Validity::Gone
        }
    }

    /// Writes the list and has it signed: `sign` signs what it is given with the key of this name.
    #[must_use]
    pub fn seal(&self, key_id: &str, sign: &dyn Fn(&[u8]) -> [u8; 64]) -> Bytes {
        let list = self.encode();
        let signature = sign(&signed_input(LIST_CONTEXT, &list));
        write::signed(list, &signature, key_id)
    }
}

fn clip(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Context of the signature of a list.
pub const LIST_CONTEXT: &str = "ropeway list v1";

/// Keys that may be trusted at once. 2: the one in use and the one that follows or went before it.
pub const TRUSTED_KEYS_MAX: usize = 2;

/// How much older than the newest a list may be. 1 h (DESIGN section 5): dispatchers of several units issue lists side by side.
pub const EPOCH_TOLERANCE: Duration = Duration::from_secs(3_600);

/// How far in the future a list may have been issued. 10 min; ten times what HELLO allows, for devices that nobody has told the
/// time. Our choice.
pub const FUTURE_TOLERANCE: Duration = Duration::from_secs(600);

/// How long the addresses of an expired list are used. 30 days (DESIGN section 5).
pub const ADDRESSES_AFTER_EXPIRY: Duration = Duration::from_secs(30 * 86_400);
