//! When reconnects come, in virtual time.

use proptest::prelude::*;
use rand_core::Rng;

use super::*;

#[test]
fn the_first_connect_is_due_at_once_and_only_once() {
    let mut reconnect = Reconnect::new(ReconnectConfig::default(), 1, Time::ZERO);
    assert_eq!(reconnect.poll_output(), Some(ReconnectOutput::Connect));
    assert_eq!(reconnect.poll_output(), None);
    assert_eq!(reconnect.poll_timeout(), None, "the race's end comes next");
}

#[test]
fn windows_double_up_to_the_maximum_and_waits_fill_them() {
    let config = ReconnectConfig::default();
    let mut longest = [Duration::ZERO; 14];
    for seed in 0..500 {
        let mut reconnect = started(seed);
        let mut now = Time::ZERO;
        for (number, longest) in longest.iter_mut().enumerate() {
            reconnect.handle_lost(now, LostReason::RaceLost);
            let due = reconnect.poll_timeout().unwrap_or(now);
            let window = (config.base * 2_u32.pow(u32::try_from(number).unwrap())).min(config.max);
            assert!(due.since(now) <= window, "seed {seed}, wait {number}");
            *longest = due.since(now).max(*longest);
            now = due;
            reconnect.handle_timeout(now);
            assert_eq!(reconnect.poll_output(), Some(ReconnectOutput::Connect));
        }
    }
    assert!(longest[13] > config.max * 9 / 10, "the wait is drawn from the whole window");
}

#[test]
fn a_won_race_takes_back_a_connect_not_yet_polled() {
    let mut reconnect = Reconnect::new(ReconnectConfig::default(), 1, Time::ZERO);
    reconnect.handle_connected(at(1));
    assert_eq!(reconnect.poll_output(), None);
}

#[test]
fn a_waiting_request_gets_an_attempt_every_500_ms_for_30_s() {
    let mut reconnect = started(1);
    reconnect.handle_lost(at(0), LostReason::Silent);
    reconnect.handle_waiting(true, at(1_000));
    let connects = connects_until(&mut reconnect, at(1_000), at(120_000));
    assert_eq!(connects.first(), Some(&at(1_000)));
    assert!(connects.windows(2).all(|pair| pair[1].since(pair[0]) == Duration::from_millis(500)));
    assert_eq!(connects.len(), 61);
    assert_eq!(connects.last(), Some(&at(31_000)));
}

#[test]
fn a_request_that_stops_waiting_returns_to_the_backoff() {
    let mut reconnect = started(1);
    for _ in 0..8 {
        reconnect.handle_lost(at(0), LostReason::RaceLost);
    }
    reconnect.handle_waiting(true, at(1_000));
    reconnect.handle_waiting(false, at(1_200));
    assert!(reconnect.poll_timeout().unwrap() > at(2_000));
}

#[test]
fn a_request_waiting_on_a_link_that_dies_is_hurried_from_then() {
    let mut reconnect = started(1);
    reconnect.handle_connected(at(0));
    reconnect.handle_waiting(true, at(1_000));
    reconnect.handle_lost(at(60_000), LostReason::Silent);
    assert_eq!(connects_until(&mut reconnect, at(60_000), at(120_000)).len(), 61);
}

#[test]
fn a_changed_network_connects_at_once_unless_the_link_is_up() {
    let mut reconnect = started(1);
    for _ in 0..8 {
        reconnect.handle_lost(at(0), LostReason::RaceLost);
    }
    reconnect.handle_network_changed(at(700));
    assert_eq!(reconnect.poll_output(), Some(ReconnectOutput::Connect));

    reconnect.handle_connected(at(800));
    reconnect.handle_network_changed(at(2_000));
    assert_eq!(reconnect.poll_output(), None);
    assert_eq!(reconnect.poll_timeout(), None);
}

#[test]
fn changes_of_the_network_in_a_burst_make_one_attempt_each_gap() {
    let mut reconnect = started(1);
    let mut connects = 0;
    for now in (10..=2_000).step_by(10) {
        reconnect.handle_network_changed(at(now));
        reconnect.handle_timeout(at(now));
        connects += usize::from(reconnect.poll_output().is_some());
    }
    assert_eq!(connects, 4);
}

#[test]
fn retry_after_is_obeyed_by_waiting_requests_and_changed_networks_too() {
    for seed in 0..100 {
        let mut reconnect = started(seed);
        reconnect.handle_lost(at(0), LostReason::RaceLost);
        reconnect.handle_retry_after(Duration::from_secs(60), at(0));
        reconnect.handle_waiting(true, at(40_000));
        reconnect.handle_network_changed(at(50_000));
        let first = connects_until(&mut reconnect, at(0), at(200_000))[0];
        assert!(first >= at(60_000) && first <= at(90_000), "seed {seed}: {first:?}");
    }
}

#[test]
fn an_endless_retry_after_is_cut() {
    let mut reconnect = started(1);
    reconnect.handle_lost(at(0), LostReason::RaceLost);
    reconnect.handle_retry_after(Duration::MAX, at(0));
    assert!(reconnect.poll_timeout().unwrap() <= Time::from_origin(Duration::from_mins(90)));
}

#[test]
fn only_a_link_that_lived_a_while_resets_the_backoff() {
    let longest_wait = |lived: Duration| {
        let waits = (0..200).map(|seed| {
            let mut reconnect = started(seed);
            for _ in 0..8 {
                reconnect.handle_lost(at(0), LostReason::RaceLost);
            }
            reconnect.handle_connected(at(200_000));
            let lost = at(200_000) + lived;
            reconnect.handle_lost(lost, LostReason::Network);
            reconnect.poll_timeout().unwrap().since(lost)
        });
        waits.max().unwrap()
    };
    assert!(longest_wait(Duration::from_secs(30)) <= Duration::from_secs(1));
    assert!(longest_wait(Duration::from_secs(29)) > Duration::from_secs(100));
}

/// 10,000 clients lose one gateway in the same moment; the others answer at once.
#[test]
fn a_lost_gateways_clients_come_back_a_few_percent_a_second() {
    let busiest = busiest_seconds(|reconnect, now| reconnect.handle_connected(now));
    println!("seeds 0..10000, service up: {busiest:?} connects in the busiest seconds");
    assert!(busiest[0] <= 400, "evenly over 30 s: 3.3 %, never above 4 %");
}

/// The same, but every race is lost after a second: the whole service is gone.
#[test]
fn a_lost_services_clients_do_not_storm_it() {
    let busiest = busiest_seconds(|reconnect, now| {
        reconnect.handle_lost(now + Duration::from_secs(1), LostReason::RaceLost);
    });
    println!("seeds 0..10000, service gone: {busiest:?} connects in the busiest seconds");
    assert!(busiest[0] <= 600, "first and second waits overlap: below 6 %");
}

proptest! {
    #[test]
    fn any_sequence_of_events_keeps_the_gap_and_obeys_retry_after(
        seed in any::<u64>(),
        steps in prop::collection::vec((0_u8..7, 0_u64..20_000), 0..100),
    ) {
        let mut reconnect = started(seed);
        let (mut now, mut last, mut closed_until) = (Time::ZERO, Time::ZERO, Time::ZERO);
        for (verb, number) in steps {
            now += Duration::from_millis(number % 700);
            match verb {
                0 => reconnect.handle_connected(now),
                1 => reconnect.handle_lost(now, LostReason::Closed),
                2 => reconnect.handle_lost(now, LostReason::RaceLost),
                3 => reconnect.handle_network_changed(now),
                4 => {
                    let after = Duration::from_millis(number);
                    reconnect.handle_retry_after(after, now);
                    closed_until = closed_until.max(now + after);
                }
                5 => reconnect.handle_waiting(number % 2 == 0, now),
                _ => {
                    now = now.max(reconnect.poll_timeout().unwrap_or(now));
                    reconnect.handle_timeout(now);
                }
            }
            if reconnect.poll_output().is_some() {
                prop_assert!(now >= closed_until);
                prop_assert!(now.since(last) >= Duration::from_millis(500));
                last = now;
            }
        }
    }
}

/// Lets 10,000 clients lose a settled link at once, for two minutes; returns the five largest counts of connects in one
/// second.
fn busiest_seconds(after_connect: impl Fn(&mut Reconnect, Time)) -> Vec<usize> {
    let mut seconds = [0_usize; 120];
    let lost = at(60_000);
    for seed in 0..10_000 {
        let mut reconnect = started(seed);
        reconnect.handle_connected(at(0));
        reconnect.handle_lost(lost, LostReason::Closed);
        while let Some(due) = reconnect.poll_timeout() {
            let Some(second) = seconds.get_mut(usize::try_from(due.since(lost).as_secs()).unwrap()) else { break };
            *second += 1;
            reconnect.handle_timeout(due);
            assert_eq!(reconnect.poll_output(), Some(ReconnectOutput::Connect));
            after_connect(&mut reconnect, due);
        }
    }
    seconds.sort_unstable_by(|one, other| other.cmp(one));
    seconds[..5].to_vec()
}

/// A policy whose first connect has been polled.
fn started(seed: u64) -> Reconnect {
    let mut reconnect = Reconnect::new(ReconnectConfig::default(), Pcg32::seed_from_u64(seed).next_u64(), Time::ZERO);
    assert_eq!(reconnect.poll_output(), Some(ReconnectOutput::Connect));
    reconnect
}

/// Runs the policy with a race that never ends and returns when connects came.
fn connects_until(reconnect: &mut Reconnect, mut now: Time, end: Time) -> Vec<Time> {
    let mut connects = Vec::new();
    while now <= end {
        if reconnect.poll_output().is_some() {
            connects.push(now);
        }
        let Some(due) = reconnect.poll_timeout() else { break };
        now = now.max(due);
        reconnect.handle_timeout(now);
    }
    connects
}

fn at(milliseconds: u64) -> Time {
    Time::from_origin(Duration::from_millis(milliseconds))
}

#[test]
fn what_a_waiting_request_tried_in_vain_does_not_lengthen_the_wait_after_it() {
    for seed in 0..100 {
        let mut reconnect = started(seed);
        reconnect.handle_waiting(true, Time::ZERO);
        let mut now = Time::ZERO;
        while now < at(31) {
            reconnect.handle_lost(now, LostReason::RaceLost);
            now = reconnect.poll_timeout().unwrap_or(now) + Duration::from_millis(1);
            reconnect.handle_timeout(now);
            reconnect.poll_output();
        }
        reconnect.handle_lost(now, LostReason::RaceLost);
        let due = reconnect.poll_timeout().unwrap_or(now);
        assert!(due.since(now) <= ReconnectConfig::default().base * 4, "seed {seed}: {:?}", due.since(now));
    }
}

#[test]
fn beside_a_doubted_link_another_is_sought_until_it_speaks_again() {
    let mut reconnect = doubted();
    reconnect.handle_lost(at(6_100), LostReason::RaceLost);
    assert_eq!(reconnect.poll_timeout(), Some(at(6_500)), "the next race follows at the least gap");
    reconnect.handle_timeout(at(6_500));
    assert_eq!(reconnect.poll_output(), Some(ReconnectOutput::Connect));
    reconnect.handle_trusted();
    assert_eq!((reconnect.poll_output(), reconnect.poll_timeout()), (None, None));
    reconnect.handle_lost(at(60_000), LostReason::Silent);
    assert_eq!(reconnect.poll_output(), Some(ReconnectOutput::Connect), "it is lost as any other");
}

#[test]
fn a_doubted_link_that_nobody_waits_for_is_let_be() {
    let mut reconnect = doubted();
    reconnect.handle_waiting(false, at(6_200));
    assert_eq!((reconnect.poll_output(), reconnect.poll_timeout()), (None, None));
}

/// A request waits for its answer since 5 s, on a link that is doubted at 6 s.
fn doubted() -> Reconnect {
    let mut reconnect = Reconnect::new(ReconnectConfig::default(), 1, at(0));
    reconnect.poll_output();
    reconnect.handle_connected(at(100));
    reconnect.handle_waiting(true, at(5_000));
    assert_eq!(reconnect.poll_output(), None, "a request waits for its answer, not for a link");
    reconnect.handle_doubted(at(6_000));
    assert_eq!(reconnect.poll_output(), Some(ReconnectOutput::Connect));
    reconnect
}
