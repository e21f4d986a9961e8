//! Simulated and measured figures of the same cells, side by side.

use serde::Serialize;

use crate::results::{Missing, Record};

/// A simulation set beside the lab.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Simulation {
    /// The day, as in 2026-11-30.
    pub(crate) date: String,
    /// The command that repeats it.
    pub(crate) command: String,
    /// Version of Ropeway.
    pub(crate) version: &'static str,
    /// By how much a simulated median may differ from the lab's, as a share of it.
    pub(crate) tolerance: f64,
    /// One a cell.
    pub(crate) rows: Vec<Row>,
    /// Cells that cannot be simulated.
    pub(crate) missing: Vec<Missing>,
}

/// One cell, simulated and measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Row {
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Its variant; none for the scenario as it is.
    pub(crate) variant: Option<String>,
    /// Name of the work.
    pub(crate) work: String,
    /// As it was simulated.
    pub(crate) simulated: Figures,
    /// As the lab measured it, where it did.
    pub(crate) lab: Option<Figures>,
    /// The simulated median by the lab's.
    pub(crate) ratio: Option<f64>,
    /// What that says.
    pub(crate) verdict: Verdict,
}

/// What both know of a cell.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Figures {
    /// Seeds that were run.
    pub(crate) seeds: usize,
    /// Requests that are scored.
    pub(crate) requests: usize,
    /// Share of them that succeeded, 0 to 1.
    pub(crate) success_share: Option<f64>,
    /// Median time to success; a failed request counts with its deadline.
    pub(crate) p50_ms: Option<f64>,
}

/// What comes of comparing two medians.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// They differ by no more than is allowed.
    Agrees,
    /// The lab has not measured this cell.
    NoLabFigure,
    /// No request is scored.
    NotScored,
    /// They differ by more.
    Off,
    /// The lab's cell is void.
    Void,
}

impl Simulation {
    /// Begins one without rows.
    pub(crate) fn new(date: String, command: String, missing: Vec<Missing>) -> Self {
        Self { date, command, version: env!("CARGO_PKG_VERSION"), tolerance: TOLERANCE, rows: Vec::new(), missing }
    }

    /// Counts the verdicts in a sentence.
    pub(crate) fn summary(&self) -> String {
        let count = |verdict| self.rows.iter().filter(|row| row.verdict == verdict).count();
        let (agree, off) = (count(Verdict::Agrees), count(Verdict::Off));
        let (compared, all) = (agree + off, self.rows.len());
        format!("{agree} of {compared} medians are within {:.0} % of the lab's; {all} simulated", TOLERANCE * 100.0)
    }
}

impl Row {
    /// Sets what the lab measured beside what was simulated.
    pub(crate) fn new(simulated: &Record, measured: Option<&Record>) -> Self {
        let medians = (simulated.p50_ms, measured.and_then(|measured| measured.p50_ms));
        let ratio = match medians {
            (Some(simulated), Some(measured)) if measured > 0.0 => Some(simulated / measured),
            _ => None,
        };
        let verdict = match (measured, ratio) {
            (None, _) => Verdict::NoLabFigure,
            (Some(measured), _) if measured.void => Verdict::Void,
            (Some(_), None) => Verdict::NotScored,
            (Some(_), Some(ratio)) if (ratio - 1.0).abs() <= TOLERANCE => Verdict::Agrees,
            (Some(_), Some(_)) => Verdict::Off,
        };
        Self {
            scenario: simulated.scenario.clone(),
            variant: simulated.variant.clone(),
            work: simulated.work.clone(),
            simulated: Figures::of(simulated),
            lab: measured.map(Figures::of),
            ratio: ratio.map(|ratio| (ratio * 1000.0).round() / 1000.0),
            verdict,
        }
    }
}

impl Figures {
    fn of(record: &Record) -> Self {
        let Record { seeds, requests, success_share, p50_ms, .. } = record;
        Self { seeds: *seeds, requests: *requests, success_share: *success_share, p50_ms: *p50_ms }
    }
}

impl Verdict {
    /// Gives the words of tables.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Agrees => "agrees",
            Self::NoLabFigure => "no lab figure",
            Self::NotScored => "not scored",
            Self::Off => "off",
            Self::Void => "void in the lab",
        }
    }
}

/// A simulated median agrees with the lab's if it differs by no more than this share of it; the project's own bound, below which
/// choices that a simulation compares can be trusted to fall the same way in the lab.
const TOLERANCE: f64 = 0.2;

#[cfg(test)]
mod tests {
    use ropeway_core::sim::{Scenario, Work};

    use super::*;

    fn record(p50_ms: Option<f64>, void: bool) -> Record {
        let text = "summary = 's'\nbasis = 'b'\nsource = 's'\naccess.cell.rtt_ms = 60\n";
        let scenario = Scenario::parse("plain", text, None).expect("good");
        Record { p50_ms, void, ..Record::new(&scenario, Work::Get2k, "ropeway") }
    }

    #[test]
    fn a_median_agrees_within_a_fifth_of_the_lab_s() {
        let verdict = |simulated, lab| Row::new(&record(Some(simulated), false), Some(&record(lab, false))).verdict;
        assert_eq!([80.0, 100.0, 120.0].map(|ms| verdict(ms, Some(100.0))), [Verdict::Agrees; 3]);
        assert_eq!([79.0, 121.0].map(|ms| verdict(ms, Some(100.0))), [Verdict::Off; 2]);
        assert_eq!(verdict(100.0, None), Verdict::NotScored);
    }

    #[test]
    fn what_the_lab_has_not_measured_or_not_well_is_no_reason_to_correct_anything() {
        let simulated = record(Some(100.0), false);
        assert_eq!(Row::new(&simulated, None).verdict, Verdict::NoLabFigure);
        let void = Row::new(&simulated, Some(&record(Some(900.0), true)));
        assert_eq!((void.verdict, void.ratio), (Verdict::Void, Some(0.111)));

        let mut simulation = Simulation::new(String::new(), String::new(), Vec::new());
        let measured = [None, Some(void.lab.clone()), Some(void.lab.clone())];
        for (measured, verdict) in measured.into_iter().zip([Verdict::NoLabFigure, Verdict::Agrees, Verdict::Off]) {
            simulation.rows.push(Row { lab: measured.flatten(), verdict, ..void.clone() });
        }
        assert_eq!(simulation.summary(), "1 of 2 medians are within 20 % of the lab's; 3 simulated");
    }
}
