//! `ropeway bench`: measures a gateway in a process of its own and writes down what came out.
//!
//! This process makes the load; the gateway's processor time and memory are read from /proc, apart from it.

mod error;
mod figure;
mod gateway;
mod link;
mod load;
mod nginx;
mod process;
mod report;
mod suites;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;

pub(crate) use self::error::BenchError;
use self::figure::Figure;
use self::report::Report;
use crate::error::CommandError;
use crate::limits;
use crate::output::Output;

/// What to measure.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    /// Measure this alone; may be repeated
    #[arg(long, value_name = "NAME", value_enum)]
    only: Vec<Suite>,
    /// Few links and short runs, to see that it works; the figures mean nothing
    #[arg(long)]
    quick: bool,
    /// Times that each figure is measured [default: 5, or 1 with --quick]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100))]
    runs: Option<u32>,
    /// Folder for benchmarks.json and benchmarks.md; figures that are not measured now stay there
    #[arg(long, value_name = "DIR", default_value = "docs")]
    out_dir: PathBuf,
}

/// What can be measured alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum Suite {
    /// First answer behind addresses that swallow everything
    BlackHoles,
    /// Requests to the built-in echo
    Echo,
    /// Requests over HTTP/2 through the front door
    Front,
    /// Opening links
    Handshake,
    /// Memory of idle links
    Memory,
    /// Time of a request and of a push
    Latency,
    /// Small requests beside a large body that is read slowly
    SlowReader,
    /// Requests to a real HTTP service
    Upstream,
}

/// How much to measure.
#[derive(Clone, Copy, Debug)]
struct Scale {
    quick: bool,
    runs: u32,
    /// Files and sockets that this process may have open, and the gateway as many.
    open_files: u64,
}

impl Scale {
    /// Gives the first number, or the second for a quick run.
    fn pick<T>(self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Runs the command.
pub(crate) async fn run(args: &BenchArgs, output: Output) -> Result<(), CommandError> {
    let open_files = limits::raise_open_files();
    let scale = Scale { quick: args.quick, runs: args.runs.unwrap_or(if args.quick { 1 } else { 5 }), open_files };
    let mut report = Report::open(&args.out_dir)?;
    for suite in Suite::value_variants() {
        if !args.only.is_empty() && !args.only.contains(suite) {
            continue;
        }
        output.note(&format!("measuring {} …", suite.name()));
        for figure in suites::run(*suite, scale).await? {
            let figure = Figure { suite: suite.name(), ..figure };
            output.result(&report::line(&figure), &report.entry(&figure))?;
            report.put(&figure);
        }
        // What is measured is kept, even if a later suite fails.
        report.write()?;
    }
    let folder = args.out_dir.display().to_string();
    output.note(&format!("written to {folder}"));
    if output.is_json() { output.result("", &json!({ "event": "written", "folder": folder })) } else { Ok(()) }
}

impl Suite {
    /// Gives the name that `--only` takes.
    const fn name(self) -> &'static str {
        match self {
            Self::BlackHoles => "black-holes",
            Self::Echo => "echo",
            Self::Front => "front",
            Self::Handshake => "handshake",
            Self::Latency => "latency",
            Self::Memory => "memory",
            Self::SlowReader => "slow-reader",
            Self::Upstream => "upstream",
        }
    }
}
