//! `set`: changes the network of a lab that is running.

use std::process::ExitCode;

use crate::{args::SetArgs, error::CommandError, output::Output};

/// Asks the lab for the changes.
pub(crate) fn run(args: &SetArgs, output: Output) -> Result<ExitCode, CommandError> {
    output.note(&format!("lab {:?}: {:?}", args.lab, args.changes));
    Err(CommandError::Usage("no lab is running".to_owned()))
}
