//! A scenario's course: what changes when.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use super::{EventKind, Scenario, Shapes, When};
use crate::sim::link::Outage;

/// Everything that happens in a scenario, in the order of time; without end where anything repeats.
///
/// At time zero the access links are up and of the shape the scenario gives them, and no fault is there: what is different from the
/// start on comes as steps of time zero.
#[derive(Clone, Debug)]
pub struct Timeline<'a> {
    scenario: &'a Scenario,
    state: State,
    /// The moments of a period at which something changes.
    moments: Vec<Duration>,
    next_moment: usize,
    periods: u32,
    /// Whether anything happened since the period began.
    is_moving: bool,
    steps: VecDeque<Step>,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, from the start of the scenario.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// What changes.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The phone gets another address on this access link.
    Address {
        /// The link, by its place in [`Scenario::access`].
        link: usize,
    },
    /// A fault comes or goes.
    Fault {
        /// The fault, by its place in [`Scenario::faults`].
        fault: usize,
        /// Whether it is there from now on.
        is_on: bool,
    },
    /// The interface of an access link comes or goes.
    Interface {
        /// The link.
        link: usize,
        /// Whether it is there from now on.
        is_up: bool,
    },
    /// The provider's NAT gives every flow of this access link another mapping.
    NatRebind {
        /// The link.
        link: usize,
    },
    /// An outage begins or ends.
    Outage {
        /// The link.
        link: usize,
        /// The outage from now on.
        outage: Option<Outage>,
    },
    /// An access link is of another shape from now on.
    Shape {
        /// The link.
        link: usize,
        /// The shape.
        shapes: Box<Shapes>,
    },
}

/// What lasts at one moment.
#[derive(Clone, Debug, PartialEq)]
struct State {
    faults: Vec<bool>,
    links: Vec<LinkState>,
}

#[derive(Clone, Debug, PartialEq)]
struct LinkState {
    shapes: Shapes,
    outage: Option<Outage>,
    is_up: bool,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(scenario: &'a Scenario) -> Self {
        let period = scenario.duration;
        let whens =
            scenario.events.iter().map(|event| &event.when).chain(scenario.faults.iter().map(|fault| &fault.when));
        let spans = whens.flat_map(|when: &When| when.spans(period));
        let moments: BTreeSet<Duration> = spans.flat_map(|(start, end)| [start, end]).chain([Duration::ZERO]).collect();
        Self {
            scenario,
            state: State::initial(scenario),
            moments: moments.into_iter().filter(|moment| *moment < period).collect(),
            next_moment: 0,
            periods: 0,
            is_moving: true,
            steps: VecDeque::new(),
        }
    }

    /// Goes on to the next moment; says whether there is one.
    fn go_on(&mut self) -> bool {
        if self.next_moment == self.moments.len() {
            if !std::mem::take(&mut self.is_moving) {
                return false;
            }
            self.next_moment = 0;
            self.periods += 1;
        }
        let moment = self.moments[self.next_moment];
        self.next_moment += 1;
        let at = self.scenario.duration * self.periods + moment;
        let next = State::at(self.scenario, moment);
        let changes = self.state.changes(&next);
        self.state = next;
        let actions = changes.into_iter().chain(instants(self.scenario, moment));
        self.steps.extend(actions.map(|action| Step { at, action }));
        self.is_moving |= !self.steps.is_empty();
        true
    }
}

impl Iterator for Timeline<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        while self.steps.is_empty() && self.go_on() {}
        self.steps.pop_front()
    }
}

impl State {
    fn initial(scenario: &Scenario) -> Self {
        let link = |shapes: &Shapes| LinkState { shapes: shapes.clone(), outage: None, is_up: true };
        Self {
            faults: vec![false; scenario.faults.len()],
            links: scenario.access.iter().map(|access| link(&access.shapes)).collect(),
        }
    }

    /// Works out what lasts at a moment of a period; of two events that say something of one thing, the later in the file counts.
    fn at(scenario: &Scenario, moment: Duration) -> Self {
        let lasts = |when: &When| when.spans(scenario.duration).any(|(start, end)| (start..end).contains(&moment));
        let mut state = Self::initial(scenario);
        state.faults = scenario.faults.iter().map(|fault| lasts(&fault.when)).collect();
        for event in scenario.events.iter().filter(|event| lasts(&event.when)) {
            let links = state.links.iter_mut().enumerate().filter(|(place, _)| event.concerns(*place));
            for (_, link) in links {
                match &event.kind {
                    EventKind::Address | EventKind::NatRebind => {}
                    EventKind::Interface => link.is_up = false,
                    EventKind::Outage(outage) => link.outage = Some(*outage),
                    EventKind::Shape(change) => change.apply(&mut link.shapes),
                }
            }
        }
        state
    }

    fn changes(&self, next: &Self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (link, (before, after)) in self.links.iter().zip(&next.links).enumerate() {
            if before.shapes != after.shapes {
                actions.push(Action::Shape { link, shapes: Box::new(after.shapes.clone()) });
            }
            if before.outage != after.outage {
                actions.push(Action::Outage { link, outage: after.outage });
            }
            if before.is_up != after.is_up {
                actions.push(Action::Interface { link, is_up: after.is_up });
            }
        }
        for (fault, (before, after)) in self.faults.iter().zip(&next.faults).enumerate() {
            if before != after {
                actions.push(Action::Fault { fault, is_on: *after });
            }
        }
        actions
    }
}

/// Gives what happens at a moment of a period and does not last.
fn instants(scenario: &Scenario, moment: Duration) -> impl Iterator<Item = Action> {
    let starts = move |when: &When| when.spans(scenario.duration).any(|(start, _)| start == moment);
    let events = scenario.events.iter().filter(move |event| starts(&event.when));
    events.flat_map(|event| {
        let links = (0..scenario.access.len()).filter(|link| event.concerns(*link));
        links.filter_map(|link| match event.kind {
            EventKind::Address => Some(Action::Address { link }),
            EventKind::NatRebind => Some(Action::NatRebind { link }),
            EventKind::Interface | EventKind::Outage(_) | EventKind::Shape(_) => None,
        })
    })
}
