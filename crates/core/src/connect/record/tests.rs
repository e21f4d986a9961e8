//! What records learn and how long they hold it against someone.

use super::*;
use crate::CarrierKind::{Quic, Tls};

#[test]
fn the_window_holds_the_last_eight_outcomes() {
    let mut records = Records::new();
    fail(&mut records, 2);
    for count in 0..7 {
        records.observe(ONE, success(20), minutes(60 + count));
    }
    assert_eq!(of(&records, minutes(66)).failures(), 1);
    records.observe(ONE, success(20), minutes(67));
    assert_eq!(of(&records, minutes(67)).failures(), 0);
    assert_eq!(of(&records, minutes(67)).attempts(), WINDOW);
}

#[test]
fn the_round_trip_time_is_smoothed_by_an_eighth() {
    let mut records = Records::new();
    records.observe(ONE, success(80), minutes(0));
    records.observe(ONE, success(160), minutes(1));
    assert_eq!(of(&records, minutes(1)).srtt(), Some(Duration::from_millis(90)));
    records.observe(ONE, Score::Success { rtt: Duration::MAX, won: false }, minutes(2));
    assert!(of(&records, minutes(2)).srtt() < Some(Duration::from_secs(8)), "an absurd sample is capped");
}

#[test]
fn three_failures_ban_for_six_minutes_and_each_further_one_for_six_more_up_to_thirty() {
    let bans: Vec<_> = (1..=9)
        .map(|failures| {
            let mut records = Records::new();
            let last = fail(&mut records, failures);
            of(&records, last).banned_until(last).map_or(Duration::ZERO, |until| until.since(last))
        })
        .collect();
    assert_eq!(bans, [0, 0, 6, 12, 18, 24, 30, 30, 30].map(Duration::from_mins));
}

#[test]
fn a_ban_ends_with_its_time_or_a_success() {
    let mut records = Records::new();
    let last = fail(&mut records, 3);
    assert_eq!(of(&records, last).banned_until(last + BAN_STEP), None);
    records.observe(ONE, success(20), last);
    assert_eq!(of(&records, last).banned_until(last), None);
    assert!(of(&records, last).is_good());
}

#[test]
fn one_outage_probed_many_times_counts_as_one_failure() {
    let mut records = Records::new();
    for count in 0..10 {
        records.observe(ONE, FAILURE, Time::from_origin(Duration::from_millis(500 * count)));
    }
    assert_eq!(of(&records, minutes(0)).failures(), 1);
}

#[test]
fn a_success_right_after_a_failure_counts() {
    let mut records = Records::new();
    records.observe(ONE, success(20), minutes(0));
    records.observe(ONE, FAILURE, minutes(0));
    assert!(!of(&records, minutes(0)).is_good());
    records.observe(ONE, success(20), minutes(0));
    assert!(of(&records, minutes(0)).is_good());
}

#[test]
fn a_record_is_forgotten_a_day_after_its_last_outcome() {
    let mut records = Records::new();
    fail(&mut records, 1);
    assert_eq!(records.get(ONE, minutes(24 * 60)), None);
    records.observe(ONE, success(20), minutes(24 * 60));
    assert_eq!(of(&records, minutes(24 * 60)).failures(), 0, "and begins anew");
}

#[test]
fn the_oldest_record_makes_room() {
    let mut records = Records::new();
    for host in 0..=u32::try_from(RECORDS_MAX).unwrap() {
        let address = ([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::try_from(host).unwrap()], 443).into();
        let now = Time::from_origin(Duration::from_secs(host.into()));
        records.observe(Candidate { address, carrier: Tls }, FAILURE, now);
    }
    assert_eq!(records.len(), RECORDS_MAX);
    let first = Candidate { address: ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 443).into(), carrier: Tls };
    assert_eq!(records.get(first, minutes(1)), None);
}

#[test]
fn the_carrier_of_the_last_win_is_learned_and_quic_gets_another_chance() {
    let mut records = Records::new();
    assert_eq!(records.learned_carrier(minutes(0)), None);
    records.observe(ONE, win(), minutes(0));
    records.observe(ONE, win(), minutes(19));
    assert_eq!(records.learned_carrier(minutes(19)), Some(Tls));
    assert_eq!(records.learned_carrier(minutes(20)), None, "20 minutes from the first win in the row");
    records.observe(ONE, win(), minutes(20));
    assert_eq!(records.learned_carrier(minutes(39)), Some(Tls));
    records.observe(Candidate { carrier: Quic, ..ONE }, win(), minutes(40));
    assert_eq!(records.learned_carrier(minutes(400)), Some(Quic));
    records.observe(ONE, success(20), minutes(401));
    assert_eq!(records.learned_carrier(minutes(401)), Some(Quic), "a spare teaches no carrier");
}

#[test]
fn a_family_is_preferred_by_its_share_of_failures() {
    let mut records = Records::new();
    assert_eq!(records.prefers_ipv6(minutes(0)), None);
    fail(&mut records, 1);
    assert_eq!(records.prefers_ipv6(minutes(0)), None, "nothing is known of the other family");
    let v6 = Candidate { address: ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 443).into(), carrier: Tls };
    records.observe(v6, success(20), minutes(0));
    assert_eq!(records.prefers_ipv6(minutes(0)), Some(true));

    for minute in 1..=4 {
        records.observe(ONE, success(20), minutes(minute));
    }
    records.observe(v6, FAILURE, minutes(4));
    assert_eq!(records.prefers_ipv6(minutes(4)), Some(false), "one failure of two is worse than one of five");
}

#[test]
fn ipv4_that_was_not_tried_comes_before_ipv6_that_failed_and_not_the_other_way_round() {
    let v6 = Candidate { address: ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1], 443).into(), carrier: Tls };
    for (failed, preferred) in [(v6, Some(false)), (ONE, None)] {
        let mut records = Records::new();
        records.observe(failed, FAILURE, minutes(0));
        assert_eq!(records.prefers_ipv6(minutes(0)), preferred, "{failed}");
    }
}

const ONE: Candidate = Candidate {
    address: std::net::SocketAddr::V4(std::net::SocketAddrV4::new(std::net::Ipv4Addr::new(192, 0, 2, 1), 443)),
    carrier: Tls,
};
const FAILURE: Score = Score::Failure(FailReason::TimedOut);

fn fail(records: &mut Records, count: u32) -> Time {
    let mut last = Time::ZERO;
    for number in 0..count {
        last = Time::ZERO + SAMPLE_GAP * number;
        records.observe(ONE, FAILURE, last);
    }
    last
}

fn of(records: &Records, now: Time) -> &Record {
    records.get(ONE, now).unwrap()
}

const fn success(rtt_ms: u64) -> Score {
    Score::Success { rtt: Duration::from_millis(rtt_ms), won: false }
}

const fn win() -> Score {
    Score::Success { rtt: Duration::from_millis(20), won: true }
}

const fn minutes(count: u64) -> Time {
    Time::from_origin(Duration::from_mins(count))
}
