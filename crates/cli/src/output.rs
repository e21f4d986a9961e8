//! What commands write: results to standard output, notes and errors to standard error.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::error::CommandError;
use crate::request::report::timeline_object;

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

    /// Says whether programs read this.
    pub(crate) fn is_json(self) -> bool {
        self.json
    }

    /// Writes a result: the text for people, or the object for programs.
    pub(crate) fn result(self, text: &str, object: &Value) -> Result<(), CommandError> {
        let line = if self.json { object.to_string() } else { text.to_owned() };
        self.bytes(format!("{line}\n").as_bytes())
    }

    /// Writes bytes as they are, at once.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Result<(), CommandError> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(CommandError::Output)
    }

    /// Writes a line that was asked for, beside the result.
    pub(crate) fn detail(self, text: &str) {
        self.stderr(text);
    }

    /// Writes a line that only people care for.
    pub(crate) fn note(self, text: &str) {
        if !self.json && !self.quiet {
            self.stderr(text);
        }
    }

    /// Writes why the command failed.
    pub(crate) fn error(self, error: &CommandError) {
        if matches!(error, CommandError::Output(error) if error.kind() == io::ErrorKind::BrokenPipe) {
            return;
        }
        if self.json {
            let mut object =
                json!({ "error": error.name(), "message": error.to_string(), "side": error.side().as_str() });
            if let CommandError::Request { error, .. } = error {
                object["retry"] = error.retry().as_str().into();
                object["timeline"] = error.timeline().map(timeline_object).unwrap_or_default();
            }
            self.stderr(&object.to_string());
        } else {
            self.stderr(&format!("ropeway: {error}"));
        }
    }

    fn stderr(self, text: &str) {
        // There is nowhere left to say that standard error cannot be written.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}
