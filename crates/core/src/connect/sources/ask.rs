//! Questions under way.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use bytes::Bytes;

use super::HostAddress;
use crate::Time;

/// Number of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AskId(pub u64);

/// Whom to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Server {
    /// A gateway or dispatcher over HTTPS: the list, and HTTPDNS.
    Dispatch(SocketAddr),
    /// A server of DNS over HTTPS.
    Doh(SocketAddr),
    /// The name servers of the system.
    System,
}

/// What to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// The addresses of a host.
    Host {
        /// Its name.
        name: String,
        /// Which of them.
        family: Family,
    },
    /// The access list, if it is another than this one.
    List {
        /// Epoch of the list that is known, zero without any.
        known_epoch_ms: u64,
    },
    /// What the HTTPS record (RFC 9460) of a host says.
    Service {
        /// Its name.
        name: String,
        /// The port of the URL.
        port: u16,
    },
}

/// Which addresses of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// All of them in one answer.
    Both,
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// What came of an ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Addresses of the host.
    Addresses {
        /// The addresses; none where the host has none of this family.
        addresses: Vec<HostAddress>,
        /// Whether the device itself says so, in its hosts file.
        own: bool,
        /// How long the answer may be kept.
        ttl: Duration,
        /// The answer is signed by a key of the list.
        signed: bool,
    },
    /// The server could not be asked, or answered nothing of use, for this reason.
    Failed(String),
    /// A signed list, not verified.
    List(Bytes),
    /// The server knows no such name, or no such record.
    NoName,
    /// The list is the one that is known.
    NotModified,
    /// What the HTTPS record of a host says.
    Service {
        /// The UDP port at which HTTP/3 is; none where it is not spoken.
        h3_port: Option<u16>,
        /// How long the answer may be kept.
        ttl: Duration,
    },
}

/// A question that was asked.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) server: Server,
    pub(super) question: Question,
    pub(super) asked_at: Time,
    deadline: Time,
}

impl Pending {
    pub(super) const fn is_list(&self) -> bool {
        matches!(self.question, Question::List { .. })
    }

    const fn is_service(&self) -> bool {
        matches!(self.question, Question::Service { .. })
    }
}

/// Every question under way.
#[derive(Debug, Default)]
pub(super) struct Asks {
    next: u64,
    pending: BTreeMap<AskId, Pending>,
}

impl Asks {
    /// Notes a question; `None` if as many are under way as may be, or the same one is.
    pub(super) fn begin(&mut self, server: Server, question: Question, now: Time) -> Option<AskId> {
        let services = self.pending.values().filter(|pending| pending.is_service()).count();
        // Counted apart, so that what nobody waits for takes no room from what is waited for.
        let is_full = match question {
            Question::Host { .. } | Question::List { .. } => self.pending.len() - services >= ASKS_MAX,
            Question::Service { .. } => services >= SERVICE_ASKS_MAX,
        };
        if is_full || self.is_pending(server, &question) {
            return None;
        }
        let timeout = match question {
            Question::Host { .. } | Question::Service { .. } => HOST_TIMEOUT,
            Question::List { .. } => LIST_TIMEOUT,
        };
        self.next += 1;
        let ask = AskId(self.next);
        self.pending.insert(ask, Pending { server, question, asked_at: now, deadline: now + timeout });
        Some(ask)
    }

    pub(super) fn take(&mut self, ask: AskId) -> Option<Pending> {
        self.pending.remove(&ask)
    }

    pub(super) fn is_pending(&self, server: Server, question: &Question) -> bool {
        self.pending.values().any(|pending| pending.server == server && pending.question == *question)
    }

    /// Says whether anybody is asked this.
    pub(super) fn is_question_pending(&self, question: &Question) -> bool {
        self.pending.values().any(|pending| pending.question == *question)
    }

    /// Says whether anybody is asked about this host.
    pub(super) fn is_asked(&self, name: &str) -> bool {
        self.pending
            .values()
            .any(|pending| matches!(&pending.question, Question::Host { name: asked, .. } if asked == name))
    }

    /// Says whether anybody is asked for the list.
    pub(super) fn is_list_asked(&self) -> bool {
        self.pending.values().any(Pending::is_list)
    }

    /// Returns the oldest question for a list that is under way.
    pub(super) fn oldest_for_list(&self) -> Option<&Pending> {
        self.pending.values().find(|pending| pending.is_list())
    }

    /// Takes out what should have been answered by `now`.
    pub(super) fn overdue(&mut self, now: Time) -> Vec<(AskId, Pending)> {
        self.pending.extract_if(.., |_, pending| pending.deadline <= now).collect()
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.pending.values().map(|pending| pending.deadline).min()
    }
}

/// Time for the addresses of a host. 5 s, the timeout of one query of resolv.conf(5); the two HTTPDNS clients that we know wait 2 s.
pub(super) const HOST_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for a list. 10 s; three round trips and a few kilobytes on the slowest graded network. Our choice.
pub(super) const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// Questions under way. 64; a dozen hosts at two families and three servers.
const ASKS_MAX: usize = 64;

/// Questions for HTTPS records under way, beside the others. 16; our choice: name servers that do not know the type are often silent.
const SERVICE_ASKS_MAX: usize = 16;
