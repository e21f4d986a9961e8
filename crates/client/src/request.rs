//! A request being put together.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use ropeway_core::request::{KEY_HEADER, Way};
use serde::Serialize;

use crate::{
    Body, Error, Progress, Response, client::Handle, density::Wishes, exchange::Options, pace::Pauses, redirect,
};

/// A request that can still be changed. Nothing happens before [`send`](Self::send).
#[must_use = "a request does nothing before it is sent"]
pub struct RequestBuilder {
    handle: Handle,
    request: Result<Request<Body>, Error>,
    options: Options,
    /// Redirects to follow, where the app says so for this request.
    redirects: Option<u32>,
    pub(crate) wishes: Wishes,
}

impl RequestBuilder {
    pub(crate) fn new(handle: Handle, method: Method, url: Result<Uri, http::Error>) -> Self {
        let request = url.map_err(|error| Error::Invalid(error.to_string())).map(|url| {
            let mut request = Request::new(Body::empty());
            *request.method_mut() = method;
            *request.uri_mut() = url;
            request
        });
        Self { handle, request, options: Options::default(), redirects: None, wishes: Wishes::default() }
    }

    /// Adds a header.
    ///
    /// Headers that speak of one connection (`connection`, `keep-alive`, `te`, `transfer-encoding`) are left out where the way
    /// has no use for them. A `host` other than the URL's, and an `upgrade`, make the request invalid.
    pub fn header<N, V>(mut self, name: N, value: V) -> Self
    where
        N: TryInto<HeaderName, Error: Into<http::Error>>,
        V: TryInto<HeaderValue, Error: Into<http::Error>>,
    {
        self.request = self.request.and_then(|mut request| {
            let invalid = |error: http::Error| Error::Invalid(error.to_string());
            let name = name.try_into().map_err(|error| invalid(error.into()))?;
            let value = value.try_into().map_err(|error| invalid(error.into()))?;
            request.headers_mut().append(name, value);
            Ok(request)
        });
        self
    }

    /// Adds headers; those of a name that is there already are replaced.
    pub fn headers(mut self, headers: HeaderMap) -> Self {
        if let Ok(request) = &mut self.request {
            request.headers_mut().extend(headers);
        }
        self
    }

    /// Sets the body.
    pub fn body(mut self, body: impl Into<Body>) -> Self {
        if let Ok(request) = &mut self.request {
            *request.body_mut() = body.into();
        }
        self
    }

    /// Sets the body to `value` in JSON, and the content type where there is none.
    pub fn json<T: Serialize + ?Sized>(mut self, value: &T) -> Self {
        self.request = self.request.and_then(|mut request| {
            *request.body_mut() = serde_json::to_vec(value).map_err(Error::Json)?.into();
            let json = HeaderValue::from_static("application/json");
            request.headers_mut().entry(header::CONTENT_TYPE).or_insert(json);
            Ok(request)
        });
        self
    }

    /// Bounds this request, from now to the last byte of its answer's body.
    pub const fn timeout(mut self, total: Duration) -> Self {
        self.options.timeout = Some(total);
        self
    }

    /// Bounds the pauses of an answer that comes from its host without a link, `None` for not at all. By default the bound follows the
    /// network and what gateways ask for, at least 8 s; answers that are streams of events have none.
    ///
    /// A link that says nothing is looked after by itself.
    pub fn pause(mut self, longest: impl Into<Option<Duration>>) -> Self {
        if let Ok(request) = &mut self.request {
            request.extensions_mut().insert(longest.into().map_or(Pauses::Free, Pauses::App));
        }
        self
    }

    /// Says that the service may execute the request twice to the same effect as once, so that it can be sent again when its outcome
    /// is unknown. GET, HEAD, OPTIONS, TRACE, PUT and DELETE are taken so anyway.
    pub const fn idempotent(mut self, idempotent: bool) -> Self {
        self.options.idempotent = idempotent;
        self
    }

    /// Adds an `Idempotency-Key`, by which the service knows a second send of the same request: it may be sent again then.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.header(KEY_HEADER, key)
    }

    /// Takes this way and no other.
    pub const fn way(mut self, way: Way) -> Self {
        self.options.way = Some(way);
        self
    }

    /// Follows at most so many redirects in a row, as [`Builder::redirects`](crate::Builder::redirects) does for every request.
    pub const fn redirects(mut self, max: u32) -> Self {
        self.redirects = Some(max);
        self
    }

    /// Lets this request cross the network in the clear, if its URL says `http` and no gateway serves its host.
    pub const fn allow_plain_http(mut self, allow: bool) -> Self {
        self.options.plain_http = allow;
        self
    }

    /// Has `progress` tell how far the request has come, as to say when it is given up whether it may have been executed.
    pub fn progress(mut self, progress: &Progress) -> Self {
        if let Ok(request) = &mut self.request {
            request.extensions_mut().insert(progress.clone());
        }
        self
    }

    /// Sends the request and waits for the head of its answer. Dropping the future gives the request up.
    ///
    /// # Errors
    ///
    /// An [`Error`] that says whose fault it is and whether to try again.
    pub async fn send(self) -> Result<Response, Error> {
        let redirects_max = self.redirects.unwrap_or(self.handle.shared().config.redirects);
        redirect::send(self.handle, self.request?, self.options, self.wishes, redirects_max).await
    }
}

impl std::fmt::Debug for RequestBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RequestBuilder").field("request", &self.request).finish_non_exhaustive()
    }
}
