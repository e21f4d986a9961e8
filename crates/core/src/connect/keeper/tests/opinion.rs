//! When another unit is asked for its opinion, and when the client moves there.

use super::*;

/// A client whose link to A is up and whose way to it has just been late; B is known.
fn late() -> Client {
    let mut client = Client::new();
    client.open(A);
    client.keeper.handle_waiting(true, client.now);
    client.now += Duration::from_secs(5);
    client.keeper.handle_late(client.connection(), client.now);
    client.follow();
    client
}

#[test]
fn a_link_that_is_late_is_left_for_a_unit_whose_way_is_smooth() {
    let mut client = late();
    assert_eq!(dialed(&client), [B.parse::<IpAddr>().unwrap()]);
    assert!(!is_sure(&client), "what may not run twice waits for what it says");
    client.now += Duration::from_millis(100);
    client.connect(B);
    assert_eq!(client.keeper.open_link().unwrap().session, 1, "until the other says WELCOME");
    assert_eq!(client.welcome(B), 2);
    assert_eq!(client.follow(), ["up 2", "leave 1"]);
    assert!(is_sure(&client));
    assert!(client.keeper.handle_unserved(2, client.now), "the rough way still serves");
}

#[test]
fn a_way_that_is_no_smoother_is_kept_as_a_spare_and_none_is_asked_for_a_while() {
    let mut client = late();
    client.now += Duration::from_millis(301);
    client.connect(B);
    assert!(is_sure(&client));
    let link = client.connection();
    client.keeper.handle_late(link, client.now);
    assert_eq!(client.follow(), [""; 0]);
    client.now += Duration::from_secs(30);
    client.keeper.handle_timeout(client.now);
    assert_eq!(client.follow(), ["drop NotNeeded"], "nobody needed the spare");
    client.keeper.handle_late(link, client.now);
    client.follow();
    assert_eq!(dialed(&client), [B.parse::<IpAddr>().unwrap()]);
    client.now += Duration::from_secs(2);
    client.keeper.handle_timeout(client.now);
    assert_eq!(client.follow(), ["drop NotNeeded"], "it had its time");
    client.now += Duration::from_secs(59);
    client.keeper.handle_late(link, client.now);
    client.follow();
    assert!(dialed(&client).is_empty(), "twice as long after the second");
    assert!(is_sure(&client));
}

#[test]
fn an_opinion_that_cannot_be_had_changes_nothing() {
    let mut client = late();
    let number = client.number(B);
    client.keeper.handle_dial_failed(number, FailReason::Refused, client.now);
    assert_eq!(client.follow(), [""; 0]);
    assert!(is_sure(&client));
    assert_eq!(client.keeper.open_link().unwrap().session, 1);
}

#[test]
fn a_move_without_welcome_leaves_the_link_as_it_was() {
    let mut client = late();
    client.connect(B);
    while client.keeper.is_connecting() {
        client.wait();
    }
    let link = client.keeper.open_link().unwrap();
    assert_eq!((link.session, link.is_doubted), (1, false));
    assert!(is_sure(&client));
    client.keeper.handle_late(link.connection, client.now);
    client.follow();
    assert!(dialed(&client).is_empty(), "not again at once");
}

#[test]
fn a_rough_handshake_is_followed_by_a_look_at_another_unit_before_welcome() {
    let mut client = Client::new();
    client.prepare();
    client.now += Duration::from_millis(240);
    client.connect(A);
    assert!(dialed(&client).is_empty(), "it went well");
    let mut client = Client::new();
    client.prepare();
    client.now += Duration::from_millis(301);
    client.connect(A);
    assert_eq!(client.greeted.len(), 1);
    assert_eq!(dialed(&client), [B.parse::<IpAddr>().unwrap()]);
    client.connect(B);
    assert_eq!(client.welcome(B), 1, "a session that was never open moves along");
}

#[test]
fn a_late_welcome_is_followed_by_a_look_at_another_unit() {
    let mut client = Client::new();
    client.prepare();
    client.now += Duration::from_millis(100);
    client.connect(A);
    assert!(dialed(&client).is_empty());
    client.wait();
    assert_eq!(client.now, Time::from_origin(Duration::from_millis(300)), "two round trips and the slack");
    assert_eq!(dialed(&client), [B.parse::<IpAddr>().unwrap()]);
}

#[test]
fn a_client_of_one_unit_asks_for_no_opinion() {
    let mut client = Client::new();
    let place = |address: &str| Place {
        candidate: Candidate { address: format!("{address}:443").parse().unwrap(), carrier: CarrierKind::Tls },
        source: Source::Config,
        unit: Some("a".into()),
        gateway: None,
    };
    let places = [A, B].map(place).to_vec();
    client.keeper.handle_prepared(client.generation, Prepared { places, ticket: None }, client.now);
    client.follow();
    client.now += Duration::from_millis(400);
    client.connect(A);
    client.welcome(A);
    client.keeper.handle_late(client.connection(), client.now);
    client.follow();
    assert!(dialed(&client).is_empty());
}
