//! Scenarios: one behaviour of a network each, as data.
//!
//! A file of `scenarios/` names access links, sites, events and faults, each number with its basis and source. Variants are merged over
//! the file: tables key by key, everything else replaced. The network's behaviour repeats after the scenario's duration.
//!
//! ```
//! use std::time::Duration;
//! use ropeway_core::sim::{Scenario, scenario::Action};
//!
//! let text = r#"
//!     summary = "a slow link that fails for three seconds"
//!     basis = "an example"
//!     source = "this page"
//!     duration_s = 20
//!     [access.cell]
//!     rtt_ms = 200
//!     rate_kbit = 500
//!     [[event]]
//!     at_s = 5
//!     for_s = 3
//!     outage = "drop"
//!     [variant.long.access.cell]
//!     rtt_ms = 900
//! "#;
//! let scenario = Scenario::parse("example", text, Some("long"))?;
//! assert_eq!(scenario.access[0].shapes.up.impairments.delay, Duration::from_millis(450));
//!
//! let first = scenario.timeline().next().unwrap();
//! assert_eq!(first.at, Duration::from_secs(5));
//! assert!(matches!(first.action, Action::Outage { link: 0, outage: Some(_) }));
//!
//! let error = Scenario::parse("example", &text.replace("rtt_ms = 200", "rtt = 200"), None).unwrap_err();
//! assert_eq!(error.to_string(), "example.toml:7: unknown key `rtt` in `access.cell`; did you mean `rtt_ms`?");
//! # Ok::<(), ropeway_core::sim::scenario::ScenarioError>(())
//! ```

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

mod error;
mod event;
mod fault;
mod read;
mod shape;
mod timeline;
mod when;

pub use error::{Place, ScenarioError};
pub use event::{Event, EventKind};
pub use fault::{
    AddressFault, BalancerFault, DnsFault, Family, Fault, FaultKind, MiddleboxFault, NatExpiry, Target, TlsFault,
    UdpFault, V6Fault,
};
pub use shape::{Pace, Shape, ShapeChange, Shapes};
pub use timeline::{Action, Step, Timeline};
pub use when::When;

use self::{
    error::hint,
    read::{File, Table, clip},
    shape::SHAPE_KEYS,
};

/// One behaviour of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name: that of its file, without the ending.
    pub name: String,
    /// The variant, if it is one.
    pub variant: Option<String>,
    /// What it is, in a line.
    pub summary: String,
    /// What the numbers rest on.
    pub basis: String,
    /// Where they come from.
    pub source: String,
    /// By how much its times are shorter than the real ones, in a variant made for CI.
    pub scaled: Option<u32>,
    /// After this the network behaves as from the start.
    pub duration: Duration,
    /// When the requests of one run begin.
    pub starts: Vec<Duration>,
    /// The access links, one or two; the first has the default route.
    pub access: Vec<AccessLink>,
    /// The sites; there is at least one, and the first is the nearest.
    pub sites: Vec<Site>,
    /// What happens to the access links.
    pub events: Vec<Event>,
    /// What is broken behind them.
    pub faults: Vec<Fault>,
}

/// An access link: what a phone is connected by.
#[derive(Clone, Debug, PartialEq)]
pub struct AccessLink {
    /// Its name: `cell` or `wifi`.
    pub name: String,
    /// What it is like when nothing happens.
    pub shapes: Shapes,
}

/// A site: a data centre with the addresses of its entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Its name.
    pub name: String,
    /// Addresses of IPv4.
    pub v4: u32,
    /// Addresses of IPv6.
    pub v6: u32,
    /// What its distance adds to the round trip.
    pub extra_rtt: Duration,
}

impl Scenario {
    /// Reads the scenario `name` from the text of its file, with a variant merged over it.
    ///
    /// # Errors
    ///
    /// A [`ScenarioError`] with file and line for what is no TOML, a key that does not exist, a required one that is missing, a value out
    /// of its range, or a variant that does not exist.
    pub fn parse(name: &str, text: &str, variant: Option<&str>) -> Result<Self, ScenarioError> {
        let file = File { name, text };
        let (mut root, offset) = parse_toml(file)?;
        let variants = take_variants(file, &mut root)?;
        if let Some(wanted) = variant {
            let chosen = variants.iter().position(|(name, _)| name == wanted);
            let Some(chosen) = chosen else {
                return Err(ScenarioError::UnknownName {
                    place: file.place(offset),
                    what: "variant",
                    name: clip(wanted),
                    hint: hint(wanted, variants.iter().map(|(name, _)| name.as_str())),
                });
            };
            merge(&mut root, &variants[chosen].1);
        }
        let table = Table::of(file, &root, offset, String::new(), FILE_KEYS)?;
        Self::read(&table, name, variant)
    }

    /// Returns the names of a file's variants.
    ///
    /// # Errors
    ///
    /// A [`ScenarioError`] if the text is no TOML or its variants are no tables.
    pub fn variants(name: &str, text: &str) -> Result<Vec<String>, ScenarioError> {
        let file = File { name, text };
        let (mut root, _) = parse_toml(file)?;
        Ok(take_variants(file, &mut root)?.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns everything that happens, in the order of time and for ever.
    #[must_use]
    pub fn timeline(&self) -> Timeline<'_> {
        Timeline::new(self)
    }

    /// Returns begin and end of each time within a period at which a link is without connection, the default one's first.
    pub fn outages(&self) -> impl Iterator<Item = (Duration, Duration)> {
        let cuts = self.events.iter().filter(|event| match event.kind {
            EventKind::Interface | EventKind::Outage(_) => event.concerns(0),
            EventKind::Address | EventKind::NatRebind | EventKind::Shape(_) => false,
        });
        cuts.flat_map(|event| event.when.spans(self.duration))
    }

    /// Returns the files of the recorded traces it needs, none of which the project carries.
    #[must_use]
    pub fn recorded_traces(&self) -> BTreeSet<&str> {
        let events = self.events.iter().filter_map(|event| match &event.kind {
            EventKind::Shape(change) => Some(change.recorded()),
            EventKind::Address | EventKind::Interface | EventKind::NatRebind | EventKind::Outage(_) => None,
        });
        self.access.iter().flat_map(|access| access.shapes.recorded()).chain(events.flatten()).collect()
    }

    fn read(table: &Table<'_, '_>, name: &str, variant: Option<&str>) -> Result<Self, ScenarioError> {
        let required = |key| table.text(key)?.ok_or_else(|| table.missing(key));
        let mut scenario = Self {
            name: name.to_owned(),
            variant: variant.map(str::to_owned),
            summary: required("summary")?,
            basis: required("basis")?,
            source: required("source")?,
            scaled: table.count("scaled", SCALED)?.and_then(|scaled| u32::try_from(scaled).ok()),
            duration: table.seconds("duration_s", DURATION_S)?.unwrap_or(DURATION),
            starts: read_starts(table)?,
            access: read_access(table)?,
            sites: read_sites(table)?,
            events: Vec::new(),
            faults: Vec::new(),
        };
        for (at, node) in table.tables("event", EVENTS_MAX)?.iter().enumerate() {
            let table = Table::open(table.file, node, format!("event {}", at + 1), &Event::keys())?;
            scenario.events.push(Event::read(&table, &scenario)?);
        }
        for (at, node) in table.tables("fault", FAULTS_MAX)?.iter().enumerate() {
            let table = Table::open(table.file, node, format!("fault {}", at + 1), &Fault::keys())?;
            scenario.faults.push(Fault::read(&table, &scenario)?);
        }
        Ok(scenario)
    }

    /// Reads the name of an access link.
    fn read_link(&self, table: &Table<'_, '_>) -> Result<Option<usize>, ScenarioError> {
        read_name(table, "link", "access link", self.access.iter().map(|link| link.name.as_str()))
    }

    /// Reads the name of a site.
    fn read_site(&self, table: &Table<'_, '_>) -> Result<Option<usize>, ScenarioError> {
        read_name(table, "site", "site", self.sites.iter().map(|site| site.name.as_str()))
    }
}

fn parse_toml(file: File<'_>) -> Result<(DeTable<'_>, usize), ScenarioError> {
    let root = DeTable::parse(file.text).map_err(|error| {
        let place = file.place(error.span().map_or(0, |span| span.start));
        ScenarioError::Syntax { place, message: error.message().to_owned() }
    })?;
    let offset = root.span().start;
    Ok((root.into_inner(), offset))
}

fn take_variants<'t>(file: File<'t>, root: &mut DeTable<'t>) -> Result<Vec<(String, DeTable<'t>)>, ScenarioError> {
    let keys: Vec<&str> = FILE_KEYS.iter().copied().chain(["variant"]).collect();
    let offset = 0;
    let table = Table::of(file, root, offset, String::new(), &keys)?;
    let mut variants = Vec::new();
    for (name, node) in table.named_tables("variant", VARIANTS_MAX)? {
        Table::open(file, node, format!("variant.{name}"), FILE_KEYS)?;
        if let DeValue::Table(changes) = node.get_ref() {
            variants.push((name.to_owned(), changes.clone()));
        }
    }
    root.remove("variant");
    Ok(variants)
}

/// Puts what `over` says in the place of what `base` says, table by table.
fn merge<'t>(base: &mut DeTable<'t>, over: &DeTable<'t>) {
    for (key, node) in over {
        let inner = base.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut);
        match (inner, node.get_ref()) {
            (Some(DeValue::Table(inner)), DeValue::Table(changes)) => merge(inner, changes),
            _ => drop(base.insert(key.clone(), node.clone())),
        }
    }
}

fn read_starts(table: &Table<'_, '_>) -> Result<Vec<Duration>, ScenarioError> {
    let starts = match table.node("work") {
        Some(node) => {
            let table = Table::open(table.file, node, "work".to_owned(), &["starts_s"])?;
            table.numbers("starts_s", 0.0..=*DURATION_S.end(), STARTS_MAX)?
        }
        None => None,
    };
    Ok(starts.unwrap_or_else(|| STARTS_S.to_vec()).into_iter().map(Duration::from_secs_f64).collect())
}

fn read_access(table: &Table<'_, '_>) -> Result<Vec<AccessLink>, ScenarioError> {
    let mut links = Vec::new();
    for (name, node) in table.named_tables("access", LINK_NAMES.len())? {
        if !LINK_NAMES.contains(&name) {
            return Err(ScenarioError::UnknownName {
                place: table.file.place(node.span().start),
                what: "access link",
                name: clip(name),
                hint: hint(name, LINK_NAMES.iter().copied()),
            });
        }
        let table = Table::open(table.file, node, format!("access.{name}"), SHAPE_KEYS)?;
        if table.node("rtt_ms").is_none() {
            return Err(table.missing("rtt_ms"));
        }
        let mut shapes = Shapes::default();
        ShapeChange::read(&table)?.apply(&mut shapes);
        links.push(AccessLink { name: name.to_owned(), shapes });
    }
    if links.is_empty() { Err(table.missing("access")) } else { Ok(links) }
}

fn read_sites(table: &Table<'_, '_>) -> Result<Vec<Site>, ScenarioError> {
    let mut sites: Vec<Site> = Vec::new();
    for (at, node) in table.tables("site", SITES_MAX)?.iter().enumerate() {
        let table = Table::open(table.file, node, format!("site {}", at + 1), &["name", "v4", "v6", "extra_rtt_ms"])?;
        let name = table.text("name")?.ok_or_else(|| table.missing("name"))?;
        let is_label = name.len() <= 8 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        if !is_label || sites.iter().any(|site| site.name == name) {
            return Err(table.refuse("name", "one of its own, of up to 8 small letters and digits"));
        }
        let addresses = |key, most| Ok(table.count(key, 0..=most)?.and_then(|count| u32::try_from(count).ok()));
        let site = Site {
            name,
            v4: addresses("v4", ADDRESSES_MAX)?.unwrap_or(SITE_V4),
            v6: addresses("v6", ADDRESSES_MAX)?.unwrap_or(0),
            extra_rtt: table.millis("extra_rtt_ms", shape::RTT_MS)?.unwrap_or_default(),
        };
        if site.v4 + site.v6 == 0 {
            return Err(table.refuse("v4", "at least 1 where `v6` is 0"));
        }
        sites.push(site);
    }
    if sites.is_empty() {
        sites.push(Site { name: "a".to_owned(), v4: SITE_V4, v6: 0, extra_rtt: Duration::ZERO });
    }
    Ok(sites)
}

fn read_name<'a>(
    table: &Table<'_, '_>,
    key: &str,
    what: &'static str,
    names: impl Iterator<Item = &'a str> + Clone,
) -> Result<Option<usize>, ScenarioError> {
    let Some(name) = table.text(key)? else { return Ok(None) };
    match names.clone().position(|known| known == name) {
        Some(place) => Ok(Some(place)),
        None => {
            let hint = hint(&name, names);
            Err(ScenarioError::UnknownName { place: table.place(key), what, name: clip(&name), hint })
        }
    }
}

const FILE_KEYS: &[&str] =
    &["summary", "basis", "source", "scaled", "duration_s", "work", "access", "site", "event", "fault"];

/// Names of access links.
const LINK_NAMES: [&str; 2] = ["cell", "wifi"];

/// How long a scenario may last until it repeats; an hour covers the longest idle time of a NAT that is played in full.
const DURATION_S: RangeInclusive<f64> = 0.1..=3_600.0;

/// How long a scenario lasts where nothing is said. 1 min; our choice, twice a request's deadline.
const DURATION: Duration = Duration::from_mins(1);

/// When requests begin where nothing is said, in seconds. Our choice: half a second for programs to start, then one and a half between.
const STARTS_S: [f64; 4] = [0.5, 2.0, 3.5, 5.0];

/// Requests of a run.
const STARTS_MAX: usize = 32;

/// Factors by which times may be scaled.
const SCALED: RangeInclusive<u64> = 2..=1_000;

/// IPv4 addresses of a site where nothing is said.
const SITE_V4: u32 = 2;

/// Addresses of a site and family.
const ADDRESSES_MAX: u64 = 16;

/// Sites of a scenario.
const SITES_MAX: usize = 4;

/// Events of a scenario.
const EVENTS_MAX: usize = 32;

/// Faults of a scenario.
const FAULTS_MAX: usize = 32;

/// Variants of a scenario.
const VARIANTS_MAX: usize = 16;

#[cfg(test)]
mod tests;
