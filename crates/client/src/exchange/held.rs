//! The ways that hold a request and its answer whole: the sealed pipe, and plain HTTP with a signed answer.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, atomic::Ordering},
};

use http::{Request, Response};
use http_body::Body as _;
use ropeway_core::{
    Time,
    connect::{FailReason, Score},
    request::{TryEnd, Way, pick, spot},
};

use ropeway_net::pipe::Content;

use super::{Run, attempt::Failed};
use crate::{
    Body, Error, Event,
    client::Handle,
    pace::Pauses,
    pipe::{Pipe, PipeConfig, PipeTarget, whole},
    plain::{Plain, PlainTarget, VerifyingKey},
    shared::{Shared, lock},
    sources,
    way::{self, Cause, Fate, Shape, Trace},
};

/// One try of one of these ways, but for the request.
pub(super) struct Held {
    pub(super) handle: Handle,
    pub(super) host: String,
    pub(super) idempotent: bool,
    pub(super) shape: Shape,
    /// Where the request's body lies for its other tries.
    pub(super) slot: Arc<Mutex<Option<Body>>>,
    pub(super) began: Time,
}

impl Run {
    /// Picks the gateway that the next try goes to, another site than those before.
    pub(super) fn pick<'a, T>(&mut self, targets: &'a [T], place: impl Fn(&T) -> (SocketAddr, &str)) -> Option<&'a T> {
        let shared = self.handle.shared();
        let places: Vec<_> = targets.iter().map(&place).collect();
        let number = pick(&places, &self.tried, &shared.spots(), shared.clock.now())?;
        self.tried.push(places[number].0);
        targets.get(number)
    }
}

impl Held {
    /// Sends a request through a sealed pipe; once more where the gateway only found its clock wrong.
    pub(super) async fn pipe(
        self,
        request: Request<Body>,
        target: sources::PipeTarget,
        trace: &Trace,
    ) -> Result<Response<Body>, Failed> {
        let config = PipeConfig::parse(&target.key.config).map_err(|error| self.unusable(error.to_string()))?;
        let target = PipeTarget { address: target.address, config };
        let offset_ms = &self.handle.shared().clock_offset_ms;
        let pipe = Pipe::default();
        let held = self.hold(request, pipe.request_bytes_max).await;
        let (request, again) = match held {
            Ok(held) => held,
            Err(cause) => {
                return self.ended(Way::Pipe, target.address, Err(way::Failed::before(target.address, cause)));
            }
        };
        let measured = self.handle.shared().pace.begin(request.body().size_hint().lower());
        let mut sent = pipe.send_traced(request, &target, self.shape, offset_ms.load(Ordering::Relaxed), trace).await;
        if let Err(way::Failed { cause: Cause::Clock { offset_ms: told_ms }, fate: Fate::NotExecuted, .. }) = &sent {
            offset_ms.store(*told_ms, Ordering::Relaxed);
            sent = pipe.send_traced(again, &target, self.shape, *told_ms, trace).await;
        }
        let answer = self.ended(Way::Pipe, target.address, sent)?;
        Ok(measured.answer(answer, Pauses::Free))
    }

    /// Sends a request over plain HTTP and verifies the answer.
    pub(super) async fn plain(
        self,
        request: Request<Body>,
        target: sources::PlainTarget,
        trace: &Trace,
    ) -> Result<Response<Body>, Failed> {
        let keys = target.keys.iter().filter_map(|key| VerifyingKey::new(&key.key_id, &key.public_key));
        let target = PlainTarget { address: target.address, keys: keys.collect() };
        let plain = Plain::default();
        let held = self.hold(request, plain.request_bytes_max).await;
        let (request, _) = match held {
            Ok(held) => held,
            Err(cause) => {
                return self.ended(Way::Plain, target.address, Err(way::Failed::before(target.address, cause)));
            }
        };
        let measured = self.handle.shared().pace.begin(request.body().size_hint().lower());
        let sent = plain.send_traced(request, &target, self.shape, trace).await;
        let answer = self.ended(Way::Plain, target.address, sent)?;
        Ok(measured.answer(answer, Pauses::Free))
    }

    /// Reads the body whole, leaves a copy for other tries, and returns the request twice.
    async fn hold(&self, request: Request<Body>, bytes_max: usize) -> Result<(Request<Body>, Request<Body>), Cause> {
        let (head, body) = request.into_parts();
        let (data, trailers) = way::hold(body, bytes_max).await?;
        let copy = || whole(Content { data: data.clone(), trailers: trailers.clone() });
        lock(&self.slot).get_or_insert_with(copy);
        Ok((Request::from_parts(head.clone(), copy()), Request::from_parts(head, copy())))
    }

    /// Takes in how a try ended, and says it in the words of the ladder.
    fn ended(
        self,
        way: Way,
        address: SocketAddr,
        sent: Result<Response<Body>, way::Failed>,
    ) -> Result<Response<Body>, Failed> {
        let shared = self.handle.shared();
        let failed = match sent {
            Ok(answer) => {
                score(shared, address, Score::Success { rtt: shared.clock.now().since(self.began), won: false });
                return Ok(answer);
            }
            Err(failed) => failed,
        };
        let told = failed.cause.to_string();
        let is_tampered = failed.is_tampered();
        if is_tampered {
            shared.tampered.fetch_add(1, Ordering::Relaxed);
            shared.config.watcher.tell(Event::Tampered { address, way, reason: told.clone() });
        }
        if let Some(reason) = blamed(&failed.cause) {
            score(shared, address, Score::Failure(reason));
        }
        let (host, reason, timeline) = (self.host, told.clone(), Box::default());
        let (end, error) = match (failed.cause, failed.fate) {
            (Cause::Body(error), _) => return Err(Failed::App(Error::Body(error))),
            (_, Fate::NothingSent) => (TryEnd::NotSent, Error::NoWay { host, reason, timeline }),
            (_, Fate::NotExecuted) => (TryEnd::NotExecuted, Error::NotExecuted { reason, timeline }),
            (_, Fate::MayHaveRun) if is_tampered => (TryEnd::MayHaveRun, Error::Tampered { host, reason, timeline }),
            (_, Fate::MayHaveRun) if self.idempotent => {
                (TryEnd::MayHaveRun, Error::BrokeOff { host, way, reason, timeline })
            }
            (_, Fate::MayHaveRun) => (TryEnd::MayHaveRun, Error::OutcomeUnknown { timeline }),
        };
        Err(Failed::Way { end, error: Box::new(error), told })
    }

    fn unusable(&self, reason: String) -> Failed {
        let error = Error::NoWay { host: self.host.clone(), reason: reason.clone(), timeline: Box::default() };
        Failed::Way { end: TryEnd::NotSent, error: Box::new(error), told: reason }
    }
}

/// Notes that a try got nowhere in its time.
pub(super) fn note_stalled(shared: &Shared, address: SocketAddr) {
    score(shared, address, Score::Failure(FailReason::TimedOut));
}

fn score(shared: &Shared, address: SocketAddr, score: Score) {
    shared.spots().observe(spot(address), score, shared.clock.now());
}

/// Says what speaks against the address, where something does.
const fn blamed(cause: &Cause) -> Option<FailReason> {
    match cause {
        Cause::Connect(_) => Some(FailReason::TimedOut),
        Cause::Exchange(_) => Some(FailReason::Closed),
        Cause::Foreign { .. } | Cause::KeyUnknown | Cause::Tampered(_) | Cause::Unsigned { .. } => {
            Some(FailReason::Untrusted)
        }
        Cause::AnswerTooLarge { .. }
        | Cause::Body(_)
        | Cause::Clock { .. }
        | Cause::Invalid(_)
        | Cause::Refused { .. }
        | Cause::RequestTooLarge { .. } => None,
    }
}
