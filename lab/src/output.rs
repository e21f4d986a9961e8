//! What commands write: results to standard output, notes and errors to standard error.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::error::CommandError;

/// Where and how a command writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    /// Writes JSON objects, or prose; without notes if `quiet`.
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        Self { json, quiet }
    }

    /// Says whether people look on, and want to.
    pub(crate) fn is_for_people(self) -> bool {
        !self.json && !self.quiet
    }

    /// Shows how far something of so many steps is, if people look on.
    pub(crate) fn bar(self, steps: u64) -> ProgressBar {
        if !self.is_for_people() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len}, {eta} left  {msg}");
        ProgressBar::new(steps).with_style(style.expect("the template is well-formed"))
    }

    /// Writes a result: the text for people, or the object for programs.
    pub(crate) fn result(self, text: &str, object: &Value) -> Result<(), CommandError> {
        let line = if self.json { object.to_string() } else { text.to_owned() };
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(CommandError::Output)
    }

    /// Writes what was measured beside the output of a program, which has standard output for itself.
    pub(crate) fn beside(self, text: &str, object: &Value) {
        if self.json {
            stderr(&object.to_string());
        } else {
            stderr(text);
        }
    }

    /// Writes why the command failed.
    pub(crate) fn error(self, error: &CommandError) {
        if matches!(error, CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return;
        }
        if self.json {
            let object = json!({ "error": error.name(), "message": error.to_string() });
            stderr(&object.to_string());
        } else {
            stderr(&format!("ropeway-lab: {error}"));
        }
    }

    /// Writes a line that only people care for.
    pub(crate) fn note(self, text: &str) {
        if self.is_for_people() {
            stderr(text);
        }
    }
}

fn stderr(text: &str) {
    // There is nowhere left to say that standard error cannot be written.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
