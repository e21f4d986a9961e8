//! One request of a device, as the real client takes it from the app to the end of its answer.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use super::ORIGIN;
use crate::{
    Time,
    request::{Budget, Progress, RequestFacts, Verdict, is_idempotent},
    session::{Client, Closed, Machine as _, MuxEvent},
    sim::work::{DEADLINE, Task},
    wire::{fields::RequestHead, message::ResetCode},
};

/// A request and how far it is.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) number: u64,
    head: RequestHead,
    body: Bytes,
    answer_bytes: usize,
    progress: Progress,
    began: Time,
    pub(super) deadline: Time,
    pub(super) state: State,
}

/// How far a request is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    Done(Outcome),
    /// It is on a session.
    Sent {
        session: u64,
        channel: u64,
        unsent: Bytes,
        status: Option<StatusCode>,
        received: usize,
    },
    /// It waits for a link until a time.
    Waiting {
        until: Time,
    },
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) took: Duration,
    pub(super) error: Option<String>,
}

impl Exchange {
    pub(super) fn new(number: u64, task: &Task, now: Time) -> Self {
        let facts = RequestFacts { idempotent: is_idempotent(&task.method), replayable: true };
        let deadline = now + DEADLINE;
        Self {
            number,
            head: head(task, number),
            body: Bytes::from(vec![0; task.body_bytes]),
            answer_bytes: task.answer_bytes,
            progress: Progress::new(facts, deadline),
            began: now,
            deadline,
            state: State::Waiting { until: now + LINK_WAIT },
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        matches!(self.state, State::Done(_))
    }

    /// Returns when it gives up what it is at.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        match self.state {
            State::Done(_) => None,
            State::Sent { .. } => Some(self.deadline),
            State::Waiting { until } => Some(until.min(self.deadline)),
        }
    }

    /// Returns its channel, if it is on this session.
    pub(super) const fn channel(&self, on: u64) -> Option<u64> {
        match &self.state {
            State::Sent { session, channel, .. } if *session == on => Some(*channel),
            State::Done(_) | State::Sent { .. } | State::Waiting { .. } => None,
        }
    }

    /// Sends it on a session that has a link.
    pub(super) fn send(&mut self, session: u64, machine: &mut Client, budget: &mut Budget, now: Time) {
        self.progress.handle_send(budget);
        let Some(channel) = machine.mux().request(self.head.clone(), self.body.is_empty()) else {
            return self.close(&Closed::NeverSeen, budget, now);
        };
        self.state = State::Sent { session, channel, unsent: self.body.clone(), status: None, received: 0 };
        self.upload(machine);
    }

    /// Lets it wait for a link as long as if it began at this time.
    pub(super) fn prolong(&mut self, at: Time) {
        if let State::Waiting { until } = &mut self.state {
            *until = (*until).max(at + LINK_WAIT);
        }
    }

    /// Takes in what happened to it.
    pub(super) fn handle_event(&mut self, event: MuxEvent, machine: &mut Client, budget: &mut Budget, now: Time) {
        match event {
            MuxEvent::Body { channel, data } => {
                machine.mux().consumed(channel, data.len() as u64);
                if let State::Sent { received, .. } = &mut self.state {
                    *received += data.len();
                }
            }
            MuxEvent::Closed { why, .. } => match self.state {
                // Once the app has the head, nothing is sent again.
                State::Sent { status: Some(_), .. } => self.fail("its answer was cut", now),
                State::Done(_) | State::Sent { .. } | State::Waiting { .. } => self.close(&why, budget, now),
            },
            MuxEvent::End { .. } => self.complete(now),
            MuxEvent::Response { head, end, .. } => {
                if let State::Sent { status, .. } = &mut self.state {
                    *status = Some(head.status);
                }
                if end {
                    self.complete(now);
                }
            }
            MuxEvent::Writable { .. } => self.upload(machine),
            MuxEvent::Request { .. } => {}
        }
    }

    /// Gives up what it is at if its time is over.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            let reason = if now >= self.deadline { "deadline" } else { "no link in time" };
            self.fail(reason, now);
        }
    }

    fn upload(&mut self, machine: &mut Client) {
        let State::Sent { channel, unsent, .. } = &mut self.state else { return };
        if !unsent.is_empty() && machine.mux().write(*channel, unsent) && unsent.is_empty() {
            machine.mux().finish(*channel, None);
        }
    }

    fn close(&mut self, closed: &Closed, budget: &mut Budget, now: Time) {
        match self.progress.handle_closed(closed, budget, now) {
            Verdict::Resend => self.state = State::Waiting { until: now + LINK_WAIT },
            Verdict::Fail(failure) => self.fail(&format!("{failure:?}"), now),
        }
    }

    fn complete(&mut self, now: Time) {
        match self.state {
            State::Sent { status: Some(StatusCode::OK), received, .. } if received == self.answer_bytes => {
                self.state = State::Done(Outcome { took: now.since(self.began), error: None });
            }
            State::Sent { status: Some(status), received, .. } => {
                self.fail(&format!("status {status}, {received} bytes"), now);
            }
            State::Done(_) | State::Sent { .. } | State::Waiting { .. } => self.fail("its answer has no head", now),
        }
    }

    fn fail(&mut self, reason: &str, now: Time) {
        self.state = State::Done(Outcome { took: now.since(self.began), error: Some(reason.to_owned()) });
    }
}

/// Makes the head of the request with this number.
fn head(task: &Task, number: u64) -> RequestHead {
    let uri = Uri::try_from(format!("https://{ORIGIN}{}", task.target(number))).expect("its parts make a URL");
    let mut headers = HeaderMap::new();
    if task.body_bytes > 0 {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(task.body_bytes));
    }
    RequestHead { method: task.method.clone(), uri, headers }
}

/// Says why a client gives an exchange up.
pub(super) const CANCELLED: (ResetCode, &str) = (ResetCode::Cancelled, "the request is no longer wanted");

/// How long a request waits for a link; the client's default.
const LINK_WAIT: Duration = Duration::from_secs(10);
