//! The outcomes of runs that were done, one file each, so that a comparison goes on where it was interrupted.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::plan::Run;
use crate::scoring::Outcome;

/// A folder of outcomes.
#[derive(Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
}

/// What is kept of a run.
#[derive(Debug, Deserialize, Serialize)]
struct Kept {
    /// All that the outcome depends on; the name of the file is only its hash.
    key: Vec<String>,
    outcome: Outcome,
}

impl Cache {
    /// Opens the folder, which is made if needed.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Gives the outcome of a run, if it was done. What cannot be read was not done.
    pub(crate) fn get(&self, run: &Run) -> Option<Outcome> {
        let text = fs::read(self.path(run)).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        (kept.key == key(run)).then_some(kept.outcome)
    }

    /// Keeps the outcome of a run; a crash leaves it whole or not at all.
    pub(crate) fn put(&self, run: &Run, outcome: &Outcome) -> io::Result<()> {
        let kept = Kept { key: key(run), outcome: outcome.clone() };
        let path = self.path(run);
        let draft = path.with_extension("draft");
        fs::write(&draft, serde_json::to_vec(&kept).map_err(io::Error::other)?)?;
        fs::rename(draft, path)
    }

    fn path(&self, run: &Run) -> PathBuf {
        let hash = key(run)
            .iter()
            .flat_map(|part| part.bytes().chain([0]))
            .fold(FNV_BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
        let name = format!(
            "{}.{}.{}.{}.{hash:016x}.json",
            run.cell.chosen.label(),
            run.cell.work,
            run.cell.peer.name,
            run.seed
        );
        self.folder.join(name)
    }
}

fn key(run: &Run) -> Vec<String> {
    let cell = &run.cell;
    vec![
        FORMAT.to_owned(),
        cell.chosen.text.clone(),
        cell.chosen.label(),
        cell.work.to_string(),
        cell.peer.name.clone(),
        cell.peer.about.version.clone(),
        cell.peer.about.settings.clone(),
        cell.peer.build.to_string(),
        run.seed.to_string(),
    ]
}

/// Changes when the harness measures in another way, so that old outcomes are not taken for new ones.
const FORMAT: &str = "1";

/// Start and factor of FNV-1a, 64 bits (Fowler, Noll, Vo; draft-eastlake-fnv).
pub(super) const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
pub(super) const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::tests::a_run;

    #[test]
    fn an_outcome_is_found_again_until_the_scenario_changes() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path()).expect("opened");
        let outcome = Outcome { requests: Vec::new(), bytes: 7, void: None };
        let run = a_run("rtt_ms = 60", 1);
        cache.put(&run, &outcome).expect("kept");

        assert_eq!(cache.get(&run), Some(outcome));
        assert_eq!(cache.get(&a_run("rtt_ms = 60", 2)), None);
        assert_eq!(cache.get(&a_run("rtt_ms = 61", 1)), None);
    }

    #[test]
    fn a_torn_file_is_as_good_as_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let cache = Cache::open(folder.path()).expect("opened");
        let run = a_run("rtt_ms = 60", 1);
        fs::write(cache.path(&run), "{\"key\":").expect("written");
        assert_eq!(cache.get(&run), None);
    }
}
