//! How fast answers come: measures them for the time-outs, and bounds their pauses.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body::{Body as _, Frame};
use ropeway_core::{
    Side,
    policy::Policy,
    request::{Answered, Ask, Timeouts},
    wire::message::NetworkKind,
};
use ropeway_net::Clock;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{Body, Error, Phase, shared::lock};

/// The time-outs of a client, as its tasks share them.
#[derive(Debug)]
pub(crate) struct Pace {
    clock: Clock,
    state: Mutex<State>,
    /// Exchanges under way, on links and beside them.
    in_flight: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    timeouts: Timeouts,
    /// Of what the gateways ask for, how long to wait.
    policy: Policy,
}

impl Pace {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default(), in_flight: AtomicUsize::new(0) }
    }

    /// Takes in on which network the device is; says whether it is another than before.
    pub(crate) fn set_network(&self, label: &str, kind: NetworkKind) -> bool {
        let now = self.clock.now();
        lock(&self.state).timeouts.handle_network(label, kind, now)
    }

    /// Takes in that the network changed in a way that nobody has named.
    pub(crate) fn handle_changed(&self) {
        let now = self.clock.now();
        lock(&self.state).timeouts.handle_changed(now);
    }

    /// Takes in what the gateways ask for.
    pub(crate) fn handle_policy(&self, policy: &Policy) {
        lock(&self.state).policy = Policy {
            first_byte_base: policy.first_byte_base,
            first_byte_cap: policy.first_byte_cap,
            rate_min_bytes_per_s: policy.rate_min_bytes_per_s,
            gap: policy.gap,
            ..Policy::default()
        };
    }

    /// Takes in the round-trip time of a handshake.
    pub(crate) fn handle_rtt(&self, sample: Duration) {
        let now = self.clock.now();
        lock(&self.state).timeouts.handle_rtt(sample, now);
    }

    /// Takes in how a request failed, if that tells of the network.
    pub(crate) fn handle_error(&self, error: &Error) {
        if error.side() == Side::Network || matches!(error, Error::Timeout { .. }) {
            let now = self.clock.now();
            lock(&self.state).timeouts.handle_failed(now);
        }
    }

    /// Returns the kind of network the device is on.
    pub(crate) fn network_kind(&self) -> NetworkKind {
        lock(&self.state).timeouts.network_kind()
    }

    /// Says whether the network is weak, as far as it was named or measured.
    pub(crate) fn is_weak(&self) -> bool {
        lock(&self.state).timeouts.is_weak(self.clock.now())
    }

    /// Returns how long a try of a request with a body of so many bytes may take to the first byte of its answer: the first is number 0.
    pub(crate) fn first_byte(
        &self,
        bytes: u64,
        attempt: u32,
        server_time: Option<Duration>,
        left: Duration,
    ) -> Duration {
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let state = lock(&self.state);
        let ask = Ask { bytes, in_flight, attempt, server_time, left, policy: &state.policy };
        state.timeouts.first_byte(&ask, self.clock.now())
    }

    /// Begins to measure an exchange whose request, with a body of so many bytes, is handed to a carrier now.
    pub(crate) fn begin(self: &Arc<Self>, sent_bytes: u64) -> Measured {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        let began = Instant::now();
        Measured { pace: Arc::clone(self), began, answered: Answered { sent_bytes, ..Answered::default() } }
    }

    fn gap(&self) -> Duration {
        let state = lock(&self.state);
        state.timeouts.gap(&state.policy, self.clock.now())
    }
}

/// What bounds the pauses of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pauses {
    /// The app, for this request.
    App(Duration),
    /// Nothing here: the app wants it so, or whatever carries the answer looks after itself.
    Free,
    /// The network, as it was measured, and the policy.
    Network,
}

/// An exchange that is measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pace: Arc<Pace>,
    began: Instant,
    answered: Answered,
}

impl Measured {
    /// Takes in the head of the answer; what is left to do is done as its body is read.
    pub(crate) fn answer(mut self, answer: Response<Body>, pauses: Pauses) -> Response<Body> {
        self.answered.head_after = self.began.elapsed();
        if !answer.status().is_success() {
            // It may have come before the request was read, so that its bytes show no throughput.
            self.answered.sent_bytes = 0;
        }
        if answer.body().is_end_stream() {
            self.end();
            return answer;
        }
        let is_endless = is_endless(answer.headers());
        let pauses = if is_endless && pauses == Pauses::Network { Pauses::Free } else { pauses };
        let watch = Watch { measured: self, is_endless, pauses, pause: None, is_waiting: false };
        answer.map(|body| body.watched(watch))
    }

    fn end(&mut self) {
        self.answered.ended_after = self.began.elapsed();
        let now = self.pace.clock.now();
        lock(&self.pace.state).timeouts.handle_answered(&self.answered, now);
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.pace.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Follows the body of an answer.
#[derive(Debug)]
pub(crate) struct Watch {
    measured: Measured,
    /// It goes on for as long as its service likes, so that its end tells nothing.
    is_endless: bool,
    pauses: Pauses,
    /// The timer, once there was a pause.
    pause: Option<(Pin<Box<Sleep>>, Duration)>,
    /// The app waits for bytes, since the timer was set.
    is_waiting: bool,
}

impl Watch {
    /// Takes in what was read, and whether it was the last; says whether there is more to follow.
    pub(crate) fn handle_frame(&mut self, frame: Option<&Result<Frame<Bytes>, Error>>, is_last: bool) -> bool {
        self.is_waiting = false;
        let is_over = match frame {
            None => true,
            Some(Ok(frame)) => {
                let data = frame.data_ref().map(|data| data.len() as u64);
                self.measured.answered.received_bytes += data.unwrap_or_default();
                is_last || data.is_none()
            }
            Some(Err(error)) => {
                self.handle_error(error);
                return false;
            }
        };
        if is_over && !self.is_endless {
            self.measured.end();
        }
        !is_over
    }

    /// Takes in how the body ended early.
    pub(crate) fn handle_error(&self, error: &Error) {
        self.measured.pace.handle_error(error);
    }

    /// Waits, while no byte comes, for the end of what the pause may take.
    pub(crate) fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<Error> {
        if !self.is_waiting {
            let gap = match self.pauses {
                Pauses::App(gap) => gap,
                Pauses::Free => return Poll::Pending,
                Pauses::Network => self.measured.pace.gap(),
            };
            let ends = Instant::now() + gap;
            match &mut self.pause {
                Some((sleep, after)) => {
                    sleep.as_mut().reset(ends);
                    *after = gap;
                }
                None => self.pause = Some((Box::pin(sleep_until(ends)), gap)),
            }
            self.is_waiting = true;
        }
        let Some((sleep, after)) = &mut self.pause else { return Poll::Pending };
        ready!(sleep.as_mut().poll(cx));
        let phase = Phase::Pause { received_bytes: self.measured.answered.received_bytes };
        Poll::Ready(Error::Timeout { phase, after: *after, list: None, timeline: Box::default() })
    }
}

/// Says whether an answer is made to pause as long as its service likes.
fn is_endless(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    ENDLESS_TYPES.contains(&kind.as_str()) || kind.starts_with(GRPC_TYPE)
}

/// Types of content that come piece by piece as something happens: events (HTML section 9.2), records in a row (RFC 7464 and its kin), and
/// pictures that replace each other.
const ENDLESS_TYPES: [&str; 5] = [
    "application/json-seq",
    "application/jsonl",
    "application/x-ndjson",
    "multipart/x-mixed-replace",
    "text/event-stream",
];

/// Start of those of gRPC, any of whose answers may be a stream.
const GRPC_TYPE: &str = "application/grpc";

#[cfg(test)]
mod tests;
