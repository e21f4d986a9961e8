//! The link emulator: carries packets between two TUN devices as the model of the link says, in real time.
//!
//! One thread carries the packets of all links of a lab. What decides is `ropeway_core::sim::link`, the same model that
//! the simulation runs with virtual packets; here it is given real ones, and the clock.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread,
    time::Instant,
};

use ropeway_core::{
    Time,
    sim::link::{Direction, DirectionSpec, Outage},
};
use rustix::event::{EventfdFlags, eventfd};

mod checksum;
mod engine;
mod lateness;
mod wire;

pub use lateness::LatenessSummary;
pub(crate) use lateness::P99_MAX_MS;
pub(crate) use wire::Wire;
pub use wire::{DirectionReport, WireReport};

use self::engine::Engine;
use crate::os::scheduler;

/// A running emulator; dropping it ends it, and with it the devices.
#[derive(Debug)]
pub(crate) struct Emulator {
    orders: mpsc::Sender<Order>,
    wake: Arc<OwnedFd>,
    clock: Clock,
    thread: Option<thread::JoinHandle<()>>,
    is_realtime: bool,
}

/// What is to happen to one direction of a link.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// An outage begins, or ends.
    Outage(Option<Outage>),
    /// The link begins anew, empty and with other chances; a trace starts from its beginning, counts from zero.
    Restart(DirectionSpec, u64),
    /// The link becomes another; what is on it goes on.
    Spec(DirectionSpec),
}

/// What the emulator is told from outside.
enum Order {
    /// Make a change when its time comes.
    Change(Scheduled),
    /// Forget the changes to come, and how late packets were.
    Forget,
    /// Say what has happened so far.
    Report(mpsc::Sender<Report>),
    /// End.
    Stop,
}

/// A change with its place and its time.
#[derive(Clone, Debug)]
pub(crate) struct Scheduled {
    /// When.
    pub(crate) at: Time,
    /// Which link, by its place in the order they were given.
    pub(crate) wire: usize,
    /// Which direction of it.
    pub(crate) direction: Direction,
    /// What.
    pub(crate) change: Change,
}

/// What the emulator has done so far.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Each link, in the order they were given.
    pub(crate) wires: Vec<WireReport>,
    /// How late packets left.
    pub(crate) lateness: LatenessSummary,
}

impl Emulator {
    /// Starts to carry packets over `wires`.
    pub(crate) fn start(wires: Vec<Wire>, clock: Clock) -> io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (orders, received) = mpsc::channel();
        let (started, is_started) = mpsc::channel();
        let engine = Engine::new(wires, received, wake.clone(), clock);
        let work = move || {
            // Nobody waits for the answer if the start was given up.
            let _ = started.send(scheduler::prefer_this_thread(scheduler::EMULATOR).is_ok());
            engine.run();
        };
        let thread = thread::Builder::new().name("emulator".to_owned()).spawn(work)?;
        let is_realtime = is_started.recv().map_err(|_| io::Error::other("the emulator's thread ended"))?;
        Ok(Self { orders, wake, clock, thread: Some(thread), is_realtime })
    }

    /// Gives the clock that times of changes are read from.
    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    /// Says whether the emulator has real-time priority.
    pub(crate) fn is_realtime(&self) -> bool {
        self.is_realtime
    }

    /// Orders changes, which are made when their times come; at once where they have passed.
    pub(crate) fn order(&self, changes: impl IntoIterator<Item = Scheduled>) {
        for change in changes {
            self.send(Order::Change(change));
        }
    }

    /// Takes back the changes whose times have not come, and counts lateness from zero.
    pub(crate) fn forget(&self) {
        self.send(Order::Forget);
    }

    /// Asks what has happened so far; `None` if the emulator has ended because its devices are gone.
    pub(crate) fn report(&self) -> Option<Report> {
        let (answer, answered) = mpsc::channel();
        self.send(Order::Report(answer));
        answered.recv().ok()
    }

    fn send(&self, order: Order) {
        // An emulator that has ended obeys no more orders, which is noticed where an answer is needed.
        let _ = self.orders.send(order);
        // The counter of an eventfd is full only after 2^64 - 2 orders.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.send(Order::Stop);
        // A panic of the thread was printed when it happened.
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

/// The clock of an emulator: what models call the time, made of the system's monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
}

impl Clock {
    /// Starts a clock at zero.
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Gives the time now.
    pub(crate) fn now(self) -> Time {
        self.at(Instant::now())
    }

    /// Gives the time at a moment; zero for one before the clock was started.
    pub(crate) fn at(self, moment: Instant) -> Time {
        Time::from_origin(moment.saturating_duration_since(self.origin))
    }
}
