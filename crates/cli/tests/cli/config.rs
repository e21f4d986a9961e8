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

#[test]
fn a_damaged_file_of_the_data_folder_is_told_with_its_remedy_and_left_as_it_is() {
    let place = Place::new();
    place.write("ropeway.toml", "[pipe]\nenabled = true\n");
    drop(place.up(&["--config", "ropeway.toml"]));
    let check = || place.run(&["--log", "off", "config", "check", "ropeway.toml"]);
    check().good();
    let pem = "-----BEGIN CERTIFICATE-----\nAAAA\n";
    for (name, damage, told) in [
        ("gateway.key", &b""[..], "it looks like an empty file; remove it"),
        ("gateway.key", b"\xff\x00\x80", "it looks like binary data; remove it"),
        ("gateway.key", pem.as_bytes(), "the line `-----END CERTIFICATE-----` is missing; remove it"),
        ("gateway.pem", b"nothing", "there is no certificate in PEM in it, it looks like other text; remove it"),
        ("gateway.pem", pem.as_bytes(), "the line `-----END CERTIFICATE-----` is missing; remove it"),
        (
            "ca.pem",
            b"nothing",
            "there is no certificate in PEM in it, it looks like other text; remove ca.pem and ca.key",
        ),
        ("ca.key", b"nothing", "there is no private key in PEM in it, it looks like other text; remove it"),
        (
            "issuer.key",
            b"nothing",
            "there is no private key in PEM in it; `openssl genpkey -algorithm ed25519` makes one; remove it",
        ),
        ("device.key", b"nothing", "it looks like other text; `ropeway ticket --device-key generate` makes one"),
        ("admin.token", b"two words", "a token is one word of ASCII, and this looks like other text; remove it"),
        ("list.key", b"nothing", "openssl genpkey"),
        ("list.key", b"\xff\x00\x80", "this is no text, it looks like binary data"),
        ("pipe-keys.json", b"nothing", "remove the file to have new keys made"),
        ("pipe-keys.json", b"\xff\x00\x80", "this is no text, it looks like binary data"),
        ("signing.key", b"nothing", "32 bytes in Base64"),
    ] {
        let path = place.path("ropeway-data").join(name);
        let good = std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        std::fs::write(&path, damage).expect("written");
        let text = check().error(1);
        assert!(text.contains(name) && text.contains(told), "{name}: {text}");
        assert_eq!(std::fs::read(&path).expect("there"), damage, "{name}");
        std::fs::write(&path, good).expect("written");
    }
    check().good();
}

#[test]
fn the_folder_that_the_command_line_names_is_the_one_that_is_checked() {
    let place = Place::new();
    std::fs::create_dir(place.path("other")).expect("made");
    place.write("other/ca.key", "nothing");
    place.write("ropeway.toml", "");
    place.run(&["config", "check", "ropeway.toml"]).good();
    let text = place.run(&["--data-dir", "other", "config", "check", "ropeway.toml"]).error(1);
    assert!(text.contains("other/ca.key"), "{text}");
}
