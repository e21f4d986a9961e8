//! `ropeway config`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::Place;

#[test]
fn the_sample_is_the_committed_one() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ropeway.sample.toml");
    let committed = std::fs::read_to_string(committed).expect("the committed sample");
    let place = Place::new();
    assert_eq!(place.run(&["config", "sample"]).good(), committed);
    assert_eq!(place.run(&["--json", "config", "sample"]).object(), json!({ "sample": committed }));
}

#[test]
fn the_sample_passes_the_check() {
    let place = Place::new();
    place.write("ropeway.toml", &place.run(&["config", "sample"]).good());
    let said = place.run(&["config", "check", "ropeway.toml"]).good();
    assert_eq!(said, "ropeway.toml is good; it sets nothing but defaults\n");
}

#[test]
fn a_good_file_is_told_with_what_it_sets() {
    let place = Place::new();
    place.write("ropeway.toml", "[gateway]\nname = \"edge.test\"\n[log]\nformat = \"json\"\n");
    let object = place.run(&["config", "check", "ropeway.toml", "--json"]).object();
    assert_eq!(object, json!({ "file": "ropeway.toml", "good": true, "sets": ["gateway.name", "log.format"] }));
}

#[test]
fn a_mistake_is_told_with_its_place_and_what_to_write() {
    let place = Place::new();
    place.write("ropeway.toml", "[gateway]\nnmae = \"edge.test\"\n");
    let expected = "ropeway.toml:2:1: unknown key `nmae` in `[gateway]`; did you mean `name`?";
    for command in [&["config", "check", "ropeway.toml"][..], &["up", "--config", "ropeway.toml"]] {
        assert_eq!(place.run(command).error(1), format!("ropeway: {expected}\n"));
    }
    let error: Value =
        serde_json::from_str(&place.run(&["--json", "up", "--config", "ropeway.toml"]).error(1)).expect("an object");
    assert_eq!(error, json!({ "error": "config", "message": expected, "side": "local" }));
    assert!(!place.path("ropeway-data").exists(), "a bad configuration leaves no traces");
}

#[test]
fn a_missing_file_is_named() {
    let error = Place::new().run(&["up", "--config", "nowhere.toml"]).error(1);
    assert!(error.starts_with("ropeway: nowhere.toml: cannot be read: "), "{error}");
}

#[test]
fn every_file_that_it_names_is_checked_and_told_as_at_a_start() {
    let place = Place::new();
    place.write("bad", "garbage");
    place.write("empty", "");
    for (text, file, hint) in [
        ("[pipe]\nsecret_file = \"p.secret\"", "p.secret", "openssl rand -base64 32"),
        ("[pipe]\nsecret_file = \"bad\"", "bad", "openssl rand -base64 32"),
        ("[plain_http]\nkey_file = \"s.key\"", "s.key", "openssl rand -base64 32"),
        ("[list]\nkey_file = \"l.key\"", "l.key", "openssl genpkey -algorithm ed25519"),
        ("[list]\nkey_file = \"bad\"", "bad", "openssl genpkey -algorithm ed25519"),
        ("[tls]\ncert = \"c.pem\"\nkey = \"c.key\"", "c.pem", "`ropeway up` makes both"),
        (
            "[tls]\ncert = \"bad\"\nkey = \"bad\"",
            "bad: there is no certificate in PEM in it",
            "`ropeway up` makes both",
        ),
        ("[admin]\ntoken_file = \"empty\"", "empty", "remove it"),
        ("[[tickets.key]]\nkid = \"k\"\npublic_key = \"i.pem\"", "i.pem", "openssl pkey"),
    ] {
        place.write("ropeway.toml", &format!("{text}\n"));
        let checked = place.run(&["--log", "off", "config", "check", "ropeway.toml"]).error(1);
        assert!(checked.contains(file) && checked.contains(hint), "{text}: {checked}");
        let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log", "off"];
        let started = place.run(&[&["up", "--config", "ropeway.toml"][..], &ports[..]].concat()).error(1);
        assert_eq!(started, checked, "{text}");
    }
}

#[test]
fn what_the_first_start_makes_may_be_missing() {
    let place = Place::new();
    place.write("ropeway.toml", "[admin]\ntoken_file = \"a.token\"\n");
    place.run(&["config", "check", "ropeway.toml"]).good();
    assert!(!place.path("a.token").exists() && !place.path("ropeway-data").exists(), "a check makes nothing");
}

#[test]
fn a_check_changes_no_file_and_no_folder_that_is_named() {
    let place = Place::new();
    place.write("p.secret", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
    std::fs::create_dir(place.path("folder")).expect("made");
    let mode = |name: &str| std::fs::metadata(place.path(name)).expect("there").permissions().mode() & 0o777;
    for (name, open) in [("p.secret", 0o644), ("folder", 0o755)] {
        std::fs::set_permissions(place.path(name), PermissionsExt::from_mode(open)).expect("opened");
        place.write("ropeway.toml", &format!("[pipe]\nsecret_file = \"{name}\"\n"));
        place.run(&["config", "check", "ropeway.toml"]);
        assert_eq!(mode(name), open, "{name}");
    }
}
