//! `ropeway listen`: what `ropeway push` sends is printed, also across a restart of the gateway.

use serde_json::{Value, json};

use crate::support::{Place, Running, Up};

/// Starts to listen, and waits until the link is up.
fn listen(place: &Place, arguments: &[&str]) -> Running {
    let mut all = vec!["--json", "listen"];
    all.extend(arguments);
    let mut running = place.start(&all);
    wait_for(&mut running, "link_up");
    running
}

/// Passes over events until one of this kind.
fn wait_for(running: &mut Running, event: &str) -> Value {
    loop {
        let object = running.next_object();
        if object["event"] == event {
            return object;
        }
    }
}

#[test]
fn a_push_for_nobody_says_so() {
    let place = Place::new();
    let _up = place.up(&[]);
    let done = place.run(&["push", "--to", "user:nobody", "hello"]);
    assert!(done.stderr.contains("nobody it is for is connected here"), "{}", done.stderr);
    let answer = place.run(&["--json", "push", "--to", "user:nobody", "hello"]).object();
    assert_eq!((&answer["sessions"], &answer["status"]), (&json!(0), &json!("queued")));
    // What has ended leaves a session behind that nobody may resume.
    place.run(&["request", "https://demo.test/"]).good();
    let _listener = listen(&place, &[]);
    let answer = place.run(&["--json", "push", "--to", "user:dev", "hello"]).object();
    assert_eq!(answer["sessions"], 1);
}

fn push(place: &Place, to: &str, text: &str) -> String {
    place.run(&["push", "--to", to, text]).good().trim().to_owned()
}

/// Waits until the gateway says that the message came as far as this; asking again is the condition.
fn wait_for_status(place: &Place, id: &str, status: &str) {
    let until = std::time::Instant::now() + crate::support::PATIENCE;
    loop {
        let said = place.run(&["push", "--status", id]).good();
        if said.trim() == status {
            return;
        }
        assert!(std::time::Instant::now() < until, "{id} stays {said}");
    }
}

#[test]
fn a_push_is_printed_with_id_topic_and_text_one_a_line() {
    let place = Place::new();
    let _up = place.up(&[]);
    let mut listener = place.start(&["listen", "--topic", "news", "--count", "3"]);
    listener.wait_for_log("link up");
    let all = push(&place, "all", "hello");
    assert_eq!(listener.next_line(), format!("{all} - hello"));
    let news = push(&place, "topic:news", "two\nlines");
    assert_eq!(listener.next_line(), format!(r"{news} news two\nlines"));
    let bytes = place.run_with_input(&["push", "--to", "user:dev", "-"], b"\xff\x00").good();
    assert_eq!(listener.next_line(), format!("{} - base64:/wA=", bytes.trim()));
    assert_eq!(listener.wait().code(), Some(0), "three were asked for");
    wait_for_status(&place, bytes.trim(), "acked");
}

#[test]
fn two_listeners_are_two_devices_and_each_target_reaches_its_own() {
    let place = Place::new();
    let _up = place.up(&[]);
    let mut first = listen(&place, &["--device", "phone", "--topic", "a"]);
    let mut second = listen(&place, &["--topic", "b"]);
    push(&place, "device:phone", "for the phone");
    push(&place, "topic:b", "for b");
    push(&place, "user:dev", "for both");
    let texts =
        |listener: &mut Running| -> Vec<Value> { (0..2).map(|_| wait_for(listener, "push")["text"].take()).collect() };
    assert_eq!(texts(&mut first), ["for the phone", "for both"]);
    assert_eq!(texts(&mut second), ["for b", "for both"]);
}

#[test]
fn programs_get_the_content_type_and_the_status_goes_to_acked() {
    let place = Place::new();
    let _up = place.up(&[]);
    let mut listener = listen(&place, &[]);
    let arguments = ["push", "--to", "all", "--id", "order-17", "--content-type", "application/json", "{}"];
    place.run(&arguments).good();
    let event = wait_for(&mut listener, "push");
    assert_eq!((&event["id"], &event["content_type"]), (&json!("order-17"), &json!("application/json")));
    assert_eq!((&event["text"], &event["redelivered"]), (&json!("{}"), &json!(false)));
    wait_for_status(&place, "order-17", "acked");
}

#[test]
fn listening_goes_on_when_the_gateway_was_killed_and_started_again() {
    for carrier in ["quic", "tls", "ws"] {
        let place = Place::new();
        let mut up = place.up(&[]);
        let mut listener = listen(&place, &["--carrier", carrier, "--topic", "news"]);
        push(&place, "topic:news", "before");
        assert_eq!(wait_for(&mut listener, "push")["text"], "before");
        up.running.kill();
        let up = again(&place, &up);
        wait_for(&mut listener, "link_up");
        push(&place, "topic:news", "after");
        assert_eq!(wait_for(&mut listener, "push")["text"], "after", "{carrier}");
        drop(up);
    }
}

#[test]
fn listening_goes_on_when_the_gateway_drained_and_started_again() {
    let place = Place::new();
    // The link has nowhere to move to, and stays as long as it may.
    place.write("ropeway.toml", "[gateway]\ndrain_timeout = \"1s\"\n");
    let mut up = place.up(&["--config", "ropeway.toml"]);
    let mut listener = listen(&place, &[]);
    up.running.signal("-TERM");
    assert_eq!(up.running.wait().code(), Some(0));
    let _up = again(&place, &up);
    wait_for(&mut listener, "link_up");
    push(&place, "all", "after");
    assert_eq!(wait_for(&mut listener, "push")["text"], "after");
}

#[test]
fn an_interrupt_ends_it_well() {
    let place = Place::new();
    let _up = place.up(&[]);
    let mut listener = listen(&place, &[]);
    listener.signal("-INT");
    assert_eq!(listener.wait().code(), Some(0));
}

#[test]
fn a_refused_ticket_ends_it() {
    let place = Place::new();
    let _up = place.up(&[]);
    place.run(&["ticket", "--app", "other", "--out", "foreign"]).good();
    let error = place.run(&["listen", "--ticket", "foreign", "-q"]).error(1);
    assert!(error.starts_with("ropeway: gateway refused the link: "), "{error}");
}

/// Starts the gateway again where it was.
fn again(place: &Place, up: &Up) -> Up {
    place.up_at(&up.address("tcp").to_string(), &up.address("admin").to_string(), &[])
}
