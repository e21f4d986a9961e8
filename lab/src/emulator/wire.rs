//! One emulated link: two devices and the models of its two directions.

use ropeway_core::{
    Time,
    sim::link::{Direction, DirectionSpec, LinkCounts, LinkModel},
};
use serde::Serialize;

use super::{Change, checksum, lateness::Lateness};
use crate::{os::tun::Tun, topology::Pipe};

/// One emulated link.
#[derive(Debug)]
pub(crate) struct Wire {
    name: String,
    near: Tun,
    far: Tun,
    up: Lane,
    down: Lane,
}

/// What one link has carried.
#[derive(Clone, Debug, Serialize)]
pub struct WireReport {
    /// Name of the link.
    pub link: String,
    /// Towards the client.
    pub down: DirectionReport,
    /// Towards the servers.
    pub up: DirectionReport,
}

/// What one direction of a link has carried.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct DirectionReport {
    /// What the model of the link made of the packets.
    #[serde(flatten)]
    pub counts: LinkCounts,
    /// Packets whose checksum the kernel had got wrong, and which went on with the right one.
    pub mended: u64,
    /// Packets that came through to an interface that was down.
    pub undeliverable: u64,
}

#[derive(Debug)]
struct Lane {
    model: LinkModel<Vec<u8>>,
    mended: u64,
    undeliverable: u64,
}

impl Wire {
    /// Makes a link of two devices, each direction with a seed of its own.
    pub(crate) fn new(pipe: Pipe, down: (DirectionSpec, u64), up: (DirectionSpec, u64), now: Time) -> Self {
        let lane = |(spec, seed)| Lane::new(spec, seed, now);
        Self { name: pipe.name, near: pipe.near, far: pipe.far, up: lane(up), down: lane(down) }
    }

    /// Gives the devices, to wait for packets.
    pub(super) fn devices(&self) -> [&Tun; 2] {
        [&self.near, &self.far]
    }

    /// Takes the packets that are waiting at the devices.
    pub(super) fn take(&mut self, now: impl Fn() -> Time, buffer: &mut [u8]) {
        self.up.take(&self.near, &now, buffer);
        self.down.take(&self.far, &now, buffer);
    }

    /// Hands over the packets whose time has come.
    pub(super) fn deliver(&mut self, now: impl Fn() -> Time, lateness: &mut Lateness) {
        self.up.deliver(&self.far, &now, lateness);
        self.down.deliver(&self.near, &now, lateness);
    }

    /// Makes a change that was due `at`.
    pub(super) fn change(&mut self, direction: Direction, change: Change, at: Time) {
        let lane = match direction {
            Direction::Down => &mut self.down,
            Direction::Up => &mut self.up,
        };
        match change {
            Change::Outage(outage) => lane.model.set_outage(outage, at),
            Change::Restart(spec, seed) => *lane = Lane::new(spec, seed, at),
            Change::Spec(spec) => lane.model.set_spec(spec, at),
        }
    }

    /// Gives when the next packet's time comes.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.up.model.poll_timeout(), self.down.model.poll_timeout()].into_iter().flatten().min()
    }

    /// Says what it has carried.
    pub(super) fn report(&self) -> WireReport {
        WireReport { link: self.name.clone(), down: self.down.report(), up: self.up.report() }
    }
}

impl Lane {
    fn new(spec: DirectionSpec, seed: u64, now: Time) -> Self {
        Self { model: LinkModel::new(spec, seed, now), mended: 0, undeliverable: 0 }
    }

    fn take(&mut self, from: &Tun, now: &impl Fn() -> Time, buffer: &mut [u8]) {
        for _ in 0..BATCH_PACKETS {
            // An interface that is down gives an error, and no packet.
            let Ok(Some(length)) = from.receive(buffer) else { return };
            self.mended += u64::from(checksum::mend(&mut buffer[..length]));
            self.model.offer(buffer[..length].to_vec(), length, now());
        }
    }

    fn deliver(&mut self, to: &Tun, now: &impl Fn() -> Time, lateness: &mut Lateness) {
        loop {
            let time = now();
            let Some(delivery) = self.model.poll_output(time) else { return };
            let mut packet = delivery.payload;
            if let Some(bit) = delivery.flipped_bit
                && let Some(byte) = packet.get_mut(bit / 8)
            {
                // The first bit of a byte is its highest.
                *byte ^= 0x80 >> (bit % 8);
            }
            lateness.note(time.since(delivery.due));
            // An interface that is down takes nothing.
            self.undeliverable += u64::from(to.send(&packet).is_err());
        }
    }

    fn report(&self) -> DirectionReport {
        DirectionReport { counts: *self.model.counts(), mended: self.mended, undeliverable: self.undeliverable }
    }
}

/// Packets taken from one device before others have their turn.
const BATCH_PACKETS: u32 = 64;
