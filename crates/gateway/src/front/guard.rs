//! Cuts a connection whose peer takes no bytes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::parting::Flushes;

/// A stream that fails once a write has made no progress for a while.
#[derive(Debug)]
pub(super) struct Guarded<I> {
    inner: I,
    limit: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    waiting: bool,
    flushes: Arc<Flushes>,
}

impl<I> Guarded<I> {
    pub(super) fn new(inner: I, limit: Duration) -> Self {
        Self { inner, limit, sleep: None, waiting: false, flushes: Arc::default() }
    }

    /// Returns what counts how often everything was written.
    pub(super) fn flushes(&self) -> Arc<Flushes> {
        Arc::clone(&self.flushes)
    }

    fn guard<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.waiting = false;
            return outcome;
        }
        let limit = self.limit;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep(limit)));
        if !self.waiting {
            self.waiting = true;
            sleep.as_mut().reset(Instant::now() + limit);
        }
        sleep.as_mut().poll(cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, Stalled)))
    }
}

/// Whether a connection ended because its peer took no bytes.
pub(super) fn is_stall(error: &hyper::Error) -> bool {
    let io = crate::proxy::source_of::<io::Error>(error);
    io.and_then(io::Error::get_ref).is_some_and(|inner| inner.is::<Stalled>())
}

#[derive(Debug, thiserror::Error)]
#[error("peer took no bytes for too long")]
struct Stalled;

impl<I: AsyncRead + Unpin> AsyncRead for Guarded<I> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Guarded<I> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.guard(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.guard(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_flush(cx);
        if matches!(outcome, Poll::Ready(Ok(()))) {
            // hyper has written all it had before it flushes.
            self.flushes.flushed();
        }
        self.guard(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.guard(cx, outcome)
    }
}
