//! The peers that are written in Rust, behind the line protocol of `lab/peers/README.md`.

mod foreign;
mod lines;
mod own;

use std::{env, fs, path::PathBuf, process::ExitCode};

use clap::ValueEnum;

use crate::error::CommandError;

/// A peer inside this program.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Inside {
    /// The crate `reqwest`.
    Reqwest,
    /// Ropeway's own client.
    Ropeway,
}

/// Answers requests from standard input until its end.
pub(crate) fn run(peer: Inside) -> Result<ExitCode, CommandError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build();
    let runtime = runtime.map_err(|error| CommandError::Usage(format!("no runtime: {error}")))?;
    runtime.block_on(async {
        match peer {
            Inside::Reqwest => foreign::serve().await,
            Inside::Ropeway => own::serve().await,
        }
    })?;
    // Standard input may block a thread for as long as the harness holds it open.
    runtime.shutdown_background();
    Ok(ExitCode::SUCCESS)
}

/// Reads the file that a variable of the environment names, if it names one.
fn file_of(variable: &str) -> Result<Option<Vec<u8>>, CommandError> {
    let Some(path) = env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from) else { return Ok(None) };
    let read = fs::read(&path);
    read.map(Some).map_err(|error| CommandError::Usage(format!("{variable}: cannot read {}: {error}", path.display())))
}

/// One for the protocol, one for the network; a phone has more.
const THREADS: usize = 2;
