//! What is answered where a sealed request is not served.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use ropeway_core::pipe::PipeRefusal;
use ropeway_net::pipe::{Content, DATE_FROM_HEADER, DATE_PROBLEM, KEY_PROBLEM, OpenError, UP_HEADER, http_date};

use crate::proxy::{ERROR_HEADER, NOT_EXECUTED_HEADER, ProxyBody, ProxyError};

/// Why nothing can be answered through the pipe: what came cannot be opened, or was not read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Outer {
    /// As many sealed requests are served as may be.
    Busy,
    /// The body was cut.
    Cut,
    /// The key configuration is asked for over plain HTTP, where anyone could have changed it.
    KeysOverPlain,
    /// It is no POST, or no GET where keys are asked for.
    Method,
    /// It is too large.
    Size,
    /// The body did not come in time.
    Slow,
    /// It is not of the media type of sealed requests.
    Type,
    /// It was not sealed for a key that is accepted, or was changed.
    Unopened(OpenError),
    /// It names a key that is not known, or no longer.
    UnknownKey,
}

/// Why a request that was opened is not served. The answer goes through the pipe.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Inner {
    /// The answer did not end in time.
    AnswerSlow,
    /// The answer is too large for the pipe.
    AnswerTooLarge,
    /// The answer cannot be written as Binary HTTP, with too many headers for instance.
    AnswerUnsealable,
    /// What was sealed is no request.
    Malformed,
    /// It is not taken.
    Refused(PipeRefusal),
}

impl Outer {
    /// Returns the stable name in metrics and headers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Busy => "busy",
            Self::Cut => "body_cut",
            Self::KeysOverPlain => "keys_over_plain_http",
            Self::Method => "method_not_allowed",
            Self::Size => "too_large",
            Self::Slow => "body_slow",
            Self::Type => "media_type",
            Self::Unopened(_) => "unopened",
            Self::UnknownKey => "unknown_key",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Cut => StatusCode::BAD_REQUEST,
            Self::KeysOverPlain => StatusCode::FORBIDDEN,
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Size => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Type => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            // RFC 9458 section 6.4.
            Self::Unopened(_) | Self::UnknownKey => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }

    /// Makes the answer, which anyone on the way could have made: it says nothing that a client may rely on.
    pub(super) fn into_response(self) -> Response<ProxyBody> {
        let mut response = match self {
            Self::Unopened(_) | Self::UnknownKey => {
                problem(KEY_PROBLEM, "key is not known, or the request was not sealed for it")
            }
            Self::Busy | Self::Cut | Self::KeysOverPlain | Self::Method | Self::Size | Self::Slow | Self::Type => {
                text(self.name())
            }
        };
        *response.status_mut() = self.status();
        response.headers_mut().insert(ERROR_HEADER, HeaderValue::from_static(self.name()));
        response.map(|body| Full::new(body).map_err(|never| match never {}).boxed_unsync())
    }
}

impl Inner {
    /// Returns the stable name in metrics and headers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::AnswerSlow => "answer_slow",
            Self::AnswerTooLarge => "answer_too_large",
            Self::AnswerUnsealable => "answer_unsealable",
            Self::Malformed => "malformed",
            Self::Refused(refusal) => refusal.name(),
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::AnswerSlow => StatusCode::GATEWAY_TIMEOUT,
            Self::AnswerTooLarge | Self::AnswerUnsealable => StatusCode::BAD_GATEWAY,
            Self::Malformed => StatusCode::BAD_REQUEST,
            Self::Refused(refusal) => match refusal {
                // RFC 9458 section 6.5.2.
                PipeRefusal::ClockAhead | PipeRefusal::ClockBehind => StatusCode::BAD_REQUEST,
                PipeRefusal::Replayed => StatusCode::CONFLICT,
                // RFC 8470 section 5.2.
                PipeRefusal::TooEarly { .. } => StatusCode::TOO_EARLY,
                PipeRefusal::Full | _ => StatusCode::SERVICE_UNAVAILABLE,
            },
        }
    }

    /// Whether the request, or another copy of it, may have been executed or may yet be.
    const fn executed(self) -> bool {
        match self {
            Self::AnswerSlow | Self::AnswerTooLarge | Self::AnswerUnsealable => true,
            Self::Malformed => false,
            Self::Refused(refusal) => refusal.executed(),
        }
    }

    /// Makes the answer; every one tells the gateway's time, by which a client sets its offset.
    pub(super) fn into_response(self, unix_ms: u64) -> Response<Content> {
        let mut response = match self {
            Self::Refused(PipeRefusal::ClockAhead | PipeRefusal::ClockBehind) => {
                problem(DATE_PROBLEM, "date is too far from the gateway's time")
            }
            Self::AnswerSlow | Self::AnswerTooLarge | Self::AnswerUnsealable | Self::Malformed | Self::Refused(_) => {
                text(self.name())
            }
        };
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(header::DATE, http_date(unix_ms));
        headers.insert(ERROR_HEADER, HeaderValue::from_static(self.name()));
        if let Self::Refused(PipeRefusal::TooEarly { up, floor_ms }) = self {
            headers.insert(UP_HEADER, HeaderValue::from(u64::try_from(up.as_millis()).unwrap_or(u64::MAX)));
            // Dates have seconds only.
            headers.insert(DATE_FROM_HEADER, http_date((floor_ms / 1_000).saturating_add(1).saturating_mul(1_000)));
        }
        if !self.executed() {
            headers.insert(NOT_EXECUTED_HEADER, HeaderValue::from_static("1"));
        }
        response.map(Content::from)
    }
}

/// Takes an error of the proxy as an answer that goes through the pipe.
pub(super) fn of_proxy(error: ProxyError) -> Response<Content> {
    let (mut head, _) = error.into_response().into_parts();
    // Inside the pipe it can be relied on, whatever the status.
    if !error.executed() {
        head.headers.insert(NOT_EXECUTED_HEADER, HeaderValue::from_static("1"));
    }
    Response::from_parts(head, Bytes::from_static(error.name().as_bytes()).into())
}

fn text(words: &'static str) -> Response<Bytes> {
    made("text/plain", format!("{words}\n").into())
}

fn problem(kind: &str, title: &str) -> Response<Bytes> {
    let body = serde_json::json!({ "type": kind, "title": title });
    made("application/problem+json", body.to_string().into())
}

fn made(media_type: &'static str, body: Bytes) -> Response<Bytes> {
    let mut response = Response::new(body);
    set(&mut response, header::CONTENT_TYPE, media_type);
    set(&mut response, header::CACHE_CONTROL, "no-store");
    response
}

fn set<B>(response: &mut Response<B>, name: HeaderName, value: &'static str) {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
}
