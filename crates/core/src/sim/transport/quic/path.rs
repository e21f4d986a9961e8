//! What one end of QUIC knows of the way to the other: its round trip, what may be in flight, and how long packets may be.

use std::time::Duration;

use super::{
    super::pacer::{Burst, Pacer},
    mtu::MtuSearch,
    packet::Space,
    space::{MAX_ACK_DELAY, Sent},
};
use crate::{Time, sim::transport::End};

/// The way to the other end.
#[derive(Clone, Debug)]
pub(super) struct Path {
    latest: Duration,
    smoothed: Option<Duration>,
    variation: Duration,
    least: Duration,
    /// The packet that was to be sent next when the round trip was first measured.
    pub(super) measured_at: Option<(Space, u64)>,
    pub(super) in_flight: usize,
    /// Packets in flight that must be acknowledged.
    pub(super) eliciting: usize,
    pub(super) window: usize,
    threshold: usize,
    /// When a loss last made the window smaller.
    cut_at: Option<Time>,
    /// There was nothing to send that the window or the pace held up.
    pub(super) is_app_limited: bool,
    pub(super) pacer: Pacer,
    pub(super) mtu: MtuSearch,
    /// Timeouts since an acknowledgement.
    pub(super) timeouts: u32,
    /// Bytes that came, and that went, while it was not known whether the other end is there.
    pub(super) received_bytes: usize,
    pub(super) sent_bytes: usize,
    pub(super) is_validated: bool,
}

impl Path {
    pub(super) const fn new(end: End, now: Time) -> Self {
        let is_validated = matches!(end, End::Client);
        let mtu = MtuSearch::new(end);
        Self {
            latest: INITIAL_RTT,
            smoothed: None,
            variation: Duration::from_micros(166_500),
            least: INITIAL_RTT,
            measured_at: None,
            in_flight: 0,
            eliciting: 0,
            window: WINDOW_BYTES,
            threshold: usize::MAX,
            cut_at: None,
            is_app_limited: false,
            pacer: Pacer::new(Burst::OfWindow, mtu.datagram_bytes(), now),
            mtu,
            timeouts: 0,
            received_bytes: 0,
            sent_bytes: 0,
            is_validated,
        }
    }

    /// Makes the path to a client that seems to have moved: it is like the one before, and nothing is in flight on it.
    pub(super) fn moved(&self, now: Time) -> Self {
        Self {
            in_flight: 0,
            eliciting: 0,
            is_app_limited: false,
            pacer: Pacer::new(Burst::OfWindow, self.mtu.datagram_bytes(), now),
            timeouts: 0,
            received_bytes: 0,
            sent_bytes: 0,
            is_validated: false,
            ..self.clone()
        }
    }

    /// Returns the round trip, or what is assumed before one is known.
    pub(super) fn rtt(&self) -> Duration {
        self.smoothed.unwrap_or(self.latest)
    }

    pub(super) const fn is_measured(&self) -> bool {
        self.smoothed.is_some()
    }

    /// RFC 9002 section 5.3.
    pub(super) fn sample(&mut self, sample: Duration, ack_delay: Duration) {
        self.latest = sample;
        self.least = if self.smoothed.is_some() { self.least.min(sample) } else { sample };
        let adjusted = if self.least + ack_delay <= sample { sample - ack_delay } else { sample };
        match self.smoothed {
            None => (self.smoothed, self.variation) = (Some(sample), sample / 2),
            Some(smoothed) => {
                self.variation = self.variation * 3 / 4 + smoothed.abs_diff(adjusted) / 4;
                self.smoothed = Some(smoothed * 7 / 8 + adjusted / 8);
            }
        }
    }

    /// Says whether a server has sent as much as it may to where it does not know that anybody is (RFC 9000 section 8).
    pub(super) const fn is_amplification_limited(&self) -> bool {
        !self.is_validated && self.received_bytes * AMPLIFICATION < self.sent_bytes + 1
    }

    /// Says whether the pace lets a datagram go.
    pub(super) fn is_in_pace(&mut self, now: Time) -> bool {
        let rtt = self.rtt();
        self.pacer.has_room(self.window, rtt, now)
    }

    /// Returns when the pace lets the next one go.
    pub(super) fn paced_until(&self) -> Time {
        self.pacer.full_at(self.window, self.rtt())
    }

    pub(super) fn handle_sent(&mut self, sent: &Sent) {
        self.in_flight += sent.bytes;
        self.eliciting += usize::from(sent.is_eliciting);
        let rtt = self.rtt();
        self.pacer.handle_sent(sent.bytes, self.window, rtt);
    }

    /// Takes in that a packet is not in flight any more.
    pub(super) fn forget(&mut self, sent: &Sent) {
        // What was sent before the other end moved is not counted.
        self.in_flight = self.in_flight.saturating_sub(sent.bytes);
        self.eliciting = self.eliciting.saturating_sub(usize::from(sent.is_eliciting));
    }

    /// Takes in that a packet arrived: slow start, then a packet a round trip (RFC 9002 section 7.3), where the window was the limit.
    pub(super) fn grow(&mut self, sent: &Sent) {
        if self.is_app_limited || !sent.is_eliciting || self.cut_at.is_some_and(|cut| sent.at <= cut) {
            return;
        }
        let gain = if self.window < self.threshold {
            sent.bytes
        } else {
            self.mtu.datagram_bytes() * sent.bytes / self.window.max(1)
        };
        self.window = (self.window + gain).min(WINDOW_BYTES_MAX);
    }

    /// Takes in that packets were lost, the newest of which was sent at a time; `is_persistent` says that none got through for long.
    pub(super) fn cut(&mut self, sent_at: Time, is_persistent: bool, now: Time) {
        if self.cut_at.is_some_and(|cut| sent_at <= cut) {
            return;
        }
        let least = 2 * self.mtu.datagram_bytes();
        self.cut_at = Some(now);
        self.threshold = (self.window * 7 / 10).max(least);
        self.window = self.threshold;
        if is_persistent {
            self.cut_at = None;
            self.threshold = (self.window * 7 / 10).max(least);
            self.window = least;
        }
    }

    /// How old a packet may be that others have overtaken (RFC 9002 section 6.1.2).
    pub(super) fn loss_delay(&self) -> Duration {
        (self.rtt().max(self.latest) * 9 / 8).max(GRANULARITY)
    }

    /// RFC 9002 section 6.2.1, without the time that acknowledgements may wait.
    fn timeout_base(&self) -> Duration {
        self.rtt() + (self.variation * 4).max(GRANULARITY)
    }

    /// Returns the timeout of data as it is before it grows.
    pub(super) fn data_timeout(&self) -> Duration {
        self.timeout_base() + MAX_ACK_DELAY
    }

    /// Returns the timeout of a space: doubled with each, but by no more than noq allows.
    pub(super) fn timeout(&self, space: Space) -> Duration {
        let base = match space {
            Space::Initial | Space::Handshake => self.timeout_base(),
            Space::Data => self.data_timeout(),
        };
        let doubled = |times: u32| base * 2_u32.pow(times.min(DOUBLINGS_MAX));
        (1..=self.timeouts).fold(base, |timeout, times| doubled(times).min(timeout + self.step_max()))
    }

    /// Returns after what time a client asks that knows nothing in flight, so that a server is not held up by what it may send.
    pub(super) fn idle_timeout(&self) -> Duration {
        (self.timeout_base() * 2_u32.pow(self.timeouts.min(DOUBLINGS_MAX))).min(self.step_max())
    }

    fn step_max(&self) -> Duration {
        if self.rtt() > SLOW_RTT { self.rtt() * 3 / 2 } else { STEP_MAX }
    }
}

/// The round trip that is assumed before one is known. 333 ms; RFC 9002 section 6.2.2.
const INITIAL_RTT: Duration = Duration::from_millis(333);

/// By how much what a server sends may exceed what came. 3; RFC 9000 section 8.
const AMPLIFICATION: usize = 3;

/// The finest time that counts; RFC 9002 section 6.1.2.
const GRANULARITY: Duration = Duration::from_millis(1);

/// Bytes of the first window: ten of the smallest datagrams; RFC 9002 section 7.2.
const WINDOW_BYTES: usize = 12_000;

/// Bytes of the largest window: the credit of a link and half as much again, which is what noq is set to.
const WINDOW_BYTES_MAX: usize = 1_536 * 1_024;

/// By how much a timeout grows at most. 2 s; noq's `MAX_PTO_INTERVAL`.
const STEP_MAX: Duration = Duration::from_secs(2);

/// A round trip above which one and a half of it is the most instead; two thirds of that, noq's `SLOW_RTT_THRESHOLD`.
const SLOW_RTT: Duration = Duration::from_millis(1_333);

/// Doublings of a timeout; noq's `MAX_BACKOFF_EXPONENT`.
const DOUBLINGS_MAX: u32 = 16;
