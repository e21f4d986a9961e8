//! The server side of a TLS connection over TCP.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::crypto::tls13::OkmBlock;
use rustls::server::UnbufferedServerConnection;
use rustls::{HandshakeKind, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::capture::{self, Caught};
use super::records::{self, Outgoing, Step};
use super::{Alpn, HANDSHAKE_RECORD, ServerTlsStream, TlsError};
use crate::scratch::{RECORD_PLAIN_BYTES_MAX, RECORD_WIRE_BYTES_MAX, SEND_BYTES_MAX, Scratch, with_scratch};

/// A TLS connection accepted from a client.
///
/// One task drives it: every `poll_*` registers that task's waker and borrows the thread's [`Scratch`]. Between polls it
/// holds no buffer, except the front of a record that has not arrived whole and ciphertext that the socket would not
/// take; [`ServerTls::buffered_bytes`] tells how much that is.
pub struct ServerTls {
    tcp: TcpStream,
    conn: Box<UnbufferedServerConnection>,
    /// Input that rustls has not consumed: never a complete record.
    tail: Vec<u8>,
    unsent: Unsent,
    /// What is needed until the handshake is complete and its plaintext is delivered.
    opening: Option<Box<Opening>>,
    exporter: Option<Box<OkmBlock>>,
    peer_closed: bool,
    close_sent: bool,
    failed: bool,
    /// The sending side was told to wait and will be woken to flush, so the receiving side must not take its place.
    writer_waiting: bool,
}

/// What the handshake agreed on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// The protocol to speak, or none when the client offered none.
    pub alpn: Option<Alpn>,
    /// The name the client asked for.
    pub server_name: Option<String>,
    /// Early data was accepted and waits in [`ServerTls::poll_recv`], while the handshake is not complete yet.
    pub early: bool,
}

/// Application data, valid during the call that passes it.
#[derive(Clone, Copy, Debug)]
pub struct Plaintext<'a> {
    /// The data of one record, or of several behind each other. Never empty.
    pub bytes: &'a [u8],
    /// It came as early data. Until [`ServerTls::is_handshaking`] turns false it may be a replay.
    pub early: bool,
}

/// What a successful [`ServerTls::poll_recv`] has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The peer has said that it sends no more. Data of this call, if any, was passed before.
    CloseNotify,
    /// The handshake is complete, which it was not when it was greeted; no data was passed.
    Confirmed,
    /// Data was passed.
    Data,
}

impl ServerTls {
    /// Starts a server on a connection that has just been accepted, and turns Nagle's algorithm off: records are
    /// coalesced before they are written.
    ///
    /// # Errors
    /// When `config` has an invalid fragment size.
    pub fn new(tcp: TcpStream, config: Arc<ServerConfig>) -> Result<Self, TlsError> {
        let conn = UnbufferedServerConnection::new(config).map_err(TlsError::Handshake)?;
        // Only latency suffers if it fails.
        let _ = tcp.set_nodelay(true);
        Ok(Self {
            tcp,
            conn: Box::new(conn),
            tail: Vec::new(),
            unsent: Unsent::default(),
            opening: Some(Box::default()),
            exporter: None,
            peer_closed: false,
            close_sent: false,
            failed: false,
            writer_waiting: false,
        })
    }

    /// Runs the handshake until the branch by protocol can be taken: when early data was accepted and some is waiting,
    /// or else when the handshake is complete. After early data, [`ServerTls::poll_recv`] completes the handshake on the
    /// way. There is no deadline in here; the caller sets one. A call that is dropped half way can be made again.
    ///
    /// # Errors
    /// [`TlsError::Abandoned`], [`TlsError::NotTls`], [`TlsError::NoCommonProtocol`], [`TlsError::Handshake`] and what
    /// the socket reports.
    pub async fn handshake(&mut self) -> Result<Greeting, TlsError> {
        poll_fn(|cx| with_scratch(|scratch| self.poll_opening(cx, scratch, true))).await?;
        Ok(Greeting {
            alpn: self.alpn(),
            server_name: self.opening.as_mut().and_then(|opening| opening.caught.server_name.take()).map(String::from),
            early: self.is_handshaking(),
        })
    }

    /// Waits until the handshake is complete. Early data stays waiting meanwhile and cannot be a replay afterwards, so
    /// this is for protocols that give early data no treatment of its own (RFC 8470 section 3). There is no deadline in
    /// here; the caller sets one.
    ///
    /// # Errors
    /// As for [`ServerTls::handshake`].
    pub async fn confirm(&mut self) -> Result<(), TlsError> {
        poll_fn(|cx| with_scratch(|scratch| self.poll_opening(cx, scratch, false))).await
    }

    /// Reads what is ready, at most one scratch full, and passes the plaintext of all complete records to `sink`.
    ///
    /// Messages of the protocol itself are handled on the way. After [`Received::CloseNotify`] every call returns the
    /// same, while sending stays possible.
    ///
    /// # Errors
    /// [`TlsError::Truncated`] when the stream ends without `close_notify`, [`TlsError::AlertReceived`],
    /// [`TlsError::Record`], [`TlsError::RecordTooLarge`] and what the socket reports. Data may have been passed before.
    pub fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        sink: &mut dyn FnMut(Plaintext<'_>),
    ) -> Poll<Result<Received, TlsError>> {
        self.poll_recv_about(cx, scratch, usize::MAX, sink)
    }

    /// As [`ServerTls::poll_recv`], with a hint of how many bytes are wanted.
    pub(super) fn poll_recv_about(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        wanted: usize,
        sink: &mut dyn FnMut(Plaintext<'_>),
    ) -> Poll<Result<Received, TlsError>> {
        if self.deliver_opening(sink) {
            return Poll::Ready(Ok(Received::Data));
        }
        loop {
            if self.peer_closed {
                return Poll::Ready(Ok(Received::CloseNotify));
            }
            let was_handshaking = self.is_handshaking();
            let mut passed = false;
            let mut passing = |plaintext: Plaintext<'_>| {
                passed = true;
                sink(plaintext);
            };
            ready!(self.poll_step(cx, scratch, wanted, &mut passing))?;
            if passed && !self.peer_closed {
                return Poll::Ready(Ok(Received::Data));
            }
            if was_handshaking && !self.is_handshaking() && !self.peer_closed {
                return Poll::Ready(Ok(Received::Confirmed));
            }
        }
    }

    /// Encrypts and writes the front of `plaintext`, and returns how much of it was taken.
    ///
    /// What the socket does not take of it is kept encrypted, and goes out before anything else is accepted. Sending is
    /// possible from the greeting on: before the client's Finished the data is addressed to a client that is not
    /// confirmed yet, and only it can read them (half-RTT data).
    ///
    /// # Errors
    /// [`TlsError::Closed`], [`TlsError::TooEarly`] before the greeting, and what the socket reports.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        plaintext: &[u8],
    ) -> Poll<Result<usize, TlsError>> {
        if self.failed || self.close_sent {
            return Poll::Ready(Err(TlsError::Closed));
        }
        // A socket that was full will hardly take four records, and what it does not take is memory held.
        let most = if self.unsent.is_empty() { SEND_BYTES_MAX } else { RECORD_PLAIN_BYTES_MAX };
        ready!(self.poll_flush(cx))?;
        let taken = plaintext.len().min(most);
        if taken > 0 {
            let written = self.seal(scratch, Outgoing::Plaintext(&plaintext[..taken]))?;
            self.transmit(cx, &scratch.cipher[..written])?;
        }
        Poll::Ready(Ok(taken))
    }

    /// Writes kept ciphertext to the socket.
    ///
    /// # Errors
    /// What the socket reports.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        let flushed = self.unsent.poll_write(&mut self.tcp, cx);
        self.writer_waiting = flushed.is_pending();
        flushed.map_err(|error| self.fail(error))
    }

    /// Says `close_notify`, flushes, and closes the sending side of the socket. Receiving stays possible.
    ///
    /// # Errors
    /// What the socket reports.
    pub fn poll_close(&mut self, cx: &mut Context<'_>, scratch: &mut Scratch) -> Poll<Result<(), TlsError>> {
        if !self.close_sent {
            self.close_sent = true;
            // A connection that has failed, or cannot send yet, closes without the courtesy.
            if !self.failed
                && let Ok(written) = self.seal(scratch, Outgoing::CloseNotify)
            {
                self.unsent.push(&scratch.cipher[..written]);
            }
        }
        ready!(self.poll_flush(cx))?;
        Pin::new(&mut self.tcp).poll_shutdown(cx).map_err(TlsError::Io)
    }

    /// Says whether the client's Finished is still missing.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.conn.is_handshaking()
    }

    /// Says whether the client resumed an earlier session; false before that is known.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.conn.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns the protocol agreed on, once it is known.
    #[must_use]
    pub fn alpn(&self) -> Option<Alpn> {
        self.conn.alpn_protocol().and_then(Alpn::from_bytes)
    }

    /// Fills `out` with keying material that only the two ends of this connection can derive (RFC 8446 section 7.5).
    ///
    /// # Errors
    /// [`TlsError::TooEarly`] until the handshake is complete, and [`TlsError::Closed`] after
    /// [`ServerTls::forget_exporter`].
    ///
    /// # Panics
    /// When `label` is longer than 249 bytes.
    pub fn export_keying_material(
        &self,
        out: &mut [u8; 32],
        label: &[u8],
        context: Option<&[u8]>,
    ) -> Result<(), TlsError> {
        let suite = self.conn.negotiated_cipher_suite().filter(|_| !self.is_handshaking()).ok_or(TlsError::TooEarly)?;
        let secret = self.exporter.as_deref().ok_or(TlsError::Closed)?;
        assert!(capture::export(suite, secret, label, context, out), "the label is too long");
        Ok(())
    }

    /// Wipes the secret behind [`ServerTls::export_keying_material`], to be called once nothing is to be exported any
    /// more.
    pub fn forget_exporter(&mut self) {
        self.exporter = None;
    }

    /// Returns the bytes of buffers held on the heap; 0 on an idle connection.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        let held = self.opening.as_ref().map_or(0, |opening| opening.early.capacity() + opening.late.capacity());
        self.tail.capacity() + self.unsent.bytes.capacity() + held
    }

    /// Returns the client's address.
    ///
    /// # Errors
    /// What the socket reports, for example when the client is gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.peer_addr()
    }

    /// Returns the socket, to read or set its options.
    #[must_use]
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Turns the connection into a byte stream.
    #[must_use]
    pub fn into_stream(self) -> ServerTlsStream {
        ServerTlsStream::new(self)
    }

    /// Drives the handshake to its end, or with `early_suffices` until early data waits.
    fn poll_opening(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        early_suffices: bool,
    ) -> Poll<Result<(), TlsError>> {
        while self.is_handshaking() {
            let opening = self.opening.get_or_insert_default();
            if early_suffices && !opening.early.is_empty() {
                break;
            }
            let (mut early, mut late) = (std::mem::take(&mut opening.early), std::mem::take(&mut opening.late));
            let polled = self.poll_step(cx, scratch, usize::MAX, &mut |plaintext| {
                let held = if plaintext.early { &mut early } else { &mut late };
                held.extend_from_slice(plaintext.bytes);
            });
            if let Some(opening) = &mut self.opening {
                (opening.early, opening.late) = (early, late);
            }
            match ready!(polled) {
                Err(TlsError::Truncated) => return Poll::Ready(Err(TlsError::Abandoned)),
                polled => polled?,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Passes plaintext that came during the handshake, and drops what only the handshake needed.
    fn deliver_opening(&mut self, sink: &mut dyn FnMut(Plaintext<'_>)) -> bool {
        let handshaking = self.is_handshaking();
        let Some(opening) = &mut self.opening else { return false };
        let mut delivered = false;
        for (bytes, early) in [(&mut opening.early, true), (&mut opening.late, false)] {
            let bytes = std::mem::take(bytes);
            if !bytes.is_empty() {
                delivered = true;
                sink(Plaintext { bytes: &bytes, early });
            }
        }
        if !handshaking {
            self.opening = None;
        }
        delivered
    }

    /// Reads once and processes what came.
    fn poll_step(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        wanted: usize,
        sink: &mut dyn FnMut(Plaintext<'_>),
    ) -> Poll<Result<(), TlsError>> {
        if self.failed {
            return Poll::Ready(Err(TlsError::Closed));
        }
        if !self.writer_waiting
            && let Poll::Ready(Err(error)) = self.unsent.poll_write(&mut self.tcp, cx)
        {
            return Poll::Ready(Err(self.fail(error)));
        }
        let filled = ready!(self.poll_fill(cx, scratch, wanted)).map_err(|error| self.fail(error))?;
        self.process(cx, scratch, filled, sink).map_err(|error| self.fail(error))?;
        Poll::Ready(Ok(()))
    }

    /// Puts the kept tail and one read from the socket into the scratch, and returns their length.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        wanted: usize,
    ) -> Poll<Result<usize, TlsError>> {
        let kept = self.tail.len();
        let end = kept.saturating_add(wanted.max(READ_BYTES_MIN)).min(scratch.recv.len());
        let mut read = ReadBuf::new(&mut scratch.recv[kept..end]);
        ready!(Pin::new(&mut self.tcp).poll_read(cx, &mut read)).map_err(TlsError::Io)?;
        let filled = kept + read.filled().len();
        if filled == kept {
            return Poll::Ready(Err(TlsError::Truncated));
        }
        scratch.recv[..kept].copy_from_slice(&self.tail);
        Poll::Ready(Ok(filled))
    }

    /// Runs the first `filled` bytes of the scratch through rustls and sends what it answers.
    fn process(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        filled: usize,
        sink: &mut dyn FnMut(Plaintext<'_>),
    ) -> Result<(), TlsError> {
        let Scratch { recv, cipher, plain: _ } = scratch;
        let incoming = &mut recv[..filled];
        let handshaking = self.is_handshaking();
        if self.conn.protocol_version().is_none() && incoming[0] != HANDSHAKE_RECORD {
            return Err(TlsError::NotTls { first_byte: incoming[0] });
        }
        let step = match &mut self.opening {
            Some(opening) if handshaking => {
                let conn = &mut self.conn;
                let run = || records::step(conn, incoming, cipher, Outgoing::Nothing, sink);
                let step = capture::during(&mut opening.caught, run);
                self.exporter = self.exporter.take().or(opening.caught.exporter.take());
                step
            }
            Some(_) | None => records::step(&mut self.conn, incoming, cipher, Outgoing::Nothing, sink),
        };
        let transmitted = self.transmit(cx, &cipher[..step.written]);
        if let Some(error) = step.error {
            // Whether the alert went out is of no interest beside the reason for it.
            return Err(TlsError::from_rustls(error, handshaking));
        }
        transmitted?;
        self.peer_closed |= step.peer_closed;
        let rest = if self.peer_closed { &[][..] } else { &incoming[step.consumed..] };
        if rest.len() > RECORD_WIRE_BYTES_MAX {
            return Err(TlsError::RecordTooLarge);
        }
        keep(&mut self.tail, rest);
        Ok(())
    }

    /// Encrypts into the scratch and returns the length there.
    fn seal(&mut self, scratch: &mut Scratch, outgoing: Outgoing<'_>) -> Result<usize, TlsError> {
        let handshaking = self.is_handshaking();
        let mut unexpected = |_: Plaintext<'_>| debug_assert!(false, "the tail holds no complete record");
        let Step { consumed, peer_closed, sent, written, error } =
            records::step(&mut self.conn, &mut self.tail, &mut scratch.cipher, outgoing, &mut unexpected);
        if let Some(error) = error {
            return Err(self.fail(TlsError::from_rustls(error, handshaking)));
        }
        self.peer_closed |= peer_closed;
        self.tail.drain(..consumed);
        if sent { Ok(written) } else { Err(TlsError::TooEarly) }
    }

    /// Writes `bytes` behind what is unsent, as far as the socket takes them, and keeps the rest.
    fn transmit(&mut self, cx: &mut Context<'_>, mut bytes: &[u8]) -> Result<(), TlsError> {
        while self.unsent.is_empty() && !bytes.is_empty() {
            match Pin::new(&mut self.tcp).poll_write(cx, bytes) {
                Poll::Ready(Ok(0)) => return Err(self.fail(TlsError::Io(io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(written)) => bytes = &bytes[written..],
                Poll::Ready(Err(error)) => return Err(self.fail(TlsError::Io(error))),
                Poll::Pending => break,
            }
        }
        self.unsent.push(bytes);
        Ok(())
    }

    /// Notes that the connection is broken, and drops its input.
    fn fail(&mut self, error: TlsError) -> TlsError {
        self.failed = true;
        self.tail = Vec::new();
        error
    }
}

impl std::fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerTls")
            .field("alpn", &self.alpn())
            .field("handshaking", &self.is_handshaking())
            .field("peer_closed", &self.peer_closed)
            .field("failed", &self.failed)
            .field("buffered_bytes", &self.buffered_bytes())
            .finish_non_exhaustive()
    }
}

/// What a connection needs at its beginning only.
#[derive(Default)]
struct Opening {
    caught: Caught,
    /// Early data that nobody asked for yet; rustls bounds it by `max_early_data_size`.
    early: Vec<u8>,
    /// Data that came in the same read as the client's Finished; one read bounds it.
    late: Vec<u8>,
}

/// Ciphertext that waits for the socket.
#[derive(Default)]
struct Unsent {
    bytes: Vec<u8>,
    written: usize,
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.reserve_exact(bytes.len());
        self.bytes.extend_from_slice(bytes);
    }

    fn poll_write(&mut self, tcp: &mut TcpStream, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        while self.written < self.bytes.len() {
            match ready!(Pin::new(&mut *tcp).poll_write(cx, &self.bytes[self.written..])).map_err(TlsError::Io)? {
                0 => return Poll::Ready(Err(TlsError::Io(io::ErrorKind::WriteZero.into()))),
                written => self.written += written,
            }
        }
        *self = Self::default();
        Poll::Ready(Ok(()))
    }
}

/// Makes `kept` hold `rest`: no memory for nothing, little more than needed otherwise, and few allocations while a
/// record trickles in.
fn keep(kept: &mut Vec<u8>, rest: &[u8]) {
    if rest.is_empty() || kept.capacity() > 2 * rest.len() + TAIL_GROWTH_BYTES {
        *kept = Vec::new();
    }
    kept.clear();
    if kept.capacity() < rest.len() {
        kept.reserve_exact(rest.len() + TAIL_GROWTH_BYTES);
    }
    kept.extend_from_slice(rest);
}

/// Least bytes asked of the socket in one read: 4 KiB, so that small wishes do not mean many system calls.
const READ_BYTES_MIN: usize = 4 * 1024;

/// Spare room for the next bytes of a record that trickles in: 512 bytes.
const TAIL_GROWTH_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_small_and_may_move_between_threads() {
        fn may_move<T: Send + Sync + Unpin>() {}
        may_move::<ServerTls>();

        assert!(size_of::<ServerTls>() <= 128, "{} bytes", size_of::<ServerTls>());
    }

    #[test]
    fn kept_bytes_take_little_more_than_they_are() {
        let mut kept = Vec::new();
        for count in 1..=RECORD_WIRE_BYTES_MAX {
            keep(&mut kept, &vec![7; count]);
            assert!(kept.len() == count && kept.capacity() <= count + TAIL_GROWTH_BYTES);
        }

        keep(&mut kept, &[7; 10]);
        assert!(kept.capacity() <= 10 + TAIL_GROWTH_BYTES);
        keep(&mut kept, &[]);
        assert_eq!(kept.capacity(), 0);
    }
}
