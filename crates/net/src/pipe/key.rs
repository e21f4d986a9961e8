//! The gateway's end: the private key, what it opens, and what seals the answer.

use std::fmt;

use bytes::Bytes;
use http::{Request, Response};
use ohttp::{
    KeyConfig, Server, ServerResponse, SymmetricSuite,
    hpke::{Aead, Kdf, Kem},
};

use super::{
    AEADS, HEADER_BYTES, KDF_SHA256, KEM_X25519, OpenError, PUBLIC_KEY_BYTES, SealError,
    message::{self, Content, MessageError},
};

/// A private key of a gateway's sealed pipe.
pub struct PipeKey {
    id: u8,
    server: Server,
    config: Bytes,
}

/// A request as it came out of the pipe.
#[derive(Debug)]
pub struct Opened {
    /// The encapsulated key, which no other request has.
    pub enc: [u8; PUBLIC_KEY_BYTES],
    /// The request, or why what was sealed is none. The client has sealed it either way, and can be answered.
    pub request: Result<Request<Content>, MessageError>,
    /// The date of the request, Unix time in ms; `None` where it has none that can be read.
    pub date_ms: Option<u64>,
    /// Seals the answer.
    pub answer: AnswerSealer,
}

impl PipeKey {
    /// Makes the key that follows from a seed (RFC 9180 section 7.1.3), under a number.
    ///
    /// # Errors
    ///
    /// [`SealError::Crypto`] if no key follows from it, which no seed is known for.
    pub fn from_seed(id: u8, seed: &[u8; 32]) -> Result<Self, SealError> {
        let suites = vec![
            SymmetricSuite::new(Kdf::HkdfSha256, Aead::Aes128Gcm),
            SymmetricSuite::new(Kdf::HkdfSha256, Aead::ChaCha20Poly1305),
        ];
        let config = KeyConfig::derive(id, Kem::X25519Sha256, suites, seed).map_err(|_| SealError::Crypto)?;
        let encoded = config.encode().map_err(|_| SealError::Crypto)?.into();
        let server = Server::new(config).map_err(|_| SealError::Crypto)?;
        Ok(Self { id, server, config: encoded })
    }

    /// Returns the key's number.
    #[must_use]
    pub const fn id(&self) -> u8 {
        self.id
    }

    /// Returns the public configuration, which clients seal with.
    #[must_use]
    pub const fn config(&self) -> &Bytes {
        &self.config
    }

    /// Opens a sealed request.
    ///
    /// # Errors
    ///
    /// An [`OpenError`] if it was not sealed for this key; nothing can be answered through the pipe then.
    pub fn open(&self, sealed: &[u8]) -> Result<Opened, OpenError> {
        let (header, rest) = sealed.split_first_chunk::<HEADER_BYTES>().ok_or(OpenError::Truncated)?;
        let (enc, _) = rest.split_first_chunk::<PUBLIC_KEY_BYTES>().ok_or(OpenError::Truncated)?;
        let algorithms = |aead: &u16| [KEM_X25519, KDF_SHA256, *aead].map(u16::to_be_bytes).concat();
        if !AEADS.iter().any(|aead| header[1..] == algorithms(aead)) {
            return Err(OpenError::Unsupported);
        }
        let (message, answer) = self.server.decapsulate(sealed).map_err(|_| OpenError::Changed)?;
        let (request, date_ms) = match message::decode_request(&message) {
            Ok((request, date_ms)) => (Ok(request), date_ms),
            Err(error) => (Err(error), None),
        };
        Ok(Opened { enc: *enc, request, date_ms, answer: AnswerSealer(answer) })
    }
}

impl fmt::Debug for PipeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipeKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Seals the answer to one request, for who sealed that.
pub struct AnswerSealer(ServerResponse);

impl AnswerSealer {
    /// Seals the answer.
    ///
    /// # Errors
    ///
    /// A [`SealError`] if it cannot be written as Binary HTTP or the encryption fails.
    pub fn seal(self, response: Response<Content>) -> Result<Bytes, SealError> {
        let (head, content) = response.into_parts();
        let message = message::encode_response(&head, &content)?;
        self.sealed(&message)
    }

    /// Seals the answer, or another in its place where it cannot be written as Binary HTTP.
    ///
    /// # Errors
    ///
    /// A [`SealError`] if the other one cannot be written either, or the encryption fails.
    pub fn seal_or(
        self,
        response: Response<Content>,
        other: impl FnOnce(MessageError) -> Response<Content>,
    ) -> Result<Bytes, SealError> {
        let (head, content) = response.into_parts();
        match message::encode_response(&head, &content) {
            Ok(message) => self.sealed(&message),
            Err(error) => self.seal(other(error)),
        }
    }

    fn sealed(self, message: &[u8]) -> Result<Bytes, SealError> {
        self.0.encapsulate(message).map(Bytes::from).map_err(|_| SealError::Crypto)
    }
}

impl fmt::Debug for AnswerSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnswerSealer").finish_non_exhaustive()
    }
}

/// Returns the number of the key that something was sealed for.
#[must_use]
pub fn key_id(sealed: &[u8]) -> Option<u8> {
    sealed.first().copied()
}

/// Writes key configurations as a list (`application/ohttp-keys`, RFC 9458 section 3.2), the one to use first.
#[must_use]
pub fn encode_configs<'a>(configs: impl IntoIterator<Item = &'a Bytes>) -> Bytes {
    let mut list = Vec::new();
    for config in configs {
        let length = u16::try_from(config.len()).expect("a configuration has some forty bytes");
        list.extend_from_slice(&length.to_be_bytes());
        list.extend_from_slice(config);
    }
    list.into()
}
