//! The key that signs the access list.

use std::{fmt, path::Path};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};
use ropeway_core::wire::list::ListKey;
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};

/// Signs access lists and what is answered beside them with one Ed25519 key.
pub struct ListSigner {
    id: String,
    pair: Ed25519KeyPair,
    public_key: [u8; 32],
}

/// Why there is no key to sign lists with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListKeyError {
    /// The file cannot be read.
    #[error("{path}: cannot be read: {source}")]
    File {
        /// The file.
        path: String,
        /// The reason.
        source: std::io::Error,
    },
    /// The key is not an Ed25519 key in PKCS #8.
    #[error("list key is not an Ed25519 key in PKCS #8")]
    NotEd25519,
    /// The key is not PEM.
    #[error("list key is not a PEM private key: {0}")]
    NotPem(String),
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system")]
    NoRandom,
}

impl ListSigner {
    /// Makes a new key.
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn generate() -> Result<Self, ListKeyError> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| ListKeyError::NoRandom)?;
        Self::from_pkcs8(document.as_ref())
    }

    /// Takes a private key in PEM, PKCS #8 of version 1 or 2.
    ///
    /// # Errors
    /// The text is not PEM, or holds another kind of key.
    pub fn from_pem(pem: &str) -> Result<Self, ListKeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes());
        Self::from_pkcs8(der.map_err(|error| ListKeyError::NotPem(error.to_string()))?.secret_pkcs8_der())
    }

    /// Reads the key of a file; `None` when there is no such file.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>, ListKeyError> {
        match std::fs::read_to_string(path) {
            Ok(pem) => Self::from_pem(&pem).map(Some),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(ListKeyError::File { path: path.display().to_string(), source }),
        }
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Result<Self, ListKeyError> {
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map_err(|_| ListKeyError::NotEd25519)?;
        let public_key: [u8; 32] = pair.public_key().as_ref().try_into().map_err(|_| ListKeyError::NotEd25519)?;
        let id = format!("list-{}", &URL_SAFE_NO_PAD.encode(public_key)[..ID_CHARS]);
        Ok(Self { id, pair, public_key })
    }

    /// Gives the public half and its name, which follows from it: what apps carry.
    #[must_use]
    pub fn key(&self) -> ListKey {
        ListKey { id: self.id.clone(), public_key: self.public_key }
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.pair.sign(message).as_ref().try_into().expect("an Ed25519 signature has 64 bytes")
    }
}

impl fmt::Debug for ListSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListSigner").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Characters of the public key in the name of the key: 48 bits tell a handful of keys apart.
const ID_CHARS: usize = 8;
