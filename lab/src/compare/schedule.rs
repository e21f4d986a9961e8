//! Runs side by side, within a budget of time, until all are done or someone interrupts.

use std::{
    collections::VecDeque,
    num::NonZeroUsize,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::{cache::Cache, lab::LabError, plan::Run};
use crate::scoring::Outcome;

/// How far a comparison may go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Labs side by side.
    pub(crate) jobs: NonZeroUsize,
    /// Time after which no further run begins.
    pub(crate) budget: Option<Duration>,
}

/// What became of a run.
pub(crate) type Done = Result<Outcome, LabError>;

/// Does the runs that the cache does not have, and gives what became of each, in the order of `runs`.
///
/// A void run is repeated. What fails for the lab's sake is not kept, and so is tried again by the next comparison.
pub(crate) fn go(
    runs: Vec<Run>,
    limits: Limits,
    cache: &Cache,
    stop: &AtomicBool,
    perform: &(dyn Fn(&Run) -> Done + Sync),
    progress: &(dyn Fn(&Run, Option<&Done>) + Sync),
) -> Vec<(Run, Done)> {
    let count = runs.len();
    let waiting: Mutex<VecDeque<(usize, Run)>> = Mutex::new(runs.into_iter().enumerate().collect());
    let done: Mutex<Vec<Option<(Run, Done)>>> = Mutex::new((0..count).map(|_| None).collect());
    let end = limits.budget.map(|budget| Instant::now() + budget);
    // A guard in the condition of a loop would be held through its body.
    let next = || lock(&waiting).pop_front();
    let work = || {
        while let Some((number, run)) = next() {
            progress(&run, None);
            let outcome = match cache.get(&run) {
                Some(outcome) => Ok(outcome),
                None if stop.load(Ordering::Relaxed) => Err(LabError("interrupted".to_owned())),
                None if end.is_some_and(|end| Instant::now() >= end) => Err(LabError("the budget is spent".to_owned())),
                None => repeat_while_void(&run, perform, stop).and_then(|outcome| {
                    cache.put(&run, &outcome).map_err(|error| LabError(format!("cannot keep the outcome: {error}")))?;
                    Ok(outcome)
                }),
            };
            progress(&run, Some(&outcome));
            lock(&done)[number] = Some((run, outcome));
        }
    };
    thread::scope(|scope| {
        for _ in 0..limits.jobs.get() {
            scope.spawn(work);
        }
    });
    done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner).into_iter().flatten().collect()
}

/// Performs a run, and once more for each time that it is void; the last one stands.
fn repeat_while_void(run: &Run, perform: &(dyn Fn(&Run) -> Done + Sync), stop: &AtomicBool) -> Done {
    let mut outcome = perform(run)?;
    for _ in 1..TRIES_OF_VOID {
        if outcome.void.is_none() || stop.load(Ordering::Relaxed) {
            break;
        }
        outcome = perform(run)?;
    }
    Ok(outcome)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // What a panicking job leaves is still a queue or a list.
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// How often a run that is void is done in all; a machine that is busy now may be idle a minute later.
const TRIES_OF_VOID: usize = 3;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::compare::plan::tests::a_run;

    fn limits(budget: Option<Duration>) -> Limits {
        Limits { jobs: NonZeroUsize::new(2).expect("two"), budget }
    }

    fn outcome(void: Option<&str>) -> Outcome {
        Outcome { requests: Vec::new(), bytes: 1, void: void.map(str::to_owned) }
    }

    /// Runs two seeds with an empty cache, and gives what became of them and how often something was performed.
    fn go_twice(budget: Option<Duration>, perform: &(dyn Fn(&Run) -> Done + Sync)) -> (Vec<(Run, Done)>, usize) {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path()).expect("opened");
        let (count, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        let counted = |run: &Run| {
            count.fetch_add(1, Ordering::Relaxed);
            perform(run)
        };
        let runs = || vec![a_run("", 1), a_run("", 2)];
        go(runs(), limits(budget), &cache, &stop, &counted, &|_, _| {});
        let done = go(runs(), limits(budget), &cache, &stop, &counted, &|_, _| {});
        (done, count.into_inner())
    }

    #[test]
    fn a_second_comparison_takes_what_the_first_kept() {
        let (done, performed) = go_twice(None, &|_| Ok(outcome(None)));
        assert_eq!(performed, 2);
        assert!(done.iter().map(|(run, _)| run.seed).eq([1, 2]));
        assert!(done.iter().all(|(_, done)| done.is_ok()));
    }

    #[test]
    fn a_failure_of_the_lab_is_tried_again_by_the_next_comparison() {
        let (done, performed) = go_twice(None, &|run| match run.seed {
            1 => Err(LabError("no room".to_owned())),
            _ => Ok(outcome(None)),
        });
        assert_eq!(performed, 3);
        assert!(done[0].1.is_err() && done[1].1.is_ok());
    }

    #[test]
    fn a_void_run_is_repeated_and_then_kept_as_void() {
        let (done, performed) = go_twice(None, &|_| Ok(outcome(Some("late"))));
        assert_eq!(performed, 2 * TRIES_OF_VOID);
        assert!(done.iter().all(|(_, done)| done.as_ref().is_ok_and(|outcome| outcome.void.is_some())));
    }

    #[test]
    fn two_jobs_work_side_by_side() {
        let both = std::sync::Barrier::new(2);
        let (done, _) = go_twice(None, &|_| {
            both.wait();
            Ok(outcome(None))
        });
        assert_eq!(done.len(), 2);
    }

    #[test]
    fn a_spent_budget_begins_nothing_more() {
        let (done, performed) = go_twice(Some(Duration::ZERO), &|_| Ok(outcome(None)));
        assert_eq!(performed, 0);
        assert!(done.iter().all(|(_, done)| done.as_ref().is_err_and(|error| error.0.contains("budget"))));
    }
}
