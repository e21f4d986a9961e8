//! A running network: it follows its scenario in time, and can be changed from outside.

use std::{io, os::unix::net::UnixListener, sync::Arc};

use ropeway_core::sim::{Scenario, trace::Traces};

mod conductor;
pub(crate) mod control;
mod performer;
mod wish;
mod words;

pub(crate) use conductor::Conductor;
pub use performer::TraceFileError;
pub(crate) use performer::{link_seed, read_traces};

use self::performer::Performer;
use crate::{emulator::Emulator, topology::Topology};

/// Starts to conduct a network, which stays as it is until the scenario is told to begin.
pub(crate) fn conduct(
    topology: &Arc<Topology>,
    emulator: &Arc<Emulator>,
    scenario: &Scenario,
    seed: u64,
    traces: Traces,
) -> io::Result<Conductor> {
    let listener = UnixListener::bind(control::path(topology.slot.number()))?;
    let performer = Performer::new(topology.clone(), emulator.clone(), scenario.clone(), seed, traces);
    Conductor::start(scenario.clone(), performer, listener)
}
