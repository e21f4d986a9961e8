//! Lets what came of an answer that was cut go out before the cut.
//!
//! HTTP libraries drop what still waits in a connection or a stream when the body they send fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::task::AtomicWaker;

/// What tells that all of an answer that was passed on is on its way.
#[derive(Clone, Debug)]
pub(super) enum Outlet {
    /// The connection, whose only answer it is: it says when nothing is left to be written.
    Connection(Arc<Flushes>),
    /// The pieces of the body, each of which is let go once it is among what the connection writes next.
    Pieces(Arc<Pieces>),
    /// Whoever reads the body sees to it.
    Reader,
}

/// How often a connection had written everything that waited.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    count: AtomicU64,
    waiting: AtomicWaker,
}

/// How many pieces of a body wait to be written.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    count: AtomicU64,
    waiting: AtomicWaker,
}

/// A cut that is held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parting {
    /// Flushes before it.
    flushed: u64,
}

impl Outlet {
    /// Makes the outlet of one of many answers on a connection.
    pub(super) fn of_stream() -> Self {
        Self::Pieces(Arc::default())
    }

    /// Follows a piece of the body on its way out.
    pub(super) fn pass(&self, data: Bytes) -> Bytes {
        match self {
            Self::Pieces(pieces) => {
                pieces.count.fetch_add(1, Ordering::Relaxed);
                Bytes::from_owner(Piece { data, pieces: Arc::clone(pieces) })
            }
            Self::Connection(_) | Self::Reader => data,
        }
    }

    /// Begins to hold a cut back.
    pub(super) fn part(&self) -> Parting {
        let flushed = match self {
            Self::Connection(flushes) => flushes.count.load(Ordering::Relaxed),
            Self::Pieces(_) | Self::Reader => 0,
        };
        Parting { flushed }
    }

    /// Is ready once everything that was passed before the cut is on its way. How long a client may take for it is bounded where its
    /// connection is guarded.
    pub(super) fn poll_parted(&self, parting: Parting, cx: &mut Context<'_>) -> Poll<()> {
        let is_out = || match self {
            Self::Connection(flushes) => flushes.count.load(Ordering::Acquire) > parting.flushed,
            Self::Pieces(pieces) => pieces.count.load(Ordering::Acquire) == 0,
            Self::Reader => true,
        };
        match self {
            Self::Connection(flushes) => flushes.waiting.register(cx.waker()),
            Self::Pieces(pieces) => pieces.waiting.register(cx.waker()),
            Self::Reader => {}
        }
        // After the waker is known: what happens from here on wakes.
        if is_out() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Flushes {
    /// Says that nothing is left to be written.
    pub(super) fn flushed(&self) {
        self.count.fetch_add(1, Ordering::Release);
        self.waiting.wake();
    }
}

/// A piece of a body that tells when it is let go.
struct Piece {
    data: Bytes,
    pieces: Arc<Pieces>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if self.pieces.count.fetch_sub(1, Ordering::Release) == 1 {
            self.pieces.waiting.wake();
        }
    }
}
