//! What was measured of one cell: a scenario, a work and a peer.

use ropeway_core::sim::{Scenario, Work};
use serde::{Deserialize, Serialize};

/// One line of the results; `docs/lab-results/latest.json` is a list of them.
///
/// Times run from the request to the last byte of its answer, by the harness's clock. A request that failed counts with
/// its whole deadline, so that a peer gains nothing by giving up on the slow ones.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Record {
    /// Name of the scenario.
    pub scenario: String,
    /// Its variant; none for the scenario as it is.
    pub variant: Option<String>,
    /// Name of the work.
    pub work: String,
    /// Name of the peer.
    pub peer: String,
    /// Seeds that were run.
    pub seeds: usize,
    /// Requests that are scored: those whose bytes the link could have carried twice within the deadline.
    pub requests: usize,
    /// Share of them that succeeded within the deadline, 0 to 1.
    pub success_share: Option<f64>,
    /// Median time to success.
    pub p50_ms: Option<f64>,
    /// The 95th percentile.
    pub p95_ms: Option<f64>,
    /// The 99th percentile.
    pub p99_ms: Option<f64>,
    /// Lower end of the interval that holds the 95th percentile in 95 of 100 bootstrap samples.
    pub p95_low_ms: Option<f64>,
    /// Upper end of that interval.
    pub p95_high_ms: Option<f64>,
    /// Median time from the return of the network to success, of requests that began before it returned and succeeded after.
    pub after_outage_ms: Option<f64>,
    /// Bytes on the access links, both ways, headers of IP included, over all seeds.
    pub bytes: Option<u64>,
    /// POSTs that the origin executed more than once.
    pub posts_twice: Option<usize>,
    /// At least one run is void: the emulated link kept its times too badly.
    pub void: bool,
}

impl Record {
    /// Begins the record of a cell, without figures.
    pub(crate) fn new(scenario: &Scenario, work: Work, peer: &str) -> Self {
        Self {
            scenario: scenario.name.clone(),
            variant: scenario.variant.clone(),
            work: work.to_string(),
            peer: peer.to_owned(),
            seeds: 0,
            requests: 0,
            success_share: None,
            p50_ms: None,
            p95_ms: None,
            p99_ms: None,
            p95_low_ms: None,
            p95_high_ms: None,
            after_outage_ms: None,
            bytes: None,
            posts_twice: None,
            void: false,
        }
    }

    /// Gives what tells a cell from all others.
    #[must_use]
    pub fn cell(&self) -> (&str, Option<&str>, &str, &str) {
        (&self.scenario, self.variant.as_deref(), &self.work, &self.peer)
    }

    /// Gives the scenario with its variant, as the command line writes it.
    #[must_use]
    pub fn network(&self) -> String {
        network(&self.scenario, self.variant.as_deref())
    }
}

/// Names a scenario or its variant as the command line does.
pub(crate) fn network(scenario: &str, variant: Option<&str>) -> String {
    variant.map_or_else(|| scenario.to_owned(), |variant| format!("{scenario}:{variant}"))
}
