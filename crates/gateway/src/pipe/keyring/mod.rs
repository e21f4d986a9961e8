//! The private keys of the sealed pipe: drawn by this gateway for itself, or derived from a secret that gateways share.

mod derived;
mod drawn;

use std::path::PathBuf;

use bytes::Bytes;
use ropeway_net::pipe::{PipeKey, encode_configs};

use self::{derived::Derived, drawn::Drawn};
use crate::{config::Config, gateway::StartError};

/// The keys that are accepted, the one to use first.
#[derive(Debug)]
pub(super) struct Keyring {
    name: String,
    source: Source,
    keys: Vec<Held>,
    /// When it has to be turned, Unix time in ms.
    pub(super) due_ms: u64,
}

/// A public key of a sealed pipe, as clients need it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublicKey {
    /// The name of the pipe.
    pub name: String,
    /// Its number.
    pub id: u8,
    /// The key configuration (RFC 9458 section 3.1).
    pub config: Bytes,
    /// Until when it is accepted, Unix time in ms.
    pub expires_ms: u64,
}

/// Where keys come from.
#[derive(Clone, Debug)]
enum Source {
    Derived(Derived),
    Drawn(Drawn),
}

/// A key, and until when it is accepted.
#[derive(Debug)]
struct Held {
    key: PipeKey,
    expires_ms: u64,
}

impl Keyring {
    /// Takes the keys of a configuration, made where there are none, and says whether an earlier process may have taken
    /// requests with any of them.
    ///
    /// Derived keys are as old as their secret. That this folder saw no process before proves nothing: the name may have been
    /// another machine's a minute ago.
    pub(super) fn open(config: &Config, unix_ms: u64) -> Result<(Self, bool), StartError> {
        let name = config.pipe_name().to_owned();
        let file = config.gateway.data_dir.join(KEYS_FILE);
        let Some(path) = &config.pipe.secret_file else {
            let opened = Self::open_drawn(name, file.clone(), unix_ms);
            return opened.map_err(|reason| StartError::PipeKeys { path: file, reason });
        };
        let derived = Derived::read(path).and_then(|derived| Self::turned(name, Source::Derived(derived), unix_ms));
        let ring = derived.map_err(|reason| StartError::PipeSecret { path: path.clone(), reason })?;
        // They would outlast their two days there.
        drawn::forget(&file);
        Ok((ring, true))
    }

    /// Reads the secret, or the keys, that [`open`](Self::open) would take, and changes none.
    pub(super) fn check(config: &Config) -> Result<(), StartError> {
        let Some(path) = &config.pipe.secret_file else {
            let path = config.gateway.data_dir.join(KEYS_FILE);
            return Drawn::read(path.clone()).map(drop).map_err(|reason| StartError::PipeKeys { path, reason });
        };
        let read = Derived::read(path);
        read.map(drop).map_err(|reason| StartError::PipeSecret { path: path.clone(), reason })
    }

    fn open_drawn(name: String, file: PathBuf, unix_ms: u64) -> Result<(Self, bool), String> {
        let before = Drawn::read(file)?;
        let (after, keys, due_ms) = before.clone().turned(unix_ms)?;
        let is_older = after.has_any_of(&before);
        Ok((Self { name, source: Source::Drawn(after), keys, due_ms }, is_older))
    }

    /// Makes and forgets keys as they are due; this one stays as it is.
    pub(super) fn turn(&self, unix_ms: u64) -> Result<Self, String> {
        Self::turned(self.name.clone(), self.source.clone(), unix_ms)
    }

    fn turned(name: String, source: Source, unix_ms: u64) -> Result<Self, String> {
        let (source, keys, due_ms) = match source {
            Source::Derived(derived) => {
                let (keys, due_ms) = derived.keys(&name, unix_ms)?;
                (Source::Derived(derived), keys, due_ms)
            }
            Source::Drawn(drawn) => {
                let (drawn, keys, due_ms) = drawn.turned(unix_ms)?;
                (Source::Drawn(drawn), keys, due_ms)
            }
        };
        Ok(Self { name, source, keys, due_ms })
    }

    /// Returns the key of a number.
    pub(super) fn key(&self, id: u8) -> Option<&PipeKey> {
        self.keys.iter().map(|held| &held.key).find(|key| key.id() == id)
    }

    /// Returns the public keys that are accepted, the one to use first.
    pub(super) fn public(&self) -> Vec<PublicKey> {
        self.keys.iter().map(|held| held.public(&self.name)).collect()
    }

    /// Returns the key to use as a list of one, and until when it is accepted.
    pub(super) fn current(&self) -> (Bytes, u64) {
        let held = self.keys.first().expect("there is a key at all times");
        (encode_configs([held.key.config()]), held.expires_ms)
    }

    /// Returns what is known of the pipes of these names: the keys of today where the secret is shared, else those of this
    /// gateway alone.
    pub(super) fn of_pipes(&self, names: &[&str], unix_ms: u64) -> Vec<PublicKey> {
        match &self.source {
            Source::Derived(derived) => names.iter().filter_map(|name| derived.public(name, unix_ms)).collect(),
            Source::Drawn(_) => self.public(),
        }
    }
}

impl Held {
    fn public(&self, name: &str) -> PublicKey {
        let (id, config) = (self.key.id(), self.key.config().clone());
        PublicKey { name: name.to_owned(), id, config, expires_ms: self.expires_ms }
    }
}

/// The drawn keys, in the data folder.
pub(crate) const KEYS_FILE: &str = "pipe-keys.json";

#[cfg(test)]
mod tests;
