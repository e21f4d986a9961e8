//! `list`: which scenarios there are.

use std::process::ExitCode;

use serde_json::json;

use crate::{args::Global, catalogue::Catalogue, error::CommandError, output::Output};

/// Lists the scenarios.
pub(crate) fn run(global: &Global, output: Output) -> Result<ExitCode, CommandError> {
    for name in Catalogue::find(global.scenarios.as_deref()).names()? {
        output.result(&name, &json!({ "scenario": name }))?;
    }
    Ok(ExitCode::SUCCESS)
}
