//! The client's end: a gateway's key configuration, what it seals, and what opens the answer.

use std::fmt;

use bytes::Bytes;
use http::{Response, header, request};
use ohttp::{ClientRequest, ClientResponse};
use thiserror::Error;

use super::{
    AEADS, HEADER_BYTES, KDF_SHA256, KEM_X25519, OpenError, PUBLIC_KEY_BYTES,
    message::{self, Content, MessageError},
};

/// The public key of a gateway's sealed pipe. Who seals with it must have it from the gateway itself, over TLS or in a
/// signed list: nothing else says who will read the request.
#[derive(Clone, PartialEq, Eq)]
pub struct PipeConfig {
    encoded: Bytes,
}

/// Why bytes are no key configuration that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PipeConfigError {
    /// It is not encoded as it should be.
    #[error("key configuration is malformed")]
    Malformed,
    /// It is for algorithms that are not used here.
    #[error("key configuration is for other algorithms")]
    Unsupported,
}

/// Why a request could not be sealed. Nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SealError {
    /// The cryptography failed, for want of randomness or because the key is none.
    #[error("request could not be encrypted")]
    Crypto,
    /// The request cannot be written as Binary HTTP.
    #[error(transparent)]
    Message(#[from] MessageError),
}

impl PipeConfig {
    /// Takes one key configuration (RFC 9458 section 3.1).
    ///
    /// # Errors
    ///
    /// A [`PipeConfigError`] if it is malformed, or has neither X25519 nor a cipher that is used here.
    pub fn parse(encoded: &[u8]) -> Result<Self, PipeConfigError> {
        let number = |at: usize| encoded.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        if number(1).ok_or(PipeConfigError::Malformed)? != KEM_X25519 {
            return Err(PipeConfigError::Unsupported);
        }
        let at = 3 + PUBLIC_KEY_BYTES;
        let suites = encoded.get(at + 2..).ok_or(PipeConfigError::Malformed)?;
        if number(at).map(usize::from) != Some(suites.len()) || suites.is_empty() || suites.len() % 4 != 0 {
            return Err(PipeConfigError::Malformed);
        }
        let is_known =
            |suite: &[u8]| AEADS.iter().any(|aead| suite == [KDF_SHA256.to_be_bytes(), aead.to_be_bytes()].concat());
        let Some(suite) = suites.chunks_exact(4).find(|suite| is_known(suite)) else {
            return Err(PipeConfigError::Unsupported);
        };
        // Others are left out: the library below would refuse the whole for one that it does not know.
        let mut kept = encoded[..at].to_vec();
        kept.extend_from_slice(&[0, 4]);
        kept.extend_from_slice(suite);
        ohttp::KeyConfig::decode(&kept).map_err(|_| PipeConfigError::Malformed)?;
        Ok(Self { encoded: kept.into() })
    }

    /// Takes the first key configuration of a list that can be used (`application/ohttp-keys`, RFC 9458 section 3.2).
    ///
    /// # Errors
    ///
    /// A [`PipeConfigError`] if the list is malformed or nothing in it can be used.
    pub fn parse_list(list: &[u8]) -> Result<Self, PipeConfigError> {
        let mut rest = list;
        while let Some((length, tail)) = rest.split_first_chunk::<2>() {
            let length = usize::from(u16::from_be_bytes(*length));
            let (encoded, tail) = tail.split_at_checked(length).ok_or(PipeConfigError::Malformed)?;
            match Self::parse(encoded) {
                Err(PipeConfigError::Unsupported) => rest = tail,
                parsed => return parsed,
            }
        }
        Err(if rest.is_empty() { PipeConfigError::Unsupported } else { PipeConfigError::Malformed })
    }

    /// Returns the number of the key.
    #[must_use]
    pub fn id(&self) -> u8 {
        self.encoded[0]
    }

    /// Returns the configuration as it is kept and sent.
    #[must_use]
    pub const fn encoded(&self) -> &Bytes {
        &self.encoded
    }

    /// Seals a request, dated with `unix_ms`, and returns what opens its answer.
    ///
    /// The target of the request must be absolute; a `date` it has is replaced.
    ///
    /// # Errors
    ///
    /// A [`SealError`] if the request cannot be written or the encryption fails.
    pub fn seal(
        &self,
        mut head: request::Parts,
        content: &Content,
        unix_ms: u64,
    ) -> Result<(Bytes, AnswerOpener), SealError> {
        head.headers.insert(header::DATE, message::http_date(unix_ms));
        let message = message::encode_request(&head, content)?;
        let client = ClientRequest::from_encoded_config(&self.encoded).map_err(|_| SealError::Crypto)?;
        let (sealed, opener) = client.encapsulate(&message).map_err(|_| SealError::Crypto)?;
        Ok((sealed.into(), AnswerOpener(opener)))
    }
}

impl fmt::Debug for PipeConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeConfig").field("id", &self.id()).finish_non_exhaustive()
    }
}

/// Opens the answer to one sealed request; only the gateway can have written what it opens.
pub struct AnswerOpener(ClientResponse);

impl AnswerOpener {
    /// Opens the answer.
    ///
    /// # Errors
    ///
    /// An [`OpenError`] if it is not the gateway's answer to this request, or was changed.
    pub fn open(self, sealed: &[u8]) -> Result<Response<Content>, OpenError> {
        if sealed.len() < HEADER_BYTES {
            return Err(OpenError::Truncated);
        }
        let message = self.0.decapsulate(sealed).map_err(|_| OpenError::Changed)?;
        Ok(message::decode_response(&message)?)
    }
}

impl fmt::Debug for AnswerOpener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerOpener").finish_non_exhaustive()
    }
}
