use super::*;

fn step(action: Action, started: u64) -> Step {
    Step {
        action,
        way: Way::Link,
        address: Some(([192, 0, 2, 1], 443).into()),
        carrier: Some(CarrierKind::Tls),
        started: Duration::from_millis(started),
        ended: None,
        error: None,
        status: None,
        fate: Fate::NothingSent,
    }
}

#[test]
fn steps_are_told_in_the_order_they_began() {
    let mut timeline = Timeline::default();
    let exchange = timeline.push(step(Action::Exchange, 50));
    timeline.answer(exchange, StatusCode::OK);
    timeline.end(exchange, Duration::from_millis(80), Fate::Executed, None);
    timeline.push(Step {
        error: Some("refused".into()),
        ended: Some(Duration::from_millis(9)),
        ..step(Action::Connect, 3)
    });
    timeline.finish(Duration::from_millis(80), Over::Answered);
    assert_eq!(
        timeline.to_string(),
        "link connect tls 192.0.2.1:443 3–9 ms: refused; link exchange tls 192.0.2.1:443 50–80 ms: 200 OK"
    );
    assert_eq!(timeline.answered().map(|step| step.started), Some(Duration::from_millis(50)));
}

#[test]
fn what_was_under_way_when_the_request_began_is_told_in_the_order_of_its_actions() {
    let mut timeline = Timeline::default();
    for action in [Action::Exchange, Action::Greet, Action::Connect] {
        timeline.push(step(action, 0));
    }
    timeline.finish(Duration::ZERO, Over::Answered);
    let told: Vec<_> = timeline.steps().iter().map(|step| step.action).collect();
    assert_eq!(told, [Action::Connect, Action::Greet, Action::Exchange]);
}

#[test]
fn what_was_under_way_at_the_end_was_given_up_with_its_time_and_cause() {
    for (over, cause) in [
        (Over::Answered, "given up: another copy had the answer"),
        (Over::Failed, "given up: the request had failed"),
        (Over::TimedOut, "given up: the time of the request was over"),
    ] {
        let mut timeline = Timeline::default();
        timeline.push(step(Action::Connect, 3));
        timeline.push(step(Action::Exchange, 50));
        timeline.finish(Duration::from_millis(80), over);
        let [connect, exchange] = timeline.steps() else { panic!("{timeline}") };
        assert_eq!((exchange.ended, exchange.error.as_deref()), (Some(Duration::from_millis(80)), Some(cause)));
        assert_eq!((connect.ended, connect.error.as_deref()), (None, Some(STILL_OPENING)), "it goes on");
    }
}

#[test]
fn a_greeting_whose_link_brought_the_answer_had_ended_by_then() {
    let mut timeline = Timeline::default();
    timeline.push(step(Action::Greet, 3));
    let exchange = timeline.push(step(Action::Exchange, 4));
    timeline.end(exchange, Duration::from_millis(9), Fate::Executed, None);
    timeline.finish(Duration::from_millis(10), Over::Answered);
    let [greet, _] = timeline.steps() else { panic!("{timeline}") };
    assert_eq!((greet.ended, greet.error.as_deref()), (Some(Duration::from_millis(9)), None));
}

#[test]
fn an_exchange_that_waited_for_a_connection_in_vain_is_told_after_it() {
    let mut timeline = Timeline::default();
    let by_name = |action, started| Step { way: Way::Name, ..step(action, started) };
    let exchange = timeline.push(by_name(Action::Exchange, 10));
    timeline.end(exchange, Duration::from_millis(30), Fate::NothingSent, Some("no connection".into()));
    timeline.push(Step { ended: Some(Duration::from_millis(29)), ..by_name(Action::Connect, 12) });
    timeline.finish(Duration::from_millis(40), Over::Failed);
    let told: Vec<_> = timeline.steps().iter().map(|step| step.action).collect();
    assert_eq!(told, [Action::Connect, Action::Exchange]);
}

#[test]
fn an_outcome_is_unknown_because_of_a_step_that_carried_the_request() {
    let mut timeline = Timeline::default();
    let ended =
        |step: Step, error: &str| Step { ended: Some(Duration::from_millis(90)), error: Some(error.into()), ..step };
    timeline.push(Step { fate: Fate::MayHaveRun, ..ended(step(Action::Exchange, 10), "the link was lost") });
    timeline.push(ended(step(Action::Connect, 50), "refused"));
    timeline.push(Step { fate: Fate::NotExecuted, ..ended(step(Action::Exchange, 60), "not executed") });
    timeline.finish(Duration::from_millis(90), Over::Failed);
    assert_eq!(timeline.unanswered().and_then(|step| step.error.as_deref()), Some("the link was lost"));
}

#[test]
fn each_address_is_told_once_with_the_last_that_failed_there() {
    let mut timeline = Timeline::default();
    let failed = |port, started, error: &str| Step {
        address: Some(([192, 0, 2, 1], port).into()),
        ended: Some(Duration::from_millis(started + 1)),
        error: Some(error.into()),
        ..step(Action::Connect, started)
    };
    for (port, started, error) in [(1, 0, "first"), (2, 5, "refused"), (1, 7, "closed")] {
        timeline.push(failed(port, started, error));
    }
    timeline.push(Step { address: Some(([192, 0, 2, 1], 3).into()), ..step(Action::Connect, 8) });
    timeline.push(Step { address: Some(([192, 0, 2, 1], 2).into()), ..step(Action::Connect, 9) });
    timeline.finish(Duration::from_millis(20), Over::Failed);
    let told: Vec<_> = timeline.failed_places().iter().map(|(address, why)| (address.port(), *why)).collect();
    assert_eq!(told, [(1, "closed"), (2, "refused"), (3, STILL_OPENING)]);
}
