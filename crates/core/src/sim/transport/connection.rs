//! One end of a connection.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use super::{
    Chunk, End, HANDSHAKE, QUIC_BYTES, Segment, Transport,
    handshake::{Handshake, transport},
    mtu::MtuSearch,
    recovery::{Expired, QUIC_ACK_DELAY, Recovery, ping},
    streams::{Incoming, Outgoing},
};
use crate::{CarrierKind, Time};

/// One end of a connection. The owner moves its segments, in the verbs of the other machines.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    end: End,
    transport: Transport,
    handshake: Handshake,
    opening: Opening,
    began: Time,
    /// What the first round trip took.
    first_rtt: Option<Duration>,
    next_number: u64,
    outgoing: Outgoing,
    incoming: BTreeMap<u64, Incoming>,
    read: VecDeque<(u64, Bytes)>,
    recovery: Recovery,
    /// What a timeout sends, whatever the window says.
    probes: VecDeque<Vec<Chunk>>,
    /// Newest last; at most [`ACKS_MAX`].
    arrived: VecDeque<u64>,
    owes_ack: bool,
    /// When what arrived alone is acknowledged, and since when it waits for that.
    ack_at: Option<(Time, Time)>,
    mtu: MtuSearch,
    /// A QUIC server that does not know yet whether the client is where it seems to be.
    unproven: Option<Unproven>,
}

/// An address from which a client seems to send (RFC 9000 section 9.3).
#[derive(Clone, Copy, Debug)]
struct Unproven {
    /// The first packet that went there; whoever acknowledges it is there.
    challenge: u64,
    is_challenged: bool,
    /// Bytes that may be sent there.
    credit: usize,
}

/// How far the connection itself is, beneath the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// SYN or its answer is to be sent.
    Due,
    /// It is under way.
    Sent,
    /// There is nothing to open any more.
    Done,
    /// QUIC's first packet is being made.
    Making,
    /// The server waits for a SYN.
    Waiting,
}

/// What a segment is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Opening,
    Plain,
    Probe,
}

impl Connection {
    pub(crate) fn new(carrier: CarrierKind, end: End, now: Time) -> Self {
        let transport = transport(carrier);
        let opening = match (transport, end) {
            (Transport::Quic, End::Client) => Opening::Making,
            (Transport::Quic, End::Server) => Opening::Done,
            (Transport::Tcp, End::Client) => Opening::Due,
            (Transport::Tcp, End::Server) => Opening::Waiting,
        };
        let mut connection = Self {
            end,
            transport,
            handshake: Handshake::new(carrier, end),
            opening,
            began: now,
            first_rtt: None,
            next_number: 0,
            outgoing: Outgoing::default(),
            incoming: BTreeMap::new(),
            read: VecDeque::new(),
            recovery: Recovery::new(transport, now),
            probes: VecDeque::new(),
            arrived: VecDeque::new(),
            owes_ack: false,
            ack_at: None,
            mtu: MtuSearch::new(),
            unproven: None,
        };
        if opening == Opening::Done {
            connection.shake_hands();
        }
        connection
    }

    /// Makes the end of a server that takes connections and says nothing on them.
    pub(crate) fn mute(carrier: CarrierKind, now: Time) -> Self {
        Self { handshake: Handshake::ignored(), ..Self::new(carrier, End::Server, now) }
    }

    /// Says whether anything is to be sent, or under way.
    pub(crate) fn is_busy(&self) -> bool {
        !self.outgoing.is_empty() || !self.probes.is_empty() || self.recovery.is_waiting()
    }

    /// Says whether any byte has arrived.
    pub(crate) fn has_data(&self) -> bool {
        !self.incoming.is_empty()
    }

    /// Says whether the handshake is complete at this end.
    pub(crate) const fn is_open(&self) -> bool {
        self.handshake.is_done()
    }

    /// Says whether the other end has said anything.
    pub(crate) const fn is_answered(&self) -> bool {
        self.first_rtt.is_some()
    }

    /// Returns the time of a round trip, as the handshake showed it.
    pub(crate) fn rtt(&self) -> Duration {
        let measured = match self.transport {
            Transport::Quic => self.recovery.smoothed_rtt(),
            Transport::Tcp => self.first_rtt,
        };
        measured.unwrap_or_default()
    }

    /// Says whether as much waits to be sent as a socket takes.
    pub(crate) const fn is_full(&self) -> bool {
        self.outgoing.unsent_bytes() >= UNSENT_BYTES_MAX
    }

    /// Appends to a stream.
    pub(crate) fn write(&mut self, stream: u64, data: Bytes) {
        let stream = match self.transport {
            Transport::Quic => stream,
            Transport::Tcp => 0,
        };
        self.outgoing.push(stream, data);
    }

    /// Returns what arrived next, once the handshake is complete.
    pub(crate) fn read(&mut self) -> Option<(u64, Bytes)> {
        if self.is_open() { self.read.pop_front() } else { None }
    }

    /// Takes in that the client seems to have moved: until it proves that, it is sent three times what it sends.
    pub(crate) fn handle_moved(&mut self) {
        if self.transport == Transport::Quic && self.is_open() {
            self.unproven = Some(Unproven { challenge: self.next_number, is_challenged: false, credit: 0 });
        }
    }

    pub(crate) fn handle_segment(&mut self, segment: Segment, now: Time) {
        if segment.opens && self.opening == Opening::Waiting {
            self.opening = Opening::Due;
        } else if segment.opens && self.end == End::Server {
            // SYN came again: its answer was lost, or is late.
            self.owes_ack = true;
        }
        if segment.is_answered() && !self.arrived.contains(&segment.number) {
            self.note_arrival(segment.number, now);
            self.arrived.push_back(segment.number);
            if self.arrived.len() > ACKS_MAX {
                self.arrived.pop_front();
            }
        }
        self.first_rtt.get_or_insert(now.since(self.began));
        let lost = self.recovery.handle_acks(&segment.acks, segment.ack_delay, !self.outgoing.is_empty(), now);
        self.outgoing.lose(lost);
        self.learn_mtu(&segment.acks);
        if let Some(unproven) = &mut self.unproven {
            unproven.credit += AMPLIFICATION * segment.ip_bytes(self.transport, false);
            if segment.acks.contains(&unproven.challenge) {
                self.unproven = None;
            }
        }
        if self.opening == Opening::Sent && !segment.acks.is_empty() {
            self.opening = Opening::Done;
        }
        for Chunk { stream, offset, data } in segment.chunks {
            let read = &mut self.read;
            let incoming = self.incoming.entry(stream).or_default();
            incoming.take(offset, data, &mut |data| {
                if stream != HANDSHAKE {
                    read.push_back((stream, data));
                }
            });
        }
        if self.opening == Opening::Done {
            self.shake_hands();
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        self.owes_ack |= self.ack_at.is_some_and(|(at, _)| at <= now);
        let (lost, expired) = self.recovery.handle_timeout(now);
        self.outgoing.lose(lost);
        self.learn_mtu(&[]);
        match expired {
            None => {}
            Some(Expired::Open) => self.opening = Opening::Due,
            Some(Expired::Probe(packets)) => self.probes.extend(packets),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let may_send = self.opening == Opening::Done && self.unproven.is_none() && !self.outgoing.is_empty();
        let paced = self.recovery.paced_until().filter(|_| may_send);
        let ack = self.ack_at.map(|(at, _)| at).filter(|_| !self.owes_ack);
        let hello = (self.opening == Opening::Making).then(|| self.began + QUIC_HELLO_TIME);
        [self.recovery.poll_timeout(), paced, ack, hello].into_iter().flatten().min()
    }

    /// Returns the next segment to send.
    pub(crate) fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        if self.opening == Opening::Making && now >= self.began + QUIC_HELLO_TIME {
            self.opening = Opening::Done;
            self.shake_hands();
        }
        if self.opening == Opening::Due {
            self.opening = Opening::Sent;
            return Some(self.segment(Vec::new(), Kind::Opening, now));
        }
        if let Some(unproven) = self.unproven.as_mut().filter(|unproven| !unproven.is_challenged) {
            unproven.is_challenged = true;
            // An empty piece of a stream is acknowledged as a PATH_CHALLENGE is answered.
            let challenge = Chunk { stream: 0, offset: 0, data: Bytes::new() };
            return Some(self.segment(vec![challenge], Kind::Plain, now));
        }
        if let Some(mut chunks) = self.probes.pop_front() {
            if chunks == [ping()] && !self.outgoing.is_empty() {
                chunks = self.outgoing.take(self.segment_bytes());
            }
            // QUIC's timeout took them from where they were.
            let kind = if self.transport == Transport::Tcp { Kind::Probe } else { Kind::Plain };
            return Some(self.segment(chunks, kind, now));
        }
        // Whoever uses the connection hears that it is open a little later than it does itself.
        if self.mtu.is_untried()
            && !self.outgoing.has(HANDSHAKE)
            && let Some(segment) = self.search_mtu(now)
        {
            return Some(segment);
        }
        let full = self.segment_bytes();
        let may_send = self.unproven.is_none_or(|unproven| unproven.credit >= full);
        if self.opening == Opening::Done && may_send && !self.outgoing.is_empty() && self.recovery.has_room(now) {
            let chunks = self.outgoing.take(full);
            if !chunks.is_empty() {
                if let Some(unproven) = &mut self.unproven {
                    unproven.credit -= full;
                }
                return Some(self.segment(chunks, Kind::Plain, now));
            }
        }
        if self.owes_ack {
            return Some(self.segment(Vec::new(), Kind::Plain, now));
        }
        self.search_mtu(now)
    }

    /// Makes the segment that says goodbye.
    pub(crate) fn goodbye(&mut self, now: Time) -> Segment {
        Segment { closes: true, ..self.segment(Vec::new(), Kind::Plain, now) }
    }

    fn segment(&mut self, chunks: Vec<Chunk>, kind: Kind, now: Time) -> Segment {
        self.padded(chunks, 0, kind, now)
    }

    fn padded(&mut self, chunks: Vec<Chunk>, padding: usize, kind: Kind, now: Time) -> Segment {
        let opens = kind == Kind::Opening;
        let number = self.next_number;
        self.next_number += 1;
        self.owes_ack = false;
        let ack_delay = self.ack_at.take().map_or(Duration::ZERO, |(_, since)| now.since(since));
        let acks = self.arrived.iter().copied().collect();
        let segment = Segment { number, acks, ack_delay, chunks, padding, opens, closes: false };
        if segment.is_answered() {
            self.recovery.handle_sent(&segment, kind == Kind::Probe, now);
        }
        segment
    }

    /// Takes in that a packet has to be acknowledged: at once, but for one of QUIC that comes alone and in order (RFC 9000 section
    /// 13.2.2).
    fn note_arrival(&mut self, number: u64, now: Time) {
        let is_next = self.arrived.iter().max().is_some_and(|newest| newest + 1 == number);
        let is_alone = self.transport == Transport::Quic && self.is_open() && self.ack_at.is_none();
        if is_next && is_alone && !self.owes_ack {
            self.ack_at = Some((now + QUIC_ACK_DELAY, now));
        } else {
            self.owes_ack = true;
            self.ack_at = None;
        }
    }

    /// Returns the bytes of streams that fit a packet, as far as is known of the path.
    const fn segment_bytes(&self) -> usize {
        match self.transport {
            Transport::Quic => self.mtu.datagram_bytes() - QUIC_BYTES,
            Transport::Tcp => self.transport.segment_bytes(),
        }
    }

    /// Tries a longer datagram, once QUIC is open and knows where its peer is.
    fn search_mtu(&mut self, now: Time) -> Option<Segment> {
        if self.transport != Transport::Quic || !self.is_open() || self.unproven.is_some() {
            return None;
        }
        let bytes = self.mtu.poll(self.next_number)?;
        Some(self.padded(vec![ping()], bytes - QUIC_BYTES, Kind::Plain, now))
    }

    /// Takes in what became of a longer datagram.
    fn learn_mtu(&mut self, acks: &[u64]) {
        if let Some(number) = self.mtu.under_way().filter(|number| !self.recovery.awaits(*number)) {
            self.mtu.handle_result(acks.contains(&number));
            self.recovery.handle_segment_bytes(self.segment_bytes());
        }
    }

    /// Sends the flights of the handshake whose turn has come.
    fn shake_hands(&mut self) {
        let arrived = self.incoming.get(&HANDSHAKE).map_or(0, |incoming| incoming.arrived);
        if let Some(bytes) = self.handshake.next(arrived) {
            let bytes = usize::try_from(bytes).expect("a flight is a few kilobytes");
            self.outgoing.push(HANDSHAKE, Bytes::from(vec![0; bytes]));
        }
    }
}

/// By how much what a server sends to an unproven address may exceed what came from there; RFC 9000 section 8.
const AMPLIFICATION: usize = 3;

/// By how much QUIC's first packet is later than TCP's: keys are made before it, and while SYN is under way. 0.6 ms; measured in the lab.
const QUIC_HELLO_TIME: Duration = Duration::from_micros(600);

/// Packets that one acknowledgement names: those of a few windows' loss.
const ACKS_MAX: usize = 64;

/// Bytes a socket takes before they are sent. 128 KiB; Linux gives a new TCP socket 16 KiB and lets it grow.
const UNSENT_BYTES_MAX: usize = 128 * 1024;
