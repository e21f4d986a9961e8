//! The `ws` carrier: frames in binary WebSocket messages, for networks and peers that pass nothing else.

use std::{
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_core::Stream;
use futures_util::Sink as _;
use ropeway_core::{
    CarrierKind,
    session::LinkError,
    wire::{Decoder, Frame, frame::PAYLOAD_BYTES_MAX},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_websockets::{Limits, Message, WebSocketStream};

use super::{Arrived, Carrier, CarrierError, Sink, gather};
use crate::scratch::Scratch;

/// A link over a WebSocket. A binary message carries one or more whole frames; text messages are an error.
pub struct WsCarrier<S> {
    socket: WebSocketStream<S>,
    peer: SocketAddr,
    decoder: Decoder,
    /// Pings that arrived since everything was last flushed, their answers included.
    pings: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WsCarrier<S> {
    /// Takes over a WebSocket whose handshake is complete.
    #[must_use]
    pub const fn new(socket: WebSocketStream<S>, peer: SocketAddr) -> Self {
        Self { socket, peer, decoder: Decoder::new(PAYLOAD_BYTES_MAX), pings: 0 }
    }

    fn failed(&self, error: &tokio_websockets::Error) -> CarrierError {
        self.broken(&error.to_string())
    }

    fn broken(&self, reason: &str) -> CarrierError {
        CarrierError::WebSocket { peer: self.peer, reason: reason.into() }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Carrier for WsCarrier<S> {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Ws
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        _scratch: &mut Scratch,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<Arrived, CarrierError>> {
        let message = match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
            Some(Ok(message)) => message,
            Some(Err(error)) => return Poll::Ready(Err(self.failed(&error))),
            // RFC 6455 section 7.1.5 calls it an abnormal closure.
            None => return Poll::Ready(Err(self.broken("it ended without a close message"))),
        };
        if message.is_close() {
            return Poll::Ready(Ok(Arrived::Closed));
        }
        if message.is_text() {
            return Poll::Ready(Err(self.broken("a text message came where frames are binary")));
        }
        if message.is_ping() {
            self.pings += 1;
            if self.pings > PINGS_MAX {
                return Poll::Ready(Err(LinkError::Backlog.into()));
            }
        }
        if message.is_binary() {
            self.decoder.feed(message.as_payload(), &mut |frame| sink(frame, false))?;
            self.decoder.finish().map_err(LinkError::from)?;
        }
        Poll::Ready(Ok(Arrived::Some))
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        source: &mut dyn FnMut() -> Option<Frame>,
    ) -> Poll<Result<(), CarrierError>> {
        loop {
            ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(|error| self.failed(&error))?;
            scratch.plain.clear();
            let dry = gather(&mut scratch.plain, source);
            if !scratch.plain.is_empty() {
                let message = Message::binary(Bytes::copy_from_slice(&scratch.plain));
                Pin::new(&mut self.socket).start_send(message).map_err(|error| self.failed(&error))?;
            }
            if dry {
                ready!(Pin::new(&mut self.socket).poll_flush(cx)).map_err(|error| self.failed(&error))?;
                self.pings = 0;
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, _scratch: &mut Scratch) -> Poll<()> {
        Pin::new(&mut self.socket).poll_close(cx).map(|_| ())
    }

    fn binding(&self) -> Option<[u8; 32]> {
        None
    }
}

/// Bounds of the WebSocket of a link: a message is a gathered batch, at most one record and one frame.
#[must_use]
pub fn ws_limits() -> Limits {
    Limits::default().max_payload_len(Some(2 * PAYLOAD_BYTES_MAX))
}

/// Pings that may wait for their answers to be taken, 127 bytes each. A WebSocket library sends one at a time; the driver reads 8
/// messages a turn.
const PINGS_MAX: usize = 64;
