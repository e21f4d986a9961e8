//! What a run gave, as it is kept in the cache.

use std::time::Duration;

use http::Method;
use ropeway_core::sim::work::Task;
use serde::{Deserialize, Serialize};

use super::Network;

/// What one run gave: one peer, one work, one seed in a lab of its own.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Outcome {
    /// Its requests, in the order of the work.
    pub(crate) requests: Vec<RequestOutcome>,
    /// Bytes on the access links, both ways.
    pub(crate) bytes: u64,
    /// Why the run does not count, where it does not.
    pub(crate) void: Option<String>,
}

/// What became of one request.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct RequestOutcome {
    /// When it was asked for, ms from the start of the run.
    pub(crate) start_ms: f64,
    /// Time to success; none if it failed.
    pub(crate) ms: Option<f64>,
    /// Time from the return of the network to success, if the network was away in between.
    pub(crate) after_outage_ms: Option<f64>,
    /// Why it failed, in the words of the peer or of the harness.
    pub(crate) error: Option<String>,
    /// It was a POST.
    pub(crate) is_post: bool,
    /// How often the origin executed it.
    pub(crate) executed: usize,
    /// The link could have carried it twice.
    pub(crate) is_scored: bool,
}

impl RequestOutcome {
    /// Says what became of a request that began at `start`: how long its success took, or why there was none.
    pub(crate) fn new(
        task: &Task,
        start: Duration,
        took: Result<Duration, String>,
        executed: usize,
        network: &Network,
    ) -> Self {
        let (ms, error) = match took {
            Ok(took) => (Some(millis(took)), None),
            Err(reason) => (None, Some(reason)),
        };
        let returned = network.return_after(start).map(|back| millis(start) + ms.unwrap_or_default() - millis(back));
        Self {
            start_ms: millis(start),
            ms,
            after_outage_ms: returned.filter(|after| ms.is_some() && *after > 0.0),
            error,
            is_post: task.method == Method::POST,
            executed,
            is_scored: network.could_carry_twice(task),
        }
    }
}

fn millis(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}
