//! `set`: changes the network of a lab that is running.

use std::process::ExitCode;

use serde_json::json;

use crate::{
    args::SetArgs,
    error::CommandError,
    live::control::{Request, ask},
    output::Output,
};

/// Asks the lab for the changes and says what it did.
pub(crate) fn run(args: &SetArgs, output: Output) -> Result<ExitCode, CommandError> {
    let (lab, done) = ask(args.lab, &Request { set: args.changes.clone() })?;
    output.result(&done.join("\n"), &json!({ "lab": lab, "done": done }))?;
    Ok(ExitCode::SUCCESS)
}
