//! HTTP/3 on a QUIC connection: what the `h3` crate needs to know of `noq`.
//!
//! The adapter also keeps three promises that `h3` 0.0.8 leaves to its transport. A frame other than DATA is refused before it is
//! held if it is longer than a head may be. A stream that ends inside a frame is an error and never an end. A request or answer whose
//! stream is dropped half written is reset, so that nobody takes the part for the whole.

mod body;
mod connection;
mod dial;
mod stream;
mod watch;

use std::sync::Arc;

use h3::quic::{ConnectionErrorIncoming, StreamErrorIncoming};
use noq::{ConnectionError, VarInt};

pub use self::{
    body::{H3Body, H3BodyError, H3Source},
    connection::{H3Connection, H3Opener, Stops},
    dial::H3Dialer,
    stream::{H3Recv, H3Send, H3Stream},
};

/// What the streams of one connection have in common.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Longest frame that is not DATA.
    frame_bytes_max: u64,
    /// Whether this end answers requests.
    is_server: bool,
}

impl Rules {
    /// Returns the code with which the rest of an unread stream is given up.
    const fn unread(self) -> VarInt {
        // A server may lose interest in a request it has answered (RFC 9114 section 4.1); a client that does cancels.
        if self.is_server { NO_ERROR } else { REQUEST_CANCELLED }
    }
}

fn connection_error(error: ConnectionError) -> ConnectionErrorIncoming {
    match error {
        ConnectionError::ApplicationClosed(close) => {
            ConnectionErrorIncoming::ApplicationClose { error_code: close.error_code.into_inner() }
        }
        ConnectionError::TimedOut => ConnectionErrorIncoming::Timeout,
        ConnectionError::CidsExhausted
        | ConnectionError::ConnectionClosed(_)
        | ConnectionError::LocallyClosed
        | ConnectionError::Reset
        | ConnectionError::TransportError(_)
        | ConnectionError::VersionMismatch => ConnectionErrorIncoming::Undefined(Arc::new(error)),
    }
}

fn lost(error: ConnectionError) -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: connection_error(error) }
}

/// RFC 9114 section 8.1.
const NO_ERROR: VarInt = VarInt::from_u32(0x100);
const EXCESSIVE_LOAD: VarInt = VarInt::from_u32(0x107);
const REQUEST_CANCELLED: VarInt = VarInt::from_u32(0x10c);
