//! What of a request decides how often it may be sent.

use http::{HeaderName, Method, StatusCode};

/// What of a request decides whether it may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// It may be executed twice: by its method ([`is_idempotent`]), or because it carries an `Idempotency-Key`.
    pub idempotent: bool,
    /// Its body is at hand from its first byte on.
    pub replayable: bool,
}

/// How a request ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was not executed, and cannot be sent again from here: its body is used up, or every way was tried.
    NotExecuted,
    /// It may have been executed.
    OutcomeUnknown,
    /// The peer ended it for a reason of its own.
    Reset,
}

/// Says whether a method may be executed twice to the same effect as once (RFC 9110 section 9.2.2).
#[must_use]
pub fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE].contains(method)
}

/// Says whether a status tells that a service cannot be had at present: 502, 503 or 504 (RFC 9110 sections 15.6.3 to 15.6.5). By another way
/// it may be had.
#[must_use]
pub fn is_unavailable(status: StatusCode) -> bool {
    [StatusCode::BAD_GATEWAY, StatusCode::SERVICE_UNAVAILABLE, StatusCode::GATEWAY_TIMEOUT].contains(&status)
}

/// Says whether an answer of a gateway tells that its service broke off: that it took the request, or the connection for it, and ended
/// without an answer, by the name in [`ERROR_HEADER`] on a 502 or 504. The service would see each further try of it, through whichever
/// gateway.
#[must_use]
pub fn has_broken_off(name: &str) -> bool {
    BROKEN_OFF.contains(&name)
}

/// The errors of a gateway by which [`has_broken_off`] holds, by their names in `docs/metrics.md`.
const BROKEN_OFF: [&str; 6] = [
    "upstream_bad_response",
    "upstream_body_cut",
    "upstream_body_idle",
    "upstream_closed",
    "upstream_first_byte_timeout",
    "upstream_reset",
];

/// Response header with the name of the error for which a gateway has no answer of the service.
pub const ERROR_HEADER: &str = "ropeway-error";

/// Header of the key by which whoever reads it knows a request again (draft-ietf-httpapi-idempotency-key-header).
pub const KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

/// Response header by which a gateway says, on a 502, 503 or 504 of its own, that the request was not executed.
pub const NOT_EXECUTED_HEADER: &str = "ropeway-not-executed";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotent_methods_are_those_of_the_rfc() {
        for (method, idempotent) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::OPTIONS, true),
            (Method::TRACE, true),
            (Method::PUT, true),
            (Method::DELETE, true),
            (Method::POST, false),
            (Method::PATCH, false),
            (Method::CONNECT, false),
        ] {
            assert_eq!(is_idempotent(&method), idempotent, "{method}");
        }
    }

    #[test]
    fn three_statuses_say_that_a_service_cannot_be_had() {
        for (status, expected) in [(200, false), (500, false), (501, false), (502, true), (503, true), (504, true)] {
            assert_eq!(is_unavailable(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }
}
