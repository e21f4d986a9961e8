//! One link: admitted by HELLO and PROOF, then a session's until it ends.

mod exchange;
mod registry;

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, PoisonError},
    task::Waker,
    time::Duration,
};

use ropeway_cluster::{Bus, Status};
use ropeway_core::{
    CarrierKind, Time,
    session::{Accept, Admitted, Cookie, LinkError, Refusal, Rejected, ServerEvent},
    wire::{
        Frame, FrameRef, Kind,
        message::{Proof, RefuseCode},
    },
};
use ropeway_net::{
    Clock,
    carrier::{Carrier, CarrierError},
    link::{LinkPeer, drive},
    scratch::with_scratch,
    unix_ms,
};
use tracing::debug;

pub(crate) use registry::{Entry, Identity, Registry};

use crate::{
    gateway::Shared,
    tickets::{Ticket, TicketError},
};

/// Drives a connection whose other end speaks the link protocol, until it ends.
pub(crate) async fn serve<B: Bus>(shared: Arc<Shared<B>>, mut carrier: Box<dyn Carrier>) {
    let kind = carrier.kind();
    let _open = shared.metrics.links(kind.as_str()).hold();
    let mut link = Link::new(Arc::clone(&shared), kind, carrier.peer());
    let ended = drive(carrier.as_mut(), &mut link).await;
    if let Err(error) = &ended {
        link.count(error);
    }
    if let CarrierErrorKind::Protocol(refusal) = CarrierErrorKind::of(&ended) {
        link.say(refusal.frame());
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
    /// Frames are kept, within bounds, until the carrier is at rest and can be asked for the binding.
    Greeting(Box<Greeting>),
    /// A session has the link.
    Open { entry: Arc<Entry>, number: u64 },
    /// REFUSE is on its way.
    Refused,
}

struct Greeting {
    accept: Accept,
    ticket: Option<Ticket>,
    /// What PROOF must sign on a carrier without an exporter.
    challenge: Option<[u8; 32]>,
    kept: Vec<Frame>,
    kept_bytes: usize,
    deadline: Time,
}

impl<B: Bus> Link<B> {
    fn new(shared: Arc<Shared<B>>, kind: CarrierKind, peer: SocketAddr) -> Self {
        let config = shared.config();
        let mut output = VecDeque::new();
        let challenge = matches!(kind, CarrierKind::Ws).then(crate::random_bytes::<32>);
        if let Some(challenge) = challenge {
            let proof = Proof { challenge: challenge.to_vec().into(), signature: bytes::Bytes::new() };
            output.push_back(Frame::control(Kind::Proof, &proof));
        }
        let greeting = Greeting {
            accept: Accept::new(config.gateway.name.clone(), CLOCK_SKEW_MAX),
            ticket: None,
            challenge,
            kept: Vec::new(),
            kept_bytes: 0,
            deadline: shared.clock.now() + config.gateway.hello_timeout,
        };
        Self { shared, kind, peer, phase: Phase::Greeting(Box::new(greeting)), output, waker: None }
    }

    fn say(&mut self, frame: Frame) {
        self.output.push_back(frame);
    }

    fn last_words(&mut self) -> Option<Frame> {
        self.output.pop_front()
    }

    fn refuse(&mut self, refusal: &Refusal) {
        debug!(peer = %self.peer, carrier = %self.kind, reason = refusal.name(), "link refused");
        self.shared.metrics.refusal(refusal.name()).inc();
        self.output.push_back(refusal.frame());
        self.phase = Phase::Refused;
    }

    fn count(&self, error: &CarrierError) {
        self.shared.metrics.refusal(error.name()).inc();
        debug!(peer = %self.peer, carrier = %self.kind, %error, "link broke");
    }

    fn leave(&mut self) {
        if let Phase::Open { entry, number } = &self.phase {
            entry.session().end_link(*number);
            self.shared.registry.detached(entry, *number, self.shared.clock.now());
        }
    }

    /// Works through the frames that arrived before the link was admitted.
    fn greet(&mut self, carrier: &mut dyn Carrier) {
        let Phase::Greeting(greeting) = &mut self.phase else { return };
        let mut kept: VecDeque<Frame> = std::mem::take(&mut greeting.kept).into();
        while let Some(frame) = kept.pop_front() {
            let step = match &mut self.phase {
                Phase::Greeting(greeting) => match Self::step(&self.shared, greeting, &frame, carrier) {
                    // PROOF came, but the exporter is not there before the handshake's end: the next turn has it.
                    Ok(Step::Early) => {
                        kept.push_front(frame);
                        greeting.kept = kept.into();
                        return;
                    }
                    step => step,
                },
                Phase::Open { entry, number } => {
                    let taken = (entry.session(), *number).handle_frame(frame.as_ref(), false);
                    taken.map(|()| Step::More).map_err(|error| protocol(&error))
                }
                Phase::Refused => return,
            };
            match step {
                Ok(Step::Early | Step::More) => {}
                Ok(Step::Admitted(admitted, ticket)) => {
                    if let Err(refusal) = self.admit(&admitted, ticket, carrier) {
                        self.refuse(&refusal);
                    }
                }
                Err(refusal) => self.refuse(&refusal),
            }
        }
    }

    fn step(
        shared: &Shared<B>,
        greeting: &mut Greeting,
        frame: &Frame,
        carrier: &dyn Carrier,
    ) -> Result<Step, Refusal> {
        if greeting.accept.awaits_hello() {
            let hello = greeting.accept.handle_hello(frame.as_ref(), unix_ms())?;
            let nonce = <[u8; 16]>::try_from(hello.nonce.as_ref()).unwrap_or_default();
            let ticket = shared.verifier().verify(&hello.ticket, &hello.app, unix_ms() / 1000).map_err(no_ticket)?;
            greeting.accept.handle_device_key(&ticket.device_key)?;
            let mut replay = shared.replay.lock().unwrap_or_else(PoisonError::into_inner);
            replay.take(nonce, shared.clock.now()).map_err(|rejected| match rejected {
                Rejected::Full => busy("too many devices connect at once"),
                Rejected::Replayed => Refusal::new(RefuseCode::Replayed, "this HELLO was seen before"),
            })?;
            greeting.ticket = Some(ticket);
            return Ok(Step::More);
        }
        let Some(binding) = greeting.challenge.or_else(|| carrier.binding()) else { return Ok(Step::Early) };
        let admitted = greeting.accept.handle_proof(frame.as_ref(), &binding)?;
        let ticket = greeting.ticket.take().ok_or_else(|| Refusal::new(RefuseCode::Internal, "no ticket"))?;
        Ok(Step::Admitted(Box::new(admitted), ticket))
    }

    fn admit(&mut self, admitted: &Admitted, ticket: Ticket, carrier: &mut dyn Carrier) -> Result<(), Refusal> {
        let shared = &self.shared;
        if shared.is_draining() {
            let refusal = Refusal::new(RefuseCode::Draining, "this gateway is closing");
            return Err(Refusal { retry_after: RETRY_AFTER, ..refusal });
        }
        let hello = &admitted.hello;
        let cookie = Cookie::decode(&hello.resume);
        let known = cookie.as_ref().and_then(|cookie| shared.registry.session(cookie.session()));
        let (entry, resumed) = match (known, cookie) {
            (Some(entry), Some(cookie)) => {
                entry.session().peek(|server| server.check_resume(&cookie, &admitted.device_key))?;
                (entry, true)
            }
            (None, _) | (_, None) => {
                let identity = Identity { user: ticket.user, device: hello.device.clone() };
                let entry = shared.registry.create(
                    identity,
                    admitted.device_key,
                    shared.server_config(),
                    shared.clock,
                    &shared.interests,
                )?;
                (entry, false)
            }
        };
        let ordered = !matches!(self.kind, CarrierKind::Quic);
        let number = entry.session().begin_link();
        shared.registry.attached(&entry, self.peer);
        entry.session().with(|server, now| server.attach(hello, ordered, resumed, unix_ms(), now));
        carrier.admit();
        debug!(peer = %self.peer, carrier = %self.kind, resumed, "link open");
        self.phase = Phase::Open { entry, number };
        Ok(())
    }

    /// Passes on what the session has to say to the rest of the gateway.
    fn pass_on(&mut self) {
        let Phase::Open { entry, .. } = &self.phase else { return };
        while let Some(event) = entry.session().peek(|server| server.poll_event()) {
            match event {
                ServerEvent::Acked(ids) => ids.into_iter().for_each(|id| self.shared.report(id, Status::Acked)),
                ServerEvent::Dropped(ids) => {
                    self.shared.counters.pushes_dropped.add(ids.len() as u64);
                }
                ServerEvent::Subscribed(topic) => {
                    self.shared.registry.subscribe(entry, &topic, &self.shared.interests);
                }
                ServerEvent::Unsubscribed(topic) => self.shared.registry.unsubscribe(entry, &topic),
                ServerEvent::Written(id) => self.shared.report(id, Status::Written),
            }
        }
    }
}

enum Step {
    Admitted(Box<Admitted>, Ticket),
    Early,
    More,
}

impl<B: Bus> LinkPeer for Link<B> {
    fn register(&mut self, waker: &Waker) {
        match &self.phase {
            Phase::Open { entry, number } => (entry.session(), *number).register(waker),
            Phase::Greeting(_) | Phase::Refused => self.waker = Some(waker.clone()),
        }
    }

    fn is_current(&self) -> bool {
        match &self.phase {
            Phase::Open { entry, number } => entry.session().is_current(*number),
            Phase::Greeting(_) | Phase::Refused => true,
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
            Phase::Greeting(greeting) => {
                greeting.kept_bytes += frame.payload.len();
                if greeting.kept.len() >= GREETING_FRAMES_MAX || greeting.kept_bytes > GREETING_BYTES_MAX {
                    return Err(LinkError::Unexpected { kind: frame.kind });
                }
                greeting.kept.push(frame.to_owned());
                Ok(())
            }
            Phase::Open { entry, number } => (entry.session(), *number).handle_frame(frame, early),
            Phase::Refused => Ok(()),
        }
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        match &self.phase {
            Phase::Greeting(greeting) if greeting.deadline <= now => {
                self.refuse(&Refusal::new(RefuseCode::HelloTimeout, "no HELLO and PROOF came in time"));
                Ok(())
            }
            Phase::Greeting(_) | Phase::Refused => Ok(()),
            Phase::Open { entry, number } => (entry.session(), *number).handle_timeout(now),
        }
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        match &self.phase {
            Phase::Greeting(greeting) => Some(greeting.deadline),
            Phase::Open { entry, number } => (entry.session(), *number).poll_timeout(),
            Phase::Refused => None,
        }
    }

    fn poll_output(&mut self) -> Option<Frame> {
        let frame = self.output.pop_front().or_else(|| match &self.phase {
            Phase::Open { entry, number } => (entry.session(), *number).poll_output(),
            Phase::Greeting(_) | Phase::Refused => None,
        })?;
        self.shared.counters.frames_out.inc();
        if frame.kind == Kind::Push {
            self.pass_on();
        }
        Some(frame)
    }

    fn handle_turn(&mut self, carrier: &mut dyn Carrier) {
        if matches!(&self.phase, Phase::Greeting(_)) {
            self.greet(carrier);
            if let (Phase::Open { entry, number }, Some(waker)) = (&self.phase, self.waker.take()) {
                (entry.session(), *number).register(&waker);
            }
        }
        self.pass_on();
        if let Phase::Open { entry, .. } = &self.phase {
            for request in entry.session().take_requests() {
                let task = exchange::serve(Arc::clone(&self.shared), Arc::clone(entry), self.peer, request);
                self.shared.tasks.spawn(task);
            }
        }
    }

    fn is_closing(&self) -> bool {
        match &self.phase {
            Phase::Greeting(_) => false,
            Phase::Open { .. } => self.shared.is_stopped(),
            Phase::Refused => true,
        }
    }
}

/// What a driver's end means for the peer.
enum CarrierErrorKind {
    Protocol(Refusal),
    Other,
}

impl CarrierErrorKind {
    fn of(ended: &Result<(), CarrierError>) -> Self {
        match ended {
            Err(CarrierError::Link(error)) if *error != LinkError::Silent => Self::Protocol(protocol(error)),
            Ok(()) | Err(_) => Self::Other,
        }
    }
}

fn protocol(error: &LinkError) -> Refusal {
    Refusal::new(RefuseCode::Protocol, format!("{}: {error}", error.name()))
}

fn no_ticket(error: TicketError) -> Refusal {
    let code = match error {
        TicketError::Expired => RefuseCode::TicketExpired,
        TicketError::ForeignApp => RefuseCode::TicketForeignApp,
        TicketError::NoDeviceKey => RefuseCode::TicketUnbound,
        TicketError::BadSignature | TicketError::Malformed | TicketError::NotYetValid | TicketError::UnknownKey => {
            RefuseCode::TicketInvalid
        }
    };
    Refusal::new(code, error.to_string())
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

/// Frames, and bytes of them, kept before a link is admitted (DESIGN section 4: 16 streams or 64 KiB).
const GREETING_FRAMES_MAX: usize = 18;
const GREETING_BYTES_MAX: usize = 64 * 1024;
