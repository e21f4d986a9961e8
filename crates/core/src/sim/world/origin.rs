//! The service behind the gateway: what it answers, and how often it executed what.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::{request::NOT_EXECUTED_HEADER, wire::fields::ResponseHead};

/// Counts executions and makes answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Origin {
    executed: BTreeMap<u64, u32>,
}

impl Origin {
    /// Executes a request whose body has so many bytes, and one with a key only the first time.
    pub(super) fn execute(&mut self, uri: &Uri, has_key: bool, body_bytes: u64) -> (ResponseHead, Bytes) {
        let number = uri.query().and_then(|query| query.strip_prefix("id=")).and_then(|id| id.parse().ok());
        let executed = self.executed.entry(number.unwrap_or_default()).or_default();
        if !has_key || *executed == 0 {
            *executed += 1;
        }
        let wanted = uri.path().strip_prefix("/bytes/").and_then(|bytes| bytes.parse().ok());
        match wanted {
            Some(bytes) => answer(StatusCode::OK, Bytes::from(vec![0; bytes])),
            None => answer(StatusCode::OK, Bytes::from(body_bytes.to_string())),
        }
    }

    /// Returns how often a request was executed.
    pub(super) fn executed(&self, number: u64) -> u32 {
        self.executed.get(&number).copied().unwrap_or_default()
    }
}

/// Answers in the place of an origin that cannot be reached.
pub(super) fn unreachable() -> (ResponseHead, Bytes) {
    let (mut head, body) = answer(StatusCode::GATEWAY_TIMEOUT, Bytes::from_static(b"the service cannot be reached"));
    head.headers.insert(NOT_EXECUTED_HEADER, HeaderValue::from_static("1"));
    (head, body)
}

fn answer(status: StatusCode, body: Bytes) -> (ResponseHead, Bytes) {
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    (ResponseHead { status, headers }, body)
}
