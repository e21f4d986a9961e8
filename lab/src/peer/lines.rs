//! The line protocol, as a peer speaks it.

use std::{
    error::Error,
    io::{self, BufRead as _, Write as _},
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::timeout};

/// A request that the harness asks for.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Asked {
    id: String,
    method: String,
    /// Where it goes.
    pub(super) url: String,
    /// Bytes of the body to send.
    pub(super) body_bytes: usize,
    /// The value of its `Idempotency-Key`, if it has one.
    pub(super) key: Option<String>,
    deadline_ms: u64,
}

/// What came back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    /// The status.
    pub(super) status: u16,
    /// Bytes of the body that arrived.
    pub(super) bytes: usize,
}

/// Why nothing came back.
pub(super) type Failure = Box<dyn Error + Send + Sync>;

impl Asked {
    /// Gives the method.
    pub(super) fn method(&self) -> Result<http::Method, Failure> {
        Ok(self.method.parse()?)
    }

    /// Gives the header of its key, if it has one.
    pub(super) fn key(&self) -> Option<(&'static str, &str)> {
        Some(("idempotency-key", self.key.as_deref()?))
    }

    /// Gives the time it may take.
    pub(super) fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }
}

/// Says what the peer is, then answers requests until it is told to quit. `begin` is called when the app is said to have started.
pub(super) async fn serve<F>(peer: &str, version: &str, settings: &str, begin: impl Fn(), fetch: impl Fn(Asked) -> F)
where
    F: Future<Output = Result<Answered, Failure>> + Send + 'static,
{
    say(&json!({ "ready": { "peer": peer, "version": version, "settings": settings } }));
    let (sender, mut asked) = mpsc::channel(IN_FLIGHT_MAX);
    // Reading standard input blocks; the thread ends with the process.
    std::thread::spawn(move || read(&sender));
    while let Some(line) = asked.recv().await {
        let request = match line {
            Line::Asked(request) => request,
            Line::Begin { .. } => {
                begin();
                continue;
            }
        };
        let fetching = fetch(request.clone());
        tokio::spawn(async move {
            let started = Instant::now();
            let outcome = timeout(request.deadline(), fetching).await;
            let ms = started.elapsed().as_secs_f64() * 1000.0;
            let (answer, error) = match outcome {
                Ok(Ok(answer)) => (Some(answer), None),
                Ok(Err(failure)) => (None, Some(chain(failure.as_ref()))),
                Err(_) => (None, Some("deadline".to_owned())),
            };
            let (status, bytes) = (answer.map(|answer| answer.status), answer.map_or(0, |answer| answer.bytes));
            say(&json!({ "id": request.id, "status": status, "bytes": bytes, "ms": ms, "error": error }));
        });
    }
}

/// What the harness may say.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Asked(Asked),
    Begin {
        #[expect(dead_code, reason = "only its name counts")]
        begin: bool,
    },
}

fn read(sender: &mpsc::Sender<Line>) {
    for line in io::stdin().lock().lines() {
        // `{"quit": true}` is no request, and ends as the end of the input does.
        let Some(request) = line.ok().and_then(|line| serde_json::from_str(&line).ok()) else { return };
        if sender.blocking_send(request).is_err() {
            return;
        }
    }
}

/// Joins an error and its causes, which say what really happened.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

fn say(message: &Value) {
    // The harness that does not read any more has ended this peer's work.
    let _ = writeln!(io::stdout().lock(), "{message}");
}

/// Requests that wait for a task each; twice the largest burst of any work.
const IN_FLIGHT_MAX: usize = 120;
