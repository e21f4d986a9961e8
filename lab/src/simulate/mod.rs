//! Ropeway's own machines in virtual time, through the scenarios the lab plays, set beside what the lab measured of Ropeway.

mod args;
mod beside;
pub(crate) mod table;

use std::path::Path;

use ropeway_core::sim::{
    Work,
    trace::MissingTrace,
    work::{DEADLINE, Task},
    world::{self, Report, RequestReport},
};

pub(crate) use self::{
    args::SimulateArgs,
    beside::{Row, Simulation, Verdict},
};
use crate::{
    live::{TraceFileError, read_traces},
    results::{Record, ReportError},
    scoring::{Network, Outcome, RequestOutcome, interval_of_p50, score},
    selection::{ChooseError, Chosen},
};

/// Why there is no simulation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum SimulateError {
    /// There are no such scenarios.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// A recorded trace that a scenario needs was not read.
    #[error(transparent)]
    MissingTrace(#[from] MissingTrace),
    /// The results of the lab cannot be read, or the table not be written.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A recorded trace cannot be played.
    #[error(transparent)]
    Trace(#[from] TraceFileError),
}

/// A cell that was simulated.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    /// Its score.
    pub(crate) record: Record,
    outcomes: Vec<Outcome>,
}

impl Simulated {
    /// Gives the interval in which 95 of 100 medians lie that come of so many of its runs, in milliseconds.
    pub(crate) fn interval_of_p50(&self, runs: usize) -> Option<(f64, f64)> {
        interval_of_p50(&self.outcomes, runs)
    }
}

/// Simulates a cell with each seed, and scores it as a cell of the lab is scored.
///
/// # Errors
///
/// When a recorded trace that the scenario needs is not there.
pub(crate) fn simulate(chosen: &Chosen, work: Work, seeds: u64, traces: &Path) -> Result<Simulated, SimulateError> {
    let scenario = &chosen.scenario;
    let mut outcomes = Vec::new();
    for seed in 1..=seeds {
        let mut traces = read_traces(scenario, seed, traces)?;
        let network = Network::of(scenario, &mut traces)?;
        let report = world::run_with(scenario, work, seed, &mut traces)?;
        outcomes.push(outcome(report, &network.tasks(work), &network));
    }
    let mut record = Record::new(scenario, work, OWN);
    score(&mut record, &outcomes);
    Ok(Simulated { record, outcomes })
}

/// Judges the requests of a simulated run as those of a lab's run are judged.
fn outcome(report: Report, tasks: &[Task], network: &Network) -> Outcome {
    let bytes = report.links.iter().map(|link| link.down.offered_bytes + link.up.offered_bytes).sum();
    let judge = |(task, request): (&Task, RequestReport)| {
        let RequestReport { start, took, error, executed, .. } = request;
        let took = match error {
            Some(error) => Err(error),
            None if took > DEADLINE => Err("deadline".to_owned()),
            None => Ok(took),
        };
        RequestOutcome::new(task, start, took, executed as usize, network)
    };
    Outcome { requests: tasks.iter().zip(report.requests).map(judge).collect(), bytes, void: None }
}

/// Ropeway's name among the peers.
pub(crate) const OWN: &str = "ropeway";
