//! How long round trips take on a way that loses nothing.

use std::time::Duration;

/// Returns how long so many round trips take at most where no packet is lost: twice what they should, and 100 ms.
///
/// Whatever takes longer was sent again, or waited somewhere. The round trip is the least that was seen, not a smoothed one.
#[must_use]
pub fn smooth_within(rtt: Duration, round_trips: u32) -> Duration {
    rtt.saturating_mul(2 * round_trips) + SLACK
}

/// What keys, schedulers and a gateway's queue may take beside the network. 100 ms; our choice: half of what TCP waits at least before it
/// sends a lost segment again (Linux, `TCP_RTO_MIN`).
const SLACK: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_tcp_sends_again_takes_longer_and_one_that_queues_for_a_round_trip_does_not() {
        for rtt_ms in [20, 60, 99] {
            let rtt = Duration::from_millis(rtt_ms);
            assert!(rtt + rtt <= smooth_within(rtt, 1));
            assert!(rtt + rtt.max(Duration::from_millis(200)) + rtt > smooth_within(rtt, 1), "{rtt_ms} ms");
        }
    }
}
