//! Why a benchmark could not measure.

use std::io;
use std::path::PathBuf;

use ropeway_core::session::Closed;
use ropeway_gateway::tickets::IssueError;

use crate::data_dir::DataDirError;

/// Why a benchmark could not measure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum BenchError {
    /// A call of the admin API failed.
    #[error("admin API: {reason}")]
    Admin {
        /// What went wrong.
        reason: String,
    },
    /// A request got no whole answer.
    #[error("a request ended without its whole answer: {why:?}")]
    Cut {
        /// How it ended.
        why: Closed,
    },
    /// The gateway's data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A connection to the gateway failed.
    #[error("connection to the gateway: {reason}")]
    Dial {
        /// What went wrong.
        reason: String,
    },
    /// A process that was needed ended.
    #[error("{name} ended too early; see above for its reason")]
    Ended {
        /// Which.
        name: &'static str,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The gateway refused a link.
    #[error("the gateway refused a link: {detail}")]
    Refused {
        /// Its words.
        detail: String,
    },
    /// What is to be counted is not in /proc.
    #[error("cannot read {what} in /proc")]
    Proc {
        /// Which file.
        what: &'static str,
    },
    /// A process cannot be started or looked at.
    #[error("{name}: {source}")]
    Process {
        /// Which.
        name: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A ticket cannot be issued.
    #[error(transparent)]
    Ticket(#[from] IssueError),
    /// Something did not happen in time.
    #[error("{what} took longer than {seconds} s")]
    TimedOut {
        /// What.
        what: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// An answer is not the one that was expected.
    #[error("wrong answer: {what}")]
    WrongAnswer {
        /// What is wrong.
        what: String,
    },
}
