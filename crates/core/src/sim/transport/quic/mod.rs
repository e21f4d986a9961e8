//! One end of a QUIC connection, as noq has it (`noq-proto`, `connection/mod.rs`).

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use self::{
    packet::{Ack, CHUNK_BYTES, Packet, Space},
    path::Path,
    space::{Sent, SpaceState},
};
use super::{
    Chunk, End, HANDSHAKE,
    streams::{Incoming, Mixed},
};
use crate::Time;

mod loss;
pub(super) mod mtu;
mod packet;
mod path;
mod space;

pub(super) use packet::Datagram;

/// One end of a QUIC connection.
#[derive(Clone, Debug)]
pub(crate) struct Quic {
    end: End,
    began: Time,
    /// A client's keys are made, or a server listens.
    is_begun: bool,
    /// The handshake is complete at this end.
    is_complete: bool,
    /// It is known to be complete at the other.
    is_confirmed: bool,
    /// It takes connections, and says nothing.
    is_mute: bool,
    /// What the first round trip took.
    first_rtt: Option<Duration>,
    spaces: [SpaceState; 3],
    incoming: BTreeMap<u64, Incoming>,
    read: VecDeque<(u64, Bytes)>,
    path: Path,
    /// When loss or a timeout is looked for.
    loss_timer: Option<Time>,
    /// When the pace lets go what it holds up.
    paced_until: Option<Time>,
    /// PATH_CHALLENGE is to be sent, or was sent and when it is sent again.
    challenge: Option<Time>,
    owes_response: bool,
}

impl Quic {
    pub(super) fn new(end: End, now: Time) -> Self {
        Self {
            end,
            began: now,
            is_begun: end == End::Server,
            is_complete: false,
            is_confirmed: false,
            is_mute: false,
            first_rtt: None,
            spaces: Default::default(),
            incoming: BTreeMap::new(),
            read: VecDeque::new(),
            path: Path::new(end, now),
            loss_timer: None,
            paced_until: None,
            challenge: None,
            owes_response: false,
        }
    }

    /// Makes the end of a server that takes connections and says nothing on them.
    pub(super) fn mute(now: Time) -> Self {
        Self { is_mute: true, ..Self::new(End::Server, now) }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.spaces.iter().any(|space| !space.outgoing.is_empty() || space.has_in_flight())
    }

    pub(super) const fn is_open(&self) -> bool {
        self.is_complete
    }

    pub(super) const fn is_answered(&self) -> bool {
        self.first_rtt.is_some()
    }

    pub(super) fn rtt(&self) -> Duration {
        if self.path.is_measured() { self.path.rtt() } else { self.first_rtt.unwrap_or_default() }
    }

    pub(super) const fn unsent_bytes(&self) -> usize {
        self.spaces[Space::Data as usize].outgoing.unsent_bytes()
    }

    pub(super) fn write(&mut self, stream: u64, data: Bytes) {
        self.space(Space::Data).outgoing.push(stream, data);
    }

    pub(super) fn read(&mut self) -> Option<(u64, Bytes)> {
        if self.is_open() { self.read.pop_front() } else { None }
    }

    /// Takes in that the client seems to have moved: until it answers, it is sent nothing but the question whether it is there.
    pub(super) fn handle_moved(&mut self, now: Time) {
        if self.is_complete {
            self.path = self.path.moved(now);
            self.challenge = Some(now);
        }
    }

    pub(super) fn handle_datagram(&mut self, datagram: Datagram, now: Time) {
        if self.is_mute {
            return;
        }
        let was_limited = self.path.is_amplification_limited();
        self.path.received_bytes += datagram.bytes;
        self.first_rtt.get_or_insert(now.since(self.began));
        for packet in datagram.packets {
            if self.can_read(packet.space) {
                self.handle_packet(packet, now);
            }
        }
        if was_limited {
            self.set_loss_timer(now);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        for space in &mut self.spaces {
            space.arrivals.handle_timeout(now);
        }
        if self.loss_timer.is_some_and(|at| at <= now) {
            self.handle_loss_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let acks = self.spaces.iter().filter_map(|space| space.arrivals.due_at()).min();
        let hello = (!self.is_begun).then(|| self.began + HELLO_TIME);
        let challenge = self.challenge.filter(|_| self.paced_until.is_none());
        [self.loss_timer, self.paced_until, challenge, acks, hello].into_iter().flatten().min()
    }

    /// Returns the next datagram to send.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Datagram> {
        if !self.is_begun {
            if now < self.began + HELLO_TIME {
                return None;
            }
            self.is_begun = true;
            self.push_control(Space::Initial, CLIENT_HELLO_BYTES);
        }
        self.paced_until = None;
        let datagram = self.datagram(now).or_else(|| self.search_mtu(now))?;
        self.path.sent_bytes += datagram.bytes;
        Some(datagram)
    }

    fn datagram(&mut self, now: Time) -> Option<Datagram> {
        let mut datagram = Datagram::default();
        let mut is_held_up = false;
        let full = self.path.mtu.datagram_bytes();
        for space in Space::ALL {
            let has_probe = self.spaces[space as usize].probes > 0;
            if !self.can_write(space) || !(has_probe || self.has_any(space, now)) {
                continue;
            }
            if datagram.packets.is_empty() {
                if !self.may_begin(space, now) {
                    is_held_up = true;
                    continue;
                }
                if has_probe {
                    self.space(space).prepare_probe();
                    self.space(space).probes -= 1;
                }
            } else if full - datagram.bytes < PACKET_BYTES_MIN {
                break;
            }
            let packet = self.packet(space, full - datagram.bytes, now);
            datagram.bytes += packet.bytes();
            datagram.packets.push(packet);
            // A packet of another space goes with it only if this one is done.
            if self.has_any(space, now) {
                break;
            }
        }
        self.path.is_app_limited = datagram.packets.is_empty() && !is_held_up;
        if datagram.packets.is_empty() {
            return None;
        }
        self.fill_up(&mut datagram);
        self.note_sent(&datagram, now);
        Some(datagram)
    }

    /// Says whether a new datagram may be sent, to begin with a packet of a space.
    fn may_begin(&mut self, space: Space, now: Time) -> bool {
        if self.path.is_amplification_limited() {
            return false;
        }
        let state = &self.spaces[space as usize];
        let is_controlled = !state.outgoing.is_empty() && state.probes == 0;
        if is_controlled && self.path.in_flight + self.path.mtu.datagram_bytes() > self.path.window {
            return false;
        }
        // Acknowledgements wait for their turn as well.
        if !self.path.is_in_pace(now) {
            self.paced_until = Some(self.path.paced_until());
            return false;
        }
        true
    }

    /// Says whether a space has anything to send, apart from what a timeout asks for.
    fn has_any(&self, space: Space, now: Time) -> bool {
        let state = &self.spaces[space as usize];
        let asks = space == Space::Data && (self.challenge.is_some_and(|at| at <= now) || self.owes_response);
        // Nothing else is sent to where it is not known that anybody is.
        let may_speak = self.path.is_validated || !self.is_complete;
        state.owes_ping || asks || may_speak && (state.arrivals.is_due() || !state.outgoing.is_empty())
    }

    fn packet(&mut self, space: Space, room: usize, now: Time) -> Packet {
        let may_speak = self.path.is_validated || !self.is_complete;
        let has_challenge = space == Space::Data && self.challenge.is_some_and(|at| at <= now);
        let has_response = space == Space::Data && std::mem::take(&mut self.owes_response);
        if has_challenge {
            self.challenge = Some(now + self.path.data_timeout());
        }
        let state = self.space(space);
        let has_ping = std::mem::take(&mut state.owes_ping);
        let ack = may_speak.then(|| state.arrivals.take(now)).flatten();
        let number = state.next_number;
        state.next_number += 1;
        let mut packet = Packet { ack, has_ping, has_challenge, has_response, ..Packet::empty(space, number) };
        if may_speak {
            packet.chunks = state.outgoing.take(room.saturating_sub(packet.bytes() + CHUNK_BYTES), Mixed::Yes);
        }
        packet
    }

    /// Fills a datagram up that must be as long as the smallest a path carries (RFC 9000 sections 8.2 and 14.1).
    fn fill_up(&self, datagram: &mut Datagram) {
        let is_long = |packet: &Packet| {
            let is_initial = packet.space == Space::Initial && (self.end == End::Client || packet.is_eliciting());
            is_initial || packet.has_challenge || packet.has_response
        };
        if datagram.packets.iter().any(is_long) {
            datagram.bytes = datagram.bytes.max(mtu::DATAGRAM_BYTES);
        }
    }

    /// Takes in that packets were sent; what fills up a datagram is in flight with the last.
    fn note_sent(&mut self, datagram: &Datagram, now: Time) {
        let padding = datagram.bytes - datagram.packets.iter().map(Packet::bytes).sum::<usize>();
        for (place, packet) in datagram.packets.iter().enumerate() {
            let padding = if place + 1 == datagram.packets.len() { padding } else { 0 };
            let is_eliciting = packet.is_eliciting();
            let bytes = if is_eliciting || padding > 0 { packet.bytes() + padding } else { 0 };
            let acked = packet.ack.as_ref().and_then(|ack| ack.numbers.last().copied());
            let sent = Sent { at: now, bytes, is_eliciting, chunks: packet.chunks.clone(), acked };
            self.path.handle_sent(&sent);
            let state = self.space(packet.space);
            if is_eliciting {
                state.eliciting_at = Some(now);
            }
            state.sent.insert(packet.number, sent);
            if bytes > 0 {
                self.set_loss_timer(now);
            }
        }
        // RFC 9001 section 4.9.1: a client is done with the first keys when it uses the next.
        if self.end == End::Client && datagram.packets.iter().any(|packet| packet.space == Space::Handshake) {
            self.discard(Space::Initial, now);
        }
    }

    /// Tries a longer datagram, once the handshake is complete and the way is known.
    fn search_mtu(&mut self, now: Time) -> Option<Datagram> {
        if !self.is_complete || !self.path.is_validated || self.challenge.is_some() {
            return None;
        }
        let number = self.spaces[Space::Data as usize].next_number;
        let bytes = self.path.mtu.poll(number)?;
        let ping = Packet { has_ping: true, ..Packet::empty(Space::Data, number) };
        self.space(Space::Data).next_number += 1;
        let datagram = Datagram { packets: vec![ping], bytes };
        self.note_sent(&datagram, now);
        Some(datagram)
    }

    fn handle_packet(&mut self, packet: Packet, now: Time) {
        let Packet { space, number, ack, chunks, has_challenge, has_response, .. } = packet.clone();
        let at_once = space != Space::Data;
        if !self.space(space).arrivals.note(number, packet.is_eliciting(), at_once, now) {
            return;
        }
        if self.end == End::Server && space == Space::Handshake {
            self.path.is_validated = true;
            self.discard(Space::Initial, now);
        }
        if let Some(Ack { numbers, delay }) = ack {
            self.handle_ack(space, &numbers, delay, now);
        }
        self.owes_response |= has_challenge;
        if has_response && self.challenge.take().is_some() {
            self.path.is_validated = true;
        }
        for Chunk { stream, offset, data } in chunks {
            if stream == HANDSHAKE {
                self.space(space).control.take(offset, data, &mut |_| {});
            } else {
                let read = &mut self.read;
                self.incoming.entry(stream).or_default().take(offset, data, &mut |data| read.push_back((stream, data)));
            }
        }
        self.shake_hands(now);
    }

    /// Goes on with the handshake as far as what arrived allows.
    fn shake_hands(&mut self, now: Time) {
        let [initial, handshake, data] =
            [Space::Initial, Space::Handshake, Space::Data].map(|space| self.arrived(space));
        match self.end {
            End::Client => {
                if !self.is_complete && handshake >= SERVER_FLIGHT_BYTES {
                    self.is_complete = true;
                    self.push_control(Space::Handshake, FINISHED_BYTES);
                    self.push_control(Space::Data, IDS_BYTES);
                }
                if self.is_complete && !self.is_confirmed && data > IDS_BYTES {
                    self.is_confirmed = true;
                    self.discard(Space::Handshake, now);
                }
            }
            End::Server => {
                if !self.is_complete
                    && initial >= CLIENT_HELLO_BYTES
                    && self.spaces[Space::Handshake as usize].outgoing.is_unused()
                {
                    self.push_control(Space::Initial, SERVER_HELLO_BYTES);
                    self.push_control(Space::Handshake, SERVER_FLIGHT_BYTES);
                    self.push_control(Space::Data, IDS_BYTES);
                }
                if !self.is_complete && handshake >= FINISHED_BYTES {
                    (self.is_complete, self.is_confirmed) = (true, true);
                    self.push_control(Space::Data, DONE_BYTES);
                    self.discard(Space::Handshake, now);
                }
            }
        }
    }

    /// Says whether this end has the keys to read packets of a space.
    fn can_read(&self, space: Space) -> bool {
        let has_keys = match (space, self.end) {
            (Space::Initial, _) => true,
            (Space::Handshake, End::Client) => self.arrived(Space::Initial) >= SERVER_HELLO_BYTES,
            (Space::Handshake, End::Server) => self.arrived(Space::Initial) >= CLIENT_HELLO_BYTES,
            (Space::Data, _) => self.is_complete,
        };
        has_keys && !self.spaces[space as usize].is_discarded
    }

    /// Says whether it has those to write them; a server may speak before it knows that the client can.
    fn can_write(&self, space: Space) -> bool {
        let is_early =
            space == Space::Data && self.end == End::Server && self.arrived(Space::Initial) >= CLIENT_HELLO_BYTES;
        is_early || self.can_read(space)
    }

    fn arrived(&self, space: Space) -> u64 {
        self.spaces[space as usize].control.arrived
    }

    fn push_control(&mut self, space: Space, bytes: u64) {
        let bytes = usize::try_from(bytes).expect("a flight is a few kilobytes");
        self.space(space).outgoing.push(HANDSHAKE, Bytes::from(vec![0; bytes]));
    }

    const fn space(&mut self, space: Space) -> &mut SpaceState {
        &mut self.spaces[space as usize]
    }
}

/// By how much QUIC's first packet is later than TCP's: keys are made before it, and while SYN is under way. 0.6 ms; measured in the lab.
const HELLO_TIME: Duration = Duration::from_micros(600);

/// Bytes that a further packet in a datagram is worth: a header, and some of what it is for; noq's `MIN_PACKET_SPACE`.
const PACKET_BYTES_MIN: usize = 80;

/// ClientHello with one key share and the transport parameters; its datagram is filled up.
const CLIENT_HELLO_BYTES: u64 = 300;

/// ServerHello, without the session's name that TLS over TCP repeats.
const SERVER_HELLO_BYTES: u64 = 90;

/// EncryptedExtensions to Finished with the lab's chain, two certificates of P-256 with 900 bytes together: in the lab the datagrams of a
/// server's first flight have 1,200 and 468 bytes.
const SERVER_FLIGHT_BYTES: u64 = 1_300;

/// The client's Finished: in the lab its datagram has 105 bytes.
const FINISHED_BYTES: u64 = 36;

/// NEW_CONNECTION_ID for a few more (RFC 9000 section 19.15): in the lab a datagram of 138 bytes.
const IDS_BYTES: u64 = 105;

/// HANDSHAKE_DONE, two tickets and tokens: in the lab a datagram of 329 bytes.
const DONE_BYTES: u64 = 290;
