use super::*;
use crate::CarrierKind;

const RTT: Duration = Duration::from_millis(20);

fn at(ms: u64) -> Time {
    Time::from_origin(Duration::from_millis(ms))
}

fn candidate(last: u8, carrier: CarrierKind) -> Candidate {
    Candidate { address: ([192, 0, 2, last], 443).into(), carrier }
}

fn ranked(candidates: &[Candidate]) -> Vec<RankedCandidate> {
    let rank = |candidate: &Candidate| RankedCandidate { candidate: *candidate, srtt: None, with_previous: false };
    candidates.iter().map(rank).collect()
}

fn outputs(establish: &mut Establish) -> Vec<EstablishOutput> {
    let all = std::iter::from_fn(|| establish.poll_output());
    all.filter(|output| !matches!(output, EstablishOutput::Scored { .. })).collect()
}

fn start(number: u32, candidate: Candidate) -> EstablishOutput {
    EstablishOutput::Start { attempt: AttemptId(number), candidate }
}

fn greet(number: u32, candidate: Candidate) -> EstablishOutput {
    EstablishOutput::Greet { attempt: AttemptId(number), candidate }
}

fn abandon(number: u32, why: AbandonReason) -> EstablishOutput {
    EstablishOutput::Abandon { attempt: AttemptId(number), why }
}

#[test]
fn the_winner_alone_is_greeted_and_the_next_to_finish_is_kept() {
    let (one, two) = (candidate(1, CarrierKind::Tls), candidate(2, CarrierKind::Tls));
    let mut establish = Establish::new(EstablishConfig::default(), ranked(&[one, two]), at(0));
    establish.handle_timeout(at(250));
    assert_eq!(outputs(&mut establish), [start(0, one), start(1, two)]);
    establish.handle_connected(AttemptId(1), RTT, at(300));
    assert_eq!(outputs(&mut establish), [greet(1, two)]);
    establish.handle_connected(AttemptId(0), RTT, at(310));
    assert_eq!(outputs(&mut establish), []);
    establish.handle_welcomed();
    assert_eq!(outputs(&mut establish), [EstablishOutput::KeepSpare { attempt: AttemptId(0), candidate: one }]);
    assert!(establish.is_finished());
}

#[test]
fn a_winner_that_refuses_hands_over_to_the_spare() {
    let (one, two) = (candidate(1, CarrierKind::Tls), candidate(2, CarrierKind::Tls));
    let mut establish = Establish::new(EstablishConfig::default(), ranked(&[one, two]), at(0));
    establish.handle_timeout(at(250));
    establish.handle_connected(AttemptId(0), RTT, at(300));
    establish.handle_connected(AttemptId(1), RTT, at(310));
    outputs(&mut establish);
    establish.handle_greet_failed(AttemptId(0), GreetFailure::Refused, at(320));
    assert_eq!(outputs(&mut establish), [greet(1, two)]);
    establish.handle_greet_failed(AttemptId(1), GreetFailure::Refused, at(330));
    assert_eq!(outputs(&mut establish), [EstablishOutput::Lost { untrusted: false }]);
}

#[test]
fn a_winner_that_stays_silent_costs_its_time_and_the_others_are_raced_anew() {
    let (one, two) = (candidate(1, CarrierKind::Tls), candidate(2, CarrierKind::Tls));
    let mut establish = Establish::new(EstablishConfig::default(), ranked(&[one, two]), at(0));
    establish.handle_connected(AttemptId(0), RTT, at(30));
    assert_eq!(outputs(&mut establish), [start(0, one), greet(0, one)]);
    assert_eq!(establish.poll_timeout(), Some((at(530), "welcome is late")));
    establish.handle_timeout(at(530));
    assert_eq!(outputs(&mut establish), [abandon(0, AbandonReason::TimedOut), start(1, two)]);
    establish.handle_connected(AttemptId(1), RTT, at(560));
    assert_eq!(outputs(&mut establish), [greet(1, two)]);
    establish.handle_welcomed();
    assert!(establish.is_finished());
}

#[test]
fn a_slow_connection_has_its_time_to_say_welcome() {
    for (rtt_ms, due) in [(1_000, 5_000), (5_000, 13_000)] {
        let one = candidate(1, CarrierKind::Tls);
        let mut establish = Establish::new(EstablishConfig::default(), ranked(&[one]), at(0));
        let rtt = Duration::from_millis(rtt_ms);
        establish.handle_connected(AttemptId(0), rtt, at(rtt_ms));
        outputs(&mut establish);
        assert_eq!(establish.poll_timeout(), Some((at(due), "welcome is late")), "{rtt_ms}");
    }
}

#[test]
fn late_news_of_an_earlier_race_change_nothing() {
    let candidates: Vec<_> = (1..=3).map(|last| candidate(last, CarrierKind::Tls)).collect();
    let mut establish = Establish::new(EstablishConfig::default(), ranked(&candidates), at(0));
    establish.handle_timeout(at(250));
    establish.handle_connected(AttemptId(0), RTT, at(260));
    establish.handle_greet_failed(AttemptId(0), GreetFailure::Broken, at(270));
    let said = outputs(&mut establish);
    assert!(said.contains(&abandon(1, AbandonReason::Over)), "{said:?}");
    establish.handle_connected(AttemptId(1), RTT, at(280));
    assert_eq!(outputs(&mut establish), []);
    establish.handle_connected(AttemptId(2), RTT, at(290));
    assert_eq!(outputs(&mut establish), [greet(2, candidates[1])]);
}

#[test]
fn without_candidates_it_is_lost_at_once() {
    let mut establish = Establish::new(EstablishConfig::default(), Vec::new(), at(0));
    assert_eq!(outputs(&mut establish), [EstablishOutput::Lost { untrusted: false }]);
    assert!(establish.is_finished());
}

#[test]
fn only_a_race_that_met_nobody_it_trusts_says_so() {
    let (one, two) = (candidate(1, CarrierKind::Tls), candidate(2, CarrierKind::Tls));
    for (second, untrusted) in [(FailReason::Untrusted, true), (FailReason::Refused, false)] {
        let mut establish = Establish::new(EstablishConfig::default(), ranked(&[one, two]), at(0));
        establish.handle_failed(AttemptId(0), FailReason::Untrusted, at(30));
        establish.handle_failed(AttemptId(1), second, at(60));
        assert_eq!(outputs(&mut establish).last(), Some(&EstablishOutput::Lost { untrusted }), "{second}");
    }
}

#[test]
fn a_failed_greeting_is_scored_unless_the_gateway_refused() {
    for (failure, scored) in [(GreetFailure::Broken, true), (GreetFailure::Refused, false)] {
        let one = candidate(1, CarrierKind::Tls);
        let mut establish = Establish::new(EstablishConfig::default(), ranked(&[one]), at(0));
        establish.handle_connected(AttemptId(0), RTT, at(30));
        outputs(&mut establish);
        establish.handle_greet_failed(AttemptId(0), failure, at(40));
        let said: Vec<_> = std::iter::from_fn(|| establish.poll_output()).collect();
        let score = EstablishOutput::Scored { candidate: one, score: Score::Failure(FailReason::Closed) };
        assert_eq!(said.contains(&score), scored, "{failure:?}");
    }
}

#[test]
fn a_connection_that_was_left_over_is_greeted_first_and_costs_a_second_if_it_is_dead() {
    let (one, two) = (candidate(1, CarrierKind::Tls), candidate(2, CarrierKind::Tls));
    let config = EstablishConfig::default();
    let mut establish = Establish::with_spare(config.clone(), ranked(&[one, two]), two, at(0));
    assert_eq!(outputs(&mut establish), [greet(0, two)]);
    assert_eq!(establish.poll_timeout(), Some((at(1_000), "welcome is late")));
    establish.handle_timeout(at(1_000));
    assert_eq!(outputs(&mut establish), [abandon(0, AbandonReason::TimedOut), start(1, one)]);
    establish.handle_timeout(at(1_250));
    assert_eq!(outputs(&mut establish), [start(2, two)], "its age says nothing against it");

    let mut establish = Establish::with_spare(config.clone(), ranked(&[one, two]), two, at(0));
    establish.handle_welcomed();
    assert!(establish.is_finished());

    let mut establish = Establish::with_spare(config, ranked(&[one, two]), two, at(0));
    establish.handle_greet_failed(AttemptId(0), GreetFailure::Refused, at(10));
    establish.handle_timeout(at(260));
    assert_eq!(outputs(&mut establish), [greet(0, two), start(1, one)], "it refused just now");
}
