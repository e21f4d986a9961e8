//! What was measured of one network.

use std::time::Duration;

use super::{Answered, SERVICE_ALLOWANCE};
use crate::{Time, quality::SmoothedRtt};

/// Round trips and throughput of one network, as far as they were measured lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    rtt: Option<Measured<SmoothedRtt>>,
    up: Option<Measured<Rate>>,
    down: Option<Measured<Rate>>,
}

/// When something is measured, and how long it counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownUntil {
    pub(super) now: Time,
    pub(super) life: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Measured<T> {
    value: T,
    at: Time,
    until: Time,
}

/// Bytes a second that a network has shown to carry.
#[derive(Clone, Copy, Debug)]
struct Rate(u64);

impl Known {
    pub(super) fn handle_rtt(&mut self, sample: Duration, until: KnownUntil) {
        let rtt = current(self.rtt.as_ref(), until.now).map(|mut rtt| {
            // One far address, or one packet lost in a handshake, is not yet the network.
            rtt.handle_sample(sample.min(rtt.late_after() * OUTLIER_FACTOR));
            rtt
        });
        self.rtt = Some(until.measured(rtt.unwrap_or_else(|| SmoothedRtt::new(sample))));
    }

    /// Takes in what an answer shows of the throughput. Each shows at most what the network carries: the service took a part of the time.
    pub(super) fn handle_answered(&mut self, answered: &Answered, until: KnownUntil) {
        let rtt = current(self.rtt.as_ref(), until.now);
        // An answer that comes as soon as it may be expected says that the round trips are what they were.
        if let Some(rtt) = rtt.filter(|rtt| answered.head_after <= rtt.late_after() + SERVICE_ALLOWANCE) {
            self.rtt = Some(until.measured(rtt));
        }
        let srtt = rtt.map(|rtt| rtt.srtt());
        if answered.sent_bytes >= SAMPLE_BYTES_MIN {
            self.up = Some(until.shown(self.up.as_ref(), answered.sent_bytes, answered.head_after));
        }
        if answered.received_bytes >= SAMPLE_BYTES_MIN {
            // The first bytes come with the head, so that they too have taken a round trip.
            let head = srtt.map_or(answered.head_after, |srtt| srtt.min(answered.head_after));
            let took = answered.ended_after.saturating_sub(answered.head_after) + head;
            self.down = Some(until.shown(self.down.as_ref(), answered.received_bytes, took));
        }
    }

    /// Returns the time beyond which a reply is late.
    pub(super) fn late_after(&self, now: Time) -> Option<Duration> {
        current(self.rtt.as_ref(), now).map(|rtt| rtt.late_after())
    }

    /// Returns the smoothed round-trip time.
    pub(super) fn srtt(&self, now: Time) -> Option<Duration> {
        current(self.rtt.as_ref(), now).map(|rtt| rtt.srtt())
    }

    /// Returns the rate at which requests may be expected to go up, bytes a second.
    pub(super) fn up(&self, now: Time) -> Option<u64> {
        current(self.up.as_ref(), now).map(Rate::expected)
    }

    /// Returns the rate at which answers may be expected to come down, bytes a second.
    pub(super) fn down(&self, now: Time) -> Option<u64> {
        current(self.down.as_ref(), now).map(Rate::expected)
    }

    /// Returns when something was measured last.
    pub(super) fn touched(&self) -> Option<Time> {
        let at = [self.rtt.map(|rtt| rtt.at), self.up.map(|up| up.at), self.down.map(|down| down.at)];
        at.into_iter().flatten().max()
    }

    /// Says whether something of it still counts.
    pub(super) fn is_of_use(&self, now: Time) -> bool {
        self.late_after(now).is_some() || self.up(now).is_some() || self.down(now).is_some()
    }
}

impl KnownUntil {
    fn measured<T>(self, value: T) -> Measured<T> {
        Measured { value, at: self.now, until: self.now + self.life }
    }

    fn shown(self, known: Option<&Measured<Rate>>, bytes: u64, took: Duration) -> Measured<Rate> {
        let shown = Rate::of(bytes, took);
        self.measured(current(known, self.now).map_or(shown, |rate| rate.smoothed(shown)))
    }
}

impl Rate {
    fn of(bytes: u64, took: Duration) -> Self {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        Self(bytes.saturating_mul(1_000) / millis)
    }

    /// Follows what is more by a half and what is less by an eighth: what is less may be the service's doing.
    fn smoothed(self, shown: Self) -> Self {
        let (old, new) = (self.0 / 8, shown.0 / 8);
        Self(if shown.0 > self.0 { old * 4 + new * 4 } else { old * 7 + new })
    }

    /// Returns what may be counted on.
    fn expected(self) -> u64 {
        (self.0 / EXPECTED_SHARE).clamp(RATE_MIN, RATE_MAX)
    }
}

fn current<T: Copy>(measured: Option<&Measured<T>>, now: Time) -> Option<T> {
    measured.filter(|measured| now < measured.until).map(|measured| measured.value)
}

/// How far a round trip may be beyond what is late, to be taken as it is. 2, our choice: a network that has become slow is followed
/// within a few samples, which double each time.
const OUTLIER_FACTOR: u32 = 2;

/// Bytes in one direction from which a throughput is taken. 16 KiB, our choice: more than a first flight of ten packets
/// (RFC 6928), of which the time is a round trip whatever the network carries.
const SAMPLE_BYTES_MIN: u64 = 16 << 10;

/// Which part of what was shown is counted on: a half, our choice. A cell's rate halves within seconds, and others share it.
const EXPECTED_SHARE: u64 = 2;

/// Least rate that is counted on, bytes a second. 256; the least that a policy may say.
const RATE_MIN: u64 = 256;

/// Most. 16 MiB/s; the most that a policy may say.
const RATE_MAX: u64 = 16 << 20;
