//! The `tls` carrier at the gateway: frames straight from and into TLS records.

use std::{
    net::SocketAddr,
    task::{Context, Poll, ready},
};

use ropeway_core::{
    CarrierKind,
    wire::{Decoder, Frame, frame::PAYLOAD_BYTES_MAX},
};

use super::{Arrived, Carrier, CarrierError, EXPORTER_LABEL, Sink, gather};
use crate::{
    scratch::Scratch,
    tls::{Received, ServerTls, TlsError},
};

/// A link over TLS that a gateway accepted.
pub struct TlsCarrier {
    tls: ServerTls,
    peer: SocketAddr,
    decoder: Decoder,
    /// What of a batch the connection has not taken, where a large frame ends it; freed when empty.
    rest: Vec<u8>,
}

impl TlsCarrier {
    /// Takes over a connection whose client chose the link protocol.
    #[must_use]
    pub const fn new(tls: ServerTls, peer: SocketAddr) -> Self {
        Self { tls, peer, decoder: Decoder::new(PAYLOAD_BYTES_MAX), rest: Vec::new() }
    }

    fn failed(&self, source: TlsError) -> CarrierError {
        CarrierError::Tls { peer: self.peer, source }
    }

    fn poll_rest(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Result<(), CarrierError>> {
        while !self.rest.is_empty() {
            let taken = ready!(self.tls.poll_send(cx, scratch, &self.rest)).map_err(|error| self.failed(error))?;
            self.rest.drain(..taken);
        }
        self.rest = Vec::new();
        Poll::Ready(Ok(()))
    }
}

impl Carrier for TlsCarrier {
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
        let mut fed = Ok(());
        let decoder = &mut self.decoder;
        let received = ready!(self.tls.poll_recv(cx, scratch, &mut |plain| {
            if fed.is_ok() {
                fed = decoder.feed(plain.bytes, &mut |frame| sink(frame, plain.early));
            }
        }));
        fed?;
        Poll::Ready(match received {
            Ok(Received::Data | Received::Confirmed) => Ok(Arrived::Some),
            Ok(Received::CloseNotify) => {
                self.decoder.finish().map_err(ropeway_core::session::LinkError::from)?;
                Ok(Arrived::Closed)
            }
            Err(error) => Err(self.failed(error)),
        })
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        source: &mut dyn FnMut() -> Option<Frame>,
    ) -> Poll<Result<(), CarrierError>> {
        loop {
            ready!(self.poll_rest(cx, scratch))?;
            ready!(self.tls.poll_flush(cx)).map_err(|error| self.failed(error))?;
            let mut plain = std::mem::take(&mut scratch.plain);
            plain.clear();
            let dry = gather(&mut plain, source);
            let sent = if plain.is_empty() { Poll::Ready(Ok(0)) } else { self.tls.poll_send(cx, scratch, &plain) };
            let taken = if let Poll::Ready(Ok(taken)) = sent { taken } else { 0 };
            self.rest.extend_from_slice(&plain[taken..]);
            scratch.plain = plain;
            ready!(sent).map_err(|error| self.failed(error))?;
            if dry && self.rest.is_empty() {
                return self.tls.poll_flush(cx).map_err(|error| self.failed(error));
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<()> {
        // Where the rest cannot be sent, close_notify cannot either.
        let _ = ready!(self.poll_rest(cx, scratch));
        self.tls.poll_close(cx, scratch).map(|_| ())
    }

    fn binding(&self) -> Option<[u8; 32]> {
        let mut binding = [0; 32];
        self.tls.export_keying_material(&mut binding, EXPORTER_LABEL, None).ok()?;
        Some(binding)
    }

    fn admit(&mut self) {
        self.tls.forget_exporter();
    }
}
