//! The simulation is set beside what the lab measured; it takes no lab.

use std::{fs, path::Path, process::Output};

use ropeway_lab::results::Record;
use serde_json::{Value, json};

use crate::support::{ropeway_lab, text};

/// Simulates two works in a scenario of 100 ms, into a folder.
fn simulate(out: &Path, more: &[&str]) -> Output {
    let scenarios = out.join("scenarios");
    fs::create_dir_all(&scenarios).expect("a folder");
    let scenario = "summary = 's'\nbasis = 'b'\nsource = 's'\naccess.cell.rtt_ms = 100\n\
                    [variant.recorded.access.cell.down]\ntrace_file = 'nowhere.down'\n";
    fs::write(scenarios.join("plain.toml"), scenario).expect("written");
    let mut command = ropeway_lab(&["--json", "simulate", "--scenarios", "plain:*", "--out"]);
    command.arg(out).arg("--scenario-dir").arg(scenarios).args(more);
    command.output().expect("the command can be started")
}

/// A cell as the lab measured it.
fn measured(peer: &str, work: &str, p50_ms: f64, void: bool) -> Value {
    json!({
        "scenario": "plain", "variant": null, "work": work, "peer": peer, "seeds": 3, "requests": 12,
        "success_share": 1.0, "p50_ms": p50_ms, "p95_ms": p50_ms, "p99_ms": p50_ms, "p95_low_ms": p50_ms,
        "p95_high_ms": p50_ms, "after_outage_ms": null, "bytes": 1, "posts_twice": null, "void": void,
    })
}

/// Puts what the lab measured into a folder.
fn keep(out: &Path, records: &[Value]) {
    let records: Vec<Record> = serde_json::from_value(json!(records)).expect("records");
    fs::write(out.join("latest.json"), serde_json::to_vec(&records).expect("records")).expect("written");
}

#[test]
fn a_simulated_median_stands_beside_the_lab_s_of_the_same_cell() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path();
    keep(out, &[measured("libcurl", "get-2k", 900.0, false), measured("ropeway", "get-2k", 110.0, false)]);
    let output = simulate(out, &["--works", "get-2k,post-10k,before-outage", "--seeds", "3"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let rows: Vec<Value> = text(&output.stdout).lines().map(|line| line.parse().expect("one object a line")).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!((&rows[0]["verdict"], &rows[1]["verdict"]), (&"agrees".into(), &"no-lab-figure".into()));
    assert_eq!((&rows[0]["lab"]["p50_ms"], &rows[0]["simulated"]["requests"]), (&110.0.into(), &12.into()));

    let kept: Value = serde_json::from_str(&fs::read_to_string(out.join("simulation.json")).expect("written")).unwrap();
    assert_eq!(kept["rows"], json!(rows));
    let command = "ropeway-lab simulate --scenarios plain:* --works get-2k,post-10k,before-outage --seeds 3";
    assert_eq!((&kept["command"], &kept["version"]), (&command.into(), &env!("CARGO_PKG_VERSION").into()));
    let table = fs::read_to_string(out.join("simulation.md")).expect("written");
    let row = table.lines().find(|line| line.starts_with("| plain | get-2k |")).expect("a row");
    assert!(row.contains("| 12 | 100 % | 0.1") && row.contains("| 12 | 100 % | 0.110 |"), "{row}");
    assert!(row.ends_with("| agrees |"), "{row}");
    assert!(table.contains("| plain | before-outage | the scenario has no outage |\n"), "{table}");
    assert!(table.contains("nowhere.down"), "the recording is missing and no mistake: {table}");
}

#[test]
fn a_simulation_that_is_off_fails_and_one_beside_a_void_cell_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    for (void, code) in [(true, 0), (false, 1)] {
        keep(folder.path(), &[measured("ropeway", "get-2k", 300.0, void)]);
        let output = simulate(folder.path(), &["--works", "get-2k", "--seeds", "1"]);
        assert_eq!(output.status.code(), Some(code), "{}", text(&output.stderr));
        let table = fs::read_to_string(folder.path().join("simulation.md")).expect("written");
        assert!(table.contains(if void { "void in the lab" } else { "**off**" }), "{table}");
    }
}

#[test]
fn what_is_wrong_with_a_simulation_is_said_before_it_begins() {
    let folder = tempfile::tempdir().expect("a folder");
    let refused = |arguments: &[&str]| {
        let output = simulate(folder.path(), arguments);
        let error: Value = text(&output.stderr).parse().expect("one object");
        assert!(!folder.path().join("simulation.md").exists());
        (output.status.code(), error["message"].as_str().expect("words").to_owned())
    };
    let (code, words) = refused(&["--scenarios", "plane"]);
    assert!(code == Some(2) && words.contains("did you mean `plain`?"), "{words}");
    let (code, words) = refused(&["--works", "get"]);
    assert!(code == Some(2) && words.contains("unknown work"), "{words}");
    let (code, words) = refused(&["--seeds", "0"]);
    assert!(code == Some(2) && words.contains("1..=1000"), "{words}");
    fs::write(folder.path().join("latest.json"), "{").expect("written");
    let (code, words) = refused(&[]);
    assert!(code == Some(1) && words.contains("latest.json"), "{words}");
}
