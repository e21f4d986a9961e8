//! What a benchmark found out.

use serde_json::{Value, json};

/// One figure, with the marks it is held against.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    /// Its name, the same in every run.
    pub(super) name: &'static str,
    /// What was measured, in words.
    pub(super) what: String,
    /// The unit of every number here.
    pub(super) unit: &'static str,
    /// Which way is better.
    pub(super) better: Better,
    /// The mark that must be met, if one is set.
    pub(super) must: Option<f64>,
    /// The mark that is aimed at, if one is set.
    pub(super) goal: Option<f64>,
    /// The suite that measures it.
    pub(super) suite: &'static str,
    /// One value a run.
    pub(super) runs: Vec<f64>,
    /// The same of another program, measured beside it.
    pub(super) peer: Option<Peer>,
}

/// Another program that did the same work.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// Name and version.
    pub(super) name: String,
    /// One value a run.
    pub(super) runs: Vec<f64>,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
}

impl Figure {
    /// Makes a figure without marks and without a peer.
    pub(super) fn new(name: &'static str, what: impl Into<String>, unit: &'static str, better: Better) -> Self {
        Self { name, what: what.into(), unit, better, must: None, goal: None, suite: "", runs: Vec::new(), peer: None }
    }

    /// Sets the mark that must be met.
    pub(super) fn must(mut self, mark: f64) -> Self {
        self.must = Some(mark);
        self
    }

    /// Sets the mark that is aimed at.
    pub(super) fn goal(mut self, mark: f64) -> Self {
        self.goal = Some(mark);
        self
    }

    /// Takes the values of the runs.
    pub(super) fn runs(mut self, runs: Vec<f64>) -> Self {
        self.runs = runs;
        self
    }

    /// Sets another program's values beside it.
    pub(super) fn beside(mut self, peer: Option<Peer>) -> Self {
        self.peer = peer;
        self
    }

    /// Gives the median of the runs.
    pub(super) fn value(&self) -> f64 {
        median(&self.runs)
    }

    /// Says whether the mark that must be met is met, if one is set.
    pub(super) fn meets(&self) -> Option<bool> {
        self.must.map(|mark| match self.better {
            Better::Higher => self.value() >= mark,
            Better::Lower => self.value() <= mark,
        })
    }

    /// Gives how many times the peer's value this one is.
    pub(super) fn ratio(&self) -> Option<f64> {
        self.peer.as_ref().map(|peer| self.value() / median(&peer.runs))
    }

    /// Gives the entry for programs.
    pub(super) fn entry(&self, machine: &str, date: &str) -> Value {
        json!({
            "name": self.name,
            "what": self.what,
            "value": rounded(self.value()),
            "unit": self.unit,
            "better": self.better.as_str(),
            "must": self.must,
            "goal": self.goal,
            "runs": self.runs.iter().copied().map(rounded).collect::<Vec<_>>(),
            "peer": self.peer.as_ref().map(|peer| peer.name.clone()),
            "peer_value": self.peer.as_ref().map(|peer| rounded(median(&peer.runs))),
            "ratio": self.ratio().map(rounded),
            "command": format!("ropeway bench --only {}", self.suite),
            "machine": machine,
            "date": date,
        })
    }
}

impl Better {
    /// Gives the word for programs.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Higher => "higher",
            Self::Lower => "lower",
        }
    }
}

/// Gives the middle of some values, or the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.get(sorted.len().saturating_sub(1) / 2), sorted.get(sorted.len() / 2)) {
        (Some(low), Some(high)) => f64::midpoint(*low, *high),
        _ => f64::NAN,
    }
}

/// Gives the value below which this share of the values lies, by nearest rank.
pub(super) fn percentile(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Keeps as many digits as mean something: four, or all before the point.
pub(super) fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = (3 - value.abs().log10().floor() as i32).max(0);
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_the_middle_of_the_runs() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn percentiles_go_by_nearest_rank() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!((percentile(&mut values, 0.5), percentile(&mut values, 0.99)), (50.0, 99.0));
        assert_eq!(percentile(&mut [7.0], 0.99), 7.0);
    }

    #[test]
    fn four_digits_are_kept() {
        assert_eq!([rounded(0.012_345_6), rounded(123.456), rounded(123_456.7)], [0.012_35, 123.5, 123_457.0]);
    }

    #[test]
    fn a_mark_is_met_from_the_better_side() {
        let figure = |better, must| Figure::new("x", "x", "ms", better).must(must).runs(vec![10.0]);
        assert_eq!(figure(Better::Lower, 10.0).meets(), Some(true));
        assert_eq!(figure(Better::Lower, 9.0).meets(), Some(false));
        assert_eq!(figure(Better::Higher, 11.0).meets(), Some(false));
        assert_eq!(Figure::new("x", "x", "ms", Better::Lower).meets(), None);
    }
}
