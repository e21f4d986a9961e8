//! `accuracy`: measures the lab itself.

use std::process::ExitCode;

use crate::{accuracy::measure, args::AccuracyArgs, error::CommandError, output::Output};

/// Measures and writes the table.
pub(crate) fn run(args: &AccuracyArgs, output: Output) -> Result<ExitCode, CommandError> {
    let accuracy = measure(args.effort, |line| output.note(&format!("{line:?} {}", line.is_good())))?;
    output.note(&format!("{:?}", accuracy.lateness));
    Ok(if accuracy.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
