//! One step of a TLS connection: bytes in, plaintext and bytes out.

use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, InsufficientSizeError, UnbufferedStatus, WriteTraffic,
};

use super::server::Plaintext;

/// What to put on the wire once the connection is idle.
#[derive(Clone, Copy)]
pub(super) enum Outgoing<'p> {
    /// A `close_notify` alert.
    CloseNotify,
    /// Only what the protocol itself asks for.
    Nothing,
    /// Application data.
    Plaintext(&'p [u8]),
}

/// The outcome of a step.
pub(super) struct Step {
    /// Bytes at the front of the input that are done with.
    pub(super) consumed: usize,
    /// The peer has said `close_notify`.
    pub(super) peer_closed: bool,
    /// The [`Outgoing`] was encrypted; false while the handshake does not allow it.
    pub(super) sent: bool,
    /// Bytes of the output buffer to write, also after an error: an alert.
    pub(super) written: usize,
    /// Why the connection is broken, if it is.
    pub(super) error: Option<rustls::Error>,
}

/// Moves `conn` as far as `incoming` allows.
///
/// `incoming` must start with what earlier steps left unconsumed, even when nothing new came: rustls may hold the
/// place of a half received handshake message in it. `out` grows when it is too small.
pub(super) fn step(
    conn: &mut UnbufferedServerConnection,
    incoming: &mut [u8],
    out: &mut Vec<u8>,
    outgoing: Outgoing<'_>,
    sink: &mut dyn FnMut(Plaintext<'_>),
) -> Step {
    let mut step = Step { consumed: 0, peer_closed: false, sent: false, written: 0, error: None };
    while step.error.is_none() {
        let UnbufferedStatus { mut discard, state } = conn.process_tls_records(&mut incoming[step.consumed..]);
        let idle = match state {
            Ok(ConnectionState::ReadTraffic(mut records)) => {
                while let Some(record) = records.next_record() {
                    discard += pass(record, false, sink, &mut step.error);
                }
                false
            }
            Ok(ConnectionState::ReadEarlyData(mut records)) => {
                while let Some(record) = records.next_record() {
                    discard += pass(record, true, sink, &mut step.error);
                }
                false
            }
            Ok(ConnectionState::EncodeTlsData(message)) => {
                step.written += encode(message, out, step.written);
                false
            }
            Ok(ConnectionState::TransmitTlsData(sent)) => {
                sent.done();
                false
            }
            Ok(ConnectionState::PeerClosed) => {
                step.peer_closed = true;
                false
            }
            Ok(ConnectionState::WriteTraffic(traffic)) => {
                match write(traffic, outgoing, out, step.written) {
                    Ok(written) => step.written += written,
                    Err(error) => step.error = Some(error),
                }
                step.sent = true;
                true
            }
            Ok(ConnectionState::BlockedHandshake | ConnectionState::Closed) => true,
            Ok(unknown) => {
                step.error = Some(rustls::Error::General(format!("unknown state {unknown:?}")));
                true
            }
            Err(error) => {
                step.error = Some(error);
                false
            }
        };
        step.consumed += discard;
        if idle {
            break;
        }
    }
    if step.error.is_some() {
        step.written += encode_alert(conn, out, step.written);
    }
    step
}

/// Passes one record on and returns the bytes it adds to the discarded ones.
fn pass(
    record: Result<rustls::unbuffered::AppDataRecord<'_>, rustls::Error>,
    early: bool,
    sink: &mut dyn FnMut(Plaintext<'_>),
    error: &mut Option<rustls::Error>,
) -> usize {
    match record {
        Ok(record) => {
            sink(Plaintext { bytes: record.payload, early });
            record.discard
        }
        Err(cause) => {
            *error = Some(cause);
            0
        }
    }
}

/// Copies a handshake message to `out[at..]` and returns its length.
fn encode(mut message: EncodeTlsData<'_, ServerConnectionData>, out: &mut Vec<u8>, at: usize) -> usize {
    loop {
        match message.encode(&mut out[at..]) {
            Ok(written) => return written,
            Err(EncodeError::InsufficientSize(size)) => grow(out, at, size),
            Err(EncodeError::AlreadyEncoded) => return 0,
        }
    }
}

/// Encrypts `outgoing` to `out[at..]` and returns the number of bytes there.
fn write(
    mut traffic: WriteTraffic<'_, ServerConnectionData>,
    outgoing: Outgoing<'_>,
    out: &mut Vec<u8>,
    at: usize,
) -> Result<usize, rustls::Error> {
    loop {
        let written = match outgoing {
            Outgoing::CloseNotify => traffic.queue_close_notify(&mut out[at..]),
            Outgoing::Nothing => return Ok(0),
            Outgoing::Plaintext(plaintext) => traffic.encrypt(plaintext, &mut out[at..]),
        };
        match written {
            Ok(written) => return Ok(written),
            Err(EncryptError::InsufficientSize(size)) => grow(out, at, size),
            Err(EncryptError::EncryptExhausted) => return Err(rustls::Error::EncryptError),
        }
    }
}

/// Copies the alert that rustls queued before it reported an error, if any.
fn encode_alert(conn: &mut UnbufferedServerConnection, out: &mut Vec<u8>, at: usize) -> usize {
    let mut written = 0;
    while conn.wants_write() {
        // Queued bytes come before input, so the input can be left away here.
        let Ok(ConnectionState::EncodeTlsData(message)) = conn.process_tls_records(&mut []).state else { break };
        written += encode(message, out, at + written);
    }
    written
}

fn grow(out: &mut Vec<u8>, at: usize, size: InsufficientSizeError) {
    out.resize(at + size.required_size, 0);
}
