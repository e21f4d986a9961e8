//! Exchanges of one session: opened, credited, interleaved, and settled when a new link takes over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::Bytes;
use http::HeaderMap;

use super::{
    LinkError,
    channel::{Channel, Fin, GRANT_SHARE, Receiving, Sending},
    seen::Seen,
};
use crate::{
    Time,
    request::is_idempotent,
    wire::{
        Flags, Frame, Kind, VARINT_MAX,
        fields::{Decoder, Encoder, Mode, RequestHead, ResponseHead},
        message::{Ack, Credit, Reset, ResetCode},
    },
};

mod attach;
mod input;
mod output;

/// Which end of the session this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Opens exchanges.
    Client,
    /// Answers them.
    Gateway,
}

/// Bounds of one end.
#[derive(Clone, Copy, Debug)]
pub struct MuxConfig {
    /// How long a finished answer is kept for a client that resumes; 60 s by default (DESIGN section 4).
    pub answers_ttl: std::time::Duration,
    /// Body bytes this end takes on a channel before it must grant more; 256 KiB by default: 2 s of 1 Mbit/s, so that a slow reader
    /// never pauses its sender for want of a grant.
    pub channel_credit: u32,
    /// Exchanges open at once; 256 by default.
    pub channels_max: u32,
    /// Sent body bytes kept so that a new link can repeat them, and bytes queued while there is no link; 64 KiB by default (DESIGN
    /// section 4).
    pub kept_bytes_max: u64,
    /// Body bytes this end takes on the whole link; 1 MiB by default, four channels' worth: one slow reader cannot use it up.
    pub link_credit: u32,
    /// Largest frame payload this end accepts, bytes.
    pub payload_bytes_max: u32,
}

impl Default for MuxConfig {
    fn default() -> Self {
        Self {
            answers_ttl: std::time::Duration::from_secs(60),
            channel_credit: 256 * 1024,
            channels_max: 256,
            kept_bytes_max: 64 * 1024,
            link_credit: 1024 * 1024,
            payload_bytes_max: crate::wire::frame::PAYLOAD_BYTES_MAX as u32,
        }
    }
}

/// What the peer said in HELLO or WELCOME.
#[derive(Clone, Copy, Debug)]
pub struct PeerLimits {
    /// Body bytes it takes on a new channel.
    pub channel_credit: u32,
    /// Body bytes it takes on the link.
    pub link_credit: u32,
    /// Largest frame payload it accepts, bytes; zero stands for the default.
    pub payload_bytes_max: u32,
}

/// The head of an exchange in either direction.
#[derive(Clone, Debug)]
pub enum Head {
    /// Method, target and headers.
    Request(RequestHead),
    /// Status and headers.
    Response(ResponseHead),
}

/// Why an exchange ended without completing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The gateway never saw the request: it may be sent again, whatever its method.
    NeverSeen,
    /// Either end gave it up.
    Reset {
        /// The reason.
        code: ResetCode,
        /// The reason, in words.
        detail: String,
    },
    /// The request may have run, and nobody can say.
    Unknown,
}

/// What happened to an exchange.
#[derive(Debug)]
pub enum MuxEvent {
    /// Bytes of a body; the edge answers with [`Mux::consumed`] once they are gone.
    Body {
        /// The exchange.
        channel: u64,
        /// The bytes.
        data: Bytes,
    },
    /// The exchange ended without completing; nothing follows.
    Closed {
        /// The exchange.
        channel: u64,
        /// The reason.
        why: Closed,
    },
    /// The peer's half is complete.
    End {
        /// The exchange.
        channel: u64,
        /// Trailers, if any came.
        trailers: Option<HeaderMap>,
    },
    /// A request arrived (gateway only).
    Request {
        /// The exchange.
        channel: u64,
        /// Method, target and headers.
        head: RequestHead,
        /// No body follows.
        end: bool,
    },
    /// The head of an answer arrived (client only).
    Response {
        /// The exchange.
        channel: u64,
        /// Status and headers.
        head: ResponseHead,
        /// No body follows.
        end: bool,
    },
    /// A writer that found no room may try again.
    Writable {
        /// The exchange.
        channel: u64,
    },
}

/// The exchanges of one session, at one end. It survives the loss of a link.
#[derive(Debug)]
pub struct Mux {
    role: Role,
    config: MuxConfig,
    link: Option<Box<Link>>,
    /// Boxed, because a map of one has room for eleven.
    channels: BTreeMap<u64, Box<Channel>>,
    /// Client: number of the last exchange opened.
    opened: u64,
    /// Gateway: numbers that arrived.
    seen: Seen,
    /// Gateway: answers kept for a resume, oldest first.
    finished: VecDeque<u64>,
    /// Gateway: new exchanges are refused.
    refusing: bool,
    /// Gateway: requests refused that nobody was told of yet.
    refused: u64,
    unsent_bytes: u64,
    kept_bytes: u64,
    unconsumed_bytes: u64,
    events: VecDeque<MuxEvent>,
}

/// What lasts as long as one link.
#[derive(Debug)]
struct Link {
    ordered: bool,
    /// What went out before WELCOME; `None` once it has come, and always at a gateway.
    early: Option<Early>,
    peer: PeerLimits,
    /// Body bytes the peer still takes on the link.
    send_credit: u64,
    /// Body bytes the peer may still send on the link.
    receive_credit: u64,
    encoder: Encoder,
    decoder: Decoder,
    control: VecDeque<Frame>,
    control_bytes: usize,
    heads: VecDeque<u64>,
    bodies: VecDeque<u64>,
}

/// The requests that were sent behind HELLO.
#[derive(Debug, Default)]
struct Early {
    channels: BTreeSet<u64>,
    bytes: usize,
}

impl Mux {
    /// Makes one end of a session without a link.
    #[must_use]
    pub const fn new(role: Role, config: MuxConfig) -> Self {
        Self {
            role,
            config,
            link: None,
            channels: BTreeMap::new(),
            opened: 0,
            seen: Seen::new(),
            finished: VecDeque::new(),
            refusing: false,
            refused: 0,
            unsent_bytes: 0,
            kept_bytes: 0,
            unconsumed_bytes: 0,
            events: VecDeque::new(),
        }
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<MuxEvent> {
        self.events.pop_front()
    }

    /// Says whether a link is attached, and both ends know of it.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.early.is_none())
    }

    /// Returns the number of exchanges that are not finished.
    #[must_use]
    pub fn running(&self) -> usize {
        self.channels.len() - self.finished.len()
    }

    /// Says whether another link could take over every exchange that is not finished: of no answer has anything come that the other
    /// end may no longer keep the rest of, and of every request all is kept here (client only).
    #[must_use]
    pub fn can_move(&self) -> bool {
        self.channels.values().all(|exchange| !exchange.receiving.head && exchange.sending.can_rewind(0))
    }

    /// Returns the highest request number that arrived, zero before the first (gateway only).
    #[must_use]
    pub const fn highest_seen(&self) -> u64 {
        self.seen.highest()
    }

    /// Returns how many body bytes are held here for the peer or the edge.
    #[must_use]
    pub const fn held_bytes(&self) -> u64 {
        self.unsent_bytes + self.kept_bytes + self.unconsumed_bytes
    }

    /// Opens an exchange; `None` if as many are open as may be.
    pub fn request(&mut self, head: RequestHead, end: bool) -> Option<u64> {
        if self.running() >= self.config.channels_max as usize || self.opened >= VARINT_MAX {
            return None;
        }
        self.opened += 1;
        let limit = self.link.as_ref().map_or(0, |link| u64::from(link.peer.channel_credit));
        let mut sending = Sending::new(Some(Head::Request(head)), limit);
        sending.fin = end.then_some(Fin::End(None));
        let receiving = Receiving::new(u64::from(self.config.channel_credit));
        self.channels.insert(self.opened, Box::new(Channel { sending, receiving, forget_at: None }));
        self.queue(self.opened);
        Some(self.opened)
    }

    /// Answers an exchange; does nothing if it is gone.
    pub fn respond(&mut self, channel: u64, head: ResponseHead, end: bool) {
        let Some(exchange) = self.channels.get_mut(&channel) else { return };
        if exchange.sending.head.is_none() && exchange.sending.fin.is_none() {
            exchange.sending.head = Some(Head::Response(head));
            exchange.sending.fin = end.then_some(Fin::End(None));
            self.queue(channel);
        }
    }

    /// Takes as much of `data` as there is room for; [`MuxEvent::Writable`] says when to bring the rest.
    ///
    /// Returns `false` if the exchange is gone.
    pub fn write(&mut self, channel: u64, data: &mut Bytes) -> bool {
        let room = self.room(channel).min(data.len() as u64) as usize;
        let Some(exchange) = self.channels.get_mut(&channel) else { return false };
        if exchange.sending.fin.is_some() {
            return false;
        }
        exchange.sending.blocked = room < data.len();
        if room > 0 {
            exchange.sending.push(data.split_to(room));
            self.unsent_bytes += room as u64;
            self.queue(channel);
        }
        true
    }

    /// Completes this end's half.
    pub fn finish(&mut self, channel: u64, trailers: Option<HeaderMap>) {
        if let Some(exchange) = self.channels.get_mut(&channel)
            && exchange.sending.fin.is_none()
        {
            exchange.sending.fin = Some(Fin::End(trailers));
            self.queue(channel);
        }
    }

    /// Ends the exchange without completing it. A client says so at once; what a gateway has of an answer that was cut goes out first, as
    /// far as it was taken here.
    pub fn reset(&mut self, channel: u64, code: ResetCode, detail: &str) {
        let Some(exchange) = self.channels.get_mut(&channel) else { return };
        if exchange.sending.fin_sent {
            if self.role == Role::Client {
                self.remove(channel);
                self.send_reset(channel, code, detail);
            }
            return;
        }
        if self.role == Role::Client && !exchange.sending.head_sent {
            self.remove(channel);
            return;
        }
        let discarded = match self.role {
            Role::Client => exchange.sending.discard_unsent(),
            Role::Gateway => 0,
        };
        exchange.sending.fin = Some(Fin::Reset(code, detail.chars().take(DETAIL_CHARS_MAX).collect()));
        if exchange.sending.unsent_bytes() == 0 {
            // Its place among the bodies is of no use: RESET goes with the heads.
            exchange.sending.queued = false;
        }
        self.queue(channel);
        self.release(discarded);
    }

    /// Says that the edge passed on `bytes` body bytes, so that the peer may send as many again.
    pub fn consumed(&mut self, channel: u64, bytes: u64) {
        self.unconsumed_bytes = self.unconsumed_bytes.saturating_sub(bytes);
        if let Some(exchange) = self.channels.get_mut(&channel) {
            exchange.receiving.consumed += bytes;
        }
        self.grant(channel);
    }

    /// Says whether the head of the exchange was handed to a carrier: afterwards a failure no longer proves that it did not run.
    #[must_use]
    pub fn is_handed_off(&self, channel: u64) -> bool {
        self.channels.get(&channel).is_some_and(|exchange| exchange.sending.head_sent)
    }

    /// Says whether the exchange waits to be handed to a carrier. One that is over does not: it may have been executed.
    #[must_use]
    pub fn is_unsent(&self, channel: u64) -> bool {
        self.channels.get(&channel).is_some_and(|exchange| !exchange.sending.head_sent)
    }

    /// Takes an exchange back that was not handed to a carrier; says whether it was taken back (client only).
    pub fn take_back(&mut self, channel: u64) -> bool {
        self.is_unsent(channel) && self.remove(channel)
    }

    /// Refuses exchanges that arrive from now on (gateway only).
    pub const fn refuse_new(&mut self) {
        self.refusing = true;
    }

    /// Returns how many requests were refused unexecuted since the last call (gateway only).
    pub(super) const fn take_refused(&mut self) -> u64 {
        std::mem::replace(&mut self.refused, 0)
    }

    /// Says that the gateway executes nothing above `last_channel`: those exchanges end as never seen (client only).
    pub fn handle_last_channel(&mut self, last_channel: u64) {
        let above: Vec<u64> =
            self.channels.range(last_channel.saturating_add(1)..).map(|(channel, _)| *channel).collect();
        for channel in above {
            self.close(channel, Closed::NeverSeen);
        }
    }

    /// Sends a frame of the link itself; without a link it is dropped.
    pub(super) fn send_control(&mut self, frame: Frame) {
        if let Some(link) = self.link.as_mut()
            && (link.early.is_none() || frame.kind.is_exchange())
        {
            link.say(frame);
        }
    }

    /// Says whether the peer takes what it makes this end say.
    ///
    /// # Errors
    ///
    /// [`LinkError::Backlog`] if more than the bound waits for the carrier.
    pub(super) fn check_backlog(&self) -> Result<(), LinkError> {
        let full = |link: &Link| link.control.len() > CONTROL_FRAMES_MAX || link.control_bytes > CONTROL_BYTES_MAX;
        if self.link.as_deref().is_some_and(full) { Err(LinkError::Backlog) } else { Ok(()) }
    }

    /// Returns when the first kept answer may be forgotten.
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.finished.front().and_then(|channel| self.channels.get(channel)).and_then(|exchange| exchange.forget_at)
    }

    /// Forgets the answers whose time has come.
    pub(super) fn handle_timeout(&mut self, now: Time) {
        while let Some(channel) = self.finished.front().copied()
            && self.channels.get(&channel).and_then(|exchange| exchange.forget_at).is_none_or(|at| at <= now)
        {
            self.remove(channel);
        }
        if self.channels.is_empty() {
            self.rest();
        }
    }

    /// Lets go of the room that exchanges took up: most sessions have none most of the time.
    fn rest(&mut self) {
        self.channels = BTreeMap::new();
        self.finished = VecDeque::new();
        self.events.shrink_to_fit();
        if let Some(link) = self.link.as_mut() {
            link.control.shrink_to_fit();
            link.heads.shrink_to_fit();
            link.bodies.shrink_to_fit();
        }
    }

    /// Grants the peer what was consumed, on the channel and on the link. Without a link nothing is granted: the next HELLO or
    /// WELCOME says how far the peer may go.
    fn grant(&mut self, channel: u64) {
        let window = u64::from(self.config.channel_credit);
        let owed = u64::from(self.link_credit());
        let Some(link) = self.link.as_mut() else { return };
        let grant = self.channels.get_mut(&channel).map_or(0, |exchange| exchange.receiving.grant(window));
        if grant > 0 {
            link.say(credit(channel, grant));
        }
        let grant = owed.saturating_sub(link.receive_credit);
        if grant >= u64::from(self.config.link_credit) / GRANT_SHARE {
            link.say(credit(0, grant));
            link.receive_credit += grant;
        }
    }

    fn room(&self, channel: u64) -> u64 {
        let Some(exchange) = self.channels.get(&channel) else { return 0 };
        let shared = match &self.link {
            Some(link) => link.send_credit.min(self.unsent_bytes_max()).saturating_sub(self.unsent_bytes),
            None => self.config.kept_bytes_max.saturating_sub(self.kept_bytes + self.unsent_bytes),
        };
        exchange.sending.room().min(shared)
    }

    /// Returns how many body bytes are queued for a peer, however much credit it gives: as many as this end takes itself.
    const fn unsent_bytes_max(&self) -> u64 {
        self.config.link_credit as u64
    }

    fn queue(&mut self, channel: u64) {
        let (Some(link), Some(exchange)) = (self.link.as_mut(), self.channels.get_mut(&channel)) else { return };
        let sending = &mut exchange.sending;
        if sending.queued || !sending.can_send() || !link.takes(sending) {
            return;
        }
        sending.queued = true;
        let head = sending.head.is_some() && !sending.head_sent;
        if head || sending.resets_now() {
            link.heads.push_back(channel);
        } else {
            link.bodies.push_back(channel);
        }
    }

    fn wake_blocked(&mut self) {
        let blocked: Vec<u64> = self
            .channels
            .iter()
            .filter(|(_, exchange)| exchange.sending.blocked)
            .map(|(channel, _)| *channel)
            .collect();
        for channel in blocked {
            self.wake(channel);
        }
    }

    fn wake(&mut self, channel: u64) {
        if self.room(channel) > 0
            && let Some(exchange) = self.channels.get_mut(&channel)
            && exchange.sending.blocked
        {
            exchange.sending.blocked = false;
            self.events.push_back(MuxEvent::Writable { channel });
        }
    }

    fn close(&mut self, channel: u64, why: Closed) {
        if self.remove(channel) {
            self.events.push_back(MuxEvent::Closed { channel, why });
        }
    }

    fn remove(&mut self, channel: u64) -> bool {
        let Some(mut exchange) = self.channels.remove(&channel) else { return false };
        self.kept_bytes -= exchange.sending.kept_bytes();
        if exchange.forget_at.is_some() {
            self.finished.retain(|finished| *finished != channel);
        }
        self.release(exchange.sending.discard_unsent());
        true
    }

    /// Bytes that were queued will not be sent: others have room instead.
    fn release(&mut self, discarded: u64) {
        if discarded > 0 {
            self.unsent_bytes -= discarded;
            self.wake_blocked();
        }
    }

    fn send_reset(&mut self, channel: u64, code: ResetCode, detail: &str) {
        let reset = Reset { code: code.into(), detail: detail.into() };
        let frame = Frame { channel, flags: Flags::END, ..Frame::control(Kind::Reset, &reset) };
        self.send_control(frame);
    }

    fn acknowledge_fields(&mut self, channel: u64) {
        self.send_control(Frame::control(Kind::Ack, &Ack { push_sequence: 0, fields: vec![channel] }));
    }
}

impl Link {
    /// Says whether something may be sent already. Before WELCOME it is a request without a body that may be executed twice: should the
    /// link break before it is known to have come about, nobody can say whether the request was executed.
    fn takes(&self, sending: &Sending) -> bool {
        let Some(early) = &self.early else { return true };
        let has_room = early.channels.len() < EARLY_REQUESTS_MAX && early.bytes < EARLY_BYTES_MAX;
        let is_safe = match &sending.head {
            Some(Head::Request(head)) if !sending.head_sent => is_idempotent(&head.method) && sending.ends_here(),
            Some(Head::Request(_) | Head::Response(_)) | None => matches!(sending.fin, Some(Fin::Reset(..))),
        };
        is_safe && has_room
    }

    fn say(&mut self, frame: Frame) {
        self.control_bytes += frame.payload.len();
        self.control.push_back(frame);
    }
}

fn credit(channel: u64, bytes: u64) -> Frame {
    Frame { channel, ..Frame::control(Kind::Credit, &Credit { bytes }) }
}

/// Frames of the link itself that may wait for the carrier: an ACK for each of the 1,000 pushes an outbox holds, and for each of 256
/// channels two CREDITs, an ACK of fields and a RESET, with as much again to spare. Only a peer that does not read makes more.
const CONTROL_FRAMES_MAX: usize = 4_096;

/// Payload bytes of these frames: a PONG is as long as its PING, and four of the longest are 256 KiB.
const CONTROL_BYTES_MAX: usize = 4 * crate::wire::frame::PAYLOAD_BYTES_MAX;

/// Requests behind HELLO, and bytes of their heads. Gateways hold 16 streams or 64 KiB until HELLO is verified (DESIGN section 4), of
/// which HELLO itself may take a good part.
const EARLY_REQUESTS_MAX: usize = 16;
const EARLY_BYTES_MAX: usize = 32 * 1024;

/// Characters of a RESET's detail that are sent; enough for a sentence.
const DETAIL_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests;
