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
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt as _, Full};
use ropeway_core::{pipe::SKEW_MAX, request::ERROR_HEADER};
use ropeway_net::{
    pipe::{
        ANSWER_TYPE, Content, DATE_FROM_HEADER, KEY_PROBLEM, OpenError, PIPE_PATH, REQUEST_TYPE, SealError, UP_HEADER,
        parse_http_date,
    },
    unix_ms,
};
use tokio::time::Instant;

use crate::{
    Body, Phase,
    way::{Cause, Failed, Fate, Redate, Shape, Trace, exchange, hold},
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
    /// A [`Failed`] that says whether the request was executed. [`Cause::Clock`] and [`Cause::Restarted`] have the offset to try again
    /// with, once each.
    pub async fn send(
        &self,
        request: Request<Body>,
        target: &PipeTarget,
        shape: Shape,
        clock_offset_ms: i64,
    ) -> Result<Response<Body>, Failed> {
        let date_ms = unix_ms().saturating_add_signed(clock_offset_ms);
        self.send_traced(request, target, shape, date_ms, &Trace::default()).await
    }

    /// Sends a request with a date of its own, Unix time in ms.
    pub(crate) async fn send_traced(
        &self,
        request: Request<Body>,
        target: &PipeTarget,
        shape: Shape,
        date_ms: u64,
        trace: &Trace,
    ) -> Result<Response<Body>, Failed> {
        let address = target.address;
        let (head, body) = request.into_parts();
        let held = hold(body, self.request_bytes_max).await;
        let (data, trailers) = held.map_err(|cause| Failed::before(address, cause))?;
        let content = Content { data, trailers };
        // Before anybody can have it.
        let age = Age::new();
        let (sealed, opener) = target.config.seal(head, &content, date_ms).map_err(|error| {
            let cause = match error {
                SealError::Message(error) => Cause::Invalid(error.to_string()),
                SealError::Crypto | _ => Cause::Invalid("it cannot be encrypted".to_owned()),
            };
            Failed::before(address, cause)
        })?;
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
        match refusal(&answer, date_ms, age.elapsed()) {
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
fn refusal(answer: &Response<Content>, date_ms: u64, age: Duration) -> Option<(Fate, Cause)> {
    let headers = answer.headers();
    let name = headers.get(ERROR_HEADER)?.to_str().ok()?;
    let told_ms = headers.get(header::DATE).and_then(parse_http_date);
    // Whoever holds a sealed request back can have a second copy refused, long after the first was executed. For this long the
    // gateway remembers what it executed.
    let is_trusted = age < TRUSTED_WITHIN;
    let unless = |is_proved| if is_proved && is_trusted { Fate::NotExecuted } else { Fate::MayHaveRun };
    let refused = || Cause::Refused { name: name.to_owned() };
    match name {
        "answer_too_large" | "answer_unsealable" => Some((Fate::Executed, Cause::AnswerHeldBack)),
        "answer_slow" | "replay_window_full" | "replayed" => Some((Fate::MayHaveRun, refused())),
        "clock_skew" => {
            let Some(told_ms) = told_ms else { return Some((Fate::MayHaveRun, refused())) };
            // One from the future may yet be taken, once its date has come.
            Some((unless(date_ms < told_ms), Cause::Clock { offset_ms: offset_ms(told_ms, age) }))
        }
        "malformed" => Some((unless(true), refused())),
        "restarted" => {
            let up =
                headers.get(UP_HEADER).and_then(|value| value.to_str().ok()?.parse().ok()).map(Duration::from_millis);
            let from_ms = headers.get(DATE_FROM_HEADER).and_then(parse_http_date);
            let again = from_ms.zip(told_ms).and_then(|(from_ms, told_ms)| redate(from_ms, told_ms));
            // A process that was there before the request was sealed: no earlier one can have taken a copy of it, and this one
            // never takes its date.
            Some((unless(up.is_some_and(|up| stretched(age) < up)), Cause::Restarted { up, again }))
        }
        _ => None,
    }
}

/// Returns how to send a request again that has to have a certain date, if that date is taken soon.
fn redate(from_ms: u64, told_ms: u64) -> Option<Redate> {
    let skew_ms = u64::try_from(SKEW_MAX.as_millis()).ok()?;
    let pause_ms = from_ms.saturating_sub(skew_ms).saturating_sub(told_ms);
    let pause = Duration::from_millis(pause_ms);
    let sent_ms = unix_ms().saturating_add(pause_ms);
    let offset_ms = i64::try_from(from_ms).ok()?.saturating_sub(i64::try_from(sent_ms).ok()?);
    (pause <= PAUSE_MAX).then_some(Redate { pause, offset_ms })
}

fn offset_ms(told_ms: u64, age: Duration) -> i64 {
    // The date is cut to the second, and was written half a round trip ago.
    let gateway_ms = told_ms.saturating_add(500).saturating_add(age.as_millis().min(60_000) as u64 / 2);
    let [gateway_ms, here_ms] = [gateway_ms, unix_ms()].map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    gateway_ms.saturating_sub(here_ms)
}

/// Returns a time that is surely no shorter by the gateway's clock.
fn stretched(age: Duration) -> Duration {
    age + age / RATE_PARTS + CLOCK_STEP
}

/// How long ago a request was sealed.
#[derive(Clone, Copy, Debug)]
struct Age {
    begun: Instant,
    begun_ms: u64,
}

impl Age {
    fn new() -> Self {
        Self { begun: Instant::now(), begun_ms: unix_ms() }
    }

    /// Returns the longer of what two clocks say: the one stands still while the device sleeps, the other may be set.
    fn elapsed(&self) -> Duration {
        self.begun.elapsed().max(Duration::from_millis(unix_ms().saturating_sub(self.begun_ms)))
    }
}

pub(crate) fn whole(content: Content) -> Body {
    match content.trailers {
        None => Body::from(content.data),
        Some(trailers) => Body::wrap(Full::new(content.data).with_trailers(std::future::ready(Some(Ok(trailers))))),
    }
}

/// How long after a request was sent a refusal proves that it was not executed. 60 s; a gateway remembers what it executed for
/// two minutes, twice the difference of clocks that it allows.
const TRUSTED_WITHIN: Duration = Duration::from_secs(60);

/// Longest pause before a request is sent again with another date. 3 s; a gateway takes the date that it names about a second after it
/// has started, and the date is cut to the second.
const PAUSE_MAX: Duration = Duration::from_secs(3);

/// Part by which two clocks may go differently. 1 %; our choice: quartz is off by 0.01 %, and a clock that is being set by NTP by 0.05 %
/// (RFC 5905 section 11.3, 500 ppm).
const RATE_PARTS: u32 = 100;

/// Coarsest step of a clock. 20 ms; Windows counts in steps of 15.6 ms.
const CLOCK_STEP: Duration = Duration::from_millis(20);

/// Largest body of a request. 1,000,000 bytes; with a head of up to 32 KiB it fits in the 1 MiB that gateways take.
const REQUEST_BYTES_MAX: usize = 1_000_000;

/// Largest sealed answer. 9 MiB; the 8 MiB of body that gateways send, and room for the head.
const ANSWER_BYTES_MAX: usize = 9 << 20;

#[cfg(test)]
mod tests {
    use ropeway_net::pipe::http_date;

    use super::*;

    const NOW_MS: u64 = 1_790_000_000_000;

    /// What a client makes of a refusal with these headers, for a request that it sealed so long ago, with this date.
    fn fate(name: &'static str, headers: &[(&'static str, &str)], date_ms: u64, age_ms: u64) -> Fate {
        let mut answer = Response::new(Content::default());
        answer.headers_mut().insert(ERROR_HEADER, HeaderValue::from_static(name));
        answer.headers_mut().insert(header::DATE, http_date(NOW_MS));
        for (name, value) in headers {
            answer.headers_mut().insert(*name, value.parse().expect("a value"));
        }
        refusal(&answer, date_ms, Duration::from_millis(age_ms)).expect("a refusal of the pipe").0
    }

    #[test]
    fn a_refusal_after_a_restart_is_proof_where_the_process_is_older_than_the_request() {
        let restarted = |up_ms: &str, age_ms| fate("restarted", &[(UP_HEADER, up_ms)], NOW_MS, age_ms);
        assert_eq!(restarted("5000", 4_900), Fate::NotExecuted);
        assert_eq!(restarted("5000", 5_000), Fate::MayHaveRun, "the process before may have run a copy");
        assert_eq!(restarted("5000", 4_950), Fate::MayHaveRun, "two clocks are not that much alike");
        assert_eq!(restarted("100000", 59_000), Fate::NotExecuted);
        assert_eq!(restarted("100000", 60_000), Fate::MayHaveRun, "it may have been forgotten");
        assert_eq!(restarted("-1", 1), Fate::MayHaveRun);
        assert_eq!(fate("restarted", &[], NOW_MS, 1), Fate::MayHaveRun, "an older gateway does not say");
    }

    #[test]
    fn a_refusal_is_no_proof_where_a_copy_may_be_taken_later() {
        for (name, date_ms, expected) in [
            ("clock_skew", NOW_MS - 61_000, Fate::NotExecuted),
            ("clock_skew", NOW_MS + 61_000, Fate::MayHaveRun),
            ("malformed", NOW_MS, Fate::NotExecuted),
            ("replay_window_full", NOW_MS, Fate::MayHaveRun),
            ("replayed", NOW_MS, Fate::MayHaveRun),
            ("answer_slow", NOW_MS, Fate::MayHaveRun),
            ("answer_too_large", NOW_MS, Fate::Executed),
            ("answer_unsealable", NOW_MS, Fate::Executed),
        ] {
            assert_eq!(fate(name, &[], date_ms, 1), expected, "{name}");
            if expected == Fate::NotExecuted {
                assert_eq!(fate(name, &[], date_ms, 60_000), Fate::MayHaveRun, "{name}, late");
            }
        }
    }

    #[test]
    fn another_date_is_tried_only_where_the_gateway_takes_it_soon() {
        let pause = |from_ms: u64| redate(from_ms, NOW_MS).map(|again| again.pause.as_millis());
        assert_eq!(pause(NOW_MS + 58_000), Some(0));
        assert_eq!(pause(NOW_MS + 61_000), Some(1_000));
        assert_eq!(pause(NOW_MS + 64_000), None);
        assert_eq!(pause(u64::MAX), None);
        let again = redate(NOW_MS + 61_000, NOW_MS).expect("soon");
        let date_ms = unix_ms().saturating_add_signed(again.offset_ms) + 1_000;
        assert!(date_ms.abs_diff(NOW_MS + 61_000) < 1_000, "{date_ms}");
    }
}
