//! What a request tried, when, and how it went.

use std::{fmt, net::SocketAddr, time::Duration};

use ropeway_core::{CarrierKind, connect::Candidate, request::Way};

/// The ways a request tried, in the order they began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    steps: Vec<Step>,
    /// Steps beyond those that are kept.
    left_out: usize,
    total: Duration,
}

/// One step of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// What was done.
    pub action: Action,
    /// Which way it belongs to.
    pub way: Way,
    /// The address it went to, if it is known.
    pub address: Option<SocketAddr>,
    /// The carrier it went over, where the way is the link, or `quic` where a direct call went over HTTP/3.
    pub carrier: Option<CarrierKind>,
    /// When it began, counted from the start of the request. A connection that was already being opened then begins at zero.
    pub started: Duration,
    /// When it ended; `None` if it was still under way when the request was over.
    pub ended: Option<Duration>,
    /// Why it failed.
    pub error: Option<String>,
}

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Opens a connection, its TLS or QUIC handshake included.
    Connect,
    /// Sends the request and waits for the head of its answer.
    Exchange,
    /// Says HELLO on a connection and waits for WELCOME.
    Greet,
}

impl Timeline {
    /// Returns the steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns how many steps there were beyond those that are kept, the first 40.
    #[must_use]
    pub const fn left_out(&self) -> usize {
        self.left_out
    }

    /// Returns how long the request took, up to the head of its answer or to its failure.
    #[must_use]
    pub const fn total(&self) -> Duration {
        self.total
    }

    /// Returns the step that brought the answer.
    #[must_use]
    pub fn answered(&self) -> Option<&Step> {
        self.steps
            .iter()
            .rev()
            .find(|step| step.action == Action::Exchange && step.error.is_none() && step.ended.is_some())
    }

    /// Returns the number that the next step will have.
    pub(crate) const fn next(&self) -> usize {
        self.steps.len() + self.left_out
    }

    /// Adds a step and returns its number; one beyond those that are kept is never found by it.
    pub(crate) fn push(&mut self, step: Step) -> usize {
        let number = self.next();
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step);
        } else {
            self.left_out += 1;
        }
        number
    }

    /// Puts another step in the place of one.
    pub(crate) fn replace(&mut self, step: usize, other: Step) {
        if let Some(step) = self.steps.get_mut(step) {
            *step = other;
        }
    }

    pub(crate) fn extend(&mut self, steps: Vec<Step>) {
        let room = STEPS_MAX.saturating_sub(self.steps.len());
        self.left_out += steps.len().saturating_sub(room);
        self.steps.extend(steps.into_iter().take(room));
    }

    /// Notes where a direct call went, and that it went over QUIC; over TCP it has no carrier to tell of.
    pub(crate) fn locate(&mut self, step: usize, peer: Candidate) {
        if let Some(step) = self.steps.get_mut(step).filter(|step| step.address.is_none()) {
            step.address = Some(peer.address);
            step.carrier = (peer.carrier == CarrierKind::Quic).then_some(peer.carrier);
        }
    }

    /// Notes that what a step sent went on over another link of its session.
    pub(crate) fn relocate(&mut self, step: usize, candidate: Candidate) {
        if let Some(step) = self.steps.get_mut(step) {
            step.address = Some(candidate.address);
            step.carrier = Some(candidate.carrier);
        }
    }

    /// Notes that what a step sent was handed over once more, and where.
    pub(crate) fn begin_again(&mut self, step: usize, started: Duration, candidate: Option<Candidate>) {
        if let Some(candidate) = candidate {
            self.relocate(step, candidate);
        }
        if let Some(step) = self.steps.get_mut(step) {
            step.started = started;
        }
    }

    pub(crate) fn end(&mut self, step: usize, ended: Duration, error: Option<String>) {
        if let Some(step) = self.steps.get_mut(step) {
            step.ended = Some(ended);
            step.error = error;
        }
    }

    /// Notes that what a step brought was an answer after all, as nothing better came.
    pub(crate) fn answered_by(&mut self, step: usize) {
        if let Some(step) = self.steps.get_mut(step) {
            step.error = None;
        }
    }

    pub(crate) fn finish(&mut self, total: Duration) {
        self.total = total;
        let end = |step: &Step| step.ended.unwrap_or(Duration::MAX);
        self.steps.sort_by_key(|step| (step.started, step.action.place(), end(step)));
    }
}

impl Action {
    /// Returns its place among steps that began at the same time, as connections that were being opened before the request.
    const fn place(self) -> u8 {
        match self {
            Self::Connect => 0,
            Self::Greet => 1,
            Self::Exchange => 2,
        }
    }

    /// Returns the action's name as timelines spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Exchange => "exchange",
            Self::Greet => "greet",
        }
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step}", if place == 0 { "" } else { "; " })?;
        }
        if self.left_out > 0 {
            write!(f, "; and {} more", self.left_out)?;
        }
        Ok(())
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.way, self.action.as_str())?;
        if let Some(carrier) = self.carrier {
            write!(f, " {carrier}")?;
        }
        if let Some(address) = self.address {
            write!(f, " {address}")?;
        }
        write!(f, " {}", self.started.as_millis())?;
        match self.ended {
            Some(ended) => write!(f, "–{} ms", ended.as_millis())?,
            None => write!(f, "– ms")?,
        }
        match &self.error {
            Some(error) => write!(f, ": {error}"),
            None => Ok(()),
        }
    }
}

/// Steps a timeline keeps: the attempts of two races and as many exchanges.
const STEPS_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn step(action: Action, started: u64) -> Step {
        Step {
            action,
            way: Way::Link,
            address: Some(([192, 0, 2, 1], 443).into()),
            carrier: Some(CarrierKind::Tls),
            started: Duration::from_millis(started),
            ended: None,
            error: None,
        }
    }

    #[test]
    fn steps_are_told_in_the_order_they_began() {
        let mut timeline = Timeline::default();
        let exchange = timeline.push(step(Action::Exchange, 50));
        timeline.end(exchange, Duration::from_millis(80), None);
        timeline.push(Step { error: Some("refused".into()), ..step(Action::Connect, 3) });
        timeline.finish(Duration::from_millis(80));
        assert_eq!(
            timeline.to_string(),
            "link connect tls 192.0.2.1:443 3– ms: refused; link exchange tls 192.0.2.1:443 50–80 ms"
        );
        assert_eq!(timeline.answered().map(|step| step.started), Some(Duration::from_millis(50)));
    }

    #[test]
    fn what_was_under_way_when_the_request_began_is_told_in_the_order_of_its_actions() {
        let mut timeline = Timeline::default();
        for action in [Action::Exchange, Action::Greet, Action::Connect] {
            timeline.push(step(action, 0));
        }
        timeline.finish(Duration::ZERO);
        let told: Vec<_> = timeline.steps().iter().map(|step| step.action).collect();
        assert_eq!(told, [Action::Connect, Action::Greet, Action::Exchange]);
    }
}
