//! What comes before a link is open: HELLO, PROOF, and the frames behind them.

use std::sync::{Arc, PoisonError};

use ropeway_cluster::Bus;
use ropeway_core::{
    CarrierKind, Time,
    session::{Accept, Admitted, Cookie, LinkError, Refusal, Rejected, Server},
    wire::{
        Frame, FrameRef, Kind,
        message::{Proof, RefuseCode},
    },
};
use ropeway_net::{carrier::Carrier, unix_ms};

use super::{CLOCK_SKEW_MAX, Entry, Identity, RETRY_AFTER, busy};
use crate::{
    gateway::Shared,
    tickets::{Ticket, TicketError},
};

/// The handshake of one connection. Frames are kept, within bounds, until the carrier is at rest and can be asked for the binding.
pub(super) struct Greeting {
    accept: Accept,
    ticket: Option<Ticket>,
    /// What PROOF must sign on a carrier without an exporter.
    challenge: Option<[u8; 32]>,
    kept: std::collections::VecDeque<Frame>,
    frames: usize,
    bytes: usize,
    pub(super) deadline: Time,
}

/// What a frame of the handshake led to.
pub(super) enum Step {
    /// Whoever it is may have a session.
    Admitted(Box<Admitted>, Ticket),
    /// PROOF came before the end of the TLS handshake: it is looked at again on the next turn.
    Early,
    /// The next frame is to be looked at.
    More,
}

impl Greeting {
    /// Begins a handshake that must be done by `deadline`, and returns the frame that opens it where the gateway speaks first.
    pub(super) fn new(gateway: String, kind: CarrierKind, deadline: Time) -> (Self, Option<Frame>) {
        let challenge = matches!(kind, CarrierKind::Ws).then(crate::random_bytes::<32>);
        let opening = challenge.map(|challenge| {
            let proof = Proof { challenge: challenge.to_vec().into(), signature: bytes::Bytes::new() };
            Frame::control(Kind::Proof, &proof)
        });
        let greeting = Self {
            accept: Accept::new(gateway, CLOCK_SKEW_MAX),
            ticket: None,
            challenge,
            kept: std::collections::VecDeque::new(),
            frames: 0,
            bytes: 0,
            deadline,
        };
        (greeting, opening)
    }

    /// Keeps a frame that arrived.
    pub(super) fn keep(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        self.frames += 1;
        self.bytes += frame.payload.len();
        if self.frames > GREETING_FRAMES_MAX || self.bytes > GREETING_BYTES_MAX {
            return Err(LinkError::Unexpected { kind: frame.kind });
        }
        self.kept.push_back(frame.to_owned());
        Ok(())
    }

    /// Returns the next frame that is kept.
    pub(super) fn next(&mut self) -> Option<Frame> {
        self.kept.pop_front()
    }

    /// Puts back what [`next`](Self::next) returned.
    pub(super) fn put_back(&mut self, frame: Frame) {
        self.kept.push_front(frame);
    }

    /// Takes the next frame of the handshake.
    pub(super) fn step<B: Bus>(
        &mut self,
        shared: &Shared<B>,
        frame: &Frame,
        carrier: &dyn Carrier,
    ) -> Result<Step, Refusal> {
        if self.accept.awaits_hello() {
            let hello = self.accept.handle_hello(frame.as_ref(), unix_ms())?;
            let nonce = <[u8; 16]>::try_from(hello.nonce.as_ref()).unwrap_or_default();
            let ticket = shared.verifier().verify(&hello.ticket, &hello.app, unix_ms() / 1000).map_err(no_ticket)?;
            ticket.check_device(&hello.device).map_err(no_ticket)?;
            self.accept.handle_device_key(&ticket.device_key)?;
            let mut replay = shared.replay.lock().unwrap_or_else(PoisonError::into_inner);
            replay.take(nonce, shared.clock.now()).map_err(|rejected| match rejected {
                Rejected::Full => busy("too many devices connect at once"),
                Rejected::Replayed => Refusal::new(RefuseCode::Replayed, "this HELLO was seen before"),
            })?;
            self.ticket = Some(ticket);
            return Ok(Step::More);
        }
        let Some(binding) = self.challenge.or_else(|| carrier.binding()) else { return Ok(Step::Early) };
        let admitted = self.accept.handle_proof(frame.as_ref(), &binding)?;
        let ticket = self.ticket.take().ok_or_else(|| Refusal::new(RefuseCode::Internal, "no ticket"))?;
        Ok(Step::Admitted(Box::new(admitted), ticket))
    }
}

/// Gives whoever proved themselves a session: the one their cookie names, or a new one.
pub(super) fn open<B: Bus>(
    shared: &Shared<B>,
    admitted: &Admitted,
    ticket: Ticket,
    ordered: bool,
) -> Result<(Arc<Entry>, u64), Refusal> {
    if shared.is_draining() {
        let refusal = Refusal::new(RefuseCode::Draining, "this gateway is closing");
        return Err(Refusal { retry_after: RETRY_AFTER, ..refusal });
    }
    let hello = &admitted.hello;
    let identity = Identity { app: ticket.app, device: hello.device.clone(), user: ticket.user };
    let config = shared.server_config();
    let attach = |resumed: bool| {
        let config = Arc::clone(&config);
        move |server: &mut Server, now| {
            server.reconfigure(config);
            server.attach(hello, ordered, resumed, unix_ms(), now);
            shared.lists.greet(server);
        }
    };
    let resumed = match Cookie::decode(&hello.resume) {
        Some(cookie) => shared.registry.resume(&cookie, &identity, &admitted.device_key, attach(true))?,
        None => None,
    };
    let (entry, number) = match resumed {
        Some(resumed) => resumed,
        None => {
            let (key, interests) = (admitted.device_key, &shared.interests);
            let config = Arc::clone(&config);
            shared.registry.create(identity, key, config, shared.clock, interests, attach(false))?
        }
    };
    // A drain that began meanwhile may have passed this session by.
    if shared.is_draining() {
        entry.session().with(|server, _| server.drain(shared.config().gateway.drain_timeout));
    }
    if shared.is_stopped() {
        entry.session().with(|server, _| server.stop());
    }
    Ok((entry, number))
}

fn no_ticket(error: TicketError) -> Refusal {
    let code = match error {
        TicketError::Expired => RefuseCode::TicketExpired,
        TicketError::ForeignApp => RefuseCode::TicketForeignApp,
        TicketError::ForeignDevice | TicketError::NoDeviceKey => RefuseCode::TicketUnbound,
        TicketError::BadSignature | TicketError::Malformed | TicketError::NotYetValid | TicketError::UnknownKey => {
            RefuseCode::TicketInvalid
        }
    };
    Refusal::new(code, error.to_string())
}

/// Frames, and bytes of them, kept before a link is admitted (DESIGN section 4: 16 streams or 64 KiB).
const GREETING_FRAMES_MAX: usize = 18;
const GREETING_BYTES_MAX: usize = 64 * 1024;
