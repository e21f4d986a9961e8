//! What the gateway counts, with handles resolved before the hot path.

mod reasons;
mod registry;

use self::registry::AnyFamily;

pub use self::reasons::REFUSAL_REASONS;
pub use self::registry::{Counter, Family, Gauge, GaugeHold, Histogram, Metric, SERIES_MAX};

use http::StatusCode;

use crate::upstream::DownMetrics;

/// Every metric family of the gateway.
///
/// Families look a series up under a lock; connections and routes keep the handles they
/// need ([`Metrics::route`], [`Metrics::links`] …) and touch only atomics per packet.
#[derive(Debug)]
pub struct Metrics {
    /// `ropeway_requests_total{route,status_class,via}`: answered requests.
    requests: Family<Counter>,
    /// `ropeway_request_errors_total{error}`: requests the gateway itself failed, by name.
    request_errors: Family<Counter>,
    request_duration: Family<Histogram>,
    requests_in_flight: Family<Gauge>,
    upstream_retries: Family<Counter>,
    upstream_down: Family<Gauge>,
    upstream_downs: Family<Counter>,
    upstream_duration: Family<Histogram>,
    keyed_requests: Family<Counter>,
    keys: Family<Gauge>,
    key_answer_bytes: Family<Gauge>,
    refusals: Family<Counter>,
    links: Family<Gauge>,
    sessions: Family<Gauge>,
    frames: Family<Counter>,
    pushes: Family<Counter>,
    pipe_requests: Family<Counter>,
    signed_answers: Family<Counter>,
    http_connections: Family<Counter>,
    http_connections_open: Family<Gauge>,
    tunnels: Family<Gauge>,
    lists: Family<Counter>,
    lookups: Family<Counter>,
}

impl Metrics {
    /// Makes the families, all empty.
    pub fn new() -> Self {
        Self {
            requests: Family::new(
                "ropeway_requests_total",
                "Answered requests by route, status class and the way they came in.",
                &["route", "status_class", "via"],
            ),
            request_errors: Family::new(
                "ropeway_request_errors_total",
                "Requests failed by the gateway or its upstream, by error name.",
                &["error"],
            ),
            request_duration: Family::new(
                "ropeway_request_duration_seconds",
                "From the request's head to the end of the answer's body.",
                &["route"],
            ),
            requests_in_flight: Family::new("ropeway_requests_in_flight", "Requests being served now.", &["route"]),
            upstream_retries: Family::new(
                "ropeway_upstream_retries_total",
                "Requests sent again by the gateway because their connection had died, where that is safe.",
                &["route"],
            ),
            upstream_down: Family::new(
                "ropeway_upstream_down",
                "Whether the upstream is beyond reach, so that requests are refused without waiting.",
                &["route"],
            ),
            upstream_downs: Family::new(
                "ropeway_upstream_downs_total",
                "Times that the upstream was found to be beyond reach.",
                &["route"],
            ),
            upstream_duration: Family::new(
                "ropeway_upstream_duration_seconds",
                "From the request's last byte to the head of the upstream's answer.",
                &["route"],
            ),
            keyed_requests: Family::new(
                "ropeway_keyed_requests_total",
                "Requests with an idempotency key that ran, and those answered from memory (replayed).",
                &["outcome"],
            ),
            keys: Family::new(
                "ropeway_idempotency_keys",
                "Idempotency keys remembered, running requests included.",
                &[],
            ),
            key_answer_bytes: Family::new(
                "ropeway_idempotency_answer_bytes",
                "Bytes of the answers kept for idempotency keys.",
                &[],
            ),
            refusals: Family::new(
                "ropeway_refusals_total",
                "Connections, links and frames refused or lost, by reason.",
                &["reason"],
            ),
            links: Family::new(
                "ropeway_links",
                "Open connections that speak the link protocol, by carrier; those in their handshake included.",
                &["carrier"],
            ),
            sessions: Family::new("ropeway_sessions", "Sessions held, with a link or waiting for the next one.", &[]),
            frames: Family::new("ropeway_frames_total", "Link frames by direction.", &["direction"]),
            pushes: Family::new(
                "ropeway_pushes_total",
                "Pushes by outcome: accepted or duplicate at the API, then dropped, written and acked once for each session; unreported where a status was lost.",
                &["outcome"],
            ),
            pipe_requests: Family::new(
                "ropeway_pipe_requests_total",
                "Sealed requests by outcome: answered through the pipe, or why not.",
                &["outcome"],
            ),
            signed_answers: Family::new(
                "ropeway_signed_answers_total",
                "Requests over plain HTTP for a signed answer by outcome: answered, or why not.",
                &["outcome"],
            ),
            http_connections: Family::new(
                "ropeway_http_connections_total",
                "Front door connections by protocol.",
                &["protocol"],
            ),
            http_connections_open: Family::new(
                "ropeway_http_connections_open",
                "Front door connections open now, by protocol.",
                &["protocol"],
            ),
            tunnels: Family::new("ropeway_tunnels", "Upgraded connections passed through to an upstream now.", &[]),
            lists: Family::new(
                "ropeway_lists_total",
                "Access lists given out: fetched or not_modified over HTTP, pushed over a link.",
                &["how"],
            ),
            lookups: Family::new(
                "ropeway_lookups_total",
                "Names asked for over resolve (HTTPDNS) or dns (DNS over HTTPS): answered, refused as not of the list, or malformed.",
                &["over", "outcome"],
            ),
        }
    }

    /// Returns the handles of one route; `label` is the route's name in the metrics.
    pub fn route(&self, label: &str) -> RouteMetrics {
        let by_class = |via| STATUS_CLASSES.map(|class| self.requests.with(&[label, class, via]));
        RouteMetrics {
            front: by_class("front"),
            link: by_class("link"),
            pipe: by_class("pipe"),
            duration: self.request_duration.with(&[label]),
            in_flight: self.requests_in_flight.with(&[label]),
            retries: self.upstream_retries.with(&[label]),
            down: DownMetrics { down: self.upstream_down.with(&[label]), openings: self.upstream_downs.with(&[label]) },
            server_time: self.upstream_duration.with(&[label]),
        }
    }

    /// Returns the handles for requests with an idempotency key.
    pub fn keyed(&self) -> KeyedMetrics {
        KeyedMetrics {
            runs: self.keyed_requests.with(&["run"]),
            replays: self.keyed_requests.with(&["replayed"]),
            keys: self.keys.with(&[]),
            bytes: self.key_answer_bytes.with(&[]),
        }
    }

    /// Returns the counter of one request error name.
    pub fn request_error(&self, error: &'static str) -> Counter {
        self.request_errors.with(&[error])
    }

    /// Returns the counter of one of [`REFUSAL_REASONS`]; any other reason counts as `other`.
    pub fn refusal(&self, reason: &'static str) -> Counter {
        let is_known = REFUSAL_REASONS.iter().any(|(known, _)| *known == reason);
        self.refusals.with(&[if is_known { reason } else { "other" }])
    }

    /// Returns the gauge of open links over one carrier.
    pub fn links(&self, carrier: &'static str) -> Gauge {
        self.links.with(&[carrier])
    }

    /// Returns the gauge of sessions held.
    pub fn sessions(&self) -> Gauge {
        self.sessions.with(&[])
    }

    /// Returns the counter of frames in one direction, `in` or `out`.
    pub fn frames(&self, direction: &'static str) -> Counter {
        self.frames.with(&[direction])
    }

    /// Returns the counter of pushes with one outcome.
    pub fn pushes(&self, outcome: &'static str) -> Counter {
        self.pushes.with(&[outcome])
    }

    /// Returns the counter of sealed requests with one outcome.
    pub fn pipe_requests(&self, outcome: &'static str) -> Counter {
        self.pipe_requests.with(&[outcome])
    }

    /// Returns the counter of requests for a signed answer with one outcome.
    pub fn signed_answers(&self, outcome: &'static str) -> Counter {
        self.signed_answers.with(&[outcome])
    }

    /// Returns the counter of front door connections of one protocol.
    pub fn http_connections(&self, protocol: &'static str) -> Counter {
        self.http_connections.with(&[protocol])
    }

    /// Returns the gauge of front door connections of one protocol.
    pub fn http_connections_open(&self, protocol: &'static str) -> Gauge {
        self.http_connections_open.with(&[protocol])
    }

    /// Returns the gauge of upgraded connections passed through.
    pub fn tunnels(&self) -> Gauge {
        self.tunnels.with(&[])
    }

    /// Returns the counter of access lists given out one way: `fetched`, `not_modified` or `pushed`.
    pub fn lists(&self, how: &'static str) -> Counter {
        self.lists.with(&[how])
    }

    /// Returns the counter of names asked for over `resolve` or `dns`, with one outcome.
    pub fn lookups(&self, over: &'static str, outcome: &'static str) -> Counter {
        self.lookups.with(&[over, outcome])
    }

    /// Writes every family in the Prometheus text format, version 0.0.4.
    pub fn render(&self) -> String {
        let mut out = String::new();
        for family in self.families() {
            family.render(&mut out);
        }
        out
    }

    fn families(&self) -> [&dyn AnyFamily; 23] {
        [
            &self.requests,
            &self.request_errors,
            &self.request_duration,
            &self.requests_in_flight,
            &self.upstream_retries,
            &self.upstream_down,
            &self.upstream_downs,
            &self.upstream_duration,
            &self.keyed_requests,
            &self.keys,
            &self.key_answer_bytes,
            &self.refusals,
            &self.links,
            &self.sessions,
            &self.frames,
            &self.pushes,
            &self.pipe_requests,
            &self.signed_answers,
            &self.http_connections,
            &self.http_connections_open,
            &self.tunnels,
            &self.lists,
            &self.lookups,
        ]
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

/// The handles one route counts with.
#[derive(Clone, Debug)]
pub struct RouteMetrics {
    front: [Counter; STATUS_CLASSES.len()],
    link: [Counter; STATUS_CLASSES.len()],
    pipe: [Counter; STATUS_CLASSES.len()],
    /// Time from the request's head to the end of the answer's body.
    pub duration: Histogram,
    /// Requests being served now.
    pub in_flight: Gauge,
    /// Requests sent again because their connection had died, where that is safe.
    pub retries: Counter,
    /// Whether the upstream is beyond reach.
    pub down: DownMetrics,
    /// Time from the request's last byte to the answer's head.
    pub server_time: Histogram,
}

/// What is counted of requests with an idempotency key.
#[derive(Clone, Debug)]
pub struct KeyedMetrics {
    /// Requests that ran.
    pub runs: Counter,
    /// Requests answered with what another one had got.
    pub replays: Counter,
    /// Keys remembered now.
    pub keys: Gauge,
    /// Bytes of answers kept now.
    pub bytes: Gauge,
}

impl RouteMetrics {
    /// Returns the counter of answers with this status to requests that came in this way.
    pub fn answered(&self, status: StatusCode, via: Via) -> &Counter {
        let class = usize::from(status.as_u16() / 100).clamp(1, STATUS_CLASSES.len()) - 1;
        match via {
            Via::Front => &self.front[class],
            Via::Link => &self.link[class],
            Via::Pipe => &self.pipe[class],
        }
    }
}

/// How a request came in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Via {
    /// Through the front door.
    Front,
    /// Over a link.
    Link,
    /// Through the sealed pipe.
    Pipe,
}

/// Status classes of RFC 9110 section 15.
const STATUS_CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn route_handles_count_by_status_class_and_way_in() {
        let metrics = Metrics::new();
        let route = metrics.route("api.test/");
        route.answered(StatusCode::OK, Via::Link).inc();
        route.answered(StatusCode::NO_CONTENT, Via::Link).inc();
        route.answered(StatusCode::BAD_GATEWAY, Via::Front).inc();
        let text = metrics.render();
        let series = "ropeway_requests_total{route=\"api.test/\",status_class=";
        assert!(text.contains(&format!("{series}\"2xx\",via=\"link\"}} 2\n")), "{text}");
        assert!(text.contains(&format!("{series}\"5xx\",via=\"front\"}} 1\n")), "{text}");
    }

    #[test]
    fn a_status_outside_the_five_classes_does_not_panic() {
        let route = Metrics::new().route("r");
        let odd = StatusCode::from_u16(999).expect("http allows three digits");
        route.answered(odd, Via::Pipe).inc();
    }
}
