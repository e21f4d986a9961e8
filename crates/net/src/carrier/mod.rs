//! How frames travel: one trait, three carriers.

use std::{
    net::SocketAddr,
    task::{Context, Poll},
};

use ropeway_core::{
    CarrierKind,
    session::LinkError,
    wire::{Frame, FrameRef},
};
use thiserror::Error;

mod quic;
mod stream;
mod tls;
mod ws;

pub(crate) use quic::idle_timeout;
pub use quic::{QuicCarrier, link_transport};
pub use stream::StreamCarrier;
pub use tls::TlsCarrier;
pub use ws::{WsCarrier, ws_limits};

use crate::{scratch::Scratch, tls::TlsError};

/// One connection that carries the frames of a link.
///
/// A carrier decides nothing: it passes every frame that arrives and takes frames from their source while the connection has room
/// for them. Both calls borrow the thread's scratch, so that an idle link holds no buffer. One task drives a carrier.
pub trait Carrier: Send {
    /// Returns which carrier this is.
    fn kind(&self) -> CarrierKind;

    /// Returns the address of the other end.
    fn peer(&self) -> SocketAddr;

    /// Reads what has arrived and passes each frame to `sink`, in order.
    ///
    /// # Errors
    ///
    /// A [`CarrierError`], the sink's own included; the connection is of no use afterwards.
    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<Arrived, CarrierError>>;

    /// Takes frames from `source` and writes them, until the source is dry (ready) or the connection is full (pending).
    ///
    /// # Errors
    ///
    /// A [`CarrierError`]; the connection is of no use afterwards.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        source: &mut dyn FnMut() -> Option<Frame>,
    ) -> Poll<Result<(), CarrierError>>;

    /// Flushes and says goodbye.
    fn poll_close(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()>;

    /// Returns the TLS exporter of this connection, which PROOF signs; `None` before the handshake is complete, and on `ws`, where
    /// PROOF signs a challenge instead.
    fn binding(&self) -> Option<[u8; 32]>;

    /// The link was admitted: frames of exchanges may be read, and the bounds for strangers no longer hold.
    fn admit(&mut self) {}
}

/// Takes a frame; `early` says that it came as early data and may be a replay.
pub type Sink<'a> = dyn FnMut(FrameRef<'_>, bool) -> Result<(), LinkError> + 'a;

/// What a successful [`Carrier::poll_recv`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The other end sends no more.
    Closed,
    /// Something was read; there may be more.
    Some,
}

/// Why a connection failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CarrierError {
    /// The socket failed.
    #[error("connection to {peer} failed: {source}")]
    Io {
        /// The other end.
        peer: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// The other end broke the link protocol.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// QUIC failed.
    #[error("quic connection to {peer} failed: {reason}")]
    Quic {
        /// The other end.
        peer: SocketAddr,
        /// What the QUIC stack says.
        reason: String,
    },
    /// TLS failed.
    #[error("tls connection to {peer} failed: {source}")]
    Tls {
        /// The other end.
        peer: SocketAddr,
        /// What TLS says.
        source: TlsError,
    },
    /// WebSocket failed.
    #[error("websocket connection to {peer} failed: {reason}")]
    WebSocket {
        /// The other end.
        peer: SocketAddr,
        /// What the WebSocket stack says.
        reason: String,
    },
}

impl CarrierError {
    /// Returns the stable name of the error, for metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Io { .. } => "connection_lost",
            Self::Link(error) => error.name(),
            Self::Quic { .. } => "quic_broken",
            Self::Tls { source, .. } => source.cause(),
            Self::WebSocket { .. } => "websocket_broken",
        }
    }
}

/// Label of the TLS exporter that PROOF signs (RFC 8446 section 7.5).
pub const EXPORTER_LABEL: &[u8] = b"EXPORTER-ropeway-link-v1";

/// Bytes of frames gathered before they are written: one TLS record (RFC 8446 section 5.1).
const GATHER_BYTES: usize = crate::scratch::RECORD_PLAIN_BYTES_MAX;

/// Encodes frames from `source` into `out` until it holds a record's worth; says whether the source is dry.
fn gather(out: &mut Vec<u8>, source: &mut dyn FnMut() -> Option<Frame>) -> bool {
    while out.len() < GATHER_BYTES - HEAD_BYTES_MAX {
        let Some(frame) = source() else { return true };
        frame.encode(out);
    }
    false
}

/// Bytes of the head of a frame, at most.
const HEAD_BYTES_MAX: usize = 18;
