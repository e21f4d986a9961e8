//! How accurate the lab is on this machine: links are set, measured, and compared with what was set.

use std::{
    io,
    panic::resume_unwind,
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use ropeway_core::sim::{Scenario, link::Direction};
use serde::Serialize;

mod case;
mod probe;
mod table;

pub use case::Measured;

use self::{case::Property, probe::Probe};
use crate::{
    emulator::{Change, LatenessSummary, Scheduled},
    lab::{Lab, LabError, LabOptions},
    results::{Machine, today},
};

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Accuracy {
    /// A line for each property and direction.
    pub measured: Vec<Measured>,
    /// How late the emulator was meanwhile.
    pub lateness: LatenessSummary,
    /// Whether the emulator had real-time priority.
    pub realtime: bool,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccuracyError {
    /// There is no lab.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The sockets that measure fail.
    #[error("cannot measure: {0}")]
    Probe(#[from] io::Error),
}

impl Accuracy {
    /// Writes the table of `docs/lab.md`, with the machine and the day.
    pub(crate) fn markdown(&self, effort: u32) -> String {
        table::markdown(self, effort, &Machine::this(), &today())
    }

    /// Says whether the emulator was in time and every line is good enough.
    #[must_use]
    pub fn is_good(&self) -> bool {
        !self.lateness.is_void() && self.measured.iter().all(Measured::is_good)
    }
}

/// Puts a table into a document, between its marks; `None` if it has none.
pub(crate) fn insert(document: &str, table: &str) -> Option<String> {
    table::insert(document, table)
}

/// Gives how many lines there are to be measured.
pub(crate) fn lines() -> u64 {
    Property::ALL.iter().map(|property| 2 * property.lines()).sum()
}

/// Measures every property with this effort, of which 1 is the least, and tells `done` of each line.
///
/// # Errors
///
/// When there is no lab, or its sockets fail.
pub fn measure(effort: u32, mut done: impl FnMut(&Measured)) -> Result<Accuracy, AccuracyError> {
    let scenario = Scenario::parse("accuracy", SCENARIO, None).expect("the scenario below is well formed");
    let options = LabOptions { seed: 0, with_origin: false, traces: PathBuf::new() };
    let lab = Lab::start(&scenario, &options)?;
    let probe = Probe::open(&lab)?;
    let mut measured = Vec::new();
    for property in Property::ALL {
        let start = Instant::now() + LEAD;
        set(&lab, *property, start);
        let of = |direction| property.measure(&probe, direction, effort, start);
        let (down, up) = thread::scope(|scope| {
            let down = scope.spawn(|| of(Direction::Down));
            let up = of(Direction::Up);
            (down.join().unwrap_or_else(|panic| resume_unwind(panic)), up)
        });
        for line in down?.into_iter().chain(up?) {
            done(&line);
            measured.push(line);
        }
    }
    let report = lab.emulator().report();
    Ok(Accuracy {
        measured,
        lateness: report.map(|report| report.lateness).unwrap_or_default(),
        realtime: lab.emulator().is_realtime(),
    })
}

/// Gives the link a property, whose outage counts from `start`.
fn set(lab: &Lab, property: Property, start: Instant) {
    let clock = lab.emulator().clock();
    for (number, direction) in [Direction::Down, Direction::Up].into_iter().enumerate() {
        let order = |at, change| lab.emulator().order([Scheduled { at, wire: 0, direction, change }]);
        order(clock.now(), Change::Restart(property.spec(direction), number as u64));
        if let Property::Outage(outage, begins, ends) = property {
            order(clock.at(start + begins), Change::Outage(Some(outage)));
            order(clock.at(start + ends), Change::Outage(None));
        }
    }
}

/// A link that carries everything at once.
const SCENARIO: &str = r#"
summary = "nothing happens"
basis = "none"
source = "none"
[access.cell]
rtt_ms = 0
"#;

/// Time from the setting of a link to the first packet.
const LEAD: Duration = Duration::from_millis(100);
