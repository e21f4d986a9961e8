//! Runs each keyed request once, to its end whoever still listens, and gives its answer to all who ask for it.

mod key;
mod tape;
mod upload;

pub use self::key::{KEY_HEADER, SCOPE_HEADER};

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::uri::Authority;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body_util::BodyExt;
use ropeway_core::Time;
use ropeway_core::request::idempotency::{Begin, Ending, Fingerprint, Idempotency, IdempotencyConfig, Likeness, Run};
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

pub(super) use self::key::Key;
use self::key::{Asked, CREDENTIALS};
use self::tape::{Progress, Reader, Tape};
use self::upload::{Digested, Held, UploadLimits, hold, skim};
use super::errors::ErrorCounters;
use super::exit::Exit;
use super::{Peer, ProxyBody, ProxyError};
use crate::metrics::{KeyedMetrics, Metrics};

/// What the gateway remembers of keyed requests, and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyedConfig {
    /// Time to live, keys and bytes of the memory.
    pub memory: IdempotencyConfig,
    /// Bytes of one answer, its head included, up to which it is kept. Default: 64 KiB.
    pub answer_bytes_max: usize,
    /// Bytes of a request's body up to which it is held until it is whole. Default: 64 KiB.
    pub body_bytes_held_max: usize,
    /// Time that a repeat waits for the answer of the first. Default: 30 s.
    pub wait_timeout: Duration,
    /// Time that a request goes on after its last client has left. Default: 60 s.
    pub finish_timeout: Duration,
    /// Request headers that tell one client without a ticket from another. Default: `authorization`, `cookie`.
    pub credentials: Vec<HeaderName>,
}

impl Default for KeyedConfig {
    fn default() -> Self {
        Self {
            memory: IdempotencyConfig::default(),
            answer_bytes_max: ANSWER_BYTES_MAX,
            body_bytes_held_max: BODY_BYTES_HELD_MAX,
            wait_timeout: WAIT_TIMEOUT,
            finish_timeout: FINISH_TIMEOUT,
            credentials: CREDENTIALS.to_vec(),
        }
    }
}

/// The keyed requests of one gateway.
#[derive(Debug)]
pub(super) struct Keyed {
    pub(super) config: KeyedConfig,
    origin: Instant,
    memory: Mutex<Idempotency<Arc<Tape>>>,
    errors: Arc<ErrorCounters>,
    metrics: KeyedMetrics,
    /// Requests that run, their clients present or not.
    pub(super) runs: TaskTracker,
}

/// Where a keyed request goes, and for whom.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) exit: Arc<Exit>,
    pub(super) authority: Authority,
    pub(super) peer: Peer,
}

impl Keyed {
    pub(super) fn new(config: KeyedConfig, metrics: &Metrics, errors: Arc<ErrorCounters>) -> Arc<Self> {
        Arc::new(Self {
            memory: Mutex::new(Idempotency::new(config.memory)),
            config,
            origin: Instant::now(),
            errors,
            metrics: metrics.keyed(),
            runs: TaskTracker::new(),
        })
    }

    /// Forgets what has had its time.
    pub(super) fn sweep(&self) {
        self.with(Idempotency::handle_timeout);
    }

    /// Runs a request, or answers it with what another one with its key has got or will get.
    pub(super) async fn forward(
        self: &Arc<Self>,
        key: &Key,
        mut request: Request<ProxyBody>,
        place: Place,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        for _ in 0..BEGINS_MAX {
            let tape = Tape::new(self.config.answer_bytes_max, place.peer.user.clone());
            match self.with(|memory, now| memory.begin(&key.scopes, || Arc::clone(&tape), now)) {
                Begin::Full => return Err(ProxyError::KeyMemoryFull),
                Begin::Join(run, tape) => match self.repeat(run, tape, request, &place).await? {
                    Repeated::Answered(response) => return Ok(response),
                    Repeated::Again(again) => request = again,
                },
                Begin::Run(run) => {
                    let reader = tape.reader().expect("a new tape has room");
                    let running = Running { keyed: Arc::clone(self), run, tape };
                    self.metrics.runs.inc();
                    self.runs.spawn(running.run(request, place));
                    return reader.head().await;
                }
            }
        }
        Err(ProxyError::KeyInProgress)
    }

    /// Answers a request whose key is known, once its body has been read and found to be the same.
    async fn repeat(
        &self,
        run: Run,
        tape: Option<Arc<Tape>>,
        request: Request<ProxyBody>,
        place: &Place,
    ) -> Result<Repeated, ProxyError> {
        // Taken before the body is read, so that the run goes on meanwhile and the answer stays.
        let reader = tape.as_ref().map(|tape| tape.reader().ok_or(ProxyError::KeyInProgress)).transpose()?;
        let (parts, body) = request.into_parts();
        let mut asked = Asked::new(&parts.method, &parts.uri);
        let limits = self.limits(place);
        let whole = match hold(body, &mut asked, limits).await? {
            Held::Whole(whole) => Some(whole),
            Held::Begun(ahead, rest) => {
                skim(rest, ahead.len(), &mut asked, limits).await?;
                None
            }
        };
        let fingerprint = asked.fingerprint();
        let Some((tape, reader)) = tape.zip(reader) else {
            return match self.with(|memory, _| memory.compare(run, fingerprint)) {
                Likeness::Different => Err(ProxyError::KeyMismatch),
                Likeness::Same | Likeness::Unknown => Err(ProxyError::KeyAnswerGone),
            };
        };
        if tape.user.is_some() && place.peer.user.is_some() && tape.user != place.peer.user {
            return Err(ProxyError::KeyMismatch);
        }
        let outcome = tape.woken(|| self.outcome(run, &tape, fingerprint));
        match timeout(self.config.wait_timeout, outcome).await {
            Err(_) => Err(ProxyError::KeyInProgress),
            Ok(Outcome::Answered) => Ok(Repeated::Answered(self.replay(reader))),
            Ok(Outcome::NotExecuted(error)) => {
                let whole = whole.ok_or(error)?;
                Ok(Repeated::Again(Request::from_parts(parts, whole.body())))
            }
            Ok(Outcome::Refused(error)) => Err(error),
        }
    }

    /// What a repeat gets; nothing as long as that is open.
    fn outcome(&self, run: Run, tape: &Tape, fingerprint: Fingerprint) -> Option<Outcome> {
        let progress = tape.progress();
        match (self.with(|memory, _| memory.compare(run, fingerprint)), progress) {
            (Likeness::Different, _) => Some(Outcome::Refused(ProxyError::KeyMismatch)),
            (_, Progress::Failed(error, true)) => Some(Outcome::NotExecuted(error)),
            (Likeness::Same, Progress::Failed(error, false)) => Some(Outcome::Refused(error)),
            (Likeness::Same, Progress::Answered(_)) => Some(Outcome::Answered),
            (Likeness::Unknown, Progress::Failed(..) | Progress::Answered(true)) => {
                Some(Outcome::Refused(ProxyError::KeyAnswerGone))
            }
            (Likeness::Unknown, Progress::Answered(false)) | (_, Progress::Running) => None,
        }
    }

    fn replay(&self, reader: Reader) -> Response<ProxyBody> {
        self.metrics.replays.inc();
        let mut response = reader.answer();
        response.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("1"));
        response
    }

    fn limits(&self, place: &Place) -> UploadLimits {
        let spec = place.exit.route.spec();
        UploadLimits {
            held_bytes_max: self.config.body_bytes_held_max,
            bytes_max: spec.body_bytes_max,
            idle: spec.idle_timeout,
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut Idempotency<Arc<Tape>>, Time) -> T) -> T {
        let mut memory: MutexGuard<'_, _> = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = act(&mut memory, Time::from_origin(self.origin.elapsed()));
        self.metrics.keys.set(i64::try_from(memory.len()).unwrap_or(i64::MAX));
        self.metrics.bytes.set(i64::try_from(memory.kept_bytes()).unwrap_or(i64::MAX));
        outcome
    }
}

/// What becomes of a repeat.
enum Repeated {
    /// The first did not run after all: this one may.
    Again(Request<ProxyBody>),
    Answered(Response<ProxyBody>),
}

enum Outcome {
    Answered,
    NotExecuted(ProxyError),
    Refused(ProxyError),
}

/// A request on its way, in a task of its own. However that ends, the memory hears of it.
struct Running {
    keyed: Arc<Keyed>,
    run: Run,
    tape: Arc<Tape>,
}

impl Running {
    async fn run(self, request: Request<ProxyBody>, place: Place) {
        let alone = self.tape.alone(self.keyed.config.finish_timeout);
        tokio::select! {
            () = self.exchange(request, place) => {}
            () = alone => tracing::debug!("keyed request given up, nobody waits for it any more"),
        }
    }

    async fn exchange(&self, request: Request<ProxyBody>, place: Place) {
        let (parts, body) = request.into_parts();
        let mut asked = Asked::new(&parts.method, &parts.uri);
        let mut whole_body = None;
        let body = match hold(body, &mut asked, self.keyed.limits(&place)).await {
            Err(ProxyError::RequestBodyCut | ProxyError::RequestBodyIdle) => {
                return self.failed(ProxyError::RequestBodyHeld, true);
            }
            Err(error) => return self.failed(error, true),
            Ok(Held::Whole(whole)) => {
                self.asked(asked);
                whole_body.insert(whole).body()
            }
            Ok(Held::Begun(ahead, rest)) => {
                let (keyed, run, tape) = (Arc::clone(&self.keyed), self.run, Arc::clone(&self.tape));
                let tell = move |asked: Asked| keyed.tell(run, &tape, asked);
                Digested::new(ahead, rest, asked, tell).boxed_unsync()
            }
        };
        let serve = |request| place.exit.serve(request, &place.authority, &place.peer, &self.keyed.errors);
        let again = whole_body.map(|whole| (parts.clone(), whole));
        let mut answer = serve(Request::from_parts(parts, body)).await;
        let is_unwritten = matches!(answer, Err(ProxyError::UpstreamClosed));
        // Without a body the exit has sent it again already, where that may help.
        if let Some((parts, whole)) = again.filter(|(_, whole)| is_unwritten && !whole.is_empty()) {
            // A connection that died before anything was written: another may live.
            place.exit.metrics.retries.inc();
            answer = serve(Request::from_parts(parts, whole.body())).await;
        }
        match answer {
            Ok(response) => self.record(response).await,
            Err(error) => self.failed(error, !error.executed()),
        }
    }

    async fn record(&self, response: Response<ProxyBody>) {
        let (parts, mut body) = response.into_parts();
        self.tape.set_head(parts.status, parts.headers);
        let mut trailers = None;
        let end = loop {
            match body.frame().await {
                None => break Ok(trailers),
                Some(Err(error)) => break Err(error),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => match self.tape.push(data).await {
                        Ok(true) => {}
                        Ok(false) => self.keyed.with(|memory, _| memory.handle_overflow(self.run)),
                        // The answer is too long to be kept, and nobody is there to take it.
                        Err(tape::Abandoned) => return,
                    },
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
            }
        };
        let is_whole = end.is_ok();
        self.tape.end(end);
        let ending = if is_whole { Ending::Answered { bytes: self.tape.bytes() } } else { Ending::Gone };
        self.finish(ending);
    }

    fn failed(&self, error: ProxyError, not_executed: bool) {
        let ending = if not_executed { Ending::NotExecuted } else { Ending::Answered { bytes: ERROR_BYTES } };
        // In this order: who hears that it did not run finds the key free.
        self.finish(ending);
        self.tape.fail(error, not_executed);
    }

    fn asked(&self, asked: Asked) {
        self.keyed.tell(self.run, &self.tape, asked);
    }

    fn finish(&self, ending: Ending) {
        self.keyed.with(|memory, now| memory.finish(self.run, ending, now));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.finish(Ending::Gone);
        if !matches!(self.tape.progress(), Progress::Answered(true) | Progress::Failed(..)) {
            self.tape.fail(ProxyError::KeyAnswerGone, false);
        }
    }
}

impl Keyed {
    /// Notes what a running request asks for, and lets its repeats compare.
    fn tell(&self, run: Run, tape: &Tape, asked: Asked) {
        self.with(|memory, _| memory.handle_fingerprint(run, asked.fingerprint()));
        tape.wake();
    }
}

/// Response header on an answer that came from memory; never taken over from an upstream.
pub const REPLAYED_HEADER: HeaderName = HeaderName::from_static("ropeway-replayed");

/// Bytes of one answer: as much as is kept for a session whose link broke (`gateway.answers_bytes_max`). What answers a payment
/// has 1 to 4 KiB.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Bytes of a body that are held: what one HTTP/2 stream may have under way by default (RFC 9113 section 6.9.2), so that holding a
/// body takes no more memory than a slow upstream would. A body cut below that has certainly not run.
const BODY_BYTES_HELD_MAX: usize = 64 << 10;

/// Time that a repeat waits: the first-byte limit that a route has by default.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Time that a request goes on for nobody: twice the first-byte limit that a route has by default.
const FINISH_TIMEOUT: Duration = Duration::from_secs(60);

/// Times that one request asks whether it may run: each time but the first, another ran instead and failed unexecuted.
const BEGINS_MAX: usize = 3;

/// Bytes that it takes to keep an error of the gateway.
const ERROR_BYTES: usize = 64;
