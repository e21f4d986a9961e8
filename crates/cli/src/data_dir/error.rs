//! What can be wrong with a data folder.

use std::io;
use std::path::{Path, PathBuf};

/// Why the data folder cannot be used; every message says where and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum DataDirError {
    /// A file does not hold what it should.
    #[error("{}: {reason}; {hint}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
        /// What to do.
        hint: &'static str,
    },
    /// Another process has the folder.
    #[error(
        "{} is in use by another `ropeway up`{}; stop it, or choose another folder with --data-dir",
        folder.display(),
        process.map(|process| format!(" (process {process})")).unwrap_or_default()
    )]
    InUse {
        /// The folder.
        folder: PathBuf,
        /// The process, where it could be read.
        process: Option<u32>,
    },
    /// The system refused.
    #[error("cannot {action} {}: {source}; {}", path.display(), advice(source.kind()))]
    Io {
        /// What was to be done.
        action: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// `up` never ran here.
    #[error("no {} there; run `ropeway up` first, or name its folder with --data-dir", path.display())]
    Missing {
        /// The file that is looked for.
        path: PathBuf,
    },
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system, so no keys can be made; try again")]
    NoRandom,
}

impl DataDirError {
    /// Wraps what the system says about a path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }

    /// Says that a file holds something else than it should.
    pub(crate) fn damaged(path: &Path, reason: impl ToString) -> Self {
        let hint = "remove it, and `ropeway up` makes a new one";
        Self::Damaged { path: path.to_owned(), reason: reason.to_string(), hint }
    }

    /// Gives the name of the error for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Damaged { .. } => "data_damaged",
            Self::InUse { .. } => "data_in_use",
            Self::Io { .. } => "data_io",
            Self::Missing { .. } => "data_missing",
            Self::NoRandom => "no_random",
        }
    }
}

fn advice(kind: io::ErrorKind) -> &'static str {
    if matches!(kind, io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
        "make room, or choose another folder with --data-dir"
    } else {
        "make it accessible, or choose another folder with --data-dir"
    }
}
