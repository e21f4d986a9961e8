//! The peers: how each is started, and what it says of itself.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::mpsc,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::adapter::{Adapter, AdapterError};

/// The file of peers, filled in for this machine.
#[derive(Debug)]
pub(crate) struct Peers {
    entries: BTreeMap<String, Entry>,
    own: [PathBuf; 2],
    places: [(&'static str, PathBuf); 3],
}

/// A peer that was seen to start.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    /// Its name.
    pub(crate) name: String,
    /// It is Ropeway, and reaches the origin through a gateway instead of the web server.
    pub(crate) through_gateway: bool,
    /// What it says of itself.
    pub(crate) about: About,
    /// Fingerprint of Ropeway's programs, whose version says too little; 0 for others.
    pub(crate) build: u64,
    command: Vec<String>,
    installed: PathBuf,
}

/// What an adapter says in its first line.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct About {
    /// Name of the peer.
    pub(crate) peer: String,
    /// Its version, and of what it rests on.
    pub(crate) version: String,
    /// Its retry settings, and where they are recommended.
    pub(crate) settings: String,
}

/// Why there are no peers.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum PeersError {
    /// The file of peers cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file of peers is malformed.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// There is no such peer.
    #[error("no peer `{name}`; there are {known}")]
    Unknown {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// A peer does not start.
    #[error("peer {name} does not start: {source}; install the peers with `{} {}`", install.display(), folder.display())]
    Missing {
        /// The peer.
        name: String,
        /// What is wrong.
        source: AdapterError,
        /// The installer.
        install: PathBuf,
        /// The folder to install into.
        folder: PathBuf,
    },
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    command: Vec<String>,
    through: Option<Through>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
enum Through {
    Gateway,
}

impl Peers {
    /// Reads `peers.toml` of a folder with adapters; `installed` is what its installer filled, `ropeway` the gateway's program.
    pub(crate) fn read(adapters: &Path, installed: &Path, ropeway: &Path) -> Result<Self, PeersError> {
        let path = adapters.join("peers.toml");
        let text = fs::read_to_string(&path).map_err(|source| PeersError::Read { path: path.clone(), source })?;
        let entries = toml::from_str(&text)
            .map_err(|error: toml::de::Error| PeersError::Malformed { path, reason: error.to_string() })?;
        let lab = env::current_exe().unwrap_or_else(|_| "ropeway-lab".into());
        let own = [lab.clone(), ropeway.to_owned()];
        let places = [("{here}", adapters.to_owned()), ("{peers}", installed.to_owned()), ("{lab}", lab)];
        Ok(Self { entries, own, places })
    }

    /// Gives the names, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// Starts a peer once outside of any lab, to see that it is there and to learn its version.
    pub(crate) fn meet(&self, name: &str) -> Result<Peer, PeersError> {
        let unknown =
            || PeersError::Unknown { name: name.to_owned(), known: self.names().collect::<Vec<_>>().join(", ") };
        let entry = self.entries.get(name).ok_or_else(unknown)?;
        let [adapters, installed, _] = &self.places;
        let fill = |word: &String| {
            self.places.iter().fold(word.clone(), |word, (mark, path)| word.replace(mark, &path.to_string_lossy()))
        };
        let through_gateway = entry.through == Some(Through::Gateway);
        let mut peer = Peer {
            name: name.to_owned(),
            through_gateway,
            about: About::default(),
            command: entry.command.iter().map(fill).collect(),
            installed: installed.1.clone(),
            build: if through_gateway { fingerprint(&self.own)? } else { 0 },
        };
        let (answers, _) = mpsc::channel();
        let started = Adapter::start(peer.configure(Command::new(peer.program())), START_MAX, 0, answers);
        peer.about = started.map(|adapter| adapter.about().clone()).map_err(|source| PeersError::Missing {
            name: name.to_owned(),
            source,
            install: adapters.1.join("install"),
            folder: installed.1.clone(),
        })?;
        Ok(peer)
    }
}

impl Peer {
    /// Gives the program to start.
    pub(crate) fn program(&self) -> &str {
        self.command.first().map_or("", String::as_str)
    }

    /// Gives arguments and environment to a command that starts the program.
    pub(crate) fn configure(&self, mut command: Command) -> Command {
        command.args(self.command.iter().skip(1)).env("LAB_PEERS", &self.installed);
        command
    }
}

/// Hashes programs by FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv), eight bytes at a time as they are large.
fn fingerprint(programs: &[PathBuf]) -> Result<u64, PeersError> {
    let mut hash = super::cache::FNV_BASIS;
    for path in programs {
        let program = fs::read(path).map_err(|source| PeersError::Read { path: path.clone(), source })?;
        let words = program.chunks_exact(8).filter_map(|word| word.first_chunk().copied().map(u64::from_le_bytes));
        hash = words.fold(hash, |hash, word| (hash ^ word).wrapping_mul(super::cache::FNV_PRIME));
    }
    Ok(hash)
}

#[cfg(test)]
impl Peer {
    /// A peer that is a line of shell.
    pub(crate) fn of_shell(name: &str, script: &str) -> Self {
        Self {
            name: name.to_owned(),
            through_gateway: false,
            about: About { peer: name.to_owned(), version: "1".to_owned(), settings: "none".to_owned() },
            command: ["sh", "-c", script].map(str::to_owned).to_vec(),
            installed: PathBuf::new(),
            build: 0,
        }
    }
}

/// Longest start of a peer. The slowest here takes 2 s on an idle machine; four start at once.
pub(crate) const START_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn peers(text: &str) -> Result<Peers, PeersError> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("peers.toml"), text).expect("written");
        Peers::read(folder.path(), Path::new("/installed"), Path::new("/ropeway"))
    }

    #[test]
    fn a_peer_says_what_it_is_when_it_is_met() {
        let ready = r#"{"ready":{"peer":"one","version":"1.2","settings":"none"}}"#;
        let command =
            format!("command = ['sh', '-c', \"\"\"echo '{ready}'; echo $LAB_PEERS >&2; cat >/dev/null\"\"\"]");
        let peer = peers(&format!("[one]\n{command}\n")).expect("good").meet("one").expect("there");
        assert_eq!((peer.about.version.as_str(), peer.through_gateway), ("1.2", false));
    }

    #[test]
    fn a_peer_that_is_not_installed_is_named_with_the_remedy() {
        let peers = peers("[one]\ncommand = ['{peers}/bin/one']\n").expect("good");
        let message = peers.meet("one").expect_err("not there").to_string();
        assert!(message.contains("peer one does not start") && message.contains("install /installed`"), "{message}");
        let message = peers.meet("two").expect_err("no such").to_string();
        assert_eq!(message, "no peer `two`; there are one");
    }

    #[test]
    fn the_committed_file_names_every_peer_of_the_comparison() {
        let adapters = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let peers = Peers::read(&adapters, Path::new("/installed"), Path::new("/ropeway")).expect("good");
        let names =
            ["aiohttp", "chromium", "chromium-hev3", "libcurl", "libcurl-h3", "okhttp", "reqwest", "ropeway", "undici"];
        assert!(peers.names().eq(names));
    }
}
