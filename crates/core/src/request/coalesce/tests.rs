use http::{HeaderMap, Method, Uri};

use super::*;

fn machine() -> Coalesce {
    Coalesce::new(CoalesceConfig::default())
}

fn key(path: &str) -> SharedKey {
    let uri: Uri = format!("https://API.test{path}").parse().unwrap();
    SharedKey::new(&Method::GET, &uri, &HeaderMap::new(), "", false).unwrap()
}

fn at(ms: u64) -> Time {
    Time::from_origin(Duration::from_millis(ms))
}

/// A leader and its followers.
fn group(machine: &mut Coalesce, followers: usize) -> (MemberId, Vec<MemberId>) {
    let Role::Lead(leader) = machine.handle_request(key("/")) else { panic!("the first leads") };
    let follow = |machine: &mut Coalesce| match machine.handle_request(key("/")) {
        Role::Follow(id) => id,
        other @ (Role::Alone | Role::Lead(_)) => panic!("{other:?}"),
    };
    (leader, (0..followers).map(|_| follow(machine)).collect())
}

fn said(machine: &mut Coalesce) -> Vec<CoalesceOutput> {
    std::iter::from_fn(|| machine.poll_output()).collect()
}

fn assert_empty(machine: &Coalesce) {
    assert!(machine.groups.is_empty() && machine.open.is_empty() && machine.members.is_empty(), "{machine:?}");
    assert!(machine.output.is_empty() && machine.poll_timeout().is_none());
}

#[test]
fn all_get_the_answer_of_the_first() {
    let mut machine = machine();
    let (leader, followers) = group(&mut machine, 99);
    assert!(machine.handle_head(leader, Some(1_000), false, at(10)));
    let Role::Follow(late) = machine.handle_request(key("/")) else { panic!("the answer is not whole yet") };
    assert!(machine.handle_data(leader, 1_000));
    machine.handle_answered(leader);
    let expected: Vec<_> = followers.into_iter().chain([late]).map(CoalesceOutput::Answer).collect();
    assert_eq!(said(&mut machine), expected);
    assert_empty(&machine);
}

#[test]
fn without_followers_the_leader_takes_its_answer_as_it_comes() {
    let mut machine = machine();
    let (leader, _) = group(&mut machine, 0);
    assert!(!machine.handle_head(leader, Some(10), false, at(0)));
    assert_empty(&machine);
    assert!(matches!(machine.handle_request(key("/")), Role::Lead(_)), "an answer under way is not joined");
}

#[test]
fn an_answer_too_long_or_without_end_is_not_shared() {
    for (bytes, streams) in [(Some(256 * 1024 + 1), false), (None, true)] {
        let mut machine = machine();
        let (leader, followers) = group(&mut machine, 2);
        assert!(!machine.handle_head(leader, bytes, streams, at(0)));
        assert_eq!(said(&mut machine), [CoalesceOutput::Alone(followers[0]), CoalesceOutput::Alone(followers[1])]);
        assert_empty(&machine);
    }
}

#[test]
fn an_answer_that_turns_out_too_long_sends_the_followers_on_their_own() {
    let mut machine = machine();
    let (leader, followers) = group(&mut machine, 1);
    assert!(machine.handle_head(leader, None, false, at(0)));
    assert!(machine.handle_data(leader, 256 * 1024));
    assert!(!machine.handle_data(leader, 1));
    assert_eq!(said(&mut machine), [CoalesceOutput::Alone(followers[0])]);
    assert_empty(&machine);
}

#[test]
fn an_answer_that_takes_too_long_sends_the_followers_on_their_own() {
    let mut machine = machine();
    let (leader, followers) = group(&mut machine, 1);
    assert_eq!(machine.poll_timeout(), None);
    assert!(machine.handle_head(leader, None, false, at(500)));
    assert_eq!(machine.poll_timeout(), Some(at(2_500)));
    machine.handle_timeout(at(2_499));
    assert!(machine.leads(leader));
    machine.handle_timeout(at(2_500));
    assert!(!machine.leads(leader));
    assert_eq!(said(&mut machine), [CoalesceOutput::Alone(followers[0])]);
    assert_empty(&machine);
}

#[test]
fn a_leader_that_is_cancelled_hands_over_and_the_last_leaves_nothing_behind() {
    let mut machine = machine();
    let (leader, followers) = group(&mut machine, 3);
    machine.handle_head(leader, Some(5), false, at(0));
    machine.handle_cancelled(leader);
    assert_eq!(said(&mut machine), [CoalesceOutput::Lead(followers[0])]);
    assert_eq!(machine.poll_timeout(), None, "the new leader has no head yet");
    machine.handle_cancelled(followers[2]);
    assert_eq!(said(&mut machine), []);
    assert!(machine.handle_head(followers[0], Some(5), false, at(0)));
    machine.handle_answered(followers[0]);
    assert_eq!(said(&mut machine), [CoalesceOutput::Answer(followers[1])]);
    assert_empty(&machine);
    let (leader, followers) = group(&mut machine, 1);
    machine.handle_cancelled(leader);
    machine.handle_cancelled(followers[0]);
    assert_empty(&machine);
}

#[test]
fn a_failure_is_shared_where_it_would_be_theirs_too() {
    let mut machine = machine();
    let (leader, followers) = group(&mut machine, 2);
    machine.handle_failed(leader, true);
    assert_eq!(said(&mut machine), [CoalesceOutput::Fail(followers[0]), CoalesceOutput::Fail(followers[1])]);
    assert_empty(&machine);
}

#[test]
fn a_failure_of_its_own_hands_over_once_and_then_all_send_for_themselves() {
    let mut machine = machine();
    let (leader, followers) = group(&mut machine, 3);
    machine.handle_failed(leader, false);
    assert_eq!(said(&mut machine), [CoalesceOutput::Lead(followers[0])]);
    machine.handle_failed(followers[0], false);
    assert_eq!(said(&mut machine), [CoalesceOutput::Alone(followers[1]), CoalesceOutput::Alone(followers[2])]);
    assert_empty(&machine);
}

#[test]
fn nobody_follows_what_was_asked_before_the_app_changed_something() {
    let mut machine = machine();
    let (leader, followers) = group(&mut machine, 1);
    machine.handle_unsafe("other.test");
    assert!(matches!(machine.handle_request(key("/")), Role::Follow(_)));
    machine.handle_unsafe("api.test");
    let Role::Lead(fresh) = machine.handle_request(key("/")) else { panic!("it asks anew") };
    let Role::Follow(second) = machine.handle_request(key("/")) else { panic!("the new one is followed") };
    // The end of the old group does not touch the new one.
    machine.handle_failed(leader, true);
    assert_eq!(said(&mut machine).len(), 2);
    assert!(matches!(machine.handle_request(key("/")), Role::Follow(_)));
    machine.handle_failed(fresh, true);
    assert_eq!(said(&mut machine)[0], CoalesceOutput::Fail(second));
    machine.handle_cancelled(followers[0]);
    assert_empty(&machine);
}

#[test]
fn members_are_bounded() {
    let mut machine = Coalesce::new(CoalesceConfig { members_max: 3, ..CoalesceConfig::default() });
    let (leader, _) = group(&mut machine, 2);
    assert_eq!(machine.handle_request(key("/")), Role::Alone);
    assert_eq!(machine.handle_request(key("/other")), Role::Alone);
    machine.handle_failed(leader, true);
    assert!(matches!(machine.handle_request(key("/other")), Role::Lead(_)));
}
