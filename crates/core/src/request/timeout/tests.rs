//! Time-outs in virtual time.

mod properties;

use super::*;
use crate::policy::RouteRules;

#[test]
fn a_network_of_which_nothing_is_known_has_the_times_of_its_class() {
    for (kind, base, cap, rate, queue, gap) in [
        (NetworkKind::Unspecified, 12_000, 22_000, 12_288, 1_500, 8_000),
        (NetworkKind::Wifi, 12_000, 22_000, 12_288, 1_500, 8_000),
        (NetworkKind::Wired, 12_000, 22_000, 12_288, 1_500, 8_000),
        (NetworkKind::Cellular3g, 15_000, 30_000, 4_096, 3_000, 12_000),
        (NetworkKind::Cellular4g, 15_000, 30_000, 4_096, 3_000, 12_000),
        (NetworkKind::Cellular5g, 15_000, 30_000, 4_096, 3_000, 12_000),
        (NetworkKind::Cellular2g, 20_000, 40_000, 2_048, 6_000, 16_000),
    ] {
        let timeouts = on(kind);
        assert_eq!(first_byte(&timeouts, 0), ms(base), "{kind:?}");
        assert_eq!(first_byte(&timeouts, rate * 2), ms(base + 2_000), "{kind:?}");
        assert_eq!(first_byte(&timeouts, 1 << 40), ms(cap), "{kind:?}");
        let busy = Ask { in_flight: 3, ..second(0) };
        assert_eq!(timeouts.first_byte(&busy, at(0)), ms(base + queue * 3), "{kind:?}");
        let crowded = Ask { in_flight: 1_000, bytes: 1 << 40, ..second(0) };
        assert_eq!(timeouts.first_byte(&crowded, at(0)), ms(cap + queue * 5), "{kind:?}");
        assert_eq!(timeouts.gap(&Policy::default(), at(0)), ms(gap), "{kind:?}");
    }
}

#[test]
fn the_first_try_is_short_and_later_ones_are_longer() {
    let timeouts = on(NetworkKind::Wifi);
    let tries = [0, 1, 2, 3, u32::MAX].map(|attempt| timeouts.first_byte(&Ask { attempt, ..second(12_288) }, at(0)));
    assert_eq!(tries, [7_000, 13_000, 19_000, 19_000, 19_000].map(ms), "the bytes have their time in each");
}

#[test]
fn the_services_time_is_added_beyond_the_cap_and_the_apps_bounds_all() {
    let timeouts = on(NetworkKind::Wifi);
    let slow = Ask { server_time: Some(ms(60_000)), ..second(1 << 30) };
    assert_eq!(timeouts.first_byte(&slow, at(0)), ms(82_000));
    assert_eq!(timeouts.first_byte(&Ask { left: ms(30_000), ..slow }, at(0)), ms(30_000));
    assert_eq!(timeouts.first_byte(&Ask { left: ms(300), ..second(0) }, at(0)), ms(300));
}

#[test]
fn what_is_measured_takes_the_place_of_the_class() {
    let mut timeouts = on(NetworkKind::Wifi);
    for second in 0..40 {
        timeouts.handle_rtt(ms(100), at(second));
    }
    let near = first_byte_at(&timeouts, 0, 40);
    assert!((ms(6_800)..ms(6_900)).contains(&near), "{near:?}: 6 s and eight round trips");
    let known_service = Ask { server_time: Some(ms(200)), ..second(0) };
    assert_eq!(timeouts.first_byte(&known_service, at(40)), near - ms(3_000) + ms(200), "no guess where it is known");
    let mut far = on(NetworkKind::Wifi);
    far.handle_rtt(ms(600), at(0));
    assert_eq!(first_byte(&far, 0), ms(6_000 + 8 * 1_800), "longer than the class on a slow network");
    far.handle_rtt(ms(60_000), at(0));
    assert_eq!(first_byte(&far, 0), ms(22_000), "and no longer than the cap");
    let once = |sample| {
        let mut timeouts = on(NetworkKind::Wifi);
        timeouts.handle_rtt(ms(60), at(0));
        timeouts.handle_rtt(ms(sample), at(0));
        first_byte(&timeouts, 0)
    };
    assert_eq!(once(3_000), once(360), "a packet lost in one handshake is not the network");
    assert!(once(360) < ms(10_000));
    assert!(once(360) > once(100));
}

#[test]
fn throughput_is_learned_in_both_directions() {
    let mut timeouts = on(NetworkKind::Cellular4g);
    let before = first_byte(&timeouts, 64 << 10);
    assert_eq!(before, ms(15_000 + 15_000));
    timeouts.handle_answered(&upload(64 << 10, 500), at(0));
    assert_eq!(first_byte(&timeouts, 64 << 10), ms(15_000 + 1_000), "half of 128 KiB/s is counted on");
    timeouts.handle_answered(&upload(64 << 10, 8_500), at(0));
    let slower = first_byte(&timeouts, 64 << 10);
    assert!((ms(16_100)..ms(16_200)).contains(&slower), "{slower:?}: one slow answer is followed by an eighth");
    timeouts.handle_answered(&upload(SMALL, 8_000), at(0));
    assert_eq!(first_byte(&timeouts, 64 << 10), slower, "a small one shows nothing");

    let busy = Ask { in_flight: 5, ..second(0) };
    assert_eq!(timeouts.first_byte(&busy, at(0)), ms(15_000 + 15_000));
    timeouts.handle_answered(&download(1 << 20, 100, 1_900), at(0));
    let queued = timeouts.first_byte(&busy, at(0)) - ms(15_000);
    assert_eq!(queued, ms(1_250), "five frames at a quarter of a MiB/s");
}

#[test]
fn a_pause_may_be_longer_on_a_slow_network_and_is_never_shorter_than_its_floor() {
    let mut near = on(NetworkKind::Cellular4g);
    near.handle_rtt(ms(40), at(0));
    near.handle_answered(&download(1 << 20, 100, 900), at(0));
    assert_eq!(near.gap(&Policy::default(), at(0)), GAP_FLOOR);
    let mut far = on(NetworkKind::Cellular2g);
    far.handle_rtt(ms(1_300), at(0));
    far.handle_answered(&download(20 << 10, 2_000, 9_000), at(0));
    let gap = far.gap(&Policy::default(), at(0));
    assert_eq!(gap, ms(40_000), "no longer than a first byte");
    far.handle_rtt(ms(1_300), at(0));
    far.handle_rtt(ms(1_300), at(0));
    far.handle_rtt(ms(1_300), at(0));
    let gap = far.gap(&Policy::default(), at(0));
    assert!((ms(30_000)..ms(40_000)).contains(&gap), "{gap:?}");
}

#[test]
fn a_policy_stands_in_place_of_class_measurement_and_verdict() {
    let policy = Policy {
        first_byte_base: Some(ms(4_000)),
        first_byte_cap: Some(ms(9_000)),
        rate_min_bytes_per_s: Some(1_024),
        gap: Some(ms(2_000)),
        ..Policy::default()
    };
    let mut timeouts = on(NetworkKind::Cellular4g);
    timeouts.handle_rtt(ms(500), at(0));
    timeouts.handle_answered(&upload(64 << 10, 500), at(0));
    for _ in 0..4 {
        timeouts.handle_failed(at(0));
    }
    let asked = |bytes| timeouts.first_byte(&Ask { policy: &policy, ..second(bytes) }, at(0));
    assert_eq!(timeouts.state(at(0)), NetworkState::Bad);
    assert_eq!([asked(0), asked(2_048), asked(1 << 20)], [4_000, 6_000, 9_000].map(ms));
    assert_eq!(timeouts.gap(&policy, at(0)), ms(2_000));
}

#[test]
fn ten_quick_answers_one_of_them_larger_make_a_network_excellent() {
    let mut timeouts = on(NetworkKind::Wifi);
    for second in 0..20 {
        timeouts.handle_answered(&download(SMALL, 100, 100), at(second));
    }
    assert_eq!(timeouts.state(at(20)), NetworkState::Evaluating, "small ones alone do not");
    timeouts.handle_answered(&download(3 << 10, 100, 100), at(20));
    assert_eq!(timeouts.state(at(20)), NetworkState::Excellent);
    assert_eq!(first_byte_at(&timeouts, 0, 20), ms(7_000));
    timeouts.handle_answered(&download(SMALL, 9_000, 0), at(21));
    assert_eq!(timeouts.state(at(21)), NetworkState::Excellent, "one that is merely slow is no failure");
    timeouts.handle_failed(at(22));
    assert_eq!(timeouts.state(at(22)), NetworkState::Evaluating);
    let mut mobile = on(NetworkKind::Cellular4g);
    for second in 0..10 {
        mobile.handle_answered(&download(10 << 10, 100, 2_900), at(second));
    }
    assert_eq!(first_byte_at(&mobile, 0, 10), ms(10_000));
}

#[test]
fn an_answer_is_quick_by_its_size() {
    let kib = 1 << 10;
    for (kind, bytes, within) in [
        (NetworkKind::Wifi, 3 * kib - 1, 500),
        (NetworkKind::Wifi, 3 * kib, 2_000),
        (NetworkKind::Wifi, 10 * kib, 2_000),
        (NetworkKind::Wifi, 30 * kib, 4_000),
        (NetworkKind::Wifi, 30 * kib + 1, 6_000),
        (NetworkKind::Cellular3g, 3 * kib - 1, 1_000),
        (NetworkKind::Cellular3g, 10 * kib, 3_000),
        (NetworkKind::Cellular3g, 30 * kib, 5_000),
        (NetworkKind::Cellular3g, 90 * kib, 7_000),
    ] {
        for (took, state) in [(within, NetworkState::Excellent), (within + 1, NetworkState::Evaluating)] {
            let mut timeouts = on(kind);
            timeouts.handle_answered(&download(3 << 10, 100, 100), at(0));
            for _ in 0..8 {
                timeouts.handle_answered(&download(SMALL, 100, 100), at(0));
            }
            timeouts.handle_answered(&download(bytes, took, 0), at(0));
            assert_eq!(timeouts.state(at(0)), state, "{kind:?}: {bytes} bytes in {took} ms");
        }
    }
}

#[test]
fn a_larger_answer_proves_nothing_after_five_minutes() {
    let mut timeouts = on(NetworkKind::Wifi);
    timeouts.handle_answered(&download(5 << 10, 100, 100), at(0));
    for second in 301..311 {
        timeouts.handle_answered(&download(SMALL, 100, 100), at(second));
    }
    assert_eq!(timeouts.state(at(311)), NetworkState::Evaluating);
}

#[test]
fn four_failures_of_ten_make_a_network_bad_and_seven_answers_make_it_good_again() {
    let mut timeouts = on(NetworkKind::Wifi);
    for second in 0..3 {
        timeouts.handle_failed(at(second));
        timeouts.handle_answered(&download(SMALL, 9_000, 0), at(second));
    }
    assert_eq!(timeouts.state(at(3)), NetworkState::Evaluating);
    timeouts.handle_failed(at(3));
    assert_eq!(timeouts.state(at(3)), NetworkState::Bad);
    assert_eq!(first_byte_at(&timeouts, 0, 3), ms(18_000), "half as much again");
    assert_eq!(first_byte_at(&timeouts, 1 << 30, 3), ms(33_000), "the cap too");
    assert_eq!(timeouts.gap(&Policy::default(), at(3)), ms(12_000), "and the pause");
    for second in 4..10 {
        timeouts.handle_answered(&download(SMALL, 100, 0), at(second));
    }
    assert_eq!(timeouts.state(at(10)), NetworkState::Bad, "six of ten are too few");
    timeouts.handle_answered(&download(SMALL, 100, 0), at(10));
    assert_eq!(timeouts.state(at(10)), NetworkState::Evaluating);
    timeouts.handle_failed(at(11));
    assert_eq!(timeouts.state(at(11)), NetworkState::Evaluating, "it begins anew");
}

#[test]
fn a_bad_network_on_which_nothing_happens_is_given_another_chance() {
    let mut timeouts = on(NetworkKind::Wifi);
    for _ in 0..4 {
        timeouts.handle_failed(at(0));
    }
    assert_eq!(timeouts.state(at(300)), NetworkState::Bad);
    assert_eq!(timeouts.state(at(301)), NetworkState::Evaluating);
    for _ in 0..3 {
        timeouts.handle_failed(at(302));
    }
    assert_eq!(timeouts.state(at(302)), NetworkState::Evaluating);
    timeouts.handle_failed(at(603));
    assert_eq!(timeouts.state(at(603)), NetworkState::Evaluating, "failures are forgotten after five minutes");
}

#[test]
fn another_network_is_judged_anew_and_one_known_by_its_label_is_remembered() {
    let mut timeouts = on(NetworkKind::Wifi);
    timeouts.handle_rtt(ms(400), at(0));
    let home = first_byte(&timeouts, 0);
    for _ in 0..4 {
        timeouts.handle_failed(at(1));
    }
    timeouts.handle_network("operator", NetworkKind::Cellular4g, at(2));
    assert_eq!(timeouts.state(at(2)), NetworkState::Evaluating);
    assert_eq!(first_byte_at(&timeouts, 0, 2), ms(15_000));
    timeouts.handle_rtt(ms(80), at(3));
    timeouts.handle_network("operator", NetworkKind::Cellular2g, at(4));
    assert_eq!(first_byte_at(&timeouts, 0, 4), ms(20_000), "2G of the same operator is another network");
    timeouts.handle_network("home", NetworkKind::Wifi, at(5));
    assert_eq!(first_byte_at(&timeouts, 0, 5), home);
}

#[test]
fn what_was_measured_without_a_label_ends_with_the_network() {
    let mut timeouts = Timeouts::new();
    timeouts.handle_rtt(ms(10), at(0));
    assert!(first_byte(&timeouts, 0) < ms(7_000));
    assert!(!timeouts.handle_network("", NetworkKind::Unspecified, at(1)), "it is the same, for all that is known");
    assert!(first_byte_at(&timeouts, 0, 1) < ms(7_000));
    timeouts.handle_changed(at(1));
    assert_eq!(first_byte_at(&timeouts, 0, 1), ms(12_000));
}

#[test]
fn what_was_measured_expires_sooner_where_the_device_moves() {
    let mut fixed = on(NetworkKind::Wifi);
    let mut mobile = on(NetworkKind::Cellular5g);
    for timeouts in [&mut fixed, &mut mobile] {
        timeouts.handle_rtt(ms(10), at(0));
        timeouts.handle_answered(&upload(1 << 20, 100), at(0));
        timeouts.handle_answered(&download(1 << 20, 10, 100), at(0));
    }
    assert!(first_byte_at(&mobile, 1 << 20, 599) < ms(10_000));
    assert_eq!(first_byte_at(&mobile, 0, 600), ms(15_000));
    assert_eq!(mobile.gap(&Policy::default(), at(600)), ms(12_000));
    assert!(first_byte_at(&fixed, 1 << 20, 86_399) < ms(10_000));
    assert_eq!(first_byte_at(&fixed, 0, 86_400), ms(12_000));
    mobile.handle_rtt(ms(10), at(600));
    mobile.handle_answered(&download(SMALL, 2_900, 0), at(1_000));
    mobile.handle_answered(&download(SMALL, 9_000, 0), at(1_500));
    assert!(first_byte_at(&mobile, 0, 1_599) < ms(10_000), "an answer in time says that it still holds");
    assert_eq!(first_byte_at(&mobile, 0, 1_600), ms(15_000));
    mobile.handle_rtt(ms(1_000), at(1_700));
    assert_eq!(first_byte_at(&mobile, 0, 1_700), ms(30_000), "an old time is not smoothed into a new one");
}

#[test]
fn the_network_not_heard_of_for_longest_makes_room() {
    let mut timeouts = Timeouts::new();
    for number in 0..1_000_u64 {
        timeouts.handle_network(&format!("network {number}"), NetworkKind::Wifi, at(number));
        timeouts.handle_rtt(ms(number), at(number));
        assert!(timeouts.known.len() <= LABELS_MAX);
    }
    timeouts.handle_network("network 984", NetworkKind::Wifi, at(1_000));
    assert_ne!(first_byte_at(&timeouts, 0, 1_000), ms(12_000));
    timeouts.handle_network("network 983", NetworkKind::Wifi, at(1_001));
    assert_eq!(first_byte_at(&timeouts, 0, 1_001), ms(12_000));
    timeouts.handle_network(&"x".repeat(1 << 20), NetworkKind::Wifi, at(1_002));
    assert_eq!(timeouts.place.label.len(), LABEL_CHARS_MAX);
}

#[test]
fn a_network_is_weak_by_its_kind_its_round_trips_or_its_failures() {
    assert!(on(NetworkKind::Cellular2g).is_weak(at(0)));
    let mut wifi = on(NetworkKind::Wifi);
    assert!(!wifi.is_weak(at(0)));
    wifi.handle_rtt(Duration::from_millis(1_420), at(0));
    assert!(wifi.is_weak(at(0)));
    let mut lossy = on(NetworkKind::Wifi);
    lossy.handle_rtt(Duration::from_millis(1_419), at(0));
    (0..3).for_each(|_| lossy.handle_failed(at(1)));
    assert!(!lossy.is_weak(at(1)));
    lossy.handle_failed(at(1));
    assert!(lossy.is_weak(at(1)));
}

#[test]
fn a_routes_own_rules_give_the_services_time() {
    let rules = RouteRules { server_time: Some(ms(2_500)), ..RouteRules::default() };
    let ask = Ask { server_time: rules.server_time, ..second(0) };
    assert_eq!(on(NetworkKind::Wifi).first_byte(&ask, at(0)), ms(14_500));
}

fn on(kind: NetworkKind) -> Timeouts {
    let mut timeouts = Timeouts::new();
    timeouts.handle_network("home", kind, at(0));
    timeouts
}

/// The second try, whose base is the whole one.
fn second(bytes: u64) -> Ask<'static> {
    const NO_POLICY: &Policy = &NOTHING_SAID;
    Ask { bytes, in_flight: 0, attempt: 1, server_time: None, left: Duration::MAX, policy: NO_POLICY }
}

fn first_byte(timeouts: &Timeouts, bytes: u64) -> Duration {
    first_byte_at(timeouts, bytes, 0)
}

fn first_byte_at(timeouts: &Timeouts, bytes: u64, seconds: u64) -> Duration {
    timeouts.first_byte(&second(bytes), at(seconds))
}

const fn upload(sent_bytes: u64, head_ms: u64) -> Answered {
    Answered { sent_bytes, received_bytes: 10, head_after: ms(head_ms), ended_after: ms(head_ms) }
}

const fn download(received_bytes: u64, head_ms: u64, body_ms: u64) -> Answered {
    Answered { sent_bytes: 0, received_bytes, head_after: ms(head_ms), ended_after: ms(head_ms + body_ms) }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn at(seconds: u64) -> Time {
    Time::from_origin(Duration::from_secs(seconds))
}

/// Too small to show a throughput, or to prove a network good.
const SMALL: u64 = 1_000;

static NOTHING_SAID: Policy = Policy {
    epoch_ms: 0,
    first_byte_base: None,
    first_byte_cap: None,
    rate_min_bytes_per_s: None,
    gap: None,
    stagger_max: None,
    retry_budget_permille: None,
    retry_budget_start: None,
    routes: Vec::new(),
};
