//! Takes a request from one way to the next, as its ladder says.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use http::{Request, Response};
use ropeway_core::{
    Time,
    connect::Candidate,
    request::{
        Choice, Failure, Ladder, LadderConfig, LadderOutput, LinkView, NOT_EXECUTED_HEADER, Rung, TryEnd, TryId, Way,
        choose,
    },
    session::Machine as _,
};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{Run, link};
use crate::{
    Action, Body, Error, Step,
    shared::{ClientSession, Live, View, Waiting, lock},
    short::{self, Cause, Executed, To, Trace},
};

/// A try that is under way.
struct Try {
    sending: Pin<Box<dyn Future<Output = Sent> + Send>>,
    handover: Handover,
    /// Its line in the timeline.
    step: usize,
    /// The session, where it is on a link.
    session: Option<u64>,
}

/// How a try ended.
type Sent = Result<Response<Body>, Failed>;

/// Why a try brought no answer.
pub(super) enum Failed {
    /// The request's own fault, whatever the way.
    App(Error),
    /// The way's.
    Way {
        /// What is known of the request's fate.
        end: TryEnd,
        /// What the app is told if nothing else works.
        error: Box<Error>,
        /// What the timeline says.
        told: String,
    },
}

/// Whether a try was handed to a carrier, as far as it is known by now.
#[derive(Clone, Default)]
pub(super) struct Handover(Arc<Mutex<Place>>);

#[derive(Default)]
enum Place {
    /// It was given up after it had been handed over.
    Gone,
    #[default]
    Nowhere,
    /// A channel of a session.
    Session(ClientSession, u64),
    /// A short link.
    Short(Arc<Trace>),
}

impl Handover {
    pub(super) fn is_done(&self) -> bool {
        match &*lock(&self.0) {
            Place::Gone => true,
            Place::Nowhere => false,
            Place::Session(session, channel) => session.peek(|client| !client.mux().is_unsent(*channel)),
            Place::Short(trace) => trace.is_handed_off(),
        }
    }

    /// Takes it back, unless it was handed over; says whether it was taken back. Both are one step: its link's driver runs beside.
    fn take_back(&self) -> bool {
        let mut place = lock(&self.0);
        let is_free = match &*place {
            Place::Gone => false,
            Place::Nowhere => true,
            Place::Session(session, channel) => session.with(|client, _| client.mux().take_back(*channel)),
            // It is handed over by the task that asks here.
            Place::Short(trace) => !trace.is_handed_off(),
        };
        if is_free {
            *place = Place::Nowhere;
        }
        is_free
    }

    /// Notes the channel that was opened for it.
    pub(super) fn place(&self, session: &ClientSession, channel: u64) {
        *lock(&self.0) = Place::Session(session.clone(), channel);
    }

    /// Settles what is known before the channel is gone.
    pub(super) fn leave(&self) {
        let place = if self.is_done() { Place::Gone } else { Place::Nowhere };
        *lock(&self.0) = place;
    }

    fn follow(&self, trace: &Arc<Trace>) {
        *lock(&self.0) = Place::Short(Arc::clone(trace));
    }

    /// Returns where a short link led, once there was one.
    fn peer(&self) -> Option<Candidate> {
        match &*lock(&self.0) {
            Place::Gone | Place::Nowhere | Place::Session(..) => None,
            Place::Short(trace) => trace.peer(),
        }
    }
}

/// What happened first.
enum Event {
    Ended(TryId, Sent),
    Timeout,
    View,
}

/// A climb under way.
#[derive(Default)]
struct Climb {
    tries: BTreeMap<TryId, Try>,
    live: Option<Live>,
    /// An answer that says that nothing was executed, for the case that nothing better comes.
    unexecuted: Option<Response<Body>>,
    /// How the last try ended.
    last: Option<Error>,
    /// The request is counted among those that wait for a link.
    waiting: Option<Waiting>,
    waits_since: Option<Time>,
}

impl Run {
    /// Sends the request until an answer comes, or nothing is left to try.
    pub(super) async fn climb(&mut self) -> Result<Response<Body>, Error> {
        let shared = Arc::clone(self.handle.shared());
        let mut views = shared.view.subscribe();
        let mut view = views.borrow_and_update().clone();
        let (mut rungs, mut is_served) = self.rungs(&view)?;
        let link = view.link(is_served, self.began, shared.clock.now());
        let config = LadderConfig {
            link_wait: shared.config.link_wait,
            link_wait_until: Some(self.began + self.within()),
            ..LadderConfig::default()
        };
        let mut ladder = Ladder::new(config, self.facts, rungs.clone(), link, &mut shared.budget(), shared.clock.now());
        let mut climb = Climb { live: view.live.clone(), ..Climb::default() };
        loop {
            if view.closed {
                return Err(Error::Closed);
            }
            if let Some(answer) = self.follow(&mut ladder, &mut climb, &view)? {
                return Ok(answer);
            }
            let wake = ladder.poll_timeout().map_or_else(far, |at| shared.clock.instant(at));
            let event = tokio::select! {
                ended = climb.next() => Event::Ended(ended.0, ended.1),
                // The sender lives as long as `shared`.
                _ = views.changed() => Event::View,
                () = sleep_until(wake) => Event::Timeout,
            };
            let now = shared.clock.now();
            match event {
                Event::Ended(number, sent) => {
                    if let Some(answer) = self.handle_sent(number, sent, &mut ladder, &mut climb)? {
                        return Ok(answer);
                    }
                }
                Event::Timeout => ladder.handle_timeout(&mut shared.budget(), now),
                Event::View => {
                    view = views.borrow_and_update().clone();
                    climb.live = view.live.clone();
                    let ways;
                    (ways, is_served) = self.rungs(&view)?;
                    if ways != rungs {
                        rungs = ways;
                        ladder.replace(rungs.clone(), &mut shared.budget(), now);
                    }
                    let link = view.link(is_served, self.began, now);
                    ladder.handle_link(link, &mut shared.budget(), now);
                }
            }
        }
    }

    /// Returns the ways that this request may take, in their order, and whether it is known what the gateways serve.
    fn rungs(&self, view: &View) -> Result<(Vec<Rung>, bool), Error> {
        let has_access_point = !self.handle.shared().config.access_points.is_empty();
        let choice = choose(&self.target(), view.hosts.as_deref(), has_access_point);
        let (way, is_known) = match choice.map_err(|none| self.no_choice(none))? {
            Choice::Await => (Way::Link, false),
            Choice::Take(way) => (way, true),
        };
        let tries = match way {
            Way::Direct => DIRECT_TRIES,
            // The ladder itself goes from one link to the next.
            Way::Link => 1,
        };
        let rung = |number| Rung { way, first_byte: self.within(), is_last: number == tries };
        Ok(((1..=tries).map(rung).collect(), is_known))
    }

    /// Does what the ladder asks for.
    fn follow(&mut self, ladder: &mut Ladder, climb: &mut Climb, view: &View) -> Result<Option<Response<Body>>, Error> {
        let shared = Arc::clone(self.handle.shared());
        while let Some(output) = ladder.poll_output() {
            let now = shared.clock.now();
            match output {
                LadderOutput::Fail(failure) => {
                    return match climb.unexecuted.take() {
                        Some(answer) => Ok(Some(answer)),
                        None => Err(self.failed(failure, climb, view)),
                    };
                }
                LadderOutput::Recall(number) => {
                    if climb.tries.get(&number).is_some_and(|running| running.handover.take_back())
                        && let Some(running) = climb.tries.remove(&number)
                    {
                        self.steps.end(running.step, now.since(self.began), Some("taken back".into()));
                        ladder.handle_ended(number, TryEnd::NotSent, &mut shared.budget(), now);
                    }
                }
                LadderOutput::Start { number, rung, session } => {
                    let live = climb.live.clone().filter(|live| Some(live.number) == session);
                    if rung.way == Way::Link && live.is_none() {
                        ladder.handle_ended(number, TryEnd::NotSent, &mut shared.budget(), now);
                        continue;
                    }
                    let Some(request) = self.take_request() else {
                        return Err(super::not_executed("its body is used up"));
                    };
                    let begun = self.begin(rung, live, request);
                    climb.tries.insert(number, begun);
                }
            }
        }
        if ladder.waits_for_link() && climb.waiting.is_none() {
            climb.waiting = Some(shared.wait()?);
            climb.waits_since.get_or_insert_with(|| shared.clock.now());
            self.waited = true;
            self.handle.connect();
        } else if !ladder.waits_for_link() {
            climb.waiting = None;
        }
        Ok(None)
    }

    /// Begins a try.
    fn begin(&mut self, rung: Rung, live: Option<Live>, request: Request<Body>) -> Try {
        let now = self.handle.shared().clock.now();
        let step = self.steps.push(Step {
            action: Action::Exchange,
            way: rung.way,
            address: live.as_ref().map(|live| live.candidate.address),
            carrier: live.as_ref().map(|live| live.candidate.carrier),
            started: now.since(self.began),
            ended: None,
            error: None,
        });
        let handover = Handover::default();
        self.handover = handover.clone();
        let (handle, session) = (self.handle.clone(), live.as_ref().map(|live| live.number));
        let placed = handover.clone();
        let sending: Pin<Box<dyn Future<Output = Sent> + Send>> = match live {
            Some(live) => Box::pin(async move { link::send(&handle, live, request, &placed).await }),
            None => {
                self.went_directly = true;
                let (host, idempotent) = (self.host.clone(), self.facts.idempotent);
                let trace = Arc::default();
                placed.follow(&trace);
                Box::pin(async move {
                    let sent = handle.shared().short.send(request, To::Name, &trace).await;
                    sent.map_err(|failed| directly(failed, host, idempotent))
                })
            }
        };
        Try { sending, handover, step, session }
    }

    /// Takes in how a try ended; returns its answer if it is the request's.
    fn handle_sent(
        &mut self,
        number: TryId,
        sent: Sent,
        ladder: &mut Ladder,
        climb: &mut Climb,
    ) -> Result<Option<Response<Body>>, Error> {
        let Some(ended) = climb.tries.remove(&number) else { return Ok(None) };
        let shared = Arc::clone(self.handle.shared());
        let now = shared.clock.now();
        if let Some(peer) = ended.handover.peer() {
            self.steps.locate(ended.step, peer);
        }
        let live = shared.view.borrow().live.clone().filter(|live| Some(live.number) == ended.session);
        if let Some(live) = live {
            self.steps.relocate(ended.step, live.candidate);
        }
        let (end, told) = match sent {
            Ok(answer) => {
                let is_unexecuted = answer.headers().contains_key(NOT_EXECUTED_HEADER);
                let Some(session) = ended.session.filter(|_| is_unexecuted && ladder.may_climb(number)) else {
                    self.steps.end(ended.step, now.since(self.began), None);
                    return Ok(Some(answer));
                };
                shared.wish(|wishes| wishes.unserved = Some(session));
                let told = format!("not executed: {}", answer.status());
                climb.unexecuted = Some(answer);
                (TryEnd::NotExecuted, told)
            }
            Err(Failed::App(error)) => {
                self.steps.end(ended.step, now.since(self.began), Some(error.to_string()));
                return Err(error);
            }
            Err(Failed::Way { end, error, told }) => {
                climb.last = Some(*error);
                (end, told)
            }
        };
        debug!(told, "way failed");
        self.steps.end(ended.step, now.since(self.began), Some(told));
        ladder.handle_ended(number, end, &mut shared.budget(), now);
        Ok(None)
    }

    /// Returns a copy of the request to send, unless its body is used up.
    fn take_request(&mut self) -> Option<Request<Body>> {
        let body = match &self.body {
            Some(body) => match body.again() {
                Some(again) => again,
                None => self.body.take()?,
            },
            None => return None,
        };
        Some(self.head.clone().map(|()| body))
    }

    /// Returns what the app is told when nothing is left to try.
    fn failed(&self, failure: Failure, climb: &mut Climb, view: &View) -> Error {
        let known = view.failure.clone().filter(|failure| failure.concerns(self.began));
        match (failure, climb.last.take(), known) {
            (Failure::NotExecuted, None, Some(known)) => known.error(),
            (Failure::NotExecuted, None, None) => {
                let waited =
                    climb.waits_since.map_or(0, |since| self.handle.shared().clock.now().since(since).as_millis());
                let last = view
                    .trouble
                    .as_deref()
                    .map_or_else(String::new, |trouble| format!("; the last attempt: {trouble}"));
                let reason = format!("no link came up within {waited} ms{last}");
                Error::NoWay { host: self.host.clone(), reason, timeline: Box::default() }
            }
            (_, Some(error), _) => error,
            (Failure::OutcomeUnknown | Failure::Reset, None, _) => Error::OutcomeUnknown { timeline: Box::default() },
        }
    }
}

impl Climb {
    /// Waits for the end of the next try.
    async fn next(&mut self) -> (TryId, Sent) {
        let ended = |cx: &mut Context<'_>| {
            let ready = self.tries.iter_mut().find_map(|(number, running)| match running.sending.as_mut().poll(cx) {
                Poll::Pending => None,
                Poll::Ready(sent) => Some((*number, sent)),
            });
            ready.map_or(Poll::Pending, Poll::Ready)
        };
        poll_fn(ended).await
    }
}

impl View {
    /// Returns how the link is for a request that began at a time. Until it is known what the gateways serve, nothing is sent on it.
    fn link(&self, is_known: bool, began: Time, now: Time) -> LinkView {
        let is_hopeless = self.failure.as_ref().is_some_and(|failure| failure.concerns(began));
        match self.link {
            LinkView::Open { .. } if !is_known => LinkView::Sought { alive_at: Some(now) },
            LinkView::None | LinkView::Sought { .. } if is_hopeless => LinkView::None,
            LinkView::None | LinkView::Open { .. } | LinkView::Sought { .. } => self.link,
        }
    }
}

/// Says in the words of the ladder how a call without a gateway failed.
fn directly(failed: short::Failed, host: String, idempotent: bool) -> Failed {
    let told = failed.to_string();
    let reason = told.clone();
    let (end, error) = match (failed.cause, failed.executed) {
        (Cause::Body(error), _) => return Failed::App(error),
        (_, Executed::NotSent) => (TryEnd::NotSent, Error::NoWay { host, reason, timeline: Box::default() }),
        (_, Executed::No) => (TryEnd::NotExecuted, Error::NotExecuted { reason, timeline: Box::default() }),
        // Whether it ran does not matter to what may run twice; what went wrong does.
        (_, Executed::Maybe) if idempotent => {
            (TryEnd::MayHaveRun, Error::Direct { host, reason, timeline: Box::default() })
        }
        (_, Executed::Maybe) => (TryEnd::MayHaveRun, Error::OutcomeUnknown { timeline: Box::default() }),
    };
    Failed::Way { end, error: Box::new(error), told }
}

/// A time that does not come while a request lives.
fn far() -> Instant {
    Instant::now() + std::time::Duration::from_secs(86_400)
}

/// Tries of a call without a gateway. 4: the first and three more, the most that DESIGN section 5 gives one way.
const DIRECT_TRIES: u32 = 4;
