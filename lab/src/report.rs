//! What a run gives: what the network did, beside what the program took.

use std::{fmt::Write, time::Duration};

use serde::Serialize;

use crate::emulator::{DirectionReport, LatenessSummary, WireReport};

/// What the network of a lab did.
#[derive(Clone, Debug, Serialize)]
pub struct NetworkReport {
    /// Name of the scenario, with its variant.
    pub scenario: String,
    /// Seed of its chances.
    pub seed: u64,
    /// What happened, in order.
    pub timeline: Vec<Happening>,
    /// What each access link carried.
    pub links: Vec<WireReport>,
    /// How late the emulator was.
    pub lateness: LatenessSummary,
    /// Whether the emulator had real-time priority.
    pub realtime: bool,
    /// Congestion control of TCP at both ends.
    pub congestion_control: String,
    /// Why the run is void: the numbers above show the machine rather than the network.
    pub void: Option<String>,
}

/// Something that the network did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Happening {
    /// When, seconds since the network began to follow its scenario.
    pub at_s: f64,
    /// What, in words.
    pub what: String,
}

/// What a run gives.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RunReport {
    /// The program and its arguments.
    pub(crate) command: Vec<String>,
    /// Its exit code.
    pub(crate) exit_code: u8,
    /// How long it ran, milliseconds.
    pub(crate) took_ms: f64,
    /// The signal by which the run was ended early.
    pub(crate) stopped_by: Option<&'static str>,
    /// What the network did meanwhile.
    #[serde(flatten)]
    pub(crate) network: NetworkReport,
}

impl Happening {
    /// Tells of something at a time since the beginning.
    pub(crate) fn new(at: Duration, what: impl Into<String>) -> Self {
        Self { at_s: at.as_secs_f64(), what: what.into() }
    }
}

impl RunReport {
    /// Writes it for people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        let network = &self.network;
        let mut line =
            |line: std::fmt::Arguments<'_>| writeln!(text, "{line}").expect("a string takes what is written");
        line(format_args!("── {}, seed {} ──", network.scenario, network.seed));
        let stopped = self.stopped_by.map(|signal| format!(", stopped by {signal}")).unwrap_or_default();
        line(format_args!("program   took {:.3} s, exit code {}{stopped}", self.took_ms / 1e3, self.exit_code));
        for (index, happening) in network.timeline.iter().enumerate() {
            let label = if index == 0 { "network" } else { "" };
            line(format_args!("{label:<9} {:>8.3} s  {}", happening.at_s, happening.what));
        }
        for link in &network.links {
            line(format_args!("{:<9} down  {}", link.link, direction(&link.down)));
            line(format_args!("{:<9} up    {}", "", direction(&link.up)));
        }
        let lateness = &network.lateness;
        line(format_args!(
            "emulator  {} packets, late by {:.2} ms (p50), {:.2} ms (p99), {:.2} ms (most){}; tcp {}",
            lateness.packets,
            lateness.p50_ms,
            lateness.p99_ms,
            lateness.most_ms,
            if network.realtime { "" } else { ", without real-time priority" },
            network.congestion_control,
        ));
        if let Some(reason) = &network.void {
            line(format_args!("VOID      {reason}"));
        }
        text.trim_end().to_owned()
    }
}

/// Writes what one direction carried, on one line.
fn direction(report: &DirectionReport) -> String {
    let counts = &report.counts;
    let mut text = format!(
        "{} packets ({}) in, {} out",
        counts.offered,
        bytes(counts.offered_bytes),
        counts.delivered - report.undeliverable
    );
    let mut others = Vec::new();
    for (count, what) in [
        (counts.lost_outage, "lost in outages"),
        (counts.lost_burst, "lost in bursts"),
        (counts.lost_random, "lost at random"),
        (counts.lost_queue, "lost to a full queue"),
        (report.undeliverable, "lost to an interface that was down"),
        (counts.duplicated, "doubled"),
        (counts.corrupted, "corrupted"),
        (counts.reordered, "reordered"),
        (report.mended, "given the right checksum"),
    ] {
        if count > 0 {
            others.push(format!("{count} {what}"));
        }
    }
    if !others.is_empty() {
        text.push_str("; ");
        text.push_str(&others.join(", "));
    }
    text
}

fn bytes(count: u64) -> String {
    match count {
        0..10_000 => format!("{count} B"),
        10_000..10_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        10_000_000.. => format!("{:.1} MB", count as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropeway_core::sim::link::LinkCounts;

    #[test]
    fn people_read_what_happened_beside_what_it_took() {
        let counts =
            LinkCounts { offered: 12, offered_bytes: 23_400, delivered: 9, lost_outage: 3, ..LinkCounts::default() };
        let direction = DirectionReport { counts, mended: 0, undeliverable: 0 };
        let network = NetworkReport {
            scenario: "elevator".to_owned(),
            seed: 1,
            timeline: vec![Happening::new(Duration::from_secs(3), "cell: outage, packets are dropped")],
            links: vec![WireReport { link: "cell".to_owned(), down: direction, up: direction }],
            lateness: LatenessSummary { packets: 21, p50_ms: 0.1, p99_ms: 6.25, most_ms: 7.0 },
            realtime: true,
            congestion_control: "cubic".to_owned(),
            void: Some("the emulator was late".to_owned()),
        };
        let report =
            RunReport { command: vec!["true".to_owned()], exit_code: 28, took_ms: 12_345.0, stopped_by: None, network };
        assert_eq!(
            report.text(),
            "── elevator, seed 1 ──\n\
             program   took 12.345 s, exit code 28\n\
             network      3.000 s  cell: outage, packets are dropped\n\
             cell      down  12 packets (23.4 kB) in, 9 out; 3 lost in outages\n\
             \x20         up    12 packets (23.4 kB) in, 9 out; 3 lost in outages\n\
             emulator  21 packets, late by 0.10 ms (p50), 6.25 ms (p99), 7.00 ms (most); tcp cubic\n\
             VOID      the emulator was late"
        );
    }
}
