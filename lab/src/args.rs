//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Args, Parser, Subcommand};

use crate::peer::Inside;

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
    pub(crate) scenarios: Option<PathBuf>,
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

/// The text below the help.
const EXIT_CODES: &str = "\
Exit codes: 0 done, 1 failed, 2 wrong command line or scenario. `run` and `shell` give the code of their program, 125 \
where the lab itself failed, 126 and 127 where the program cannot be started or found, and 75 where the run is void.";
