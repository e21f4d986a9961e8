//! One request of a device, as the real client takes it from the app to the end of its answer.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use super::ORIGIN;
use crate::{
    Time,
    policy::Policy,
    request::{
        Answered, Ask, Budget, KEY_HEADER, Ladder, LadderConfig, LadderOutput, LinkView, NOT_EXECUTED_HEADER,
        RequestFacts, Rung, Timeouts, TryEnd, TryId, Way, is_idempotent,
    },
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
    facts: RequestFacts,
    /// `None` until the first turn.
    ladder: Option<Ladder>,
    tries: BTreeMap<TryId, Sent>,
    began: Time,
    deadline: Time,
    pub(super) outcome: Option<Outcome>,
}

/// A try that is on a session.
#[derive(Debug)]
struct Sent {
    session: u64,
    channel: u64,
    unsent: Bytes,
    status: Option<StatusCode>,
    received: usize,
}

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) took: Duration,
    pub(super) error: Option<String>,
}

/// What a request wants of the sessions.
#[derive(Debug)]
pub(super) enum Wish {
    /// Note that it had no answer in its time on this session.
    Late(u64),
    /// Send it, as this try, on this session.
    Send(TryId, u64),
    /// Take a try back if it was not handed to the carrier.
    Recall(TryId),
}

impl Exchange {
    pub(super) fn new(number: u64, task: &Task, now: Time) -> Self {
        Self {
            number,
            head: head(task, number),
            body: Bytes::from(vec![0; task.body_bytes]),
            answer_bytes: task.answer_bytes,
            facts: RequestFacts { idempotent: task.has_key || is_idempotent(&task.method), replayable: true },
            ladder: None,
            tries: BTreeMap::new(),
            began: now,
            deadline: now + DEADLINE,
            outcome: None,
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.outcome.is_some()
    }

    /// Returns what its answer showed of the network, if it has come whole.
    pub(super) fn answered(&self) -> Option<Answered> {
        let Outcome { took, .. } = self.outcome.as_ref().filter(|outcome| outcome.error.is_none())?.clone();
        Some(Answered {
            sent_bytes: self.body.len() as u64,
            received_bytes: self.answer_bytes as u64,
            head_after: took,
            ended_after: took,
        })
    }

    /// Returns when it gives up what it is at.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        if self.is_done() {
            return None;
        }
        let ladder = self.ladder.as_ref().and_then(Ladder::poll_timeout);
        Some(ladder.map_or(self.deadline, |at| at.min(self.deadline)))
    }

    /// Says whether one of its tries is on this channel.
    pub(super) fn is_on(&self, session: u64, channel: u64) -> bool {
        self.tries.values().any(|sent| sent.session == session && sent.channel == channel)
    }

    /// Takes in how the link is, and that time has passed.
    pub(super) fn turn(&mut self, link: LinkView, timeouts: &Timeouts, budget: &mut Budget, now: Time) {
        if self.is_done() {
            return;
        }
        if now >= self.deadline {
            return self.fail("deadline", now);
        }
        match &mut self.ladder {
            Some(ladder) => {
                ladder.handle_link(link, budget, now);
                ladder.handle_timeout(budget, now);
            }
            None => {
                let ask = Ask {
                    bytes: self.body.len() as u64,
                    in_flight: 0,
                    attempt: 0,
                    server_time: None,
                    left: DEADLINE,
                    policy: &Policy::default(),
                };
                let rung = Rung { first_byte: timeouts.first_byte(&ask, now), ..RUNG };
                let config = LadderConfig::timed(DEADLINE, Some(DEADLINE), now);
                self.ladder = Some(Ladder::new(config, self.facts, [rung], link, budget, now));
            }
        }
    }

    /// Returns what it wants of the sessions next.
    pub(super) fn poll_wish(&mut self, now: Time) -> Option<Wish> {
        if self.is_done() {
            return None;
        }
        match self.ladder.as_mut()?.poll_output()? {
            LadderOutput::Fail(failure) => {
                self.fail(&format!("{failure:?}"), now);
                None
            }
            LadderOutput::Late { session } => Some(Wish::Late(session)),
            LadderOutput::Recall(number) => Some(Wish::Recall(number)),
            LadderOutput::Start { number, session, .. } => session.map(|session| Wish::Send(number, session)),
        }
    }

    /// Sends it on a session.
    pub(super) fn send(
        &mut self,
        number: TryId,
        session: u64,
        machine: Option<&mut Client>,
        budget: &mut Budget,
        now: Time,
    ) {
        let opened = machine.and_then(|machine| {
            let channel = machine.mux().request(self.head.clone(), self.body.is_empty())?;
            let mut sent = Sent { session, channel, unsent: self.body.clone(), status: None, received: 0 };
            sent.upload(machine);
            Some(sent)
        });
        match opened {
            Some(sent) => drop(self.tries.insert(number, sent)),
            None => self.end(number, TryEnd::NotSent, budget, now),
        }
    }

    /// Returns session and channel of a try.
    pub(super) fn place(&self, number: TryId) -> Option<(u64, u64)> {
        self.tries.get(&number).map(|sent| (sent.session, sent.channel))
    }

    /// Takes in that a try was taken back.
    pub(super) fn handle_recalled(&mut self, number: TryId, budget: &mut Budget, now: Time) {
        self.tries.remove(&number);
        self.end(number, TryEnd::NotSent, budget, now);
    }

    /// Takes in what happened to one of its tries. Returns the session whose gateway did not serve it, if it was that.
    pub(super) fn handle_event(
        &mut self,
        session: u64,
        event: MuxEvent,
        machine: &mut Client,
        budget: &mut Budget,
        now: Time,
    ) -> Option<u64> {
        let channel = super::channel_of(&event);
        let is_it = |sent: &&mut Sent| sent.session == session && sent.channel == channel;
        let number = self.tries.iter().find(|(_, sent)| sent.session == session && sent.channel == channel);
        let number = number.map(|(number, _)| *number)?;
        let sent = self.tries.values_mut().find(is_it)?;
        match event {
            MuxEvent::Body { data, .. } => {
                machine.mux().consumed(channel, data.len() as u64);
                sent.received += data.len();
            }
            MuxEvent::Closed { why, .. } => match sent.status {
                // Once the app has the head, nothing is sent again.
                Some(_) => self.fail("its answer was cut", now),
                None => {
                    self.tries.remove(&number);
                    self.end(number, end_of(&why), budget, now);
                }
            },
            MuxEvent::End { .. } => self.complete(number, now),
            MuxEvent::Response { head, end, .. } => {
                let unexecuted = head.headers.contains_key(NOT_EXECUTED_HEADER);
                let not_executed = TryEnd::NotExecuted;
                if unexecuted && self.ladder.as_ref().is_some_and(|ladder| ladder.may_climb(number, not_executed)) {
                    machine.mux().reset(channel, CANCELLED.0, CANCELLED.1);
                    self.tries.remove(&number);
                    self.end(number, not_executed, budget, now);
                    return Some(session);
                }
                sent.status = Some(head.status);
                if end {
                    self.complete(number, now);
                }
            }
            MuxEvent::Writable { .. } => sent.upload(machine),
            MuxEvent::Request { .. } => {}
        }
        None
    }

    /// Returns the channels of the tries that are no longer wanted.
    pub(super) fn take_unwanted(&mut self) -> Vec<(u64, u64)> {
        let answering = self.tries.iter().find(|(_, sent)| sent.status.is_some()).map(|(number, _)| *number);
        let is_done = self.is_done();
        let is_wanted = |number: &TryId| !is_done && answering.is_none_or(|answering| answering == *number);
        let unwanted: Vec<TryId> = self.tries.keys().filter(|number| !is_wanted(number)).copied().collect();
        unwanted
            .iter()
            .filter_map(|number| self.tries.remove(number))
            .map(|sent| (sent.session, sent.channel))
            .collect()
    }

    fn end(&mut self, number: TryId, end: TryEnd, budget: &mut Budget, now: Time) {
        if let Some(ladder) = &mut self.ladder {
            ladder.handle_ended(number, end, budget, now);
        }
    }

    fn complete(&mut self, number: TryId, now: Time) {
        match self.tries.get(&number) {
            Some(Sent { status: Some(StatusCode::OK), received, .. }) if *received == self.answer_bytes => {
                self.outcome = Some(Outcome { took: now.since(self.began), error: None });
            }
            Some(Sent { status: Some(status), received, .. }) => {
                self.fail(&format!("status {status}, {received} bytes"), now);
            }
            Some(_) | None => self.fail("its answer has no head", now),
        }
    }

    fn fail(&mut self, reason: &str, now: Time) {
        self.outcome = Some(Outcome { took: now.since(self.began), error: Some(reason.to_owned()) });
    }
}

impl Sent {
    fn upload(&mut self, machine: &mut Client) {
        if !self.unsent.is_empty() && machine.mux().write(self.channel, &mut self.unsent) && self.unsent.is_empty() {
            machine.mux().finish(self.channel, None);
        }
    }
}

/// Says in the words of the ladder why an exchange ended; the client's.
const fn end_of(closed: &Closed) -> TryEnd {
    match closed {
        Closed::NeverSeen => TryEnd::NotSent,
        // It ran, and its answer is no longer kept for the link that took over.
        Closed::Reset { code: ResetCode::Unreplayable, .. } | Closed::Unknown => TryEnd::MayHaveRun,
        Closed::Reset { .. } => TryEnd::Reset,
    }
}

/// Makes the head of the request with this number.
fn head(task: &Task, number: u64) -> RequestHead {
    let uri = Uri::try_from(format!("https://{ORIGIN}{}", task.target(number))).expect("its parts make a URL");
    let mut headers = HeaderMap::new();
    if task.body_bytes > 0 {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(task.body_bytes));
    }
    if task.has_key {
        headers.insert(KEY_HEADER, HeaderValue::from(number));
    }
    RequestHead { method: task.method.clone(), uri, headers }
}

/// Says why a client gives an exchange up.
pub(super) const CANCELLED: (ResetCode, &str) = (ResetCode::Cancelled, "the request is no longer wanted");

/// The one way of the simulated client: the link. How long it may take is asked for each request.
const RUNG: Rung = Rung { way: Way::Link, connect: DEADLINE, first_byte: DEADLINE, is_last: false };
