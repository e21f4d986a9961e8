//! `run`: a program in a lab.

use std::{fs, process::ExitCode};

use serde_json::json;

use crate::{
    args::{Global, NetworkArgs, RunArgs},
    catalogue::Catalogue,
    error::{CommandError, EXIT_VOID},
    lab::{Lab, LabOptions},
    output::Output,
    program::{Ended, Runner},
    report::RunReport,
    topology::{Place, plan::ORIGIN_NAME},
};

/// Builds the lab, starts the program in it, waits for its end and tells what the network did meanwhile.
pub(crate) fn run(args: &RunArgs, global: &Global, output: Output) -> Result<ExitCode, CommandError> {
    let [program, arguments @ ..] = &args.command[..] else {
        return Err(CommandError::Usage("no program to run; name one after \"--\"".to_owned()));
    };
    Lab::program(program)?;
    let runner = Runner::new()?;
    let lab = start(&args.network, global, output)?;
    let mut command = lab.command(Place::Client, program)?;
    command.args(arguments);
    let start = lab.begin()? + args.at;
    let ended = runner.run_at(start, command)?;

    let words = args.command.iter().map(|word| word.to_string_lossy().into_owned());
    let report = report(&lab, words.collect(), &ended);
    match &args.report {
        None => output.beside(&report.text(), &json!(report)),
        Some(path) => fs::write(path, format!("{}\n", json!(report)))
            .map_err(|source| CommandError::Report { path: path.clone(), source })?,
    }
    let code = if report.network.void.is_some() { EXIT_VOID } else { ended.code };
    Ok(ExitCode::from(code))
}

/// Builds the lab that the command line asks for, and says what is in it.
pub(super) fn start(args: &NetworkArgs, global: &Global, output: Output) -> Result<Lab, CommandError> {
    let scenario = Catalogue::find(global.scenario_dir.as_deref()).scenario(&args.scenario)?;
    let options = LabOptions { seed: args.seed, with_origin: true, traces: global.traces.clone() };
    let lab = Lab::start(&scenario, &options)?;
    output.note(&format!("lab {}: {}", lab.number(), scenario.summary));
    let sites = lab.plan().sites.iter().map(|site| {
        let addresses: Vec<String> = site.addresses().map(|address| address.to_string()).collect();
        format!("{} ({})", addresses.join(", "), site.name)
    });
    output.note(&format!(
        "{ORIGIN_NAME} is at {}; programs that know SSL_CERT_FILE trust it, to others give {}",
        sites.collect::<Vec<_>>().join(", "),
        lab.authority().ca_file.display()
    ));
    Ok(lab)
}

/// Puts together what the program took and what the network did.
pub(super) fn report(lab: &Lab, command: Vec<String>, ended: &Ended) -> RunReport {
    RunReport {
        command,
        exit_code: ended.code,
        took_ms: ended.took.as_secs_f64() * 1e3,
        stopped_by: ended.stopped_by,
        network: lab.report(),
    }
}
