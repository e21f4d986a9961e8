//! The sealed pipe: a request encrypted with a gateway's key and posted to its address, without a name or a handshake.
//!
//! What is inside can be read and answered by the gateway alone, whoever stands on the way and whatever they do to plain
//! HTTP; so it is the way that is left where names and TLS are not let through. Who has the gateway's key within the two
//! days that it lives can read what was recorded: requests in the pipe have no forward secrecy.
//!
//! A client takes this way by itself. Taken by hand, it needs the key configuration from the gateway, which serves it over
//! TLS at [`PIPE_KEYS_PATH`](ropeway_net::pipe::PIPE_KEYS_PATH):
//!
//! ```no_run
//! use ropeway::{Body, pipe::{Pipe, PipeConfig, PipeTarget}, way::Shape};
//!
//! # async fn example(keys: &[u8], address: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
//! let target = PipeTarget { address, config: PipeConfig::parse_list(keys)? };
//! let request = http::Request::get("https://api.test/greeting").body(Body::empty())?;
//! let answer = Pipe::default().send(request, &target, Shape::Http11, 0).await?;
//! # let _ = answer;
//! # Ok(())
//! # }
//! ```

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt as _, Full};
use ropeway_net::{
    pipe::{ANSWER_TYPE, Content, KEY_PROBLEM, OpenError, PIPE_PATH, REQUEST_TYPE, SealError, parse_http_date},
    unix_ms,
};
use tokio::time::Instant;

use crate::{
    Body, Phase,
    way::{Cause, Failed, Fate, Shape, Trace, exchange, hold},
};

pub use ropeway_net::pipe::{PipeConfig, PipeConfigError};

/// Sends requests through sealed pipes.
#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    /// Largest body of a request, bytes. It is held whole. Default: 1,000,000; a gateway takes 1 MiB by default, sealed.
    pub request_bytes_max: usize,
    /// Largest sealed answer, bytes. It is held whole. Default: 9 MiB; a gateway sends bodies of up to 8 MiB by default.
    pub answer_bytes_max: usize,
}

/// A gateway's end of a sealed pipe.
#[derive(Clone, Debug)]
pub struct PipeTarget {
    /// A TCP address of the gateway.
    pub address: SocketAddr,
    /// Its key configuration, from the gateway itself.
    pub config: PipeConfig,
}

impl Default for Pipe {
    fn default() -> Self {
        Self { request_bytes_max: REQUEST_BYTES_MAX, answer_bytes_max: ANSWER_BYTES_MAX }
    }
}

impl Pipe {
    /// Sends a request, whose URL is absolute, and returns the whole answer.
    ///
    /// `clock_offset_ms` is the gateway's time less the device's, as far as it is known: a request is taken if its date is
    /// at most 60 s off.
    ///
    /// # Errors
    ///
    /// A [`Failed`] that says whether the request was executed. [`Cause::Clock`] has the offset to try again with, once.
    pub async fn send(
        &self,
        request: Request<Body>,
        target: &PipeTarget,
        shape: Shape,
        clock_offset_ms: i64,
    ) -> Result<Response<Body>, Failed> {
        self.send_traced(request, target, shape, clock_offset_ms, &Trace::default()).await
    }

    pub(crate) async fn send_traced(
        &self,
        request: Request<Body>,
        target: &PipeTarget,
        shape: Shape,
        clock_offset_ms: i64,
        trace: &Trace,
    ) -> Result<Response<Body>, Failed> {
        let address = target.address;
        let (head, body) = request.into_parts();
        let held = hold(body, self.request_bytes_max).await;
        let (data, trailers) = held.map_err(|cause| Failed::before(address, cause))?;
        let content = Content { data, trailers };
        let date_ms = unix_ms().saturating_add_signed(clock_offset_ms);
        let (sealed, opener) = target.config.seal(head, &content, date_ms).map_err(|error| {
            let cause = match error {
                SealError::Message(error) => Cause::Invalid(error.to_string()),
                SealError::Crypto | _ => Cause::Invalid("it cannot be encrypted".to_owned()),
            };
            Failed::before(address, cause)
        })?;
        let begun = Instant::now();
        let response = exchange(address, posted(address, sealed), shape, self.answer_bytes_max, trace).await?;
        let failed = |cause| Failed::after(address, Phase::Answer, cause);
        if let Some(cause) = foreign(&response) {
            return Err(failed(cause));
        }
        let answer = opener.open(response.body()).map_err(|error| {
            failed(match error {
                OpenError::Message(_) => Cause::Exchange("answer is no http".to_owned()),
                OpenError::Changed | OpenError::Truncated | OpenError::Unsupported | _ => {
                    Cause::Tampered("it was not sealed for this request")
                }
            })
        })?;
        match refusal(&answer, begun.elapsed()) {
            Some((fate, cause)) => Err(Failed { address, phase: Phase::Answer, fate, cause }),
            None => Ok(answer.map(whole)),
        }
    }
}

/// Makes the request that everyone on the way sees.
fn posted(address: SocketAddr, sealed: Bytes) -> Request<Bytes> {
    let mut request = Request::new(sealed);
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = http::Uri::from_static(PIPE_PATH);
    *request.version_mut() = Version::HTTP_11;
    let host = HeaderValue::try_from(address.to_string()).expect("an address is digits, letters, dots and colons");
    let headers = request.headers_mut();
    headers.insert(header::HOST, host);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(REQUEST_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    request
}

/// Says what is wrong with an answer that is no sealed one. Anyone can have made it, so it proves nothing.
fn foreign(response: &Response<Bytes>) -> Option<Cause> {
    let kind = response.headers().get(header::CONTENT_TYPE);
    if response.status() == StatusCode::OK && kind.is_some_and(|kind| kind == ANSWER_TYPE) {
        return None;
    }
    let is_key_problem = serde_json::from_slice::<serde_json::Value>(response.body())
        .is_ok_and(|problem| problem.get("type").is_some_and(|kind| kind == KEY_PROBLEM));
    Some(if is_key_problem { Cause::KeyUnknown } else { Cause::Foreign { status: response.status().as_u16() } })
}

/// Says why the gateway did not serve a request, where it was the pipe that it did not like; other answers are the app's.
fn refusal(answer: &Response<Content>, elapsed: Duration) -> Option<(Fate, Cause)> {
    let headers = answer.headers();
    let name = headers.get(ERROR_HEADER)?.to_str().ok()?;
    // Whoever holds a sealed request back can have a second copy refused, long after the first was executed. For this long the
    // gateway remembers what it executed.
    let is_trusted = elapsed < TRUSTED_WITHIN;
    let unexecuted = if is_trusted { Fate::NotExecuted } else { Fate::MayHaveRun };
    match name {
        "clock_skew" => {
            let offset_ms = gateway_offset_ms(headers, elapsed)?;
            Some((unexecuted, Cause::Clock { offset_ms }))
        }
        "malformed" | "replay_window_full" => Some((unexecuted, Cause::Refused { name: name.to_owned() })),
        "answer_slow" | "answer_too_large" | "replayed" | "restarted" => {
            Some((Fate::MayHaveRun, Cause::Refused { name: name.to_owned() }))
        }
        _ => None,
    }
}

fn gateway_offset_ms(headers: &HeaderMap, elapsed: Duration) -> Option<i64> {
    let told_ms = headers.get(header::DATE).and_then(parse_http_date)?;
    // The date is cut to the second, and was written half a round trip ago.
    let gateway_ms = told_ms.saturating_add(500).saturating_add(elapsed.as_millis().min(60_000) as u64 / 2);
    let (gateway_ms, here_ms) = (i64::try_from(gateway_ms).ok()?, i64::try_from(unix_ms()).ok()?);
    Some(gateway_ms.saturating_sub(here_ms))
}

pub(crate) fn whole(content: Content) -> Body {
    match content.trailers {
        None => Body::from(content.data),
        Some(trailers) => Body::wrap(Full::new(content.data).with_trailers(std::future::ready(Some(Ok(trailers))))),
    }
}

/// Header by which a gateway names why it did not serve a request.
const ERROR_HEADER: &str = "ropeway-error";

/// How long after a request was sent a refusal proves that it was not executed. 60 s; a gateway remembers what it executed for
/// two minutes, twice the difference of clocks that it allows.
const TRUSTED_WITHIN: Duration = Duration::from_secs(60);

/// Largest body of a request. 1,000,000 bytes; with a head of up to 32 KiB it fits in the 1 MiB that gateways take.
const REQUEST_BYTES_MAX: usize = 1_000_000;

/// Largest sealed answer. 9 MiB; the 8 MiB of body that gateways send, and room for the head.
const ANSWER_BYTES_MAX: usize = 9 << 20;
