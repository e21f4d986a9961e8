//! Plain HTTP with signed answers: the way for routes whose operator allowed it, where nothing encrypted gets through.
//!
//! **Everyone on the way can read the request and the answer, and can send the request again or another in its place.** What
//! is proved is that the answer is the gateway's own answer to this very request: an answer that was changed, or is older, or
//! somebody else's, is an error and does not reach the app. Headers that were put in on the way are left out.
//!
//! A request goes without `authorization`, `cookie` and `proxy-authorization`, unless the app says that they may be read by
//! everyone: a service then sees a request that nobody logged in for. An app that calls a route like this for somebody has a
//! sealed pipe for it, which needs no more than this way does.
//!
//! ```no_run
//! use ropeway::{Body, plain::{Plain, PlainTarget, VerifyingKey}, way::Shape};
//!
//! # async fn example(id: &str, key: [u8; 32], address: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
//! // From the gateway, over TLS.
//! let keys = vec![VerifyingKey::new(id, &key).ok_or("no key")?];
//! let request = http::Request::get("https://news.test/today").body(Body::empty())?;
//! let answer = Plain::default().send(request, &PlainTarget { address, keys }, Shape::Http11).await?;
//! # let _ = answer;
//! # Ok(())
//! # }
//! ```

use std::net::SocketAddr;

use http::{HeaderName, HeaderValue, Request, Response, Uri, header, uri::PathAndQuery};
use ropeway_core::request::ERROR_HEADER;
use ropeway_net::signed::{Ask, VerifyError};

use crate::{
    Body, Phase,
    way::{Cause, Failed, Fate, Shape, Trace, exchange, hold},
};

pub use ropeway_net::signed::VerifyingKey;

/// Sends requests over plain HTTP and verifies the answers.
#[derive(Clone, Copy, Debug)]
pub struct Plain {
    /// Largest body of a request, bytes. It is held whole. Default: 1,000,000; a gateway takes 1 MiB by default.
    pub request_bytes_max: usize,
    /// Largest body of an answer, bytes. It is held whole. Default: 8 MiB, as at gateways.
    pub answer_bytes_max: usize,
    /// Whether `authorization`, `cookie` and `proxy-authorization` go along, for everyone on the way to read. Default: no.
    pub sends_credentials: bool,
}

/// A gateway that signs its answers.
#[derive(Clone, Debug)]
pub struct PlainTarget {
    /// A TCP address of the gateway.
    pub address: SocketAddr,
    /// Its public keys, from the gateway itself.
    pub keys: Vec<VerifyingKey>,
}

impl Default for Plain {
    fn default() -> Self {
        Self { request_bytes_max: REQUEST_BYTES_MAX, answer_bytes_max: ANSWER_BYTES_MAX, sends_credentials: false }
    }
}

impl Plain {
    /// Sends a request, whose URL is absolute, and returns the whole answer once it is verified.
    ///
    /// # Errors
    ///
    /// A [`Failed`] that says whether the request was executed. [`Cause::Tampered`] means that the answer was not the
    /// gateway's; the request may have run. [`Cause::AnswerHeldBack`] means that it has run, and that its answer is too large.
    pub async fn send(
        &self,
        request: Request<Body>,
        target: &PlainTarget,
        shape: Shape,
    ) -> Result<Response<Body>, Failed> {
        self.send_traced(request, target, shape, &Trace::default()).await
    }

    pub(crate) async fn send_traced(
        &self,
        request: Request<Body>,
        target: &PlainTarget,
        shape: Shape,
        trace: &Trace,
    ) -> Result<Response<Body>, Failed> {
        let address = target.address;
        let before = |cause| Failed::before(address, cause);
        let (mut head, body) = request.into_parts();
        let (content, _) = hold(body, self.request_bytes_max).await.map_err(before)?;
        if !self.sends_credentials {
            CREDENTIALS.iter().for_each(|name| drop(head.headers.remove(name)));
        }
        let host = host(&head.uri).ok_or_else(|| before(Cause::Invalid("its url has no host".to_owned())))?;
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce).map_err(|error| before(Cause::Invalid(error.to_string())))?;
        head.headers.remove(header::HOST);
        let ask = Ask::new(&mut head, &content, nonce)
            .ok_or_else(|| before(Cause::Invalid("it has headers that are no ASCII".to_owned())))?;
        head.headers.insert(header::HOST, host);
        head.uri = origin_form(&head.uri);
        let answer = exchange(address, Request::from_parts(head, content), shape, self.answer_bytes_max, trace).await?;
        let status = answer.status().as_u16();
        let verified = ask.verify(&target.keys, answer).map_err(|error| {
            let cause = match error {
                VerifyError::UnknownKey => Cause::KeyUnknown,
                VerifyError::Content => Cause::Tampered("its content is not what was signed"),
                VerifyError::Request => Cause::Tampered("it answers another request"),
                VerifyError::Unsigned => Cause::Unsigned { status },
                VerifyError::Signature | _ => Cause::Tampered("its signature does not fit"),
            };
            Failed::after(address, Phase::Answer, cause)
        })?;
        // A service cannot say so: gateways take its headers of this kind off.
        if verified.headers().get(ERROR_HEADER).is_some_and(|name| name == ANSWER_TOO_LARGE) {
            let (phase, fate, cause) = (Phase::Answer, Fate::Executed, Cause::AnswerHeldBack);
            return Err(Failed { address, phase, fate, cause });
        }
        Ok(verified.map(Body::from))
    }
}

/// Returns the value of `host` for a URL; one with user information has none.
fn host(uri: &Uri) -> Option<HeaderValue> {
    let authority = uri.authority()?.as_str();
    if authority.contains('@') {
        return None;
    }
    HeaderValue::from_str(authority).ok()
}

fn origin_form(uri: &Uri) -> Uri {
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(path)
}

/// A gateway's name for an answer that it cannot send whole.
const ANSWER_TOO_LARGE: &str = "answer_too_large";

/// Headers that would let whoever reads them act for the user.
const CREDENTIALS: [HeaderName; 3] = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION];

/// Largest body of a request. 1,000,000 bytes, as for the sealed pipe, so that what can go one way can go the other.
const REQUEST_BYTES_MAX: usize = 1_000_000;

/// Largest body of an answer. 8 MiB, the default of gateways.
const ANSWER_BYTES_MAX: usize = 8 << 20;
