//! TLS 1.3 on TCP.
//!
//! [`ServerTls`] is the one server type: the link path moves records through it, [`ServerTlsStream`] gives the same
//! connection to code that wants `AsyncRead` and `AsyncWrite`. The branch between the two is taken by ALPN, after the
//! handshake. `docs/decisions/0003-server-tls.md` says why it is built so.

use std::io;

use tokio::net::TcpStream;

mod capture;
mod config;
mod error;
mod records;
mod server;
mod sessions;
mod stream;

pub use self::config::{CertSource, ServerTlsOptions, quic_server_config, server_config};
pub use self::error::TlsError;
pub use self::server::{Greeting, Plaintext, Received, ServerTls};
pub use self::sessions::{SessionCounts, SessionStore};
pub use self::stream::ServerTlsStream;

/// An application protocol that a gateway speaks over TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Alpn {
    /// HTTP/2.
    H2,
    /// HTTP/3, over QUIC alone.
    H3,
    /// HTTP/1.1.
    Http11,
    /// The link protocol, version 1.
    Link,
}

impl Alpn {
    /// Returns the name on the wire (RFC 7301).
    #[must_use]
    pub const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::H2 => b"h2",
            Self::H3 => b"h3",
            Self::Http11 => b"http/1.1",
            Self::Link => b"ropeway/1",
        }
    }

    /// Finds the protocol of a name on the wire.
    #[must_use]
    pub const fn from_bytes(name: &[u8]) -> Option<Self> {
        match name {
            b"h2" => Some(Self::H2),
            b"h3" => Some(Self::H3),
            b"http/1.1" => Some(Self::Http11),
            b"ropeway/1" => Some(Self::Link),
            _ => None,
        }
    }
}

/// What the first byte on a TCP connection says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstByte {
    /// The peer closed without sending anything.
    Closed,
    /// Something else than TLS, such as the first letter of an HTTP method.
    Other(u8),
    /// A TLS handshake record.
    Tls,
}

/// Waits for the first byte of a connection and looks at it without taking it.
///
/// There is no deadline in here: a peer may stay silent for ever, so the caller sets one.
///
/// # Errors
/// What the socket reports.
pub async fn sniff(tcp: &TcpStream) -> io::Result<FirstByte> {
    let mut first = [0];
    Ok(match tcp.peek(&mut first).await? {
        0 => FirstByte::Closed,
        _ if first[0] == HANDSHAKE_RECORD => FirstByte::Tls,
        _ => FirstByte::Other(first[0]),
    })
}

/// Content type of a TLS handshake record (RFC 8446 section 5.1).
const HANDSHAKE_RECORD: u8 = 0x16;
