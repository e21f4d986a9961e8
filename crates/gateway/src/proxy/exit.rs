//! The way out of one route: its client, its limit, its counters.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::Authority;
use http::{Extensions, Request, Response};
use http_body::Body as _;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use ropeway_core::Time;
use ropeway_core::quality::ServerTime;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::body::{self, Exchange, RequestBody, ResponseBody, Slot};
use super::errors::ErrorCounters;
use super::{Peer, ProxyBody, ProxyError, headers, source_of};
use crate::builtin::Builtin;
use crate::metrics::{Histogram, Metrics, RouteMetrics};
use crate::route::{Route, RouteId, Router};
use crate::upstream::{ConnectError, HttpTarget, Target, Turns, Upstream};

/// The routes in force, with an exit for each.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) router: Arc<Router>,
    exits: Vec<Arc<Exit>>,
}

impl Table {
    /// Makes an exit for each route; those of `previous` go on for routes that did not change.
    pub(super) fn new(router: Router, metrics: &Metrics, previous: Option<&Self>) -> Self {
        let kept = |route: &Route| {
            let exits = previous.map_or(&[][..], |table| &table.exits);
            exits.iter().find(|exit| exit.route.spec() == route.spec())
        };
        let exits = router.routes().iter().map(|route| {
            Arc::new(match kept(route) {
                Some(exit) => exit.renumbered(Arc::clone(route)),
                None => Exit::new(Arc::clone(route), metrics.route(route.label())),
            })
        });
        let exits = exits.collect();
        Self { router: Arc::new(router), exits }
    }

    pub(super) fn exit(&self, authority: &str, path: &str) -> Option<Arc<Exit>> {
        let route = self.router.route(authority, path)?;
        Some(Arc::clone(&self.exits[route.id().index()]))
    }

    pub(super) fn exit_of(&self, route: RouteId) -> Option<&Exit> {
        self.exits.get(route.index()).map(AsRef::as_ref)
    }
}

/// What one route needs to send its requests.
#[derive(Debug)]
pub(super) struct Exit {
    pub(super) route: Arc<Route>,
    pub(super) way: Way,
    pub(super) metrics: RouteMetrics,
    in_flight: Arc<Semaphore>,
    server_time: Arc<AnswerTimes>,
}

/// What answers the requests of a route.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Builtin(Builtin),
    Http(HttpTarget, Arc<Upstream<RequestBody>>),
}

impl Exit {
    fn new(route: Arc<Route>, metrics: RouteMetrics) -> Self {
        let way = match route.target() {
            Target::Builtin(builtin) => Way::Builtin(*builtin),
            Target::Http(target) => {
                Way::Http(target.clone(), Arc::new(Upstream::new(target, route.spec(), metrics.down.clone())))
            }
        };
        let permits = route.spec().in_flight_max.min(Semaphore::MAX_PERMITS);
        let server_time = Arc::new(AnswerTimes::new(metrics.server_time.clone()));
        Self { route, way, metrics, in_flight: Arc::new(Semaphore::new(permits)), server_time }
    }

    fn renumbered(&self, route: Arc<Route>) -> Self {
        Self {
            route,
            way: self.way.clone(),
            metrics: self.metrics.clone(),
            in_flight: Arc::clone(&self.in_flight),
            server_time: Arc::clone(&self.server_time),
        }
    }

    /// Sends a request where the route leads, and returns the answer's head once it is there.
    pub(super) async fn serve(
        &self,
        request: Request<ProxyBody>,
        authority: &Authority,
        peer: &Peer,
        errors: &Arc<ErrorCounters>,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let started = Instant::now();
        let slot = self.slot(started)?;
        let exchange = Exchange::new(started);
        match &self.way {
            Way::Builtin(builtin) => {
                let response = builtin.answer(self.bounded(request, &exchange)).await;
                Ok(response.map(|body| self.watched(body, exchange, slot, errors)))
            }
            Way::Http(target, upstream) => {
                // Boxed, so that requests to built-in services do not carry its size.
                let answer = Box::pin(self.send(target, upstream, request, authority, peer, &exchange));
                let response = answer.await?;
                Ok(response.map(|body| self.watched(body, exchange, slot, errors)))
            }
        }
    }

    /// Watches over the body of an answer until its end.
    pub(super) fn watched<B>(
        &self,
        body: B,
        exchange: Arc<Exchange>,
        slot: Slot,
        errors: &Arc<ErrorCounters>,
    ) -> ProxyBody
    where
        B: http_body::Body<Data = bytes::Bytes> + Send + Unpin + 'static,
        B::Error: body::Cause,
    {
        let idle = self.route.spec().idle_timeout;
        ResponseBody::new(body, exchange, idle, Arc::clone(errors), slot).boxed_unsync()
    }

    /// Returns how long a client may expect its requests to take here: as the route says, else as 99 of 100 have.
    pub(super) fn server_time(&self) -> Option<Duration> {
        self.route.spec().server_time.or_else(|| self.server_time.p99())
    }

    /// Takes one place within the route's limit.
    pub(super) fn slot(&self, started: Instant) -> Result<Slot, ProxyError> {
        let permit = Arc::clone(&self.in_flight).try_acquire_owned().map_err(|_| ProxyError::TooManyInFlight)?;
        Ok(Slot {
            started,
            duration: self.metrics.duration.clone(),
            _gauge: self.metrics.in_flight.hold(),
            _permit: permit,
        })
    }

    /// Bounds the body of a request to a built-in service, unless it is known to be small: such
    /// a body comes back or is dropped, and the answer's body watches over silence.
    fn bounded(&self, request: Request<ProxyBody>, exchange: &Arc<Exchange>) -> Request<ProxyBody> {
        let spec = self.route.spec();
        let known = request.body().size_hint().upper();
        if known.is_some_and(|length| length <= spec.body_bytes_max) {
            return request;
        }
        request.map(|body| {
            let exchange = Arc::clone(exchange);
            RequestBody::new(body, exchange, spec.body_bytes_max, spec.idle_timeout).boxed_unsync()
        })
    }

    /// Sends a request over the pool and waits for the answer's head.
    async fn send(
        &self,
        target: &HttpTarget,
        upstream: &Upstream<RequestBody>,
        mut request: Request<ProxyBody>,
        authority: &Authority,
        peer: &Peer,
        exchange: &Arc<Exchange>,
    ) -> Result<Response<Incoming>, ProxyError> {
        headers::to_upstream(&mut request, &self.route, target, authority, peer)?;
        let spec = self.route.spec();
        let (parts, body) = request.into_parts();
        // A pooled connection may die just as a request is written to it. Without a body, a safe
        // request may then be sent again (RFC 9110 section 9.2.2), once, and any request of which
        // nothing was written; no other ever is. Nor is one whose fresh connection died: that is the
        // service's doing, and the client tries again by itself (decision 36).
        // HTTP/2 says by itself what was not processed.
        let again = body.is_end_stream().then(|| parts.clone());
        let may_run_twice = parts.method.is_safe() && !target.is_h2();
        let body = RequestBody::new(body, Arc::clone(exchange), spec.body_bytes_max, spec.idle_timeout);
        let mut answer = self.first_byte(upstream, Request::from_parts(parts, body), exchange).await;
        let is_harmless = match &answer {
            Err(Lost { why: ProxyError::UpstreamReset, was_used }) => may_run_twice && *was_used == Some(true),
            Err(Lost { why: ProxyError::UpstreamClosed, was_used }) => *was_used != Some(false),
            Ok(_) | Err(_) => false,
        };
        if let Some(parts) = again.filter(|_| is_harmless) {
            self.metrics.retries.inc();
            let request = Request::from_parts(parts, RequestBody::empty(Arc::clone(exchange)));
            answer = self.first_byte(upstream, request, exchange).await;
        }
        let mut response = answer.map_err(|lost| lost.why)?;
        if response.status().is_informational() {
            // Nobody asked for another protocol (RFC 9110 section 15.2.2).
            return Err(ProxyError::UpstreamBadResponse);
        }
        exchange.set_answered();
        headers::from_upstream(&mut response);
        Ok(response)
    }

    /// Waits for the answer's head: for the connection first, which has its own limit, then as
    /// long as the request's body moves or waits for the client, then for the route's limit.
    async fn first_byte(
        &self,
        upstream: &Upstream<RequestBody>,
        mut request: Request<RequestBody>,
        exchange: &Exchange,
    ) -> Result<Response<Incoming>, Lost> {
        let limit = self.route.spec().first_byte_timeout;
        let mut connection = capture_connection(&mut request);
        let answer = upstream.send(request);
        tokio::pin!(answer);
        let mut connected = std::pin::pin!(async {
            drop(connection.wait_for_connection_metadata().await);
        });
        let early = tokio::select! {
            biased;
            answer = &mut answer => Some(answer),
            () = &mut connected => None,
        };
        let connected = Instant::now();
        let ended = |answer: Result<Response<Incoming>, _>| match answer {
            Ok(response) => {
                if let Some(turns) = response.extensions().get::<Turns>() {
                    turns.answered();
                }
                self.server_time.observe(connected.max(exchange.last_moved()).elapsed());
                Ok(response)
            }
            Err(error) => {
                let was_used = turns(&error).map(|turns| turns.is_used());
                Err(Lost { why: self.named(&error, exchange), was_used })
            }
        };
        if let Some(answer) = early {
            return ended(answer);
        }
        let mut deadline = connected + limit;
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return ended(answer),
                () = sleep_until(deadline) => {}
            }
            let now = Instant::now();
            let quiet_until = exchange.last_moved() + limit;
            if exchange.awaits_client() {
                deadline = now + limit;
            } else if quiet_until > now {
                deadline = quiet_until;
            } else {
                self.server_time.observe(limit);
                return Err(Lost { why: ProxyError::UpstreamFirstByteTimeout, was_used: None });
            }
        }
    }

    fn named(&self, error: &hyper_util::client::legacy::Error, exchange: &Exchange) -> ProxyError {
        let named = exchange.failure().unwrap_or_else(|| cause(error));
        let (route, name) = (self.route.label(), named.name());
        tracing::debug!(route, name, error = error as &dyn std::error::Error, "upstream failed");
        named
    }
}

/// How a request ended for which no head of an answer came.
struct Lost {
    why: ProxyError,
    /// Whether its connection had answered others before, where it was one of HTTP/1 and there was one.
    was_used: Option<bool>,
}

/// How long the upstream took to answer: for the metrics since the start, for clients over the last minutes.
#[derive(Debug)]
struct AnswerTimes {
    recent: Mutex<ServerTime>,
    origin: Instant,
    metric: Histogram,
}

impl AnswerTimes {
    fn new(metric: Histogram) -> Self {
        Self { recent: Mutex::new(ServerTime::new(Time::ZERO)), origin: Instant::now(), metric }
    }

    fn observe(&self, took: Duration) {
        self.metric.observe(took);
        self.with(|recent, now| recent.handle_answer(took, now));
    }

    fn p99(&self) -> Option<Duration> {
        self.with(ServerTime::p99)
    }

    fn with<T>(&self, act: impl FnOnce(&mut ServerTime, Time) -> T) -> T {
        let now = Time::from_origin(self.origin.elapsed());
        act(&mut self.recent.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// Names what went wrong between gateway and upstream.
fn cause(error: &hyper_util::client::legacy::Error) -> ProxyError {
    if let Some(connect) = source_of::<ConnectError>(error) {
        return connect.into();
    }
    let refused = source_of::<h2::Error>(error).is_some_and(|error| error.reason() == Some(h2::Reason::REFUSED_STREAM));
    // RFC 9113 section 8.7: a refused stream was not processed. A canceled request was never
    // taken from hyper's queue.
    match source_of::<hyper::Error>(error) {
        Some(error) if error.is_canceled() || refused => ProxyError::UpstreamClosed,
        Some(error) if error.is_parse() => ProxyError::UpstreamBadResponse,
        Some(_) | None if is_unwritten(error) => ProxyError::UpstreamClosed,
        Some(_) | None => ProxyError::UpstreamReset,
    }
}

/// Says whether the connection had failed before anything of the request was written to it.
fn is_unwritten(error: &hyper_util::client::legacy::Error) -> bool {
    turns(error).as_ref().is_some_and(Turns::is_unwritten)
}

/// Returns the turns of the connection that failed, if there was one of HTTP/1.
fn turns(error: &hyper_util::client::legacy::Error) -> Option<Turns> {
    let mut extensions = Extensions::new();
    error.connect_info()?.get_extras(&mut extensions);
    extensions.remove()
}
