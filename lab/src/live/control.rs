//! The control socket of a running lab: changes from outside, one JSON object a line and one in answer.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::topology::{LABS_MAX, lab_folder};

/// What a running lab is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Changes of the network, each `KEY=VALUE`.
    pub(crate) set: Vec<String>,
}

/// What a running lab answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// What was done, in words.
    Done(Vec<String>),
    /// Why nothing was done.
    Refused(String),
}

/// Why a running lab cannot be asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ControlError {
    /// Several labs are running and none was named.
    #[error("labs {} are running; name one with --lab", join(labs))]
    Ambiguous {
        /// Their numbers.
        labs: Vec<u8>,
    },
    /// It breaks off, or says what nobody understands.
    #[error("lab {lab} does not answer: {source}")]
    Broken {
        /// The lab.
        lab: u8,
        /// What went wrong.
        source: io::Error,
    },
    /// No lab is running.
    #[error("no lab is running; start one with `ropeway-lab shell` or `ropeway-lab run`")]
    None,
    /// The lab that was named is not running.
    #[error("lab {lab} is not running")]
    NotRunning {
        /// The lab.
        lab: u8,
    },
    /// The lab refuses the change.
    #[error("{0}")]
    Refused(String),
}

/// Asks a running lab, the only one unless it is named, and gives its number and what it did.
pub(crate) fn ask(lab: Option<u8>, request: &Request) -> Result<(u8, Vec<String>), ControlError> {
    let candidates = lab.map_or_else(|| (0..LABS_MAX).collect(), |lab| vec![lab]);
    // A socket whose lab was killed refuses to be connected to.
    let connect = |number| Some((number, UnixStream::connect(path(number)).ok()?));
    let mut running: Vec<(u8, UnixStream)> = candidates.into_iter().filter_map(connect).collect();
    let (number, stream) = match (running.pop(), lab) {
        (Some(only), _) if running.is_empty() => only,
        (Some((last, _)), _) => {
            let labs = running.iter().map(|(number, _)| *number).chain([last]).collect();
            return Err(ControlError::Ambiguous { labs });
        }
        (None, Some(lab)) => return Err(ControlError::NotRunning { lab }),
        (None, None) => return Err(ControlError::None),
    };
    match converse(stream, request).map_err(|source| ControlError::Broken { lab: number, source })? {
        Answer::Done(done) => Ok((number, done)),
        Answer::Refused(reason) => Err(ControlError::Refused(reason)),
    }
}

/// Reads a request, as the lab.
pub(crate) fn parse(line: &str) -> Result<Request, String> {
    serde_json::from_str(line).map_err(|error| format!("not a request: {error}"))
}

/// Gives where the socket of a lab is.
pub(crate) fn path(lab: u8) -> PathBuf {
    lab_folder(lab).join("control.sock")
}

fn converse(stream: UnixStream, request: &Request) -> io::Result<Answer> {
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    let line = serde_json::to_string(request)?;
    writeln!(&stream, "{line}")?;
    let mut answer = String::new();
    BufReader::new(stream.take(LINE_BYTES_MAX)).read_line(&mut answer)?;
    Ok(serde_json::from_str(&answer)?)
}

fn join(labs: &[u8]) -> String {
    labs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Longest line of either side, bytes.
pub(crate) const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Longest wait for an answer; a change takes some 20 ms.
const ANSWER_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_no_request_is_refused_with_the_reason() {
        assert_eq!(parse(r#"{"set":["loss=0.1"]}"#), Ok(Request { set: vec!["loss=0.1".to_owned()] }));
        let error = parse(r#"{"sat":[]}"#).expect_err("misspelt");
        assert!(error.contains("missing field `set`"), "{error}");
    }
}
