//! The key that signs the access list.

use std::{fmt, io, path::Path};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    pkcs8::Document,
    rand::SystemRandom,
    signature::{Ed25519KeyPair, KeyPair},
};
use ropeway_core::wire::list::ListKey;
use ropeway_net::pem;
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject};
use tracing::info;

use crate::{config::Config, gateway::StartError, secret, tickets::private_pem};

/// Signs access lists and what is answered beside them with one Ed25519 key.
pub struct ListSigner {
    id: String,
    pair: Ed25519KeyPair,
    public_key: [u8; 32],
}

/// Why there is no key to sign lists with, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListKeyError {
    /// The file that the configuration names is not there.
    #[error("there is no such file; {MAKE_ONE}")]
    Missing,
    /// The key is not an Ed25519 key in PKCS #8.
    #[error("it is not an Ed25519 key in PKCS #8; {MAKE_ONE}")]
    NotEd25519,
    /// The key is not PEM.
    #[error("{0}; {MAKE_ONE}")]
    NotPem(String),
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system")]
    NoRandom,
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Read(#[source] io::Error),
    /// A new key cannot be kept.
    #[error("a new one cannot be written: {0}")]
    Write(#[source] io::Error),
}

impl ListSigner {
    /// Makes a new key.
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn generate() -> Result<Self, ListKeyError> {
        Self::from_pkcs8(new_pkcs8()?.as_ref())
    }

    /// Takes a private key in PEM, PKCS #8 of version 1 or 2.
    ///
    /// # Errors
    /// The text is not PEM, or holds another kind of key.
    pub fn from_pem(pem: &str) -> Result<Self, ListKeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes());
        Self::from_pkcs8(
            der.map_err(|error| ListKeyError::NotPem(pem::reason("private key", &error)))?.secret_pkcs8_der(),
        )
    }

    /// Takes the key that the configuration names, or that of the data folder, which is made where there is none.
    pub(crate) fn open(config: &Config) -> Result<Self, StartError> {
        let path = config.list_key_path();
        // One that gateways share is for their operator to make: a key made here would be another than that of the others.
        let signer = match config.list.key_file {
            Some(_) => Self::read(&path).and_then(|signer| signer.ok_or(ListKeyError::Missing)),
            None => Self::read_or_make(&path),
        };
        signer.map_err(|source| StartError::ListKey { path, source })
    }

    /// Reads the key that [`open`](Self::open) would take, and makes none.
    pub(crate) fn check(config: &Config) -> Result<(), StartError> {
        match config.list.key_file.is_some() || config.list_key_path().exists() {
            true => Self::open(config).map(drop),
            false => Ok(()),
        }
    }

    /// Reads the key of a file; `None` when there is no such file.
    fn read(path: &Path) -> Result<Option<Self>, ListKeyError> {
        secret::read(path).map_err(ListKeyError::Read)?.map(|pem| Self::from_pem(&pem)).transpose()
    }

    fn read_or_make(path: &Path) -> Result<Self, ListKeyError> {
        if let Some(signer) = Self::read(path)? {
            return Ok(signer);
        }
        let pkcs8 = new_pkcs8()?;
        let signer = Self::from_pkcs8(pkcs8.as_ref())?;
        secret::write(path, &private_pem(pkcs8.as_ref())).map_err(ListKeyError::Write)?;
        info!(file = %path.display(), key = signer.id(), "key for the access list made; apps carry its public half");
        Ok(signer)
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

fn new_pkcs8() -> Result<Document, ListKeyError> {
    Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| ListKeyError::NoRandom)
}

/// What to do about a file that holds no key.
const MAKE_ONE: &str = "copy that of another gateway, or make one with `openssl genpkey -algorithm ed25519`, and give apps its public half";

/// Characters of the public key in the name of the key: 48 bits tell a handful of keys apart.
const ID_CHARS: usize = 8;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// An empty folder, and the configuration of a gateway whose data is there.
    fn empty() -> (tempfile::TempDir, Config) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = Config::default();
        config.gateway.data_dir = folder.path().into();
        (folder, config)
    }

    #[test]
    fn a_key_is_made_on_the_first_start_and_stays_its_owners_alone() {
        let (folder, config) = empty();
        let first = ListSigner::open(&config).expect("made");
        assert_eq!(ListSigner::open(&config).expect("read").key(), first.key());
        let mode = std::fs::metadata(folder.path().join("list.key")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_key_that_gateways_share_is_read_from_its_file_and_never_made() {
        let (folder, mut config) = empty();
        let own = ListSigner::open(&config).expect("made");
        let shared = folder.path().join("shared.key");
        config.list.key_file = Some(shared.clone());
        let refused = ListSigner::open(&config).expect_err("nothing there").to_string();
        assert!(refused.contains("shared.key: there is no such file") && refused.contains("openssl"), "{refused}");
        assert!(!shared.exists());
        std::fs::copy(folder.path().join("list.key"), &shared).expect("copied");
        assert_eq!(ListSigner::open(&config).expect("read").key(), own.key());
    }

    #[test]
    fn a_file_without_a_key_is_named_with_what_to_do() {
        let (folder, config) = empty();
        let other = rcgen::KeyPair::generate().expect("a key").serialize_pem();
        for text in ["", "garbage", &other] {
            std::fs::write(folder.path().join("list.key"), text).expect("written");
            let refused = ListSigner::open(&config).expect_err("no key").to_string();
            assert!(refused.contains("list.key: ") && refused.contains("openssl"), "{refused}");
        }
    }
}
