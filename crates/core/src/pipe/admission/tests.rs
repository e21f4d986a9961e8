use proptest::prelude::*;

use super::*;

const START_MS: u64 = 1_790_000_000_000;

/// An admission whose wall clock and monotonic clock can be set apart.
struct Gate {
    admission: Admission,
    now: Time,
    unix_ms: u64,
}

impl Gate {
    fn new(requests_max: usize) -> Self {
        let config = AdmissionConfig { requests_max, ..AdmissionConfig::default() };
        Self { admission: Admission::new(config, Time::ZERO), now: Time::ZERO, unix_ms: START_MS }
    }

    fn restarted() -> Self {
        let admission = Admission::restarted(AdmissionConfig::default(), START_MS, Time::ZERO);
        Self { admission, now: Time::ZERO, unix_ms: START_MS }
    }

    fn wait(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
        self.unix_ms += seconds * 1_000;
    }

    fn take(&mut self, key: u8, date_ms: u64) -> Result<(), PipeRefusal> {
        self.admission.handle_request(&[key; 32], date_ms, false, self.unix_ms, self.now)
    }

    /// Takes it and forgets what a refusal tells beside its name.
    fn named(&mut self, key: u8, date_ms: u64) -> Result<(), &'static str> {
        self.take(key, date_ms).map_err(PipeRefusal::name)
    }

    fn take_repeatable(&mut self, key: u8, date_ms: u64) -> Result<(), PipeRefusal> {
        self.admission.handle_request(&[key; 32], date_ms, true, self.unix_ms, self.now)
    }
}

#[test]
fn a_request_is_taken_within_a_minute_of_its_date_and_not_beyond() {
    let mut gate = Gate::new(10);
    for (key, offset_ms, taken) in [(1, -60_000, true), (2, 60_000, true), (3, -60_001, false), (4, 60_001, false)] {
        let date_ms = START_MS.checked_add_signed(offset_ms).expect("a date");
        let outcome = gate.take(key, date_ms);
        assert_eq!(outcome.is_ok(), taken, "{offset_ms} ms off: {outcome:?}");
    }
}

#[test]
fn a_request_is_refused_for_as_long_as_its_date_would_let_it_in() {
    let mut gate = Gate::new(10);
    gate.wait(119);
    let ahead = gate.unix_ms + 60_000;
    assert_eq!(gate.take(1, ahead), Ok(()));
    for _ in 0..121 {
        assert_eq!(gate.take(1, ahead), Err(PipeRefusal::Replayed));
        gate.wait(1);
    }
    gate.wait(240);
    assert_eq!(gate.take(1, ahead), Err(PipeRefusal::ClockBehind), "forgotten, and too old");
}

#[test]
fn a_full_window_turns_newcomers_away_and_forgets_nobody() {
    let mut gate = Gate::new(1);
    assert_eq!(gate.take(1, START_MS), Ok(()));
    assert_eq!(gate.take(2, START_MS), Err(PipeRefusal::Full));
    assert_eq!(gate.take(1, START_MS), Err(PipeRefusal::Replayed));
    gate.wait(240);
    assert_eq!(gate.take(2, gate.unix_ms), Ok(()));
}

#[test]
fn after_a_restart_what_the_last_process_may_have_taken_is_not_run_again() {
    let mut gate = Gate::restarted();
    assert_eq!(gate.named(1, START_MS + 60_000), Err("restarted"));
    assert_eq!(gate.take_repeatable(1, START_MS), Ok(()), "what may run twice is not held up");
    gate.wait(61);
    assert_eq!(gate.take(2, gate.unix_ms), Ok(()));
    assert_eq!(gate.named(3, START_MS), Err("restarted"), "though its date is wrong as well: it may have run");
    gate.wait(60);
    assert_eq!(gate.take(3, START_MS), Err(PipeRefusal::ClockBehind), "its sender no longer believes this");
}

#[test]
fn a_refusal_after_a_restart_says_how_old_the_process_is_and_which_date_it_takes() {
    let mut gate = Gate::restarted();
    gate.wait(2);
    let floor_ms = START_MS + 60_000;
    assert_eq!(gate.take(1, gate.unix_ms), Err(PipeRefusal::TooEarly { up: Duration::from_secs(2), floor_ms }));
    assert_eq!(gate.named(2, floor_ms), Err("restarted"));
    assert_eq!(gate.take(3, floor_ms + 1), Ok(()), "no earlier process can have taken this date");
    assert_eq!(gate.take(3, floor_ms + 1), Err(PipeRefusal::Replayed));
}

#[test]
fn who_hears_of_a_wrong_date_soon_knows_that_the_request_never_ran() {
    assert!(!PipeRefusal::ClockBehind.executed());
    let mut gate = Gate::new(10);
    let behind = START_MS - 59_000;
    assert_eq!(gate.take(1, behind), Ok(()));
    for _ in 0..120 {
        assert_eq!(gate.take(1, behind), Err(PipeRefusal::Replayed), "also when its date is too old by now");
        gate.wait(1);
    }
}

#[test]
fn a_clock_that_is_set_back_does_not_bring_an_old_request_in_again() {
    let mut gate = Gate::new(10);
    let date_ms = gate.unix_ms;
    assert_eq!(gate.take(1, date_ms), Ok(()));
    gate.wait(1_000);
    assert_eq!(gate.take(2, gate.unix_ms), Ok(()), "and the key is forgotten meanwhile");
    gate.unix_ms = date_ms;
    assert_eq!(gate.named(1, date_ms), Err("restarted"));
}

#[test]
fn what_may_still_be_taken_later_is_not_said_to_have_never_run() {
    let mut gate = Gate::new(1);
    let ahead = gate.unix_ms + 61_000;
    let refused = gate.take(1, ahead).unwrap_err();
    assert_eq!((refused, refused.executed()), (PipeRefusal::ClockAhead, true));
    gate.wait(2);
    assert_eq!(gate.take(1, ahead), Ok(()), "whoever held it back only had to wait");
    let refused = gate.take(2, gate.unix_ms).unwrap_err();
    assert_eq!((refused, refused.executed()), (PipeRefusal::Full, true));
}

proptest! {
    #[test]
    fn whatever_the_clocks_do_nothing_that_may_not_run_twice_runs_twice(
        steps in prop::collection::vec((0_u8..6, 0_u64..200, -200_000_i64..200_000, -70_000_i64..70_000), 1..200),
    ) {
        let mut gate = Gate::new(100);
        let mut sealed: Vec<(u8, u64)> = Vec::new();
        let mut executed = BTreeSet::new();
        let mut refused_for_good = BTreeSet::new();
        for (key, wait, jump_ms, offset_ms) in steps {
            gate.wait(wait);
            gate.unix_ms = gate.unix_ms.saturating_add_signed(jump_ms);
            let date_ms = gate.unix_ms.saturating_add_signed(offset_ms);
            if sealed.iter().all(|(known, _)| *known != key) {
                sealed.push((key, date_ms));
            }
            for (key, date_ms) in &sealed {
                match gate.take(*key, *date_ms) {
                    Ok(()) => {
                        prop_assert!(executed.insert(*key), "{key} ran twice");
                        prop_assert!(!refused_for_good.contains(key), "{key} ran after its sender had sent another");
                    }
                    Err(PipeRefusal::ClockBehind | PipeRefusal::TooEarly { .. }) => drop(refused_for_good.insert(*key)),
                    Err(_) => {}
                }
            }
        }
    }

    #[test]
    fn clocks_that_only_run_on_hold_up_no_request_with_a_right_date(waits in prop::collection::vec(0_u64..400, 1..100)) {
        let mut gate = Gate::new(1_000);
        for (key, wait) in waits.into_iter().enumerate() {
            gate.wait(wait);
            let date_ms = gate.unix_ms - 59_999;
            let key = u8::try_from(key).expect("at most a hundred");
            prop_assert_eq!(gate.take(key, date_ms), Ok(()));
        }
    }
}
