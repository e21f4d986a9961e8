//! The results of comparisons: a folder with records for programs, tables and charts for people.

mod chart;
mod machine;
mod record;
mod table;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub use self::record::Record;
pub(crate) use self::{
    machine::{Machine, today},
    record::network,
    table::{seconds, share},
};
use crate::compare::About;

/// The results in a folder: those of the newest comparison of each cell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Results {
    /// One a cell.
    pub(crate) records: Vec<Record>,
    /// How they came about.
    pub(crate) story: Story,
}

/// How results came about.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Story {
    /// The comparisons, oldest first.
    pub(crate) comparisons: Vec<Comparison>,
    /// Peers, their versions and settings.
    pub(crate) peers: Vec<About>,
    /// Cells, or runs of them, that are not there.
    pub(crate) missing: Vec<Missing>,
}

/// One comparison.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Comparison {
    /// The day, as in 2026-11-30.
    pub(crate) date: String,
    /// The command that repeats it.
    pub(crate) command: String,
    /// Where it ran.
    pub(crate) machine: Machine,
}

/// What is not there, and why.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub(crate) struct Missing {
    /// Name of the scenario.
    pub(crate) scenario: String,
    /// Its variant.
    pub(crate) variant: Option<String>,
    /// Name of the work.
    pub(crate) work: String,
    /// Name of the peer; every peer where it is none.
    pub(crate) peer: Option<String>,
    /// Why.
    pub(crate) reason: String,
}

/// Why results cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ReportError {
    /// A file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Results {
    /// Reads what is in a folder; nothing where there is none.
    pub(crate) fn read(folder: &Path) -> Result<Self, ReportError> {
        Ok(Self { records: read(&folder.join(RECORDS))?, story: read(&folder.join(STORY))? })
    }

    /// Takes the results of a newer comparison over: its cells replace those that were there.
    pub(crate) fn merge(&mut self, newer: Self) {
        let cells: Vec<_> = newer.records.iter().map(Record::cell).collect();
        self.records.retain(|record| !cells.contains(&record.cell()));
        let is_known = |missing: &Missing| {
            newer.story.missing.iter().any(|other| other.is_of_cell(missing))
                || cells.iter().any(|cell| missing.is_of(*cell))
        };
        self.story.missing.retain(|missing| !is_known(missing));
        self.story.missing.extend(newer.story.missing);
        self.story.missing.sort();
        self.records.extend(newer.records);
        self.records.sort_by(|one, other| one.cell().cmp(&other.cell()));
        for comparison in newer.story.comparisons {
            self.story.comparisons.retain(|known| known.command != comparison.command);
            self.story.comparisons.push(comparison);
        }
        for about in newer.story.peers {
            self.story.peers.retain(|known| known.peer != about.peer);
            self.story.peers.push(about);
        }
        self.story.peers.sort_by(|one, other| one.peer.cmp(&other.peer));
    }

    /// Writes records, tables and charts.
    pub(crate) fn write(&self, folder: &Path) -> Result<(), ReportError> {
        let files = [
            (RECORDS, json(&self.records)),
            (STORY, json(&self.story)),
            ("README.md", table::overview(self)),
            ("table.md", table::details(self)),
        ];
        write(folder, files)?;
        write(folder, chart::all(&self.records))
    }
}

impl Missing {
    /// Says why the cell of a record is not there.
    pub(crate) fn of(record: Record, reason: String) -> Self {
        let Record { scenario, variant, work, peer, .. } = record;
        Self { scenario, variant, work, peer: Some(peer), reason }
    }

    fn is_of(&self, (scenario, variant, work, peer): (&str, Option<&str>, &str, &str)) -> bool {
        let is_peer = self.peer.as_deref().is_none_or(|own| own == peer);
        (self.scenario.as_str(), self.variant.as_deref(), self.work.as_str()) == (scenario, variant, work) && is_peer
    }

    fn is_of_cell(&self, other: &Self) -> bool {
        (&self.scenario, &self.variant, &self.work, &self.peer)
            == (&other.scenario, &other.variant, &other.work, &other.peer)
    }
}

/// Writes files into a folder, which is made if needed.
pub(crate) fn write<N: AsRef<Path>>(
    folder: &Path,
    files: impl IntoIterator<Item = (N, String)>,
) -> Result<(), ReportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ReportError::Write { path, source }
    };
    fs::create_dir_all(folder).map_err(failed(folder))?;
    for (name, text) in files {
        let path = folder.join(name);
        fs::write(&path, text).map_err(failed(&path))?;
    }
    Ok(())
}

/// Writes a value as a file for programs.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("records of texts and numbers can be written as JSON") + "\n"
}

fn read<T: DeserializeOwned + Default>(path: &Path) -> Result<T, ReportError> {
    let failed = |reason: String| ReportError::Read { path: path.to_owned(), reason };
    match fs::read(path) {
        Ok(text) => serde_json::from_slice(&text).map_err(|error| failed(error.to_string())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// The records, for programs.
const RECORDS: &str = "latest.json";

/// How they came about.
const STORY: &str = "about.json";

#[cfg(test)]
mod tests {
    use super::*;

    fn record(work: &str, peer: &str, p95_ms: f64) -> Record {
        Record {
            scenario: "elevator".into(),
            variant: None,
            work: work.into(),
            peer: peer.into(),
            seeds: 3,
            requests: 12,
            success_share: Some(1.0),
            p50_ms: Some(p95_ms / 2.0),
            p95_ms: Some(p95_ms),
            p99_ms: Some(p95_ms),
            p95_low_ms: Some(p95_ms - 1.0),
            p95_high_ms: Some(p95_ms + 1.0),
            after_outage_ms: None,
            bytes: Some(12_000),
            posts_twice: None,
            void: false,
        }
    }

    fn missing(work: &str, peer: Option<&str>, reason: &str) -> Missing {
        let peer = peer.map(str::to_owned);
        Missing { scenario: "elevator".into(), variant: None, work: work.into(), peer, reason: reason.into() }
    }

    fn these(records: Vec<Record>, missing: Vec<Missing>) -> Results {
        Results { records, story: Story { missing, ..Story::default() } }
    }

    #[test]
    fn a_newer_comparison_replaces_its_own_cells_and_no_other() {
        let mut results = these(
            vec![record("get-2k", "one", 10.0), record("get-2k", "two", 20.0)],
            vec![missing("burst", Some("one"), "interrupted"), missing("cold", Some("one"), "interrupted")],
        );
        results.merge(these(
            vec![record("get-2k", "one", 11.0), record("burst", "one", 30.0)],
            vec![missing("cold", Some("one"), "the budget is spent")],
        ));
        let times: Vec<_> = results.records.iter().map(|record| (record.work.as_str(), record.p95_ms)).collect();
        assert_eq!(times, [("burst", Some(30.0)), ("get-2k", Some(11.0)), ("get-2k", Some(20.0))]);
        assert_eq!(results.story.missing, [missing("cold", Some("one"), "the budget is spent")]);
    }

    #[test]
    fn what_is_written_is_read_back_and_has_the_named_fields() {
        let folder = tempfile::tempdir().expect("a folder");
        let results = these(vec![record("get-2k", "one", 10.0)], vec![missing("cold", None, "no outage")]);
        results.write(folder.path()).expect("written");
        let back = Results::read(folder.path()).expect("read");
        assert_eq!((back.records, back.story.missing), (results.records, results.story.missing));

        let text = fs::read_to_string(folder.path().join("latest.json")).expect("there");
        let list: Vec<serde_json::Map<String, serde_json::Value>> = serde_json::from_str(&text).expect("a list");
        let mut fields: Vec<_> = list[0].keys().map(String::as_str).collect();
        fields.sort_unstable();
        let named = "after_outage_ms bytes p50_ms p95_high_ms p95_low_ms p95_ms p99_ms peer posts_twice requests scenario \
                     seeds success_share variant void work";
        assert!(fields.into_iter().eq(named.split_whitespace()));
    }

    #[test]
    fn an_empty_folder_has_no_results() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(Results::read(folder.path()).expect("read").records.is_empty());
    }
}
