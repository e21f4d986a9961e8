//! `accuracy`: measures the lab itself.

use std::{fs, path::Path, process::ExitCode};

use serde_json::json;

use crate::{
    accuracy::{self, Accuracy, Measured, measure},
    args::AccuracyArgs,
    error::CommandError,
    output::Output,
};

/// Measures, prints each line as it comes, and writes the table if it is asked to.
pub(crate) fn run(args: &AccuracyArgs, output: Output) -> Result<ExitCode, CommandError> {
    if let Some(path) = &args.write {
        // A document without a place for the table is found out before minutes are spent.
        insert(path, "")?;
    }
    let bar = output.bar(accuracy::lines());
    let mut failed = None;
    let accuracy = measure(args.effort, |line| {
        let printed = bar.suspend(|| output.result(&text(line), &json!(line)));
        failed = failed.take().or(printed.err());
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    if let Some(error) = failed {
        return Err(error);
    }
    output.note(&verdict(&accuracy));
    if let Some(path) = &args.write {
        let document = insert(path, &accuracy.markdown(args.effort))?;
        fs::write(path, document).map_err(|source| CommandError::Report { path: path.clone(), source })?;
    }
    Ok(if accuracy.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads a document and puts the table into it.
fn insert(path: &Path, table: &str) -> Result<String, CommandError> {
    let document = fs::read_to_string(path).map_err(|source| CommandError::Report { path: path.to_owned(), source })?;
    accuracy::insert(&document, table).ok_or_else(|| {
        CommandError::Usage(format!("{} has no place for the table; take docs/lab.md as a model", path.display()))
    })
}

fn text(line: &Measured) -> String {
    let verdict = if line.is_good() { "good" } else { "BAD" };
    format!(
        "{verdict:<5} {:<28} {:<5} set {:>9.2}  measured {:>9.2}  may be {:>9.2} to {:>9.2} {}",
        line.property,
        line.direction,
        line.set,
        line.measured,
        line.least.max(0.0),
        line.most,
        line.unit
    )
}

fn verdict(accuracy: &Accuracy) -> String {
    let lateness = &accuracy.lateness;
    format!(
        "{}; packets were late by {:.2} ms (p50), {:.2} ms (p99), {:.2} ms (most)",
        match (lateness.is_void(), accuracy.is_good()) {
            (true, _) => "VOID, the machine is too busy",
            (false, true) => "accurate",
            (false, false) => "NOT accurate",
        },
        lateness.p50_ms,
        lateness.p99_ms,
        lateness.most_ms
    )
}
