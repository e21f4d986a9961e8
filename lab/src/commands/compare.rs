//! `compare`: peers and Ropeway through the same scenarios.

use std::process::ExitCode;

use crate::{
    args::Global,
    compare::{self, CompareArgs, CompareError, LabError, RealLabs},
    error::CommandError,
    lab::Lab,
    output::Output,
};

/// Says what the machine lacks, then compares.
pub(crate) fn run(args: &CompareArgs, global: &Global, output: Output) -> Result<ExitCode, CommandError> {
    Lab::check().map_err(|error| CompareError::Lab(LabError::of(error)))?;
    let labs = RealLabs { traces: global.traces.clone() };
    compare::run(args, global, &labs, output)
}
