//! What `ropeway request` says of what went wrong.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Place, Running, Up, output_of};

fn echo(place: &Place) -> Up {
    place.up(&["--upstream", "demo.test=builtin:demo"])
}

/// Changes what `up` left for the other commands.
fn change_client(place: &Place, change: impl FnOnce(&mut Value)) {
    let mut client: Value = serde_json::from_str(&place.read("ropeway-data/client.json")).expect("an object");
    change(&mut client);
    place.write("ropeway-data/client.json", &client.to_string());
}

/// An address where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

#[test]
fn a_file_that_holds_something_else_is_named_with_what_it_looks_like() {
    let place = Place::new();
    let _up = echo(&place);
    fs::write(place.path("binary"), b"\xff\xfe\x00").expect("written");
    place.write("empty", "");
    place.write("cut.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n");
    place.write("letters.pem", "-----BEGIN CERTIFICATE-----\n????\n-----END CERTIFICATE-----\n");
    let (ca, ticket, key) = ("ropeway-data/ca.pem", "ropeway-data/ticket", "ropeway-data/device.key");
    for (shown, told) in [
        ("binary", "binary: this is no ticket (JWT), it looks like binary data; `ropeway ticket --out FILE`"),
        ("empty", "empty: this is no ticket (JWT), it looks like an empty file; "),
        (ca, "this is no ticket (JWT), it looks like PEM of the kind `CERTIFICATE`; "),
    ] {
        let text = place.run(&["request", "--ticket", shown, "--device-key", key, "demo.test"]).error(1);
        assert!(text.contains(told), "{shown}: {text}");
    }
    for (shown, told) in [
        ("binary", "binary: this is no Ed25519 key in PEM, it looks like binary data; "),
        (ca, "this is no Ed25519 key in PEM, it looks like PEM of the kind `CERTIFICATE`; "),
    ] {
        let text = place.run(&["request", "--ticket", ticket, "--device-key", shown, "demo.test"]).error(1);
        assert!(text.contains(told), "{shown}: {text}");
    }
    for (shown, told) in [
        ("binary", "there is no certificate in PEM in it, it looks like binary data; "),
        ("empty", "there is no certificate in PEM in it, it looks like an empty file; "),
        (ticket, "there is no certificate in PEM in it, it looks like a ticket (JWT); "),
        ("cut.pem", "its PEM is damaged: the line `-----END CERTIFICATE-----` is missing; "),
        ("letters.pem", "its PEM is damaged: what stands between BEGIN and END is no Base64; "),
    ] {
        fs::copy(place.path(shown), place.path(ca)).expect("copied");
        let text = place.run(&["request", "demo.test"]).error(1);
        assert!(text.contains(&format!("no authority can be taken from {ca}: {told}")), "{shown}: {text}");
    }
}

#[test]
fn a_key_of_the_client_file_that_is_none_is_told_with_its_place_and_remedy() {
    let place = Place::new();
    let _up = echo(&place);
    let told = |text: &str, what: &str| {
        let has_all = text.contains("ropeway-data/client.json: ") && text.contains(what);
        assert!(has_all && text.contains("start `ropeway up` again"), "{text}");
    };
    for (config, why) in [("***", "it is not Base64"), ("", "malformed"), ("AAAA", "other algorithms")] {
        change_client(&place, |client| client["pipe_keys"][0]["config"] = json!(config));
        told(&place.run(&["request", "--way", "pipe", "demo.test"]).error(1), why);
    }
    change_client(&place, |client| client["list_keys"][0]["public_key"] = json!("AA"));
    told(&place.run(&["request", "demo.test"]).error(1), "is not 32 bytes in Base64");
    fs::write(place.path("ropeway-data/client.json"), b"\xff\xfe\x00").expect("written");
    told(&place.run(&["request", "demo.test"]).error(1), "this is no JSON, it looks like binary data");
}

#[test]
fn where_no_gateway_answers_each_address_is_told_with_why_it_failed() {
    let place = Place::new();
    drop(echo(&place));
    let gone = [nobody(), nobody()];
    let points = gone.map(|address| json!({ "address": address.to_string(), "carriers": ["tls"] }));
    change_client(&place, |client| client["access_points"] = json!(points));
    let text = place.run(&["request", "--way", "link", "--max-time", "2", "demo.test"]).error(1);
    let sentence = text.split("; tried ").nth(1).expect("a sentence");
    for address in gone {
        assert!(sentence.contains(&format!("{address} (connection failed: Connection refused")), "{text}");
    }
    assert!(sentence.ends_with("; is `ropeway up` running?\n") && sentence.contains(") and 127."), "{text}");
}

#[test]
fn a_request_whose_time_is_over_before_a_list_came_says_why_there_is_none() {
    let place = Place::new();
    drop(echo(&place));
    let text = place.run(&["request", "--way", "address", "--max-time", "1.5", "demo.test"]).error(28);
    let told = text.contains("gave no access list: Connection refused");
    assert!(text.starts_with("ropeway: timed out connecting after 1500 ms; 127.") && told, "{text}");
}

#[test]
fn ctrl_c_amid_a_request_says_what_is_known_of_it() {
    let place = Place::new();
    let mut up = echo(&place);
    let asked =
        |place: &Place, arguments: &[&str]| place.start(&[&["request", "--log", "ropeway=debug"], arguments].concat());
    let ended = |mut request: Running, signal: &str, code: i32, told: &str| {
        request.signal(signal);
        request.wait_for_log(told);
        assert_eq!(request.wait().code(), Some(code), "{told}");
    };
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut request = asked(&place, &["https://demo.test/stream"]);
        request.next_line();
        ended(request, signal, code, "given up amid the answer");
    }
    let sent = asked(&place, &["--way", "pipe", "https://demo.test/slow?ms=30000"]);
    let metrics = format!("http://{}/metrics", up.address("admin"));
    let until = Instant::now() + Duration::from_secs(20);
    while !is_under_way(&output_of(Command::new("curl").args(["-sS", &metrics]))) {
        assert!(Instant::now() < until, "it never came to the service");
    }
    ended(sent, "-INT", 130, "the request was sent, and may have been executed");

    up.running.kill();
    let mut unsent = asked(&place, &["--way", "link", "-d", "x", "https://demo.test/"]);
    unsent.wait_for_log("attempt failed");
    ended(unsent, "-INT", 130, "given up before the request was sent; it was not executed");
}

fn is_under_way(metrics: &[u8]) -> bool {
    let text = String::from_utf8_lossy(metrics);
    let mut in_flight = text.lines().filter(|line| line.starts_with("ropeway_requests_in_flight{"));
    in_flight.any(|line| !line.ends_with(" 0"))
}
