//! WebSockets: those that carry a link are taken over, others pass through to their upstream.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use super::service::{Service, refusal};
use crate::proxy::{ProxyBody, ProxyError};

/// WebSocket subprotocol of a link.
pub const LINK_PROTOCOL: &str = "ropeway.v1";

impl Service {
    pub(super) async fn websocket(&self, request: Request<Incoming>) -> Response<ProxyBody> {
        if lists(request.headers(), &header::SEC_WEBSOCKET_PROTOCOL, LINK_PROTOCOL) {
            return self.link(request);
        }
        self.pass(request).await.unwrap_or_else(|error| refusal(error, true))
    }

    /// Switches to a link (RFC 6455 section 4.2.2).
    fn link(&self, mut request: Request<Incoming>) -> Response<ProxyBody> {
        let refused = |error| refusal(self.front.proxy.counted(error), true);
        if self.connection.plain {
            return refused(ProxyError::PlainHttpRefused);
        }
        if self.front.on_link.is_none() {
            return refused(ProxyError::UpgradeUnsupported);
        }
        if self.front.drain.is_cancelled() {
            return refused(ProxyError::Draining);
        }
        // A replayed upgrade would open a link for nobody (RFC 8470 section 4).
        if self.connection.is_early() {
            return refused(ProxyError::TooEarly);
        }
        let headers = request.headers();
        if only(headers, &header::SEC_WEBSOCKET_VERSION).is_none_or(|version| version != VERSION) {
            self.front.counters.websocket.inc();
            let mut response = bare(StatusCode::UPGRADE_REQUIRED);
            response.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
            return response;
        }
        let Some(accept) = only(headers, &header::SEC_WEBSOCKET_KEY).and_then(accept) else {
            self.front.counters.websocket.inc();
            return refused(ProxyError::RequestMalformed);
        };
        let switched = hyper::upgrade::on(&mut request);
        let front = std::sync::Arc::clone(&self.front);
        let connection = self.connection.clone();
        self.front.tunnels.spawn(async move {
            let on_link = front.on_link.as_ref().expect("checked before the switch");
            match switched.await {
                Ok(upgraded) => on_link(upgraded, connection),
                Err(error) => tracing::debug!(%error, "websocket did not switch"),
            }
        });
        let mut response = bare(StatusCode::SWITCHING_PROTOCOLS);
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        headers.insert(header::SEC_WEBSOCKET_ACCEPT, accept);
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(LINK_PROTOCOL));
        response
    }

    /// Switches through to the upstream and passes bytes both ways.
    async fn pass(&self, mut request: Request<Incoming>) -> Result<Response<ProxyBody>, ProxyError> {
        let switched = hyper::upgrade::on(&mut request);
        let request = request.map(|_| Empty::new().map_err(|never| match never {}).boxed_unsync());
        let (response, tunnel) = self.front.proxy.upgrade(request, self.peer()).await?;
        if let Some(tunnel) = tunnel {
            self.front.tunnels.spawn(async move {
                match switched.await {
                    Ok(upgraded) => tunnel.join(TokioIo::new(upgraded)).await,
                    Err(error) => tracing::debug!(%error, "websocket did not switch"),
                }
            });
        }
        Ok(response)
    }
}

/// Whether a request asks to become a WebSocket (RFC 6455 section 4.2.1). Other upgrades are not followed: the
/// request goes on as it is, without them (RFC 9110 section 7.8 allows to ignore them).
pub(super) fn is_websocket<B>(request: &Request<B>) -> bool {
    request.version() == Version::HTTP_11
        && request.method() == Method::GET
        && lists(request.headers(), &header::CONNECTION, "upgrade")
        && lists(request.headers(), &header::UPGRADE, "websocket")
}

/// Computes `Sec-WebSocket-Accept` for a key of 16 bytes.
fn accept(key: &str) -> Option<HeaderValue> {
    if STANDARD.decode(key).ok()?.len() != 16 {
        return None;
    }
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(KEY_SUFFIX);
    HeaderValue::try_from(STANDARD.encode(digest.finish())).ok()
}

/// Returns a header's value if there is exactly one.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    }
}

fn lists(headers: &HeaderMap, name: &HeaderName, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|listed| listed.trim().eq_ignore_ascii_case(token))
}

fn bare(status: StatusCode) -> Response<ProxyBody> {
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

/// The only WebSocket version: RFC 6455 section 4.1.
const VERSION: &str = "13";

/// Proves that the server understood a WebSocket key: RFC 6455 section 1.3.
const KEY_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accept_value_is_that_of_the_rfc() {
        let value = accept("dGhlIHNhbXBsZSBub25jZQ==").expect("a valid key");
        assert_eq!(value, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for bad in ["", "dGhlIHNhbXBsZSBub25jZQ", "c2hvcnQ=", "\u{e9}"] {
            assert!(accept(bad).is_none(), "{bad}");
        }
    }
}
