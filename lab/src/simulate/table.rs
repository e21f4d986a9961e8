//! The simulation beside the lab, as text.

use std::fmt::Write as _;

use super::beside::{Figures, Row, Simulation, Verdict};
use crate::results::{network, seconds, share};

/// Writes a row for whoever looks on.
pub(crate) fn line(row: &Row) -> String {
    let figures = |figures: &Figures| {
        let time = figures.p50_ms.map_or_else(|| "–".to_owned(), |ms| format!("{} s", seconds(ms)));
        format!("{:>5}  p50 {time:>8}", share(figures.success_share))
    };
    let lab = row.lab.as_ref().map_or_else(String::new, |lab| format!("lab {}", figures(lab)));
    let name = network(&row.scenario, row.variant.as_deref());
    let (simulated, verdict) = (figures(&row.simulated), row.verdict.as_str());
    format!("{name:24} {:14} {simulated}   {lab:24}  {:>5}  {verdict}", row.work, ratio(row))
}

/// Writes the table, and how it came about.
pub(crate) fn markdown(simulation: &Simulation) -> String {
    let mut text = INTRODUCTION.to_owned();
    let Simulation { date, command, version, .. } = simulation;
    put(
        &mut text,
        format_args!("\nSimulated on {date} by `{command}`, Ropeway {version}: {}.\n", simulation.summary()),
    );
    text.push_str(HEAD);
    for row in &simulation.rows {
        let name = network(&row.scenario, row.variant.as_deref());
        let lab = row.lab.as_ref().map_or_else(|| "– | – | –".to_owned(), figures);
        let verdict = match row.verdict {
            Verdict::Off => "**off**",
            verdict @ (Verdict::Agrees
            | Verdict::ByChance
            | Verdict::NoLabFigure
            | Verdict::NotScored
            | Verdict::Void) => verdict.as_str(),
        };
        let (simulated, chance, ratio) = (figures(&row.simulated), chance(row), ratio(row));
        put(
            &mut text,
            format_args!("| {name} | {} | {simulated} | {chance} | {lab} | {ratio} | {verdict} |\n", row.work),
        );
    }
    if !simulation.missing.is_empty() {
        text.push_str("\n## Missing\n\n| scenario | work | why |\n|---|---|---|\n");
    }
    for missing in &simulation.missing {
        let name = network(&missing.scenario, missing.variant.as_deref());
        put(&mut text, format_args!("| {name} | {} | {} |\n", missing.work, missing.reason));
    }
    text
}

fn figures(figures: &Figures) -> String {
    let p50 = figures.p50_ms.map_or_else(|| "–".to_owned(), seconds);
    format!("{} | {} | {p50}", figures.requests, share(figures.success_share))
}

fn chance(row: &Row) -> String {
    row.chance_ms.map_or_else(|| "–".to_owned(), |(low, high)| format!("{} to {}", seconds(low), seconds(high)))
}

fn ratio(row: &Row) -> String {
    row.ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    text.write_fmt(line).expect("a string takes what is written");
}

const INTRODUCTION: &str = "\
# The simulation beside the lab

Written by `ropeway-lab simulate`; [simulation.json](simulation.json) has the same for programs. The simulation runs the machines of
Ropeway's client and gateway in virtual time, through the same scenarios and the same model of the access link; TCP, TLS, QUIC and name
servers are models. The lab's figures are Ropeway's in [latest.json](latest.json). Medians are in seconds; a failed request counts with
30 s. A ratio is the simulated median by the lab's.

The lab has a few runs a cell, the simulation many. *by chance* is the interval in which 95 of 100 medians lie that come of as many
simulated runs as the lab made, drawn at random. Where the medians differ by more than 20 % and the lab's is within that interval, the row
says *by chance*: requests of one run go one of two ways, or a single lost packet decides, and so few runs cannot tell more; the wider
the interval, the less the row shows. Where the lab's median is outside, the row is off, and the simulation to be corrected.
";

const HEAD: &str = "
| scenario | work | requests simulated | success | p50 | p50 by chance | requests in the lab | success | p50 | ratio | verdict |
|---|---|---|---|---|---|---|---|---|---|---|
";
