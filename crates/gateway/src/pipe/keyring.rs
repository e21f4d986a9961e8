//! The private keys of the sealed pipe, in memory and in the data folder.

use std::path::{Path, PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use ropeway_core::pipe::{KeyRecord, Rotation, RotationConfig, RotationOutput};
use ropeway_net::pipe::{PipeKey, encode_configs};
use serde::{Deserialize, Serialize};

use crate::secret;

/// The keys that are accepted, the one to use first.
#[derive(Debug)]
pub(super) struct Keyring {
    file: PathBuf,
    keys: Vec<Held>,
    /// When it has to be turned, Unix time in ms.
    pub(super) due_ms: u64,
}

/// A public key of the sealed pipe, as clients need it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PublicKey {
    /// Its number.
    pub id: u8,
    /// The key configuration (RFC 9458 section 3.1).
    pub config: Bytes,
    /// Until when it is accepted, Unix time in ms.
    pub expires_ms: u64,
}

/// A key with what has to be kept of it.
#[derive(Debug)]
struct Held {
    stored: Stored,
    key: PipeKey,
    expires_ms: u64,
}

/// A key as the file has it.
#[derive(Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    id: u8,
    made_ms: u64,
    /// 32 bytes from which the key follows, in Base64.
    seed: String,
}

#[derive(Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct StoredKeys {
    keys: Vec<Stored>,
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored").field("id", &self.id).field("made_ms", &self.made_ms).finish_non_exhaustive()
    }
}

impl Keyring {
    /// Reads the keys of a file, makes what is missing, and says whether an earlier process had any of them.
    pub(super) fn open(file: &Path, unix_ms: u64) -> Result<(Self, bool), String> {
        let text = secret::read(file).map_err(|error| error.to_string())?;
        let stored = match text {
            Some(text) => serde_json::from_str::<StoredKeys>(&text)
                .map_err(|error| format!("{error}; remove the file to have new keys made"))?,
            None => StoredKeys::default(),
        };
        let known: Vec<String> = stored.keys.iter().map(|key| key.seed.clone()).collect();
        let ring = Self::turned(file, stored.keys, unix_ms)?;
        let is_older = ring.keys.iter().any(|held| known.contains(&held.stored.seed));
        Ok((ring, is_older))
    }

    /// Makes and forgets keys as they are due, and writes the file if something changed; this one stays as it is.
    pub(super) fn turn(&self, unix_ms: u64) -> Result<Self, String> {
        Self::turned(&self.file, self.keys.iter().map(|held| held.stored.clone()).collect(), unix_ms)
    }

    fn turned(file: &Path, mut stored: Vec<Stored>, unix_ms: u64) -> Result<Self, String> {
        let records = stored.iter().map(|key| KeyRecord { id: key.id, made_ms: key.made_ms }).collect();
        let seed = u64::from_le_bytes(crate::random_bytes());
        let mut rotation = Rotation::new(RotationConfig::default(), seed, records, unix_ms);
        let mut is_changed = false;
        while let Some(output) = rotation.poll_output() {
            is_changed = true;
            match output {
                RotationOutput::Forget { id } => stored.retain(|key| key.id != id),
                RotationOutput::Make { key: KeyRecord { id, made_ms } } => {
                    let seed = STANDARD.encode(crate::random_bytes::<32>());
                    stored.push(Stored { id, made_ms, seed });
                }
            }
        }
        let mut keys = Vec::new();
        for record in rotation.keys() {
            let Some(mut stored) = stored.iter().find(|key| key.id == record.id).cloned() else { continue };
            stored.made_ms = record.made_ms;
            let seed = STANDARD.decode(&stored.seed).ok().and_then(|seed| <[u8; 32]>::try_from(seed).ok());
            let seed = seed.ok_or_else(|| format!("key {} has no seed of 32 bytes in Base64", stored.id))?;
            let key = PipeKey::from_seed(stored.id, &seed).map_err(|error| error.to_string())?;
            keys.push(Held { stored, key, expires_ms: rotation.expires_ms(record) });
        }
        if is_changed {
            let stored = StoredKeys { keys: keys.iter().map(|held| held.stored.clone()).collect() };
            let text = serde_json::to_string_pretty(&stored).expect("numbers and texts can be written as JSON");
            secret::write(file, &format!("{text}\n")).map_err(|error| error.to_string())?;
        }
        Ok(Self { file: file.to_owned(), keys, due_ms: rotation.poll_timeout().0 })
    }

    /// Returns the key of a number.
    pub(super) fn key(&self, id: u8) -> Option<&PipeKey> {
        self.keys.iter().map(|held| &held.key).find(|key| key.id() == id)
    }

    /// Returns the public keys, the one to use first.
    pub(super) fn public(&self) -> Vec<PublicKey> {
        let public = |held: &Held| PublicKey {
            id: held.key.id(),
            config: held.key.config().clone(),
            expires_ms: held.expires_ms,
        };
        self.keys.iter().map(public).collect()
    }

    /// Returns the key to use as a list of one, and until when it is accepted.
    pub(super) fn current(&self) -> (Bytes, u64) {
        let held = self.keys.first().expect("a rotation has a key at all times");
        (encode_configs([held.key.config()]), held.expires_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    const START_MS: u64 = 20_000 * DAY_MS;

    #[test]
    fn keys_stay_over_a_restart_and_the_previous_one_is_kept_for_a_day() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pipe-keys.json");
        let (first, is_older) = Keyring::open(&file, START_MS).expect("made");
        assert!(!is_older, "nobody had it before");
        let (again, is_older) = Keyring::open(&file, START_MS + 1).expect("read");
        assert!(is_older);
        assert_eq!(again.public(), first.public());

        let second = again.turn(START_MS + DAY_MS).expect("turned");
        let ids: Vec<_> = second.public().iter().map(|key| key.id).collect();
        assert_eq!(ids, [first.public()[0].id.wrapping_add(1), first.public()[0].id]);
        let (read, _) = Keyring::open(&file, START_MS + DAY_MS).expect("read");
        assert_eq!(read.public(), second.public());
        let third = second.turn(START_MS + 2 * DAY_MS).expect("turned");
        assert!(third.key(ids[1]).is_none() && third.key(ids[0]).is_some());
        let (renewed, is_older) = Keyring::open(&file, START_MS + 9 * DAY_MS).expect("made anew");
        assert_eq!((renewed.public().len(), is_older), (1, false));
    }

    #[test]
    fn a_damaged_file_is_named_and_not_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("pipe-keys.json");
        for text in ["", "{}", "{\"keys\": [{\"id\": 1, \"made_ms\": 1728000000000, \"seed\": \"short\"}]}"] {
            std::fs::write(&file, text).expect("written");
            Keyring::open(&file, START_MS).expect_err("damaged");
            assert_eq!(std::fs::read_to_string(&file).expect("there"), text);
        }
    }

    #[test]
    fn a_key_does_not_print_itself() {
        let folder = tempfile::tempdir().expect("a folder");
        let (ring, _) = Keyring::open(&folder.path().join("keys"), START_MS).expect("made");
        let printed = format!("{ring:?}");
        assert!(!printed.contains(&ring.keys[0].stored.seed), "{printed}");
    }
}
