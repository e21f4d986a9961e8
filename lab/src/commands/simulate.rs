//! `simulate`: Ropeway in virtual time, beside what the lab measured.

use std::process::ExitCode;

use serde_json::json;

use crate::{
    args::Global,
    catalogue::Catalogue,
    error::CommandError,
    output::Output,
    results::{self, Missing, Record, Results, today},
    selection::{NO_OUTAGE, choose},
    simulate::{OWN, Row, SimulateArgs, SimulateError, Simulation, Verdict, simulate, table},
};

/// Simulates every chosen cell, sets the lab's figures beside, and writes both.
pub(crate) fn run(args: &SimulateArgs, global: &Global, output: Output) -> Result<ExitCode, CommandError> {
    let catalogue = Catalogue::find(global.scenario_dir.as_deref());
    let choice = choose(&catalogue, &args.selection, &global.traces).map_err(SimulateError::from)?;
    // Better refused now than when all is done.
    let measured = Results::read(&args.out).map_err(SimulateError::from)?.records;
    let works = &args.selection.works;
    let bar = output.bar((choice.scenarios.len() * works.len()) as u64);
    let mut simulation = Simulation::new(today(), args.command(), choice.missing);
    for chosen in &choice.scenarios {
        for work in works {
            bar.set_message(format!("{} {work}", chosen.label()));
            if chosen.network.tasks(*work).is_empty() {
                let record = Record::new(&chosen.scenario, *work, OWN);
                simulation.missing.push(Missing::of(record, NO_OUTAGE.to_owned()));
            } else {
                let simulated = simulate(chosen, *work, args.seeds, &global.traces)?;
                let cell = simulated.record.cell();
                let row = Row::new(&simulated, measured.iter().find(|measured| measured.cell() == cell));
                bar.suspend(|| output.result(&table::line(&row), &json!(row)))?;
                simulation.rows.push(row);
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let files = [("simulation.json", results::json(&simulation)), ("simulation.md", table::markdown(&simulation))];
    results::write(&args.out, files).map_err(SimulateError::from)?;
    output.note(&format!("{}; written to {}", simulation.summary(), args.out.display()));
    let is_off = simulation.rows.iter().any(|row| row.verdict == Verdict::Off);
    Ok(if is_off { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
