//! One try of a request: begun, watched, and its end in the words of the ladder.

use std::{
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderName, Request, Response};
use ropeway_core::{
    Time,
    request::{KEY_HEADER, Rung, TryEnd, Way},
    session::Machine as _,
};
use ropeway_net::link::{HandedOver, Handovers};

use super::{
    Run,
    held::Held,
    link,
    plan::Ways,
    rounds::{Outside, Rounds},
};
use crate::{
    Action, Body, Error, Step, Timeline,
    places::Places,
    shared::{ClientSession, Live, lock},
    short::{self, Been, Cause, Executed, Listed, To},
    way::{Fate, Shape, Trace},
};

/// A try that is under way.
pub(super) struct Try {
    pub(super) sending: Pin<Box<dyn Future<Output = Sent> + Send>>,
    pub(super) handover: Handover,
    pub(super) way: Way,
    /// Its line in the timeline.
    pub(super) step: usize,
    /// The session, where it is on a link.
    pub(super) session: Option<u64>,
    /// The one address it goes to, which is to blame if the request is not handed over in time.
    pub(super) stalled: Option<SocketAddr>,
}

/// How a try ended.
pub(super) type Sent = Result<Response<Body>, Failed>;

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
pub(crate) struct Handover(Arc<Mutex<Place>>, Handovers);

#[derive(Default)]
enum Place {
    /// It was given up after it had been handed over.
    Gone,
    #[default]
    Nowhere,
    /// A channel of a session.
    Session(ClientSession, u64),
    /// An exchange outside the link.
    Outside(Arc<Trace>),
}

impl Handover {
    pub(crate) fn is_done(&self) -> bool {
        match &*lock(&self.0) {
            Place::Gone => true,
            Place::Nowhere => false,
            Place::Session(session, channel) => session.peek(|client| !client.mux().is_unsent(*channel)),
            Place::Outside(trace) => trace.is_handed_off(),
        }
    }

    /// Takes it back, unless it was handed over; says whether it was taken back. Both are one step: its link's driver runs beside.
    pub(super) fn take_back(&self) -> bool {
        let mut place = lock(&self.0);
        let is_free = match &*place {
            Place::Gone => false,
            Place::Nowhere => true,
            Place::Session(session, channel) => session.with(|client, _| client.mux().take_back(*channel)),
            // It is handed over by the task that asks here.
            Place::Outside(trace) => !trace.is_handed_off(),
        };
        if is_free {
            *place = Place::Nowhere;
        }
        is_free
    }

    /// Returns where each time is noted that it is handed to a link.
    pub(super) fn handovers(&self) -> Handovers {
        self.1.clone()
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

    /// Returns what an exchange outside the link notes its progress in, which this follows from now on.
    fn trace(&self) -> Arc<Trace> {
        let trace = Arc::default();
        *lock(&self.0) = Place::Outside(Arc::clone(&trace));
        trace
    }
}

/// A try over the links of a session, of whose hand-overs the timeline tells one by one.
pub(super) struct Handed {
    /// Its line in the timeline.
    pub(super) step: usize,
    handovers: Handovers,
    places: Places,
}

impl Handed {
    /// Tells of each time that the request was handed over, and of the link that brought the answer where it is another: the session has
    /// gone on over it. The line that is there already tells of the last.
    pub(super) fn tell(&self, timeline: &mut Timeline, began: Time) {
        let list = self.handovers.list();
        let Some((last, before)) = list.split_last() else { return };
        let Some(line) = timeline.steps().get(self.step).cloned() else { return };
        for (number, handed) in before.iter().enumerate() {
            let started = if number == 0 { line.started } else { handed.at.since(began) };
            timeline.push(self.lost(&line, *handed, started, list[number + 1].at, began));
        }
        let started = if before.is_empty() { line.started } else { last.at.since(began) };
        let answered = self.handovers.answered().filter(|link| *link != last.link);
        let taken_over = answered.and_then(|link| self.places.of(link));
        if let Some(place) = taken_over {
            timeline.push(self.lost(&line, *last, started, place.began, began));
            return timeline.relocate(self.step, place.began.since(began), Some(place.candidate));
        }
        timeline.relocate(self.step, started, self.places.of(last.link).map(|place| place.candidate));
    }

    /// Returns the line of a hand-over whose link brought no answer, until the request was on another.
    fn lost(&self, line: &Step, handed: HandedOver, started: Duration, again_at: Time, began: Time) -> Step {
        let place = self.places.of(handed.link);
        let ended_at = place.as_ref().and_then(|place| place.ended.as_ref()).map_or(again_at, |(at, _)| *at);
        Step {
            address: place.as_ref().map(|place| place.candidate.address),
            carrier: place.as_ref().map(|place| place.candidate.carrier),
            started,
            ended: Some(ended_at.min(again_at).since(began)),
            error: Some(self.given_up(handed)),
            status: None,
            fate: Fate::MayHaveRun,
            ..line.clone()
        }
    }

    /// Says why a try was taken back.
    pub(super) fn taken_back(&self) -> String {
        self.handovers.list().last().map_or_else(|| "taken back".into(), |handed| self.given_up(*handed))
    }

    /// Adds to why a session ended why the link was lost that the request was on.
    pub(super) fn with_loss(&self, told: String) -> String {
        let last = self.handovers.list().last().and_then(|handed| self.places.of(handed.link)?.ended);
        match last {
            Some((_, reason)) => format!("the link was lost ({reason}), {told}"),
            None => told,
        }
    }

    fn given_up(&self, handed: HandedOver) -> String {
        let ended = self.places.of(handed.link).and_then(|place| place.ended);
        let reason = ended.map_or_else(|| "the link ended".into(), |(_, reason)| reason);
        let sent = if handed.is_early { "given up behind HELLO" } else { "given up" };
        format!("{sent}: {reason}")
    }
}

impl Run {
    /// Begins a try; `None` if there is nowhere to go.
    pub(super) fn begin(
        &mut self,
        rung: Rung,
        live: Option<Live>,
        ways: &Ways,
        mut request: Request<Body>,
    ) -> Option<Try> {
        self.scope_key(rung.way, ways, &mut request);
        let handover = Handover::default();
        let session = live.as_ref().map(|live| live.number);
        let places = live.as_ref().map(|live| live.places.clone());
        let mut seat = live.as_ref().map(|live| live.candidate);
        let mut stalled = None;
        let sending: Pin<Box<dyn Future<Output = Sent> + Send>> = match (rung.way, live) {
            (Way::Link, live) => {
                let (handle, live, placed) = (self.handle.clone(), live?, handover.clone());
                Box::pin(async move { link::send(&handle, live, request, &placed).await })
            }
            (Way::Address | Way::Name | Way::Original, _) => {
                let trace = handover.trace();
                let sending = self.short(rung.way, ways, Arc::clone(&trace), request);
                self.note_outside(trace, true, Rounds::default());
                sending
            }
            (Way::Pipe, _) => {
                let target = self.pick(&ways.pipes, |target| (target.address, &target.unit))?.clone();
                stalled = Some(target.address);
                let (held, trace) = self.held(rung, ways, &handover);
                self.note_outside(Arc::clone(&trace), false, held.rounds.clone());
                Box::pin(async move { held.pipe(request, target, &trace).await })
            }
            (Way::Plain, _) => {
                let target = self.pick(&ways.plains, |target| (target.address, &target.unit))?.clone();
                stalled = Some(target.address);
                let (held, trace) = self.held(rung, ways, &handover);
                Box::pin(async move { held.plain(request, target, &trace).await })
            }
        };
        let started = self.handle.shared().clock.now().since(self.began);
        let step = self.steps.push(Step {
            action: Action::Exchange,
            way: rung.way,
            address: seat.map(|seat| seat.address).or(stalled),
            carrier: seat.take().map(|seat| seat.carrier),
            started,
            ended: None,
            error: None,
            status: None,
            fate: Fate::NothingSent,
        });
        self.progress.begin(step, handover.clone());
        self.handed.extend(places.map(|places| Handed { step, handovers: handover.handovers(), places }));
        Some(Try { sending, handover, way: rung.way, step, session, stalled })
    }

    /// Lets the gateways know the request's key again as this user's, by whichever way it comes. Nobody on the way sees the secret.
    fn scope_key(&self, way: Way, ways: &Ways, request: &mut Request<Body>) {
        let is_encrypted = match way {
            Way::Link | Way::Pipe => true,
            Way::Address | Way::Name | Way::Original => self.is_encrypted(),
            Way::Plain => false,
        };
        let headers = request.headers_mut();
        if ways.is_served && is_encrypted && headers.contains_key(KEY_HEADER) {
            headers.insert(KEY_SCOPE, self.handle.shared().key_scope());
        }
    }

    /// Begins a try on a short link.
    fn short(
        &self,
        way: Way,
        ways: &Ways,
        trace: Arc<Trace>,
        request: Request<Body>,
    ) -> Pin<Box<dyn Future<Output = Sent> + Send>> {
        let shared = Arc::clone(self.handle.shared());
        let (host, idempotent) = (self.host.clone(), ways.facts.idempotent);
        let been = Been::of(self.direct().map(|outside| &*outside.trace));
        let h3 = shared.sources().is_some_and(|sources| sources.speaks_h3(&host));
        let listed: Vec<Listed> = ways.addresses.iter().map(|address| Listed { address: *address, h3 }).collect();
        Box::pin(async move {
            let to = match way {
                Way::Address => To::Addresses(&listed),
                Way::Original => To::Original,
                Way::Link | Way::Name | Way::Pipe | Way::Plain => To::Name,
            };
            let sent = shared.short.send(request, to, &been, &trace).await;
            sent.map_err(|failed| broken_off(failed, way, host, idempotent))
        })
    }

    fn held(&self, rung: Rung, ways: &Ways, handover: &Handover) -> (Held, Arc<Trace>) {
        let held = Held {
            handle: self.handle.clone(),
            host: self.host.clone(),
            idempotent: ways.facts.idempotent,
            is_keyed: ways.is_served && self.head.headers().contains_key(KEY_HEADER),
            first_byte: rung.first_byte,
            shape: if rung.is_last { Shape::Http10 } else { Shape::Http11 },
            slot: Arc::clone(&self.body),
            began: self.handle.shared().clock.now(),
            rounds: Rounds::default(),
        };
        (held, handover.trace())
    }

    /// Notes a try for the timeline, whose line is the next one.
    fn note_outside(&mut self, trace: Arc<Trace>, is_direct: bool, rounds: Rounds) {
        self.outside.push(Outside { step: self.steps.next(), trace, is_direct, rounds });
    }
}

/// Says in the words of the ladder how a short link failed.
fn broken_off(failed: short::Failed, way: Way, host: String, idempotent: bool) -> Failed {
    let told = failed.to_string();
    let reason = told.clone();
    let (end, error) = match (failed.cause, failed.executed) {
        (Cause::Body(error), _) => return Failed::App(error),
        (_, Executed::NotSent) => (TryEnd::NotSent, Error::NoWay { host, reason, timeline: Box::default() }),
        (_, Executed::No) => (TryEnd::NotExecuted, Error::NotExecuted { reason, timeline: Box::default() }),
        // Whether it ran does not matter to what may run twice; what went wrong does.
        (_, Executed::Maybe) if idempotent => {
            (TryEnd::MayHaveRun, Error::BrokeOff { host, way, reason, timeline: Box::default() })
        }
        (_, Executed::Maybe) => (TryEnd::MayHaveRun, Error::OutcomeUnknown { timeline: Box::default() }),
    };
    Failed::Way { end, error: Box::new(error), told }
}

/// Header with a secret by which a gateway knows a user's keys again on a way that does not say who the user is (decision 0013).
const KEY_SCOPE: HeaderName = HeaderName::from_static("ropeway-key-scope");
