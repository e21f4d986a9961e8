//! The times of a network about which nothing is known but its kind.

use std::time::Duration;

use crate::wire::message::NetworkKind;

/// The constants of a class of networks.
#[derive(Debug)]
pub(super) struct Class {
    /// Time to the first byte, without the bytes that are sent.
    pub(super) base: Duration,
    /// Most of that time with them.
    pub(super) cap: Duration,
    /// The same time without them, on a network that has proved good.
    pub(super) excellent: Duration,
    /// Slowest rate that is waited for, bytes a second.
    pub(super) rate: u64,
    /// Longest pause between two bytes.
    pub(super) gap: Duration,
    /// Delay by each request under way.
    pub(super) queue: Duration,
    /// How long what was measured counts.
    pub(super) life: Duration,
    /// Within which time answers come that prove the network good: up to [`SIZES`] bytes each, and more.
    pub(super) expected: [Duration; 4],
}

impl Class {
    /// Returns the class of a kind of network. One of unknown kind counts as Wi-Fi, as in Mars.
    pub(super) const fn of(kind: NetworkKind) -> &'static Self {
        match kind {
            NetworkKind::Cellular2g => &CELLULAR_2G,
            NetworkKind::Cellular3g | NetworkKind::Cellular4g | NetworkKind::Cellular5g => &CELLULAR,
            NetworkKind::Unspecified | NetworkKind::Wifi | NetworkKind::Wired => &FIXED,
        }
    }

    /// Returns within which time an answer is expected with which so many bytes crossed the network.
    pub(super) fn expects(&self, bytes: u64) -> Duration {
        let size = SIZES.iter().position(|size| bytes <= *size).unwrap_or(SIZES.len());
        self.expected[size]
    }
}

/// Bytes, sent and received, up to which an answer is small, middle and big. Just below 3 KiB, 10 KiB and 30 KiB; Mars `stn/config.h`
/// and `dynamic_timeout.cc`.
pub(super) const SIZES: [u64; 3] = [(3 << 10) - 1, 10 << 10, 30 << 10];

/// Wi-Fi and wire. Mars `stn/config.h`, the column of Wi-Fi. What was measured counts for 24 h: Mars `simple_ipport_sort.cc`, the
/// life of its records of addresses.
const FIXED: Class = Class {
    base: Duration::from_secs(12),
    cap: Duration::from_secs(22),
    excellent: Duration::from_secs(7),
    rate: 12 << 10,
    gap: Duration::from_secs(8),
    queue: Duration::from_millis(1_500),
    life: Duration::from_hours(24),
    expected: [Duration::from_millis(500), Duration::from_secs(2), Duration::from_secs(4), Duration::from_secs(6)],
};

/// 3G and later. Mars `stn/config.h`, the column of mobile networks; it does not tell their generations apart, and what is measured does
/// so within the first handshake. What was measured counts for 10 min, our choice: the label stays while the device moves from cell to cell.
const CELLULAR: Class = Class {
    base: Duration::from_secs(15),
    cap: Duration::from_secs(30),
    excellent: Duration::from_secs(10),
    rate: 4 << 10,
    gap: Duration::from_secs(12),
    queue: Duration::from_secs(3),
    life: Duration::from_mins(10),
    expected: [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(5), Duration::from_secs(7)],
};

/// 2G. Our choice, from the profiles of EDGE (840 ms, 200 kbit/s) and rural 2G (1,300 ms, 18 kbit/s): half the rate of the column above,
/// 2 KiB/s, and with it twice the delay in the queue and 4 s more between the ends of two TLS records; the base is what the measured
/// rule gives at 1,300 ms that vary by 110 ms, 20 s, and base, cap and the short base keep Mars's proportion. What is expected is
/// Mars's: a network that cannot meet it is not excellent.
const CELLULAR_2G: Class = Class {
    base: Duration::from_secs(20),
    cap: Duration::from_secs(40),
    excellent: Duration::from_millis(13_300),
    rate: 2 << 10,
    gap: Duration::from_secs(16),
    queue: Duration::from_secs(6),
    ..CELLULAR
};
