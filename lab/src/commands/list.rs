//! `list`: which scenarios there are.

use std::process::ExitCode;

use serde_json::json;

use crate::{args::Global, catalogue::Catalogue, error::CommandError, output::Output};

/// Lists the scenarios, each followed by its variants.
pub(crate) fn run(global: &Global, output: Output) -> Result<ExitCode, CommandError> {
    for entry in Catalogue::find(global.scenario_dir.as_deref()).entries()? {
        let name = match &entry.variant {
            Some(variant) => format!("  {}:{variant}", entry.scenario),
            None => entry.scenario.clone(),
        };
        let scaled = entry.scaled.map(|scaled| format!(" (times 1:{scaled}, for CI)")).unwrap_or_default();
        output.result(&format!("{name:<NAME_WIDTH$} {}{scaled}", entry.summary), &json!(entry))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Columns for the names.
const NAME_WIDTH: usize = 30;
