//! `ropeway up`: first start, signals, reload, and what stands in its way.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::support::{Place, WebServer, output_of};

#[test]
fn the_first_start_makes_keys_that_only_their_owner_can_read() {
    let place = Place::new();
    let up = place.up(&[]);
    let secrets = ["admin.token", "ca.key", "client.json", "device.key", "gateway.key", "issuer.key", "ticket"];
    for secret in secrets {
        assert_eq!(place.mode(&format!("ropeway-data/{secret}")), 0o600, "{secret}");
    }
    assert_eq!(place.mode("ropeway-data"), 0o700);
    assert!(place.read("ropeway-data/ca.pem").starts_with("-----BEGIN CERTIFICATE-----"));
    for which in ["tcp", "udp", "admin"] {
        assert_ne!(up.address(which).port(), 0, "{which} tells the port it got");
    }
    assert_eq!(up.announcement["routes"][0]["host"], "demo.test");
}

#[test]
fn the_first_command_it_names_shows_something_at_once() {
    let place = Place::new();
    let up = place.up(&[]);
    let commands = up.announcement["commands"].as_array().expect("commands");
    let curl = commands.iter().filter_map(Value::as_str).find(|command| command.starts_with("curl ")).expect("curl");
    let mut shell = Command::new("sh");
    let page = output_of(shell.arg("-c").arg(format!("{curl} --silent --show-error")).current_dir(place.path("")));
    let page = String::from_utf8(page).expect("UTF-8");
    assert!(page.starts_with("It works: this came through a Ropeway gateway."), "{page}");
}

#[test]
fn people_are_told_where_it_listens_and_what_to_try() {
    let place = Place::new();
    let mut up = place.start(&["up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "error"]);
    assert_eq!(up.next_line(), "Ropeway is up as `localhost`:");
    let mut text = String::new();
    while !text.contains("Ctrl-C stops it.") {
        text.push_str(&up.next_line());
        text.push('\n');
    }
    for part in ["by quic, tls and ws", "demo.test  -> builtin:demo", "ropeway request https://demo.test/"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
}

#[test]
fn a_second_start_keeps_every_key() {
    let place = Place::new();
    place.up(&[]).running.kill();
    let files = || -> Vec<_> {
        let mut files: Vec<_> = fs::read_dir(place.path("ropeway-data")).expect("there").flatten().collect();
        files.sort_by_key(fs::DirEntry::file_name);
        let kept = files.iter().filter(|file| !["up.lock", "client.json"].iter().any(|name| file.file_name() == *name));
        kept.map(|file| (file.file_name(), fs::read(file.path()).expect("readable"))).collect()
    };
    let first = files();
    place.up(&[]);
    assert_eq!(files(), first);
}

#[test]
fn a_second_up_in_the_same_folder_is_refused() {
    let place = Place::new();
    let up = place.up(&[]);
    let error = place.run(&["up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]).error(1);
    assert!(error.contains("./ropeway-data is in use by another `ropeway up` (process "), "{error}");
    assert!(error.contains("--data-dir"), "{error}");
    drop(up);
    place.up(&[]);
}

#[test]
fn of_several_started_at_once_exactly_one_comes_up() {
    let place = Place::new();
    let arguments = ["--json", "up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut all: Vec<_> = (0..4).map(|_| place.start(&arguments)).collect();
    let losers = all.iter_mut().filter_map(|up| up.line_or_end().is_none().then(|| up.wait()));
    let codes: Vec<_> = losers.map(|status| status.code()).collect();
    assert_eq!(codes, [Some(1); 3]);
}

#[test]
fn a_taken_port_is_named() {
    let (place, other) = (Place::new(), Place::new());
    let up = place.up(&[]);
    let (tcp, admin) = (up.address("tcp").to_string(), up.address("admin").to_string());
    let error = other.run(&["up", "--listen", &tcp, "--admin", "127.0.0.1:0"]).stderr;
    assert!(error.contains(&format!("cannot listen on {tcp}")), "{error}");
    let error = other.run(&["up", "--listen", "127.0.0.1:0", "--admin", &admin]).stderr;
    assert!(error.contains(&format!("cannot listen on {admin}")), "{error}");
    let error = other.run(&["up", "--listen", "127.0.0.1:9", "--admin", "127.0.0.1:9"]).error(2);
    assert!(error.contains("the admin API and the gateway have the same address 127.0.0.1:9"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let place = Place::new();
    place.write("file", "");
    let error = place.run(&["up", "--data-dir", "file/data"]).error(1);
    assert!(error.starts_with("ropeway: cannot make the folder file/data: "), "{error}");
    assert!(error.contains("choose another folder with --data-dir"), "{error}");
}

#[test]
fn sigterm_and_sigint_drain_and_end_well() {
    for signal in ["-TERM", "-INT"] {
        let place = Place::new();
        let mut up = place.up(&[]).running;
        up.signal(signal);
        let draining = up.next_object();
        assert_eq!(
            (&draining["event"], &draining["signal"]),
            (&"draining".into(), &format!("SIG{}", &signal[1..]).into())
        );
        assert_eq!(up.next_object()["event"], "down");
        assert_eq!(up.wait().code(), Some(0));
    }
}

#[test]
fn a_drain_lets_a_request_in_flight_finish() {
    let place = Place::new();
    let mut up = place.up(&[]);
    let mut events = up.start_curl(&place, "https://demo.test/stream");
    events.next_line();
    up.running.signal("-TERM");
    assert_eq!(up.running.next_object()["event"], "draining");
    let rest: Vec<_> = std::iter::from_fn(|| events.line_or_end()).collect();
    assert!(events.wait().success(), "curl got the whole body: {rest:?}");
    assert_eq!(up.running.next_object()["event"], "down");
    assert_eq!(up.running.wait().code(), Some(0));
}

#[test]
fn a_second_signal_stops_at_once() {
    let place = Place::new();
    let mut up = place.up(&[]);
    let mut events = up.start_curl(&place, "https://demo.test/stream");
    events.next_line();
    up.running.signal("-INT");
    assert_eq!(up.running.next_object()["event"], "draining");
    // One that follows within a moment counts as the same.
    up.running.signal_until_over("-INT");
    let error = up.running.wait_for_log("interrupted");
    assert!(error.contains("SIGINT came again"), "{error}");
    assert_eq!(up.running.wait().code(), Some(1));
    assert!(!events.wait().success(), "a cut body is no success");
}

#[test]
fn curl_gets_the_same_over_http_1_and_2() {
    let place = Place::new();
    let up = place.up(&[]);
    let mut pages = BTreeSet::new();
    for (flag, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let mut curl = up.curl(&place);
        curl.args([flag, "--write-out", "\n%{http_version}", "https://demo.test/bytes?n=100000"]);
        let answer = output_of(&mut curl);
        let (page, spoken) = answer.split_at(answer.len() - version.len());
        assert_eq!(spoken, version.as_bytes());
        pages.insert(page.to_owned());
    }
    assert_eq!(pages.len(), 1);
}

#[test]
fn a_real_service_answers_through_the_front_door() {
    let (place, site) = (Place::new(), Place::new());
    site.write("page.html", &"<p>hello</p>\n".repeat(20_000));
    let server = WebServer::start(&site.path(""));
    let up = place.up(&["--upstream", &format!("api.test=http://{}", server.address)]);
    let direct = output_of(Command::new("curl").args(["-sS", &format!("http://{}/page.html", server.address)]));
    let through = output_of(up.curl(&place).arg("https://api.test/page.html"));
    assert!(through == direct && through == site.read("page.html").as_bytes());
}

#[test]
fn a_changed_file_brings_a_host_that_web_clients_accept() {
    let place = Place::new();
    place.write("ropeway.toml", "[[route]]\nhost = \"old.test\"\nupstream = \"builtin:demo\"\n");
    let mut up = place.up(&["--config", "ropeway.toml"]);
    place.write("ropeway.toml", "[[route]]\nhost = \"new.test\"\nupstream = \"builtin:demo\"\n");
    up.running.signal("-HUP");
    up.running.wait_for_log("configuration taken");
    let page = output_of(up.curl(&place).arg("https://new.test/"));
    assert!(page.starts_with(b"It works"));
}

#[test]
fn a_bad_file_keeps_the_old_configuration_and_says_why() {
    let place = Place::new();
    place.write("ropeway.toml", "[[route]]\nhost = \"old.test\"\nupstream = \"builtin:demo\"\n");
    let mut up = place.up(&["--config", "ropeway.toml"]);
    place.write("ropeway.toml", "[[route]]\nhots = \"new.test\"\nupstream = \"builtin:demo\"\n");
    up.running.signal("-HUP");
    let line = up.running.wait_for_log("configuration refused");
    assert!(line.contains("did you mean `host`?"), "{line}");
    let page = output_of(up.curl(&place).arg("https://old.test/"));
    assert!(page.starts_with(b"It works"));
}
