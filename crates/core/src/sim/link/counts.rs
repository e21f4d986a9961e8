//! What a link has done, by cause.

use serde::Serialize;

/// Packets and bytes that one direction of a link has seen.
///
/// `offered + duplicated = delivered + lost() +` what is still on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// Packets that entered.
    pub offered: u64,
    /// Bytes that entered.
    pub offered_bytes: u64,
    /// Packets that came out, duplicates included.
    pub delivered: u64,
    /// Bytes that came out, duplicates included.
    pub delivered_bytes: u64,
    /// Packets lost in a burst.
    pub lost_burst: u64,
    /// Packets lost in an outage.
    pub lost_outage: u64,
    /// Packets that found the queue full.
    pub lost_queue: u64,
    /// Packets lost by themselves.
    pub lost_random: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets that got a bit flipped.
    pub corrupted: u64,
    /// Packets held back for others to overtake.
    pub reordered: u64,
    /// Most bytes the queue held.
    pub queue_bytes_max: u64,
}

impl LinkCounts {
    /// Returns how many packets were lost, whatever the cause.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost_burst + self.lost_outage + self.lost_queue + self.lost_random
    }
}
