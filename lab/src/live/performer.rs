//! What makes a network follow its scenario: each change, done to links, interfaces, NAT and rules.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use ropeway_core::sim::{
    Scenario,
    link::Direction,
    scenario::{Action, Fault, Shapes, Step},
    trace::{MissingTrace, Traces},
};

use super::{
    wish::{Wish, WishKind},
    words,
};
use crate::{
    emulator::{Change, Emulator, Scheduled},
    faults::{Installation, nft},
    topology::{Place, Tool, ToolError, Topology, TopologyError, client_addresses, client_routes},
};

/// Why a change cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum ChangeError {
    /// The system refuses.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A recorded trace is not there.
    #[error(transparent)]
    Trace(#[from] MissingTrace),
}

/// Carries out the changes of a scenario, and those asked for from outside.
#[derive(Debug)]
pub(super) struct Performer {
    topology: Arc<Topology>,
    emulator: Arc<Emulator>,
    scenario: Scenario,
    seed: u64,
    traces: Traces,
    links: Vec<Link>,
    /// Faults that are there, by their number, with the settings to put back when they go.
    installed: BTreeMap<usize, Installed>,
    /// The number of the next fault from outside; those of the scenario come before.
    next_fault: usize,
}

/// What is known of an access link.
#[derive(Clone, Debug)]
struct Link {
    shapes: Shapes,
    address_changes: u32,
    is_up: bool,
}

#[derive(Debug)]
struct Installed {
    words: String,
    installation: Installation,
    settings_before: Vec<(&'static str, String)>,
}

impl Performer {
    pub(super) fn new(
        topology: Arc<Topology>,
        emulator: Arc<Emulator>,
        scenario: Scenario,
        seed: u64,
        traces: Traces,
    ) -> Self {
        let link = |shapes: &Shapes| Link { shapes: shapes.clone(), address_changes: 0, is_up: true };
        let links = scenario.access.iter().map(|access| link(&access.shapes)).collect();
        let next_fault = scenario.faults.len();
        Self { topology, emulator, scenario, seed, traces, links, installed: BTreeMap::new(), next_fault }
    }

    /// Says whether the emulator makes this change by itself when it is told the time beforehand.
    pub(super) fn is_of_emulator(action: &Action) -> bool {
        match action {
            Action::Outage { .. } | Action::Shape { .. } => true,
            Action::Address { .. } | Action::Fault { .. } | Action::Interface { .. } | Action::NatRebind { .. } => {
                false
            }
        }
    }

    /// Takes back what an earlier run left: faults, and interfaces that are down.
    pub(super) fn reset(&mut self) -> Result<(), ChangeError> {
        self.emulator.forget();
        while let Some(number) = self.installed.keys().next().copied() {
            self.remove(number)?;
        }
        for link in 0..self.links.len() {
            if !self.links[link].is_up {
                self.interface(link, true)?;
            }
        }
        Ok(())
    }

    /// Begins anew: links empty and as the scenario has them from the start.
    pub(super) fn restart(&mut self, at: Instant) -> Result<(), ChangeError> {
        for link in 0..self.links.len() {
            self.links[link].shapes = self.scenario.access[link].shapes.clone();
            for direction in [Direction::Down, Direction::Up] {
                let spec = shape_of(&self.links[link].shapes, direction).spec(direction, &mut self.traces)?;
                let seed = link_seed(self.seed, link, direction);
                self.order(link, direction, Change::Restart(spec, seed), at);
            }
        }
        Ok(())
    }

    /// Carries out one step of the scenario, which counts from `start`, and tells what it was.
    pub(super) fn step(&mut self, step: Step, start: Instant) -> Result<String, ChangeError> {
        let at = start + step.at;
        Ok(match step.action {
            Action::Address { link } => self.new_address(link)?,
            Action::Fault { fault, is_on: true } => self.install(fault, &self.scenario.faults[fault].clone())?,
            Action::Fault { fault, is_on: false } => {
                self.remove(fault)?;
                format!("over: {}", words::fault(&self.scenario.faults[fault], &self.scenario))
            }
            Action::Interface { link, is_up } => self.interface(link, is_up)?,
            Action::NatRebind { link } => self.rebind(link)?,
            Action::Outage { link, outage } => {
                for direction in [Direction::Down, Direction::Up] {
                    self.order(link, direction, Change::Outage(outage), at);
                }
                format!("{}: {}", self.name(link), words::outage(outage))
            }
            Action::Shape { link, shapes } => {
                self.links[link].shapes = *shapes;
                self.shape(link, at)?
            }
        })
    }

    /// Carries out what is asked for from outside, at once, and tells what it was.
    pub(super) fn fulfil(&mut self, wish: Wish) -> Result<Vec<String>, ChangeError> {
        let now = Instant::now();
        let links = wish.link.map_or_else(|| (0..self.links.len()).collect(), |link| vec![link]);
        let mut done = Vec::new();
        match wish.kind {
            WishKind::Fault(fault) => {
                done.push(self.install(self.next_fault, &fault)?);
                self.next_fault += 1;
            }
            WishKind::Faultless => {
                while let Some((number, installed)) = self.installed.first_key_value() {
                    done.push(format!("over: {}", installed.words));
                    self.remove(*number)?;
                }
            }
            WishKind::Address => done = self.each(links, Self::new_address)?,
            WishKind::Interface { is_up } => done = self.each(links, |own, link| own.interface(link, is_up))?,
            WishKind::NatRebind => done = self.each(links, Self::rebind)?,
            WishKind::Outage(outage) => {
                done = self.each(links, |own, link| {
                    let action = Action::Outage { link, outage };
                    own.step(Step { at: Duration::ZERO, action }, now)
                })?;
            }
            WishKind::Shape(change) => {
                done = self.each(links, |own, link| {
                    change.apply(&mut own.links[link].shapes);
                    own.shape(link, now)
                })?;
            }
        }
        Ok(done)
    }

    fn each(
        &mut self,
        links: Vec<usize>,
        mut change: impl FnMut(&mut Self, usize) -> Result<String, ChangeError>,
    ) -> Result<Vec<String>, ChangeError> {
        links.into_iter().map(|link| change(self, link)).collect()
    }

    /// Tells the emulator what a link has become.
    fn shape(&mut self, link: usize, at: Instant) -> Result<String, ChangeError> {
        for direction in [Direction::Down, Direction::Up] {
            let shape = shape_of(&self.links[link].shapes, direction);
            let spec = shape.spec(direction, &mut self.traces)?;
            self.order(link, direction, Change::Spec(spec), at);
        }
        Ok(format!("{}: {}", self.name(link), words::shapes(&self.links[link].shapes)))
    }

    fn order(&self, wire: usize, direction: Direction, change: Change, at: Instant) {
        let at = self.emulator.clock().at(at);
        self.emulator.order([Scheduled { at, wire, direction, change }]);
    }

    /// Takes the client's addresses of a link away and gives it the next.
    fn new_address(&mut self, link: usize) -> Result<String, ChangeError> {
        let plan = &self.topology.plan.links[link];
        let (old_v4, old_v6) = plan.client(self.links[link].address_changes);
        self.links[link].address_changes += 1;
        let changes = self.links[link].address_changes;
        let interface = &plan.interface;
        let commands = format!(
            "address flush dev {interface} to {old_v4}\naddress flush dev {interface} to {old_v6}\n{}{}",
            client_addresses(plan, changes),
            client_routes(&self.topology.plan, plan)
        );
        self.topology.ip(Place::Client, &commands)?;
        Ok(format!("{}: new address {}", self.name(link), plan.client(changes).0))
    }

    /// Takes the interface down, or brings it up with its addresses and routes.
    fn interface(&mut self, link: usize, is_up: bool) -> Result<String, ChangeError> {
        let plan = &self.topology.plan.links[link];
        let interface = &plan.interface;
        let commands = if is_up {
            let addresses = client_addresses(plan, self.links[link].address_changes);
            format!("link set {interface} up\n{addresses}{}", client_routes(&self.topology.plan, plan))
        } else {
            format!("link set {interface} down\n")
        };
        self.topology.ip(Place::Client, &commands)?;
        self.links[link].is_up = is_up;
        Ok(format!("{}: interface {}", self.name(link), if is_up { "up" } else { "down" }))
    }

    /// Makes the NAT forget what it knows of a link's flows; new mappings have other ports.
    fn rebind(&mut self, link: usize) -> Result<String, ChangeError> {
        let (client, _) = self.topology.plan.links[link].client(self.links[link].address_changes);
        let deleted = self.topology.tool(Tool::Conntrack, Place::Isp, &["-D", "-s", &client.to_string()], "");
        match deleted {
            // It is an error to it that there was nothing to forget.
            Err(TopologyError::Tool(ToolError::Failed { message, .. })) if message.contains(" 0 flow entries") => {}
            result => drop(result?),
        }
        Ok(format!("{}: NAT mappings forgotten", self.name(link)))
    }

    /// Puts a fault into effect.
    fn install(&mut self, number: usize, fault: &Fault) -> Result<String, ChangeError> {
        let installation = Installation::of(fault, &self.scenario, &self.topology.plan, self.seed);
        for (place, table) in [(Place::Isp, &installation.isp), (Place::Server, &installation.server)] {
            if !table.chains.is_empty() {
                self.topology.tool(Tool::Nft, place, &["-f", "-"], &table.text(&table_name(number)))?;
            }
        }
        let keys: Vec<&'static str> = installation.settings.iter().map(|(key, _)| *key).collect();
        let settings_before = self.topology.read_settings(Place::Isp, &keys)?;
        self.topology.settings(Place::Isp, &installation.settings)?;
        let words = words::fault(fault, &self.scenario);
        self.installed.insert(number, Installed { words: words.clone(), installation, settings_before });
        Ok(format!("fault: {words}"))
    }

    /// Takes a fault out of effect; flows that it led elsewhere stay there.
    fn remove(&mut self, number: usize) -> Result<(), ChangeError> {
        // It may have been removed from outside.
        let Some(installed) = self.installed.remove(&number) else { return Ok(()) };
        let tables = [(Place::Isp, &installed.installation.isp), (Place::Server, &installed.installation.server)];
        for (place, table) in tables {
            if !table.chains.is_empty() {
                self.topology.tool(Tool::Nft, place, &["-f", "-"], &nft::removal(&table_name(number)))?;
            }
        }
        self.topology.settings(Place::Isp, &installed.settings_before)?;
        Ok(())
    }

    fn name(&self, link: usize) -> &str {
        &self.scenario.access[link].name
    }
}

/// Reads the recorded traces that a scenario needs from a folder.
pub(crate) fn read_traces(scenario: &Scenario, seed: u64, folder: &Path) -> Result<Traces, TraceFileError> {
    let mut traces = Traces::new(seed);
    for file in scenario.recorded_traces() {
        let path = folder.join(file);
        let text = fs::read_to_string(&path).map_err(|source| TraceFileError::Read { path: path.clone(), source })?;
        let trace = text.parse().map_err(|source| TraceFileError::Parse { path, source })?;
        traces.add_recorded(file, trace);
    }
    Ok(traces)
}

/// Why a recorded trace cannot be played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceFileError {
    /// It is no trace.
    #[error("{}: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: ropeway_core::sim::trace::TraceError,
    },
    /// It cannot be read.
    #[error(
        "cannot read the recorded trace {}: {source}; the project carries none, name their folder with --traces",
        path.display()
    )]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Makes a seed for one direction of a link.
pub(crate) fn link_seed(run: u64, link: usize, direction: Direction) -> u64 {
    let way = match direction {
        Direction::Down => 0,
        Direction::Up => 1,
    };
    run.wrapping_mul(SEEDS_OF_RUN).wrapping_add(2 * link as u64 + way)
}

fn shape_of(shapes: &Shapes, direction: Direction) -> ropeway_core::sim::scenario::Shape {
    match direction {
        Direction::Down => shapes.down.clone(),
        Direction::Up => shapes.up.clone(),
    }
}

fn table_name(fault: usize) -> String {
    format!("fault{fault}")
}

/// Seeds that one run has for the directions of its links.
const SEEDS_OF_RUN: u64 = 16;
