//! The `ropeway` command: starts a gateway, and tries out what it does.

mod admin;
mod args;
mod bench;
mod config;
mod data_dir;
mod device;
mod error;
mod limits;
mod listen;
mod logs;
mod output;
mod push;
mod request;
mod stops;
mod ticket;
mod up;

use std::process::ExitCode;

use clap::Parser;
use ropeway_gateway::config::LogFormat;
use tokio::runtime::Runtime;

use crate::args::{Cli, Command};
use crate::data_dir::DataDir;
use crate::error::{CommandError, EXIT_USAGE};
use crate::output::Output;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let output = Output::new(cli.global.json, cli.global.quiet);
    match run(&cli, output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(cli: &Cli, output: Output) -> Result<(), CommandError> {
    let data = DataDir::new(cli.global.data_dir.as_deref());
    // `up` logs as its configuration says.
    if !matches!(cli.command, Command::Up(_)) {
        let format = if output.is_json() { LogFormat::Json } else { LogFormat::Text };
        logs::start(cli.global.log.as_deref().unwrap_or(QUIET_LOG), format);
    }
    match &cli.command {
        Command::Bench(args) => block_on(bench::run(args, output)),
        Command::Config(command) => config::run(command, cli.global.data_dir.as_deref(), output),
        Command::Listen(args) => block_on(listen::run(args, &data, output)),
        Command::Push(args) => block_on(push::run(args, &data, output)),
        Command::Request(args) => block_on(request::run(args, &data, output)),
        Command::Ticket(args) => ticket::run(args, &data, output),
        Command::Up(args) => block_on(up::run(args, &cli.global, output)),
    }
}

fn block_on(command: impl Future<Output = Result<(), CommandError>>) -> Result<(), CommandError> {
    let runtime = Runtime::new().map_err(CommandError::Runtime)?;
    let result = runtime.block_on(command);
    // A thread that waits for standard input would hold the process for ever.
    runtime.shutdown_background();
    result
}

/// Says what is wrong with the command line; help and version are asked for in the same way, and are no errors.
fn refuse(error: &clap::Error) -> ExitCode {
    let is_json = std::env::args_os().any(|arg| arg == "--json");
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

/// What commands log when nobody asks: what is wrong, as their errors say the rest.
const QUIET_LOG: &str = "warn";
