//! The traffic shape of an access link: what its file says, and how an event changes it.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use super::{error::ScenarioError, read::Table};
use crate::sim::{
    link::{Capacity, Direction, DirectionSpec, GilbertElliott, Impairments, QUEUE_BYTES},
    trace::{MissingTrace, Radio, Traces},
};

/// What one direction of an access link is like, as its scenario says.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    /// How fast packets leave the queue.
    pub pace: Pace,
    /// Bytes the queue holds.
    pub queue_bytes: u64,
    /// What happens to packets beyond waiting for their turn.
    pub impairments: Impairments,
}

/// How fast packets leave a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At so many bits a second.
    Rate {
        /// Bits a second.
        bits_per_s: u64,
    },
    /// By a recorded trace, which the project does not carry.
    Recorded {
        /// Name of its file.
        file: String,
    },
    /// By a trace made from the run's seed.
    Synthetic(Radio),
    /// At once.
    Unlimited,
}

impl Shape {
    /// Makes of it what a link model plays, with a trace where its pace is one.
    ///
    /// # Errors
    ///
    /// [`MissingTrace`] if it needs a recorded trace that was not added to `traces`.
    pub fn spec(&self, direction: Direction, traces: &mut Traces) -> Result<DirectionSpec, MissingTrace> {
        let capacity = match &self.pace {
            Pace::Rate { bits_per_s } => Capacity::Rate { bits_per_s: *bits_per_s },
            Pace::Recorded { file } => Capacity::Trace(traces.recorded(file)?),
            Pace::Synthetic(radio) => Capacity::Trace(traces.synthetic(*radio, direction)),
            Pace::Unlimited => Capacity::Unlimited,
        };
        let (queue_bytes, impairments) = (self.queue_bytes, self.impairments.clone());
        Ok(DirectionSpec { capacity, queue_bytes, direction, impairments })
    }

    fn recorded(&self) -> Option<&str> {
        recorded(&self.pace)
    }
}

impl Shapes {
    /// Returns the files of the recorded traces it needs.
    pub(super) fn recorded(&self) -> impl Iterator<Item = &str> {
        [self.down.recorded(), self.up.recorded()].into_iter().flatten()
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self { pace: Pace::Unlimited, queue_bytes: QUEUE_BYTES, impairments: Impairments::default() }
    }
}

/// Both directions of an access link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shapes {
    /// To the phone.
    pub down: Shape,
    /// From the phone.
    pub up: Shape,
}

/// Changes to the shape of both directions: those keys that a table has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ShapeChange {
    down: Change,
    up: Change,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Change {
    pace: Option<Pace>,
    queue_bytes: Option<u64>,
    delay: Option<Duration>,
    jitter: Option<Duration>,
    loss: Option<f64>,
    burst: Option<GilbertElliott>,
    duplicate: Option<f64>,
    corrupt: Option<f64>,
    reorder: Option<f64>,
}

impl ShapeChange {
    /// Reads the keys of [`SHAPE_KEYS`]: for both directions in the table itself, for one in its `down` and `up`.
    pub(super) fn read(table: &Table<'_, '_>) -> Result<Self, ScenarioError> {
        let mut both = Change::read(table)?;
        both.delay = table.millis("rtt_ms", RTT_MS)?.map(|rtt| rtt / 2);
        both.jitter = table.millis("jitter_ms", RTT_MS)?.map(|jitter| jitter / 2);
        let direction = |key| -> Result<Change, ScenarioError> {
            let Some(node) = table.node(key) else { return Ok(both.clone()) };
            let table = Table::open(table.file, node, format!("{}.{key}", table.header), DIRECTION_KEYS)?;
            let mut change = Change::read(&table)?;
            change.delay = table.millis("delay_ms", RTT_MS)?;
            change.jitter = table.millis("jitter_ms", RTT_MS)?;
            Ok(change.or(&both))
        };
        Ok(Self { down: direction("down")?, up: direction("up")? })
    }

    /// Says whether nothing is changed.
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the files of the recorded traces it needs.
    pub(super) fn recorded(&self) -> impl Iterator<Item = &str> {
        [&self.down.pace, &self.up.pace].into_iter().flatten().filter_map(recorded)
    }

    /// Applies the changes.
    pub fn apply(&self, shapes: &mut Shapes) {
        self.down.apply(&mut shapes.down);
        self.up.apply(&mut shapes.up);
    }
}

impl Change {
    /// Reads the keys that a link and its directions share.
    fn read(table: &Table<'_, '_>) -> Result<Self, ScenarioError> {
        Ok(Self {
            pace: read_pace(table)?,
            queue_bytes: table.number("queue_kb", QUEUE_KB)?.map(|kb| (kb * 1e3) as u64),
            delay: None,
            jitter: None,
            loss: table.share("loss")?,
            burst: read_burst(table)?,
            duplicate: table.share("duplicate")?,
            corrupt: table.share("corrupt")?,
            reorder: table.share("reorder")?,
        })
    }

    /// Fills what this does not say from another.
    fn or(self, other: &Self) -> Self {
        Self {
            pace: self.pace.or_else(|| other.pace.clone()),
            queue_bytes: self.queue_bytes.or(other.queue_bytes),
            delay: self.delay.or(other.delay),
            jitter: self.jitter.or(other.jitter),
            loss: self.loss.or(other.loss),
            burst: self.burst.or(other.burst),
            duplicate: self.duplicate.or(other.duplicate),
            corrupt: self.corrupt.or(other.corrupt),
            reorder: self.reorder.or(other.reorder),
        }
    }

    fn apply(&self, shape: &mut Shape) {
        let Self { pace, queue_bytes, delay, jitter, loss, burst, duplicate, corrupt, reorder } = self.clone();
        let old = std::mem::take(shape);
        *shape = Shape {
            pace: pace.unwrap_or(old.pace),
            queue_bytes: queue_bytes.unwrap_or(old.queue_bytes),
            impairments: Impairments {
                delay: delay.unwrap_or(old.impairments.delay),
                jitter: jitter.unwrap_or(old.impairments.jitter),
                loss: loss.unwrap_or(old.impairments.loss),
                burst: burst.or(old.impairments.burst),
                duplicate: duplicate.unwrap_or(old.impairments.duplicate),
                corrupt: corrupt.unwrap_or(old.impairments.corrupt),
                reorder: reorder.unwrap_or(old.impairments.reorder),
            },
        };
    }
}

fn recorded(pace: &Pace) -> Option<&str> {
    match pace {
        Pace::Recorded { file } => Some(file),
        Pace::Rate { .. } | Pace::Synthetic(_) | Pace::Unlimited => None,
    }
}

fn read_pace(table: &Table<'_, '_>) -> Result<Option<Pace>, ScenarioError> {
    if PACE_KEYS.iter().all(|key| table.node(key).is_none()) {
        return Ok(None);
    }
    let pace = match table.one_of(PACE_KEYS)? {
        "rate_kbit" => table.number("rate_kbit", RATE_KBIT)?.map(|kbit| Pace::Rate { bits_per_s: (kbit * 1e3) as u64 }),
        "trace" => {
            let refused = || table.refuse("trace", format!("one of {}", Radio::ALL.map(Radio::as_str).join(", ")));
            let name = table.text("trace")?;
            Some(Pace::Synthetic(name.and_then(|name| Radio::from_str(&name).ok()).ok_or_else(refused)?))
        }
        _ => table.text("trace_file")?.map(|file| Pace::Recorded { file }),
    };
    Ok(pace)
}

fn read_burst(table: &Table<'_, '_>) -> Result<Option<GilbertElliott>, ScenarioError> {
    let Some(node) = table.node("burst") else { return Ok(None) };
    let header = format!("{}.burst", table.header);
    let table = Table::open(table.file, node, header, &["to_bad", "to_good", "loss_good", "loss_bad"])?;
    Ok(Some(GilbertElliott {
        to_bad: table.share("to_bad")?.ok_or_else(|| table.missing("to_bad"))?,
        to_good: table.share("to_good")?.ok_or_else(|| table.missing("to_good"))?,
        loss_good: table.share("loss_good")?.unwrap_or(0.0),
        loss_bad: table.share("loss_bad")?.unwrap_or(1.0),
    }))
}

/// The keys of a link's shape.
pub(super) const SHAPE_KEYS: &[&str] = &[
    "rtt_ms",
    "jitter_ms",
    "queue_kb",
    "rate_kbit",
    "trace",
    "trace_file",
    "loss",
    "burst",
    "duplicate",
    "corrupt",
    "reorder",
    "down",
    "up",
];

const DIRECTION_KEYS: &[&str] = &[
    "delay_ms",
    "jitter_ms",
    "queue_kb",
    "rate_kbit",
    "trace",
    "trace_file",
    "loss",
    "burst",
    "duplicate",
    "corrupt",
    "reorder",
];

const PACE_KEYS: &[&str] = &["rate_kbit", "trace", "trace_file"];

/// Round trips of an access link. 30 s is beyond every timeout of TCP's handshake that is of use.
pub(super) const RTT_MS: RangeInclusive<f64> = 0.0..=30_000.0;

/// Rates of an access link. 1 Gbit/s is what the emulator carries; 1 kbit/s sends a packet in 12 s.
const RATE_KBIT: RangeInclusive<f64> = 1.0..=1_000_000.0;

/// Queues of an access link, from one packet on.
const QUEUE_KB: RangeInclusive<f64> = 1.5..=100_000.0;
