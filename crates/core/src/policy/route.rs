//! The rules of one request: the policy of its route, with the defaults in place.

use std::{fmt, str::FromStr, time::Duration};

use super::RoutePolicy;

/// A way of the ladder, as a policy names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LadderWay {
    /// A short link to an address of the list, with the host's own certificate.
    Address,
    /// The link to a gateway.
    Link,
    /// A short link to the host by its name.
    Name,
    /// The URL as the app gave it.
    Original,
    /// The sealed pipe.
    Pipe,
    /// Plain HTTP with a signed answer.
    Plain,
}

/// A way and how often it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The way.
    pub way: LadderWay,
    /// How often, 0 to 3.
    pub tries: u8,
}

/// What holds for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRules {
    /// The ways in their order, each once and with at least one try. Plain HTTP is among them only where it is allowed.
    pub ladder: Vec<Rung>,
    /// What the service itself takes to answer, where that is known.
    pub server_time: Option<Duration>,
    /// Requests of the route at once, where the policy limits them.
    pub concurrency_max: Option<u32>,
    /// Identical GETs in flight may share one answer.
    pub coalesce: bool,
    /// Small uploads may travel together.
    pub batch: bool,
    /// The request may cross the network in the clear.
    pub plain_http: bool,
    /// The service remembers an `Idempotency-Key` at whichever gateway it arrives.
    pub idempotency_keys: bool,
}

impl LadderWay {
    /// Every way, in the order of the default ladder.
    pub const ALL: [Self; 6] = [Self::Link, Self::Name, Self::Address, Self::Pipe, Self::Plain, Self::Original];

    /// Returns the way's name as configuration, logs and metrics spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Link => "link",
            Self::Name => "name",
            Self::Original => "original",
            Self::Pipe => "pipe",
            Self::Plain => "plain",
        }
    }
}

impl fmt::Display for LadderWay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for LadderWay {
    type Err = UnknownWay;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|way| way.as_str() == name).ok_or(UnknownWay)
    }
}

/// A name that is none of the ways'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown way, expected one of link, name, address, pipe, plain, original")]
#[non_exhaustive]
pub struct UnknownWay;

impl Default for RouteRules {
    fn default() -> Self {
        Self::of(&RoutePolicy::default())
    }
}

impl RouteRules {
    pub(super) fn of(route: &RoutePolicy) -> Self {
        let plain_http = route.plain_http.unwrap_or(false);
        let ladder = if route.ladder.is_empty() { &DEFAULT_LADDER[..] } else { &route.ladder };
        let allowed = |rung: &&Rung| rung.tries > 0 && (rung.way != LadderWay::Plain || plain_http);
        Self {
            ladder: ladder.iter().filter(allowed).copied().collect(),
            server_time: route.server_time,
            concurrency_max: route.concurrency_max,
            coalesce: route.coalesce.unwrap_or(true),
            batch: route.batch.unwrap_or(false),
            plain_http,
            idempotency_keys: route.idempotency_keys.unwrap_or(false),
        }
    }
}

impl RoutePolicy {
    /// Says how closely the route fits a request, the largest best; `None` if it does not.
    pub(super) fn rank(&self, host: &str, path: &str) -> Option<(bool, usize, usize)> {
        let prefix = self.path_prefix.trim_end_matches('/');
        let rest = path.strip_prefix(prefix)?;
        if !(rest.is_empty() || rest.starts_with(['/', '?']) || prefix.is_empty()) {
            return None;
        }
        if self.host == host {
            return Some((true, 0, prefix.len()));
        }
        let suffix = self.host.strip_prefix('*')?;
        host.ends_with(suffix).then_some((false, suffix.len(), prefix.len()))
    }
}

/// The ladder of DESIGN section 5, where no policy says otherwise. The link is tried again where it broke; addresses and the pipe are
/// tried at two sites; the last two are tried once.
pub const DEFAULT_LADDER: [Rung; 6] = [
    Rung { way: LadderWay::Link, tries: 2 },
    Rung { way: LadderWay::Name, tries: 1 },
    Rung { way: LadderWay::Address, tries: 2 },
    Rung { way: LadderWay::Pipe, tries: 2 },
    Rung { way: LadderWay::Plain, tries: 1 },
    Rung { way: LadderWay::Original, tries: 1 },
];
