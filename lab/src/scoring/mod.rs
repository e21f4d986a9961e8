//! From the outcomes of a cell's runs, in the lab or simulated, to its record.

use rand_core::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use ropeway_core::sim::work::DEADLINE;

mod network;
mod outcome;

pub(crate) use self::{
    network::Network,
    outcome::{Outcome, RequestOutcome},
};
use crate::results::Record;

/// Scores the runs of a cell; `record` brings the names.
pub(crate) fn score(record: &mut Record, runs: &[Outcome]) {
    let all = || runs.iter().flat_map(|run| &run.requests);
    let scored: Vec<&RequestOutcome> = all().filter(|request| request.is_scored).collect();
    let times = sorted(scored.iter().map(|request| time(request)).collect());
    let successes = scored.iter().filter(|request| request.ms.is_some()).count();
    let returns = sorted(scored.iter().filter_map(|request| request.after_outage_ms).collect());
    let interval = interval_of_p95(&times);

    record.seeds = runs.len();
    record.requests = scored.len();
    record.success_share = (!scored.is_empty()).then(|| round(successes as f64 / scored.len() as f64, 4));
    record.p50_ms = quantile(&times, 0.50);
    record.p95_ms = quantile(&times, 0.95);
    record.p99_ms = quantile(&times, 0.99);
    (record.p95_low_ms, record.p95_high_ms) = (interval.map(|(low, _)| low), interval.map(|(_, high)| high));
    record.after_outage_ms = quantile(&returns, 0.50);
    record.bytes = (!runs.is_empty()).then(|| runs.iter().map(|run| run.bytes).sum());
    // Whether or not it is scored: a POST executed twice is one too many.
    let has_posts = all().any(|request| request.is_post);
    record.posts_twice = has_posts.then(|| all().filter(|request| request.is_post && request.executed > 1).count());
    record.void = runs.iter().any(|run| run.void.is_some());
}

/// Gives the interval in which 95 of 100 medians lie that come of so many of these runs, drawn with replacement: runs and not requests,
/// since what delays one request of a run often delays the next.
pub(crate) fn interval_of_p50(runs: &[Outcome], count: usize) -> Option<(f64, f64)> {
    let scored = |run: &Outcome| run.requests.iter().filter(|request| request.is_scored).map(time).collect();
    let runs: Vec<Vec<f64>> = runs.iter().map(scored).collect();
    if runs.is_empty() {
        return None;
    }
    let mut random = Pcg64Mcg::seed_from_u64(BOOTSTRAP_SEED);
    let medians = (0..BOOTSTRAP_SAMPLES).filter_map(|_| {
        let drawn = (0..count).map(|_| &runs[(random.next_u64() % runs.len() as u64) as usize]);
        quantile(&sorted(drawn.flatten().copied().collect()), 0.50)
    });
    middle(medians.collect())
}

/// Gives the time of a request in milliseconds; a failure takes as long as its deadline allows.
fn time(request: &RequestOutcome) -> f64 {
    request.ms.unwrap_or(DEADLINE.as_secs_f64() * 1000.0)
}

/// Interpolates between the neighbours of a quantile (type 7 of Hyndman and Fan, 1996), to a tenth of a millisecond.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let at = share * last as f64;
    let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
    Some(round(below + (above - below) * at.fract(), 1))
}

/// The percentile bootstrap (Efron, 1979): the 95th percentile of samples drawn from the times, with replacement.
fn interval_of_p95(times: &[f64]) -> Option<(f64, f64)> {
    let last = times.len().checked_sub(1)?;
    let mut random = Pcg64Mcg::seed_from_u64(BOOTSTRAP_SEED);
    let draw = |random: &mut Pcg64Mcg| times[(random.next_u64() % (last as u64 + 1)) as usize];
    let samples = (0..BOOTSTRAP_SAMPLES).filter_map(|_| {
        let sample = sorted((0..=last).map(|_| draw(&mut random)).collect());
        quantile(&sample, 0.95)
    });
    middle(samples.collect())
}

/// Gives the bounds between which 95 of 100 values lie.
fn middle(values: Vec<f64>) -> Option<(f64, f64)> {
    let values = sorted(values);
    Some((quantile(&values, 0.025)?, quantile(&values, 0.975)?))
}

fn sorted(mut times: Vec<f64>) -> Vec<f64> {
    times.sort_by(f64::total_cmp);
    times
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10_f64.powi(digits);
    (value * scale).round() / scale
}

/// Samples of the bootstrap; 1,000 is what Efron and Tibshirani (1993, section 14.3) advise for intervals.
const BOOTSTRAP_SAMPLES: usize = 1000;

/// The same outcomes give the same interval.
const BOOTSTRAP_SEED: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        serde_json::from_value(serde_json::json!({
            "scenario": "elevator", "variant": null, "work": "post-10k", "peer": "undici", "seeds": 0, "requests": 0,
            "success_share": null, "p50_ms": null, "p95_ms": null, "p99_ms": null, "p95_low_ms": null,
            "p95_high_ms": null, "after_outage_ms": null, "bytes": null, "posts_twice": null, "void": false,
        }))
        .expect("these are the fields")
    }

    fn post(ms: Option<f64>, executed: usize) -> RequestOutcome {
        RequestOutcome {
            start_ms: 0.0,
            ms,
            after_outage_ms: ms.map(|ms| ms / 2.0),
            error: None,
            is_post: true,
            executed,
            is_scored: true,
        }
    }

    fn run(requests: Vec<RequestOutcome>) -> Outcome {
        Outcome { requests, bytes: 1000, void: None }
    }

    #[test]
    fn a_failure_counts_with_its_deadline() {
        let mut record = record();
        let runs = [run(vec![post(Some(100.0), 1), post(None, 0)]), run(vec![post(Some(300.0), 2)])];
        score(&mut record, &runs);
        assert_eq!((record.seeds, record.requests, record.success_share), (2, 3, Some(0.6667)));
        assert_eq!((record.p50_ms, record.p99_ms), (Some(300.0), Some(29_406.0)));
        assert_eq!((record.after_outage_ms, record.bytes, record.posts_twice), (Some(100.0), Some(2000), Some(1)));
    }

    #[test]
    fn the_interval_holds_the_percentile_and_is_the_same_each_time() {
        let requests: Vec<_> = (1..=40).map(|n| post(Some(f64::from(n * 10)), 1)).collect();
        let (mut one, mut other) = (record(), record());
        score(&mut one, &[run(requests.clone())]);
        score(&mut other, &[run(requests)]);
        assert_eq!(one, other);
        let (low, p95, high) = (one.p95_low_ms.unwrap(), one.p95_ms.unwrap(), one.p95_high_ms.unwrap());
        assert!(low < p95 && p95 <= high && low > 300.0, "{low} {p95} {high}");
    }

    #[test]
    fn medians_of_a_few_runs_lie_in_an_interval_that_more_runs_make_narrower() {
        let slow = |of: u32| of.is_multiple_of(2);
        let runs: Vec<_> = (0..40).map(|n| run(vec![post(Some(if slow(n) { 900.0 } else { 100.0 }), 1)])).collect();
        assert_eq!(interval_of_p50(&runs, 3), Some((100.0, 900.0)));
        assert_eq!(interval_of_p50(&runs[..1], 3), Some((900.0, 900.0)));
        let fast: Vec<_> = (0..40).map(|n| run(vec![post(Some(f64::from(100 + n)), 1)])).collect();
        let width = |count| interval_of_p50(&fast, count).map(|(low, high)| high - low);
        assert!(width(60) < width(3), "{:?} {:?}", width(60), width(3));
        assert_eq!(interval_of_p50(&[], 3), None);
        assert_eq!(interval_of_p50(&[run(Vec::new())], 3), None, "nothing is scored");
    }

    #[test]
    fn what_the_link_could_not_carry_is_not_scored_but_its_second_execution_is() {
        let mut record = record();
        let request = RequestOutcome { is_scored: false, ..post(None, 2) };
        score(&mut record, &[run(vec![request])]);
        assert_eq!((record.requests, record.success_share, record.p95_ms), (0, None, None));
        assert_eq!(record.posts_twice, Some(1));
    }

    #[test]
    fn one_void_run_makes_the_cell_void() {
        let mut record = record();
        let void = Outcome { void: Some("late".to_owned()), ..run(vec![post(Some(1.0), 1)]) };
        score(&mut record, &[run(vec![post(Some(1.0), 1)]), void]);
        assert!(record.void);
    }
}
