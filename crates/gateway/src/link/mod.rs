//! One link: admitted by HELLO and PROOF, then a session's until it ends.

mod exchange;
mod greeting;
mod measured;
mod registry;

use std::{collections::VecDeque, net::SocketAddr, sync::Arc, task::Waker, time::Duration};

use ropeway_cluster::Bus;
use ropeway_core::{
    CarrierKind, Time,
    session::{LinkError, Refusal},
    wire::{Frame, FrameRef, Kind, message::RefuseCode},
};
use ropeway_net::{
    Clock,
    carrier::{Carrier, CarrierError},
    link::{LinkPeer, drive},
    scratch::with_scratch,
};
use tracing::debug;

pub(crate) use registry::{Entry, Identity, Registry};

use self::greeting::{Greeting, Step};
use crate::gateway::Shared;

/// Drives a connection whose other end speaks the link protocol, until it ends. It must be admitted by `deadline`.
pub(crate) async fn serve<B: Bus>(shared: Arc<Shared<B>>, mut carrier: Box<dyn Carrier>, deadline: Time) {
    let kind = carrier.kind();
    let _open = shared.metrics.links(kind.as_str()).hold();
    let mut link = Link::new(shared, kind, carrier.peer(), deadline);
    if let Err(error) = drive(carrier.as_mut(), &mut link).await {
        link.broken(&error);
    }
    link.leave();
    let goodbye = std::future::poll_fn(|cx| {
        with_scratch(|scratch| {
            let _ = carrier.poll_send(cx, scratch, &mut || link.last_words());
            carrier.poll_close(cx, scratch)
        })
    });
    // A peer that does not take the goodbye is left without it.
    let _ = tokio::time::timeout(GOODBYE_TIMEOUT, goodbye).await;
}

/// The gateway's end of one connection.
struct Link<B: Bus> {
    shared: Arc<Shared<B>>,
    kind: CarrierKind,
    peer: SocketAddr,
    phase: Phase,
    output: VecDeque<Frame>,
    waker: Option<Waker>,
}

enum Phase {
    /// HELLO and PROOF are awaited.
    Greeting(Box<Greeting>),
    /// A session has the link.
    Open { entry: Arc<Entry>, number: u64 },
    /// Nothing is taken any more; what waits to be sent has until then.
    Over { until: Time },
}

impl<B: Bus> Link<B> {
    fn new(shared: Arc<Shared<B>>, kind: CarrierKind, peer: SocketAddr, deadline: Time) -> Self {
        let (greeting, opening) = Greeting::new(shared.config().gateway.name.clone(), kind, deadline);
        let output = opening.into_iter().collect();
        Self { shared, kind, peer, phase: Phase::Greeting(Box::new(greeting)), output, waker: None }
    }

    fn last_words(&mut self) -> Option<Frame> {
        self.output.pop_front()
    }

    fn refuse(&mut self, refusal: &Refusal) {
        debug!(peer = %self.peer, carrier = %self.kind, reason = refusal.name(), "link refused");
        self.shared.metrics.refusal(refusal.name()).inc();
        self.leave();
        self.output.push_back(refusal.frame());
    }

    /// Counts what broke the link, and tells the other end if it was its fault.
    fn broken(&mut self, error: &CarrierError) {
        self.shared.metrics.refusal(error.name()).inc();
        debug!(peer = %self.peer, carrier = %self.kind, %error, "link broke");
        if let CarrierError::Link(error) = error
            && *error != LinkError::Silent
        {
            self.output.push_back(protocol(error).frame());
        }
    }

    /// Gives the session back, on whatever path the link ends.
    fn leave(&mut self) {
        let now = self.shared.clock.now();
        let over = Phase::Over { until: now + GOODBYE_TIMEOUT };
        if let Phase::Open { entry, number } = std::mem::replace(&mut self.phase, over) {
            if entry.session().is_current(number) {
                self.shared.settle(&entry);
                self.start_requests(&entry);
            }
            self.shared.registry.detach(&entry, number, now);
        }
    }

    /// Works through the frames that arrived before the link was admitted.
    fn greet(&mut self, carrier: &mut dyn Carrier) {
        let Phase::Greeting(mut greeting) = std::mem::replace(&mut self.phase, Phase::Over { until: Time::ZERO })
        else {
            return;
        };
        loop {
            let Some(frame) = greeting.next() else {
                self.phase = Phase::Greeting(greeting);
                return;
            };
            match greeting.step(&self.shared, &frame, carrier) {
                Ok(Step::More) => {}
                Ok(Step::Early) => {
                    greeting.put_back(frame);
                    self.phase = Phase::Greeting(greeting);
                    return;
                }
                Ok(Step::Admitted(admitted, ticket)) => {
                    let ordered = !matches!(self.kind, CarrierKind::Quic);
                    match greeting::open(&self.shared, &admitted, ticket, ordered) {
                        Ok((entry, number)) => self.opened(entry, number, greeting, carrier),
                        Err(refusal) => self.refuse(&refusal),
                    }
                    return;
                }
                Err(refusal) => return self.refuse(&refusal),
            }
        }
    }

    /// Goes over to the session, which takes what came behind PROOF.
    fn opened(&mut self, entry: Arc<Entry>, number: u64, mut greeting: Box<Greeting>, carrier: &mut dyn Carrier) {
        carrier.admit();
        debug!(peer = %self.peer, carrier = %self.kind, "link open");
        let mut taken = Ok(());
        while let (Ok(()), Some(frame)) = (&taken, greeting.next()) {
            taken = (entry.session(), number).handle_frame(frame.as_ref(), false);
        }
        if let Some(waker) = self.waker.take() {
            (entry.session(), number).register(&waker);
        }
        self.phase = Phase::Open { entry, number };
        if let Err(error) = taken {
            self.refuse(&protocol(&error));
        }
    }

    /// Gives each request that arrived a task.
    fn start_requests(&self, entry: &Arc<Entry>) {
        for request in entry.session().take_requests() {
            let serving = exchange::serve(Arc::clone(&self.shared), Arc::clone(entry), self.peer, request);
            self.shared.spawn_exchange(serving);
        }
    }
}

impl<B: Bus> Drop for Link<B> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl<B: Bus> LinkPeer for Link<B> {
    fn register(&mut self, waker: &Waker) {
        match &self.phase {
            Phase::Open { entry, number } => (entry.session(), *number).register(waker),
            Phase::Greeting(_) | Phase::Over { .. } => self.waker = Some(waker.clone()),
        }
    }

    fn is_current(&self) -> bool {
        match &self.phase {
            Phase::Open { entry, number } => entry.session().is_current(*number),
            Phase::Greeting(_) => true,
            Phase::Over { until } => self.now() < *until,
        }
    }

    fn now(&self) -> Time {
        self.shared.clock.now()
    }

    fn clock(&self) -> Clock {
        self.shared.clock
    }

    fn handle_frame(&mut self, frame: FrameRef<'_>, early: bool) -> Result<(), LinkError> {
        self.shared.counters.frames_in.inc();
        match &mut self.phase {
            Phase::Greeting(greeting) => greeting.keep(frame),
            Phase::Open { entry, number } => (entry.session(), *number).handle_frame(frame, early),
            Phase::Over { .. } => Ok(()),
        }
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        match &self.phase {
            Phase::Greeting(greeting) => {
                if greeting.deadline <= now {
                    self.refuse(&Refusal::new(RefuseCode::HelloTimeout, "no HELLO and PROOF came in time"));
                }
                Ok(())
            }
            Phase::Open { entry, number } => (entry.session(), *number).handle_timeout(now),
            Phase::Over { .. } => Ok(()),
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match &self.phase {
            Phase::Greeting(greeting) => Some(greeting.deadline),
            Phase::Open { entry, number } => (entry.session(), *number).poll_timeout(),
            Phase::Over { until } => Some(*until),
        }
    }

    fn poll_output(&mut self) -> Option<Frame> {
        let frame = self.output.pop_front().or_else(|| match &self.phase {
            Phase::Open { entry, number } => (entry.session(), *number).poll_output(),
            Phase::Greeting(_) | Phase::Over { .. } => None,
        })?;
        self.shared.counters.frames_out.inc();
        if frame.kind == Kind::Push
            && let Phase::Open { entry, .. } = &self.phase
        {
            self.shared.settle(entry);
        }
        Some(frame)
    }

    fn handle_turn(&mut self, carrier: &mut dyn Carrier) {
        if matches!(&self.phase, Phase::Greeting(_)) {
            self.greet(carrier);
        }
        if let Phase::Open { entry, .. } = &self.phase {
            self.shared.settle(entry);
            self.start_requests(entry);
        }
    }

    fn is_closing(&self) -> bool {
        match &self.phase {
            Phase::Greeting(_) => false,
            Phase::Open { entry, .. } => self.shared.is_stopped() && entry.session().peek(|server| server.is_stopped()),
            Phase::Over { .. } => true,
        }
    }
}

fn protocol(error: &LinkError) -> Refusal {
    Refusal::new(RefuseCode::Protocol, format!("{}: {error}", error.name()))
}

fn busy(detail: &str) -> Refusal {
    Refusal { retry_after: RETRY_AFTER, ..Refusal::new(RefuseCode::Overloaded, detail) }
}

/// Difference between a device's clock and ours that HELLO may show: 60 s, the window of DESIGN section 8 for sealed requests.
pub(crate) const CLOCK_SKEW_MAX: Duration = Duration::from_secs(60);

/// When a client that is turned away for load or drain should come back.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Time for the last frames and the goodbye of a connection.
const GOODBYE_TIMEOUT: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
