//! The command line.

use std::{ffi::OsString, path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::{compare::CompareArgs, peer::Inside, simulate::SimulateArgs};

/// Puts any program behind an emulated mobile network.
#[derive(Debug, Parser)]
#[command(name = "ropeway-lab", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Folder of the scenarios [default: ./scenarios, else the one the lab was built beside]
    #[arg(long, global = true, env = "ROPEWAY_SCENARIOS", value_name = "DIR", hide_env_values = true)]
    pub(crate) scenario_dir: Option<PathBuf>,
    /// Folder of recorded traces, which some variants play
    #[arg(long, global = true, env = "ROPEWAY_TRACES", value_name = "DIR", default_value = TRACES)]
    pub(crate) traces: PathBuf,
    /// Write JSON objects, one a line, in place of prose; errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Write results and errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure how accurate the lab is on this machine
    Accuracy(AccuracyArgs),
    /// Compare clients, Ropeway among them, in the same scenarios
    Compare(CompareArgs),
    /// List the scenarios and their variants
    List,
    /// Answer requests of a comparison, as the adapters of lab/peers do
    #[command(hide = true)]
    Peer {
        /// Which peer
        peer: Inside,
    },
    /// Run a program in a lab, and print what the network did beside what the program took
    Run(RunArgs),
    /// Change the network of a lab that is running
    Set(SetArgs),
    /// Open a shell in a lab
    Shell(ShellArgs),
    /// Simulate Ropeway in the scenarios, and set its times beside the lab's; fails where a median is off by more than 20 %
    Simulate(SimulateArgs),
}

/// How to measure.
#[derive(Args, Debug)]
pub(crate) struct AccuracyArgs {
    /// How many packets are sent for each line; 1 takes 50 seconds, 4 two minutes
    #[arg(long, value_name = "NUMBER", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) effort: u32,
    /// Document to write the table into, between its marks, such as docs/lab.md
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
}

/// Which network to build.
#[derive(Args, Clone, Debug)]
pub(crate) struct NetworkArgs {
    /// Scenario, such as "elevator" or, of a variant, "elevator:long"; see `ropeway-lab list`
    #[arg(value_name = "SCENARIO[:VARIANT]")]
    pub(crate) scenario: String,
    /// Seed of everything random; the same seed gives the same losses to the same packets
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
}

/// What to run, and where.
#[derive(Args, Debug)]
pub(crate) struct RunArgs {
    /// Which network.
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Second of the scenario at which the program starts, such as 2.5 for half a second before elevator's outage
    #[arg(long, value_name = "SECONDS", default_value = "0", value_parser = seconds)]
    pub(crate) at: Duration,
    /// File to write the report to, as JSON [default: people's words, or JSON with --json, to standard error]
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// The program and its arguments, after "--"
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// What to change.
#[derive(Args, Debug)]
pub(crate) struct SetArgs {
    /// Number of the lab, as `run` and `shell` print it; needed only where several are running
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(0..=3))]
    pub(crate) lab: Option<u8>,
    /// Changes, such as "cell.down.loss=0.05", "cell.rtt_ms=300" or "outage=hold"
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub(crate) changes: Vec<String>,
}

/// Which network to open a shell in.
#[derive(Args, Debug)]
pub(crate) struct ShellArgs {
    /// Which network.
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "not a number".to_owned())?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| "not a time".to_owned())?;
    if time > START_MAX { Err(format!("more than {} s", START_MAX.as_secs())) } else { Ok(time) }
}

/// Latest start of a program; the longest scenario lasts an hour until it repeats.
const START_MAX: Duration = Duration::from_secs(3600);

/// Where recorded traces are looked for; the project carries none.
const TRACES: &str = "../shared/data/traces";

/// The text below the help.
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong command line or scenario. `run` and `shell` give the code of their program, 125 \
where the lab itself failed, 126 and 127 where the program cannot be started or found, and 75 where the run is void.";
