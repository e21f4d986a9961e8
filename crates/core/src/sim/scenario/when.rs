//! When something of a scenario happens.

use std::time::Duration;

use super::{error::ScenarioError, read::Table};

/// When something happens, from the start of a period of the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct When {
    /// When it first begins.
    pub at: Duration,
    /// How long it lasts; to the end of the period where nothing is said.
    pub lasts: Option<Duration>,
    /// From begin to begin, where it happens again and again.
    pub every: Option<Duration>,
}

impl When {
    /// Reads [`WHEN_KEYS`] of a scenario whose period lasts `period`.
    pub(super) fn read(table: &Table<'_, '_>, period: Duration) -> Result<Self, ScenarioError> {
        let period_s = period.as_secs_f64();
        let at = table.seconds("at_s", 0.0..=period_s)?.unwrap_or_default();
        if at >= period {
            return Err(table.refuse("at_s", format!("less than `duration_s`, which is {period_s}")));
        }
        let every = table.seconds("every_s", SHORTEST_S..=period_s)?;
        let most = every.unwrap_or(period - at).as_secs_f64();
        let lasts = table.seconds("for_s", SHORTEST_S..=most)?;
        if every.is_some() && lasts.is_none() && table.node("for_s").is_none() {
            return Ok(Self { at, lasts: every, every });
        }
        Ok(Self { at, lasts, every })
    }

    /// Returns begin and end of each time it happens within a period; the end of the period ends the last.
    pub fn spans(&self, period: Duration) -> impl Iterator<Item = (Duration, Duration)> {
        let (at, every) = (self.at, self.every);
        let lasts = self.lasts.unwrap_or(period);
        let starts = (0_u32..).map_while(move |times| match every {
            Some(every) => Some(at + every * times),
            None => (times == 0).then_some(at),
        });
        starts.take_while(move |start| *start < period).map(move |start| (start, (start + lasts).min(period)))
    }
}

/// The keys that say when something happens.
pub(super) const WHEN_KEYS: &[&str] = &["at_s", "for_s", "every_s"];

/// The shortest time anything lasts. 1 ms; less is not to be had in real time.
const SHORTEST_S: f64 = 0.001;
