//! Keys that this gateway draws for itself, in its data folder.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use ropeway_core::pipe::{KeyRecord, Rotation, RotationConfig, RotationOutput};
use ropeway_net::pipe::PipeKey;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::Held;
use crate::secret;

/// What is kept of the keys, and where.
#[derive(Clone, Debug)]
pub(super) struct Drawn {
    file: PathBuf,
    stored: Vec<Stored>,
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

impl Drawn {
    /// Reads the keys of a file; where there is none, there are none.
    pub(super) fn read(file: PathBuf) -> Result<Self, String> {
        let text = secret::read(&file).map_err(|error| error.to_string())?;
        let StoredKeys { keys: stored } = match text {
            Some(text) => serde_json::from_str(&text)
                .map_err(|error| format!("{error}; remove the file to have new keys made"))?,
            None => StoredKeys::default(),
        };
        Ok(Self { file, stored })
    }

    /// Says whether any key is one of another's.
    pub(super) fn has_any_of(&self, other: &Self) -> bool {
        self.stored.iter().any(|key| other.stored.iter().any(|known| known.seed == key.seed))
    }

    /// Makes and forgets keys as they are due, and writes the file if something changed. Returns the keys that are accepted,
    /// the one to use first, and when there are others.
    pub(super) fn turned(self, unix_ms: u64) -> Result<(Self, Vec<Held>, u64), String> {
        let Self { file, mut stored } = self;
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
        let (mut kept, mut keys) = (Vec::new(), Vec::new());
        for record in rotation.keys() {
            let Some(mut stored) = stored.iter().find(|key| key.id == record.id).cloned() else { continue };
            stored.made_ms = record.made_ms;
            let seed = STANDARD.decode(&stored.seed).ok().and_then(|seed| <[u8; 32]>::try_from(seed).ok());
            let seed = seed.ok_or_else(|| format!("key {} has no seed of 32 bytes in Base64", stored.id))?;
            let key = PipeKey::from_seed(stored.id, &seed).map_err(|error| error.to_string())?;
            kept.push(stored);
            keys.push(Held { key, expires_ms: rotation.expires_ms(record) });
        }
        if is_changed {
            let stored = StoredKeys { keys: kept.clone() };
            let text = serde_json::to_string_pretty(&stored).expect("numbers and texts can be written as JSON");
            secret::write(&file, &format!("{text}\n")).map_err(|error| error.to_string())?;
        }
        Ok((Self { file, stored: kept }, keys, rotation.poll_timeout().0))
    }
}

/// Removes a file of keys that are not used any more.
pub(super) fn forget(file: &Path) {
    match std::fs::remove_file(file) {
        Ok(()) => {
            info!(file = %file.display(), "keys of the sealed pipe are derived now; the drawn ones are forgotten")
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            warn!(file = %file.display(), %error, "old keys of the sealed pipe cannot be removed; remove them")
        }
    }
}
