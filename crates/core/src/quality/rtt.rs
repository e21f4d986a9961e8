//! Round-trip time, smoothed.

use std::time::Duration;

/// Round-trip time smoothed as RFC 6298 section 2 does (gain 1/8; the variance with gain 1/4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmoothedRtt {
    srtt: Duration,
    rttvar: Duration,
}

impl SmoothedRtt {
    /// Begins with a first sample. One above [`RTT_MAX`] counts as that.
    #[must_use]
    pub fn new(sample: Duration) -> Self {
        let sample = sample.min(RTT_MAX);
        Self { srtt: sample, rttvar: sample / 2 }
    }

    /// Takes in a sample. One above [`RTT_MAX`] counts as that.
    pub fn handle_sample(&mut self, sample: Duration) {
        let sample = sample.min(RTT_MAX);
        self.rttvar = (self.rttvar * 3 + self.srtt.abs_diff(sample)) / 4;
        self.srtt = (self.srtt * 7 + sample) / 8;
    }

    /// Returns the smoothed time.
    #[must_use]
    pub const fn srtt(&self) -> Duration {
        self.srtt
    }

    /// Returns the time beyond which a reply is late: the smoothed time and four times its variation (RFC 6298 section 2).
    #[must_use]
    pub fn late_after(&self) -> Duration {
        self.srtt + self.rttvar * 4
    }
}

/// The longest round-trip time taken in; a longer sample counts as this. 60 s; RFC 6298 section 2.4 bounds the
/// retransmission timeout no lower.
pub const RTT_MAX: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_steady_time_leaves_ever_less_room_and_a_jump_opens_it_again() {
        let mut rtt = SmoothedRtt::new(ms(100));
        assert_eq!(rtt.late_after(), ms(300));
        for _ in 0..30 {
            rtt.handle_sample(ms(100));
        }
        assert_eq!(rtt.srtt(), ms(100));
        assert!(rtt.late_after() < ms(102), "{rtt:?}");
        rtt.handle_sample(ms(900));
        assert_eq!(rtt.srtt(), ms(200));
        assert!(rtt.late_after() > ms(1_000), "{rtt:?}");
    }

    #[test]
    fn the_longest_sample_is_a_minute() {
        let mut rtt = SmoothedRtt::new(Duration::MAX);
        rtt.handle_sample(Duration::MAX);
        assert_eq!(rtt.srtt(), RTT_MAX);
    }
}
