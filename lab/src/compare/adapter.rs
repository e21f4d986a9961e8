//! The harness's side of the line protocol: a running peer.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use ropeway_core::sim::work::{DEADLINE, Task};
use serde::Deserialize;
use serde_json::json;

use super::peers::About;

/// A running peer; dropping it ends it, its whole process group.
#[derive(Debug)]
pub(crate) struct Adapter {
    process: Child,
    input: ChildStdin,
    about: About,
}

/// What an adapter tells, and when.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    /// Number of the adapter.
    pub(crate) adapter: usize,
    /// When it was heard.
    pub(crate) at: Instant,
    /// What was heard; nothing more, ever, where it is none.
    pub(crate) answer: Option<Answer>,
}

/// What a peer says of a request.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Answer {
    /// The request's name.
    pub(crate) id: String,
    /// The status, where there was an answer.
    pub(crate) status: Option<u16>,
    /// Bytes of the body that arrived.
    pub(crate) bytes: usize,
    /// Why it failed.
    pub(crate) error: Option<String>,
}

/// Why a peer is of no use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum AdapterError {
    /// The program ended.
    #[error("it ended before it was ready")]
    Ended,
    /// The program says nothing.
    #[error("it is not ready after {} s", .0.as_secs())]
    Hangs(Duration),
    /// The program cannot be started.
    #[error("{program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system says.
        source: io::Error,
    },
}

impl Adapter {
    /// Starts it, and waits until it can take requests. What it answers goes to `answers`, under its number.
    pub(crate) fn start(
        mut command: Command,
        patience: Duration,
        number: usize,
        answers: Sender<Told>,
    ) -> Result<Self, AdapterError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // A group of its own: Chromium is many processes, and all of them must go.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn().map_err(|source| AdapterError::Start { program, source })?;
        let input = process.stdin.take().expect("standard input is piped");
        let output = process.stdout.take().expect("standard output is piped");
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            read(output, &ready, |at, answer| answers.send(Told { adapter: number, at, answer: Some(answer) }).is_ok());
            // A harness that has done with it does not care for its end.
            let _ = answers.send(Told { adapter: number, at: Instant::now(), answer: None });
        });
        let mut adapter = Self { process, input, about: About::default() };
        adapter.about = is_ready.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Disconnected => AdapterError::Ended,
            RecvTimeoutError::Timeout => AdapterError::Hangs(patience),
        })?;
        Ok(adapter)
    }

    /// Gives what it said of itself.
    pub(crate) fn about(&self) -> &About {
        &self.about
    }

    /// Says that the app has started.
    ///
    /// # Errors
    ///
    /// When the adapter does not read any more.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        writeln!(self.input, "{{\"begin\":true}}")?;
        self.input.flush()
    }

    /// Asks for a request.
    pub(crate) fn ask(&mut self, id: &str, task: &Task, origin: &str) -> io::Result<()> {
        let mut line = json!({
            "id": id,
            "method": task.method.as_str(),
            "url": format!("{origin}{}", task.target(id)),
            "body_bytes": task.body_bytes,
            "deadline_ms": DEADLINE.as_millis() as u64,
        });
        if task.has_key {
            line["key"] = json!(format!("lab-{id}"));
        }
        writeln!(self.input, "{line}")?;
        self.input.flush()
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        let asked_to_go = writeln!(self.input, "{}", json!({ "quit": true })).and_then(|()| self.input.flush());
        let end = Instant::now() + if asked_to_go.is_ok() { QUIT_MAX } else { Duration::ZERO };
        while Instant::now() < end && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(QUIT_LOOK);
        }
        let group = i32::try_from(self.process.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(group) = group {
            // What has ended by itself cannot be found any more.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _ = self.process.wait();
    }
}

#[derive(Deserialize)]
struct Ready {
    ready: About,
}

/// Passes on what the peer says until it ends. Lines that are no answers are not for us.
fn read(output: ChildStdout, ready: &Sender<About>, answered: impl Fn(Instant, Answer) -> bool) {
    for line in BufReader::new(output).lines() {
        let Ok(line) = line else { return };
        let now = Instant::now();
        let is_heard = if let Ok(said) = serde_json::from_str::<Answer>(&line) {
            answered(now, said)
        } else if let Ok(said) = serde_json::from_str::<Ready>(&line) {
            ready.send(said.ready).is_ok()
        } else {
            true
        };
        if !is_heard {
            return;
        }
    }
}

/// Longest wait for a peer to end by itself.
const QUIT_MAX: Duration = Duration::from_secs(2);

/// Pause between two looks whether it did.
const QUIT_LOOK: Duration = Duration::from_millis(5);
