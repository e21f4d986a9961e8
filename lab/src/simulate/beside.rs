//! Simulated and measured figures of the same cells, side by side.

use serde::Serialize;

use super::Simulated;
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
    /// In milliseconds, the interval in which 95 of 100 medians lie that come of as many simulated runs as the lab made.
    pub(crate) chance_ms: Option<(f64, f64)>,
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
    /// They differ by more, but the lab's is one that as few runs give by chance.
    ByChance,
    /// The lab has not measured this cell.
    NoLabFigure,
    /// No request is scored.
    NotScored,
    /// They differ by more than chance explains.
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
        let (agree, chance, off) = (count(Verdict::Agrees), count(Verdict::ByChance), count(Verdict::Off));
        let (compared, all, percent) = (agree + chance + off, self.rows.len(), TOLERANCE * 100.0);
        format!(
            "{agree} of {compared} medians are within {percent:.0} % of the lab's, {chance} differ by chance, {off} are off; \
             {all} simulated"
        )
    }
}

impl Row {
    /// Sets what the lab measured beside what was simulated.
    pub(crate) fn new(cell: &Simulated, measured: Option<&Record>) -> Self {
        let simulated = &cell.record;
        let medians = (simulated.p50_ms, measured.and_then(|measured| measured.p50_ms));
        let chance_ms = measured.and_then(|measured| cell.interval_of_p50(measured.seeds));
        let ratio = match medians {
            (Some(simulated), Some(measured)) if measured > 0.0 => Some(simulated / measured),
            _ => None,
        };
        let verdict = match (measured, ratio) {
            (None, _) => Verdict::NoLabFigure,
            (Some(measured), _) if measured.void => Verdict::Void,
            (Some(_), None) => Verdict::NotScored,
            (Some(_), Some(ratio)) if (ratio - 1.0).abs() <= TOLERANCE => Verdict::Agrees,
            (Some(measured), Some(_)) if is_within(chance_ms, measured.p50_ms) => Verdict::ByChance,
            (Some(_), Some(_)) => Verdict::Off,
        };
        Self {
            scenario: simulated.scenario.clone(),
            variant: simulated.variant.clone(),
            work: simulated.work.clone(),
            simulated: Figures::of(simulated),
            lab: measured.map(Figures::of),
            chance_ms,
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
            Self::ByChance => "by chance",
            Self::NoLabFigure => "no lab figure",
            Self::NotScored => "not scored",
            Self::Off => "off",
            Self::Void => "void in the lab",
        }
    }
}

fn is_within(interval: Option<(f64, f64)>, value: Option<f64>) -> bool {
    interval.zip(value).is_some_and(|((low, high), value)| (low..=high).contains(&value))
}

/// A simulated median agrees with the lab's if it differs by no more than this share of it; the project's own bound, below which
/// choices that a simulation compares can be trusted to fall the same way in the lab.
const TOLERANCE: f64 = 0.2;

#[cfg(test)]
mod tests {
    use ropeway_core::sim::{Scenario, Work};

    use super::*;
    use crate::scoring::{Outcome, RequestOutcome, score};

    fn record(p50_ms: Option<f64>, void: bool) -> Record {
        let text = "summary = 's'\nbasis = 'b'\nsource = 's'\naccess.cell.rtt_ms = 60\n";
        let scenario = Scenario::parse("plain", text, None).expect("good");
        Record { seeds: 3, p50_ms, void, ..Record::new(&scenario, Work::Get2k, "ropeway") }
    }

    /// A cell whose runs have one request each, with these times.
    fn cell(times_ms: &[f64]) -> Simulated {
        let request = |ms| RequestOutcome {
            start_ms: 0.0,
            ms: Some(ms),
            after_outage_ms: None,
            error: None,
            is_post: false,
            executed: 1,
            is_scored: true,
        };
        let outcome = |ms: &f64| Outcome { requests: vec![request(*ms)], bytes: 0, void: None };
        let outcomes: Vec<_> = times_ms.iter().map(outcome).collect();
        let mut record = record(None, false);
        score(&mut record, &outcomes);
        Simulated { record, outcomes }
    }

    #[test]
    fn a_median_agrees_within_a_fifth_of_the_lab_s() {
        let verdict = |simulated: f64, lab| Row::new(&cell(&[simulated]), Some(&record(lab, false))).verdict;
        assert_eq!([80.0, 100.0, 120.0].map(|ms| verdict(ms, Some(100.0))), [Verdict::Agrees; 3]);
        assert_eq!([79.0, 121.0].map(|ms| verdict(ms, Some(100.0))), [Verdict::Off; 2]);
        assert_eq!(verdict(100.0, None), Verdict::NotScored);
    }

    #[test]
    fn a_median_that_few_runs_give_by_chance_refutes_nothing() {
        let lottery: Vec<f64> = (0..40).map(|n| if n < 24 { 100.0 } else { 900.0 }).collect();
        let verdict = |lab| Row::new(&cell(&lottery), Some(&record(Some(lab), false))).verdict;
        assert_eq!([100.0, 900.0, 2_000.0].map(verdict), [Verdict::Agrees, Verdict::ByChance, Verdict::Off]);
    }

    #[test]
    fn what_the_lab_has_not_measured_or_not_well_is_no_reason_to_correct_anything() {
        let simulated = cell(&[100.0]);
        assert_eq!(Row::new(&simulated, None).verdict, Verdict::NoLabFigure);
        let void = Row::new(&simulated, Some(&record(Some(900.0), true)));
        assert_eq!((void.verdict, void.ratio), (Verdict::Void, Some(0.111)));

        let mut simulation = Simulation::new(String::new(), String::new(), Vec::new());
        for verdict in [Verdict::NoLabFigure, Verdict::Agrees, Verdict::ByChance, Verdict::Off] {
            simulation.rows.push(Row { verdict, ..void.clone() });
        }
        let summary = "1 of 3 medians are within 20 % of the lab's, 1 differ by chance, 1 are off; 4 simulated";
        assert_eq!(simulation.summary(), summary);
    }
}
