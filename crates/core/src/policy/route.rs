//! The rules of one request: the policy of its route, with the defaults in place.

use std::time::Duration;

use super::RoutePolicy;
use crate::request::Way;

/// A way and how often it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadderStep {
    /// The way.
    pub way: Way,
    /// How often, 0 to 3.
    pub tries: u8,
}

/// What holds for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteRules {
    /// The ways in their order, each once and with at least one try. Plain HTTP is among them only where it is allowed.
    pub ladder: Vec<LadderStep>,
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

impl Default for RouteRules {
    fn default() -> Self {
        Self::of(&RoutePolicy::default())
    }
}

impl RouteRules {
    pub(super) fn of(route: &RoutePolicy) -> Self {
        let plain_http = route.plain_http.unwrap_or(false);
        let ladder = if route.ladder.is_empty() { &DEFAULT_LADDER[..] } else { &route.ladder };
        let allowed = |step: &&LadderStep| step.tries > 0 && (step.way != Way::Plain || plain_http);
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

/// The ladder of DESIGN section 5, where no policy says otherwise. A link that broke is followed by two others; addresses and the pipe
/// are tried at two sites; the last two are tried once.
pub const DEFAULT_LADDER: [LadderStep; 6] = [
    LadderStep { way: Way::Link, tries: 3 },
    LadderStep { way: Way::Name, tries: 1 },
    LadderStep { way: Way::Address, tries: 2 },
    LadderStep { way: Way::Pipe, tries: 2 },
    LadderStep { way: Way::Plain, tries: 1 },
    LadderStep { way: Way::Original, tries: 1 },
];
