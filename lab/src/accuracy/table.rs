//! The table of `docs/lab.md`.

use std::fmt::Write;

use super::{Accuracy, Measured};
use crate::{emulator::P99_MAX_MS, results::Machine};

/// Writes what was measured as a table, with the machine and the day.
pub(super) fn markdown(accuracy: &Accuracy, effort: u32, machine: &Machine, day: &str) -> String {
    let mut text = format!(
        "Measured on {day} by `ropeway-lab accuracy --effort {effort}` on {} processors of {}, kernel {}.\n\n\
         | what | set | measured down | measured up | good enough | packets |\n|---|---|---|---|---|---|\n",
        machine.processors, machine.processor, machine.kernel
    );
    // Each property was measured down and then up, so a line belongs to the next of the same name and the other way.
    let ups = accuracy.measured.iter().filter(|line| line.direction == "up");
    let downs = accuracy.measured.iter().filter(|line| line.direction == "down");
    for (down, up) in downs.zip(ups) {
        let row = writeln!(
            text,
            "| {} | {} {} | {} | {} | {} to {} | {} |",
            down.property,
            number(down.set),
            down.unit,
            measured(down),
            measured(up),
            number(down.least.max(0.0)),
            number(down.most),
            down.packets,
        );
        row.expect("a string takes what is written");
    }
    let lateness = &accuracy.lateness;
    let end = writeln!(
        text,
        "\nThe emulator handed over {} packets, late by {} ms (p50), {} ms (p99) and {} ms (most){}; more than \
         {P99_MAX_MS} ms (p99) would make a run void.",
        lateness.packets,
        number(lateness.p50_ms),
        number(lateness.p99_ms),
        number(lateness.most_ms),
        if accuracy.realtime { "" } else { ", without real-time priority" },
    );
    end.expect("a string takes what is written");
    text
}

/// Puts the table into a document, between its marks; `None` if it has none.
pub(super) fn insert(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

fn measured(line: &Measured) -> String {
    let number = number(line.measured);
    if line.is_good() { number } else { format!("**{number}**") }
}

/// Writes a number with four digits that count.
fn number(value: f64) -> String {
    let digits = match value.abs() {
        ..10.0 => 3,
        10.0..100.0 => 2,
        100.0..1000.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// Where the table begins in a document.
const BEGIN: &str = "<!-- accuracy: written by `ropeway-lab accuracy --write` -->";

/// Where it ends.
const END: &str = "<!-- end of accuracy -->";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::emulator::LatenessSummary;

    #[test]
    fn a_table_takes_the_place_of_the_last_one() {
        let line = |direction, measured| Measured {
            property: "rate".to_owned(),
            direction,
            set: 780.0,
            measured,
            least: 756.6,
            most: 803.4,
            unit: "kbit/s",
            packets: 173,
        };
        let accuracy = Accuracy {
            measured: vec![line("down", 780.04), line("up", 700.0)],
            lateness: LatenessSummary { packets: 9, p50_ms: 0.031, p99_ms: 1.5, most_ms: 2.0 },
            realtime: true,
        };
        let table = markdown(&accuracy, 4, &Machine::this(), "2026-11-30");
        assert!(table.contains("\n| rate | 780 kbit/s | 780 | **700** | 756.6 to 803.4 | 173 |\n"), "{table}");

        let document = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        assert_eq!(insert(&document, "new\n"), Some(format!("before\n{BEGIN}\nnew\n{END}\nafter\n")));
        assert_eq!(insert("no marks", "new\n"), None);
    }
}
