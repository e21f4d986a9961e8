//! `run`: a program in a lab.

use std::process::ExitCode;

use crate::{
    args::{Global, RunArgs},
    catalogue::Catalogue,
    error::CommandError,
    output::Output,
};

/// Builds the lab, starts the program in it and waits for its end.
pub(crate) fn run(args: &RunArgs, global: &Global, output: Output) -> Result<ExitCode, CommandError> {
    let text = Catalogue::find(global.scenarios.as_deref()).text(&args.network.scenario)?;
    output.note(&format!("{} bytes of scenario, seed {}, {:?}", text.len(), args.network.seed, args.command));
    Err(CommandError::Usage("labs cannot be built yet".to_owned()))
}
