//! Watches the requests of one HTTP/2 connection: none for too long, or an answer nobody takes.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::parting::{Outlet, Parting};
use super::upload::Upload;
use crate::proxy::{ProxyBody, ProxyError};

/// The open requests of one connection.
#[derive(Debug)]
pub(super) struct Streams {
    started: Instant,
    open_max: usize,
    open: Mutex<Vec<Weak<Stream>>>,
    /// When the last request began or was seen open, milliseconds after `started`.
    busy_ms: AtomicU64,
}

/// What must end a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Verdict {
    /// No request for too long, or none whole.
    Idle,
    /// An answer is there and the client gives no credit for it.
    Stalled,
}

impl Streams {
    pub(super) fn new(open_max: usize) -> Self {
        Self { started: Instant::now(), open_max, open: Mutex::default(), busy_ms: AtomicU64::new(0) }
    }

    /// Registers a request.
    pub(super) fn open(&self) -> Arc<Stream> {
        let stream = Arc::new(Stream { started: self.started, handed_ms: AtomicU64::new(NOTHING_HANDED) });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= self.open_max {
            open.retain(|stream| stream.strong_count() > 0);
        }
        open.push(Arc::downgrade(&stream));
        self.busy_ms.store(stream.now_ms(), Ordering::Relaxed);
        stream
    }

    /// Waits until the connection has been idle or an answer has stalled for the limits.
    pub(super) async fn watch(&self, idle: Duration, stall: Duration) -> Verdict {
        loop {
            tokio::time::sleep(idle.min(stall) / CHECKS_PER_LIMIT).await;
            let now = self.started.elapsed();
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.retain(|stream| stream.strong_count() > 0);
            let stalled = open.iter().filter_map(Weak::upgrade).any(|stream| stream.has_stalled(now, stall));
            if stalled {
                return Verdict::Stalled;
            }
            if !open.is_empty() {
                self.busy_ms.store(millis(now), Ordering::Relaxed);
            } else if now >= Duration::from_millis(self.busy_ms.load(Ordering::Relaxed)) + idle {
                return Verdict::Idle;
            }
        }
    }
}

/// One open request, from its head to the end of its answer.
#[derive(Debug)]
pub(super) struct Stream {
    started: Instant,
    /// When a frame was last handed over that the client has not taken, milliseconds after `started`.
    handed_ms: AtomicU64,
}

impl Stream {
    fn now_ms(&self) -> u64 {
        millis(self.started.elapsed())
    }

    fn has_stalled(&self, now: Duration, limit: Duration) -> bool {
        let handed_ms = self.handed_ms.load(Ordering::Relaxed);
        handed_ms != NOTHING_HANDED && now >= Duration::from_millis(handed_ms) + limit
    }
}

/// An answer's body as the front door sends it; the connection knows of it until it is dropped.
#[derive(Debug)]
pub(super) struct FrontBody {
    inner: ProxyBody,
    stream: Option<Arc<Stream>>,
    /// What the client may still be sending; unless it has ended.
    upload: Option<Arc<Upload>>,
    outlet: Outlet,
    /// How it failed, while that is held back.
    cut: Option<(ProxyError, Parting)>,
    is_begun: bool,
}

impl FrontBody {
    pub(super) fn new(
        inner: ProxyBody,
        stream: Option<Arc<Stream>>,
        upload: Option<Arc<Upload>>,
        outlet: Outlet,
    ) -> Self {
        Self { inner, stream, upload, outlet, cut: None, is_begun: false }
    }

    /// hyper asks for a body, or drops an empty one, behind the answer's head.
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.is_begun, true)
            && let Some(upload) = &self.upload
        {
            upload.answering();
        }
    }
}

impl Drop for FrontBody {
    fn drop(&mut self) {
        self.begin();
        if let Some(upload) = &self.upload {
            upload.answered();
        }
    }
}

impl Body for FrontBody {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        self.begin();
        if let Some((error, parting)) = self.cut {
            return self.outlet.poll_parted(parting, cx).map(|()| Some(Err(error)));
        }
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if let Poll::Ready(Some(Err(error))) = frame {
            let parting = self.outlet.part();
            self.cut = Some((error, parting));
            return self.outlet.poll_parted(parting, cx).map(|()| Some(Err(error)));
        }
        if let Some(stream) = &self.stream {
            // hyper asks for the next frame once the client has given credit for the last one.
            let handed_ms = if frame.is_ready() { stream.now_ms() } else { NOTHING_HANDED };
            stream.handed_ms.store(handed_ms, Ordering::Relaxed);
        }
        frame.map_ok(|frame| frame.map_data(|data| self.outlet.pass(data)))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Says that the client has taken all there is.
const NOTHING_HANDED: u64 = u64::MAX;

/// Checks within the shorter limit: a limit is exceeded by a quarter at most.
const CHECKS_PER_LIMIT: u32 = 4;
