//! What a request tried, when, and how it went.

use std::{fmt, net::SocketAddr, time::Duration};

use http::StatusCode;
use ropeway_core::{CarrierKind, connect::Candidate, request::Way};

use crate::way::Fate;

/// The ways a request tried, in the order they began. A connection comes before the exchange that waited for it.
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
    /// When it began, counted from the start of the request. A connection that was already being opened then begins at zero, and an
    /// exchange of a direct call when the request was handed to its connection.
    pub started: Duration,
    /// When it ended; `None` for a connection that was still being opened when the request was over.
    pub ended: Option<Duration>,
    /// Why it brought no answer for the app, or why it was given up.
    pub error: Option<String>,
    /// The status of the answer it brought, whether the app has got that answer or another.
    pub status: Option<StatusCode>,
    /// What became of the request in it, as far as is known. A connection alone sends none.
    pub fate: Fate,
}

/// How a request ended that had steps under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// It has its answer.
    Answered,
    /// It failed.
    Failed,
    /// Its time was over.
    TimedOut,
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

    /// Returns the last step that may have executed the request and brought no answer for the app: why an outcome is unknown.
    #[must_use]
    pub fn unanswered(&self) -> Option<&Step> {
        self.steps.iter().rev().find(|step| step.fate == Fate::MayHaveRun && step.error.is_some())
    }

    /// Returns each address where a step failed, in the order of its first step, with why the last one there did. One that never answered
    /// is told as such only where no step says more.
    #[must_use]
    pub fn failed_places(&self) -> Vec<(SocketAddr, &str)> {
        let mut places: Vec<(SocketAddr, &str)> = Vec::new();
        for step in &self.steps {
            let (Some(address), Some(error)) = (step.address, step.error.as_deref()) else { continue };
            match places.iter_mut().find(|(known, _)| *known == address) {
                Some((_, last)) if step.ended.is_some() => *last = error,
                Some(_) => {}
                None => places.push((address, error)),
            }
        }
        places
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

    /// Notes when a direct call was handed to its connection.
    pub(crate) fn hand_over(&mut self, step: usize, at: Duration) {
        if let Some(step) = self.steps.get_mut(step) {
            step.started = at;
        }
    }

    /// Notes where a direct call went, and that it went over QUIC; over TCP it has no carrier to tell of.
    pub(crate) fn locate(&mut self, step: usize, peer: Candidate) {
        if let Some(step) = self.steps.get_mut(step).filter(|step| step.address.is_none()) {
            step.address = Some(peer.address);
            step.carrier = (peer.carrier == CarrierKind::Quic).then_some(peer.carrier);
        }
    }

    /// Notes on which link of its session the request of a step was last, and since when.
    pub(crate) fn relocate(&mut self, step: usize, started: Duration, candidate: Option<Candidate>) {
        let Some(step) = self.steps.get_mut(step) else { return };
        step.started = started;
        if let Some(candidate) = candidate {
            step.address = Some(candidate.address);
            step.carrier = Some(candidate.carrier);
        }
    }

    pub(crate) fn end(&mut self, step: usize, ended: Duration, fate: Fate, error: Option<String>) {
        if let Some(step) = self.steps.get_mut(step) {
            step.ended = Some(ended);
            step.fate = fate;
            step.error = error;
        }
    }

    /// Notes the status of the answer that a step brought.
    pub(crate) fn answer(&mut self, step: usize, status: StatusCode) {
        if let Some(step) = self.steps.get_mut(step) {
            step.status = Some(status);
        }
    }

    /// Notes that a step may have executed the request.
    pub(crate) fn may_have_run(&mut self, step: usize) {
        if let Some(step) = self.steps.get_mut(step) {
            step.fate = Fate::MayHaveRun;
        }
    }

    /// Notes that what a step brought was an answer after all, as nothing better came.
    pub(crate) fn answered_by(&mut self, step: usize) {
        if let Some(step) = self.steps.get_mut(step) {
            step.error = None;
        }
    }

    /// Says of what was under way when the request was over that it was given up, and why, and puts the steps in order.
    pub(crate) fn finish(&mut self, total: Duration, over: Over) {
        self.total = total;
        let answered = self.answered().map(|step| (step.address, step.carrier, step.ended));
        for step in self.steps.iter_mut().filter(|step| step.ended.is_none()) {
            match step.action {
                Action::Exchange => {
                    step.ended = Some(total);
                    step.error = Some(over.given_up().to_owned());
                }
                // The answer to what went out behind HELLO may be there before WELCOME was looked at.
                Action::Connect | Action::Greet
                    if answered.is_some_and(|(at, on, _)| (at, on) == (step.address, step.carrier)) =>
                {
                    step.ended = answered.and_then(|(.., ended)| ended);
                }
                // It goes on for whoever asks next.
                Action::Connect | Action::Greet => step.error = Some(STILL_OPENING.to_owned()),
            }
        }
        // An exchange that was never handed over waited for a connection until its end.
        let began = |step: &Step| match (step.action, step.fate) {
            (Action::Exchange, Fate::NothingSent) if !step.way.needs_gateway() => step.ended.unwrap_or(total),
            (Action::Connect | Action::Exchange | Action::Greet, _) => step.started,
        };
        let end = |step: &Step| step.ended.unwrap_or(Duration::MAX);
        self.steps.sort_by_key(|step| (began(step), step.action.place(), end(step)));
    }
}

impl Over {
    /// Says why an exchange that was under way was given up.
    pub(crate) const fn given_up(self) -> &'static str {
        match self {
            Self::Answered => "given up: another copy had the answer",
            Self::Failed => "given up: the request had failed",
            Self::TimedOut => "given up: the time of the request was over",
        }
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
        match (&self.error, self.status) {
            (Some(error), _) => write!(f, ": {error}"),
            (None, Some(status)) => write!(f, ": {status}"),
            (None, None) => Ok(()),
        }
    }
}

/// What is said of a connection that was being opened when the request was over.
const STILL_OPENING: &str = "still being opened when the request was over";

/// Steps a timeline keeps: the attempts of two races and as many exchanges.
const STEPS_MAX: usize = 40;

#[cfg(test)]
mod tests;
