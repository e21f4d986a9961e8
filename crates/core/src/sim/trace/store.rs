//! The traces of a run.

use std::{collections::BTreeMap, sync::Arc};

use super::{Radio, Trace};
use crate::sim::link::Direction;

/// Keeps the traces of a run: synthetic ones, made from its seed when first asked for, and recorded ones that were read for it.
#[derive(Clone, Debug)]
pub struct Traces {
    seed: u64,
    synthetic: BTreeMap<(Radio, Direction), Arc<Trace>>,
    recorded: BTreeMap<String, Arc<Trace>>,
}

/// A recorded trace that nobody read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the recorded trace {file} is not there")]
#[non_exhaustive]
pub struct MissingTrace {
    /// Name of its file.
    pub file: String,
}

impl Traces {
    /// Makes the traces of a run with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, synthetic: BTreeMap::new(), recorded: BTreeMap::new() }
    }

    /// Adds a recorded trace under the name that scenarios give its file.
    pub fn add_recorded(&mut self, file: &str, trace: Trace) {
        self.recorded.insert(file.to_owned(), Arc::new(trace));
    }

    /// Returns the synthetic trace of one direction.
    pub fn synthetic(&mut self, radio: Radio, direction: Direction) -> Arc<Trace> {
        let make = || Arc::new(radio.trace(direction, self.seed));
        self.synthetic.entry((radio, direction)).or_insert_with(make).clone()
    }

    /// Returns a recorded trace.
    ///
    /// # Errors
    ///
    /// [`MissingTrace`] if it was not added.
    pub fn recorded(&self, file: &str) -> Result<Arc<Trace>, MissingTrace> {
        self.recorded.get(file).cloned().ok_or_else(|| MissingTrace { file: file.to_owned() })
    }
}
