//! `ropeway bench`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::Place;

#[test]
fn every_figure_is_written_for_programs_and_for_people() {
    let place = Place::new();
    place.run(&["bench", "--quick", "--out-dir", "out"]).good();
    let entries: Vec<Value> = serde_json::from_str(&place.read("out/benchmarks.json")).expect("a list");
    let text = place.read("out/benchmarks.md");
    let names: BTreeSet<&str> = entries.iter().map(|entry| entry["name"].as_str().expect("a name")).collect();
    assert_eq!(names.len(), entries.len(), "each figure is there once");
    for name in [
        "echo_frames_per_cpu_s",
        "handshakes_per_cpu_s",
        "idle_link_user_kb",
        "push_quic_p99_ms",
        "push_ws_p50_ms",
        "request_tls_p50_ms",
        "resumed_handshakes_per_cpu_s",
        "slow_reader_request_p99_ms",
    ] {
        assert!(names.contains(name), "{name} is missing");
    }
    for entry in &entries {
        assert!(matches!(entry["better"].as_str(), Some("higher" | "lower")), "{entry}");
        assert!(entry["value"].as_f64().is_some_and(|value| value >= 0.0), "{entry}");
        for word in ["unit", "command", "machine", "date", "what"] {
            assert!(entry[word].as_str().is_some_and(|word| !word.is_empty()), "{entry}");
        }
        for mark in ["must", "goal", "ratio", "peer_value"] {
            assert!(entry[mark].is_null() || entry[mark].is_number(), "{entry}");
        }
        let name = entry["name"].as_str().expect("a name");
        assert!(text.contains(&format!("`{name}`")), "{name} is missing for people");
    }
}

#[test]
fn figures_that_are_not_measured_again_stay() {
    let place = Place::new();
    std::fs::create_dir(place.path("docs")).expect("a folder");
    place.write("docs/benchmarks.json", r#"[{"name":"another","value":1.0},{"name":"echo_frames_per_cpu_s"}]"#);
    let said = place.run(&["--json", "bench", "--quick", "--only", "echo"]).good();
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    assert_eq!(said.last().expect("a line")["event"], "written");
    let entries: Vec<Value> = serde_json::from_str(&place.read("docs/benchmarks.json")).expect("a list");
    assert_eq!(entries[0]["name"], "another");
    assert_eq!(entries[1], said[0]);
}
