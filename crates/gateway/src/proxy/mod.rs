//! Sends requests to the upstreams of their routes, for the front door and for links alike.

mod body;
mod error;
mod errors;
mod exit;
mod headers;
mod tunnel;

pub use self::error::{ERROR_HEADER, NOT_EXECUTED_HEADER, ProxyError};
pub use self::headers::USER_HEADER;
pub use self::tunnel::Tunnel;

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::uri::Authority;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use tokio::time::Instant;

use self::body::{Exchange, ResponseBody, Slot};
use self::errors::ErrorCounters;
use self::exit::{Exit, Table, Way};
use crate::metrics::Metrics;
use crate::route::Router;

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
    /// Whether the request came in early data and may be a replay (RFC 8470).
    pub early: bool,
    /// Whether the request came unencrypted.
    pub plain: bool,
}

impl Peer {
    /// Makes an unauthenticated client of the encrypted front door.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, user: None, via_link: false, early: false, plain: false }
    }
}

/// Routes requests and streams them to their upstreams and back.
#[derive(Debug)]
pub struct Proxy {
    table: ArcSwap<Table>,
    metrics: Arc<Metrics>,
    errors: Arc<ErrorCounters>,
}

impl Proxy {
    /// Makes a proxy for the routes of `router`.
    pub fn new(router: Router, metrics: Arc<Metrics>) -> Self {
        let table = Table::new(router, &metrics, None);
        let errors = Arc::new(ErrorCounters::new(&metrics));
        Self { table: ArcSwap::from_pointee(table), metrics, errors }
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
    /// an error where the upstream's was cut.
    ///
    /// # Errors
    /// Names what kept the answer from coming; counted already.
    pub async fn forward(&self, request: Request<ProxyBody>, peer: Peer) -> Result<Response<ProxyBody>, ProxyError> {
        let (exit, authority) = self.admit(&request, &peer).map_err(|error| self.counted(error))?;
        let answer = self.serve(&exit, request, &authority, &peer).await;
        self.account(&exit, &peer, answer)
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

    async fn serve(
        &self,
        exit: &Exit,
        request: Request<ProxyBody>,
        authority: &Authority,
        peer: &Peer,
    ) -> Result<Response<ProxyBody>, ProxyError> {
        let started = Instant::now();
        let slot = exit.slot(started)?;
        let exchange = Exchange::new(started);
        match &exit.way {
            Way::Builtin(builtin) => {
                let response = builtin.answer(exit.bounded(request, &exchange)).await;
                Ok(response.map(|body| self.watched(exit, body, exchange, slot)))
            }
            Way::Http(target, upstream) => {
                // Boxed, so that requests to built-in services do not carry its size.
                let answer = Box::pin(exit.send(target, upstream, request, authority, peer, &exchange));
                let response = answer.await?;
                Ok(response.map(|body| self.watched(exit, body, exchange, slot)))
            }
        }
    }

    fn watched<B>(&self, exit: &Exit, body: B, exchange: Arc<Exchange>, slot: Slot) -> ProxyBody
    where
        B: http_body::Body<Data = Bytes> + Send + Unpin + 'static,
        B::Error: body::Cause,
    {
        let idle = exit.route.spec().idle_timeout;
        ResponseBody::new(body, exchange, idle, Arc::clone(&self.errors), slot).boxed_unsync()
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
        exit.metrics.answered(status, peer.via_link).inc();
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
