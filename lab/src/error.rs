//! Why a command failed, for people, programs and shells.

use std::{io, path::PathBuf};

use crate::{
    accuracy::AccuracyError, catalogue::CatalogueError, compare::CompareError, lab::LabError,
    live::control::ControlError, program::RunError, simulate::SimulateError,
};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CommandError {
    /// The accuracy of the lab cannot be measured.
    #[error(transparent)]
    Accuracy(#[from] AccuracyError),
    /// The scenario cannot be found.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// The comparison cannot be made.
    #[error(transparent)]
    Compare(#[from] CompareError),
    /// A running lab cannot be asked, or refuses.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// There is no lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The result cannot be written.
    #[error("output cannot be written: {0}")]
    Output(#[source] io::Error),
    /// The program was not run.
    #[error(transparent)]
    Program(#[from] RunError),
    /// The report cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Report {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The simulation cannot be made.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The command line is right in form, but asks for what makes no sense here.
    #[error("{0}")]
    Usage(String),
}

impl CommandError {
    /// Gives the name of the error for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Accuracy(_) => "accuracy",
            Self::Catalogue(_) => "scenario",
            Self::Compare(_) => "compare",
            Self::Control(_) => "control",
            Self::Lab(_) => "lab",
            Self::Output(_) => "output",
            Self::Program(_) => "program",
            Self::Report { .. } => "report",
            Self::Simulate(_) => "simulate",
            Self::Usage(_) => "usage",
        }
    }

    /// Gives the exit code, as `ropeway-lab --help` lists them.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_BROKEN_PIPE,
            Self::Lab(LabError::Program { .. }) => EXIT_NOT_FOUND,
            Self::Accuracy(_) | Self::Lab(_) => EXIT_NO_LAB,
            Self::Compare(CompareError::Choose(_)) | Self::Simulate(SimulateError::Choose(_)) => EXIT_USAGE,
            Self::Compare(CompareError::Report(_)) => EXIT_FAILED,
            Self::Compare(_) => EXIT_NO_LAB,
            Self::Control(_) | Self::Output(_) | Self::Report { .. } | Self::Simulate(_) => EXIT_FAILED,
            Self::Program(RunError::Start(_)) => EXIT_NOT_STARTED,
            Self::Program(RunError::Stopped(_)) => EXIT_NO_LAB,
            Self::Catalogue(_) | Self::Usage(_) => EXIT_USAGE,
        }
    }
}

/// Something went wrong.
const EXIT_FAILED: u8 = 1;

/// The command line or the scenario is wrong; also what clap uses.
pub(crate) const EXIT_USAGE: u8 = 2;

/// The run is void; sysexits.h's "temporary failure, try again".
pub(crate) const EXIT_VOID: u8 = 75;

/// The lab itself failed; this and the next two are as of env(1) and timeout(1).
const EXIT_NO_LAB: u8 = 125;

/// The program cannot be started.
const EXIT_NOT_STARTED: u8 = 126;

/// The program cannot be found.
const EXIT_NOT_FOUND: u8 = 127;

/// The reader of the output is gone: 128 and the number of SIGPIPE, as a shell shows a process that it ended.
const EXIT_BROKEN_PIPE: u8 = 141;
