//! The results as tables.

use std::{collections::BTreeSet, fmt::Write as _};

use super::{Record, Results, chart, network};

/// Writes the overview: how it was measured, a chart and a matrix for each work, and what is missing.
pub(super) fn overview(results: &Results) -> String {
    let mut text = INTRODUCTION.to_owned();
    for work in works(&results.records) {
        let records: Vec<_> = results.records.iter().filter(|record| record.work == work).collect();
        put(&mut text, &format!("\n## {work}\n\n![Time to success]({})\n\n", chart::file(&work)));
        matrix(&mut text, &records);
    }
    text.push_str("\n## Peers\n\n| peer | version | retry settings and their source |\n|---|---|---|\n");
    for peer in &results.story.peers {
        put(&mut text, &format!("| {} | {} | {} |\n", peer.peer, peer.version, peer.settings));
    }
    text.push_str("\n## Missing\n\n");
    if results.story.missing.is_empty() {
        text.push_str("Nothing.\n");
    } else {
        text.push_str("| scenario | work | peer | why |\n|---|---|---|---|\n");
    }
    for missing in &results.story.missing {
        let network = network(&missing.scenario, missing.variant.as_deref());
        let peer = missing.peer.as_deref().unwrap_or("all");
        put(&mut text, &format!("| {network} | {} | {peer} | {} |\n", missing.work, missing.reason));
    }
    text.push_str("\n## Measured\n\n");
    for comparison in &results.story.comparisons {
        let machine = &comparison.machine;
        let place = format!(
            "{}, {} processors, Linux {}, congestion control {}",
            machine.processor, machine.processors, machine.kernel, machine.congestion_control
        );
        put(&mut text, &format!("- {} by `{}` on {place}\n", comparison.date, comparison.command));
    }
    text
}

/// Writes every record with all its figures.
pub(super) fn details(results: &Results) -> String {
    let mut text = DETAILS.to_owned();
    for record in &results.records {
        let interval = match (record.p95_low_ms, record.p95_high_ms) {
            (Some(low), Some(high)) => format!("{} to {}", seconds(low), seconds(high)),
            _ => "–".to_owned(),
        };
        let time = |ms: Option<f64>| ms.map_or_else(|| "–".to_owned(), seconds);
        let number = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), |number| number.to_string());
        put(
            &mut text,
            &format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {interval} | {} | {} | {} | {} | {} |\n",
                record.network(),
                record.work,
                record.peer,
                record.seeds,
                record.requests,
                share(record.success_share),
                time(record.p50_ms),
                time(record.p95_ms),
                time(record.p99_ms),
                time(record.after_outage_ms),
                number(record.bytes),
                number(record.posts_twice.map(|posts| posts as u64)),
                if record.void { "yes" } else { "" },
            ),
        );
    }
    text
}

/// A matrix of scenarios and peers: success, median and 95th percentile, and what is wrong.
fn matrix(text: &mut String, records: &[&Record]) {
    let peers: BTreeSet<_> = records.iter().map(|record| record.peer.as_str()).collect();
    let networks: BTreeSet<_> =
        records.iter().map(|record| (record.scenario.as_str(), record.variant.as_deref())).collect();
    put(text, &format!("| scenario | {} |\n", peers.iter().copied().collect::<Vec<_>>().join(" | ")));
    put(text, &format!("|---|{}\n", "---|".repeat(peers.len())));
    for (scenario, variant) in networks {
        put(text, &format!("| {} |", network(scenario, variant)));
        for peer in &peers {
            let found = records.iter().find(|record| record.cell() == (scenario, variant, record.work.as_str(), peer));
            put(text, &format!(" {} |", found.map_or_else(String::new, |record| entry(record))));
        }
        text.push('\n');
    }
}

/// One cell of the matrix.
fn entry(record: &Record) -> String {
    if record.void {
        return "void".to_owned();
    }
    let (Some(p50), Some(p95)) = (record.p50_ms, record.p95_ms) else { return "not scored".to_owned() };
    let twice =
        record.posts_twice.filter(|posts| *posts > 0).map(|posts| format!(", {posts} twice")).unwrap_or_default();
    format!("{}, {} / {}{twice}", share(record.success_share), seconds(p50), seconds(p95))
}

/// Gives the works in the order in which they first come.
pub(super) fn works(records: &[Record]) -> Vec<String> {
    let works: BTreeSet<_> = records.iter().map(|record| record.work.clone()).collect();
    works.into_iter().collect()
}

/// Writes a share of successes.
pub(crate) fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

/// Writes a time in seconds, with three digits that count.
pub(crate) fn seconds(ms: f64) -> String {
    let seconds = ms / 1000.0;
    let digits = if seconds >= 10.0 {
        1
    } else if seconds >= 1.0 {
        2
    } else {
        3
    };
    format!("{seconds:.digits$}")
}

fn put(text: &mut String, line: &str) {
    text.write_str(line).expect("a string takes what is written");
}

const INTRODUCTION: &str = "\
# Ropeway and other clients on weak networks

Written by `ropeway-lab compare`; [latest.json](latest.json) has the same for programs, and [table.md](table.md) every figure. Each
run is a lab of its own: a peer, a work, a seed. An entry is the share of requests that succeeded within 30 s, then median / 95th
percentile of the time to success in seconds. A failed request counts with 30 s. Success is judged by the origin's log, by the length
of the body and by the harness's clock, never by the peer's word. Only requests are scored whose bytes the link could have carried
twice before their deadline. `twice`: POSTs that the origin executed more than once. `void`: the emulated link kept its times too
badly to count. In the charts a line is the interval of the 95th percentile (bootstrap, 95 %), and a hollow dot has failures.
";

const DETAILS: &str = "\
# Every figure

Times in seconds, bytes on the access links both ways over all seeds. How it was measured: [README.md](README.md).

| scenario | work | peer | seeds | requests | success | p50 | p95 | p95 interval | p99 | after outage | bytes | POSTs twice | void |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_that_count() {
        assert_eq!([80.4, 1234.0, 30_000.0].map(seconds), ["0.080", "1.23", "30.0"]);
    }

    #[test]
    fn every_figure_stands_under_its_name() {
        let record = serde_json::json!({
            "scenario": "a", "variant": null, "work": "get-2k", "peer": "b", "seeds": 3, "requests": 12, "success_share": 0.5,
            "p50_ms": 1_000, "p95_ms": 2_000, "p99_ms": 3_000, "p95_low_ms": 1_500, "p95_high_ms": 2_500,
            "after_outage_ms": 4_000, "bytes": 7, "posts_twice": 1, "void": false,
        });
        let records = vec![serde_json::from_value(record).expect("a record")];
        let text = details(&Results { records, ..Results::default() });
        let cells =
            |line: &str| line.split(" | ").map(|cell| cell.trim_matches(['|', ' ']).to_owned()).collect::<Vec<_>>();
        let table: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).map(cells).collect();
        let named: Vec<_> = table[0].iter().zip(&table[1]).map(|(name, figure)| format!("{name} {figure}")).collect();
        for expected in
            ["p50 1.00", "p95 2.00", "p95 interval 1.50 to 2.50", "p99 3.00", "after outage 4.00", "bytes 7"]
        {
            assert!(named.iter().any(|named| named == expected), "{expected}: {named:?}");
        }
    }
}
