//! Why a command failed, for people, programs and shells.

use std::io;
use std::path::PathBuf;

use ropeway_gateway::StartError;
use ropeway_gateway::config::ConfigError;
use ropeway_gateway::tickets::IssueError;

use crate::admin::AdminError;
use crate::data_dir::DataDirError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CommandError {
    /// The admin API could not be asked, or refused.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// The configuration has a mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// Standard input cannot be read.
    #[error("standard input cannot be read: {0}")]
    Input(#[source] io::Error),
    /// A second signal came during the drain.
    #[error("{signal} came again; stopped without waiting for requests in flight")]
    Interrupted {
        /// The signal.
        signal: &'static str,
    },
    /// The result cannot be written.
    #[error("output cannot be written: {0}")]
    Output(#[source] io::Error),
    /// The process cannot start its threads.
    #[error("no threads or sockets from the operating system: {0}")]
    Runtime(#[source] io::Error),
    /// The gateway cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A ticket cannot be issued.
    #[error("{0}")]
    Ticket(#[from] IssueError),
    /// The command line is right in form, but asks for what makes no sense here.
    #[error("{0}")]
    Usage(String),
    /// The file that was asked for cannot be written.
    #[error("cannot write {}: {source}; choose another place", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    /// This machine's, or its user's.
    Local,
    /// The gateway's.
    Peer,
}

impl Side {
    /// Gives the word for programs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Peer => "peer",
        }
    }
}

impl CommandError {
    /// Gives the name of the error for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Admin(error) => error.name(),
            Self::Config(_) => "config",
            Self::DataDir(error) => error.name(),
            Self::Input(_) => "input",
            Self::Interrupted { .. } => "interrupted",
            Self::Output(_) => "output",
            Self::Runtime(_) => "runtime",
            Self::Start(_) => "start",
            Self::Ticket(_) => "ticket",
            Self::Usage(_) => "usage",
            Self::Write { .. } => "write",
        }
    }

    /// Says whose fault it is.
    pub(crate) fn side(&self) -> Side {
        match self {
            Self::Admin(error) => error.side(),
            Self::Config(_)
            | Self::DataDir(_)
            | Self::Input(_)
            | Self::Interrupted { .. }
            | Self::Output(_)
            | Self::Runtime(_)
            | Self::Start(_)
            | Self::Ticket(_)
            | Self::Usage(_)
            | Self::Write { .. } => Side::Local,
        }
    }

    /// Gives the exit code, as `ropeway --help` lists them.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_BROKEN_PIPE,
            Self::Usage(_) => EXIT_USAGE,
            Self::Admin(_)
            | Self::Config(_)
            | Self::DataDir(_)
            | Self::Input(_)
            | Self::Interrupted { .. }
            | Self::Output(_)
            | Self::Runtime(_)
            | Self::Start(_)
            | Self::Ticket(_)
            | Self::Write { .. } => EXIT_FAILED,
        }
    }
}

/// Something went wrong.
const EXIT_FAILED: u8 = 1;

/// The command line is wrong; also what clap uses.
pub(crate) const EXIT_USAGE: u8 = 2;

/// The reader of the output is gone: 128 and the number of SIGPIPE, as a shell shows a process that it ended.
const EXIT_BROKEN_PIPE: u8 = 141;
