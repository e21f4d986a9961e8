//! The slice of the comparison that runs everywhere: three peers in three scenarios.

use std::{collections::BTreeMap, env, fs, path::Path, time::Instant};

use ropeway_lab::results::Record;

use crate::support::{is_required, labs, ropeway_lab, text};

/// Says whether the peers are installed; where labs are required, so are they.
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn has_peers() -> bool {
    let is_installed = env::var_os("LAB_PEERS").is_some_and(|folder| Path::new(&folder).join("ready").is_file());
    assert!(is_installed || !is_required(), "ROPEWAY_LAB_REQUIRED is set, and LAB_PEERS names no installed peers");
    if !is_installed {
        eprintln!("SKIPPED, LAB_PEERS names no installed peers: run make test");
    }
    is_installed
}

#[test]
fn ropeway_gets_through_where_names_are_hijacked_addresses_are_bad_and_the_link_is_cut() {
    let Some(_labs) = labs() else { return };
    if !has_peers() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (out, cache) = (folder.path().join("results"), folder.path().join("runs"));
    let (peers, scenarios) = ("libcurl,ropeway,undici", "dns-bad,elevator:ci,one-bad-ip");
    let arguments = ["--quiet", "compare", "--peers", peers, "--scenarios", scenarios, "--seeds", "1", "--jobs", "4"];
    let mut command = ropeway_lab(&arguments);
    let begin = Instant::now();
    let output =
        command.arg("--out").arg(&out).arg("--cache").arg(&cache).output().expect("the command can be started");
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(begin.elapsed().as_secs() < SECONDS_MAX);

    let list = fs::read_to_string(out.join("latest.json")).expect("results");
    let records: Vec<Record> = serde_json::from_str(&list).expect("records");
    assert_eq!(records.len(), 3 * 3 * 2, "{list}");
    for record in records.iter().filter(|record| record.peer == "ropeway") {
        assert_eq!((record.success_share, record.requests), (Some(1.0), 4), "{record:?}");
        assert_eq!(record.posts_twice.unwrap_or(0), 0, "{record:?}");
    }
    let share: BTreeMap<_, _> = records.iter().map(|record| (record.cell(), record.success_share)).collect();
    for (peer, work) in [("libcurl", "get-2k"), ("libcurl", "post-10k"), ("undici", "get-2k"), ("undici", "post-10k")] {
        // A client that asks the hijacked name server is led astray, and a good client knows another address.
        assert_eq!(share[&("dns-bad", None, work, peer)], Some(0.0));
        assert_eq!(share[&("one-bad-ip", None, work, peer)], Some(1.0));
    }
    assert!(fs::read_to_string(out.join("README.md")).expect("tables").contains("| elevator:ci |"));
}

/// Longest time of the slice.
const SECONDS_MAX: u64 = 360;
