//! The two files that a benchmark leaves: one for programs, one for people.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde_json::Value;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::figure::{Figure, rounded};
use super::{BenchError, process};
use crate::data_dir::unix_seconds;

/// The figures measured so far, on top of those of earlier runs.
#[derive(Debug)]
pub(super) struct Report {
    folder: PathBuf,
    machine: String,
    date: String,
    entries: Vec<Value>,
}

impl Report {
    /// Reads what an earlier run left in the folder, if there is anything.
    pub(super) fn open(folder: &Path) -> Result<Self, BenchError> {
        let path = folder.join(JSON_FILE);
        let entries = match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|error| BenchError::File { path, source: std::io::Error::other(error) })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(BenchError::File { path, source }),
        };
        let date = date(unix_seconds(SystemTime::now()));
        Ok(Self { folder: folder.to_owned(), machine: process::machine(), date, entries })
    }

    /// Gives the entry of a figure.
    pub(super) fn entry(&self, figure: &Figure) -> Value {
        figure.entry(&self.machine, &self.date)
    }

    /// Takes a figure in place of an earlier one of its name.
    pub(super) fn put(&mut self, figure: &Figure) {
        let entry = self.entry(figure);
        match self.entries.iter_mut().find(|known| known["name"] == entry["name"]) {
            Some(known) => *known = entry,
            None => self.entries.push(entry),
        }
    }

    /// Writes both files.
    pub(super) fn write(&self) -> Result<(), BenchError> {
        let file = |path: PathBuf| move |source| BenchError::File { path, source };
        fs::create_dir_all(&self.folder).map_err(file(self.folder.clone()))?;
        let path = self.folder.join(JSON_FILE);
        let json = format!("{:#}\n", Value::Array(self.entries.clone()));
        fs::write(&path, json).map_err(file(path))?;
        let path = self.folder.join(TEXT_FILE);
        fs::write(&path, self.text()).map_err(file(path))
    }

    fn text(&self) -> String {
        let mut text = String::from(INTRODUCTION);
        for entry in &self.entries {
            let number = |key: &str| entry[key].as_f64().map_or_else(|| "–".to_owned(), shown);
            let runs: Vec<f64> = entry["runs"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
            let low = runs.iter().copied().fold(f64::INFINITY, f64::min);
            let high = runs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let peer = match entry["peer"].as_str() {
                Some(peer) => format!("{peer}: {} ({}×)", number("peer_value"), number("ratio")),
                None => "–".to_owned(),
            };
            let word = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            writeln!(
                text,
                "| {} | **{}** {} | {} to {} ({}) | {} {} | {peer} | `{}` |",
                word("what"),
                number("value"),
                word("unit"),
                shown(low),
                shown(high),
                runs.len(),
                if entry["better"] == "higher" { "≥" } else { "≤" },
                number("must"),
                word("name"),
            )
            .expect("a string takes any text");
        }
        let mut made: Vec<_> = self
            .entries
            .iter()
            .map(|entry| {
                let word = |key: &str| entry[key].as_str().unwrap_or_default();
                format!("{} on {}", word("date").split('T').next().unwrap_or_default(), word("machine"))
            })
            .collect();
        made.sort();
        made.dedup();
        for made in made {
            writeln!(text, "\nMeasured {made}.").expect("a string takes any text");
        }
        text
    }
}

/// Says a figure in a line.
pub(super) fn line(figure: &Figure) -> String {
    let mark = match (figure.must, figure.meets()) {
        (Some(mark), Some(true)) => format!(", mark {} met", shown(mark)),
        (Some(mark), Some(false)) => format!(", mark {} MISSED", shown(mark)),
        (Some(_) | None, _) => String::new(),
    };
    let peer = figure.peer.as_ref().zip(figure.ratio());
    let peer = peer.map(|(peer, ratio)| format!(", {}× {}", shown(ratio), peer.name)).unwrap_or_default();
    format!("  {:<42} {:>10} {}{mark}{peer}", figure.name, shown(figure.value()), figure.unit)
}

/// Writes a number for people: thousands apart, no zeros behind.
fn shown(value: f64) -> String {
    let text = rounded(value).to_string();
    let (whole, part) = text.split_once('.').map_or((text.as_str(), None), |(whole, part)| (whole, Some(part)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) && grouped != "-" {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    part.map_or(grouped.clone(), |part| format!("{grouped}.{part}"))
}

/// Writes a time as RFC 3339 does, in UTC.
fn date(unix_seconds: u64) -> String {
    let time = i64::try_from(unix_seconds).ok().and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

const JSON_FILE: &str = "benchmarks.json";
const TEXT_FILE: &str = "benchmarks.md";

const INTRODUCTION: &str = "\
# Benchmarks

Written by `cargo run --release -- bench`; `benchmarks.json` has the same for programs. The load comes from a process of
its own, over loopback and real TLS; processor time and memory are the gateway's alone, read from `/proc`. Processor time
holds the kernel's part, and on loopback that includes receiving at the other end. A value is the median of its runs.

| what | value | range (runs) | must | beside it | name |
|---|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::figure::{Better, Peer};

    fn figure(runs: Vec<f64>) -> Figure {
        let peer = Peer { name: "other 1.0".to_owned(), runs: vec![2.0] };
        Figure::new("x_ms", "time of x", "ms", Better::Lower).must(5.0).runs(runs).beside(Some(peer))
    }

    #[test]
    fn a_new_figure_takes_the_place_of_the_old_one_and_the_others_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut report = Report::open(folder.path()).expect("nothing there");
        report.put(&Figure::new("y_ms", "time of y", "ms", Better::Lower).runs(vec![1.0]));
        report.put(&figure(vec![9.0]));
        report.write().expect("written");
        let mut report = Report::open(folder.path()).expect("read back");
        report.put(&figure(vec![3.0, 4.0, 5.0]));
        report.write().expect("written");
        let text = fs::read_to_string(folder.path().join(JSON_FILE)).expect("there");
        let entries: Vec<Value> = serde_json::from_str(&text).expect("JSON");
        let values: Vec<_> = entries.iter().map(|entry| (entry["name"].as_str(), entry["value"].as_f64())).collect();
        assert_eq!(values, [(Some("y_ms"), Some(1.0)), (Some("x_ms"), Some(4.0))]);
        assert_eq!((entries[1]["ratio"].as_f64(), entries[1]["better"].as_str()), (Some(2.0), Some("lower")));
        let text = fs::read_to_string(folder.path().join(TEXT_FILE)).expect("there");
        assert!(text.contains("| time of x | **4** ms | 3 to 5 (3) | ≤ 5 | other 1.0: 2 (2×) | `x_ms` |"), "{text}");
    }

    #[test]
    fn numbers_are_grouped_for_people() {
        assert_eq!([shown(1_234_567.0), shown(123.0), shown(0.25)], ["1,234,567", "123", "0.25"]);
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(date(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
