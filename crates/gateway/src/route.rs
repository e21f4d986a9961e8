//! Which upstream serves an authority and a path.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::RouteConfig;
use crate::upstream::{Target, TargetError};

/// What one route serves, where to, and within which limits.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RouteSpec {
    /// Served authority: `api.test` (any port), `api.test:8443` (that port only),
    /// `*.example.com` (every name below, at any depth) or `*` (every other one). Case does not matter.
    pub host: String,
    /// Path prefix, matched on whole segments; the longest one wins. Default: `/`.
    pub path_prefix: String,
    /// Where requests go: `http://…` (HTTP/1.1), `https://…` (the version by ALPN), `h2c://…` (HTTP/2 in the
    /// clear), `builtin:echo` or `builtin:demo`. A path in the URL is put before the request's path.
    pub upstream: String,
    /// PEM certificates trusted for this upstream instead of the system's roots.
    pub upstream_ca_pem: Option<Vec<u8>>,
    /// Limit on resolving, connecting and the TLS handshake. Default: 3 s.
    pub connect_timeout: Duration,
    /// Limit from the request's last byte to the answer's head. Default: 30 s.
    pub first_byte_timeout: Duration,
    /// Limit on silence in both directions while a body streams. Default: 60 s.
    pub idle_timeout: Duration,
    /// Largest request body, bytes. Default: 1 GiB.
    pub body_bytes_max: u64,
    /// Requests served at once; more are refused. Default: 1024.
    pub in_flight_max: usize,
    /// Whether requests that came over plain HTTP are served. Default: no.
    pub plain_http: bool,
    /// Whether the upstream sees the client's authority instead of its own. Default: yes.
    pub preserve_host: bool,
    /// Whether `path_prefix` is cut off before the request goes on. Default: no.
    pub strip_prefix: bool,
    /// Whether a request whose method is not idempotent is refused without an `Idempotency-Key`. Default: no.
    pub key_required: bool,
    /// Whether the upstream itself runs requests with the same `Idempotency-Key` once, on whichever gateway they come. The
    /// gateway then remembers none, and clients may send again anywhere. Default: no.
    pub upstream_honours_keys: bool,
    /// Time that clients are told requests take here, from their last byte to the answer's head; measured where not given.
    pub server_time: Option<Duration>,
}

impl RouteSpec {
    /// Makes a route for every path of `host`, with default limits.
    pub fn new(host: impl Into<String>, upstream: impl Into<String>) -> Self {
        Self {
            host: host.into(),
            path_prefix: "/".to_owned(),
            upstream: upstream.into(),
            upstream_ca_pem: None,
            connect_timeout: CONNECT_TIMEOUT,
            first_byte_timeout: FIRST_BYTE_TIMEOUT,
            idle_timeout: IDLE_TIMEOUT,
            body_bytes_max: BODY_BYTES_MAX,
            in_flight_max: IN_FLIGHT_MAX,
            plain_http: false,
            preserve_host: true,
            strip_prefix: false,
            key_required: false,
            upstream_honours_keys: false,
            server_time: None,
        }
    }
}

impl From<&RouteConfig> for RouteSpec {
    fn from(config: &RouteConfig) -> Self {
        Self {
            host: config.host.clone(),
            path_prefix: config.path_prefix.clone(),
            upstream: config.upstream.to_string(),
            upstream_ca_pem: None,
            connect_timeout: config.connect_timeout,
            first_byte_timeout: config.first_byte_timeout,
            idle_timeout: config.idle_timeout,
            body_bytes_max: config.body_bytes_max,
            in_flight_max: config.in_flight_max,
            plain_http: config.plain_http,
            preserve_host: config.preserve_host,
            strip_prefix: config.strip_prefix,
            key_required: config.key_required,
            upstream_honours_keys: config.upstream_honours_keys,
            server_time: config.server_time,
        }
    }
}

/// Index of a route in its [`Router`], small enough to travel as an interned label.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct RouteId(pub u16);

impl RouteId {
    /// Returns the position in [`Router::routes`].
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// One checked route.
#[derive(Debug)]
pub struct Route {
    id: RouteId,
    label: String,
    spec: RouteSpec,
    target: Target,
}

impl Route {
    /// Returns the route's index.
    pub fn id(&self) -> RouteId {
        self.id
    }

    /// Returns the name used in metrics and logs: host and path prefix.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns what the route was made from; host in lower case.
    pub fn spec(&self) -> &RouteSpec {
        &self.spec
    }

    /// Returns the parsed upstream.
    pub fn target(&self) -> &Target {
        &self.target
    }
}

/// Immutable routing table; a reload builds another one and swaps it in.
#[derive(Debug, Default)]
pub struct Router {
    routes: Vec<Arc<Route>>,
    /// Exact hosts, with or without port.
    exact: HashMap<String, Prefixes>,
    /// `*.example.com` under the key `example.com`, with or without port; `*` under the empty key.
    wildcard: HashMap<String, Prefixes>,
}

impl Router {
    /// Checks the specifications and builds the table.
    ///
    /// # Errors
    /// Names the first route that is malformed, doubled, or one too many.
    pub fn new(specs: Vec<RouteSpec>) -> Result<Self, RouteError> {
        if specs.len() > ROUTES_MAX {
            return Err(RouteError::TooMany { count: specs.len() });
        }
        let mut router = Self::default();
        for (index, spec) in specs.into_iter().enumerate() {
            let id = RouteId(u16::try_from(index).expect("ROUTES_MAX fits 16 bits"));
            router.insert(check(id, spec)?)?;
        }
        for prefixes in router.exact.values_mut().chain(router.wildcard.values_mut()) {
            prefixes.sort_by_key(|route| std::cmp::Reverse(route.spec.path_prefix.len()));
        }
        Ok(router)
    }

    /// Finds the route of a request's authority and path.
    ///
    /// The most specific host decides (with port, then exact, then the longest wildcard, then `*`);
    /// only its prefixes are looked at.
    pub fn route(&self, authority: &str, path: &str) -> Option<Arc<Route>> {
        if has_dot_segment(path) {
            return None;
        }
        self.prefixes(authority)?.iter().find(|route| prefix_matches(&route.spec.path_prefix, path)).cloned()
    }

    /// Returns all routes, in the order of their ids.
    pub fn routes(&self) -> &[Arc<Route>] {
        &self.routes
    }

    /// Returns the served authorities, sorted, each once, wildcards as written.
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = self.routes.iter().map(|route| route.spec.host.clone()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    fn prefixes(&self, authority: &str) -> Option<&Prefixes> {
        let authority = lower_case(authority);
        let (host, port) = split_port(&authority);
        let host = host.strip_suffix('.').unwrap_or(host);
        let with_port = port.map(|port| format!("{host}:{port}"));
        if let Some(found) = with_port.as_ref().and_then(|key| self.exact.get(key)) {
            return Some(found);
        }
        if let Some(found) = self.exact.get(host) {
            return Some(found);
        }
        if self.wildcard.is_empty() {
            return None;
        }
        let mut rest = host;
        while let Some((_, parent)) = rest.split_once('.') {
            let with_port = port.map(|port| format!("{parent}:{port}"));
            let found = with_port.and_then(|key| self.wildcard.get(&key)).or_else(|| self.wildcard.get(parent));
            if found.is_some() {
                return found;
            }
            rest = parent;
        }
        self.wildcard.get("")
    }

    fn insert(&mut self, route: Route) -> Result<(), RouteError> {
        let (map, key) = match route.spec.host.strip_prefix('*') {
            Some(parent) => (&mut self.wildcard, parent.trim_start_matches('.').to_owned()),
            None => (&mut self.exact, route.spec.host.clone()),
        };
        let prefixes = map.entry(key).or_default();
        let path_prefix = &route.spec.path_prefix;
        if prefixes.iter().any(|other| other.spec.path_prefix == *path_prefix) {
            return Err(RouteError::Doubled { host: route.spec.host, path_prefix: path_prefix.clone() });
        }
        let route = Arc::new(route);
        prefixes.push(Arc::clone(&route));
        self.routes.push(route);
        Ok(())
    }
}

/// Why a set of routes was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// Two routes serve the same host and path prefix.
    #[error("two routes for {host} {path_prefix}")]
    Doubled {
        /// Host of both.
        host: String,
        /// Path prefix of both.
        path_prefix: String,
    },
    /// The host is not a name or address with an optional port.
    #[error("route host {host:?} is not *, nor a host name, address or *.name with an optional port")]
    Host {
        /// Host as given.
        host: String,
    },
    /// A limit that would let nothing through.
    #[error("route {host} {path_prefix}: {limit} must not be zero")]
    Limit {
        /// Host of the route.
        host: String,
        /// Path prefix of the route.
        path_prefix: String,
        /// Name of the limit.
        limit: &'static str,
    },
    /// The path prefix is not a plain absolute path.
    #[error("route {host}: path prefix {path_prefix:?} is not a plain absolute path")]
    PathPrefix {
        /// Host of the route.
        host: String,
        /// Path prefix as given.
        path_prefix: String,
    },
    /// More routes than a [`RouteId`] can number.
    #[error("{count} routes, at most {ROUTES_MAX} are possible")]
    TooMany {
        /// Routes given.
        count: usize,
    },
    /// The upstream is unusable.
    #[error("route {host}: upstream {upstream:?}: {source}")]
    Upstream {
        /// Host of the route.
        host: String,
        /// Upstream as given.
        upstream: String,
        /// What is wrong with it.
        source: TargetError,
    },
}

/// Routes of one host; longest prefix first once the router is built.
type Prefixes = Vec<Arc<Route>>;

fn check(id: RouteId, mut spec: RouteSpec) -> Result<Route, RouteError> {
    spec.host = spec.host.to_ascii_lowercase();
    if !host_is_valid(&spec.host) {
        return Err(RouteError::Host { host: spec.host });
    }
    if spec.path_prefix.len() > 1 && spec.path_prefix.ends_with('/') {
        spec.path_prefix.pop();
    }
    if !path_prefix_is_valid(&spec.path_prefix) {
        return Err(RouteError::PathPrefix { host: spec.host, path_prefix: spec.path_prefix });
    }
    let limits = [
        ("connect_timeout", spec.connect_timeout.is_zero()),
        ("first_byte_timeout", spec.first_byte_timeout.is_zero()),
        ("idle_timeout", spec.idle_timeout.is_zero()),
        ("in_flight_max", spec.in_flight_max == 0),
    ];
    if let Some((limit, _)) = limits.into_iter().find(|(_, zero)| *zero) {
        return Err(RouteError::Limit { host: spec.host, path_prefix: spec.path_prefix, limit });
    }
    let target = match Target::parse(&spec.upstream, spec.upstream_ca_pem.as_deref()) {
        Ok(target) => target,
        Err(source) => {
            let (host, upstream) = (spec.host, spec.upstream);
            return Err(RouteError::Upstream { host, upstream, source });
        }
    };
    let label = format!("{}{}", spec.host, spec.path_prefix);
    Ok(Route { id, label, spec, target })
}

/// Whether `host` can be an authority without user information, or a wildcard of one.
fn host_is_valid(host: &str) -> bool {
    if host == "*" {
        return true;
    }
    let name = host.strip_prefix("*.").unwrap_or(host);
    let Ok(authority) = name.parse::<http::uri::Authority>() else {
        return false;
    };
    let (bare, port) = split_port(name);
    let port_is_valid = port.is_none_or(|port| port.parse::<u16>().is_ok());
    port_is_valid && !bare.is_empty() && !bare.ends_with('.') && !authority.as_str().contains(['@', '*'])
}

fn path_prefix_is_valid(prefix: &str) -> bool {
    let plain = !prefix.contains(['?', '#', '%']) && prefix.bytes().all(|byte| byte.is_ascii_graphic());
    plain && prefix.starts_with('/') && !prefix.contains("//") && !has_dot_segment(prefix)
}

/// Whether `path` lies at or below `prefix`, by whole segments.
fn prefix_matches(prefix: &str, path: &str) -> bool {
    if prefix == "/" {
        return path.starts_with('/');
    }
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a segment is `.` or `..`, also percent-encoded (RFC 3986 section 6.2.2.2).
///
/// Such a path belongs to no route: the upstream may resolve it (RFC 3986 section 5.2.4) to
/// one that another route guards.
pub(crate) fn has_dot_segment(path: &str) -> bool {
    path.split(['/', '\\']).any(|segment| {
        let mut dots = 0;
        let mut rest = segment.as_bytes();
        while let Some(after) = strip_dot(rest) {
            dots += 1;
            rest = after;
        }
        rest.is_empty() && (dots == 1 || dots == 2)
    })
}

fn strip_dot(bytes: &[u8]) -> Option<&[u8]> {
    match bytes {
        [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => Some(rest),
        _ => None,
    }
}

fn lower_case(text: &str) -> Cow<'_, str> {
    if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(text.to_ascii_lowercase())
    } else {
        Cow::Borrowed(text)
    }
}

/// Splits `host:port`; the colons inside an IPv6 literal's brackets are not ports.
pub(crate) fn split_port(authority: &str) -> (&str, Option<&str>) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Limit on connecting: covers two lost SYNs, resent after 1 s and 2 s more (RFC 6298 section 2.1).
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Limit on waiting for an answer's head: half of nginx's `proxy_read_timeout` default (60 s),
/// as a mobile caller's own limit is shorter.
const FIRST_BYTE_TIMEOUT: Duration = Duration::from_secs(30);

/// Limit on silence within a body: nginx's `proxy_read_timeout` default.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest request body; bodies pass through and are never held, so this only stops the absurd.
const BODY_BYTES_MAX: u64 = 1 << 30;

/// Requests of one route served at once: nginx's `worker_connections` default is 512 for both
/// sides of a proxied request; twice that for one side.
const IN_FLIGHT_MAX: usize = 1024;

/// Routes one gateway may serve: all values of a [`RouteId`].
pub const ROUTES_MAX: usize = 1 << 16;
