//! What one direction of a link is like.

use std::{sync::Arc, time::Duration};

use crate::sim::Trace;

/// One direction of a link, as a [`super::LinkModel`] plays it.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectionSpec {
    /// How fast packets leave the queue.
    pub capacity: Capacity,
    /// Bytes the queue holds, the packet that is being sent included; what finds no room is dropped.
    pub queue_bytes: u64,
    /// Which way it goes.
    pub direction: Direction,
    /// What happens to packets beyond waiting for their turn.
    pub impairments: Impairments,
}

/// How fast packets leave the queue of a link.
#[derive(Clone, Debug, PartialEq)]
pub enum Capacity {
    /// At so many bits a second.
    Rate {
        /// Bits a second, at least 1.
        bits_per_s: u64,
    },
    /// At the moments of a trace, each of which takes 1,500 bytes away.
    Trace(Arc<Trace>),
    /// At once.
    Unlimited,
}

/// Which way packets go, and so on which side of its delay the queue and the radio of a link stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// To a phone: packets travel, then wait and are sent.
    Down,
    /// From a phone: packets wait, are sent, and then travel.
    Up,
}

/// What a link does to packets.
///
/// Shares lie between 0 and 1, and each is drawn for each packet.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Impairments {
    /// Time a packet travels.
    pub delay: Duration,
    /// Most that the time differs from `delay`, evenly drawn on both sides of it; at most `delay` counts. Packets keep their order.
    pub jitter: Duration,
    /// Share of packets that is lost, each by itself.
    pub loss: f64,
    /// Loss that comes in bursts.
    pub burst: Option<GilbertElliott>,
    /// Share of packets that arrives twice.
    pub duplicate: f64,
    /// Share of packets that arrives with one bit flipped.
    pub corrupt: f64,
    /// Share of packets that comes late enough for others to overtake it.
    pub reorder: f64,
}

/// Loss that comes in bursts: a channel that is good or bad and may change with each packet.
///
/// The model of Gilbert (1960) and Elliott (1963), in Bell System Technical Journal 39 and 42.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Chance that the good channel turns bad.
    pub to_bad: f64,
    /// Chance that the bad channel turns good.
    pub to_good: f64,
    /// Share of packets lost while it is good.
    pub loss_good: f64,
    /// Share of packets lost while it is bad.
    pub loss_bad: f64,
}

impl DirectionSpec {
    /// Describes a direction that carries everything at once.
    #[must_use]
    pub fn transparent(direction: Direction) -> Self {
        Self { capacity: Capacity::Unlimited, queue_bytes: QUEUE_BYTES, direction, impairments: Impairments::default() }
    }
}

impl GilbertElliott {
    /// Returns the share of packets that is lost in the long run.
    #[must_use]
    pub fn mean_loss(&self) -> f64 {
        let changes = self.to_bad + self.to_good;
        let bad = if changes > 0.0 { self.to_bad / changes } else { 0.0 };
        bad.mul_add(self.loss_bad, (1.0 - bad) * self.loss_good)
    }
}

/// Bytes of a queue where nothing says otherwise. 150 kB; the facts of `lte-walk`: a fifth of a second at 6 Mbit/s, eight at 150 kbit/s.
pub const QUEUE_BYTES: u64 = 150_000;
