//! What gateways ask of clients: which ways a request may take, how long to wait, what may be shared.
//!
//! A policy comes inside the access list, and in the POLICY frame of a link; the one with the larger epoch counts. Whatever it
//! leaves out has the default named here. A value beyond its range is brought into it, so that no policy can make a client useless.

mod read;
mod route;

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use thiserror::Error;

use crate::wire::list::message;

pub use route::{DEFAULT_LADDER, LadderStep, RouteRules};

/// What gateways ask of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// When it was made, milliseconds since the Unix epoch; the newer of two has the larger one.
    pub epoch_ms: u64,
    /// Time to the first byte of an answer, before the bytes to be sent and any waiting are added; 1 s to 60 s. The first try of a
    /// request has half of it, those from the third on half as much again. By default what was measured of the network, or that of
    /// its class.
    pub first_byte_base: Option<Duration>,
    /// Most of that time; 1 s to 120 s. By default that of the network's class.
    pub first_byte_cap: Option<Duration>,
    /// Slowest rate that is waited for, bytes a second; 256 to 16 Mi. By default what was measured of the network, or
    /// that of its class.
    pub rate_min_bytes_per_s: Option<u32>,
    /// Longest pause between two bytes of an answer; 1 s to 120 s. By default what was measured of the network, or that of its
    /// class.
    pub gap: Option<Duration>,
    /// Longest stagger of a race; 100 ms to 10 s. By default that of the race.
    pub stagger_max: Option<Duration>,
    /// Resends after hand-off, per thousand requests; 0 to 1,000. By default that of the client's budget.
    pub retry_budget_permille: Option<u32>,
    /// Resends after hand-off that a client starts with; 0 to 100. By default that of the client's budget.
    pub retry_budget_start: Option<u32>,
    /// What holds for the requests of one place; at most [`ROUTES_MAX`].
    pub routes: Vec<RoutePolicy>,
}

/// What holds for the requests of one host and path prefix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutePolicy {
    /// The host in lower case; `*.` at the start stands for any name before it, `*` for every host.
    pub host: String,
    /// Start of the path, whole segments.
    pub path_prefix: String,
    /// The ways in their order; empty stands for [`DEFAULT_LADDER`].
    pub ladder: Vec<LadderStep>,
    /// What the service itself takes to answer; 0 to 10 min. By default unknown.
    pub server_time: Option<Duration>,
    /// Requests at once; 1 to 1,000. By default not limited here.
    pub concurrency_max: Option<u32>,
    /// Identical GETs in flight may share one answer; by default they may.
    pub coalesce: Option<bool>,
    /// Small uploads may travel together; by default they may not.
    pub batch: Option<bool>,
    /// Requests may cross the network in the clear; by default they may not.
    pub plain_http: Option<bool>,
    /// The service remembers an `Idempotency-Key` at whichever gateway it arrives; by default it does not.
    pub idempotency_keys: Option<bool>,
}

/// Why bytes are no policy.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// They are no message.
    #[error("policy is malformed")]
    Malformed,
    /// They are more than anyone needs.
    #[error("policy of {bytes} bytes is longer than the {POLICY_BYTES_MAX} that are read")]
    Oversized {
        /// Their number.
        bytes: usize,
    },
}

impl Policy {
    /// Reads what a POLICY frame carries in its `document`.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] if it is no policy.
    pub fn decode(document: &[u8]) -> Result<Self, PolicyError> {
        if document.len() > POLICY_BYTES_MAX {
            return Err(PolicyError::Oversized { bytes: document.len() });
        }
        let policy = message::Policy::decode(document).map_err(|_| PolicyError::Malformed)?;
        Ok(Self::from_message(policy))
    }

    /// Writes what a POLICY frame carries in its `document`.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        self.to_message().encode_to_vec().into()
    }

    /// Says whether everything is left to its default.
    #[must_use]
    pub fn says_nothing(&self) -> bool {
        *self == Self { epoch_ms: self.epoch_ms, ..Self::default() }
    }

    /// Returns what holds for a request to this host and path.
    ///
    /// A host named in full wins over `*.HOST`, the longest of those over `*`; among the routes of one host the longest prefix of
    /// the path wins, as in the gateway. One route counts: what it leaves out has its default, and nothing comes from another.
    #[must_use]
    pub fn route(&self, host: &str, path: &str) -> RouteRules {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let fitting = self.routes.iter().filter_map(|route| Some((route.rank(&host, path)?, route)));
        // The first of two routes with one place counts: `max_by_key` takes the last.
        let best = fitting.rev().max_by_key(|(rank, _)| *rank);
        best.map_or_else(RouteRules::default, |(_, route)| RouteRules::of(route))
    }
}

/// Bytes of a policy that are read. 64 KiB, a frame as every receiver takes it.
pub const POLICY_BYTES_MAX: usize = 64 * 1024;

/// Routes of a policy. 1,000, as many as hosts in WELCOME and in the list.
pub const ROUTES_MAX: usize = 1_000;

/// Tries of one way. 3 (DESIGN section 5).
pub const TRIES_MAX: u8 = 3;

#[cfg(test)]
mod tests;
