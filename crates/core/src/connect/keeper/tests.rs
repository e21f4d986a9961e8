mod names;
mod opinion;

use std::net::IpAddr;

use super::*;
use crate::{CarrierKind, connect::FailReason};

/// A keeper with its clock, driven by short words.
struct Client {
    keeper: Keeper,
    now: Time,
    /// The connections that were asked for and not dropped, with their addresses.
    dialing: BTreeMap<ConnectionId, IpAddr>,
    greeted: Vec<(ConnectionId, IpAddr, u64)>,
    generation: u64,
    /// What was asked for besides when the last link opened.
    told: Vec<String>,
}

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";

impl Client {
    fn new() -> Self {
        let keeper = Keeper::new(KeeperConfig::default(), 1, Time::ZERO);
        let mut client = Self {
            keeper,
            now: Time::ZERO,
            dialing: BTreeMap::new(),
            greeted: Vec::new(),
            generation: 0,
            told: Vec::new(),
        };
        client.follow();
        client
    }

    /// Gives the places: one address in each of two units.
    fn prepare(&mut self) {
        self.prepare_with([Some("a"), Some("b")]);
    }

    /// Gives the places, as belonging to these units.
    fn prepare_with(&mut self, units: [Option<&str>; 2]) {
        let place = |(address, unit): (&str, Option<&str>)| Place {
            candidate: Candidate { address: format!("{address}:443").parse().unwrap(), carrier: CarrierKind::Tls },
            source: Source::Config,
            unit: unit.map(Unit::from),
            gateway: None,
        };
        let prepared = Prepared { places: [A, B].into_iter().zip(units).map(place).collect(), ticket: None };
        self.keeper.handle_prepared(self.generation, prepared, self.now);
        self.follow();
    }

    /// Lets the connection to an address open.
    fn connect(&mut self, address: &str) {
        let number = self.number(address);
        self.keeper.handle_connected(number, Duration::from_millis(50), self.now);
        self.follow();
    }

    /// Lets the gateway at an address welcome the client; returns the session.
    fn welcome(&mut self, address: &str) -> u64 {
        let (number, _, session) = *self.greeted.last().unwrap();
        assert_eq!(self.greeted.last().unwrap().1, address.parse::<IpAddr>().unwrap());
        self.keeper.handle_welcomed(number, self.now);
        session
    }

    /// Opens a link to an address, of those that are being dialed.
    fn open(&mut self, address: &str) -> u64 {
        self.prepare();
        while !self.dialing.values().any(|known| *known == address.parse::<IpAddr>().unwrap()) {
            self.wait();
        }
        self.connect(address);
        let session = self.welcome(address);
        self.told = self.follow();
        session
    }

    fn wait(&mut self) {
        self.now = self.keeper.poll_timeout().unwrap();
        self.keeper.handle_timeout(self.now);
        self.follow();
    }

    fn number(&self, address: &str) -> ConnectionId {
        let address: IpAddr = address.parse().unwrap();
        *self.dialing.iter().find(|(_, known)| **known == address).unwrap().0
    }

    fn connection(&self) -> ConnectionId {
        self.keeper.open_link().unwrap().connection
    }

    /// Takes note of dials and greetings, and returns the rest in words.
    fn follow(&mut self) -> Vec<String> {
        let mut told = Vec::new();
        while let Some(output) = self.keeper.poll_output(self.now) {
            match output {
                KeeperOutput::Changed | KeeperOutput::Exhausted => {}
                KeeperOutput::Cut { session } => told.push(format!("cut {session}")),
                KeeperOutput::Dial { connection, candidate, .. } => {
                    self.dialing.insert(connection, candidate.address.ip());
                }
                KeeperOutput::Drop { connection, reason } => {
                    self.dialing.remove(&connection);
                    told.push(format!("drop {reason:?}"));
                }
                KeeperOutput::ForgetTicket => told.push("forget ticket".to_owned()),
                KeeperOutput::Greet { connection, candidate, session, fresh } => {
                    self.dialing.remove(&connection);
                    self.greeted.push((connection, candidate.address.ip(), session));
                    told.push(format!("greet {session}{}", if fresh { ", new" } else { "" }));
                }
                KeeperOutput::Leave { session } => told.push(format!("leave {session}")),
                KeeperOutput::LinkUp { session, .. } => told.push(format!("up {session}")),
                KeeperOutput::Prepare { generation } => {
                    self.generation = generation;
                    told.push("prepare".to_owned());
                }
                KeeperOutput::Settle { session, gap } => told.push(format!("settle {session}, gap {gap}")),
            }
        }
        told
    }
}

fn dialed(client: &Client) -> Vec<IpAddr> {
    client.dialing.values().copied().collect()
}

fn is_sure(client: &Client) -> bool {
    matches!(client.keeper.view(client.now), LinkView::Open { is_sure: true, .. })
}

#[test]
fn the_first_link_is_sought_at_once_and_takes_requests_that_may_run_twice_before_welcome() {
    let mut client = Client::new();
    assert!(client.keeper.is_connecting());
    assert_eq!(client.keeper.open_link(), None);
    client.prepare();
    client.connect(A);
    let link = client.keeper.open_link().unwrap();
    assert_eq!((link.session, link.is_doubted, link.is_up), (1, false, false));
    client.welcome(A);
    let link = client.keeper.open_link().unwrap();
    assert_eq!((link.session, link.is_doubted, link.is_up), (1, false, true));
    assert_eq!(client.follow(), ["up 1"]);
}

#[test]
fn a_link_that_is_lost_is_resumed_where_it_was() {
    let mut client = Client::new();
    client.open(A);
    client.keeper.handle_waiting(true, client.now);
    let number = client.connection();
    client.keeper.handle_ended(number, Ended::Broken(LostReason::Network), client.now);
    client.follow();
    assert_eq!(client.keeper.open_link(), None);
    client.now += Duration::from_secs(1);
    client.keeper.handle_timeout(client.now);
    client.follow();
    assert_eq!(client.open(A), 1, "the session is the same");
}

#[test]
fn what_is_under_way_is_cut_when_no_link_was_found_for_as_long_as_answers_are_kept() {
    let mut client = Client::new();
    client.open(A);
    client.keeper.handle_ended(client.connection(), Ended::Broken(LostReason::Silent), client.now);
    let lost_at = client.now;
    client.follow();
    let mut told = Vec::new();
    while !told.contains(&"cut 1".to_owned()) {
        client.now = client.keeper.poll_timeout().unwrap();
        client.keeper.handle_timeout(client.now);
        told = client.follow();
    }
    assert_eq!(client.now, lost_at + Duration::from_secs(60));
    assert_eq!(client.open(A), 1, "the session is the same");
    assert!(client.keeper.poll_timeout().is_none_or(|at| at > client.now), "nothing is cut twice");
}

#[test]
fn a_doubted_link_is_left_for_another_unit_and_finishes_what_it_has() {
    let mut client = Client::new();
    client.open(A);
    client.keeper.handle_waiting(true, client.now);
    client.now += Duration::from_secs(5);
    let old = client.connection();
    client.keeper.handle_doubted(old, true, client.now);
    assert_eq!(client.follow(), ["prepare"]);
    assert!(client.keeper.open_link().unwrap().is_doubted);
    assert!(matches!(client.keeper.view(client.now), LinkView::Open { is_sure: false, .. }));
    client.prepare();
    assert_eq!(client.dialing.values().copied().collect::<Vec<_>>(), [B.parse::<IpAddr>().unwrap()], "the other first");
    client.connect(B);
    assert_eq!(client.keeper.open_link().unwrap().session, 1, "until the other says WELCOME");
    assert_eq!(client.welcome(B), 2);
    assert_eq!(client.follow(), ["up 2", "leave 1"]);
    let link = client.keeper.open_link().unwrap();
    assert_eq!((link.session, link.is_doubted), (2, false));
    client.keeper.handle_ended(old, Ended::Orderly, client.now);
    assert_eq!(client.follow(), ["settle 1, gap false"]);
}

#[test]
fn a_doubted_link_is_left_for_a_session_at_a_unit_that_became_known_after_it() {
    let mut client = Client::new();
    client.prepare_with([None, None]);
    let home = dialed(&client)[0].to_string();
    let other = if home == A { B } else { A };
    client.connect(&home);
    assert_eq!(client.welcome(&home), 1);
    client.follow();
    client.keeper.handle_waiting(true, client.now);
    client.keeper.handle_doubted(client.connection(), true, client.now);
    client.follow();
    while client.generation < 2 {
        client.wait();
    }
    client.prepare();
    client.connect(other);
    assert_eq!(client.welcome(other), 2, "the gateway there knows nothing of the other session");
    assert_eq!(client.follow(), ["up 2", "leave 1"]);
}

#[test]
fn a_doubted_link_whose_session_cannot_move_keeps_it_beside_a_new_one_even_at_the_same_place() {
    let mut client = Client::new();
    let session = client.open(A);
    client.keeper.handle_waiting(true, client.now);
    client.follow();
    client.keeper.handle_doubted(client.connection(), false, client.now);
    assert!(!is_sure(&client), "what may run only once waits for the other session");
    client.follow();
    while client.generation < 2 {
        client.wait();
    }
    client.prepare();
    while !dialed(&client).contains(&A.parse().unwrap()) {
        client.wait();
    }
    client.connect(A);
    let fresh = client.welcome(A);
    assert_eq!(client.follow(), [format!("up {fresh}"), format!("leave {session}")]);
    assert_ne!(fresh, session);
    assert!(is_sure(&client));
}

#[test]
fn a_doubted_link_that_speaks_again_stays() {
    let mut client = Client::new();
    client.open(A);
    client.keeper.handle_waiting(true, client.now);
    client.now += Duration::from_secs(5);
    let link = client.connection();
    client.keeper.handle_doubted(link, true, client.now);
    client.follow();
    client.prepare();
    client.keeper.handle_trusted(link);
    assert_eq!(client.follow(), ["drop NotNeeded"]);
    assert!(!client.keeper.open_link().unwrap().is_doubted);
    assert!(!client.keeper.is_connecting());
}

#[test]
fn a_unit_that_does_not_serve_is_left_and_avoided_for_a_while() {
    let mut client = Client::new();
    client.open(A);
    client.keeper.handle_waiting(true, client.now);
    client.now += Duration::from_secs(5);
    assert!(client.keeper.handle_unserved(1, client.now));
    assert_eq!(client.follow(), ["prepare"]);
    assert_eq!(client.keeper.open_link(), None, "nothing more is given to it");
    assert!(client.keeper.handle_unserved(1, client.now), "it is being left already");
    assert_eq!(client.open(B), 2);
    assert_eq!(client.told, ["up 2", "leave 1"]);
    assert!(!client.keeper.handle_unserved(2, client.now), "there is nowhere to go: the other is avoided");
    client.now += Duration::from_mins(1);
    assert!(client.keeper.handle_unserved(2, client.now));
}

#[test]
fn a_client_of_one_unit_stays_with_it() {
    let mut client = Client::new();
    let candidate = Candidate { address: format!("{A}:443").parse().unwrap(), carrier: CarrierKind::Tls };
    let place = Place { candidate, source: Source::Config, unit: None, gateway: None };
    client.keeper.handle_prepared(client.generation, Prepared { places: vec![place], ticket: None }, client.now);
    client.follow();
    client.connect(A);
    client.welcome(A);
    assert!(!client.keeper.handle_unserved(1, client.now));
    assert!(matches!(client.keeper.view(client.now), LinkView::Open { can_move: false, .. }));
}

#[test]
fn a_greeting_without_welcome_is_followed_by_the_next_place() {
    let mut client = Client::new();
    client.prepare();
    client.connect(A);
    while client.greeted.len() == 1 {
        client.wait();
        if client.dialing.values().any(|known| *known == B.parse::<IpAddr>().unwrap()) && client.greeted.len() == 1 {
            client.connect(B);
        }
    }
    assert_eq!(client.greeted[1].2, 1, "a session that was never open moves along");
    client.welcome(B);
    assert_eq!(client.keeper.open_link().unwrap().session, 1);
}

#[test]
fn a_ticket_that_cannot_be_had_is_told_until_something_changes() {
    let mut client = Client::new();
    let prepared = Prepared { places: Vec::new(), ticket: Some("no network".to_owned()) };
    client.keeper.handle_prepared(client.generation, prepared, client.now);
    assert_eq!(client.keeper.failure(), Some(&KeeperFailure::Ticket { reason: "no network".to_owned() }));
    client.now += Duration::from_secs(1);
    client.keeper.handle_changed(false, client.now);
    assert_eq!(client.keeper.failure(), None);
    assert!(client.follow().contains(&"prepare".to_owned()));
}

#[test]
fn a_ticket_that_stays_wrong_ends_the_search_until_it_is_changed() {
    let mut client = Client::new();
    client.prepare();
    client.connect(A);
    let (number, ..) = client.greeted[0];
    let refusal = (RefuseCode::TicketInvalid, "bad".to_owned(), Duration::ZERO);
    client.keeper.handle_refused(number, refusal, true, client.now);
    assert!(matches!(client.keeper.failure(), Some(KeeperFailure::Refused { .. })));
    assert_eq!(client.keeper.view(client.now), LinkView::None);
    assert_eq!(client.keeper.poll_timeout(), None);
}

#[test]
fn a_session_that_is_not_taken_back_is_over_and_another_begins() {
    let mut client = Client::new();
    client.open(A);
    client.keeper.handle_waiting(true, client.now);
    client.now += Duration::from_secs(5);
    let number = client.connection();
    client.keeper.handle_ended(number, Ended::Broken(LostReason::Network), client.now);
    client.follow();
    client.prepare();
    client.connect(A);
    let (number, ..) = *client.greeted.last().unwrap();
    client.keeper.handle_refused(number, (RefuseCode::ResumeRefused, String::new(), Duration::ZERO), false, client.now);
    let told = client.follow();
    assert!(told.contains(&"settle 1, gap true".to_owned()), "{told:?}");
    client.prepare();
    client.connect(A);
    assert_eq!(client.welcome(A), 2);
}

#[test]
fn places_that_all_fail_are_tried_again_later() {
    let mut client = Client::new();
    client.prepare();
    while let Some(number) = client.dialing.keys().next().copied() {
        client.dialing.remove(&number);
        client.keeper.handle_dial_failed(number, FailReason::Refused, client.now);
        client.follow();
    }
    assert!(!client.keeper.is_connecting());
    client.now = client.keeper.poll_timeout().unwrap();
    client.keeper.handle_timeout(client.now);
    assert_eq!(client.follow(), ["prepare"]);
}

#[test]
fn the_second_address_is_one_of_another_unit() {
    let addresses = |others: [&str; 2]| {
        let mut client = Client::new();
        let place = |address: &str, unit: &str, carrier| Place {
            candidate: Candidate { address: format!("{address}:443").parse().unwrap(), carrier },
            source: Source::Config,
            unit: Some(unit.into()),
            gateway: None,
        };
        let both = |address, unit| [CarrierKind::Quic, CarrierKind::Tls].map(|carrier| place(address, unit, carrier));
        let units = [(A, "a"), ("192.0.2.11", others[0]), (B, others[1])];
        let places = units.into_iter().flat_map(|(address, unit)| both(address, unit)).collect();
        client.keeper.handle_prepared(client.generation, Prepared { places, ticket: None }, client.now);
        client.follow();
        while client.dialing.len() < 6 {
            client.wait();
        }
        // Connections are numbered in the order of their starts.
        client.dialing.into_values().collect::<Vec<_>>()
    };
    let ip = |address: &str| -> IpAddr { address.parse().unwrap() };
    let (a, other, b) = (ip(A), ip("192.0.2.11"), ip(B));
    assert_eq!(addresses(["a", "b"]), [a, a, b, b, other, other]);
    assert_eq!(addresses(["b", "a"]), [a, a, other, other, b, b]);
    assert_eq!(addresses(["a", "a"]), [a, a, other, other, b, b], "one unit: as they are ranked");
}

#[test]
fn requests_learn_when_every_place_refused_in_this_attempt() {
    let refused = |client: &Client| match client.keeper.view(client.now) {
        LinkView::Sought { denied, .. } => denied.map(|denied| denied.at),
        LinkView::None | LinkView::Open { .. } => panic!("a link is sought"),
    };
    let mut client = Client::new();
    client.keeper.handle_waiting(true, client.now);
    for round in 0..3 {
        client.prepare();
        for address in [A, B] {
            assert_eq!(refused(&client), None, "round {round}");
            let number = client.number(address);
            client.dialing.remove(&number);
            client.keeper.handle_dial_failed(number, FailReason::Refused, client.now);
            client.follow();
        }
        assert_eq!(refused(&client), Some(client.now), "round {round}");
        let generation = client.generation;
        while client.generation == generation {
            client.wait();
        }
        assert!(refused(&client).is_some(), "the next round has not begun");
    }
    client.prepare();
    client.connect(A);
    let (number, ..) = *client.greeted.last().unwrap();
    client.keeper.handle_ended(number, Ended::Broken(LostReason::Closed), client.now);
    client.follow();
    assert_eq!(refused(&client), None, "something came back");
}

#[test]
fn a_request_that_waits_has_refused_places_tried_again_beside_silent_ones() {
    let mut client = Client::new();
    client.keeper.handle_waiting(true, client.now);
    client.prepare();
    // B stays silent.
    for round in 0..4 {
        while !dialed(&client).contains(&A.parse().unwrap()) {
            client.wait();
        }
        let waited = client.now.since(Time::ZERO);
        assert!(waited < Duration::from_secs(3), "after {waited:?} in round {round}");
        let number = client.number(A);
        client.dialing.remove(&number);
        client.keeper.handle_dial_failed(number, FailReason::Refused, client.now);
        client.follow();
    }
}

#[test]
fn what_is_learned_on_a_network_counts_there_alone() {
    let mut client = Client::new();
    client.keeper.handle_network("home");
    client.open(A);
    let learned = |client: &Client| client.keeper.records().learned_carrier(client.now);
    assert_eq!(learned(&client), Some(CarrierKind::Tls));
    client.keeper.handle_network("train");
    assert!(client.keeper.records().is_empty());
    client.keeper.handle_network("home");
    assert_eq!(learned(&client), Some(CarrierKind::Tls));
}

#[test]
fn the_round_trips_of_a_link_are_learned_for_its_place() {
    let mut client = Client::new();
    client.open(A);
    let candidate = client.keeper.open_link().unwrap().candidate;
    let srtt = |client: &Client| client.keeper.records().get(candidate, client.now).unwrap().srtt().unwrap();
    assert_eq!(srtt(&client), Duration::from_millis(50));
    for _ in 0..20 {
        client.keeper.handle_round_trip(client.connection(), Duration::from_millis(400));
    }
    assert!(srtt(&client) > Duration::from_millis(350), "{:?}", srtt(&client));
    client.keeper.handle_round_trip(ConnectionId(99), Duration::from_secs(9));
    assert!(srtt(&client) < Duration::from_millis(400));
}

#[test]
fn a_connection_that_is_broken_off_is_no_reason_to_wait_for_a_link_and_one_that_takes_too_long_is() {
    for (reason, hopes) in [(FailReason::Closed, false), (FailReason::Handshake, false), (FailReason::TimedOut, true)] {
        let mut client = Client::new();
        client.prepare();
        let number = client.number(A);
        client.keeper.handle_answered(number, Duration::from_millis(50), client.now);
        client.keeper.handle_dial_failed(number, reason, client.now);
        let view = client.keeper.view(client.now);
        assert!(
            matches!(view, LinkView::Sought { alive_at, .. } if alive_at.is_some() == hopes),
            "{reason:?}: {view:?}"
        );
    }
}
