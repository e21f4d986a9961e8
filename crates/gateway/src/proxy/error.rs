//! How a request fails at the gateway, by stable names.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};

use super::ProxyBody;
use crate::upstream::ConnectError;

/// Why the gateway could not answer a request, or not to its end.
///
/// The same names are the `error` label of `ropeway_request_errors_total` and the
/// `ropeway-error` header. A body that ends in one of these is incomplete and must be cut on
/// the way out too: no last chunk, `RST_STREAM`, RESET.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyError {
    /// The request's body is larger than its route takes.
    #[error("request body is too large for the route")]
    BodyTooLarge,
    /// The gateway takes no more links before it stops.
    #[error("gateway is draining")]
    Draining,
    /// An HTTP/1.0 client cannot tell the end of a streamed answer from a cut.
    #[error("answer is streamed, which http/1.0 cannot carry safely")]
    Http10Stream,
    /// The request ran, or may have, under its key, and its answer is no longer to be had.
    #[error("request has run under this key and its answer is not kept")]
    KeyAnswerGone,
    /// The request with the same key has not ended in the time a repeat waits.
    #[error("request with the same idempotency key is still running")]
    KeyInProgress,
    /// The `Idempotency-Key` is none: empty, too long, malformed or given twice.
    #[error("idempotency key is malformed")]
    KeyInvalid,
    /// No further key can be remembered, so the request would run unprotected.
    #[error("no further idempotency key can be remembered")]
    KeyMemoryFull,
    /// The key was used for another request: another method, path or body.
    #[error("idempotency key belongs to another request")]
    KeyMismatch,
    /// The route wants an `Idempotency-Key` and the request has none.
    #[error("route wants an idempotency key")]
    KeyMissing,
    /// CONNECT, or an upgrade the front door does not pass on.
    #[error("method is not allowed")]
    MethodNotAllowed,
    /// No route serves the authority and path.
    #[error("no route serves this authority and path")]
    NoRoute,
    /// The route is not served over plain HTTP.
    #[error("route is not served over plain http")]
    PlainHttpRefused,
    /// The client ended the request's body early.
    #[error("request body was cut")]
    RequestBodyCut,
    /// The body of a keyed request did not come whole, and nothing of the request was sent on.
    #[error("request body did not come whole and nothing was sent on")]
    RequestBodyHeld,
    /// The client stopped sending the request's body.
    #[error("request body went silent")]
    RequestBodyIdle,
    /// The request contradicts itself: lengths, hosts, path, or a value no header can carry.
    #[error("request is malformed")]
    RequestMalformed,
    /// The request came in early data and could be a replay that matters.
    #[error("request is not safe in early data")]
    TooEarly,
    /// The route serves as many requests as it may.
    #[error("too many requests in flight on the route")]
    TooManyInFlight,
    /// The upstream's answer is not HTTP.
    #[error("upstream answered malformed http")]
    UpstreamBadResponse,
    /// The upstream ended the answer's body early.
    #[error("upstream cut the answer's body")]
    UpstreamBodyCut,
    /// The upstream stopped sending the answer's body.
    #[error("upstream went silent within a body")]
    UpstreamBodyIdle,
    /// The connection died before the request was written to it.
    #[error("upstream connection closed before the request was sent")]
    UpstreamClosed,
    /// Connecting to the upstream took too long.
    #[error("connecting to the upstream took too long")]
    UpstreamConnectTimeout,
    /// The last attempts to connect to the upstream waited in vain, so that none was made for this request.
    #[error("upstream is beyond reach")]
    UpstreamDown,
    /// The upstream did not answer in time.
    #[error("upstream sent no answer in time")]
    UpstreamFirstByteTimeout,
    /// The upstream refused the connection or is unreachable.
    #[error("upstream refused the connection")]
    UpstreamRefused,
    /// The connection died after the request was sent and before the answer's head, or the
    /// upstream reset the stream.
    #[error("upstream reset the exchange")]
    UpstreamReset,
    /// The TLS handshake with the upstream failed.
    #[error("tls handshake with the upstream failed")]
    UpstreamTls,
    /// The upstream's name could not be resolved.
    #[error("upstream name was not resolved")]
    UpstreamUnresolved,
    /// The route's upstream cannot take over an upgraded connection.
    #[error("route does not take upgraded connections")]
    UpgradeUnsupported,
}

impl ProxyError {
    /// Every error, in the order of their discriminants.
    pub const ALL: [Self; 30] = [
        Self::BodyTooLarge,
        Self::Draining,
        Self::Http10Stream,
        Self::KeyAnswerGone,
        Self::KeyInProgress,
        Self::KeyInvalid,
        Self::KeyMemoryFull,
        Self::KeyMismatch,
        Self::KeyMissing,
        Self::MethodNotAllowed,
        Self::NoRoute,
        Self::PlainHttpRefused,
        Self::RequestBodyCut,
        Self::RequestBodyHeld,
        Self::RequestBodyIdle,
        Self::RequestMalformed,
        Self::TooEarly,
        Self::TooManyInFlight,
        Self::UpstreamBadResponse,
        Self::UpstreamBodyCut,
        Self::UpstreamBodyIdle,
        Self::UpstreamClosed,
        Self::UpstreamConnectTimeout,
        Self::UpstreamDown,
        Self::UpstreamFirstByteTimeout,
        Self::UpstreamRefused,
        Self::UpstreamReset,
        Self::UpstreamTls,
        Self::UpstreamUnresolved,
        Self::UpgradeUnsupported,
    ];

    /// Returns the status the client sees when the answer's head is not sent yet.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BodyTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Http10Stream => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoRoute => StatusCode::NOT_FOUND,
            Self::PlainHttpRefused => StatusCode::FORBIDDEN,
            Self::KeyAnswerGone | Self::KeyInProgress => StatusCode::CONFLICT,
            Self::KeyInvalid | Self::KeyMissing | Self::RequestBodyCut | Self::RequestMalformed => {
                StatusCode::BAD_REQUEST
            }
            Self::KeyMismatch => StatusCode::UNPROCESSABLE_ENTITY,
            Self::RequestBodyHeld | Self::RequestBodyIdle => StatusCode::REQUEST_TIMEOUT,
            Self::TooEarly => StatusCode::TOO_EARLY,
            Self::Draining | Self::KeyMemoryFull | Self::TooManyInFlight | Self::UpstreamDown => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::UpstreamBadResponse
            | Self::UpstreamBodyCut
            | Self::UpstreamClosed
            | Self::UpstreamRefused
            | Self::UpstreamReset
            | Self::UpstreamTls
            | Self::UpstreamUnresolved => StatusCode::BAD_GATEWAY,
            Self::UpstreamBodyIdle | Self::UpstreamConnectTimeout | Self::UpstreamFirstByteTimeout => {
                StatusCode::GATEWAY_TIMEOUT
            }
            Self::UpgradeUnsupported => StatusCode::NOT_IMPLEMENTED,
        }
    }

    /// Returns the stable name in metrics, headers and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::BodyTooLarge => "body_too_large",
            Self::Draining => "draining",
            Self::Http10Stream => "http10_stream",
            Self::KeyAnswerGone => "key_answer_gone",
            Self::KeyInProgress => "key_in_progress",
            Self::KeyInvalid => "key_invalid",
            Self::KeyMemoryFull => "key_memory_full",
            Self::KeyMismatch => "key_mismatch",
            Self::KeyMissing => "key_missing",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::NoRoute => "no_route",
            Self::PlainHttpRefused => "plain_http_refused",
            Self::RequestBodyCut => "request_body_cut",
            Self::RequestBodyHeld => "request_body_held",
            Self::RequestBodyIdle => "request_body_idle",
            Self::RequestMalformed => "request_malformed",
            Self::TooEarly => "too_early",
            Self::TooManyInFlight => "too_many_in_flight",
            Self::UpstreamBadResponse => "upstream_bad_response",
            Self::UpstreamBodyCut => "upstream_body_cut",
            Self::UpstreamBodyIdle => "upstream_body_idle",
            Self::UpstreamClosed => "upstream_closed",
            Self::UpstreamConnectTimeout => "upstream_connect_timeout",
            Self::UpstreamDown => "upstream_down",
            Self::UpstreamFirstByteTimeout => "upstream_first_byte_timeout",
            Self::UpstreamRefused => "upstream_refused",
            Self::UpstreamReset => "upstream_reset",
            Self::UpstreamTls => "upstream_tls",
            Self::UpstreamUnresolved => "upstream_unresolved",
            Self::UpgradeUnsupported => "upgrade_unsupported",
        }
    }

    /// Whether the upstream may have seen the request; if not, sending any request again is
    /// safe.
    pub fn executed(self) -> bool {
        match self {
            Self::Draining
            | Self::KeyInvalid
            | Self::KeyMemoryFull
            | Self::KeyMismatch
            | Self::KeyMissing
            | Self::MethodNotAllowed
            | Self::NoRoute
            | Self::PlainHttpRefused
            | Self::RequestBodyHeld
            | Self::RequestMalformed
            | Self::TooEarly
            | Self::TooManyInFlight
            | Self::UpstreamClosed
            | Self::UpstreamConnectTimeout
            | Self::UpstreamDown
            | Self::UpstreamRefused
            | Self::UpstreamTls
            | Self::UpstreamUnresolved
            | Self::UpgradeUnsupported => false,
            Self::BodyTooLarge
            | Self::Http10Stream
            | Self::KeyAnswerGone
            | Self::KeyInProgress
            | Self::RequestBodyCut
            | Self::RequestBodyIdle
            | Self::UpstreamBadResponse
            | Self::UpstreamBodyCut
            | Self::UpstreamBodyIdle
            | Self::UpstreamFirstByteTimeout
            | Self::UpstreamReset => true,
        }
    }

    /// Makes the answer that tells the client: status, [`ERROR_HEADER`], and
    /// [`NOT_EXECUTED_HEADER`] where the status leaves open whether the request ran (408, 425, 429,
    /// 502, 503, 504, and 404 where there is no route) and it did not.
    pub fn into_response(self) -> Response<ProxyBody> {
        let name = self.name();
        // A line, as it may end in a terminal.
        let body = Full::new(Bytes::from(format!("{name}\n"))).map_err(|never| match never {});
        let mut response = Response::new(body.boxed_unsync());
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(ERROR_HEADER, HeaderValue::from_static(name));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        let is_in_question = self == Self::NoRoute || matches!(self.status().as_u16(), 408 | 425 | 429 | 502..=504);
        if is_in_question && !self.executed() {
            headers.insert(NOT_EXECUTED_HEADER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<&ConnectError> for ProxyError {
    fn from(error: &ConnectError) -> Self {
        match error {
            ConnectError::Down => Self::UpstreamDown,
            ConnectError::Refused(_) => Self::UpstreamRefused,
            ConnectError::Timeout => Self::UpstreamConnectTimeout,
            ConnectError::Tls(_) => Self::UpstreamTls,
            ConnectError::Unresolved(_) => Self::UpstreamUnresolved,
        }
    }
}

/// Response header with the error's name; never taken over from an upstream.
pub const ERROR_HEADER: HeaderName = HeaderName::from_static("ropeway-error");

/// Response header that says the upstream cannot have seen the request.
pub const NOT_EXECUTED_HEADER: HeaderName = HeaderName::from_static("ropeway-not-executed");

#[cfg(test)]
mod tests {
    use ropeway_core::request;

    use super::*;

    #[test]
    fn every_error_is_listed_once_at_its_own_index() {
        for (index, error) in ProxyError::ALL.into_iter().enumerate() {
            assert_eq!(error as usize, index, "{error:?}");
        }
    }

    #[test]
    fn a_client_knows_the_errors_of_services_that_break_off() {
        for error in ProxyError::ALL {
            let is_services = error.name().starts_with("upstream_");
            let has_seen = is_services && (error.executed() || error == ProxyError::UpstreamClosed);
            assert_eq!(request::has_broken_off(error.name()), has_seen, "{error:?}");
        }
        assert_eq!(ERROR_HEADER, request::ERROR_HEADER);
        assert_eq!(NOT_EXECUTED_HEADER, request::NOT_EXECUTED_HEADER);
    }

    #[test]
    fn what_is_safe_to_send_again_says_so_where_the_status_leaves_it_open() {
        for error in ProxyError::ALL {
            let response = error.into_response();
            assert_eq!(response.headers()[ERROR_HEADER], error.name());
            let length = http_body::Body::size_hint(response.body()).exact();
            assert_eq!(length, Some(error.name().len() as u64 + 1), "{error:?}: the name is a line");
            let says_so = response.headers().contains_key(NOT_EXECUTED_HEADER);
            let is_in_question = [404, 408, 425, 429, 502, 503, 504].contains(&error.status().as_u16());
            assert_eq!(says_so, is_in_question && !error.executed(), "{error:?}");
        }
    }
}
