//! What the app may say about packing, sharing and crowding.

use ropeway_core::request::{BatchConfig, CoalesceConfig, GuardConfig, LimitConfig, LimitRule, Priority, RoutePattern};

use crate::{Builder, Client, DecodeConfig, RequestBuilder};

/// What the app said for the whole client.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) batch_routes: Vec<RoutePattern>,
    pub(crate) batching: BatchConfig,
    pub(crate) codings: bool,
    pub(crate) coalesce: bool,
    pub(crate) decode: DecodeConfig,
    pub(crate) guard: Option<GuardConfig>,
    pub(crate) limits: LimitConfig,
    pub(crate) sharing: CoalesceConfig,
    pub(crate) takes_zstd: Vec<RoutePattern>,
}

/// What the app said for one request.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) batchable: bool,
    pub(crate) coalesce: Option<bool>,
    pub(crate) compress: bool,
    pub(crate) frequent: bool,
    pub(crate) priority: Priority,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            batch_routes: Vec::new(),
            batching: BatchConfig::default(),
            codings: true,
            coalesce: true,
            decode: DecodeConfig::default(),
            guard: Some(GuardConfig::default()),
            limits: LimitConfig::default(),
            sharing: CoalesceConfig::default(),
            takes_zstd: Vec::new(),
        }
    }
}

impl Builder {
    /// Asks services for packed answers (`gzip`, `deflate`, `br`, `zstd`, as far as compiled in) and unpacks them as they are read. On
    /// by default.
    ///
    /// A request that has an `accept-encoding` or a `range` of its own gets its answer as it comes. Of an unpacked answer the headers
    /// `content-encoding` and `content-length` are taken away, since they speak of what was sent.
    pub fn codings(mut self, ask: bool) -> Self {
        self.density.codings = ask;
        self
    }

    /// Bounds what an answer may unpack to. Beyond it reading ends with [`Error::BodyInflated`](crate::Error::BodyInflated).
    pub fn decode(mut self, config: DecodeConfig) -> Self {
        self.density.decode = config;
        self
    }

    /// Lets identical GETs that are in flight at the same time share one exchange. On by default.
    ///
    /// Identical are those of the same URL, the same headers (those aside that only name or trace a request) and the same options.
    /// Answers up to 256 KiB are shared; what is longer, or has no end, each gets for itself. Requests that ask for a fresh answer
    /// (`cache-control: no-cache` or `no-store`) share only if they say so ([`RequestBuilder::coalesce`]).
    pub fn coalesce(mut self, share: bool) -> Self {
        self.density.coalesce = share;
        self
    }

    /// Sets the bounds of sharing.
    pub fn coalescing(mut self, config: CoalesceConfig) -> Self {
        self.density.sharing = config;
        self
    }

    /// Lets at most so many requests of one route be under way at once, from `send` to the end of the answer's body; the others wait
    /// their turn. An authority is written as for [`served_host`](Self::served_host), `*` is every one, and the longest of several
    /// path prefixes counts. By default there is no limit beyond the room on a link and what the gateways' policy sets.
    pub fn route_limit(mut self, authority: &str, path_prefix: &str, in_flight_max: u32) -> Self {
        let route = RoutePattern::new(authority, path_prefix);
        self.density.limits.rules.push(LimitRule { route, in_flight_max });
        self
    }

    /// Lets small requests of a route that are [`batchable`](RequestBuilder::batchable) go to the gateway as one. The route is written
    /// as for [`route_limit`](Self::route_limit). By default only those do that the gateways' policy names.
    pub fn batch_route(mut self, authority: &str, path_prefix: &str) -> Self {
        self.density.batch_routes.push(RoutePattern::new(authority, path_prefix));
        self
    }

    /// Sets how long small requests wait for each other, and how many go as one.
    pub fn batching(mut self, config: BatchConfig) -> Self {
        self.density.batching = config;
        self
    }

    /// Says that the services of a route take bodies packed in `zstd`, which requests may then be
    /// ([`compress`](RequestBuilder::compress)). The route is written as for [`route_limit`](Self::route_limit).
    pub fn takes_zstd(mut self, authority: &str, path_prefix: &str) -> Self {
        self.density.takes_zstd.push(RoutePattern::new(authority, path_prefix));
        self
    }

    /// Sets when the same request, sent over and over, is taken for a loop in the app and refused
    /// ([`Error::TooFrequent`](crate::Error::TooFrequent)); by default more than 105 times within a minute. `None` never refuses.
    pub fn frequency_guard(mut self, config: impl Into<Option<GuardConfig>>) -> Self {
        self.density.guard = config.into();
        self
    }
}

impl RequestBuilder {
    /// Says that this request may wait a moment, 50 ms by default, for others of its host, and go to the gateway with them as one, if
    /// its body is small and at hand and its route allows that ([`Builder::batch_route`]). It is run on its own all the same, and once;
    /// the failure of another is none of its own. Of its answer no trailers come, and of the body at most 64 KiB.
    pub const fn batchable(mut self, batchable: bool) -> Self {
        self.wishes.batchable = batchable;
        self
    }

    /// Packs the body in `zstd`, if it is at hand, has 1 KiB or more and no coding yet, gets smaller by it, and the service takes it
    /// ([`Builder::takes_zstd`]). Off by default.
    pub const fn compress(mut self, compress: bool) -> Self {
        self.wishes.compress = compress;
        self
    }

    /// Says whether this request may share an exchange with identical ones, also if it asks for a fresh answer. Only a GET without a
    /// body and without a range can.
    pub const fn coalesce(mut self, share: bool) -> Self {
        self.wishes.coalesce = Some(share);
        self
    }

    /// Says how urgent the request is. Where requests wait for a place on their route and the network is weak, the more urgent go
    /// first.
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.wishes.priority = priority;
        self
    }

    /// Lets this request be sent as often as the app likes: the frequency guard does not count it.
    pub const fn allow_frequent(mut self, allow: bool) -> Self {
        self.wishes.frequent = allow;
        self
    }
}

impl Client {
    /// Says that the network is weak, or no longer, as the platform may know from the radio: the more urgent requests go first then, small ones
    /// wait longer for each other, and bodies are packed tighter. It is so without that on 2G, where round trips take 1,420 ms or
    /// more, and while several of the last requests have failed.
    pub fn network_weak(&self, weak: bool) {
        let shared = self.handle().shared();
        shared.density.set_weak(weak, shared.pace.is_weak());
    }
}
