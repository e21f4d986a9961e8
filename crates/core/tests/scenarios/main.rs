//! Every scenario of the project, as a file that reads and says what its numbers rest on.
#![cfg(feature = "sim")]
#![expect(clippy::unwrap_used, reason = "all of it is a test: a failure is a panic with its place")]

mod simulation;

use std::{collections::BTreeMap, fs, path::Path};

use ropeway_core::sim::{Scenario, Work, link::Direction, run, trace::Traces};

/// Every file of `scenarios/` and every variant in it.
fn all() -> Vec<Scenario> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut scenarios = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let variants = Scenario::variants(name, &text).unwrap_or_else(|error| panic!("{error}"));
        let names = [None].into_iter().chain(variants.iter().map(|variant| Some(variant.as_str())));
        scenarios.extend(names.map(|variant| {
            Scenario::parse(name, &text, variant).unwrap_or_else(|error| panic!("{variant:?}: {error}"))
        }));
    }
    scenarios.sort_by(|one, other| (&one.name, &one.variant).cmp(&(&other.name, &other.variant)));
    scenarios
}

#[test]
fn every_scenario_of_the_list_is_there_with_every_variant_readable() {
    let mut names: Vec<String> = all().into_iter().map(|scenario| scenario.name).collect();
    names.dedup();
    let expected = "2g-rural 3g-slow content-tamper dns-bad drive-burst edge-lossy elevator fake-wifi handover-train island \
                    isp-degraded lb-broken lte-walk nat-short old-middlebox one-bad-ip ports-filtered site-outage subway \
                    tls-bad udp-hostile unit-entry-down v6-broken wifi-good wifi-to-cell";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn a_request_of_every_run_begins_within_the_scenario_and_early_enough_to_end() {
    for scenario in all() {
        let last = scenario.starts.iter().max().unwrap();
        assert!(*last < scenario.duration, "{} {:?}: {last:?}", scenario.name, scenario.variant);
        assert!(scenario.starts.is_sorted(), "{} {:?}", scenario.name, scenario.variant);
    }
}

#[test]
fn a_scenario_with_an_outage_begins_a_request_just_before_it() {
    for scenario in all() {
        let Some((start, _)) = scenario.outages().find(|(start, _)| start.as_secs() >= 2) else { continue };
        let begun = scenario.starts.iter().any(|begin| *begin < start && (start - *begin).as_millis() <= 1_000);
        assert!(begun, "{} {:?}: outage at {start:?}", scenario.name, scenario.variant);
    }
}

#[test]
fn only_variants_that_say_so_need_a_recorded_trace() {
    for scenario in all() {
        let is_recorded = scenario.variant.as_deref() == Some("recorded");
        assert_eq!(scenario.recorded_traces().is_empty(), !is_recorded, "{} {:?}", scenario.name, scenario.variant);
        if !is_recorded {
            let mut traces = Traces::new(1);
            for access in &scenario.access {
                access.shapes.down.spec(Direction::Down, &mut traces).unwrap();
                access.shapes.up.spec(Direction::Up, &mut traces).unwrap();
            }
        }
    }
}

#[test]
fn what_is_scaled_is_a_variant_for_ci_and_shorter_than_its_base() {
    let all = all();
    let bases: BTreeMap<&str, &Scenario> =
        all.iter().filter(|scenario| scenario.variant.is_none()).map(|base| (base.name.as_str(), base)).collect();
    let scaled: Vec<&Scenario> = all.iter().filter(|scenario| scenario.scaled.is_some()).collect();
    for scenario in &scaled {
        assert!(scenario.variant.as_deref().is_some_and(|variant| variant.starts_with("ci")), "{}", scenario.name);
        assert!(scenario.duration < bases[scenario.name.as_str()].duration, "{}", scenario.name);
    }
    assert!(scaled.iter().any(|scenario| scenario.name == "elevator"));
}

#[test]
fn a_slow_network_is_not_filled_with_handshakes() {
    let scenario = all().into_iter().find(|scenario| scenario.name == "2g-rural").unwrap();
    for seed in 1..=10 {
        for request in run(&scenario, Work::Get2k, seed).unwrap().requests {
            assert_eq!(request.error, None, "seed {seed}, {:?}", request.start);
        }
    }
}
