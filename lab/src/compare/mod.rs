//! `compare`: peers and Ropeway through the same scenarios, each run in a lab of its own, scored in one table.

mod adapter;
mod args;
mod cache;
mod lab;
mod peers;
mod plan;
mod real;
mod run;
mod schedule;
mod service;
mod signals;

use std::{
    collections::BTreeMap,
    env, io,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use indicatif::ProgressBar;
use serde_json::json;

pub(crate) use self::{args::CompareArgs, lab::LabError, peers::About, real::RealLabs};
use self::{
    cache::Cache,
    lab::Lab,
    peers::{Peer, Peers, PeersError},
    plan::{Cell, Run},
    schedule::{Done, Limits},
    service::Programs,
};
use crate::{
    args::Global,
    catalogue::Catalogue,
    error::CommandError,
    live::read_traces,
    output::Output,
    results::{Comparison, Machine, Missing, ReportError, Results, Story, today},
    scoring::{Network, score},
    selection::{Choice, ChooseError, NO_OUTAGE, choose},
};

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum CompareError {
    /// The folder of outcomes cannot be made.
    #[error("cannot make {}: {source}; choose another with --cache", folder.display())]
    Cache {
        /// The folder.
        folder: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// There are no such scenarios.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// No lab can be built here.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// There are no peers.
    #[error(transparent)]
    Peers(#[from] PeersError),
    /// A program of the servers is missing.
    #[error("no {}; build it with `cargo build --workspace`, or install it with `make peers`", .0.display())]
    Program(PathBuf),
    /// The results cannot be read or written.
    #[error(transparent)]
    Report(#[from] ReportError),
}

/// Builds labs for a comparison.
pub(crate) trait Labs: Sync {
    /// Builds the lab of a run, unless it is stopped while it waits for its turn.
    fn build(&self, run: &Run, stop: &AtomicBool) -> Result<Box<dyn Lab>, LabError>;
}

/// Runs the comparison, and writes what came of it also when it was cut short.
pub(crate) fn run(
    args: &CompareArgs,
    global: &Global,
    labs: &dyn Labs,
    output: Output,
) -> Result<ExitCode, CommandError> {
    let catalogue = Catalogue::find(global.scenario_dir.as_deref());
    let choice = choose(&catalogue, &args.selection, &global.traces).map_err(CompareError::from)?;
    let programs = programs(args)?;
    let peers = meet(args, &programs)?;
    let (cells, impossible) = plan::cells(&choice.scenarios, &args.selection.works, &peers);
    let folder = args.cache();
    let cache = Cache::open(&folder).map_err(|source| CompareError::Cache { folder, source })?;
    // Better refused now than when all is done.
    Results::read(&args.out).map_err(CompareError::from)?;

    let stop = signals::stop_on_signal();
    let runs = plan::runs(&cells, args.seeds);
    let limits = Limits { jobs: args.jobs, budget: args.budget };
    let bar = output.bar(runs.len() as u64);
    let perform = |run: &Run| perform(&programs, labs, run, &global.traces, &stop);
    let done = schedule::go(runs, limits, &cache, &stop, &perform, &|run, done| tell(&bar, run, done));
    bar.finish_and_clear();

    let newer = evaluate(args, &peers, choice, &impossible, done);
    announce(&newer, output)?;
    // Another comparison may have written meanwhile.
    let mut results = Results::read(&args.out).map_err(CompareError::from)?;
    results.merge(newer);
    results.write(&args.out).map_err(CompareError::from)?;
    output.note(&format!("written to {}", args.out.display()));
    Ok(ExitCode::from(if stop.load(Ordering::Relaxed) { EXIT_INTERRUPTED } else { 0 }))
}

/// Does one run in a lab of its own.
fn perform(programs: &Programs, labs: &dyn Labs, run: &Run, traces: &Path, stop: &AtomicBool) -> Done {
    let mut lab = labs.build(run, stop)?;
    let cell = &run.cell;
    let mut traces = read_traces(&cell.chosen.scenario, run.seed, traces).map_err(LabError::of)?;
    let network = Network::of(&cell.chosen.scenario, &mut traces).map_err(LabError::of)?;
    run::run(programs, lab.as_mut(), &cell.peer, cell.work, &network, stop)
}

/// Finds the programs that serve, before anything is built.
fn programs(args: &CompareArgs) -> Result<Programs, CompareError> {
    let beside = env::current_exe().ok().and_then(|program| Some(program.parent()?.join("ropeway")));
    let programs = Programs {
        adapters: args.adapters(),
        python: args.installed().join("python/bin/python"),
        ropeway: beside.unwrap_or_else(|| PathBuf::from("ropeway")),
    };
    for program in [&programs.python, &programs.ropeway] {
        if !program.is_file() {
            return Err(CompareError::Program(program.clone()));
        }
    }
    Ok(programs)
}

/// Starts every peer once, so that a missing one is known before anything is built.
fn meet(args: &CompareArgs, programs: &Programs) -> Result<Vec<Arc<Peer>>, CompareError> {
    let known = Peers::read(&programs.adapters, &args.installed(), &programs.ropeway)?;
    let names = if args.peers.is_empty() { known.names().map(str::to_owned).collect() } else { args.peers.clone() };
    names.iter().map(|name| Ok(Arc::new(known.meet(name)?))).collect()
}

/// Scores what was done, and lists what was not.
fn evaluate(
    args: &CompareArgs,
    peers: &[Arc<Peer>],
    choice: Choice,
    impossible: &[Arc<Cell>],
    done: Vec<(Run, Done)>,
) -> Results {
    let mut missing = choice.missing;
    missing.extend(impossible.iter().map(|cell| Missing::of(cell.record(), NO_OUTAGE.to_owned())));
    let mut cells: BTreeMap<_, (Arc<Cell>, Vec<_>)> = BTreeMap::new();
    for (run, outcome) in done {
        let cell = run.cell;
        let entry = cells.entry((cell.chosen.label(), cell.work, cell.peer.name.clone()));
        let (cell, outcomes) = entry.or_insert_with(|| (cell, Vec::new()));
        match outcome {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => missing.push(Missing::of(cell.record(), format!("seed {}: {error}", run.seed))),
        }
    }
    let records = cells.into_values().filter(|(_, outcomes)| !outcomes.is_empty()).map(|(cell, outcomes)| {
        let mut record = cell.record();
        score(&mut record, &outcomes);
        record
    });
    let comparison = Comparison { date: today(), command: args.command(), machine: Machine::this() };
    let story =
        Story { comparisons: vec![comparison], peers: peers.iter().map(|peer| peer.about.clone()).collect(), missing };
    Results { records: records.collect(), story }
}

/// Writes the records for whoever looks on.
fn announce(results: &Results, output: Output) -> Result<(), CommandError> {
    for record in &results.records {
        let time = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), |ms| format!("{:.2} s", ms / 1000.0));
        let share =
            record.success_share.map_or_else(|| "not scored".to_owned(), |share| format!("{:.0} %", share * 100.0));
        let text = format!(
            "{:24} {:14} {:14} {share:>10}  p50 {:>8}  p95 {:>8}{}",
            record.network(),
            record.work,
            record.peer,
            time(record.p50_ms),
            time(record.p95_ms),
            if record.void { "  void" } else { "" },
        );
        output.result(&text, &json!(record))?;
    }
    for missing in &results.story.missing {
        let peer = missing.peer.as_deref().unwrap_or("all");
        output.note(&format!("missing: {} {} {peer}: {}", missing.scenario, missing.work, missing.reason));
    }
    Ok(())
}

fn tell(bar: &ProgressBar, run: &Run, done: Option<&Done>) {
    let cell = &run.cell;
    let name = format!("{} {} {} seed {}", cell.chosen.label(), cell.work, cell.peer.name, run.seed);
    match done {
        None => bar.set_message(name),
        Some(Ok(outcome)) => {
            if let Some(reason) = &outcome.void {
                bar.println(format!("void: {name}: {reason}"));
            }
            bar.inc(1);
        }
        Some(Err(error)) => {
            bar.println(format!("failed: {name}: {error}"));
            bar.inc(1);
        }
    }
}

/// What a shell shows of a process that SIGINT ended: 128 and the number of the signal.
const EXIT_INTERRUPTED: u8 = 130;
