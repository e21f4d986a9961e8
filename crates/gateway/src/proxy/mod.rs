//! Sends requests to the upstreams of their routes, for the front door and for links alike.

mod body;
mod error;
mod errors;
mod exit;
mod headers;
mod keyed;
mod tunnel;

pub use self::error::{ERROR_HEADER, NOT_EXECUTED_HEADER, ProxyError};
pub use self::headers::USER_HEADER;
pub use self::keyed::{KEY_HEADER, KeyedConfig, REPLAYED_HEADER, SCOPE_HEADER};
pub use self::tunnel::Tunnel;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use tokio_util::task::TaskTracker;

use self::errors::ErrorCounters;
use self::exit::{Exit, Table};
use self::keyed::{Key, Keyed, Place};
use crate::metrics::{Metrics, Via};
use crate::route::{RouteId, Router};

/// A streaming body in either direction; an error means that it is incomplete.
pub type ProxyBody = UnsyncBoxBody<Bytes, ProxyError>;

/// Whom a request comes from, and how it came.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The client's address.
    pub address: SocketAddr,
    /// The authenticated user, if any.
    pub user: Option<String>,
    /// Whether the request came over a link and not through the front door.
    pub via_link: bool,
    /// Whether the request came sealed, through the pipe: encrypted, whatever the connection was.
    pub via_pipe: bool,
    /// Whether the request came in early data and may be a replay (RFC 8470).
    pub early: bool,
    /// Whether the request came unencrypted.
    pub plain: bool,
}

impl Peer {
    /// Makes an unauthenticated client of the encrypted front door.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, user: None, via_link: false, via_pipe: false, early: false, plain: false }
    }
}

/// Routes requests and streams them to their upstreams and back.
#[derive(Debug)]
pub struct Proxy {
    table: ArcSwap<Table>,
    metrics: Arc<Metrics>,
    errors: Arc<ErrorCounters>,
    keyed: Arc<Keyed>,
}

impl Proxy {
    /// Makes a proxy for the routes of `router`, which remembers keyed requests as is the default.
    pub fn new(router: Router, metrics: Arc<Metrics>) -> Self {
        Self::remembering(KeyedConfig::default(), router, metrics)
    }

    /// Makes a proxy for the routes of `router`, and says what it remembers of keyed requests.
    pub fn remembering(keyed: KeyedConfig, router: Router, metrics: Arc<Metrics>) -> Self {
        let table = Table::new(router, &metrics, None);
        let errors = Arc::new(ErrorCounters::new(&metrics));
        let keyed = Keyed::new(keyed, &metrics, Arc::clone(&errors));
        Self { table: ArcSwap::from_pointee(table), metrics, errors, keyed }
    }

    /// Swaps the routes; requests in flight end as they began, and the pool and limit of an
    /// unchanged route live on.
    pub fn replace(&self, router: Router) {
        let table = Table::new(router, &self.metrics, Some(&self.table.load()));
        self.table.store(Arc::new(table));
    }

    /// Returns the routes in force.
    pub fn router(&self) -> Arc<Router> {
        Arc::clone(&self.table.load().router)
    }

    /// Sends a request to its upstream and returns the answer's head once it is there; both
    /// bodies stream on.
    ///
    /// The request's authority is that of its URI, else its `Host`. The answer's body ends in
    /// an error where the upstream's was cut. A request with an `Idempotency-Key` runs in a task
    /// of its own, to its end even if this future is dropped, and once for all that bring the
    /// same key.
    ///
    /// # Errors
    /// Names what kept the answer from coming; counted already.
    pub async fn forward(&self, request: Request<ProxyBody>, peer: Peer) -> Result<Response<ProxyBody>, ProxyError> {
        let (exit, authority) = self.admit(&request, &peer).map_err(|error| self.counted(error))?;
        let answer = match Key::of(&request, exit.route.spec(), &authority, &peer, &self.keyed.config.credentials) {
            Err(error) => Err(error),
            Ok(None) => exit.serve(request, &authority, &peer, &self.errors).await,
            Ok(Some(key)) => {
                let place = Place { exit: Arc::clone(&exit), authority, peer: peer.clone() };
                // Boxed, so that requests without a key do not carry its size.
                Box::pin(self.keyed.forward(&key, request, place)).await
            }
        };
        self.account(&exit, &peer, answer)
    }

    /// Returns the time that requests of a route may be expected to take here, from their last byte to the answer's head: what
    /// the route says (`server_time`), else the p99 of the last minutes once it is known; `None` for a route that is not served.
    pub fn server_time(&self, route: RouteId) -> Option<Duration> {
        self.table.load().exit_of(route)?.server_time()
    }

    /// Returns the keyed requests under way, whether or not their clients are still there; a drain waits for them.
    pub fn runs(&self) -> &TaskTracker {
        &self.keyed.runs
    }

    /// Forgets the keyed requests that have had their time. They are never answered after it, but held until then.
    pub fn sweep(&self) {
        self.keyed.sweep();
    }

    /// Finds the route and refuses what must not reach it.
    fn admit<B: http_body::Body>(
        &self,
        request: &Request<B>,
        peer: &Peer,
    ) -> Result<(Arc<Exit>, Authority), ProxyError> {
        if request.method() == http::Method::CONNECT {
            return Err(ProxyError::MethodNotAllowed);
        }
        let authority = headers::authority(request)?;
        headers::check(request)?;
        let exit = self.table.load().exit(authority.as_str(), request.uri().path()).ok_or(ProxyError::NoRoute)?;
        if peer.plain && !exit.route.spec().plain_http {
            return Err(ProxyError::PlainHttpRefused);
        }
        // RFC 8470 section 4: only safe requests may be handled before the handshake ends.
        if peer.early && !request.method().is_safe() {
            return Err(ProxyError::TooEarly);
        }
        let declared = request.body().size_hint().lower();
        if declared > exit.route.spec().body_bytes_max {
            return Err(ProxyError::BodyTooLarge);
        }
        Ok((exit, authority))
    }

    fn account(
        &self,
        exit: &Exit,
        peer: &Peer,
        answer: Result<Response<ProxyBody>, ProxyError>,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let status = match &answer {
            Ok(response) => response.status(),
            Err(error) => error.status(),
        };
        let via = match (peer.via_link, peer.via_pipe) {
            (true, _) => Via::Link,
            (false, true) => Via::Pipe,
            (false, false) => Via::Front,
        };
        exit.metrics.answered(status, via).inc();
        answer.map_err(|error| self.counted(error))
    }

    /// Counts an error that is about to be answered.
    pub(crate) fn counted(&self, error: ProxyError) -> ProxyError {
        self.errors.count(error);
        error
    }
}

/// Finds an error of one type among an error and its sources.
pub(crate) fn source_of<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = error.source();
    }
    None
}
