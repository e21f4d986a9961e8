//! The weak-network lab: puts any real program behind an emulated mobile network, on one Linux machine.
//!
//! A lab is three or four network namespaces: the client's, the Internet provider's with its NAT and its faults, the
//! servers' and, apart from these, the backend's. Between client and provider every packet passes through a model of
//! the access link in user space. What the network does, and when, is data: a file of `scenarios/`.
//!
//! The lab never touches what is outside its own namespaces, except for its folder `/run/ropeway-lab` and the resolver
//! files `/etc/netns/rwlab*`, and no other crate of the workspace may depend on it.
//!
//! ```
//! use ropeway_lab::catalogue::Catalogue;
//!
//! let catalogue = Catalogue::new("scenarios".into());
//! assert_eq!(catalogue.path("elevator"), std::path::Path::new("scenarios/elevator.toml"));
//! ```

use std::process::ExitCode;

use clap::Parser;

pub mod accuracy;
mod args;
pub mod catalogue;
mod commands;
mod compare;
mod emulator;
mod error;
mod faults;
pub mod lab;
mod live;
mod os;
mod output;
mod peer;
mod program;
pub mod report;
pub mod results;
mod scoring;
mod selection;
mod servers;
mod simulate;
mod topology;

pub use crate::{
    emulator::{DirectionReport, LatenessSummary, WireReport},
    live::TraceFileError,
    servers::{Authority, AuthorityError, ServersError},
    topology::{
        Place, Tool, ToolError, TopologyError,
        plan::{LinkPlan, Plan, SitePlan},
    },
};

use crate::{
    args::{Cli, Command},
    error::{CommandError, EXIT_USAGE},
    output::Output,
};

/// Runs the command `ropeway-lab` with the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let output = Output::new(cli.global.json, cli.global.quiet);
    match run(&cli, output) {
        Ok(code) => code,
        Err(error) => {
            output.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: &Cli, output: Output) -> Result<ExitCode, CommandError> {
    match &cli.command {
        Command::Accuracy(args) => commands::accuracy::run(args, output),
        Command::Compare(args) => commands::compare::run(args, &cli.global, output),
        Command::List => commands::list::run(&cli.global, output),
        Command::Peer { peer } => peer::run(*peer),
        Command::Run(args) => commands::run::run(args, &cli.global, output),
        Command::Set(args) => commands::set::run(args, output),
        Command::Shell(args) => commands::shell::run(args, &cli.global, output),
        Command::Simulate(args) => commands::simulate::run(args, &cli.global, output),
    }
}

/// Says what is wrong with the command line; help and version are asked for in the same way, and are no errors.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if !error.use_stderr() || !is_json {
        // Where it cannot be written there is nothing left to say.
        let _ = error.print();
        return ExitCode::from(if error.use_stderr() { EXIT_USAGE } else { 0 });
    }
    let message = error.render().to_string();
    let message = message.strip_prefix("error: ").unwrap_or(&message).trim();
    Output::new(true, false).error(&CommandError::Usage(message.to_owned()));
    ExitCode::from(EXIT_USAGE)
}
