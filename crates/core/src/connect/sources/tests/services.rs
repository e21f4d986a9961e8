//! HTTPS records: who is asked, how long what they say holds, and that nobody waits.

use super::*;

const DOH: fn() -> Server = || Server::Doh("9.9.9.9:443".parse().unwrap());

fn said(h3_port: Option<u16>, secs: u64) -> Answer {
    Answer::Service { h3_port, ttl: Duration::from_secs(secs) }
}

impl Stage {
    fn h3_port(&mut self, host: &str, port: u16) -> Option<u16> {
        let told = self.sources.h3_port(host, port, self.now);
        self.drain();
        told
    }

    /// Whom the machine asks for records, and of which URLs.
    fn asked_for_services(&self) -> Vec<(Server, String)> {
        let services = self.asked.iter().filter_map(|(_, server, question)| match question {
            Question::Service { name, port } => Some((*server, format!("{name}:{port}"))),
            Question::Host { .. } | Question::List { .. } => None,
        });
        services.collect()
    }

    /// Answers the first question for a record.
    fn say_service(&mut self, answer: Answer) {
        let found = self.asked.iter().find(|(_, _, question)| matches!(question, Question::Service { .. }));
        let ask = found.expect("somebody was asked for a record").0;
        self.answer(ask, answer);
    }
}

#[test]
fn a_record_is_asked_for_beside_the_addresses_and_nobody_waits_for_it() {
    let mut stage = Stage::new(config());
    assert_eq!(stage.h3_port("WWW.shop.test.", 443), None);
    stage.resolve("www.shop.test");
    assert_eq!(stage.asked_for_services(), [(Server::System, "www.shop.test:443".into())]);
    stage.say(Server::System, Family::V6, found(&["2400::1"]));
    assert_eq!(stage.ready("www.shop.test").unwrap(), ["2400::1"]);
    assert_eq!(stage.h3_port("www.shop.test", 443), None);
    assert_eq!(stage.asked_for_services().len(), 1, "it is asked once");
    stage.say_service(said(Some(8443), 60));
    assert_eq!(stage.h3_port("www.shop.test", 443), Some(8443));
    assert_eq!(stage.h3_port("www.shop.test", 8443), None, "another port has a record of its own");
    assert_eq!(stage.asked_for_services(), [(Server::System, "www.shop.test:8443".into())]);
}

#[test]
fn a_stale_record_is_used_while_a_fresh_one_is_asked_for() {
    let mut stage = Stage::new(config());
    stage.h3_port("www.shop.test", 443);
    stage.say_service(said(Some(443), 60));
    stage.pass(Duration::from_secs(59));
    assert_eq!(stage.h3_port("www.shop.test", 443), Some(443));
    assert_eq!(stage.asked_for_services(), []);
    stage.pass(Duration::from_secs(1));
    assert_eq!(stage.h3_port("www.shop.test", 443), Some(443));
    assert_eq!(stage.asked_for_services().len(), 1);
    stage.say_service(said(None, 60));
    assert_eq!(stage.h3_port("www.shop.test", 443), None, "it is gone");

    stage.pass(Duration::from_secs(60));
    stage.h3_port("www.shop.test", 443);
    stage.say_service(said(Some(443), 60));
    stage.pass(Duration::from_secs(4 * 86_400));
    assert_eq!(stage.h3_port("www.shop.test", 443), None, "after days nothing is left of it");
}

#[test]
fn a_new_network_makes_records_stale_and_not_useless() {
    let mut stage = Stage::new(config());
    stage.h3_port("www.shop.test", 443);
    stage.say_service(said(Some(443), 3_600));
    stage.sources.handle_network_changed(stage.now);
    assert_eq!(stage.h3_port("www.shop.test", 443), Some(443));
    assert_eq!(stage.asked_for_services().len(), 1);
}

#[test]
fn servers_that_know_no_records_are_as_good_as_before_and_left_alone_with_that_name() {
    let mut stage = Stage::new(config());
    stage.h3_port("www.shop.test", 443);
    stage.say_service(Answer::Failed("it knows no such type".into()));
    assert_eq!(stage.asked_for_services(), [(DOH(), "www.shop.test:443".into())], "the next is asked");
    stage.pass(Duration::from_secs(5));
    stage.asked.clear();
    stage.resolve("www.shop.test");
    assert_eq!(stage.asked_for_hosts(), [(Server::System, Family::V6), (Server::System, Family::V4)]);
    stage.pass(Duration::from_secs(299));
    stage.h3_port("www.shop.test", 443);
    assert_eq!(stage.asked_for_services(), []);
    stage.pass(Duration::from_secs(1));
    stage.h3_port("www.shop.test", 443);
    assert_eq!(stage.asked_for_services().len(), 1);
    stage.say_service(Answer::NoName);
    stage.h3_port("www.shop.test", 443);
    assert_eq!(stage.asked_for_services(), [], "that there is none is an answer");
}

#[test]
fn a_failure_leaves_the_record_that_was_had() {
    let mut stage = Stage::new(SourcesConfig { doh: Vec::new(), ..config() });
    stage.h3_port("www.shop.test", 443);
    stage.say_service(said(Some(443), 60));
    stage.pass(Duration::from_secs(60));
    stage.h3_port("www.shop.test", 443);
    stage.say_service(Answer::Failed("gone".into()));
    assert_eq!(stage.h3_port("www.shop.test", 443), Some(443));
    assert_eq!(stage.asked_for_services(), []);
}

#[test]
fn names_that_no_name_server_knows_are_not_asked_for() {
    let mut stage = Stage::new(config());
    for host in ["", "localhost", "api.localhost", "printer", "printer.local", "192.0.2.1", "[2001:db8::1]", "::1"] {
        assert_eq!(stage.h3_port(host, 443), None);
    }
    stage.h3_port(&format!("{}.test", "x".repeat(250)), 443);
    assert_eq!(stage.asked_for_services(), []);
}

#[test]
fn records_and_questions_for_them_are_bounded_and_take_no_room_from_addresses() {
    let mut stage = Stage::new(SourcesConfig { doh: Vec::new(), dispatch: Vec::new(), ..config() });
    for number in 0..30 {
        stage.h3_port(&format!("h{number}.test"), 443);
    }
    assert_eq!(stage.asked_for_services().len(), 16);
    for number in 0..32 {
        stage.resolve(&format!("h{number}.test"));
    }
    assert_eq!(stage.asked_for_hosts().len(), 64);
    for number in 0..300 {
        stage.pass(Duration::from_secs(6));
        stage.h3_port(&format!("h{number}.test"), 443);
        if stage.asked.iter().any(|(_, _, question)| matches!(question, Question::Service { .. })) {
            let last = stage.asked.pop().unwrap().0;
            stage.answer(last, said(Some(443), 60));
        }
        stage.asked.clear();
    }
    assert_eq!(stage.sources.services.known.len(), 256);
}
