//! Bodies on their way through: limits, time-outs, and the cause of a cut.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep_until};

use super::errors::ErrorCounters;
use super::{ProxyBody, ProxyError};
use crate::metrics::{GaugeHold, Histogram};

/// What the two directions of one exchange know of each other.
#[derive(Debug)]
pub(super) struct Exchange {
    started: Instant,
    /// When a frame last passed in either direction, milliseconds after `started`.
    moved_ms: AtomicU64,
    /// Whether the request's body waits for the client, not for the upstream.
    awaits_client: AtomicBool,
    /// Whether the answer's head has come.
    answered: AtomicBool,
    /// Why the request's body failed: the true cause of what the upstream's side reports.
    failure: OnceLock<ProxyError>,
}

impl Exchange {
    pub(super) fn new(started: Instant) -> Arc<Self> {
        Arc::new(Self {
            started,
            moved_ms: AtomicU64::new(0),
            awaits_client: AtomicBool::new(false),
            answered: AtomicBool::new(false),
            failure: OnceLock::new(),
        })
    }

    /// Notes that a frame passed now.
    pub(super) fn moved(&self) {
        let elapsed = self.started.elapsed().as_millis();
        self.moved_ms.store(u64::try_from(elapsed).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn last_moved(&self) -> Instant {
        self.started + Duration::from_millis(self.moved_ms.load(Ordering::Relaxed))
    }

    pub(super) fn awaits_client(&self) -> bool {
        self.awaits_client.load(Ordering::Relaxed)
    }

    pub(super) fn set_answered(&self) {
        self.answered.store(true, Ordering::Relaxed);
        self.moved();
    }

    pub(super) fn failure(&self) -> Option<ProxyError> {
        self.failure.get().copied()
    }

    fn fail(&self, error: ProxyError) -> ProxyError {
        *self.failure.get_or_init(|| error)
    }
}

/// A request's body on its way to the upstream: counted, and cut when it is too large, when
/// the client cuts it, or when the client goes silent before the upstream has answered.
///
/// After the answer's head the silence of both directions is the [`ResponseBody`]'s to watch: a
/// stream that only sends down is not idle.
#[derive(Debug)]
pub(super) struct RequestBody {
    inner: ProxyBody,
    exchange: Arc<Exchange>,
    bytes_left: u64,
    silence: Silence,
}

impl RequestBody {
    pub(super) fn new(inner: ProxyBody, exchange: Arc<Exchange>, bytes_max: u64, idle: Duration) -> Self {
        Self { inner, exchange, bytes_left: bytes_max, silence: Silence::new(idle) }
    }

    pub(super) fn empty(exchange: Arc<Exchange>) -> Self {
        let inner = Empty::new().map_err(|never| match never {}).boxed_unsync();
        Self::new(inner, exchange, 0, Duration::MAX)
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let this = self.get_mut();
        let Poll::Ready(frame) = Pin::new(&mut this.inner).poll_frame(cx) else {
            this.exchange.awaits_client.store(true, Ordering::Relaxed);
            if this.exchange.answered.load(Ordering::Relaxed) {
                return Poll::Pending;
            }
            ready!(this.silence.poll_elapsed(cx, &this.exchange));
            return Poll::Ready(Some(Err(this.exchange.fail(ProxyError::RequestBodyIdle))));
        };
        this.exchange.awaits_client.store(false, Ordering::Relaxed);
        this.exchange.moved();
        this.silence.end();
        let Some(frame) = frame else {
            return Poll::Ready(None);
        };
        let frame = frame.map_err(|error| this.exchange.fail(error))?;
        let length = frame.data_ref().map_or(0, |data| data.len() as u64);
        let Some(left) = this.bytes_left.checked_sub(length) else {
            return Poll::Ready(Some(Err(this.exchange.fail(ProxyError::BodyTooLarge))));
        };
        this.bytes_left = left;
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An answer's body on its way to the client; holds the route's slot until it ends.
///
/// It ends in an error, never cleanly, when the upstream's body was cut or went silent.
#[derive(Debug)]
pub(super) struct ResponseBody<B> {
    /// Taken when the body has ended, so that a failed upstream connection closes at once.
    inner: Option<B>,
    exchange: Arc<Exchange>,
    silence: Silence,
    counters: Arc<ErrorCounters>,
    slot: Option<Slot>,
}

impl<B> ResponseBody<B> {
    pub(super) fn new(
        inner: B,
        exchange: Arc<Exchange>,
        idle: Duration,
        counters: Arc<ErrorCounters>,
        slot: Slot,
    ) -> Self {
        let silence = Silence::new(idle);
        Self { inner: Some(inner), exchange, silence, counters, slot: Some(slot) }
    }

    fn end(&mut self) {
        self.inner = None;
        self.slot = None;
        self.silence.end();
    }

    fn fail(&mut self, error: ProxyError) -> ProxyError {
        self.end();
        self.counters.count(error);
        error
    }
}

impl<B> Body for ResponseBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Cause,
{
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let this = self.get_mut();
        let Some(inner) = &mut this.inner else {
            return Poll::Ready(None);
        };
        let Poll::Ready(frame) = Pin::new(inner).poll_frame(cx) else {
            ready!(this.silence.poll_elapsed(cx, &this.exchange));
            return Poll::Ready(Some(Err(this.fail(ProxyError::UpstreamBodyIdle))));
        };
        this.exchange.moved();
        this.silence.end();
        match frame {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(frame))),
            Some(Err(error)) => {
                let error = this.exchange.failure().unwrap_or_else(|| error.cause());
                Poll::Ready(Some(Err(this.fail(error))))
            }
            None => {
                this.end();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

/// One request's place within its route's limit; given back and timed on drop.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) started: Instant,
    pub(super) duration: Histogram,
    pub(super) _gauge: GaugeHold,
    pub(super) _permit: OwnedSemaphorePermit,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.duration.observe(self.started.elapsed());
    }
}

/// Names the cause of an answer's body that failed.
pub(super) trait Cause {
    fn cause(self) -> ProxyError;
}

impl Cause for ProxyError {
    fn cause(self) -> ProxyError {
        self
    }
}

impl Cause for hyper::Error {
    fn cause(self) -> ProxyError {
        let reset = super::source_of::<h2::Error>(&self).is_some_and(h2::Error::is_reset);
        tracing::debug!(error = %self, "upstream body failed");
        if reset { ProxyError::UpstreamReset } else { ProxyError::UpstreamBodyCut }
    }
}

/// How long a direction has been waited for; armed by the first fruitless poll after a frame, so
/// that a client's own slowness does not count.
#[derive(Debug)]
struct Silence {
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    armed: bool,
}

impl Silence {
    fn new(limit: Duration) -> Self {
        Self { limit, sleep: None, armed: false }
    }

    /// Is ready once nothing has moved in either direction for the limit.
    fn poll_elapsed(&mut self, cx: &mut Context<'_>, exchange: &Exchange) -> Poll<()> {
        let limit = self.limit;
        let fresh = || Instant::now() + limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(fresh())));
        if !self.armed {
            self.armed = true;
            sleep.as_mut().reset(fresh());
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            let deadline = exchange.last_moved() + limit;
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }

    fn end(&mut self) {
        self.armed = false;
    }
}
