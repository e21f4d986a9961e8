//! `shell`: a shell in a lab.

use std::{env, process::ExitCode};

use serde_json::json;

use super::run::{report, start};
use crate::{
    args::{Global, ShellArgs},
    error::CommandError,
    output::Output,
    program::Runner,
    topology::Place,
};

/// Builds the lab, opens a shell at the client and waits for its end.
pub(crate) fn run(args: &ShellArgs, global: &Global, output: Output) -> Result<ExitCode, CommandError> {
    let runner = Runner::new()?;
    let lab = start(&args.network, global, output)?;
    let shell = env::var("SHELL").unwrap_or_else(|_| DEFAULT_SHELL.to_owned());
    let mut command = lab.command(Place::Client, &shell)?;
    // Debian's bash shows it in the prompt.
    command.env("debian_chroot", format!("lab {} {}", lab.number(), args.network.scenario));
    output.note(&format!(
        "change the network from another terminal: ropeway-lab set --lab {} outage=drop; the lab ends with the shell",
        lab.number()
    ));
    let start = lab.begin()?;
    let ended = runner.run_at(start, command)?;
    let report = report(&lab, vec![shell], &ended);
    output.beside(&report.text(), &json!(report));
    Ok(ExitCode::from(ended.code))
}

/// The shell where none is set.
const DEFAULT_SHELL: &str = "/bin/bash";
