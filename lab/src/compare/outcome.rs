//! What a run gave, as it is kept in the cache.

use serde::{Deserialize, Serialize};

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
