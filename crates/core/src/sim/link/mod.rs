//! One direction of an access link, as a model that is told the time.
//!
//! A packet passes three stages: the queue, from which the capacity takes it; the radio, which loses, spoils or doubles it; and the
//! line, on which it travels for the delay. Towards a phone the line comes first ([`Direction::Down`]). The model handles lengths and
//! passes payloads through, so the lab gives it packets and the simulation what stands for them.
//!
//! ```
//! use std::time::Duration;
//! use ropeway_core::{
//!     Time,
//!     sim::link::{Capacity, Direction, DirectionSpec, LinkModel},
//! };
//!
//! let mut spec = DirectionSpec::transparent(Direction::Up);
//! spec.capacity = Capacity::Rate { bits_per_s: 1_000_000 };
//! spec.impairments.delay = Duration::from_millis(50);
//! let mut link = LinkModel::new(spec, 7, Time::ZERO);
//!
//! link.offer("a packet", 1_250, Time::ZERO);
//! let due = link.poll_timeout().unwrap();
//! link.handle_timeout(due);
//! let due = link.poll_timeout().unwrap();
//! assert_eq!(due, Time::from_origin(Duration::from_millis(10 + 50)));
//! assert_eq!(link.poll_output(due).unwrap().payload, "a packet");
//! ```

use std::{collections::VecDeque, time::Duration};

use crate::Time;

mod chance;
mod counts;
mod server;
mod spec;

pub use counts::LinkCounts;
pub use spec::{Capacity, Direction, DirectionSpec, GilbertElliott, Impairments, QUEUE_BYTES};

use self::{
    chance::{Chance, Loss},
    server::Server,
};

/// One direction of a link.
///
/// Takes the verbs of the other machines: [`LinkModel::offer`] gives it a packet, [`LinkModel::poll_timeout`] says when it wants to be
/// called, [`LinkModel::poll_output`] gives back what has arrived. A late caller gets what is due with the time it was due.
#[derive(Clone, Debug)]
pub struct LinkModel<P> {
    impairments: Impairments,
    direction: Direction,
    queue_bytes: u64,
    outage: Option<Outage>,
    chance: Chance,
    queue: VecDeque<Packet<P>>,
    queued_bytes: u64,
    server: Server,
    /// Packets that travel, by the time their travel ends; at most [`LINE_PACKETS_MAX`].
    line: VecDeque<(Time, Packet<P>)>,
    /// When the last packet that keeps its order arrives.
    last_due: Time,
    arrived: VecDeque<Delivery<P>>,
    counts: LinkCounts,
}

/// What an outage does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// What would be sent is lost.
    Drop,
    /// What would be sent waits in the queue, as at a base station that keeps packets for a phone it cannot reach.
    Hold,
}

/// A packet that came through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery<P> {
    /// When it arrived.
    pub due: Time,
    /// The packet.
    pub payload: P,
    /// Number of the bit to flip, from the first bit of the first byte; the model does not touch payloads.
    pub flipped_bit: Option<usize>,
}

impl<P: Clone> LinkModel<P> {
    /// Makes a link; a trace starts `now`.
    #[must_use]
    pub fn new(spec: DirectionSpec, seed: u64, now: Time) -> Self {
        Self {
            impairments: spec.impairments,
            direction: spec.direction,
            queue_bytes: spec.queue_bytes,
            outage: None,
            chance: Chance::new(seed),
            queue: VecDeque::new(),
            queued_bytes: 0,
            server: Server::new(spec.capacity, now),
            line: VecDeque::new(),
            last_due: now,
            arrived: VecDeque::new(),
            counts: LinkCounts::default(),
        }
    }

    /// Puts a packet of `length` bytes on the link.
    pub fn offer(&mut self, payload: P, length: usize, now: Time) {
        self.advance(now);
        self.counts.offered += 1;
        self.counts.offered_bytes += length as u64;
        let packet = Packet { payload, length, flipped_bit: None };
        match self.direction {
            Direction::Up => self.enter_queue(packet, now),
            Direction::Down => self.enter_line(packet, now),
        }
        self.advance(now);
    }

    /// Changes what the link is like. Packets that travel keep their time; a trace that stays goes on where it is.
    pub fn set_spec(&mut self, spec: DirectionSpec, now: Time) {
        self.advance(now);
        self.impairments = spec.impairments;
        self.queue_bytes = spec.queue_bytes;
        self.server.set_capacity(spec.capacity, now);
        self.advance(now);
    }

    /// Begins or ends an outage.
    pub fn set_outage(&mut self, outage: Option<Outage>, now: Time) {
        self.advance(now);
        self.outage = outage;
        match outage {
            Some(Outage::Hold) => self.server.pause(now),
            Some(Outage::Drop) | None => self.server.resume(now),
        }
        self.advance(now);
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// Returns when the model next wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let arrived = self.arrived.front().map(|delivery| delivery.due);
        [arrived, self.next_step()].into_iter().flatten().min()
    }

    /// Returns the next packet that has arrived by now.
    pub fn poll_output(&mut self, now: Time) -> Option<Delivery<P>> {
        self.advance(now);
        self.arrived.pop_front()
    }

    /// Returns what the link has done so far.
    #[must_use]
    pub const fn counts(&self) -> &LinkCounts {
        &self.counts
    }

    /// Returns how many packets are on the link.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.queue.len() + self.line.len() + self.arrived.len()
    }

    fn next_step(&self) -> Option<Time> {
        let travelled = self.line.front().map(|(due, _)| *due);
        let sent = self.queue.front().and_then(|head| self.server.next(head.length));
        [travelled, sent].into_iter().flatten().min()
    }

    /// Takes every step that is due, each at its own time.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.next_step().filter(|at| *at <= now) {
            if let Some((due, packet)) = self.line.pop_front_if(|(due, _)| *due <= at) {
                match self.direction {
                    Direction::Up => self.arrive(packet, due),
                    Direction::Down => self.enter_queue(packet, due),
                }
            } else {
                self.send(at);
            }
        }
    }

    fn enter_queue(&mut self, packet: Packet<P>, now: Time) {
        let bytes = self.queued_bytes + packet.length as u64;
        // A queue that is too small for any packet would be a link that is down.
        if bytes > self.queue_bytes && !self.queue.is_empty() {
            self.counts.lost_queue += 1;
            return;
        }
        if self.queue.is_empty() {
            self.server.begin(now);
        }
        self.queued_bytes = bytes;
        self.counts.queue_bytes_max = self.counts.queue_bytes_max.max(bytes);
        self.queue.push_back(packet);
    }

    /// Sends what the capacity takes at this moment: the head of the queue, or as many packets as one opportunity carries.
    fn send(&mut self, now: Time) {
        self.server.open(now);
        while let Some(head) = self.queue.front()
            && self.server.take(head.length, now)
        {
            let packet = self.queue.pop_front().expect("the queue has a head");
            self.queued_bytes -= packet.length as u64;
            self.radio(packet, now);
        }
        self.server.close(self.queue.is_empty());
    }

    /// Decides what the air makes of a packet.
    fn radio(&mut self, mut packet: Packet<P>, now: Time) {
        if self.outage == Some(Outage::Drop) {
            self.counts.lost_outage += 1;
            return;
        }
        match self.chance.loss(&self.impairments) {
            Some(Loss::Burst) => return self.counts.lost_burst += 1,
            Some(Loss::Random) => return self.counts.lost_random += 1,
            None => {}
        }
        packet.flipped_bit = self.chance.corrupted_bit(&self.impairments, packet.length);
        self.counts.corrupted += u64::from(packet.flipped_bit.is_some());
        if self.chance.is_duplicated(&self.impairments) {
            self.counts.duplicated += 1;
            self.leave(packet.clone(), now);
        }
        self.leave(packet, now);
    }

    fn leave(&mut self, packet: Packet<P>, now: Time) {
        match self.direction {
            Direction::Up => self.enter_line(packet, now),
            Direction::Down => self.arrive(packet, now),
        }
    }

    /// Sends a packet on its travel. One that is reordered is held back until others have had the time to overtake it; the rest
    /// keep their order.
    fn enter_line(&mut self, packet: Packet<P>, now: Time) {
        if self.line.len() >= LINE_PACKETS_MAX {
            self.counts.lost_queue += 1;
            return;
        }
        let mut due = now + self.chance.delay(&self.impairments);
        if self.chance.is_reordered(&self.impairments) {
            self.counts.reordered += 1;
            due += REORDER_LAG + self.server.last_service() * REORDER_PACKETS;
        } else {
            due = due.max(self.last_due);
            self.last_due = due;
        }
        let place = self.line.partition_point(|(other, _)| *other <= due);
        self.line.insert(place, (due, packet));
    }

    fn arrive(&mut self, packet: Packet<P>, now: Time) {
        self.counts.delivered += 1;
        self.counts.delivered_bytes += packet.length as u64;
        self.arrived.push_back(Delivery { due: now, payload: packet.payload, flipped_bit: packet.flipped_bit });
    }
}

#[derive(Clone, Debug)]
struct Packet<P> {
    payload: P,
    length: usize,
    flipped_bit: Option<usize>,
}

/// Packets that travel at once; 1 Gbit/s of full packets over a second of delay, which no access link has.
const LINE_PACKETS_MAX: usize = 100_000;

/// How much later than the others a reordered packet comes. 10 ms; our choice: a few packets at 5 Mbit/s.
const REORDER_LAG: Duration = Duration::from_millis(10);

/// Packets whose sending time is added to that. 3 packets, after which RFC 5681 section 3.2 takes a packet for lost.
const REORDER_PACKETS: u32 = 3;

#[cfg(test)]
mod tests;
