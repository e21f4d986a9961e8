//! Runs a target on input after input.

use std::{
    cell::RefCell,
    panic::{self, AssertUnwindSafe},
    sync::Once,
    time::{Duration, Instant},
};

use crate::{Outcome, Target, mutate::Mutator};

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Budget {
    /// After so many inputs.
    Runs(u64),
    /// After so long.
    Time(Duration),
}

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    /// Inputs that were run.
    pub runs: u64,
    /// Different things that happened.
    pub outcomes: usize,
}

/// An input that breaks a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The input.
    pub input: Vec<u8>,
    /// What the panic said, with its place.
    pub message: String,
    /// Inputs that were run up to it.
    pub runs: u64,
}

/// Runs a target on its seeds, then on mutations of them and of every input that made something new happen.
///
/// The same seed runs the same inputs. `watch` is told each input before it runs.
///
/// # Errors
///
/// The first [`Failure`].
pub fn explore(
    target: &Target,
    budget: Budget,
    seed: u64,
    watch: &mut dyn FnMut(&[u8]),
) -> Result<Explored, Box<Failure>> {
    let seeds = (target.seeds)();
    let mut mutator = Mutator::new(seed, target.shape, &seeds);
    let mut corpus: Vec<Vec<u8>> = Vec::new();
    let mut outcomes = Outcome::new();
    let begun = Instant::now();
    let mut runs = 0;
    let mut first = seeds.into_iter();
    loop {
        let (input, is_seed) = match first.next() {
            Some(seed) => (seed, true),
            None => (mutator.next(&corpus), false),
        };
        watch(&input);
        let outcome =
            run_once(target, &input).map_err(|message| Box::new(Failure { input: input.clone(), message, runs }))?;
        runs += 1;
        let known = outcomes.len();
        outcomes.extend(outcome);
        if outcomes.len() > known || is_seed {
            if corpus.len() < CORPUS_MAX {
                corpus.push(input);
            } else {
                let at = mutator.below(corpus.len());
                corpus[at] = input;
            }
        }
        let over = match budget {
            Budget::Runs(most) => runs >= most,
            Budget::Time(most) => runs.is_multiple_of(RUNS_A_LOOK) && begun.elapsed() >= most,
        };
        if over {
            return Ok(Explored { runs, outcomes: outcomes.len() });
        }
    }
}

/// Runs a target on one input.
///
/// # Errors
///
/// What the panic said, with its place.
pub fn run_once(target: &Target, input: &[u8]) -> Result<Outcome, String> {
    static HOOK: Once = Once::new();
    thread_local! {
        static SAID: RefCell<Option<String>> = const { RefCell::new(None) };
        static LISTENING: RefCell<bool> = const { RefCell::new(false) };
    }
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if LISTENING.with(|listening| *listening.borrow()) {
                SAID.with(|said| *said.borrow_mut() = Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
    LISTENING.with(|listening| *listening.borrow_mut() = true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| (target.body)(input)));
    LISTENING.with(|listening| *listening.borrow_mut() = false);
    outcome.map_err(|_| SAID.with(|said| said.borrow_mut().take()).unwrap_or_else(|| "panic without a word".into()))
}

/// Inputs kept for mutation; beyond it a new one takes the place of any.
const CORPUS_MAX: usize = 4_096;

/// Inputs between two looks at the clock.
const RUNS_A_LOOK: u64 = 16;

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;
    use crate::{Shape, TARGETS, corpus, mutate::split};

    /// The machine of a careless author: it trusts a CREDIT for a channel it has reset.
    fn planted(input: &[u8]) -> Outcome {
        let mut reset = BTreeSet::new();
        for frame in split(input).0 {
            match (frame.kind as u8, frame.channel) {
                (0x14, channel) => drop(reset.insert(channel)),
                (0x07, channel) => assert!(!reset.contains(&channel), "credit after a reset"),
                _ => {}
            }
        }
        Outcome::from([reset.len() as u64])
    }

    const PLANTED: Target = Target { name: "planted", body: planted, seeds: corpus::frames, shape: Shape::Frames };

    #[test]
    fn a_planted_bug_is_found_again_by_its_seed_and_by_its_input() {
        for seed in 1..=4 {
            let found = explore(&PLANTED, Budget::Runs(200_000), seed, &mut |_| {}).expect_err("the bug is found");
            assert!(found.runs > 0 && found.message.contains("credit after a reset"), "{}", found.message);
            assert!(found.message.contains("explore.rs"), "the place is told: {}", found.message);
            assert_eq!(explore(&PLANTED, Budget::Runs(200_000), seed, &mut |_| {}), Err(found.clone()));
            assert!(run_once(&PLANTED, &found.input).is_err());
        }
    }

    #[test]
    fn every_target_takes_its_seeds_and_a_few_hundred_others() {
        for target in TARGETS {
            let explored = explore(&target, Budget::Runs(300), 1, &mut |_| {});
            let explored = explored.unwrap_or_else(|failure| panic!("{}: {failure:?}", target.name));
            assert!(explored.outcomes > 1, "{}: whatever comes, the same happens", target.name);
        }
    }

    #[test]
    fn every_target_is_one_of_cargo_fuzz_too() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz_targets");
        let files = fs::read_dir(folder).expect("the folder is there");
        let mut names: Vec<String> =
            files.map(|file| file.expect("a file").file_name().to_string_lossy().replace(".rs", "")).collect();
        names.sort();
        assert_eq!(names, TARGETS.map(|target| target.name));
    }
}
