//! The thread that carries packets.

use std::{
    collections::BTreeMap,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
};

use ropeway_core::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Clock, Order, Report, Scheduled, Wire, lateness::Lateness};

/// Carries packets until it is told to end.
pub(super) struct Engine {
    wires: Vec<Wire>,
    orders: mpsc::Receiver<Order>,
    /// Changes to come, by their time and then by the order they were given in.
    scheduled: BTreeMap<(Time, u64), Scheduled>,
    ordered: u64,
    wake: Arc<OwnedFd>,
    clock: Clock,
    lateness: Lateness,
    buffer: Box<[u8; PACKET_BYTES_MAX]>,
}

impl Engine {
    pub(super) fn new(wires: Vec<Wire>, orders: mpsc::Receiver<Order>, wake: Arc<OwnedFd>, clock: Clock) -> Self {
        Self {
            wires,
            orders,
            scheduled: BTreeMap::new(),
            ordered: 0,
            wake,
            clock,
            lateness: Lateness::new(),
            buffer: Box::new([0; PACKET_BYTES_MAX]),
        }
    }

    pub(super) fn run(mut self) {
        loop {
            while let Ok(order) = self.orders.try_recv() {
                match order {
                    Order::Change(mut change) => {
                        // The models cannot go back to before what they have carried since.
                        change.at = change.at.max(self.clock.now());
                        self.scheduled.insert((change.at, self.ordered), change);
                        self.ordered += 1;
                    }
                    Order::Forget => {
                        self.scheduled.clear();
                        self.lateness = Lateness::new();
                    }
                    Order::Report(answer) => {
                        // Who asked may have gone.
                        let _ = answer.send(self.report());
                    }
                    Order::Stop => return,
                }
            }
            self.make_changes();
            let now = || self.clock.now();
            for wire in &mut self.wires {
                wire.take(now, &mut self.buffer[..]);
                wire.deliver(now, &mut self.lateness);
            }
            if !self.wait() {
                return;
            }
        }
    }

    /// Makes the changes whose time has come, each at its own time as far as the models are concerned.
    fn make_changes(&mut self) {
        let now = self.clock.now();
        while let Some(next) = self.scheduled.first_entry().filter(|next| next.key().0 <= now) {
            let Scheduled { at, wire, direction, change } = next.remove();
            self.lateness.note(now.since(at));
            if let Some(wire) = self.wires.get_mut(wire) {
                wire.change(direction, change, at);
            }
        }
    }

    /// Waits for a packet, for the time of one, or for an order; says whether the devices are still there.
    fn wait(&self) -> bool {
        let change = self.scheduled.first_key_value().map(|((at, _), _)| *at);
        let next = self.wires.iter().filter_map(Wire::poll_timeout).chain(change).min();
        let timeout = next.map(|next| {
            let wait = next.since(self.clock.now());
            Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() }
        });
        let mut awaited = vec![PollFd::new(&self.wake, PollFlags::IN)];
        let devices = self.wires.iter().flat_map(Wire::devices);
        awaited.extend(devices.map(|device| PollFd::new(device, PollFlags::IN)));
        // Interrupted or not, what there is to do is seen in the next round.
        let _ = poll(&mut awaited, timeout.as_ref());
        if awaited[0].revents().contains(PollFlags::IN) {
            // Only the wake itself matters, not how many orders there are.
            let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        }
        !awaited.iter().any(|device| device.revents().intersects(PollFlags::ERR | PollFlags::NVAL))
    }

    fn report(&self) -> Report {
        Report { wires: self.wires.iter().map(Wire::report).collect(), lateness: self.lateness.summary() }
    }
}

/// Largest IP packet.
const PACKET_BYTES_MAX: usize = 65_535;
