//! The same TLS connection as a byte stream.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Received, ServerTls, TlsError};
use crate::scratch::{SEND_BYTES_MAX, with_scratch};

/// A [`ServerTls`] behind `AsyncRead` and `AsyncWrite`, for HTTP and WebSocket.
///
/// `close_notify` reads as the end of the stream; an end without it is an error of kind `UnexpectedEof`, so a cut body
/// is never taken for a complete one. Early data looks like any other data here: call [`ServerTls::confirm`] first where
/// a replay would matter. Halves may live in different tasks.
#[derive(Debug)]
pub struct ServerTlsStream {
    tls: ServerTls,
    /// Plaintext of a record that was larger than the reader's buffer; at most one read's worth.
    held: Vec<u8>,
    held_read: usize,
}

impl ServerTlsStream {
    pub(super) fn new(tls: ServerTls) -> Self {
        Self { tls, held: Vec::new(), held_read: 0 }
    }

    /// Returns the connection below, to ask for its state.
    #[must_use]
    pub fn tls(&self) -> &ServerTls {
        &self.tls
    }

    /// Returns the bytes of buffers held on the heap; 0 on an idle connection.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.tls.buffered_bytes() + self.held.capacity()
    }

    /// Copies held plaintext to `buf`; says whether there was any.
    fn read_held(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let rest = &self.held[self.held_read..];
        if rest.is_empty() {
            return false;
        }
        let copied = rest.len().min(buf.remaining());
        buf.put_slice(&rest[..copied]);
        self.held_read += copied;
        if self.held_read == self.held.len() {
            (self.held, self.held_read) = (Vec::new(), 0);
        }
        true
    }
}

impl AsyncRead for ServerTlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 || this.read_held(buf) {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        loop {
            let Self { tls, held, held_read: _ } = this;
            let wanted = buf.remaining() + RECORD_OVERHEAD_BYTES;
            let received = with_scratch(|scratch| {
                tls.poll_recv_about(cx, scratch, wanted, &mut |plaintext| {
                    let (now, later) = plaintext.bytes.split_at(plaintext.bytes.len().min(buf.remaining()));
                    buf.put_slice(now);
                    held.extend_from_slice(later);
                })
            });
            match ready!(received) {
                Ok(Received::CloseNotify | Received::Data) => return Poll::Ready(Ok(())),
                Ok(Received::Confirmed) => {}
                // What was read before the failure goes first; the next call fails.
                Err(_) if buf.filled().len() > before => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }
}

impl AsyncWrite for ServerTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        with_scratch(|scratch| self.get_mut().tls.poll_send(cx, scratch, bytes)).map_err(TlsError::into)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_scratch(|scratch| {
            // Gathered, so that a head and the body behind it share a record and a write.
            let mut plain = std::mem::take(&mut scratch.plain);
            plain.clear();
            for slice in slices {
                let room = SEND_BYTES_MAX - plain.len();
                plain.extend_from_slice(&slice[..slice.len().min(room)]);
            }
            let sent = self.get_mut().tls.poll_send(cx, scratch, &plain);
            scratch.plain = plain;
            sent
        })
        .map_err(TlsError::into)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().tls.poll_flush(cx).map_err(TlsError::into)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_scratch(|scratch| self.get_mut().tls.poll_close(cx, scratch)).map_err(TlsError::into)
    }
}

/// Bytes a record adds to its plaintext: header 5, content type 1, tag 16.
const RECORD_OVERHEAD_BYTES: usize = 22;
