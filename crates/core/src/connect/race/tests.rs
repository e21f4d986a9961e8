//! The race on a made-up network in virtual time.

mod properties;
mod sim;

use super::*;
use crate::{
    CarrierKind::{Quic, Tls, Ws},
    wire::message::NetworkKind,
};
use sim::{Fate, Network, address, candidate, milliseconds as ms, unknown};

const GOOD: Fate = Fate::Answers { rtt: Duration::from_millis(20) };

#[test]
fn two_blackholes_then_a_good_address_answer_within_the_mark() {
    let mut network = Network::default();
    network.set(candidate(3, Tls), GOOD);
    let run = network.run(vec![unknown(1, Tls), unknown(2, Tls), unknown(3, Tls)]);
    assert_eq!(run.won(), Some((ms(560), candidate(3, Tls))), "two staggers of 250 ms and a handshake of 3 RTT");
    assert!(run.won().unwrap().0 <= ms(600));
}

#[test]
fn with_a_round_trip_on_record_two_blackholes_cost_two_short_staggers() {
    let mut network = Network::default();
    network.set(candidate(3, Tls), GOOD);
    let known = |host| RankedCandidate { srtt: Some(ms(20)), ..unknown(host, Tls) };
    let run = network.run(vec![known(1), known(2), known(3)]);
    assert_eq!(run.won(), Some((ms(260), candidate(3, Tls))), "two staggers of 100 ms and a handshake of 3 RTT");
    assert!(run.won().unwrap().0 <= ms(350));
}

#[test]
fn four_blackholes_then_a_good_address_answer_within_the_mark() {
    let mut network = Network::default();
    network.set(candidate(5, Tls), GOOD);
    let run = network.run((1..=5).map(|host| unknown(host, Tls)).collect());
    let (took, winner) = run.won().unwrap();
    assert_eq!(winner, candidate(5, Tls));
    assert!(took <= ms(1_300), "{took:?}");
}

#[test]
fn a_refused_address_hands_over_at_once() {
    let mut network = Network::default();
    network.set(candidate(1, Tls), Fate::Refuses { rtt: ms(1) });
    network.set(candidate(2, Tls), GOOD);
    let run = network.run(vec![unknown(1, Tls), unknown(2, Tls)]);
    assert_eq!(run.won(), Some((ms(61), candidate(2, Tls))));
}

#[test]
fn three_blackholes_do_not_hold_back_the_fourth_address() {
    let mut network = Network::default();
    network.set(candidate(4, Tls), GOOD);
    let run = network.run((1..=4).map(|host| unknown(host, Tls)).collect());
    assert_eq!(run.won(), Some((ms(810), candidate(4, Tls))), "Mars needs 15 s here");
}

#[test]
fn quic_and_tls_of_one_address_start_together_and_share_a_slot() {
    let mut network = Network::default();
    network.set(candidate(1, Tls), GOOD);
    let race = Race::new(RaceConfig::default(), pairs(1), Time::ZERO);
    assert_eq!(race.in_flight(Time::ZERO), 1);
    let run = network.run(pairs(2));
    assert_eq!(run.starts(), [(ms(0), candidate(1, Quic)), (ms(0), candidate(1, Tls))]);
    assert_eq!(run.won(), Some((ms(60), candidate(1, Tls))));
}

#[test]
fn while_nothing_comes_back_later_addresses_are_asked_by_a_syn_and_over_quic_with_the_next() {
    let run = Network::default().run(pairs(3));
    let expected = [
        (0, candidate(1, Quic)),
        (0, candidate(1, Tls)),
        (250, candidate(2, Tls)),
        (500, candidate(2, Quic)),
        (500, candidate(3, Tls)),
        (750, candidate(3, Quic)),
    ];
    assert_eq!(run.starts(), expected.map(|(after, candidate)| (ms(after), candidate)));
}

#[test]
fn quic_starts_beside_a_syn_that_is_answered_soon_and_not_on_a_slow_network() {
    for (rtt, expected) in [(999, vec![candidate(2, Quic)]), (1_000, vec![])] {
        let mut race = Race::new(RaceConfig::default(), pairs(2), Time::ZERO);
        race.handle_timeout(at(250));
        outputs(&mut race);
        race.handle_alive(AttemptId(2), ms(rtt), at(300));
        assert_eq!(starts(&outputs(&mut race)), expected, "{rtt} ms");
    }
}

#[test]
fn the_other_carrier_of_an_address_keeps_the_next_address_waiting_for_its_stagger() {
    let mut network = Network::default();
    network.set(candidate(1, Quic), Fate::Refuses { rtt: ms(1) });
    let run = network.run(pairs(2));
    assert_eq!(run.starts()[2], (ms(250), candidate(2, Quic)));
}

#[test]
fn candidates_that_start_together_are_given_the_longer_stagger() {
    let near = RankedCandidate { srtt: Some(ms(20)), ..unknown(1, Quic) };
    let far = RankedCandidate { srtt: Some(ms(200)), with_previous: true, ..unknown(1, Tls) };
    let run = Network::default().run(vec![near, far, unknown(2, Tls)]);
    assert_eq!(run.starts()[2].0, ms(800));
}

#[test]
fn the_stagger_follows_the_round_trip_time_within_its_bounds() {
    let config = RaceConfig::default();
    assert_eq!(config.stagger(None), ms(250));
    assert_eq!(config.stagger(Some(ms(5))), ms(100));
    assert_eq!(config.stagger(Some(ms(200))), ms(800));
    assert_eq!(config.stagger(Some(ms(900))), ms(2000));
    assert_eq!(config.slot_life(Some(ms(900))), ms(4000));
    assert_eq!(config.slot_life(Some(ms(1500))), ms(4500), "three round trips outlive two capped staggers");
}

#[test]
fn on_2g_the_others_wait_for_a_round_trip_of_it() {
    let config = RaceConfig::default();
    assert_eq!(config.on(NetworkKind::Wifi, None), config);
    let slow = config.on(NetworkKind::Cellular2g, None);
    assert_eq!((slow.stagger(None), slow.stagger(Some(ms(1_300)))), (ms(2_000), ms(4_000)));
    assert_eq!(slow.stagger(Some(ms(50))), ms(200), "what is known counts");
    assert_eq!(config.on(NetworkKind::Cellular2g, Some(ms(3_000))).stagger(Some(ms(1_300))), ms(3_000));
}

#[test]
fn a_late_attempt_gives_up_its_slot_and_still_wins() {
    let mut network = Network::default();
    network.set(candidate(1, Tls), Fate::Answers { rtt: ms(600) });
    let run = network.run((1..=5).map(|host| unknown(host, Tls)).collect());
    let starts: Vec<_> = run.starts().iter().map(|(at, _)| *at).collect();
    assert_eq!(starts, [ms(0), ms(250), ms(500), ms(750), ms(1000)]);
    assert_eq!(run.won(), Some((ms(1800), candidate(1, Tls))));
}

#[test]
fn a_full_house_waits_for_a_slot_and_not_longer() {
    let config = RaceConfig { in_flight_max: 1, ..RaceConfig::default() };
    let mut race = Race::new(config, vec![unknown(1, Tls), unknown(2, Tls)], Time::ZERO);
    assert_eq!(race.poll_timeout(), Some((at(500), Timer::Slot)));
    race.handle_timeout(at(499));
    assert_eq!(race.in_flight(at(499)), 1);
    race.handle_timeout(at(500));
    let starts = std::iter::from_fn(|| race.poll_output()).count();
    assert_eq!(starts, 2);
}

#[test]
fn a_race_makes_fifteen_attempts_at_five_addresses_and_no_more() {
    let mut ranked = pairs(7);
    ranked.extend((1..=7).map(|host| unknown(host, Ws)));
    let run = Network::default().run(ranked);
    let starts = run.starts();
    let addresses: std::collections::BTreeSet<_> = starts.iter().map(|(_, candidate)| candidate.address).collect();
    assert_eq!((starts.len(), addresses.len()), (15, 5));
    let RaceError::AllFailed { attempts } = run.lost().unwrap() else { panic!("no deadline in sight") };
    assert!(attempts.iter().all(|attempt| attempt.outcome == AttemptOutcome::Failed(FailReason::TimedOut)));
    assert!(attempts.iter().all(|attempt| attempt.took == ms(10_000)));
}

#[test]
fn the_deadline_ends_a_race_and_names_every_attempt() {
    let mut network = Network::default();
    network.set(candidate(1, Tls), Fate::Refuses { rtt: ms(30) });
    network.config.deadline = ms(1000);
    let run = network.run(vec![unknown(1, Tls), unknown(2, Tls)]);
    assert_eq!(run.ended(), ms(1000));
    let error = run.lost().unwrap();
    assert_eq!(
        error.to_string(),
        "no attempt finished before the deadline (tls 192.0.2.1:443: refused after 30 ms; tls 192.0.2.2:443: \
         unfinished after 970 ms)"
    );
    assert_eq!(run.scores().len(), 2, "the second gave up its slot, so it was silent for long enough to count");
}

#[test]
fn a_race_without_candidates_is_lost_at_once() {
    assert_eq!(Network::default().run(Vec::new()).lost(), Some(&RaceError::NoCandidate));
}

#[test]
fn the_first_loser_to_finish_becomes_the_spare_and_the_next_is_abandoned() {
    let mut network = Network::default();
    for (host, rtt) in [(1, 300), (2, 200), (3, 20)] {
        network.set(candidate(host, Tls), Fate::Answers { rtt: ms(rtt) });
    }
    let run = network.run((1..=3).map(|host| unknown(host, Tls)).collect());
    assert_eq!(run.won(), Some((ms(560), candidate(3, Tls))));
    let ends: Vec<_> = run.outputs.iter().filter(|(_, output)| !matches!(output, RaceOutput::Scored { .. })).collect();
    assert_eq!(ends[ends.len() - 2], &(at(850), RaceOutput::KeepSpare { attempt: AttemptId(1) }));
    let why = AbandonReason::SpareHeld;
    assert_eq!(ends[ends.len() - 1], &(at(900), RaceOutput::Abandon { attempt: AttemptId(0), why }));
    assert_eq!(run.scores().len(), 3);
}

/// Two addresses with three carriers each, all of them under way.
fn full_race() -> Race {
    let mut race = race_with_record(None);
    for time in [250, 500, 750] {
        race.handle_timeout(at(time));
    }
    assert_eq!(starts(&outputs(&mut race)).len(), 6);
    race
}

/// The same as it begins, where the first candidate may have a round trip on record.
fn race_with_record(srtt: Option<Duration>) -> Race {
    let carriers = |host| [unknown(host, Quic), RankedCandidate { with_previous: true, ..unknown(host, Tls) }];
    let ws = [1, 2].map(|host| unknown(host, Ws));
    let mut ranked: Vec<_> = carriers(1).into_iter().chain(carriers(2)).chain(ws).collect();
    ranked[0].srtt = srtt;
    Race::new(RaceConfig::default(), ranked, Time::ZERO)
}

fn outputs(race: &mut Race) -> Vec<RaceOutput> {
    std::iter::from_fn(|| race.poll_output()).collect()
}

fn starts(outputs: &[RaceOutput]) -> Vec<Candidate> {
    let mut started = Vec::new();
    for output in outputs {
        if let RaceOutput::Start { candidate, .. } = output {
            started.push(*candidate);
        }
    }
    started
}

fn in_the_way(outputs: &[RaceOutput]) -> Vec<u32> {
    let mut ended = Vec::new();
    for output in outputs {
        if let RaceOutput::Abandon { attempt, why: AbandonReason::InTheWay } = output {
            ended.push(attempt.0);
        }
    }
    ended
}

#[test]
fn on_a_slow_network_the_first_that_is_answered_goes_on_alone_and_quic_beside_it() {
    let mut race = full_race();
    race.handle_alive(AttemptId(1), ms(1_340), at(1_340));
    let said = outputs(&mut race);
    assert_eq!(
        in_the_way(&said),
        [2, 3, 4, 5],
        "QUIC at its address has been sent, and its answer takes longer to arrive"
    );
    race.handle_alive(AttemptId(0), ms(2_300), at(2_300));
    let said = outputs(&mut race);
    assert_eq!(in_the_way(&said), [1]);
    assert!(said.iter().all(|output| !matches!(output, RaceOutput::Scored { .. })), "nobody is to blame");
    race.handle_connected(AttemptId(0), ms(1_300), at(2_600));
    assert!(matches!(outputs(&mut race)[..], [RaceOutput::Scored { .. }, RaceOutput::Won { attempt: AttemptId(0) }]));
    assert!(race.is_finished());
}

#[test]
fn what_gave_way_on_a_slow_network_has_its_turn_when_the_first_stays_silent() {
    let mut race = full_race();
    race.handle_alive(AttemptId(0), ms(1_340), at(1_340));
    assert_eq!(in_the_way(&outputs(&mut race)), [1, 2, 3, 4, 5]);
    race.handle_timeout(at(5_339));
    assert_eq!(starts(&outputs(&mut race)), []);
    race.handle_timeout(at(5_340));
    assert_eq!(starts(&outputs(&mut race)), [candidate(1, Tls)]);
    race.handle_timeout(at(9_339));
    assert_eq!(starts(&outputs(&mut race)), [], "others follow as slowly as the network is");
    race.handle_timeout(at(9_340));
    assert_eq!(starts(&outputs(&mut race)), [candidate(2, Tls)]);
}

#[test]
fn on_a_slow_network_the_losers_end_with_the_race_and_none_becomes_the_spare() {
    let mut race = full_race();
    race.handle_connected(AttemptId(3), ms(1_000), at(3_000));
    let said = outputs(&mut race);
    assert_eq!(in_the_way(&said), [0, 1, 2, 4, 5]);
    assert!(race.is_finished());

    let mut race = full_race();
    race.handle_connected(AttemptId(3), ms(999), at(3_000));
    assert_eq!(in_the_way(&outputs(&mut race)), [0; 0]);
    assert!(!race.is_finished());
}

#[test]
fn a_late_answer_on_a_network_that_was_fast_says_nothing_of_its_rate() {
    for srtt in [Some(ms(60)), Some(ms(999))] {
        let mut race = race_with_record(srtt);
        race.handle_alive(AttemptId(1), ms(4_000), at(4_000));
        race.handle_connected(AttemptId(1), ms(4_000), at(4_100));
        assert_eq!(in_the_way(&outputs(&mut race)), [0; 0]);
    }
}

#[test]
fn a_loser_that_stays_silent_is_scored_as_timed_out() {
    let mut network = Network::default();
    network.set(candidate(2, Tls), GOOD);
    let run = network.run(vec![unknown(1, Tls), unknown(2, Tls)]);
    assert_eq!(run.scores().last(), Some(&(candidate(1, Tls), Score::Failure(FailReason::TimedOut))));
    assert_eq!(run.ended(), ms(10_000));
}

#[test]
fn a_device_without_a_network_blames_no_address() {
    let mut network = Network::default();
    network.set(candidate(1, Tls), Fate::NoRoute);
    network.set(candidate(2, Tls), Fate::NoRoute);
    let ranked = vec![unknown(1, Tls), unknown(2, Tls)];
    assert!(network.run(ranked.clone()).scores().is_empty());

    network.set(candidate(2, Tls), GOOD);
    assert_eq!(network.run(ranked).scores()[0], (candidate(1, Tls), Score::Failure(FailReason::Unreachable)));
}

#[test]
fn a_rejected_attempt_moves_on_without_a_mark_against_the_address() {
    let mut race = Race::new(RaceConfig::default(), vec![unknown(1, Tls), unknown(2, Tls)], Time::ZERO);
    race.handle_failed(AttemptId(0), FailReason::Rejected, at(50));
    let outputs: Vec<_> = std::iter::from_fn(|| race.poll_output()).collect();
    let starts = [(0, candidate(1, Tls)), (1, candidate(2, Tls))]
        .map(|(number, candidate)| RaceOutput::Start { attempt: AttemptId(number), candidate });
    assert_eq!(outputs, starts);
}

#[test]
fn hurry_starts_the_next_at_once_and_tries_a_silent_one_again() {
    let mut race = Race::new(RaceConfig::default(), vec![unknown(1, Tls), unknown(2, Tls)], Time::ZERO);
    for now in [10, 20, 510, 3_010, 3_020, 3_030] {
        race.handle_hurry(at(now));
    }
    let outputs: Vec<_> = std::iter::from_fn(|| race.poll_output()).collect();
    let expected = [1, 2, 1, 2]
        .into_iter()
        .zip(0..)
        .map(|(host, number)| RaceOutput::Start { attempt: AttemptId(number), candidate: candidate(host, Tls) });
    assert_eq!(outputs, expected.collect::<Vec<_>>());
}

#[test]
fn hurry_repeats_a_syn_and_no_long_first_packet() {
    let mut race = Race::new(RaceConfig::default(), pairs(1), Time::ZERO);
    (0..9_000).step_by(100).for_each(|now| race.handle_hurry(at(now)));
    assert_eq!(starts(&outputs(&mut race)), [candidate(1, Quic), candidate(1, Tls), candidate(1, Tls)]);
}

#[test]
fn hurry_tries_what_refused_again_beside_what_is_silent() {
    let mut race = Race::new(RaceConfig::default(), pairs(1), Time::ZERO);
    race.handle_failed(AttemptId(1), FailReason::Refused, at(1));
    for now in [10, 500, 501, 510] {
        race.handle_hurry(at(now));
    }
    let outputs = outputs(&mut race);
    assert_eq!(starts(&outputs), [candidate(1, Quic), candidate(1, Tls), candidate(1, Tls)], "the gateway may start");
    let all = u32::try_from(RaceConfig::default().attempts_max).unwrap();
    for number in 2..all {
        let now = 100 + 500 * u64::from(number);
        race.handle_failed(AttemptId(number), FailReason::Refused, at(now));
        race.handle_hurry(at(now + 500));
    }
    let again = std::iter::from_fn(|| race.poll_output()).filter(is_start).count();
    assert_eq!(again, RaceConfig::default().attempts_max - 3, "no more than the bound");
}

#[test]
fn an_attempt_on_its_way_is_given_time_instead_of_company() {
    let mut race = Race::new(RaceConfig::default(), (1..=3).map(|host| unknown(host, Tls)).collect(), Time::ZERO);
    let starts = |race: &mut Race| std::iter::from_fn(|| race.poll_output()).filter(is_start).count();
    assert_eq!(starts(&mut race), 1);
    // On a 2G network the SYN's answer takes its time; nobody knows that before.
    race.handle_timeout(at(250));
    assert_eq!(starts(&mut race), 1);
    race.handle_alive(AttemptId(0), ms(400), at(400));
    for time in [500, 1_000, 1_999] {
        race.handle_timeout(at(time));
        race.handle_hurry(at(time));
        assert_eq!(starts(&mut race), 0, "{time} ms");
    }
    // Four round trips are over.
    race.handle_timeout(at(2_000));
    assert_eq!(starts(&mut race), 1);
    // It may still finish where a silent one is over after 10 s.
    race.handle_alive(AttemptId(0), ms(2_000), at(2_100));
    race.handle_timeout(at(17_900));
    let out: Vec<RaceOutput> = std::iter::from_fn(|| race.poll_output()).collect();
    assert!(!out.contains(&RaceOutput::Abandon { attempt: AttemptId(0), why: AbandonReason::TimedOut }), "{out:?}");
    race.handle_connected(AttemptId(0), ms(2_000), at(18_000));
    assert!(std::iter::from_fn(|| race.poll_output()).any(|out| out == RaceOutput::Won { attempt: AttemptId(0) }));
}

#[test]
fn answers_about_unknown_or_ended_attempts_change_nothing() {
    let mut race = Race::new(RaceConfig::default(), vec![unknown(1, Tls)], Time::ZERO);
    race.handle_connected(AttemptId(7), ms(20), at(1));
    race.handle_failed(AttemptId(u32::MAX), FailReason::Closed, at(1));
    race.handle_connected(AttemptId(0), ms(20), at(60));
    race.handle_connected(AttemptId(0), ms(20), at(61));
    race.handle_failed(AttemptId(0), FailReason::Closed, at(62));
    race.handle_hurry(at(63));
    assert_eq!(std::iter::from_fn(|| race.poll_output()).count(), 3, "start, score and win");
    assert!(race.is_finished());
    assert_eq!(race.poll_timeout(), None);
}

#[test]
fn an_address_means_host_and_port() {
    let other_port = SocketAddr::new(address(1).ip(), 8443);
    let other_port =
        RankedCandidate { candidate: Candidate { address: other_port, carrier: Tls }, srtt: None, with_previous: true };
    let run = Network::default().run(vec![unknown(1, Tls), other_port]);
    assert_eq!(run.starts()[1].0, ms(250), "together only with the same address");
}

fn is_start(output: &RaceOutput) -> bool {
    matches!(output, RaceOutput::Start { .. })
}

fn at(milliseconds: u64) -> Time {
    Time::from_origin(ms(milliseconds))
}

fn pairs(hosts: u8) -> Vec<RankedCandidate> {
    (1..=hosts)
        .flat_map(|host| [unknown(host, Quic), RankedCandidate { with_previous: true, ..unknown(host, Tls) }])
        .collect()
}
