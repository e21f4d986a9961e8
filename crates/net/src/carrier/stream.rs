//! The `tls` carrier at the client: frames over any ordered byte stream.

use std::{
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use ropeway_core::{
    CarrierKind,
    session::LinkError,
    wire::{Decoder, Frame, frame::PAYLOAD_BYTES_MAX},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Arrived, Carrier, CarrierError, Sink, gather};
use crate::scratch::Scratch;

/// A link over an ordered stream of bytes, such as a client's TLS connection.
pub struct StreamCarrier<S> {
    stream: S,
    peer: SocketAddr,
    binding: [u8; 32],
    decoder: Decoder,
    /// Bytes the stream has not taken; freed when empty.
    unsent: Vec<u8>,
    written: usize,
}

impl<S> StreamCarrier<S> {
    /// Takes over a connected stream and its TLS exporter.
    #[must_use]
    pub const fn new(stream: S, peer: SocketAddr, binding: [u8; 32]) -> Self {
        Self { stream, peer, binding, decoder: Decoder::new(PAYLOAD_BYTES_MAX), unsent: Vec::new(), written: 0 }
    }

    fn failed(&self, source: std::io::Error) -> CarrierError {
        CarrierError::Io { peer: self.peer, source }
    }
}

impl<S: AsyncWrite + Unpin> StreamCarrier<S> {
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), CarrierError>> {
        while self.written < self.unsent.len() {
            let polled = Pin::new(&mut self.stream).poll_write(cx, &self.unsent[self.written..]);
            match ready!(polled).map_err(|error| self.failed(error))? {
                0 => return Poll::Ready(Err(self.failed(std::io::ErrorKind::WriteZero.into()))),
                written => self.written += written,
            }
        }
        self.unsent = Vec::new();
        self.written = 0;
        Pin::new(&mut self.stream).poll_flush(cx).map_err(|error| self.failed(error))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Carrier for StreamCarrier<S> {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Tls
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<Arrived, CarrierError>> {
        let mut buffer = ReadBuf::new(&mut scratch.recv);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer)).map_err(|error| self.failed(error))?;
        if buffer.filled().is_empty() {
            self.decoder.finish().map_err(LinkError::from)?;
            return Poll::Ready(Ok(Arrived::Closed));
        }
        self.decoder.feed(buffer.filled(), &mut |frame| sink(frame, false))?;
        Poll::Ready(Ok(Arrived::Some))
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        _scratch: &mut Scratch,
        source: &mut dyn FnMut() -> Option<Frame>,
    ) -> Poll<Result<(), CarrierError>> {
        loop {
            ready!(self.poll_flush(cx))?;
            let dry = gather(&mut self.unsent, source);
            if dry {
                return self.poll_flush(cx);
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, _scratch: &mut Scratch) -> Poll<()> {
        if ready!(self.poll_flush(cx)).is_err() {
            return Poll::Ready(());
        }
        Pin::new(&mut self.stream).poll_shutdown(cx).map(|_| ())
    }

    fn binding(&self) -> Option<[u8; 32]> {
        Some(self.binding)
    }
}
