//! What the keeper of a link is told and what it asks for.

use std::{fmt, sync::Arc};

use crate::{
    Time,
    connect::{AbandonReason, Candidate, EstablishConfig, LostReason, ReconnectConfig, Source},
    wire::message::RefuseCode,
};

/// Number of a connection, from its first packet to its end; never used twice by one keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// Name of a unit: a site whose gateways share what they know of sessions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit(pub Arc<str>);

impl From<&str> for Unit {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The constants of keeping a link.
#[derive(Clone, Debug, Default)]
pub struct KeeperConfig {
    /// The constants of each attempt to get a link.
    pub establish: EstablishConfig,
    /// When the next attempt is due.
    pub reconnect: ReconnectConfig,
}

/// One place where a link may be opened, and what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The address and the carrier.
    pub candidate: Candidate,
    /// Who says so.
    pub source: Source,
    /// The unit it belongs to, where that is known.
    pub unit: Option<Unit>,
    /// Name on the certificate of the gateway there; `None` leaves it to the owner of the keeper.
    pub gateway: Option<Arc<str>>,
}

/// What a link needs before its race.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    /// Where a link may be opened. Empty where no source answered: the places of the last time are used then. Of two that are one
    /// candidate with two names the later counts. One without a name has that of another at its address, if there is one.
    pub places: Vec<Place>,
    /// There is a ticket, or the reason why not.
    pub ticket: Option<String>,
}

/// How a connection that was a link ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Either end closed it with everything said.
    Orderly,
    /// It broke.
    Broken(LostReason),
}

impl Ended {
    pub(super) const fn reason(self) -> LostReason {
        match self {
            Self::Orderly => LostReason::Closed,
            Self::Broken(reason) => reason,
        }
    }
}

/// Why there is no link and none to be expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperFailure {
    /// The gateways refuse the client.
    Refused {
        /// The reason.
        code: RefuseCode,
        /// The reason, in words.
        detail: String,
    },
    /// There is no ticket.
    Ticket {
        /// The reason.
        reason: String,
    },
    /// Nothing that answers is trusted, as was seen at a time. On another try another may answer.
    Untrusted {
        /// When that was seen.
        at: Time,
    },
}

/// The link that takes new requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenLink {
    /// Its session.
    pub session: u64,
    /// Its connection.
    pub connection: ConnectionId,
    /// Where it leads.
    pub candidate: Candidate,
    /// It says nothing although an answer is awaited, and another is sought.
    pub is_doubted: bool,
    /// WELCOME has come. Until then the session sends only what may be executed twice.
    pub is_up: bool,
}

/// Why a connection is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// It was not open yet, and its attempt is given up.
    Abandoned(AbandonReason),
    /// WELCOME did not come in time.
    NoWelcome,
    /// It is not needed.
    NotNeeded,
    /// Its session goes on over another.
    Replaced,
    /// Its greeting failed in a way that the owner told of.
    Told,
}

impl fmt::Display for DropReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abandoned(why) => write!(f, "given up: {why}"),
            Self::NoWelcome => f.pad("no WELCOME in time"),
            Self::NotNeeded => f.pad("given up: it was not needed any more"),
            Self::Replaced => f.pad("given up: another took its place"),
            Self::Told => f.pad("given up: its greeting had failed"),
        }
    }
}

/// What the owner of a keeper has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeeperOutput {
    /// Look again at [`Keeper::open_link`](super::Keeper::open_link) and the rest of what can be asked.
    Changed,
    /// End what is under way on a session: it has had no link for longer than gateways keep answers.
    Cut {
        /// The session.
        session: u64,
    },
    /// Open a connection.
    Dial {
        /// Its number, to be named in every answer.
        connection: ConnectionId,
        /// Where to and how.
        candidate: Candidate,
        /// Name on the certificate of the gateway there, where its place has one.
        gateway: Option<Arc<str>>,
    },
    /// Drop a connection without a goodbye, whatever it is at.
    Drop {
        /// The connection.
        connection: ConnectionId,
        /// Why.
        reason: DropReason,
    },
    /// No candidate gave a link: whoever knows of others is to be asked.
    Exhausted,
    /// Forget the ticket; the next is to be fetched.
    ForgetTicket,
    /// Send HELLO for a session on an open connection.
    Greet {
        /// The connection.
        connection: ConnectionId,
        /// Where it leads.
        candidate: Candidate,
        /// The session.
        session: u64,
        /// The session is new: the owner makes it first.
        fresh: bool,
    },
    /// Close the link of a session once nothing runs on it.
    Leave {
        /// The session.
        session: u64,
    },
    /// The link of a session is up.
    LinkUp {
        /// The session.
        session: u64,
        /// Where it leads.
        candidate: Candidate,
    },
    /// Fetch addresses and ticket, and answer with [`Keeper::handle_prepared`](super::Keeper::handle_prepared).
    Prepare {
        /// To be named in the answer.
        generation: u64,
    },
    /// A session is over: no link will take it up.
    Settle {
        /// The session.
        session: u64,
        /// Messages may have been lost with it.
        gap: bool,
    },
}
