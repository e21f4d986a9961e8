//! What is answered where a request for a signed answer is not served.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use crate::proxy::{ERROR_HEADER, NOT_EXECUTED_HEADER};

/// Why a request for a signed answer is not served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Refused {
    /// The answer did not end in time.
    AnswerSlow,
    /// The answer is too large to be held.
    AnswerTooLarge,
    /// As many such requests are served as may be.
    Busy,
    /// The body of the request was cut.
    Cut,
    /// The content of the request is not what its digest says.
    Digest,
    /// The public key is asked for over plain HTTP, where anyone could have changed it.
    KeysOverPlain,
    /// What is asked for cannot be signed.
    Malformed,
    /// It is no GET where the key is asked for.
    Method,
    /// The body of the request did not come in time.
    Slow,
    /// The body of the request is too large to be held.
    TooLarge,
}

impl Refused {
    /// Returns the stable name in metrics and headers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AnswerSlow => "answer_slow",
            Self::AnswerTooLarge => "answer_too_large",
            Self::Busy => "busy",
            Self::Cut => "body_cut",
            Self::Digest => "digest_mismatch",
            Self::KeysOverPlain => "keys_over_plain_http",
            Self::Malformed => "signature_malformed",
            Self::Method => "method_not_allowed",
            Self::Slow => "body_slow",
            Self::TooLarge => "too_large",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::AnswerSlow => StatusCode::GATEWAY_TIMEOUT,
            Self::AnswerTooLarge => StatusCode::BAD_GATEWAY,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Cut | Self::Digest | Self::Malformed => StatusCode::BAD_REQUEST,
            Self::KeysOverPlain => StatusCode::FORBIDDEN,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }

    /// Makes the answer.
    pub(super) fn into_response(self) -> Response<Bytes> {
        let mut response = Response::new(Bytes::from(format!("{}\n", self.name())));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(ERROR_HEADER, HeaderValue::from_static(self.name()));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if self == Self::Busy {
            headers.insert(NOT_EXECUTED_HEADER, HeaderValue::from_static("1"));
        }
        response
    }
}
