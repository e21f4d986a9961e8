//! The list over HTTP: `/.ropeway/list`, `/.ropeway/resolve` and `/dns-query`.

use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{BodyExt as _, Full};
use ropeway_core::wire::list::{DNS_PATH, INTERNAL_AUTHORITY, LIST_MEDIA_TYPE, LIST_PATH, RESOLVE_PATH};

use super::{Lists, dns, resolve};
use crate::proxy::ProxyBody;

impl Lists {
    /// Says whether a request is for the list and not for a service.
    pub(crate) fn serves<B>(&self, request: &Request<B>) -> bool {
        match request.uri().path() {
            LIST_PATH | RESOLVE_PATH => true,
            DNS_PATH => self.is_own(authority(request)),
            _ => is_internal(request),
        }
    }

    /// Answers a request that is [for the list](Self::serves).
    pub(crate) async fn answer<B>(&self, request: Request<B>, client: SocketAddr) -> Response<ProxyBody>
    where
        B: Body<Data = Bytes>,
    {
        let (parts, body) = request.into_parts();
        let reads = matches!(parts.method, Method::GET | Method::HEAD);
        match parts.uri.path() {
            LIST_PATH if reads => self.list(&parts.headers),
            RESOLVE_PATH if reads => resolve::answer(self, parts.uri.query().unwrap_or_default(), client),
            DNS_PATH if reads => dns::answer_get(self, parts.uri.query().unwrap_or_default(), client),
            DNS_PATH if parts.method == Method::POST => {
                let is_dns = parts.headers.get(header::CONTENT_TYPE).is_some_and(|said| said == dns::MEDIA_TYPE);
                let Some(message) = read(body, dns::MESSAGE_BYTES_MAX).await.filter(|_| is_dns) else {
                    self.counters.dns_malformed.inc();
                    let status =
                        if is_dns { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::UNSUPPORTED_MEDIA_TYPE };
                    return refusal(status);
                };
                dns::answer(self, &message, client)
            }
            LIST_PATH | RESOLVE_PATH | DNS_PATH => refusal(StatusCode::METHOD_NOT_ALLOWED),
            _ => refusal(StatusCode::NOT_FOUND),
        }
    }

    fn list(&self, headers: &HeaderMap) -> Response<ProxyBody> {
        let issued = self.issued();
        let tag = format!("\"{}\"", issued.list.epoch_ms);
        let is_known = headers.get_all(header::IF_NONE_MATCH).iter().any(|known| {
            known.to_str().is_ok_and(|known| known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag))
        });
        let mut response = if is_known {
            self.counters.not_modified.inc();
            let mut response = with_body(Bytes::new());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        } else {
            self.counters.fetched.inc();
            let mut response = with_body(issued.document.clone());
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(LIST_MEDIA_TYPE));
            response
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("digits in quotes"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        response
    }

    /// Says whether an authority is the gateway itself and no service of its routes.
    fn is_own(&self, authority: Option<&str>) -> bool {
        let Some(authority) = authority.and_then(|text| text.parse::<http::uri::Authority>().ok()) else {
            return false;
        };
        let host = authority.host().trim_matches(['[', ']']);
        host == INTERNAL_AUTHORITY
            || host.eq_ignore_ascii_case(&self.issued().config.gateway.name)
            || host.parse::<std::net::IpAddr>().is_ok()
    }
}

/// Says whether a request is for the gateway itself, whatever its path.
pub(crate) fn is_internal<B>(request: &Request<B>) -> bool {
    authority(request).is_some_and(|authority| authority.split(':').next() == Some(INTERNAL_AUTHORITY))
}

fn authority<B>(request: &Request<B>) -> Option<&str> {
    let named = || request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    request.uri().authority().map(http::uri::Authority::as_str).or_else(named)
}

pub(super) fn with_body(body: Bytes) -> Response<ProxyBody> {
    Response::new(Full::new(body).map_err(|never| match never {}).boxed_unsync())
}

pub(super) fn refusal(status: StatusCode) -> Response<ProxyBody> {
    let mut response = with_body(Bytes::new());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

/// Reads a body of at most so many bytes; `None` if it has more, or breaks off.
async fn read<B: Body<Data = Bytes>>(body: B, bytes_max: usize) -> Option<Bytes> {
    let mut body = std::pin::pin!(body);
    let mut read = BytesMut::new();
    while let Some(frame) = body.as_mut().frame().await {
        if let Ok(data) = frame.ok()?.into_data() {
            if read.len() + data.len() > bytes_max {
                return None;
            }
            read.extend_from_slice(&data);
        }
    }
    Some(read.freeze())
}
