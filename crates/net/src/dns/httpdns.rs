//! HTTPDNS and the access list, at dispatch addresses.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use ropeway_core::wire::list::{LIST_BYTES_MAX, LIST_PATH, RESOLVE_PATH, SIGNATURE_HEADER};
use rustls::ClientConfig;
use serde::Deserialize;

use super::{ADDRESSES_MAX, Answered, DnsError, doh::authority, https::Https};
use crate::pipe::parse_http_date;

/// Asks gateways and dispatchers for lists and addresses.
#[derive(Clone)]
pub struct Dispatch {
    https: Https,
}

/// An answer to the question for a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The server's time as it answered, Unix time in ms, cut to the second; `None` where it does not say.
    pub date_ms: Option<u64>,
    /// What became of the list.
    pub list: FetchedList,
}

/// What became of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchedList {
    /// This one, not verified.
    List(Bytes),
    /// It is the one that is known.
    NotModified,
}

/// An answer of HTTPDNS and what its signature stands under.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    /// The bytes that are signed.
    pub body: Bytes,
    /// Name of the key.
    pub key_id: String,
    /// The signature.
    pub signature: Vec<u8>,
    /// When it was made, milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// What it says of the host; `None` where it does not answer for it.
    pub answered: Option<Answered>,
}

impl Dispatch {
    /// Makes a client that believes what this configuration does; it should offer HTTP/2 and HTTP/1.1.
    #[must_use]
    pub fn new(config: Arc<ClientConfig>) -> Self {
        Self { https: Https::new(config) }
    }

    /// Asks an address, whose certificate must carry `name`, for a list other than the one with this epoch.
    ///
    /// # Errors
    ///
    /// A [`DnsError`] if it has none to give.
    pub async fn list(&self, server: SocketAddr, name: &str, known_epoch_ms: u64) -> Result<Fetched, DnsError> {
        let mut request = request(name, LIST_PATH)?;
        if known_epoch_ms > 0 {
            let tag = format!("\"{known_epoch_ms}\"").parse().expect("digits in quotes fit a header");
            request.headers_mut().insert(header::IF_NONE_MATCH, tag);
        }
        let response = self.https.exchange(server, name, request, LIST_BYTES_MAX).await?;
        let date_ms = response.headers().get(header::DATE).and_then(parse_http_date);
        let list = match response.status() {
            StatusCode::OK if response.body().is_empty() => {
                return Err(DnsError::Malformed { server, reason: "it is empty".into() });
            }
            StatusCode::OK => FetchedList::List(response.into_body()),
            StatusCode::NOT_MODIFIED => FetchedList::NotModified,
            status => return Err(DnsError::Status { server, status }),
        };
        Ok(Fetched { date_ms, list })
    }

    /// Asks an address, whose certificate must carry `name`, for the addresses of a host.
    ///
    /// # Errors
    ///
    /// A [`DnsError`] if its answer is none. The signature is not checked.
    pub async fn resolve(&self, server: SocketAddr, name: &str, host: &str) -> Result<Signed, DnsError> {
        let is_name =
            !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        if !is_name {
            return Err(DnsError::Name(host.into()));
        }
        let request = request(name, &format!("{RESOLVE_PATH}?host={host}"))?;
        let response = self.https.exchange(server, name, request, ANSWER_BYTES_MAX).await?;
        if response.status() != StatusCode::OK {
            return Err(DnsError::Status { server, status: response.status() });
        }
        read(&response, host)
            .ok_or_else(|| DnsError::Malformed { server, reason: "this is no answer of HTTPDNS".into() })
    }
}

fn request(name: &str, path: &str) -> Result<Request<Full<Bytes>>, DnsError> {
    Request::get(format!("https://{}{path}", authority(name)))
        .header(header::HOST, authority(name))
        .body(Full::default())
        .map_err(|_| DnsError::Name(name.into()))
}

#[derive(Deserialize)]
struct Document {
    time_ms: u64,
    answers: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    host: String,
    ttl_s: u32,
    #[serde(default)]
    v4: Vec<String>,
    #[serde(default)]
    v6: Vec<String>,
}

fn read(response: &Response<Bytes>, host: &str) -> Option<Signed> {
    let said = response.headers().get(SIGNATURE_HEADER)?.to_str().ok()?;
    let (key_id, signature) = said.split_once(';')?;
    let document: Document = serde_json::from_slice(response.body()).ok()?;
    let entry = document.answers.into_iter().find(|entry| entry.host.eq_ignore_ascii_case(host));
    let answered = entry.map(|entry| Answered {
        addresses: entry.v4.iter().chain(&entry.v6).filter_map(|text| text.parse().ok()).take(ADDRESSES_MAX).collect(),
        ttl: Duration::from_secs(entry.ttl_s.into()),
    });
    Some(Signed {
        body: response.body().clone(),
        key_id: key_id.to_owned(),
        signature: STANDARD.decode(signature).ok()?,
        time_ms: document.time_ms,
        answered,
    })
}

/// Bytes of an answer that are read. 64 KiB; a hundred addresses have a few.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
