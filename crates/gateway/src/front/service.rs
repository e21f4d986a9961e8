//! Answers the requests of one front door connection.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;

use super::incoming::ClientBody;
use super::parting::{Flushes, Outlet};
use super::streams::{FrontBody, Streams};
use super::upload::Upload;
use super::{Connection, Front, reserved, upgrade};
use crate::batch;
use crate::proxy::{Peer, ProxyBody, ProxyError};

/// Path of the health probe on every authority: 200 while serving, 503 while draining.
pub const HEALTH_PATH: &str = "/.ropeway/healthz";

/// Answers the requests of one connection.
pub(super) struct Service {
    pub(super) front: Arc<Front>,
    pub(super) connection: Connection,
    streams: Option<Arc<Streams>>,
    /// Whether answers say that the gateway speaks HTTP/3 as well.
    offers_h3: bool,
    /// Where answers go out, unless each has an outlet of its own.
    outlet: Option<Outlet>,
}

impl Service {
    /// Answers on a connection of HTTP/1.
    pub(super) fn h1(front: Arc<Front>, connection: Connection, flushes: Arc<Flushes>) -> Self {
        let (offers_h3, outlet) = (!connection.plain, Some(Outlet::Connection(flushes)));
        Self { front, connection, streams: None, offers_h3, outlet }
    }

    /// Answers on a connection of HTTP/2.
    pub(super) fn h2(front: Arc<Front>, connection: Connection, streams: Arc<Streams>) -> Self {
        let offers_h3 = !connection.plain;
        Self { front, connection, streams: Some(streams), offers_h3, outlet: None }
    }

    /// Answers on a connection of HTTP/3.
    pub(super) fn h3(front: Arc<Front>, connection: Connection, streams: Arc<Streams>) -> Self {
        Self { front, connection, streams: Some(streams), offers_h3: false, outlet: Some(Outlet::Reader) }
    }

    fn outlet(&self) -> Outlet {
        self.outlet.clone().unwrap_or_else(Outlet::of_stream)
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Result<Response<FrontBody>, Infallible> {
        if upgrade::is_websocket(&request) {
            let stream = self.streams.as_ref().map(|streams| streams.open());
            let response = self.websocket(request).await;
            return Ok(response.map(|body| FrontBody::new(body, stream, None, self.outlet())));
        }
        Ok(self.exchange(request.map(ClientBody::Hyper)).await)
    }

    pub(super) async fn exchange(&self, request: Request<ClientBody>) -> Response<FrontBody> {
        let is_h1 = self.streams.is_none();
        let stream = self.streams.as_ref().map(|streams| streams.open());
        let is_asking = is_h1 && request.headers().contains_key(header::EXPECT);
        let (parts, body) = request.into_parts();
        let (body, upload) = Upload::share(body, &self.front.limits);
        let request = Request::from_parts(parts, body);
        // Plain HTTP serves nothing but what allows it by name (DESIGN section 4).
        let lists = self
            .front
            .lists
            .as_ref()
            .filter(|lists| !self.connection.plain && !batch::is_batch(&request) && lists.serves(&request));
        let mut response = if request.uri().path() == HEALTH_PATH {
            self.health(request.method())
        } else if let Some(lists) = lists {
            lists.answer(request, self.connection.address).await
        } else if reserved::is_taken(&self.front, &self.connection, &request) {
            // Boxed, so that other requests do not carry its size.
            Box::pin(reserved::answer(&self.front, &self.connection, request)).await
        } else {
            self.forward(request).await.unwrap_or_else(|error| {
                let response = refusal(error, is_h1);
                let is_at_risk = !is_h1 && upload.as_ref().is_some_and(|upload| upload.may_fall_short());
                if is_at_risk { bare(response) } else { response }
            })
        };
        if is_asking && upload.as_ref().is_some_and(|upload| !upload.is_begun()) {
            // Whether the body still comes is the client's to choose: what follows could be it or another request.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        if self.offers_h3
            && !self.front.drain.is_cancelled()
            && let Some(alt_svc) = &self.front.alt_svc
        {
            // Not what the upstream says of itself: its other ports are not this gateway's.
            response.headers_mut().insert(header::ALT_SVC, alt_svc.clone());
        }
        response.map(|body| FrontBody::new(body, stream, upload, self.outlet()))
    }

    pub(super) fn peer(&self) -> Peer {
        Peer { early: self.connection.is_early(), plain: self.connection.plain, ..Peer::new(self.connection.address) }
    }

    async fn forward(&self, request: Request<ProxyBody>) -> Result<Response<ProxyBody>, ProxyError> {
        let is_http10 = request.version() == Version::HTTP_10;
        let is_head = request.method() == Method::HEAD;
        let proxy = &self.front.proxy;
        let response = batch::forward(proxy, request, self.peer()).await?;
        // Without a length the end of an HTTP/1.0 answer is the end of the connection, which looks the same
        // where it was cut (RFC 9112 section 8).
        let has_length = response.headers().contains_key(header::CONTENT_LENGTH)
            || response.body().size_hint().exact().is_some()
            || response.body().is_end_stream();
        if is_http10 && !is_head && !has_length {
            return Err(proxy.counted(ProxyError::Http10Stream));
        }
        Ok(response)
    }

    fn health(&self, method: &Method) -> Response<ProxyBody> {
        let (status, text) = if !matches!(*method, Method::GET | Method::HEAD) {
            (StatusCode::METHOD_NOT_ALLOWED, "only GET\n")
        } else if self.front.drain.is_cancelled() {
            (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
        } else {
            (StatusCode::OK, "ok\n")
        };
        let body = Full::new(Bytes::from_static(text.as_bytes())).map_err(|never| match never {});
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }
}

/// Answers a request that failed; where its ends are in doubt, HTTP/1 reads no further one.
pub(super) fn refusal(error: ProxyError, is_h1: bool) -> Response<ProxyBody> {
    let mut response = error.into_response();
    if is_h1 && error == ProxyError::RequestMalformed {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Makes a refusal all head, one frame.
///
/// curl ends the body at once when it hears of an error. Shorter than was told, that is for h2 an error of the stream
/// (RFC 9113 section 8.1.1), and the RST_STREAM overtakes DATA that is still to be sent.
fn bare(refusal: Response<ProxyBody>) -> Response<ProxyBody> {
    refusal.map(|_| Empty::new().map_err(|never| match never {}).boxed_unsync())
}
