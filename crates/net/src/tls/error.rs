//! Why a TLS connection ended.

use std::io;

use rustls::{AlertDescription, InvalidMessage};

/// Why a TLS connection failed. Every one is final for its connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer closed, or went away, before the handshake was complete.
    #[error("peer left before the handshake was complete")]
    Abandoned,
    /// The peer sent a fatal alert.
    #[error("peer sent the alert {0:?}")]
    AlertReceived(AlertDescription),
    /// The connection was used after it had failed or had been closed on this side.
    #[error("connection is already closed")]
    Closed,
    /// The handshake was refused by this side; the peer was sent the matching alert.
    #[error("handshake refused: {0}")]
    Handshake(#[source] rustls::Error),
    /// The socket failed.
    #[error("socket failed: {0}")]
    Io(#[source] io::Error),
    /// The peer offered application protocols, and none is served here.
    #[error("no application protocol in common")]
    NoCommonProtocol,
    /// The first byte was not one of TLS.
    #[error("not tls: first byte {first_byte:#04x}")]
    NotTls {
        /// The byte that came instead of 0x16.
        first_byte: u8,
    },
    /// A record after the handshake broke the protocol; the peer was sent the matching alert.
    #[error("record refused: {0}")]
    Record(#[source] rustls::Error),
    /// A record, or a handshake message in pieces, was larger than allowed.
    #[error("record too large")]
    RecordTooLarge,
    /// Plaintext was offered before the handshake allows any.
    #[error("too early to send")]
    TooEarly,
    /// The byte stream ended without `close_notify`: what was received may be cut short.
    #[error("peer closed without close_notify")]
    Truncated,
}

impl TlsError {
    /// Names the cause in one word for a counter's label.
    #[must_use]
    pub const fn cause(&self) -> &'static str {
        match self {
            Self::Abandoned => "abandoned",
            Self::AlertReceived(_) => "alert_received",
            Self::Closed => "closed",
            Self::Handshake(_) => "handshake",
            Self::Io(_) => "io",
            Self::NoCommonProtocol => "no_common_protocol",
            Self::NotTls { .. } => "not_tls",
            Self::Record(_) => "record",
            Self::RecordTooLarge => "record_too_large",
            Self::TooEarly => "too_early",
            Self::Truncated => "truncated",
        }
    }

    /// Names what rustls reports.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not ours; new causes keep the general name")]
    pub(super) fn from_rustls(error: rustls::Error, handshaking: bool) -> Self {
        match error {
            rustls::Error::AlertReceived(alert) => Self::AlertReceived(alert),
            rustls::Error::NoApplicationProtocol => Self::NoCommonProtocol,
            rustls::Error::InvalidMessage(
                InvalidMessage::HandshakePayloadTooLarge | InvalidMessage::MessageTooLarge,
            )
            | rustls::Error::PeerSentOversizedRecord => Self::RecordTooLarge,
            other if handshaking => Self::Handshake(other),
            other => Self::Record(other),
        }
    }
}

impl From<TlsError> for io::Error {
    fn from(error: TlsError) -> Self {
        let kind = match &error {
            TlsError::Io(inner) => inner.kind(),
            TlsError::Abandoned | TlsError::Truncated => io::ErrorKind::UnexpectedEof,
            TlsError::Closed => io::ErrorKind::BrokenPipe,
            TlsError::TooEarly => io::ErrorKind::NotConnected,
            TlsError::AlertReceived(_)
            | TlsError::Handshake(_)
            | TlsError::NoCommonProtocol
            | TlsError::NotTls { .. }
            | TlsError::Record(_)
            | TlsError::RecordTooLarge => io::ErrorKind::InvalidData,
        };
        Self::new(kind, error)
    }
}
