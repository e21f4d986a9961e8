//! Why a link was closed.

use thiserror::Error;

use crate::wire::{FrameError, Kind, fields::FieldError};

/// Why a link cannot go on. The session survives, the exchanges are settled on the next link.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The peer makes this end answer and takes none of the answers.
    #[error("peer sends but does not read")]
    Backlog,
    /// A channel was opened a second time.
    #[error("channel {0} was opened twice")]
    DuplicateChannel(u64),
    /// A field block is malformed.
    #[error(transparent)]
    Fields(#[from] FieldError),
    /// A frame is malformed.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer sent more body bytes than the link's credit allows.
    #[error("peer sent {excess} bytes more than the credit of the link")]
    LinkCreditExceeded {
        /// Bytes beyond the credit.
        excess: u64,
    },
    /// Nothing came back for a heartbeat, or for long while an answer is awaited.
    #[error("peer is silent")]
    Silent,
    /// A frame came where the protocol does not allow it.
    #[error("frame {kind:?} is not expected here")]
    Unexpected {
        /// Kind of the frame.
        kind: Kind,
    },
    /// A frame names a channel that was never opened.
    #[error("channel {0} is not open")]
    UnknownChannel(u64),
}

impl LinkError {
    /// Returns the stable name of the error, for metrics and REFUSE details.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Backlog => "backlog",
            Self::DuplicateChannel(_) => "duplicate_channel",
            Self::Fields(_) => "bad_fields",
            Self::Frame(FrameError::BadPayload { .. }) => "bad_payload",
            Self::Frame(FrameError::Oversized { .. }) => "oversized_frame",
            Self::Frame(FrameError::Truncated) => "truncated_frame",
            Self::Frame(FrameError::UnknownKind(_)) => "unknown_kind",
            Self::LinkCreditExceeded { .. } => "link_credit_exceeded",
            Self::Silent => "silent",
            Self::Unexpected { .. } => "unexpected_frame",
            Self::UnknownChannel(_) => "unknown_channel",
        }
    }
}
