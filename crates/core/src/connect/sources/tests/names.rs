//! Names: who is asked, whose word counts, and how long nobody waits.

use super::*;

const DOH: fn() -> Server = || Server::Doh("9.9.9.9:443".parse().unwrap());
const SYSTEM: Server = Server::System;

fn origins(stage: &mut Stage, host: &str) -> Vec<Origin> {
    match stage.resolve(host) {
        Resolution::Ready(resolved) => resolved.iter().map(|resolved| resolved.origin).collect(),
        Resolution::Failed | Resolution::Wait => Vec::new(),
    }
}

#[test]
fn a_slow_aaaa_holds_an_a_back_for_fifty_milliseconds_and_no_longer() {
    let mut stage = Stage::new(config());
    assert_eq!(stage.resolve("www.shop.test"), Resolution::Wait);
    assert_eq!(stage.asked_for_hosts(), [(SYSTEM, Family::V6), (SYSTEM, Family::V4)]);
    stage.say(SYSTEM, Family::V4, found(&["1.1.1.1"]));
    assert_eq!(stage.resolve("www.shop.test"), Resolution::Wait);
    stage.pass(Duration::from_millis(49));
    assert_eq!(stage.resolve("www.shop.test"), Resolution::Wait);
    stage.pass(Duration::from_millis(1));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["1.1.1.1"]);
    stage.pass(Duration::from_secs(2));
    stage.say(SYSTEM, Family::V6, found(&["2400::1"]));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["1.1.1.1", "2400::1"], "what comes later is merged");
}

#[test]
fn an_aaaa_waits_for_nobody_and_an_a_not_for_one_that_is_answered() {
    let mut stage = Stage::new(config());
    stage.resolve("www.shop.test");
    stage.say(SYSTEM, Family::V6, found(&["2400::1"]));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["2400::1"]);
    stage.resolve("img.shop.test");
    let v6 = stage.asked.iter().find(
        |(_, _, question)| matches!(question, Question::Host { name, family: Family::V6 } if name == "img.shop.test"),
    );
    let v6 = v6.unwrap().0;
    stage.answer(v6, found(&[]));
    let v4 = stage.asked.last().unwrap().0;
    stage.answer(v4, found(&["1.1.1.1"]));
    assert_eq!(stage.ready("img.shop.test").unwrap(), ["1.1.1.1"]);
}

#[test]
fn while_the_systems_servers_are_silent_others_are_asked_and_the_first_is_used() {
    let mut stage = Stage::new(config());
    stage.resolve("www.shop.test");
    stage.pass(Duration::from_millis(299));
    assert_eq!(stage.asked_for_hosts().len(), 2);
    stage.pass(Duration::from_millis(1));
    let dispatch = |text: &str| Server::Dispatch(address(text));
    let asked = stage.asked_for_hosts();
    let others = [
        (DOH(), Family::V6),
        (DOH(), Family::V4),
        (dispatch("9.0.0.2:443"), Family::Both),
        (dispatch("9.1.0.2:443"), Family::Both),
    ];
    assert_eq!(asked[2..], others);
    stage.say(DOH(), Family::V6, Answer::NoName);
    stage.say(DOH(), Family::V4, found(&["1.1.1.1"]));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["1.1.1.1"]);
    stage.say(dispatch("9.0.0.2:443"), Family::Both, signed(&["2.2.2.2:8443"]));
    stage.say(SYSTEM, Family::V4, found(&["3.3.3.3", "1.1.1.1"]));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["2.2.2.2:8443", "1.1.1.1", "3.3.3.3"]);
    assert_eq!(origins(&mut stage, "www.shop.test"), [Origin::HttpDns, Origin::Doh, Origin::System]);
}

#[test]
fn two_ports_of_one_machine_are_two_places_and_an_answer_without_a_port_adds_none() {
    let mut stage = Stage::new(config());
    stage.resolve("www.shop.test");
    stage.pass(Duration::from_millis(300));
    let answer = signed(&["2.2.2.2:8443", "2.2.2.2:9443", "2.2.2.2:8443", "3.3.3.3"]);
    stage.say(Server::Dispatch(address("9.0.0.2:443")), Family::Both, answer);
    stage.say(SYSTEM, Family::V4, found(&["2.2.2.2", "3.3.3.3"]));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["2.2.2.2:8443", "2.2.2.2:9443", "3.3.3.3"]);
}

#[test]
fn an_unsigned_answer_of_httpdns_is_none() {
    let mut stage = Stage::new(config());
    stage.resolve("www.shop.test");
    stage.pass(Duration::from_millis(300));
    stage.say(Server::Dispatch(address("9.0.0.2:443")), Family::Both, found(&["6.6.6.6"]));
    assert_eq!(stage.ready("www.shop.test"), None);
}

#[test]
fn private_answers_for_public_names_are_refused_and_others_asked_at_once() {
    for lie in ["127.0.0.2", "10.1.2.3", "100.64.0.1", "169.254.0.9", "192.0.2.1"] {
        let mut stage = Stage::new(config());
        stage.resolve("www.shop.test");
        stage.say(SYSTEM, Family::V4, found(&[lie]));
        let expected = SourcesWarning::Hijacked {
            host: "www.shop.test".into(),
            address: lie.parse().unwrap(),
            origin: Origin::System,
        };
        assert_eq!(stage.warnings, [expected]);
        assert!(stage.asked_for_hosts().contains(&(DOH(), Family::V4)), "{lie}");
        stage.say(DOH(), Family::V4, found(&[lie, "1.1.1.1"]));
        stage.pass(Duration::from_millis(50));
        assert_eq!(stage.ready("www.shop.test").unwrap(), ["1.1.1.1"]);
    }
    let mut stage = Stage::new(config());
    stage.resolve("www.shop.test");
    stage.say(SYSTEM, Family::V6, found(&["fd00::1"]));
    assert_eq!(stage.warnings.len(), 1);
}

#[test]
fn what_the_device_itself_says_of_a_public_name_is_right() {
    let public_hosts = vec!["*.shop.test".into(), "localhost".into()];
    let mut stage = Stage::new(SourcesConfig { public_hosts, ..config() });
    stage.resolve("www.shop.test");
    let addresses = vec!["127.0.0.2".parse().unwrap()];
    let answer = Answer::Addresses { addresses, own: true, ttl: Duration::from_secs(60), signed: false };
    stage.say(SYSTEM, Family::V6, found(&[]));
    stage.say(SYSTEM, Family::V4, answer);
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["127.0.0.2"]);
    stage.resolve("localhost");
    stage.say(SYSTEM, Family::V6, found(&["::1"]));
    assert_eq!(stage.ready("localhost").unwrap(), ["::1"]);
    assert_eq!(stage.warnings, []);
}

#[test]
fn a_name_that_nobody_knows_as_public_may_be_private() {
    let mut stage = Stage::new(config());
    stage.resolve("printer.local.test");
    stage.say(SYSTEM, Family::V6, found(&["fd00::1"]));
    assert_eq!(stage.ready("printer.local.test").unwrap(), ["fd00::1"]);
    assert!(stage.warnings.is_empty());
}

#[test]
fn the_list_says_which_private_addresses_are_right() {
    let mut stage = Stage::new(config());
    let mut inside = list(WALL_MS);
    inside.hosts.push(Host { name: "inside.shop.test".into(), private: true, ..Host::default() });
    inside.hosts[0].addresses.push("10.0.0.7".parse().unwrap());
    stage.push(&inside);
    stage.resolve("inside.shop.test");
    stage.say(SYSTEM, Family::V6, found(&["fd00::1"]));
    assert_eq!(stage.ready("inside.shop.test").unwrap(), ["fd00::1"]);
    stage.resolve("api.test");
    stage.say(SYSTEM, Family::V4, found(&["10.0.0.8", "10.0.0.7"]));
    stage.pass(Duration::from_millis(50));
    assert_eq!(stage.ready("api.test").unwrap(), ["10.0.0.7", "20.0.0.1:443", "20.1.0.1:443"]);
}

#[test]
fn the_systems_word_stands_behind_the_lists_where_they_disagree() {
    let mut stage = Stage::new(config());
    stage.push(&list(WALL_MS));
    stage.resolve("api.test");
    stage.say(SYSTEM, Family::V6, found(&["2400::bad"]));
    assert_eq!(stage.ready("api.test").unwrap(), ["20.0.0.1:443", "20.1.0.1:443", "2400::bad"]);
    stage.say(SYSTEM, Family::V4, found(&["66.66.66.66", "20.1.0.1"]));
    assert_eq!(
        stage.ready("api.test").unwrap(),
        ["20.1.0.1", "20.0.0.1:443", "66.66.66.66", "2400::bad"],
        "it confirms one of them"
    );
}

#[test]
fn the_list_has_the_word_while_name_servers_are_silent_or_know_nothing() {
    let mut stage = Stage::new(SourcesConfig { doh: Vec::new(), ..config() });
    stage.push(&list(WALL_MS));
    assert_eq!(stage.resolve("api.test"), Resolution::Wait);
    stage.pass(Duration::from_millis(300));
    assert_eq!(origins(&mut stage, "api.test"), [Origin::List, Origin::List]);
    for (ask, ..) in std::mem::take(&mut stage.asked) {
        stage.answer(ask, Answer::NoName);
    }
    assert_eq!(origins(&mut stage, "api.test"), [Origin::List, Origin::List]);
}

#[test]
fn an_address_with_a_wrong_certificate_is_not_offered_for_a_while() {
    let mut stage = Stage::new(config());
    stage.resolve("www.shop.test");
    stage.say(SYSTEM, Family::V6, Answer::NoName);
    stage.say(SYSTEM, Family::V4, found(&["66.66.66.66"]));
    stage.sources.handle_untrusted("WWW.shop.test.", "66.66.66.66".parse().unwrap(), stage.now);
    stage.drain();
    assert_eq!(stage.ready("www.shop.test"), None);
    assert!(stage.asked_for_hosts().contains(&(DOH(), Family::V4)), "others may know better");
    stage.say(DOH(), Family::V4, found(&["66.66.66.66", "1.1.1.1"]));
    stage.pass(Duration::from_millis(50));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["1.1.1.1"]);
    let other = stage.sources.is_untrusted("other.test", "66.66.66.66".parse().unwrap(), stage.now);
    assert!(!other, "another host may be there");
    stage.pass(Duration::from_secs(600));
    assert!(!stage.sources.is_untrusted("www.shop.test", "66.66.66.66".parse().unwrap(), stage.now));

    // The signed list is not silenced by whoever stands in the way: what they touched goes last.
    stage.push(&list(stage.wall_ms));
    stage.sources.handle_untrusted("api.test", "20.0.0.1".parse().unwrap(), stage.now);
    let direct = stage.sources.direct_addresses("api.test", stage.now, stage.wall_ms);
    assert_eq!(direct, [address("20.1.0.1:443").into(), address("20.0.0.1:443").into()]);
}

#[test]
fn untrusted_addresses_are_bounded() {
    let mut stage = Stage::new(config());
    for number in 0..UNTRUSTED_MAX as u32 + 50 {
        stage.sources.handle_untrusted("a.test", IpAddr::from(number.to_be_bytes()), stage.now);
        stage.pass(Duration::from_millis(1));
    }
    assert_eq!(stage.sources.untrusted.len(), UNTRUSTED_MAX);
    assert!(!stage.sources.is_untrusted("a.test", IpAddr::from(0_u32.to_be_bytes()), stage.now), "the oldest went");
}

#[test]
fn a_stale_answer_is_used_at_once_while_a_fresh_one_is_asked_for() {
    let mut stage = Stage::new(config());
    stage.resolve("www.shop.test");
    stage.say(SYSTEM, Family::V6, found(&["2400::1"]));
    stage.say(SYSTEM, Family::V4, found(&["1.1.1.1"]));
    stage.pass(Duration::from_secs(59));
    stage.resolve("www.shop.test");
    assert_eq!(stage.asked_for_hosts(), []);
    stage.pass(Duration::from_secs(3_600));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["1.1.1.1", "2400::1"]);
    assert_eq!(stage.asked_for_hosts().len(), 2);
    stage.say(SYSTEM, Family::V4, found(&["2.2.2.2"]));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["2.2.2.2", "2400::1"]);
    stage.pass(Duration::from_secs(4 * 86_400));
    assert_eq!(stage.resolve("www.shop.test"), Resolution::Wait, "after days nothing is left of it");
}

#[test]
fn of_ten_thousand_addresses_the_first_are_kept() {
    let mut stage = Stage::new(config());
    stage.resolve("many.shop.test");
    let many: Vec<HostAddress> =
        (0..10_000_u32).map(|number| IpAddr::from((0x0808_0000 + number).to_be_bytes()).into()).collect();
    let answer = Answer::Addresses { addresses: many.clone(), own: false, ttl: Duration::from_secs(60), signed: false };
    stage.say(SYSTEM, Family::V4, answer);
    stage.say(SYSTEM, Family::V6, Answer::NoName);
    let Resolution::Ready(resolved) = stage.resolve("many.shop.test") else { panic!("it is resolved") };
    assert_eq!(resolved.len(), 32);
    assert!(resolved.iter().zip(&many).all(|(resolved, sent)| resolved.address == *sent));
}

#[test]
fn what_nobody_knows_fails_and_is_asked_again_only_after_a_while() {
    let mut stage = Stage::new(SourcesConfig { doh: Vec::new(), ..config() });
    stage.resolve("gone.test");
    stage.say(SYSTEM, Family::V6, Answer::NoName);
    assert_eq!(stage.resolve("gone.test"), Resolution::Wait);
    stage.say(SYSTEM, Family::V4, Answer::NoName);
    assert_eq!(stage.resolve("gone.test"), Resolution::Failed);
    stage.pass(Duration::from_millis(4_999));
    assert_eq!(stage.resolve("gone.test"), Resolution::Failed);
    assert_eq!(stage.asked_for_hosts(), []);
    stage.pass(Duration::from_millis(1));
    assert_eq!(stage.resolve("gone.test"), Resolution::Wait);
}

#[test]
fn a_server_that_fails_is_left_alone_ever_longer_and_others_stand_in_at_once() {
    let mut stage = Stage::new(config());
    let mut asked = 0;
    for number in 0..200 {
        let host = format!("h{number}.test");
        stage.resolve(&host);
        for (ask, server, _) in std::mem::take(&mut stage.asked) {
            asked += usize::from(server == SYSTEM);
            let answer = if server == SYSTEM { Answer::Failed("gone".into()) } else { found(&["1.1.1.1"]) };
            stage.answer(ask, answer);
        }
        for (ask, ..) in std::mem::take(&mut stage.asked) {
            stage.answer(ask, found(&["1.1.1.1"]));
        }
        assert!(stage.ready(&host).is_some(), "{host}");
        stage.pass(Duration::from_secs(1));
    }
    assert!((4..24).contains(&asked), "{asked}");
}

#[test]
fn a_system_that_fails_is_asked_again_soon_where_there_are_no_others() {
    let mut stage = Stage::new(SourcesConfig { doh: Vec::new(), list_keys: Vec::new(), ..config() });
    for _ in 0..20 {
        assert_eq!(stage.resolve("www.shop.test"), Resolution::Wait);
        assert_eq!(stage.asked_for_hosts(), [(SYSTEM, Family::V6), (SYSTEM, Family::V4)]);
        stage.say(SYSTEM, Family::V6, Answer::Failed("no network".into()));
        stage.say(SYSTEM, Family::V4, Answer::Failed("no network".into()));
        assert_eq!(stage.resolve("www.shop.test"), Resolution::Failed);
        stage.pass(Duration::from_secs(1));
    }
    stage.resolve("www.shop.test");
    stage.say(SYSTEM, Family::V6, found(&["2400::1"]));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["2400::1"]);
}

#[test]
fn a_silent_server_is_given_up_and_a_late_answer_passed_over() {
    let mut stage = Stage::new(SourcesConfig { doh: Vec::new(), dispatch: Vec::new(), ..config() });
    stage.resolve("www.shop.test");
    stage.pass(Duration::from_secs(5));
    assert_eq!(stage.resolve("www.shop.test"), Resolution::Failed);
    stage.say(SYSTEM, Family::V4, found(&["1.1.1.1"]));
    assert_eq!(stage.resolve("www.shop.test"), Resolution::Failed);
}

#[test]
fn a_new_network_makes_old_answers_stale_and_not_useless() {
    let mut stage = Stage::new(config());
    stage.resolve("www.shop.test");
    stage.say(SYSTEM, Family::V6, Answer::NoName);
    stage.say(SYSTEM, Family::V4, found(&["1.1.1.1"]));
    stage.sources.handle_network_changed(stage.now);
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["1.1.1.1"]);
    assert_eq!(stage.asked_for_hosts(), [(SYSTEM, Family::V6), (SYSTEM, Family::V4)]);
}

#[test]
fn names_are_bounded_and_the_one_used_least_lately_goes() {
    let mut stage = Stage::new(SourcesConfig { doh: Vec::new(), dispatch: Vec::new(), ..config() });
    for number in 0..300 {
        stage.resolve(&format!("h{number}.test"));
        for (ask, ..) in std::mem::take(&mut stage.asked) {
            stage.answer(ask, found(&["1.1.1.1"]));
        }
        stage.pass(Duration::from_millis(1));
    }
    assert_eq!(stage.sources.names.len(), 256);
    assert!(!stage.sources.names.contains_key("h0.test") && stage.sources.names.contains_key("h299.test"));
    assert_eq!(stage.resolve(&"x".repeat(254)), Resolution::Failed);
    assert_eq!(stage.resolve(""), Resolution::Failed);
}

#[test]
fn access_points_known_by_name_become_candidates_once_the_name_is_resolved() {
    let names = vec![NamedPoint { name: "gw.shop.test".into(), port: 8443, carriers: vec![CarrierKind::Tls] }];
    let mut stage = Stage::new(SourcesConfig { names, seeds: Vec::new(), ..config() });
    assert_eq!(stage.sources.targets(stage.now, stage.wall_ms), []);
    stage.resolve("gw.shop.test");
    stage.say(SYSTEM, Family::V6, found(&["2400::1"]));
    let targets = stage.sources.targets(stage.now, stage.wall_ms);
    assert_eq!((targets.len(), targets[0].candidate.address), (1, address("[2400::1]:8443")));
    assert_eq!(targets[0].source, crate::connect::Source::Dns);
}
