//! The command line: help, mistakes, and what commands say without a gateway.

use serde_json::Value;

use crate::support::Place;

#[test]
fn help_names_every_command_and_the_exit_codes() {
    let help = Place::new().run(&["--help"]).good();
    for word in ["up", "request", "listen", "push", "ticket", "config", "--data-dir", "--json", "Exit codes:", "22"] {
        assert!(help.contains(word), "no {word} in:\n{help}");
    }
}

#[test]
fn every_command_has_help_of_its_own() {
    let place = Place::new();
    for command in ["up", "request", "listen", "push", "ticket", "config"] {
        let help = place.run(&[command, "--help"]).good();
        assert!(help.contains(&format!("Usage: ropeway {command}")), "{help}");
    }
}

#[test]
fn the_version_is_said() {
    assert_eq!(Place::new().run(&["--version"]).good(), format!("ropeway {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_mistake_in_the_command_line_says_what_to_write() {
    let place = Place::new();
    for (arguments, part) in [
        (&["up", "--upstream", "api.test"][..], "write HOST=URL, such as api.test=http://127.0.0.1:8000"),
        (&["up", "--upstream", "api.test=127.0.0.1:8000"], "start it with http://, https://, h2c:// or builtin:"),
        (&["up", "--upstream", "http://a.test=http://b"], "`http://a.test` is no host name"),
        (&["up", "--listen", "7443"], "--listen"),
        (&["up", "--log", "loud"], "write a level (off, error, warn, info, debug, trace)"),
        (&["push", "--to", "ada", "hello"], "a target is written all, user:NAME, device:ID or topic:NAME"),
        (&["push", "hello"], "--to"),
        (&["push", "--to", "all"], "TEXT"),
        (&["push", "--status", "x", "--to", "all"], "cannot be used with"),
        (&["ticket", "--ttl", "30"], "write a time with its unit, such as 90s, 30m, 12h or 7d"),
        (&["ticket", "--user", "a b"], "visible characters without spaces"),
        (&["request", "-H", "accept", "https://a.test/"], "write NAME: VALUE"),
        (&["request", "--carrier", "udp", "https://a.test/"], "unknown carrier, expected one of quic, tls, ws"),
        (&["request", "--max-time", "0", "https://a.test/"], "write a number of seconds, such as 10 or 2.5"),
        (&["request", "--device-key", "a.key", "https://a.test/"], "--ticket"),
        (&["listen", "--count", "0"], "--count"),
        (&["tickt"], "'ticket'"),
    ] {
        let error = place.run(arguments).error(2);
        assert!(error.contains(part), "{arguments:?}: {error}");
    }
}

#[test]
fn programs_get_mistakes_as_objects() {
    let place = Place::new();
    for arguments in [&["--json", "up", "--upstream", "api.test"][..], &["push", "--json", "hello"]] {
        let error: Value = serde_json::from_str(&place.run(arguments).error(2)).expect("an object");
        assert_eq!((&error["error"], &error["side"]), (&Value::from("usage"), &Value::from("local")));
        assert!(!error["message"].as_str().expect("a text").starts_with("error:"));
    }
}

#[test]
fn without_a_data_folder_commands_say_to_run_up_first() {
    let place = Place::new();
    for arguments in [
        &["push", "--to", "all", "hello"][..],
        &["push", "--status", "x"],
        &["ticket"],
        &["listen"],
        &["request", "a.test"],
    ] {
        let error = place.run(arguments).error(1);
        let expected =
            "ropeway: no ropeway-data/client.json there; run `ropeway up` first, or name its folder with --data-dir\n";
        assert_eq!(error, expected, "{arguments:?}");
    }
    let error: Value = serde_json::from_str(&place.run(&["ticket", "--json"]).error(1)).expect("an object");
    assert_eq!((&error["error"], &error["side"]), (&Value::from("data_missing"), &Value::from("local")));
}

#[test]
fn the_data_folder_can_come_from_the_environment() {
    let place = Place::new();
    let output = place.command(&["ticket"]).env("ROPEWAY_DATA", "else/where").output().expect("the binary runs");
    let error = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(error.contains("no else/where/client.json there"), "{error}");
}
