//! A simulated world: a scenario's network, the real machines of client and gateway at its ends, and an origin that counts.
//!
//! Time is virtual and every chance is drawn from the seed, so a run takes milliseconds and is the same each time. Connecting, the
//! session and what becomes of requests are decided by the machines that clients and gateways really run; TCP, TLS, QUIC and name
//! servers are models.
//!
//! ```
//! use ropeway_core::sim::{Scenario, Work, run};
//!
//! let text = r#"
//!     summary = "good Wi-Fi"
//!     basis = "an example"
//!     source = "this page"
//!     [access.wifi]
//!     rtt_ms = 20
//! "#;
//! let scenario = Scenario::parse("example", text, None)?;
//! let report = run(&scenario, Work::Get2k, 1)?;
//! assert!(report.requests.iter().all(|request| request.error.is_none() && request.executed == 1));
//! let cold = run(&scenario, Work::Cold, 1)?;
//! assert!(report.requests[0].took < cold.requests[0].took, "the link is open before the first request");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::time::Duration;

use http::Method;

mod carrier;
mod connecting;
mod device;
mod exchange;
mod gateway;
mod origin;

use self::{device::Device, exchange::Exchange, gateway::Gateway};
use super::{
    Scenario,
    link::LinkCounts,
    net::{Arrival, Network},
    scenario::Step,
    trace::{MissingTrace, Traces},
    work::{Task, Work},
};
use crate::{Time, session::MuxEvent};

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Every request, in the order of the work.
    pub requests: Vec<RequestReport>,
    /// What each access link did, in the order of the scenario.
    pub links: Vec<LinkReport>,
}

/// What came of one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestReport {
    /// When it began, from the start of the run.
    pub start: Duration,
    /// How long it took until its answer was complete, or until it failed.
    pub took: Duration,
    /// Why it failed.
    pub error: Option<String>,
    /// It may not be executed twice.
    pub is_post: bool,
    /// How often the origin executed it.
    pub executed: u32,
}

/// What one access link did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkReport {
    /// Its name.
    pub name: String,
    /// To the phone.
    pub down: LinkCounts,
    /// From the phone.
    pub up: LinkCounts,
}

/// Runs a work in a scenario, with synthetic traces.
///
/// # Errors
///
/// [`MissingTrace`] if the scenario needs a recorded trace; [`run_with`] takes those.
pub fn run(scenario: &Scenario, work: Work, seed: u64) -> Result<Report, MissingTrace> {
    run_with(scenario, work, seed, &mut Traces::new(seed))
}

/// Runs a work in a scenario with these traces.
///
/// # Errors
///
/// [`MissingTrace`] if the scenario needs a recorded trace that is not among them.
pub fn run_with(scenario: &Scenario, work: Work, seed: u64, traces: &mut Traces) -> Result<Report, MissingTrace> {
    World::new(scenario, work, seed, traces)?.run()
}

struct World<'a> {
    scenario: &'a Scenario,
    traces: &'a mut Traces,
    now: Time,
    network: Network,
    gateway: Gateway,
    devices: Vec<Device>,
    tasks: Vec<Task>,
    /// Tasks that have not begun, the next one last.
    waiting: Vec<usize>,
    is_cold: bool,
}

impl<'a> World<'a> {
    fn new(scenario: &'a Scenario, work: Work, seed: u64, traces: &'a mut Traces) -> Result<Self, MissingTrace> {
        let tasks = work.tasks(&scenario.starts, scenario.outages().map(|(start, _)| start));
        let count = if work.is_cold() { tasks.len() as u64 } else { 1 };
        let devices: Vec<Device> = (0..count).map(|number| Device::new(number, seed)).collect();
        let mut gateway = Gateway::new(seed);
        for device in &devices {
            gateway.admit(device.name.clone(), device.public_key());
        }
        let mut waiting: Vec<usize> = (0..tasks.len()).collect();
        waiting.sort_by_key(|task| std::cmp::Reverse((tasks[*task].start, *task)));
        let network = Network::new(scenario, seed, traces, Time::ZERO)?;
        let is_cold = work.is_cold();
        Ok(Self { scenario, traces, now: Time::ZERO, network, gateway, devices, tasks, waiting, is_cold })
    }

    fn run(mut self) -> Result<Report, MissingTrace> {
        let scenario = self.scenario;
        let mut steps = scenario.timeline().peekable();
        if !self.is_cold {
            // An app that keeps a link opens it when it starts.
            self.devices.iter_mut().for_each(|device| device.connect(self.now));
        }
        while !self.is_done() {
            while let Some(Step { action, .. }) = steps.next_if(|step| Time::ZERO + step.at <= self.now) {
                self.network.apply(action, self.traces, self.now)?;
            }
            self.begin_tasks();
            self.turn();
            let step = steps.peek().map(|step| Time::ZERO + step.at);
            let next = self.poll_timeout().into_iter().chain(step).min();
            // Every request has a deadline, so something is always due until all are done.
            let next = next.expect("a request that is not done has a deadline");
            self.now = next.max(self.now + TICK);
        }
        Ok(self.report())
    }

    /// Moves packets and lets both ends work on them until nothing is due at this time.
    fn turn(&mut self) {
        loop {
            let mut is_quiet = true;
            while let Some(arrival) = self.network.poll(self.now) {
                is_quiet = false;
                match arrival {
                    Arrival::Client(packet) => {
                        for device in &mut self.devices {
                            device.handle_packet(packet.clone(), self.now);
                        }
                    }
                    Arrival::Server(packet, mapping) => {
                        self.gateway.handle_packet(packet, mapping, &mut self.network, self.now);
                    }
                }
            }
            for device in &mut self.devices {
                device.turn(&mut self.network, self.now);
            }
            self.gateway.turn(&mut self.network, self.now);
            if is_quiet {
                return;
            }
        }
    }

    fn begin_tasks(&mut self) {
        while let Some(number) = self.waiting.pop_if(|task| Time::ZERO + self.tasks[*task].start <= self.now) {
            let device = if self.is_cold { number } else { 0 };
            let exchange = Exchange::new(number as u64, &self.tasks[number], self.now);
            self.devices[device].request(exchange, self.now);
        }
    }

    fn is_done(&self) -> bool {
        let mut exchanges = self.devices.iter().flat_map(Device::exchanges);
        self.waiting.is_empty() && exchanges.all(Exchange::is_done)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let task = self.waiting.last().map(|task| Time::ZERO + self.tasks[*task].start);
        let devices = self.devices.iter().filter_map(Device::poll_timeout);
        devices.chain(task).chain(self.network.poll_timeout()).chain(self.gateway.poll_timeout()).min()
    }

    fn report(self) -> Report {
        let exchanges: Vec<&Exchange> = self.devices.iter().flat_map(Device::exchanges).collect();
        let request = |(number, task): (usize, &Task)| {
            let exchange = exchanges.iter().find(|exchange| exchange.number == number as u64);
            let outcome = exchange.and_then(|exchange| exchange.outcome.clone());
            let outcome = outcome.expect("the run goes on until every request is done");
            RequestReport {
                start: task.start,
                took: outcome.took,
                error: outcome.error,
                is_post: task.method == Method::POST,
                executed: self.gateway.origin.executed(number as u64),
            }
        };
        let names = self.scenario.access.iter().map(|access| access.name.clone());
        let links = names.zip(self.network.counts()).map(|(name, (up, down))| LinkReport { name, down, up });
        Report { requests: self.tasks.iter().enumerate().map(request).collect(), links: links.collect() }
    }
}

/// Returns the channel that an event is about.
const fn channel_of(event: &MuxEvent) -> u64 {
    match event {
        MuxEvent::Body { channel, .. }
        | MuxEvent::Closed { channel, .. }
        | MuxEvent::End { channel, .. }
        | MuxEvent::Request { channel, .. }
        | MuxEvent::Response { channel, .. }
        | MuxEvent::Writable { channel } => *channel,
    }
}

/// Wall clock at the start of every run, milliseconds since the Unix epoch: 2026-01-01.
const UNIX_MS: u64 = 1_767_225_600_000;

/// Least time from one turn to the next. 1 µs; our choice: no machine can make time stand still.
const TICK: Duration = Duration::from_micros(1);

/// Name of the origin, and of the gateways before it.
const ORIGIN: &str = "api.test";

#[cfg(test)]
mod tests;
