//! What happens to the link and to the ways around it, for those who want to watch.

use std::{fmt, net::SocketAddr, time::Duration};

use ropeway_core::{CarrierKind, request::Way, wire::message::RefuseCode};

use crate::sources::SourcesEvent;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// An attempt to connect, or to greet the gateway, failed.
    AttemptFailed {
        /// The address.
        address: SocketAddr,
        /// The carrier.
        carrier: CarrierKind,
        /// What happened.
        reason: String,
    },
    /// The gateway asks the client to move, and closes after this time.
    Draining {
        /// Time until the gateway closes.
        close_after: Duration,
    },
    /// The link is gone.
    LinkLost {
        /// What happened.
        reason: String,
    },
    /// The link is open.
    LinkUp {
        /// The gateway's address.
        address: SocketAddr,
        /// The carrier.
        carrier: CarrierKind,
        /// The session goes on where it was.
        resumed: bool,
    },
    /// A gateway refused the link.
    Refused {
        /// The reason.
        code: RefuseCode,
        /// The reason, in words.
        detail: String,
    },
    /// A list, a name server or the state on disk is not as it should be; the client goes on without.
    Sources(SourcesEvent),
    /// Somebody on the way put another answer in the place of the one that was sent, or took away what proves it.
    Tampered {
        /// Where the request went.
        address: SocketAddr,
        /// By which way.
        way: Way,
        /// What is wrong with the answer.
        reason: String,
    },
}

/// Where the link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LinkState {
    /// The client is closed.
    Closed,
    /// A link is being opened.
    Connecting,
    /// There is none. One is opened when it is wanted, or when the time to try again has come.
    #[default]
    Offline,
    /// It is open.
    Open {
        /// The gateway's address.
        address: SocketAddr,
        /// The carrier.
        carrier: CarrierKind,
    },
    /// The gateways refuse it.
    Refused {
        /// The reason.
        code: RefuseCode,
    },
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("closed"),
            Self::Connecting => f.write_str("connecting"),
            Self::Offline => f.write_str("offline"),
            Self::Open { address, carrier } => write!(f, "open over {carrier} to {address}"),
            Self::Refused { code } => write!(f, "refused ({code:?})"),
        }
    }
}
