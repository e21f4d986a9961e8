//! What the memory of keyed requests promises.

use proptest::prelude::*;

use super::*;

const CONFIG: IdempotencyConfig = IdempotencyConfig { ttl: Duration::from_secs(600), keys_max: 4, bytes_max: 100 };

fn scope(number: u8) -> Scope {
    Scope([number; 32])
}

fn print(number: u8) -> Fingerprint {
    Fingerprint([number; 32])
}

fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

fn memory() -> Idempotency<u8> {
    Idempotency::new(CONFIG)
}

/// Begins a request that must run.
fn run(memory: &mut Idempotency<u8>, number: u8, now: Time) -> Run {
    let begun = memory.begin(&[scope(number)], || number, now);
    let Begin::Run(run) = begun else { panic!("{begun:?}") };
    memory.handle_fingerprint(run, print(number));
    run
}

#[test]
fn a_request_runs_once_and_its_repeats_share_its_answer() {
    let mut memory = memory();
    let first = run(&mut memory, 7, at(0));
    assert_eq!(memory.begin(&[scope(7)], || 0, at(1)), Begin::Join(first, Some(7)));
    memory.finish(first, Ending::Answered { bytes: 10 }, at(2));
    assert_eq!(memory.begin(&[scope(7)], || 0, at(3)), Begin::Join(first, Some(7)));
    assert_eq!(memory.compare(first, print(7)), Likeness::Same);
    assert_eq!(memory.compare(first, print(8)), Likeness::Different);
}

#[test]
fn any_of_the_names_leads_to_the_request() {
    let mut memory = memory();
    let begun = memory.begin(&[scope(1), scope(2)], || 9, at(0));
    let Begin::Run(first) = begun else { panic!("{begun:?}") };
    assert_eq!(memory.begin(&[scope(2)], || 0, at(0)), Begin::Join(first, Some(9)));
    assert_eq!(memory.begin(&[scope(3), scope(1)], || 0, at(0)), Begin::Join(first, Some(9)));
    assert_ne!(memory.begin(&[scope(3)], || 0, at(0)), Begin::Join(first, Some(9)));
}

#[test]
fn what_did_not_run_is_forgotten_and_runs_the_next_time() {
    let mut memory = memory();
    let first = run(&mut memory, 1, at(0));
    memory.finish(first, Ending::NotExecuted, at(1));
    assert!(memory.is_empty());
    assert_ne!(run(&mut memory, 1, at(1)), first);
}

#[test]
fn a_finished_request_is_forgotten_after_its_time_and_a_running_one_never() {
    let mut memory = memory();
    let first = run(&mut memory, 1, at(0));
    let second = run(&mut memory, 2, at(0));
    memory.finish(first, Ending::Answered { bytes: 10 }, at(5));
    assert_eq!(memory.poll_timeout(), Some(at(605)));
    assert_eq!(memory.begin(&[scope(1)], || 0, at(604)), Begin::Join(first, Some(1)));
    memory.handle_timeout(at(605));
    assert_eq!((memory.len(), memory.kept_bytes()), (1, 0));
    memory.handle_timeout(at(1_000_000));
    assert_eq!(memory.begin(&[scope(2)], || 0, at(1_000_000)), Begin::Join(second, Some(2)));
    assert_eq!(memory.poll_timeout(), None);
}

#[test]
fn new_keys_are_refused_rather_than_old_ones_forgotten() {
    let mut memory = memory();
    let runs: Vec<Run> = (0..4).map(|number| run(&mut memory, number, at(0))).collect();
    memory.finish(runs[0], Ending::Answered { bytes: 1 }, at(0));
    assert_eq!(memory.begin(&[scope(9)], || 0, at(1)), Begin::Full);
    assert_eq!(memory.begin(&[scope(0)], || 0, at(1)), Begin::Join(runs[0], Some(0)));
    run(&mut memory, 9, at(600));
}

#[test]
fn answers_go_oldest_first_and_their_keys_stay() {
    let mut memory = memory();
    let runs: Vec<Run> = (0..3).map(|number| run(&mut memory, number, at(0))).collect();
    for which in [2, 0, 1] {
        memory.finish(runs[which], Ending::Answered { bytes: 45 }, at(1));
    }
    assert_eq!(memory.kept_bytes(), 90);
    assert_eq!(memory.begin(&[scope(2)], || 0, at(2)), Begin::Join(runs[2], None));
    assert_eq!(memory.begin(&[scope(0)], || 0, at(2)), Begin::Join(runs[0], Some(0)));
    assert_eq!(memory.compare(runs[2], print(2)), Likeness::Same);
}

#[test]
fn an_answer_too_large_or_lost_is_remembered_as_executed() {
    let mut memory = memory();
    let large = run(&mut memory, 1, at(0));
    memory.handle_overflow(large);
    assert_eq!(memory.begin(&[scope(1)], || 0, at(0)), Begin::Join(large, None));
    memory.finish(large, Ending::Answered { bytes: 1_000 }, at(0));
    let lost = run(&mut memory, 2, at(0));
    memory.finish(lost, Ending::Gone, at(0));
    memory.finish(lost, Ending::NotExecuted, at(0));
    assert_eq!(memory.begin(&[scope(2)], || 0, at(0)), Begin::Join(lost, None));
    assert_eq!(memory.kept_bytes(), 0);
}

#[test]
fn no_repeat_gets_an_answer_whose_request_nobody_has_read() {
    let mut memory = memory();
    let begun = memory.begin(&[scope(1)], || 1, at(0));
    let Begin::Run(first) = begun else { panic!("{begun:?}") };
    assert_eq!(memory.compare(first, print(1)), Likeness::Unknown);
    memory.finish(first, Ending::Answered { bytes: 1 }, at(0));
    assert_eq!(memory.begin(&[scope(1)], || 0, at(0)), Begin::Join(first, None));
}

proptest! {
    #[test]
    fn nothing_that_may_have_run_runs_again_within_its_time(steps in prop::collection::vec((0_u8..6, 0_u8..4, 0_u64..300), 1..200)) {
        let mut memory = memory();
        let mut now = 0;
        // By key: the run under way, and until when it must not run again.
        let mut model: BTreeMap<u8, (Option<Run>, u64)> = BTreeMap::new();
        for (key, what, pause) in steps {
            now += pause;
            let known = model.get(&key).copied();
            match known {
                Some((Some(run), _)) if what > 0 => {
                    let ending = [Ending::Answered { bytes: 60 }, Ending::Gone, Ending::NotExecuted][usize::from(what) - 1];
                    memory.finish(run, ending, at(now));
                    if ending == Ending::NotExecuted {
                        model.remove(&key);
                    } else {
                        model.insert(key, (None, now + 600));
                    }
                }
                _ => match memory.begin(&[scope(key)], || key, at(now)) {
                    Begin::Run(run) => {
                        prop_assert!(known.is_none_or(|(run, until)| run.is_none() && until <= now));
                        memory.handle_fingerprint(run, print(key));
                        model.insert(key, (Some(run), u64::MAX));
                    }
                    Begin::Join(_, answer) => {
                        prop_assert!(known.is_some_and(|(run, until)| run.is_some() || until > now));
                        prop_assert!(answer.is_none_or(|answer| answer == key));
                    }
                    Begin::Full => prop_assert_eq!(memory.len(), CONFIG.keys_max),
                },
            }
            prop_assert!(memory.kept_bytes() <= CONFIG.bytes_max && memory.len() <= CONFIG.keys_max);
            prop_assert_eq!(memory.scopes.len(), memory.len());
        }
    }
}
