//! `ropeway config`.

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
