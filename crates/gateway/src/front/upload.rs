//! Reads on, within bounds, what a client still sends once its answer has begun.
//!
//! A server that answers before it has read the whole request and then closes may take the answer away again: bytes
//! that nobody read make the closing a reset, which overtakes the answer (RFC 9112 section 9.6), and not every
//! HTTP/2 client survives the RST_STREAM that RFC 9113 section 8.1 provides for it. So the rest of a body that
//! nobody wants is read and thrown away, and a connection or stream ends where the client ended it. Decision 0010 has
//! the measurements.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::incoming::ClientBody;
use super::{FrontLimits, STREAM_WINDOW_BYTES};
use crate::proxy::{ProxyBody, ProxyError};

/// A request's body, between who reads it and the answer.
#[derive(Debug)]
pub(super) struct Upload {
    state: Mutex<State>,
    /// Tells the task that reads on of a change in `state`.
    changed: Notify,
    bytes_max: u64,
    idle: Duration,
    total: Duration,
}

#[derive(Debug)]
struct State {
    source: Source,
    /// Whether its reader is still there.
    is_wanted: bool,
    /// The reader, while it waits for the client.
    waiting: Option<Waker>,
    /// Whether the reader has ever asked for it.
    is_begun: bool,
    /// When a frame last came, or the body itself.
    moved: Instant,
    /// When the answer ended.
    answered: Option<Instant>,
}

#[derive(Debug)]
enum Source {
    Body(ClientBody),
    Ended,
    /// No longer its reader's, who must not take it for whole.
    Taken,
}

impl Upload {
    /// Splits a request's body into what its reader gets and what its answer must know; that is nothing for a body
    /// that is over.
    pub(super) fn share(body: ClientBody, limits: &FrontLimits) -> (ProxyBody, Option<Arc<Self>>) {
        if body.is_end_stream() {
            return (body.boxed_unsync(), None);
        }
        let upload = Arc::new(Self {
            state: Mutex::new(State {
                source: Source::Body(body),
                is_wanted: true,
                waiting: None,
                is_begun: false,
                moved: Instant::now(),
                answered: None,
            }),
            changed: Notify::new(),
            bytes_max: limits.linger_bytes_max,
            idle: limits.linger_idle_timeout,
            total: limits.linger_timeout,
        });
        (Reader(Arc::clone(&upload)).boxed_unsync(), Some(upload))
    }

    /// Whether its reader has asked for it.
    pub(super) fn is_begun(&self) -> bool {
        self.state().is_begun
    }

    /// Whether its client has told its length and has more of it to send than one window's credit.
    pub(super) fn may_fall_short(&self) -> bool {
        let left = match &self.state().source {
            Source::Body(body) => body.size_hint().exact(),
            Source::Ended | Source::Taken => None,
        };
        left.is_some_and(|left| left > u64::from(STREAM_WINDOW_BYTES))
    }

    /// Notes that the answer's head is on its way, and sees to what will be left of the body.
    ///
    /// Not before: asked for earlier, a body that its client keeps back would come (RFC 9110 section 10.1.1).
    pub(super) fn answering(self: &Arc<Self>) {
        if matches!(self.state().source, Source::Body(_))
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(Arc::clone(self).linger());
        }
    }

    /// Notes that the answer has ended, whole or not.
    pub(super) fn answered(&self) {
        self.state().answered = Some(Instant::now());
        self.changed.notify_one();
    }

    /// Reads on once nobody else does.
    async fn linger(self: Arc<Self>) {
        let Some(mut body) = self.left_over().await else { return };
        let mut bytes_left = self.bytes_max;
        loop {
            tokio::select! {
                frame = body.frame() => {
                    let Some(Ok(frame)) = frame else { return };
                    let length = frame.data_ref().map_or(0, |data| data.len() as u64);
                    let Some(left) = bytes_left.checked_sub(length) else { break };
                    bytes_left = left;
                    self.state().moved = Instant::now();
                }
                () = self.changed.notified() => {}
                () = until(self.deadline()) => break,
            }
        }
        tracing::debug!("client sent too much or too slowly behind its answer");
    }

    /// Waits for the body to be nobody's; gives `None` if it ends before.
    async fn left_over(&self) -> Option<ClientBody> {
        loop {
            let patience = {
                let mut state = self.state();
                if !matches!(state.source, Source::Body(_)) {
                    return None;
                }
                // An answer that has ended takes the body only from a reader who does not go on with it.
                let patience = if state.waiting.is_some() { self.idle } else { READER_PATIENCE };
                let patience = state.answered.map(|ended| ended.max(state.moved) + patience);
                if !state.is_wanted || patience.is_some_and(|patience| patience <= Instant::now()) {
                    return state.take();
                }
                // A reader may begin to be stuck in between.
                patience.map(|patience| patience.min(Instant::now() + READER_PATIENCE))
            };
            tokio::select! {
                () = self.changed.notified() => {}
                () = until(patience) => {}
            }
        }
    }

    /// When to read no further; while the answer goes on, its own limits hold.
    fn deadline(&self) -> Option<Instant> {
        let state = self.state();
        state.answered.map(|ended| (ended.max(state.moved) + self.idle).min(ended + self.total))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes the body from its reader, who learns of it.
    fn take(&mut self) -> Option<ClientBody> {
        if let Some(reader) = self.waiting.take() {
            reader.wake();
        }
        match std::mem::replace(&mut self.source, Source::Taken) {
            Source::Body(body) => Some(body),
            Source::Ended | Source::Taken => None,
        }
    }
}

/// The body as its reader sees it.
#[derive(Debug)]
struct Reader(Arc<Upload>);

impl Body for Reader {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let mut state = self.0.state();
        state.is_begun = true;
        let body = match &mut state.source {
            Source::Body(body) => body,
            Source::Ended => return Poll::Ready(None),
            Source::Taken => return Poll::Ready(Some(Err(ProxyError::RequestBodyCut))),
        };
        let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) else {
            state.waiting = Some(cx.waker().clone());
            return Poll::Pending;
        };
        state.waiting = None;
        state.moved = Instant::now();
        if !matches!(frame, Some(Ok(_))) {
            state.source = Source::Ended;
            self.0.changed.notify_one();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.0.state().source {
            Source::Body(body) => body.is_end_stream(),
            Source::Ended => true,
            Source::Taken => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0.state().source {
            Source::Body(body) => body.size_hint(),
            Source::Ended => SizeHint::with_exact(0),
            Source::Taken => SizeHint::default(),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_wanted = false;
        if matches!(&state.source, Source::Body(body) if body.is_end_stream()) {
            state.source = Source::Ended;
        }
        self.0.changed.notify_one();
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Time an upstream whose answer has ended may take nothing of a body that is there, before it counts as given up:
/// nginx without buffering and Envoy end the exchange with the answer at once, but some services answer first and
/// then read.
const READER_PATIENCE: Duration = Duration::from_secs(1);
