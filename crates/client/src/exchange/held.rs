//! The ways that hold a request and its answer whole: the sealed pipe, and plain HTTP with a signed answer.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, request};
use http_body::Body as _;
use ropeway_core::{
    Time,
    connect::{FailReason, Score},
    request::{NOT_EXECUTED_HEADER, TryEnd, Way, pick, spot},
};
use ropeway_net::{pipe::Content, unix_ms};
use tokio::time::sleep;

use super::{Run, attempt::Failed, rounds::Rounds};
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
    /// It has a key, which the gateway that runs it remembers.
    pub(super) is_keyed: bool,
    pub(super) shape: Shape,
    /// How long the head of its answer may take.
    pub(super) first_byte: Duration,
    /// Where the request's body lies for its other tries.
    pub(super) slot: Arc<Mutex<Option<Body>>>,
    pub(super) began: Time,
    /// Its exchanges so far.
    pub(super) rounds: Rounds,
}

/// A request that is held whole, to be sent more than once.
struct Copies {
    head: request::Parts,
    content: Content,
}

impl Copies {
    fn request(&self) -> Request<Body> {
        Request::from_parts(self.head.clone(), whole(self.content.clone()))
    }
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
    /// Sends a request through a sealed pipe.
    pub(super) async fn pipe(
        self,
        request: Request<Body>,
        target: sources::PipeTarget,
        trace: &Trace,
    ) -> Result<Response<Body>, Failed> {
        let config = PipeConfig::parse(&target.key.config).map_err(|error| self.unusable(error.to_string()))?;
        let target = PipeTarget { address: target.address, config };
        let copies = match self.hold(request, Pipe::default().request_bytes_max).await {
            Ok(copies) => copies,
            Err(cause) => {
                return self.ended(Way::Pipe, target.address, Err(way::Failed::before(target.address, cause)));
            }
        };
        let measured = self.handle.shared().pace.begin(copies.content.data.len() as u64);
        let sent = match self.is_bound() {
            true => self.asked_twice(&copies, &target, trace).await,
            false => self.dated(&copies, &target, trace, &AtomicU64::new(0)).await,
        };
        let answer = self.ended(Way::Pipe, target.address, sent)?;
        Ok(measured.answer(answer, Pauses::Free))
    }

    /// Sends a request; once more where the gateway only found its clock wrong, and once where it takes later dates only. Notes the
    /// date of the last one sent.
    async fn dated(
        &self,
        copies: &Copies,
        target: &PipeTarget,
        trace: &Trace,
        date_ms: &AtomicU64,
    ) -> Result<Response<Body>, way::Failed> {
        let shared = self.handle.shared();
        let known_ms = &shared.clock_offset_ms;
        let mut offset_ms = match (known_ms.load(Ordering::Relaxed), shared.sources()) {
            (0, Some(sources)) => sources.clock_offset_ms(),
            (known_ms, Some(_) | None) => known_ms,
        };
        let (mut is_set, mut is_redated, pipe) = (false, false, Pipe::default());
        loop {
            date_ms.store(unix_ms().saturating_add_signed(offset_ms), Ordering::Relaxed);
            let sending = (copies.request(), date_ms.load(Ordering::Relaxed));
            let sending = pipe.send_traced(sending.0, target, self.shape, sending.1, trace);
            let sent = self.rounds.follow(shared.clock, sending).await;
            let Err(failed) = &sent else { return sent };
            let may_go_on = self.idempotent || failed.fate == Fate::NotExecuted;
            if let Cause::Clock { offset_ms: told_ms } = failed.cause {
                known_ms.store(told_ms, Ordering::Relaxed);
                if may_go_on && !std::mem::replace(&mut is_set, true) {
                    offset_ms = told_ms;
                    continue;
                }
            } else if let Cause::Restarted { again: Some(again), .. } = failed.cause
                && may_go_on
                && !std::mem::replace(&mut is_redated, true)
            {
                sleep(again.pause).await;
                offset_ms = again.offset_ms;
                continue;
            }
            return sent;
        }
    }

    /// Says whether it is for its first gateway alone to run: that knows its key again, and no other does. What may run twice goes on by
    /// another way instead.
    const fn is_bound(&self) -> bool {
        self.is_keyed && !self.idempotent
    }

    /// Sends a keyed request, and once more to the same gateway where its answer is lost, or late.
    async fn asked_twice(
        &self,
        copies: &Copies,
        target: &PipeTarget,
        trace: &Trace,
    ) -> Result<Response<Body>, way::Failed> {
        let date_ms = AtomicU64::new(0);
        let mut first = pin!(self.dated(copies, target, trace, &date_ms));
        let again = || self.ask_again(copies, target, date_ms.load(Ordering::Relaxed));
        let pays = || self.handle.shared().budget().pay();
        tokio::select! {
            sent = &mut first => return match &sent {
                Err(failed) if is_lost(failed) && pays() => again().await.unwrap_or(sent),
                Err(_) | Ok(_) => sent,
            },
            () = sleep(self.first_byte) => {}
        }
        if !trace.is_handed_off() || !pays() {
            return first.await;
        }
        let mut second = pin!(again());
        tokio::select! {
            sent = &mut first => match &sent {
                Err(failed) if is_lost(failed) => second.await.unwrap_or(sent),
                Err(_) | Ok(_) => sent,
            },
            told = &mut second => match told {
                Some(told) => told,
                None => first.await,
            },
        }
    }

    /// Sends a keyed request to its gateway again; `None` if that tells nothing new.
    ///
    /// It has the date of the first, and so is taken by no later process, which would not know the key: every date that a process can
    /// have taken is refused by the next.
    async fn ask_again(
        &self,
        copies: &Copies,
        target: &PipeTarget,
        date_ms: u64,
    ) -> Option<Result<Response<Body>, way::Failed>> {
        // That this one is taken back does not take the first back.
        let (pipe, trace) = (Pipe::default(), Trace::default());
        let sending = pipe.send_traced(copies.request(), target, self.shape, date_ms, &trace);
        let sent = self.rounds.follow(self.handle.shared().clock, sending).await;
        let is_told = match &sent {
            // That this one was not executed does not say so of the first.
            Ok(answer) => !answer.headers().contains_key(NOT_EXECUTED_HEADER),
            Err(failed) => failed.fate == Fate::Executed,
        };
        is_told.then_some(sent)
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
        let request = match held {
            Ok(copies) => copies.request(),
            Err(cause) => {
                return self.ended(Way::Plain, target.address, Err(way::Failed::before(target.address, cause)));
            }
        };
        let measured = self.handle.shared().pace.begin(request.body().size_hint().lower());
        let sent = plain.send_traced(request, &target, self.shape, trace).await;
        let answer = self.ended(Way::Plain, target.address, sent)?;
        Ok(measured.answer(answer, Pauses::Free))
    }

    /// Reads the body whole, and leaves a copy for other tries.
    async fn hold(&self, request: Request<Body>, bytes_max: usize) -> Result<Copies, Cause> {
        let (head, body) = request.into_parts();
        let (data, trailers) = way::hold(body, bytes_max).await?;
        let content = Content { data, trailers };
        lock(&self.slot).get_or_insert_with(|| whole(content.clone()));
        Ok(Copies { head, content })
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
        if let (Cause::KeyUnknown, Some(sources)) = (&failed.cause, shared.sources()) {
            sources.handle_key_unknown();
        }
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
            (_, Fate::Executed) => (TryEnd::TooLarge, Error::AnswerTooLarge { host, way, timeline }),
            (_, Fate::NothingSent) => (TryEnd::NotSent, Error::NoWay { host, reason, timeline }),
            (_, Fate::NotExecuted) => (TryEnd::NotExecuted, Error::NotExecuted { reason, timeline }),
            (cause, Fate::MayHaveRun) if is_tampered => {
                // The error itself says that the answer was changed.
                let reason = if let Cause::Tampered(how) = cause { how.to_owned() } else { reason };
                (TryEnd::MayHaveRun, Error::Tampered { host, reason, timeline })
            }
            (cause, Fate::MayHaveRun) => {
                let is_large = matches!(cause, Cause::AnswerTooLarge { .. });
                // The error itself says that it broke off.
                let reason = if let Cause::Exchange(how) = cause { how } else { reason };
                let error = match self.idempotent {
                    true => Error::BrokeOff { host, way, reason, timeline },
                    false => Error::OutcomeUnknown { timeline },
                };
                (if is_large { TryEnd::TooLarge } else { TryEnd::MayHaveRun }, error)
            }
        };
        Err(Failed::Way { end, error: Box::new(error), told })
    }

    fn unusable(&self, reason: String) -> Failed {
        let error = Error::NoWay { host: self.host.clone(), reason: reason.clone(), timeline: Box::default() };
        Failed::Way { end: TryEnd::NotSent, error: Box::new(error), told: reason }
    }
}

/// Says whether a request may have run and its answer is lost, so that to ask for it again may bring it.
fn is_lost(failed: &way::Failed) -> bool {
    let is_lost = match &failed.cause {
        Cause::Exchange(_) | Cause::Foreign { .. } | Cause::KeyUnknown | Cause::Tampered(_) => true,
        Cause::Refused { name } => name == "replayed",
        Cause::AnswerHeldBack
        | Cause::AnswerTooLarge { .. }
        | Cause::Body(_)
        | Cause::Clock { .. }
        | Cause::Connect(_)
        | Cause::Invalid(_)
        | Cause::RequestTooLarge { .. }
        | Cause::Restarted { .. }
        | Cause::Unsigned { .. } => false,
    };
    is_lost && failed.fate == Fate::MayHaveRun
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
        Cause::AnswerHeldBack
        | Cause::AnswerTooLarge { .. }
        | Cause::Body(_)
        | Cause::Clock { .. }
        | Cause::Invalid(_)
        | Cause::Refused { .. }
        | Cause::RequestTooLarge { .. }
        | Cause::Restarted { .. } => None,
    }
}
