//! What a comparison consists of: cells, each of several runs.

use std::sync::Arc;

use ropeway_core::sim::Work;

use super::peers::Peer;
use crate::{results::Record, selection::Chosen};

/// One line of the results.
#[derive(Debug)]
pub(crate) struct Cell {
    /// Where.
    pub(crate) chosen: Arc<Chosen>,
    /// What.
    pub(crate) work: Work,
    /// Who.
    pub(crate) peer: Arc<Peer>,
}

/// One run of a cell.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// The cell.
    pub(crate) cell: Arc<Cell>,
    /// Seed of everything random in the network.
    pub(crate) seed: u64,
}

impl Cell {
    /// Begins the record of this cell.
    pub(crate) fn record(&self) -> Record {
        Record::new(&self.chosen.scenario, self.work, &self.peer.name)
    }
}

/// Crosses scenarios, works and peers. Works that a scenario has no place for are left out and listed apart.
pub(crate) fn cells(chosen: &[Arc<Chosen>], works: &[Work], peers: &[Arc<Peer>]) -> (Vec<Arc<Cell>>, Vec<Arc<Cell>>) {
    let cells = chosen.iter().flat_map(|chosen| {
        works.iter().flat_map(move |work| {
            let cell = |peer: &Arc<Peer>| Cell { chosen: chosen.clone(), work: *work, peer: peer.clone() };
            peers.iter().map(move |peer| Arc::new(cell(peer)))
        })
    });
    cells.partition(|cell| !cell.chosen.network.tasks(cell.work).is_empty())
}

/// Lays out the runs: every cell with its first seed, then every cell with its second, so that a comparison that is cut short
/// covers all cells before it repeats any.
pub(crate) fn runs(cells: &[Arc<Cell>], seeds: u64) -> Vec<Run> {
    (1..=seeds).flat_map(|seed| cells.iter().map(move |cell| Run { cell: cell.clone(), seed })).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use ropeway_core::sim::Scenario;

    use super::*;
    use crate::scoring::Network;

    /// A scenario without outages.
    pub(crate) fn a_scenario(text: &str) -> Arc<Chosen> {
        let plain = "summary = 's'\nbasis = 'b'\nsource = 's'\n[access.cell]\nrtt_ms = 60\nrate_kbit = 800\n";
        let scenario = Scenario::parse("plain", plain, None).expect("good");
        let network = Network::steady(vec![Duration::ZERO], Vec::new());
        Arc::new(Chosen { scenario, text: text.to_owned(), network })
    }

    /// A run of a peer that does not exist.
    pub(crate) fn a_run(text: &str, seed: u64) -> Run {
        let cell = Cell { chosen: a_scenario(text), work: Work::Get2k, peer: Arc::new(Peer::of_shell("one", "true")) };
        Run { cell: Arc::new(cell), seed }
    }

    #[test]
    fn every_cell_is_run_once_before_any_is_run_again() {
        let peers = ["one", "two"].map(|name| Arc::new(Peer::of_shell(name, "true")));
        let works = [Work::Get2k, Work::BeforeOutage];
        let (cells, impossible) = cells(&[a_scenario("")], &works, &peers);
        assert_eq!((cells.len(), impossible.len()), (2, 2));
        let order: Vec<_> = runs(&cells, 2).iter().map(|run| (run.seed, run.cell.peer.name.clone())).collect();
        assert_eq!(order, [(1, "one".into()), (1, "two".into()), (2, "one".into()), (2, "two".into())]);
    }
}
