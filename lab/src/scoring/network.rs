//! What a comparison has to know of a scenario's network: when to begin, when there is none, and what it can carry.

use std::{ops::Range, sync::Arc, time::Duration};

use ropeway_core::sim::{
    Scenario,
    link::{Capacity, Direction},
    scenario::{Action, Shapes},
    trace::{MissingTrace, Traces},
    work::{DEADLINE, Task, Work},
};

/// A network over the time of a run.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    /// When the requests of a run begin.
    pub(crate) starts: Vec<Duration>,
    /// When no access link passes anything, in order.
    pub(crate) outages: Vec<Range<Duration>>,
    /// What the access links carry, one after the other.
    pieces: Vec<Piece>,
}

/// A span of time in which nothing changes.
#[derive(Clone, Debug)]
struct Piece {
    span: Range<Duration>,
    /// Those of the links that pass anything, down and up.
    links: Vec<[Capacity; 2]>,
}

impl Network {
    /// Follows the course of a scenario.
    pub(crate) fn of(scenario: &Scenario, traces: &mut Traces) -> Result<Self, MissingTrace> {
        let first_outage = scenario.outages().map(|(start, _)| start).min();
        let last = scenario.starts.iter().copied().chain(first_outage).max().unwrap_or_default();
        let horizon = last + DEADLINE;
        let mut links: Vec<_> = scenario.access.iter().map(|access| LinkState::new(&access.shapes)).collect();
        let mut network = Self { starts: scenario.starts.clone(), outages: Vec::new(), pieces: Vec::new() };
        let mut from = Duration::ZERO;
        for step in scenario.timeline().take_while(|step| step.at < horizon) {
            if step.at > from {
                network.push(from..step.at, &links, traces)?;
                from = step.at;
            }
            match step.action {
                Action::Address { .. } | Action::Fault { .. } | Action::NatRebind { .. } => {}
                Action::Interface { link, is_up } => links[link].is_up = is_up,
                Action::Outage { link, outage } => links[link].is_out = outage.is_some(),
                Action::Shape { link, shapes } => links[link].shapes = *shapes,
            }
        }
        network.push(from..horizon, &links, traces)?;
        Ok(network)
    }

    fn push(&mut self, span: Range<Duration>, links: &[LinkState], traces: &mut Traces) -> Result<(), MissingTrace> {
        let mut passing = Vec::new();
        for link in links.iter().filter(|link| link.is_up && !link.is_out) {
            let down = link.shapes.down.spec(Direction::Down, traces)?.capacity;
            let up = link.shapes.up.spec(Direction::Up, traces)?.capacity;
            passing.push([down, up]);
        }
        if passing.is_empty() {
            match self.outages.last_mut().filter(|outage| outage.end == span.start) {
                Some(outage) => outage.end = span.end,
                None => self.outages.push(span.clone()),
            }
        }
        self.pieces.push(Piece { span, links: passing });
        Ok(())
    }

    /// Lays out the requests of a run; none where the work makes no sense here.
    pub(crate) fn tasks(&self, work: Work) -> Vec<Task> {
        work.tasks(&self.starts, self.outages.iter().map(|outage| outage.start))
    }

    /// Says whether the links could carry the request's bytes twice within its deadline. Others measure the link, not the peer.
    pub(crate) fn could_carry_twice(&self, task: &Task) -> bool {
        let span = task.start..task.start + DEADLINE;
        let carries = |direction, bytes: usize| self.bytes(direction, &span) >= 2 * bytes as u64;
        carries(Direction::Down, task.answer_bytes) && carries(Direction::Up, task.body_bytes)
    }

    /// Gives when the network comes back, of what is or will be its first absence after this moment.
    pub(crate) fn return_after(&self, moment: Duration) -> Option<Duration> {
        self.outages.iter().find(|outage| moment < outage.end).map(|outage| outage.end)
    }

    fn bytes(&self, direction: Direction, span: &Range<Duration>) -> u64 {
        self.pieces.iter().map(|piece| piece.bytes(direction, span)).fold(0, u64::saturating_add)
    }
}

/// What an access link is like at a moment.
struct LinkState {
    shapes: Shapes,
    is_out: bool,
    is_up: bool,
}

impl LinkState {
    fn new(shapes: &Shapes) -> Self {
        Self { shapes: shapes.clone(), is_out: false, is_up: true }
    }
}

impl Piece {
    /// Sums up what can pass in this piece's part of a span.
    fn bytes(&self, direction: Direction, span: &Range<Duration>) -> u64 {
        let (start, end) = (self.span.start.max(span.start), self.span.end.min(span.end));
        if start >= end {
            return 0;
        }
        let of_link = |[down, up]: &[Capacity; 2]| {
            let capacity = match direction {
                Direction::Down => down,
                Direction::Up => up,
            };
            match capacity {
                Capacity::Rate { bits_per_s } => ((end - start).as_secs_f64() * *bits_per_s as f64 / 8.0) as u64,
                Capacity::Trace(trace) => Arc::as_ref(trace).bytes_between(start, end),
                Capacity::Unlimited => u64::MAX,
            }
        };
        self.links.iter().map(of_link).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
impl Network {
    /// A network of 1 Mbit/s.
    pub(crate) fn steady(starts: Vec<Duration>, outages: Vec<Range<Duration>>) -> Self {
        let capacity = Capacity::Rate { bits_per_s: 1_000_000 };
        let begins = std::iter::once(Duration::ZERO).chain(outages.iter().map(|outage| outage.end));
        let ends = outages.iter().map(|outage| outage.start).chain([Duration::from_secs(600)]);
        let piece = |(start, end)| Piece { span: start..end, links: vec![[capacity.clone(), capacity.clone()]] };
        Self { starts, pieces: begins.zip(ends).map(piece).collect(), outages }
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::*;

    const fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    fn get(start: Duration, answer_bytes: usize) -> Task {
        Task { start, method: Method::GET, has_key: false, body_bytes: 0, answer_bytes }
    }

    #[test]
    fn a_request_is_scored_where_its_bytes_fit_twice_beside_the_outages() {
        let network = Network::steady(Vec::new(), vec![seconds(1)..seconds(11), seconds(20)..seconds(90)]);
        // From 0 s: 1 s, then 9 s, of 30 s; at 125 kB a second.
        assert!(network.could_carry_twice(&get(seconds(0), 620_000)));
        assert!(!network.could_carry_twice(&get(seconds(0), 630_000)));
        assert!(!network.could_carry_twice(&get(seconds(25), 1)));
    }

    #[test]
    fn a_scenario_with_two_links_is_out_only_while_both_are() {
        let text = "summary = 's'\nbasis = 'b'\nsource = 's'\nduration_s = 20\n[access.cell]\nrtt_ms = 60\nrate_kbit = 8\n\
                    [access.wifi]\nrtt_ms = 20\nrate_kbit = 80\n[[event]]\nat_s = 2\nfor_s = 8\nlink = 'wifi'\ninterface = 'down'\n\
                    [[event]]\nat_s = 5\nfor_s = 10\nlink = 'cell'\noutage = 'hold'\n";
        let scenario = Scenario::parse("two", text, None).expect("good");
        let network = Network::of(&scenario, &mut Traces::new(1)).expect("no recorded trace");
        // The course repeats every 20 s, and requests may still be under way after a round.
        assert_eq!(network.outages, [seconds(5)..seconds(10), seconds(25)..seconds(30)]);
        let bytes = |from, to| network.bytes(Direction::Down, &(seconds(from)..seconds(to)));
        assert_eq!((bytes(0, 2), bytes(2, 5), bytes(5, 10), bytes(10, 15)), (22_000, 3_000, 0, 50_000));
    }

    #[test]
    fn what_begins_before_or_in_an_outage_waits_for_its_end() {
        let network = Network::steady(Vec::new(), vec![seconds(3)..seconds(13)]);
        assert_eq!(network.return_after(seconds(2)), Some(seconds(13)));
        assert_eq!(network.return_after(seconds(5)), Some(seconds(13)));
        assert_eq!(network.return_after(seconds(13)), None);
    }
}
