//! How a sender spreads its window over a round trip: bytes that may go at once, and more by and by.

use std::time::Duration;

use crate::Time;

/// Bytes that may be sent at once.
///
/// As in noq they are counted up only when they do not suffice, so that after an idle time twice as many go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pacer {
    burst: Burst,
    /// Bytes of a full packet.
    segment: f64,
    bytes: f64,
    /// When they were counted up.
    at: Time,
}

/// How many packets go at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Burst {
    /// As many as in a first window.
    Fixed,
    /// What the window lets go in a moment, as in noq.
    OfWindow,
}

/// How fast bytes come, and how many are kept.
#[derive(Clone, Copy, Debug)]
struct Rate {
    bytes_per_s: f64,
    burst: f64,
}

impl Pacer {
    pub(super) const fn new(burst: Burst, segment: usize, now: Time) -> Self {
        // What is too much is cut once the rate is known.
        Self { burst, segment: segment as f64, bytes: f64::INFINITY, at: now }
    }

    /// Takes in that packets have become longer.
    pub(super) const fn handle_segment_bytes(&mut self, bytes: usize) {
        self.segment = bytes as f64;
    }

    /// Says whether a full packet may go.
    pub(super) fn has_room(&mut self, window: usize, rtt: Duration, now: Time) -> bool {
        let rate = self.rate(window, rtt);
        self.bytes = self.bytes.min(rate.burst);
        if self.bytes < self.segment {
            // Time is counted in nanoseconds, so a fraction of a byte may be missing when all should be there.
            let bytes = (self.bytes + rate.bytes_per_s * now.since(self.at).as_secs_f64()).round();
            (self.bytes, self.at) = (bytes.min(rate.burst), now);
        }
        self.bytes >= self.segment
    }

    /// Returns when as much may go at once as ever.
    pub(super) fn full_at(&self, window: usize, rtt: Duration) -> Time {
        let rate = self.rate(window, rtt);
        self.at + Duration::from_secs_f64((rate.burst - self.bytes).max(0.0) / rate.bytes_per_s)
    }

    /// Takes in that a packet went.
    pub(super) fn handle_sent(&mut self, bytes: usize, window: usize, rtt: Duration) {
        self.bytes = (self.bytes.min(self.rate(window, rtt).burst) - bytes as f64).max(0.0);
    }

    fn rate(&self, window: usize, rtt: Duration) -> Rate {
        let segment = self.segment;
        let even = window as f64 / rtt.max(Duration::from_micros(1)).as_secs_f64();
        let burst = match self.burst {
            Burst::Fixed => BURST_SEGMENTS * segment,
            Burst::OfWindow => {
                let usual = (even * BURST.as_secs_f64()).clamp(BURST_SEGMENTS * segment, BURST_SEGMENTS_MAX * segment);
                usual.min((even * BURST_MAX.as_secs_f64()).max(segment))
            }
        };
        Rate { bytes_per_s: even * PACE_GAIN, burst }
    }
}

/// By how much a window is spread over less than its round trip. 1.25; RFC 9002 section 7.7, N.
const PACE_GAIN: f64 = 1.25;

/// What a fast sender lets go at once. 2 ms; noq's pacer.
const BURST: Duration = Duration::from_millis(2);

/// What a slow one lets go at once at most, but for a single packet. 10 ms; noq's pacer.
const BURST_MAX: Duration = Duration::from_millis(10);

/// Packets that go at once if that is not too much. 10; RFC 9002 section 7.7 and RFC 6928, and noq's pacer.
const BURST_SEGMENTS: f64 = 10.0;

/// Packets that go at once at most. 256; noq's pacer.
const BURST_SEGMENTS_MAX: f64 = 256.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends full packets until one has to wait; gives how many went, and the wait for the next.
    fn burst(burst: Burst, rtt_ms: u64) -> (usize, Duration) {
        let (rtt, now, segment) = (Duration::from_millis(rtt_ms), Time::ZERO, 1_200);
        let mut pacer = Pacer::new(burst, segment, now);
        let mut count = 0;
        while count < 100 && pacer.has_room(10 * segment, rtt, now) {
            pacer.handle_sent(segment, 10 * segment, rtt);
            count += 1;
        }
        (count, pacer.full_at(10 * segment, rtt).since(now))
    }

    #[test]
    fn quic_sends_one_packet_at_once_over_a_long_way_and_more_over_a_short_one() {
        let (count, wait) = burst(Burst::OfWindow, 333);
        assert_eq!((count, wait.as_millis()), (1, 26), "a tenth of the window, a little faster than evenly");
        assert_eq!(burst(Burst::OfWindow, 20).0, 5);
        assert_eq!(burst(Burst::OfWindow, 1).0, 20);
    }

    #[test]
    fn tcp_sends_its_first_window_at_once() {
        assert_eq!(burst(Burst::Fixed, 100).0, 10);
    }
}
