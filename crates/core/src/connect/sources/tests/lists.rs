//! Lists: which are believed, what is read from them under two clocks, and how another is fetched.

use super::*;
use crate::{
    connect::Source,
    policy::RoutePolicy,
    wire::list::{Ban, PipeKey, PlainKey, Validity},
};

fn units_of(stage: &Stage) -> Vec<String> {
    let targets = stage.sources.targets(stage.now, stage.wall_ms);
    let mut units: Vec<String> = targets.into_iter().filter_map(|target| target.unit).collect();
    units.dedup();
    units
}

/// A list that permits plain HTTP and has keys.
fn permitting() -> AccessList {
    let mut list = list(WALL_MS);
    let route =
        RoutePolicy { host: "*".into(), path_prefix: "/".into(), plain_http: Some(true), ..RoutePolicy::default() };
    list.policy = Policy { epoch_ms: WALL_MS, routes: vec![route], ..Policy::default() };
    let names = list.units.iter().flat_map(|unit| &unit.access_points).map(|point| point.pipe_name.clone());
    let key = |name: String| PipeKey { key_id: 1, config: name.clone().into(), expires_ms: u64::MAX, name };
    list.pipe_keys = names.map(key).collect();
    list.plain_keys = vec![PlainKey { key_id: "p".into(), public_key: [1; 32], expires_ms: u64::MAX }];
    list
}

fn permits(stage: &Stage) -> bool {
    let policy =
        stage.sources.policy(stage.now, stage.wall_ms).is_some_and(|policy| policy.route("api.test", "/").plain_http);
    let targets = !stage.sources.plain_targets(stage.now, stage.wall_ms).is_empty();
    assert_eq!(policy, targets, "policy and targets agree");
    policy
}

fn has_addresses(stage: &Stage) -> bool {
    let pipe = !stage.sources.pipe_targets(stage.now, stage.wall_ms).is_empty();
    let direct = !stage.sources.direct_addresses("api.test", stage.now, stage.wall_ms).is_empty();
    assert_eq!(pipe, direct);
    direct
}

#[test]
fn the_users_unit_comes_first_then_the_others_and_what_is_built_in() {
    let mut stage = Stage::new(SourcesConfig { user: Some("alice".into()), ..config() });
    assert_eq!(units_of(&stage), ["north"], "what is built in is there from the start");
    stage.push(&list(WALL_MS));
    assert_eq!(units_of(&stage), ["south", "north", "west", "north"]);
    let targets = stage.sources.targets(stage.now, stage.wall_ms);
    assert_eq!((targets[0].source, targets[0].gateway.as_deref()), (Source::List, Some("south.gw.test")));
    assert_eq!(targets.last().unwrap().source, Source::BuiltIn);
    stage.sources.set_user(None);
    assert_eq!(units_of(&stage), ["north", "south", "west", "north"]);
    assert_eq!(stage.stored.len(), 1, "what is believed is kept");
}

#[test]
fn the_pipe_alternates_between_sites_and_banned_addresses_are_left_out() {
    let mut stage = Stage::new(SourcesConfig { user: Some("alice".into()), ..config() });
    let mut banned = permitting();
    banned.bans = vec![Ban { address: "20.1.0.1".parse::<IpAddr>().unwrap().into(), until_ms: WALL_MS + DAY_MS }];
    stage.push(&banned);
    let targets = stage.sources.pipe_targets(stage.now, stage.wall_ms);
    let addresses: Vec<String> = targets.iter().map(|target| target.address.ip().to_string()).collect();
    assert_eq!(addresses, ["20.1.0.2", "20.0.0.1", "20.2.0.1", "20.0.0.2", "20.2.0.2"]);
    let direct = stage.sources.direct_addresses("api.test", stage.now, stage.wall_ms);
    assert_eq!(direct, [address("20.0.0.1:443").into()]);
    assert!(
        stage
            .sources
            .targets(stage.now, stage.wall_ms)
            .iter()
            .all(|target| { target.candidate.address != address("20.1.0.1:443") })
    );
}

#[test]
fn each_pipe_is_used_with_the_key_of_its_name_and_one_without_is_left_out() {
    let mut stage = Stage::new(config());
    let mut partial = permitting();
    partial.pipe_keys.retain(|key| key.name != "north-1");
    partial.pipe_keys.iter_mut().filter(|key| key.name == "west-1").for_each(|key| key.expires_ms = WALL_MS);
    stage.push(&partial);
    let targets = stage.sources.pipe_targets(stage.now, stage.wall_ms);
    let keys: Vec<_> = targets.iter().map(|target| (target.address.ip().to_string(), &*target.key.name)).collect();
    let expected = [("20.0.0.2", "north-2"), ("20.1.0.1", "south-1"), ("20.2.0.2", "west-2"), ("20.1.0.2", "south-2")];
    assert_eq!(keys, expected.map(|(address, name)| (address.to_owned(), name)));
}

#[test]
fn a_dispatch_address_has_the_name_of_its_access_point_or_the_one_of_its_host_or_unit() {
    let mut stage = Stage::new(config());
    let name = |stage: &Stage, text: &str| stage.sources.dispatch_gateway(address(text)).map(str::to_owned);
    assert_eq!(name(&stage, "9.1.0.2:443"), None, "nobody knows it yet");
    let mut list = list(WALL_MS);
    list.units[0].access_points[0].gateway = "first.gw.test".into();
    list.units[2].access_points[1].gateway.clear();
    stage.push(&list);
    for (address, expected) in [
        ("20.0.0.1:443", Some("first.gw.test")),
        ("20.0.0.1:8443", Some("first.gw.test")),
        ("20.0.1.1:443", None),
        ("9.0.0.2:443", None),
        ("20.1.1.2:443", Some("south.gw.test")),
        ("9.1.0.2:443", Some("south.gw.test")),
        ("20.2.0.1:443", Some("west.gw.test")),
        ("20.2.0.2:443", None),
        ("20.2.1.1:443", None),
        ("9.9.0.1:443", None),
    ] {
        assert_eq!(name(&stage, address).as_deref(), expected, "{address}");
    }
}

#[test]
fn a_pipe_that_is_built_in_serves_while_its_key_is_good_until_a_list_comes() {
    let pipe = |port: u16, expires_ms: u64| PipeTarget {
        address: SocketAddr::from(([9, 0, 0, 1], port)),
        key: PipeKey { key_id: 1, config: "k".into(), expires_ms, name: "north".into() },
        gateway: String::new(),
        unit: "north".into(),
    };
    let pipes = vec![pipe(80, WALL_MS + DAY_MS), pipe(81, WALL_MS)];
    let mut stage = Stage::new(SourcesConfig { pipes: pipes.clone(), ..config() });
    assert_eq!(stage.sources.pipe_targets(stage.now, stage.wall_ms), pipes[..1]);
    stage.push(&list(WALL_MS));
    assert_eq!(stage.sources.pipe_targets(stage.now, stage.wall_ms), [], "the list knows better");
}

#[test]
fn lists_that_are_not_to_be_believed_change_nothing_and_are_told() {
    let mut stage = Stage::new(config());
    stage.push(&list(WALL_MS));
    let mut broken = sealed(&list(WALL_MS + 1)).to_vec();
    broken[30] ^= 1;
    let foreign = list(WALL_MS + 1).seal("x", &|message| key().sign(message).to_bytes());
    let cases: [(Bytes, &str); 5] = [
        (broken.into(), "bad_signature"),
        (foreign, "unknown_key"),
        (sealed(&list(WALL_MS - 3_600_001)), "outdated"),
        (sealed(&list(WALL_MS + 600_001)), "future"),
        (Bytes::from_static(b"\xff\xff"), "malformed"),
    ];
    for (document, expected) in cases {
        stage.sources.handle_list(&document, stage.now, stage.wall_ms);
        stage.drain();
        let Some(SourcesWarning::List(trouble)) = stage.warnings.pop() else { panic!("{expected}") };
        assert_eq!(stage.sources.list_trouble(), Some(&trouble));
        let ListTrouble::Refused { from: ListOrigin::Link, error, .. } = trouble else { panic!("{trouble:?}") };
        assert_eq!(error.name(), expected);
        assert_eq!((stage.sources.list_epoch_ms(), stage.stored.len()), (WALL_MS, 1));
    }
    stage.push(&list(WALL_MS - 3_000_000));
    assert_eq!((stage.sources.list_epoch_ms(), stage.warnings.len()), (WALL_MS, 0), "an older one replaces none");
}

#[test]
fn permissions_end_with_the_list_and_addresses_thirty_days_later() {
    let mut stage = Stage::new(config());
    stage.push(&permitting());
    assert!(permits(&stage) && has_addresses(&stage));
    stage.pass(Duration::from_millis(DAY_MS + 1));
    assert!(!permits(&stage) && has_addresses(&stage));
    assert_eq!(stage.sources.targets(stage.now, stage.wall_ms)[0].source, Source::Learned);
    stage.pass(Duration::from_millis(30 * DAY_MS + 60_000));
    assert!(!permits(&stage) && !has_addresses(&stage));
    assert_eq!(units_of(&stage), ["north"], "what is built in is left");
}

#[test]
fn a_clock_that_jumps_takes_permissions_away_and_never_addresses() {
    let mut stage = Stage::new(config());
    stage.push(&permitting());
    stage.wall_ms += 365 * DAY_MS;
    assert!(!permits(&stage) && has_addresses(&stage), "a year ahead");
    stage.wall_ms = WALL_MS - 365 * DAY_MS;
    assert!(!permits(&stage) && has_addresses(&stage), "a year back");
    stage.wall_ms = WALL_MS;
    assert!(permits(&stage), "right again");
    // A clock that is set back each day must not make a permission last.
    stage.pass(Duration::from_millis(DAY_MS + 1));
    stage.wall_ms = WALL_MS;
    assert!(!permits(&stage) && has_addresses(&stage));
}

#[test]
fn the_list_of_the_last_process_is_used_whatever_the_clock_says_and_guards_against_older_ones() {
    let document = sealed(&permitting());
    for (wall_ms, permitted) in [(WALL_MS + 1, true), (0, false), (WALL_MS + 2 * DAY_MS, false)] {
        let mut stage = Stage::new(config());
        stage.wall_ms = wall_ms;
        stage.sources.handle_stored(&document, stage.now, wall_ms).unwrap();
        assert!(has_addresses(&stage), "at {wall_ms}");
        assert_eq!(permits(&stage), permitted, "at {wall_ms}");
        stage.push(&list(WALL_MS - 2 * 3_600_000));
        let SourcesWarning::List(ListTrouble::Refused { error, .. }) = &stage.warnings[0] else { panic!() };
        assert_eq!(error.name(), "outdated");
        assert!(stage.stored.is_empty());
    }
    let mut stage = Stage::new(config());
    let late = stage.sources.handle_stored(&document, stage.now, WALL_MS + 40 * DAY_MS);
    assert!(matches!(late, Err(ListError::Expired { .. })));
    assert_eq!(
        stage.sources.handle_stored(&Bytes::from_static(b"junk"), stage.now, WALL_MS),
        Err(ListError::Malformed)
    );
}

#[test]
fn the_newest_policy_counts_and_one_of_a_link_ends_after_a_day() {
    let mut stage = Stage::new(SourcesConfig { list_keys: Vec::new(), ..config() });
    let pushed = |epoch_ms, seconds| Policy { epoch_ms, gap: Some(Duration::from_secs(seconds)), ..Policy::default() };
    stage.sources.handle_policy(&pushed(5, 7).encode(), stage.now);
    stage.sources.handle_policy(&pushed(4, 9).encode(), stage.now);
    assert_eq!(stage.sources.policy(stage.now, stage.wall_ms).unwrap().gap, Some(Duration::from_secs(7)));
    stage.sources.handle_policy(b"\xff", stage.now);
    stage.drain();
    assert!(matches!(stage.warnings[..], [SourcesWarning::PolicyRefused { .. }]));
    assert_eq!(stage.sources.list_epoch_ms(), u64::MAX, "no list is wanted without a key");
    stage.pass(Duration::from_millis(DAY_MS + 1));
    assert_eq!(stage.sources.policy(stage.now, stage.wall_ms), None);
    assert_eq!(stage.asked_for_list(), [], "and none is fetched");
}

#[test]
fn a_list_is_fetched_one_address_after_the_other_until_one_has_it() {
    let mut stage = Stage::new(config());
    stage.pass(Duration::from_millis(4_999));
    assert_eq!(stage.asked_for_list(), [], "a link may bring it");
    stage.pass(Duration::from_millis(1));
    assert_eq!(stage.asked_for_list(), [address("9.0.0.2:443")]);
    stage.pass(Duration::from_millis(1_000));
    assert_eq!(stage.asked_for_list().len(), 2, "the first is silent");
    stage.say_list(Answer::Failed("gone".into()));
    stage.say_list(Answer::List(sealed(&list(WALL_MS))));
    assert_eq!(stage.sources.list_epoch_ms(), WALL_MS);
    stage.pass(Duration::from_secs(7 * 3_600));
    assert_eq!(stage.asked_for_list(), []);
    for _ in 0..400 {
        if stage.asked.is_empty() {
            stage.pass(Duration::from_secs(30));
        }
    }
    assert_eq!(stage.asked_for_list()[0], address("20.0.1.1:443"), "hours later it is looked for again");
    stage.say_list(Answer::NotModified);
    stage.asked.clear();
    stage.pass(Duration::from_secs(7 * 3_600));
    assert_eq!(stage.asked_for_list(), []);
}

#[test]
fn without_anything_to_open_a_link_to_a_list_is_fetched_at_once_and_again_ever_more_seldom() {
    let mut stage = Stage::new(SourcesConfig { seeds: Vec::new(), ..config() });
    let mut asks = Vec::new();
    for _ in 0..240 {
        for (ask, ..) in std::mem::take(&mut stage.asked) {
            asks.push(stage.now);
            stage.answer(ask, Answer::Failed("gone".into()));
        }
        stage.pass(Duration::from_secs(30));
    }
    assert_eq!(asks[0], Time::ZERO);
    let in_hour = |hour: u64| {
        let start = Time::ZERO + Duration::from_secs(3_600 * hour);
        asks.iter().filter(|at| **at >= start && **at < start + Duration::from_secs(3_600)).count()
    };
    // Two addresses are asked each time; the pauses are 1 s, 2 s, 4 s and so on to 30 min, each but for up to a half of it.
    assert!((16..40).contains(&in_hour(0)) && (2..16).contains(&in_hour(1)), "{asks:?}");
}

/// Answers whoever is asked for a list within a time, a second after the other; returns when each was asked.
fn searches(stage: &mut Stage, within: Duration, answer: &Answer) -> Vec<Time> {
    let (end, mut asks) = (stage.now + within, Vec::new());
    while stage.now < end {
        for (ask, ..) in std::mem::take(&mut stage.asked) {
            asks.push(stage.now);
            stage.answer(ask, answer.clone());
        }
        stage.pass(Duration::from_millis(100));
    }
    asks
}

#[test]
fn a_list_that_failed_or_was_refused_is_fetched_again_within_two_seconds_and_then_ever_more_seldom() {
    for answer in [Answer::Failed("gone".into()), Answer::List(sealed(&list(WALL_MS + 3_600_000)))] {
        let mut stage = Stage::new(SourcesConfig { seeds: Vec::new(), ..config() });
        let asks = searches(&mut stage, Duration::from_secs(60), &answer);
        let again = asks.iter().find(|at| at.since(Time::ZERO) > Duration::from_millis(300)).unwrap();
        assert!(again.since(Time::ZERO) < Duration::from_secs(2), "{asks:?}");
        assert!((8..=14).contains(&asks.len()), "two addresses, six times: {asks:?}");
        let one = SourcesConfig { seeds: Vec::new(), dispatch: config().dispatch[..1].to_vec(), ..config() };
        let mut stage = Stage::new(one);
        let asks = searches(&mut stage, Duration::from_secs(60), &answer);
        assert!(asks.len() >= 4 && stage.warnings.len() == 1, "the same is told once: {:?}", stage.warnings);
    }
}

#[test]
fn a_request_in_need_of_a_list_wakes_the_search_for_one_at_most_every_five_seconds() {
    let mut stage = Stage::new(config());
    stage.sources.handle_needed(stage.now, stage.wall_ms);
    stage.drain();
    assert_eq!(stage.asked_for_list().len(), 1, "it does not wait for a link to bring one");
    let gone = Answer::Failed("gone".into());
    searches(&mut stage, Duration::from_secs(3_600), &gone);
    // An hour of failures later the next search by itself is many minutes away.
    let mut asks = Vec::new();
    for _ in 0..60 {
        stage.sources.handle_needed(stage.now, stage.wall_ms);
        stage.drain();
        asks.extend(searches(&mut stage, Duration::from_secs(1), &gone));
    }
    assert!((20..=26).contains(&asks.len()), "two addresses, every five seconds: {asks:?}");
    stage.push(&list(WALL_MS));
    stage.asked.clear();
    stage.sources.handle_needed(stage.now, stage.wall_ms);
    stage.drain();
    assert_eq!((stage.asked_for_list(), stage.sources.list_trouble()), (vec![], None), "there is one");
}

#[test]
fn why_no_list_came_is_known_with_the_server_and_its_time() {
    let mut stage = Stage::new(config());
    assert_eq!(stage.sources.list_state(stage.now, stage.wall_ms), ListState::Missing);
    stage.pass(Duration::from_millis(5_040));
    stage.say_list(Answer::List(sealed(&list(WALL_MS + 3_600_000))));
    let Some(ListTrouble::Refused { from, took, error }) = stage.sources.list_trouble().cloned() else { panic!() };
    assert_eq!((from, took), (ListOrigin::Dispatch(address("9.0.0.2:443")), Duration::from_millis(40)));
    assert_eq!(error.name(), "future");
    stage.pass(Duration::from_secs(1));
    stage.say_list(Answer::Failed("gone".into()));
    assert!(matches!(stage.sources.list_trouble(), Some(ListTrouble::Refused { .. })), "it says more than the other");
    stage.push(&list(WALL_MS));
    assert_eq!(stage.sources.list_state(stage.now, stage.wall_ms), ListState::Held(Validity::Full));

    let mut silent = Stage::new(config());
    silent.pass(Duration::from_secs(6));
    assert_eq!(silent.sources.list_trouble(), None, "it may still come");
    let Some(ListTrouble::Failed { reason, .. }) = silent.sources.list_silence(silent.now) else { panic!() };
    assert_eq!(reason, "it has not answered yet");
    silent.pass(Duration::from_secs(10));
    let Some(ListTrouble::Failed { reason, .. }) = silent.sources.list_trouble() else { panic!() };
    assert_eq!(reason, "no answer within 10000 ms");
    let mut alone = Stage::new(SourcesConfig { seeds: Vec::new(), dispatch: Vec::new(), ..config() });
    alone.tick();
    assert_eq!(alone.sources.list_trouble(), Some(&ListTrouble::Nobody));
    let keyless = Stage::new(SourcesConfig { list_keys: Vec::new(), ..config() });
    assert_eq!(keyless.sources.list_state(keyless.now, keyless.wall_ms), ListState::Unwanted);
}

#[test]
fn an_empty_list_over_a_link_asks_for_a_fetch_now() {
    let mut stage = Stage::new(config());
    stage.push(&list(WALL_MS));
    stage.sources.handle_list(&Bytes::new(), stage.now, stage.wall_ms);
    stage.drain();
    let [(_, _, Question::List { known_epoch_ms })] = stage.asked[..] else { panic!("{:?}", stage.asked) };
    assert_eq!(known_epoch_ms, WALL_MS);
}

#[test]
fn when_the_users_unit_is_gone_two_others_are_asked_at_once_and_not_in_a_loop() {
    let mut stage = Stage::new(SourcesConfig { user: Some("alice".into()), ..config() });
    stage.push(&list(WALL_MS));
    stage.sources.handle_failed_unit(stage.now);
    stage.drain();
    assert_eq!(stage.asked_for_list(), [address("20.0.1.1:443"), address("20.2.1.1:443")]);
    stage.pass(Duration::from_secs(4));
    stage.sources.handle_failed_unit(stage.now);
    stage.drain();
    assert_eq!(stage.asked_for_list().len(), 2);

    // Without any list, what is built in has to do.
    let mut stage = Stage::new(config());
    stage.sources.handle_failed_unit(stage.now);
    stage.drain();
    assert_eq!(stage.asked_for_list(), [address("9.0.0.2:443"), address("9.1.0.2:443")]);
}

#[test]
fn a_new_network_brings_a_fetch_soon_and_forgives_what_failed_on_the_old_one() {
    let mut stage = Stage::new(config());
    stage.push(&list(WALL_MS));
    stage.sources.handle_network_changed(stage.now);
    stage.pass(Duration::from_secs(5));
    assert_eq!(stage.asked_for_list().len(), 1);
}

#[test]
fn a_key_that_is_said_to_be_unknown_brings_a_fetch_soon_and_ever_more_seldom_where_it_is_in_vain() {
    let mut stage = Stage::new(config());
    stage.push(&list(WALL_MS));
    let mut asked_at = Vec::new();
    for _ in 0..3_600 {
        // Somebody on the way says so all the time, and nobody has a newer list.
        stage.sources.handle_key_unknown(stage.now);
        stage.pass(Duration::from_secs(1));
        for (ask, ..) in std::mem::take(&mut stage.asked) {
            asked_at.push(stage.now);
            stage.answer(ask, Answer::NotModified);
        }
    }
    assert!(asked_at[0] <= Time::ZERO + Duration::from_secs(3), "{asked_at:?}");
    assert!((5..10).contains(&asked_at.len()), "within an hour: {asked_at:?}");

    stage.push(&list(WALL_MS + 1));
    stage.pass(Duration::from_secs(1_800));
    stage.asked.clear();
    for fetches in 1..3 {
        stage.sources.handle_key_unknown(stage.now);
        stage.pass(Duration::from_secs(30));
        let (ask, ..) = stage.asked.pop().expect("a hint is followed again once one was right");
        stage.answer(ask, Answer::List(sealed(&list(WALL_MS + 1 + fetches))));
    }
    let mut keyless = Stage::new(SourcesConfig { list_keys: Vec::new(), ..config() });
    keyless.sources.handle_key_unknown(keyless.now);
    keyless.pass(Duration::from_secs(60));
    assert_eq!(keyless.asked_for_list(), [], "no list would be believed");
}
