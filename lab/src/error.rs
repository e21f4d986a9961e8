//! Why a command failed, for people, programs and shells.

use std::io;

use crate::catalogue::CatalogueError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CommandError {
    /// The scenario cannot be found.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The result cannot be written.
    #[error("output cannot be written: {0}")]
    Output(#[source] io::Error),
    /// The command line is right in form, but asks for what makes no sense here.
    #[error("{0}")]
    Usage(String),
}

impl CommandError {
    /// Gives the name of the error for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Catalogue(_) => "scenario",
            Self::Output(_) => "output",
            Self::Usage(_) => "usage",
        }
    }

    /// Gives the exit code, as `ropeway-lab --help` lists them.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_BROKEN_PIPE,
            Self::Output(_) => EXIT_FAILED,
            Self::Catalogue(_) | Self::Usage(_) => EXIT_USAGE,
        }
    }
}

/// Something went wrong.
const EXIT_FAILED: u8 = 1;

/// The command line or the scenario is wrong; also what clap uses.
pub(crate) const EXIT_USAGE: u8 = 2;

/// The reader of the output is gone: 128 and the number of SIGPIPE, as a shell shows a process that it ended.
const EXIT_BROKEN_PIPE: u8 = 141;
