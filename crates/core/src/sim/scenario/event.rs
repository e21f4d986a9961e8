//! What happens to access links in the course of time.

use super::{
    Scenario,
    error::ScenarioError,
    read::Table,
    shape::{SHAPE_KEYS, ShapeChange},
    when::{WHEN_KEYS, When},
};
use crate::sim::link::Outage;

/// Something that happens to access links.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// When.
    pub when: When,
    /// To which access link, by its place in [`Scenario::access`]; to all where none is named.
    pub link: Option<usize>,
    /// What.
    pub kind: EventKind,
}

/// What happens to an access link.
#[derive(Clone, Debug, PartialEq)]
pub enum EventKind {
    /// The phone gets another address; what was bound to the old one hears nothing any more.
    Address,
    /// The interface is down, as when Wi-Fi is left.
    Interface,
    /// The provider's NAT gives every flow another mapping.
    NatRebind,
    /// Nothing passes.
    Outage(Outage),
    /// The link is of another shape.
    Shape(Box<ShapeChange>),
}

impl Event {
    pub(super) fn read(table: &Table<'_, '_>, scenario: &Scenario) -> Result<Self, ScenarioError> {
        let when = When::read(table, scenario.duration)?;
        let link = scenario.read_link(table)?;
        let change = ShapeChange::read(table)?;
        let kinds = KIND_KEYS.iter().filter(|key| table.node(key).is_some()).count();
        if !change.is_empty() && kinds == 0 {
            return Ok(Self { when, link, kind: EventKind::Shape(Box::new(change)) });
        }
        let kind = match table.one_of(KIND_KEYS)? {
            key @ "address" => table.word(key, &[("new", EventWord::Address)])?,
            key @ "interface" => table.word(key, &[("down", EventWord::Interface)])?,
            key @ "nat" => table.word(key, &[("rebind", EventWord::NatRebind)])?,
            key => {
                let words = [("drop", EventWord::Outage(Outage::Drop)), ("hold", EventWord::Outage(Outage::Hold))];
                table.word(key, &words)?
            }
        };
        if !change.is_empty() {
            return Err(table.refuse("rtt_ms", "left out beside what else happens; write an event for each"));
        }
        let kind = match kind.expect("the key is there, so it was read or refused") {
            EventWord::Address => EventKind::Address,
            EventWord::Interface => EventKind::Interface,
            EventWord::NatRebind => EventKind::NatRebind,
            EventWord::Outage(outage) => EventKind::Outage(outage),
        };
        Ok(Self { when, link, kind })
    }

    /// Says whether it happens to this access link.
    #[must_use]
    pub fn concerns(&self, link: usize) -> bool {
        self.link.is_none_or(|named| named == link)
    }

    pub(super) fn keys() -> Vec<&'static str> {
        [&["link"], KIND_KEYS, WHEN_KEYS, SHAPE_KEYS].concat()
    }
}

#[derive(Clone, Copy)]
enum EventWord {
    Address,
    Interface,
    NatRebind,
    Outage(Outage),
}

const KIND_KEYS: &[&str] = &["address", "interface", "nat", "outage"];
