//! Takes a request from one way to the next, as its ladder says.

use std::{
    collections::BTreeMap,
    future::poll_fn,
    sync::Arc,
    task::{Context, Poll},
};

use http::{HeaderValue, Response};
use ropeway_core::{
    Time,
    request::{
        ERROR_HEADER, Failure, Ladder, LadderConfig, LadderOutput, LinkView, NOT_EXECUTED_HEADER, TryEnd, TryId, Way,
        has_broken_off, is_unavailable,
    },
};
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::{
    Run,
    attempt::{Failed, Handed, Sent, Try},
    held,
    plan::Ways,
};
use crate::{
    Body, Error,
    shared::{Live, View, Waiting, changed, lock},
    sources::Sources,
    way::Fate,
};

/// What happened first.
enum Event {
    Ended(TryId, Sent),
    Timeout,
    /// The link is another, or more is known of where to go.
    View,
}

/// A climb under way.
#[derive(Default)]
struct Climb {
    tries: BTreeMap<TryId, Try>,
    live: Option<Live>,
    /// An answer that says that nothing was executed, for the case that nothing better comes.
    unexecuted: Option<Kept>,
    /// The last one that says that the service cannot be had, which has run the request or not.
    unavailable: Option<Kept>,
    /// The ways that brought such answers.
    unavailable_by: Vec<Way>,
    /// How the last try ended of those that did not run.
    last: Option<Error>,
    /// How the last one ended that may have run.
    may_have_run: Option<Error>,
    /// The request was executed, and its answer was too large for a way.
    large: Option<Error>,
    /// The request is counted among those that wait for a link.
    waiting: Option<Waiting>,
    waits_since: Option<Time>,
}

/// An answer that is the app's if nothing better comes.
struct Kept {
    answer: Response<Body>,
    /// Its line in the timeline.
    step: usize,
}

impl Run {
    /// Sends the request until an answer comes, or nothing is left to try.
    pub(super) async fn climb(&mut self) -> Result<Response<Body>, Error> {
        let shared = Arc::clone(self.handle.shared());
        let mut views = shared.view.subscribe();
        let mut changes = shared.sources().map(Sources::changes);
        let mut view = views.borrow_and_update().clone();
        let mut ways = self.first_ways(&view, &mut changes).await?;
        let link = view.link(ways.is_known, self.began, shared.clock.now());
        let config = LadderConfig {
            refused_wait: shared.config.refused_wait,
            links_max: ways.links_max,
            ways_until: self.ways_until(),
            ..LadderConfig::timed(self.within(), shared.config.link_wait.or(self.total()), self.began)
        };
        let rungs = ways.rungs.iter().copied();
        let mut ladder = Ladder::new(config, ways.facts, rungs, link, &mut shared.budget(), shared.clock.now());
        let mut climb = Climb { live: view.live.clone(), ..Climb::default() };
        loop {
            if view.closed {
                return Err(Error::Closed);
            }
            if let Some(answer) = self.follow(&mut ladder, &mut climb, &ways, &view)? {
                return Ok(answer);
            }
            let wake = ladder.poll_timeout().map_or_else(far, |at| shared.clock.instant(at));
            let event = tokio::select! {
                ended = climb.next() => Event::Ended(ended.0, ended.1),
                // The sender lives as long as `shared`.
                _ = views.changed() => Event::View,
                () = changed(&mut changes) => Event::View,
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
                    match self.ways(&view) {
                        Ok(others) => {
                            let before = std::mem::replace(&mut ways, others);
                            if ways.differ(&before) {
                                ladder.replace(ways.facts, ways.rungs.iter().copied(), &mut shared.budget(), now);
                            }
                        }
                        // What is under way may still be answered.
                        Err(_) if !climb.tries.is_empty() => {}
                        Err(error) => return Err(error),
                    }
                    ladder.handle_ways_until(self.ways_until(), &mut shared.budget(), now);
                    let link = view.link(ways.is_known, self.began, now);
                    ladder.handle_link(link, &mut shared.budget(), now);
                }
            }
        }
    }

    /// Does what the ladder asks for.
    fn follow(
        &mut self,
        ladder: &mut Ladder,
        climb: &mut Climb,
        ways: &Ways,
        view: &View,
    ) -> Result<Option<Response<Body>>, Error> {
        let shared = Arc::clone(self.handle.shared());
        while let Some(output) = ladder.poll_output() {
            let now = shared.clock.now();
            match output {
                LadderOutput::Fail(failure) => {
                    // What was executed by one way and not by another was executed.
                    let kept = climb.unavailable.take().or_else(|| climb.unexecuted.take());
                    return match kept.filter(|_| climb.large.is_none()) {
                        Some(kept) => Ok(Some(self.give(kept))),
                        None => Err(self.failed(failure, climb, view)),
                    };
                }
                LadderOutput::Late { session } => {
                    let live = view.live.as_ref().filter(|live| live.number == session);
                    // What a doubted link does not answer says nothing of what is behind it.
                    let is_sure = matches!(view.link, LinkView::Open { is_sure: true, .. });
                    if is_sure && live.is_some_and(|live| lock(&live.island).handle_late()) {
                        shared.wish(|wishes| wishes.unserved = Some(session));
                    }
                }
                LadderOutput::Recall(number) => {
                    if climb.tries.get(&number).is_some_and(|running| running.handover.take_back())
                        && let Some(running) = climb.tries.remove(&number)
                    {
                        shared.detours().handle_failed(&self.host, running.way, now);
                        running.stalled.into_iter().for_each(|address| held::note_stalled(&shared, address));
                        self.note_unexecuted(running.step);
                        let handed = self.handed.iter().find(|handed| handed.step == running.step);
                        let told = handed.map_or_else(|| "taken back".into(), Handed::taken_back);
                        self.steps.end(running.step, now.since(self.began), Fate::NothingSent, Some(told));
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
                    ladder.set_first_byte(number, self.first_byte(number.0 - 1, ways.server_time));
                    match self.begin(rung, live, ways, request) {
                        Some(begun) => drop(climb.tries.insert(number, begun)),
                        None => ladder.handle_ended(number, TryEnd::NotSent, &mut shared.budget(), now),
                    }
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
        let live = shared.view.borrow().live.clone().filter(|live| Some(live.number) == ended.session);
        if let Some(live) = live.filter(|_| sent.is_ok()) {
            lock(&live.island).handle_answered();
        }
        let (end, told) = match sent {
            Ok(answer) => {
                self.steps.answer(ended.step, answer.status());
                let end = end_of(&answer, ended.way);
                let Some(end) = end.filter(|end| ladder.may_climb(number, *end)) else {
                    self.note_answered(&ended, end, climb);
                    self.steps.end(ended.step, now.since(self.began), Fate::Executed, None);
                    return Ok(Some(answer));
                };
                self.note_answered(&ended, Some(end), climb);
                let status = answer.status();
                let kept = Some(Kept { answer, step: ended.step });
                match end {
                    TryEnd::BrokenOff { may_have_run } => {
                        let place = if may_have_run { &mut climb.unavailable } else { &mut climb.unexecuted };
                        *place = kept;
                        self.tried.extend(self.steps.steps().get(ended.step).and_then(|step| step.address));
                        (end, format!("{status}: the service broke off"))
                    }
                    TryEnd::Unavailable => {
                        climb.unavailable = kept;
                        (end, format!("{status}: left for another way"))
                    }
                    TryEnd::MayHaveRun | TryEnd::NotExecuted | TryEnd::NotSent | TryEnd::Reset | TryEnd::TooLarge => {
                        shared.wish(|wishes| wishes.unserved = ended.session.or(wishes.unserved));
                        ended.stalled.into_iter().for_each(|address| held::note_stalled(&shared, address));
                        climb.unexecuted = kept;
                        (end, format!("not executed: {status}"))
                    }
                }
            }
            Err(Failed::App(error)) => {
                let fate = if ended.handover.is_done() { Fate::MayHaveRun } else { Fate::NothingSent };
                self.steps.end(ended.step, now.since(self.began), fate, Some(error.to_string()));
                return Err(error);
            }
            Err(Failed::Way { end, error, told }) => {
                if end == TryEnd::NotSent {
                    shared.detours().handle_failed(&self.host, ended.way, now);
                }
                let known = match end {
                    TryEnd::MayHaveRun => &mut climb.may_have_run,
                    TryEnd::TooLarge => &mut climb.large,
                    TryEnd::BrokenOff { .. }
                    | TryEnd::NotExecuted
                    | TryEnd::NotSent
                    | TryEnd::Reset
                    | TryEnd::Unavailable => &mut climb.last,
                };
                *known = Some(*error);
                let handed = self.handed.iter().find(|handed| handed.step == ended.step);
                match handed.filter(|_| end == TryEnd::MayHaveRun) {
                    Some(handed) => (end, handed.with_loss(told)),
                    None => (end, told),
                }
            }
        };
        if matches!(end, TryEnd::BrokenOff { may_have_run: false } | TryEnd::NotExecuted | TryEnd::NotSent) {
            self.note_unexecuted(ended.step);
        }
        debug!(told, "way failed");
        self.steps.end(ended.step, now.since(self.began), fate(end), Some(told));
        ladder.handle_ended(number, end, &mut shared.budget(), now);
        Ok(None)
    }

    /// Takes in what an answer says of its way, and of those that had none from the service.
    fn note_answered(&self, ended: &Try, end: Option<TryEnd>, climb: &mut Climb) {
        let shared = self.handle.shared();
        let mut detours = shared.detours();
        match end {
            Some(TryEnd::Unavailable) => return climb.unavailable_by.push(ended.way),
            // A service that breaks off says nothing of the way, which got the request to its gateway.
            Some(TryEnd::BrokenOff { .. } | TryEnd::NotExecuted) => {}
            // The service can be had, so that it was the way.
            Some(TryEnd::MayHaveRun | TryEnd::NotSent | TryEnd::Reset | TryEnd::TooLarge) | None => {
                let (by, now) = (std::mem::take(&mut climb.unavailable_by), shared.clock.now());
                let others = by.into_iter().filter(|way| *way != ended.way);
                others.for_each(|way| detours.handle_failed(&self.host, way, now));
            }
        }
        detours.handle_worked(&self.host, ended.way);
    }

    /// Gives the app an answer that was kept.
    fn give(&mut self, kept: Kept) -> Response<Body> {
        self.steps.answered_by(kept.step);
        kept.answer
    }

    /// Returns what the app is told when nothing is left to try.
    fn failed(&self, failure: Failure, climb: &mut Climb, view: &View) -> Error {
        if let Some(large) = climb.large.take() {
            return large;
        }
        if failure == Failure::OutcomeUnknown {
            return climb.may_have_run.take().unwrap_or(Error::OutcomeUnknown { timeline: Box::default() });
        }
        let known = view.failure.clone().filter(|failure| failure.concerns(self.began));
        match (failure, climb.last.take(), known) {
            // Why there is no link says more than how the ways around it failed.
            (Failure::NotExecuted, _, Some(known)) => known.error(),
            (Failure::NotExecuted, last @ (None | Some(Error::NoWay { .. })), None) if climb.waits_since.is_some() => {
                self.no_link(climb, view, last.as_ref())
            }
            (Failure::NotExecuted, None, None) => super::not_executed("nothing was left to try"),
            (_, Some(error), _) => error,
            (Failure::OutcomeUnknown | Failure::Reset, None, _) => Error::OutcomeUnknown { timeline: Box::default() },
        }
    }

    /// Returns what the app is told when no link came up, and no other way helped.
    fn no_link(&self, climb: &Climb, view: &View, last: Option<&Error>) -> Error {
        let now = self.handle.shared().clock.now();
        let waited = climb.waits_since.map_or(0, |since| now.since(since).as_millis());
        let mut reason = format!("no link came up within {waited} ms");
        // What was tried for this request stands in its timeline.
        let has_tried = !self.handle.shared().log.steps(None, self.began).is_empty();
        if let Some(trouble) = view.trouble.as_deref().filter(|_| !has_tried) {
            reason = format!("{reason}; the last attempt: {trouble}");
        }
        if let Some(Error::NoWay { reason: other, .. }) = last {
            reason = format!("{reason}; without a link: {other}");
        }
        Error::NoWay { host: self.host.clone(), reason, timeline: Box::default() }
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

/// Says what became of a request by how its try ended.
const fn fate(end: TryEnd) -> Fate {
    match end {
        TryEnd::BrokenOff { may_have_run: true } | TryEnd::MayHaveRun | TryEnd::Reset | TryEnd::Unavailable => {
            Fate::MayHaveRun
        }
        TryEnd::BrokenOff { may_have_run: false } | TryEnd::NotExecuted => Fate::NotExecuted,
        TryEnd::NotSent => Fate::NothingSent,
        TryEnd::TooLarge => Fate::Executed,
    }
}

/// Says what an answer is to the ladder, if it is not the service's own.
fn end_of(answer: &Response<Body>, way: Way) -> Option<TryEnd> {
    let is_unexecuted = is_gateways_word(way) && answer.headers().contains_key(NOT_EXECUTED_HEADER);
    // Whose word this is does not matter: at worst a service that says so of one behind it is asked less often.
    let names = |name: &HeaderValue| name.to_str().is_ok_and(has_broken_off);
    if is_unavailable(answer.status()) && answer.headers().get(ERROR_HEADER).is_some_and(names) {
        return Some(TryEnd::BrokenOff { may_have_run: !is_unexecuted });
    }
    if is_unexecuted {
        return Some(TryEnd::NotExecuted);
    }
    is_unavailable(answer.status()).then_some(TryEnd::Unavailable)
}

/// Says whether an answer by a way is the gateway's own, as is then what it says of the request. By the others it may be that of a service,
/// which has the header from somewhere else, and has run the request.
const fn is_gateways_word(way: Way) -> bool {
    match way {
        Way::Link | Way::Pipe | Way::Plain => true,
        Way::Address | Way::Name | Way::Original => false,
    }
}

impl View {
    /// Returns how the link is for a request that began at a time. Until it is known what the gateways serve, nothing is sent on it.
    fn link(&self, is_known: bool, began: Time, now: Time) -> LinkView {
        let is_hopeless = self.failure.as_ref().is_some_and(|failure| failure.concerns(began));
        match self.link {
            LinkView::Open { .. } if !is_known => {
                LinkView::Sought { since: None, alive_at: Some(now), is_exhausted: false, denied: None }
            }
            LinkView::None | LinkView::Sought { .. } if is_hopeless => LinkView::None,
            LinkView::None | LinkView::Open { .. } | LinkView::Sought { .. } => self.link,
        }
    }
}

/// A time that does not come while a request lives.
fn far() -> Instant {
    Instant::now() + std::time::Duration::from_secs(86_400)
}
