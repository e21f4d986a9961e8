//! Why a command failed, for people, programs and shells.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use ropeway::{Phase, Side};
use ropeway_gateway::StartError;
use ropeway_gateway::config::ConfigError;
use ropeway_gateway::tickets::IssueError;

use crate::admin::AdminError;
use crate::bench::BenchError;
use crate::data_dir::DataDirError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CommandError {
    /// The admin API could not be asked, or refused.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A benchmark could not measure.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// A file that should name authorities has no certificate that can be used.
    #[error("no authority can be taken from {}: {reason}; remove it, and `ropeway up` makes a new one", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A client cannot be made of what is given.
    #[error("no client can be made: {0}")]
    Client(#[from] ropeway::BuildError),
    /// The configuration has a mistake.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data folder cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// A file that the command line names cannot be read.
    #[error("cannot read {}: {source}; {hint}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
        /// What to do.
        hint: &'static str,
    },
    /// A signal ended the command amid a request.
    #[error("{signal}: {}", given_up(*phase))]
    GivenUp {
        /// The signal.
        signal: &'static str,
        /// What the request was at.
        phase: Phase,
    },
    /// Standard input cannot be read.
    #[error("standard input cannot be read: {0}")]
    Input(#[source] io::Error),
    /// A second signal came during the drain.
    #[error("{signal} came again; stopped without waiting for requests in flight")]
    Interrupted {
        /// The signal.
        signal: &'static str,
    },
    /// The time for the whole was over.
    #[error("timed out after {} ms", after.as_millis())]
    OutOfTime {
        /// The time.
        after: Duration,
    },
    /// The result cannot be written.
    #[error("output cannot be written: {0}")]
    Output(#[source] io::Error),
    /// A request failed, or the link was refused.
    #[error("{text}")]
    Request {
        /// Why.
        error: Box<ropeway::Error>,
        /// Why, in words, and what to do.
        text: String,
    },
    /// The process cannot start its threads.
    #[error("no threads or sockets from the operating system: {0}")]
    Runtime(#[source] io::Error),
    /// The gateway cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The answer's status is an error, and `--fail` is given.
    #[error("the answer's status is {0}")]
    Status(StatusCode),
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

impl CommandError {
    /// Gives the name of the error for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Admin(error) => error.name(),
            Self::Bench(_) => "bench",
            Self::Certificates { .. } => "certificates",
            Self::Client(_) => "client",
            Self::Config(_) => "config",
            Self::DataDir(error) => error.name(),
            Self::File { .. } => "file",
            Self::GivenUp { .. } => "given_up",
            Self::Input(_) => "input",
            Self::Interrupted { .. } => "interrupted",
            Self::OutOfTime { .. } => "timeout",
            Self::Output(_) => "output",
            Self::Request { error, .. } => request_kind(error).0,
            Self::Runtime(_) => "runtime",
            Self::Start(_) => "start",
            Self::Status(_) => "status",
            Self::Ticket(_) => "ticket",
            Self::Usage(_) => "usage",
            Self::Write { .. } => "write",
        }
    }

    /// Says whose fault it is.
    pub(crate) fn side(&self) -> Side {
        match self {
            Self::Admin(error) => error.side(),
            Self::Request { error, .. } => error.side(),
            Self::OutOfTime { .. } => Side::Network,
            Self::Status(_) => Side::Service,
            Self::Bench(_)
            | Self::Certificates { .. }
            | Self::Client(_)
            | Self::Config(_)
            | Self::DataDir(_)
            | Self::File { .. }
            | Self::GivenUp { .. }
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
            Self::OutOfTime { .. } => EXIT_TIMED_OUT,
            Self::Request { error, .. } => request_kind(error).1,
            Self::GivenUp { signal: "SIGTERM", .. } => EXIT_SIGTERM,
            Self::GivenUp { .. } => EXIT_SIGINT,
            Self::Status(_) => EXIT_STATUS,
            Self::Usage(_) => EXIT_USAGE,
            Self::Admin(_)
            | Self::Bench(_)
            | Self::Certificates { .. }
            | Self::Client(_)
            | Self::Config(_)
            | Self::DataDir(_)
            | Self::File { .. }
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

/// Says what is known of a request that was given up.
const fn given_up(phase: Phase) -> &'static str {
    match phase {
        Phase::Answer => "given up while waiting for the answer; the request was sent, and may have been executed",
        Phase::Body | Phase::Pause { .. } => "given up amid the answer; its head had come, its body had not ended",
        Phase::Connect => "given up before the request was sent; it was not executed",
        _ => "given up; the request may have been executed",
    }
}

/// Gives the name of a request's error for programs, and the exit code.
fn request_kind(error: &ropeway::Error) -> (&'static str, u8) {
    use ropeway::Error;
    match error {
        Error::AnswerTooLarge { .. } => ("answer_too_large", EXIT_FAILED),
        Error::Body(_) => ("body", EXIT_FAILED),
        Error::BodyCorrupt { .. } => ("body_corrupt", EXIT_PARTIAL),
        Error::BodyCut { .. } => ("body_cut", EXIT_PARTIAL),
        Error::BodyInflated { .. } => ("body_inflated", EXIT_PARTIAL),
        Error::BodyTooLarge { .. } => ("body_too_large", EXIT_FAILED),
        Error::BrokeOff { .. } => ("broke_off", EXIT_FAILED),
        Error::Closed => ("closed", EXIT_FAILED),
        Error::HeadTooLarge { .. } => ("head_too_large", EXIT_USAGE),
        Error::Invalid(_) => ("invalid", EXIT_USAGE),
        Error::Json(_) => ("json", EXIT_FAILED),
        Error::NoList { .. } => ("no_list", EXIT_FAILED),
        Error::NoWay { .. } => ("no_way", EXIT_FAILED),
        Error::NotExecuted { .. } => ("not_executed", EXIT_FAILED),
        Error::OutcomeUnknown { .. } => ("outcome_unknown", EXIT_FAILED),
        Error::PlainHttp { .. } => ("plain_http", EXIT_FAILED),
        Error::Refused { .. } => ("refused", EXIT_FAILED),
        Error::Reset { .. } => ("reset", EXIT_FAILED),
        Error::RouteBusy { .. } => ("route_busy", EXIT_FAILED),
        Error::Setup { .. } => ("setup", EXIT_FAILED),
        Error::Tampered { .. } => ("tampered", EXIT_FAILED),
        Error::Ticket { .. } => ("ticket", EXIT_FAILED),
        Error::Timeout { .. } => ("timeout", EXIT_TIMED_OUT),
        Error::TooFrequent { .. } => ("too_frequent", EXIT_FAILED),
        Error::Redirect { .. } => ("redirect", EXIT_FAILED),
        Error::TooManyTopics { .. } => ("too_many_topics", EXIT_FAILED),
        Error::TooManyWaiting { .. } => ("too_many_waiting", EXIT_FAILED),
        Error::Untrusted { .. } => ("untrusted", EXIT_FAILED),
        _ => ("request", EXIT_FAILED),
    }
}

/// Something went wrong.
const EXIT_FAILED: u8 = 1;

/// Only a part of the answer came; the number is curl's.
const EXIT_PARTIAL: u8 = 18;

/// The status is 400 or more and `--fail` is given; the number is curl's.
const EXIT_STATUS: u8 = 22;

/// Out of time; the number is curl's.
const EXIT_TIMED_OUT: u8 = 28;

/// The command line is wrong; also what clap uses.
pub(crate) const EXIT_USAGE: u8 = 2;

/// SIGINT came, as by Ctrl-C: 128 and the number of the signal, as a shell shows a process that it ended.
const EXIT_SIGINT: u8 = 130;

/// SIGTERM came: the same.
const EXIT_SIGTERM: u8 = 143;

/// The reader of the output is gone: 128 and the number of SIGPIPE, as a shell shows a process that it ended.
const EXIT_BROKEN_PIPE: u8 = 141;
