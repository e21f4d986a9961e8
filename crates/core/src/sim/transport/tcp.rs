//! One end of a connection of TLS over TCP.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use super::{
    Body, Chunk, End, HANDSHAKE, Segment,
    handshake::{Handshake, TICKETS_BYTES},
    recovery::{Expired, Recovery},
    streams::{Incoming, Mixed, Outgoing},
};
use crate::{CarrierKind, Time};

/// One end of a connection of TLS over TCP.
#[derive(Clone, Debug)]
pub(crate) struct Tcp {
    end: End,
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
}

/// What a segment carries.
#[derive(Clone, Debug)]
pub(super) struct Content {
    number: u64,
    /// The newest segments that arrived at the sender.
    acks: Vec<u64>,
    pub(super) chunks: Vec<Chunk>,
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

impl Content {
    /// Counts the bytes of the segment with its header.
    pub(super) fn tcp_bytes(&self) -> usize {
        let data = self.chunks.iter().map(|chunk| chunk.data.len()).sum::<usize>();
        let is_handshake = self.chunks.iter().any(|chunk| chunk.stream == HANDSHAKE);
        TCP_BYTES + data + if data == 0 || is_handshake { 0 } else { TLS_BYTES }
    }
}

impl Tcp {
    pub(super) fn new(carrier: CarrierKind, end: End, now: Time) -> Self {
        Self {
            end,
            handshake: Handshake::new(carrier, end),
            opening: if end == End::Client { Opening::Due } else { Opening::Waiting },
            began: now,
            first_rtt: None,
            next_number: 0,
            outgoing: Outgoing::default(),
            incoming: BTreeMap::new(),
            read: VecDeque::new(),
            recovery: Recovery::new(now),
            probes: VecDeque::new(),
            arrived: VecDeque::new(),
            owes_ack: false,
        }
    }

    /// Makes the end of a server that takes connections and says nothing on them.
    pub(super) fn mute(carrier: CarrierKind, now: Time) -> Self {
        Self { handshake: Handshake::ignored(), ..Self::new(carrier, End::Server, now) }
    }

    pub(super) fn is_busy(&self) -> bool {
        !self.outgoing.is_empty() || !self.probes.is_empty() || self.recovery.is_waiting()
    }

    pub(super) fn has_data(&self) -> bool {
        !self.incoming.is_empty()
    }

    pub(super) const fn is_open(&self) -> bool {
        self.handshake.is_done()
    }

    pub(super) const fn is_answered(&self) -> bool {
        self.first_rtt.is_some()
    }

    pub(super) fn rtt(&self) -> Duration {
        self.first_rtt.unwrap_or_default()
    }

    pub(super) const fn unsent_bytes(&self) -> usize {
        self.outgoing.unsent_bytes()
    }

    pub(super) fn write(&mut self, data: Bytes) {
        self.outgoing.push(0, data);
    }

    pub(super) fn read(&mut self) -> Option<(u64, Bytes)> {
        if self.is_open() { self.read.pop_front() } else { None }
    }

    pub(super) fn handle_segment(&mut self, opens: bool, content: Content, now: Time) {
        let Content { number, acks, chunks } = content;
        if opens && self.opening == Opening::Waiting {
            self.opening = Opening::Due;
        } else if opens && self.end == End::Server {
            // SYN came again: its answer was lost, or is late.
            self.owes_ack = true;
        }
        if is_answered(opens, &chunks) && !self.arrived.contains(&number) {
            self.owes_ack = true;
            self.arrived.push_back(number);
            if self.arrived.len() > ACKS_MAX {
                self.arrived.pop_front();
            }
        }
        self.first_rtt.get_or_insert(now.since(self.began));
        let lost = self.recovery.handle_acks(&acks, !self.outgoing.is_empty(), now);
        self.outgoing.lose(lost);
        if self.opening == Opening::Sent && !acks.is_empty() {
            self.opening = Opening::Done;
        }
        for Chunk { stream, offset, data } in chunks {
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

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let (lost, expired) = self.recovery.handle_timeout(now);
        self.outgoing.lose(lost);
        match expired {
            None => {}
            Some(Expired::Open) => self.opening = Opening::Due,
            Some(Expired::Probe(chunks)) => self.probes.push_back(chunks),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let may_send = self.opening == Opening::Done && !self.outgoing.is_empty();
        let paced = self.recovery.paced_until().filter(|_| may_send);
        [self.recovery.poll_timeout(), paced].into_iter().flatten().min()
    }

    /// Returns the next segment to send.
    pub(super) fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        if self.opening == Opening::Due {
            self.opening = Opening::Sent;
            return Some(self.segment(Vec::new(), Kind::Opening, now));
        }
        if let Some(chunks) = self.probes.pop_front() {
            return Some(self.segment(chunks, Kind::Probe, now));
        }
        if self.opening == Opening::Done && !self.outgoing.is_empty() && self.recovery.has_room(now) {
            let chunks = self.outgoing.take(SEGMENT_BYTES, Mixed::No);
            if !chunks.is_empty() {
                return Some(self.segment(chunks, Kind::Plain, now));
            }
        }
        self.owes_ack.then(|| self.segment(Vec::new(), Kind::Plain, now))
    }

    /// Makes the segment that says goodbye.
    pub(super) fn goodbye(&mut self, now: Time) -> Segment {
        self.segment(Vec::new(), Kind::Plain, now)
    }

    fn segment(&mut self, chunks: Vec<Chunk>, kind: Kind, now: Time) -> Segment {
        let opens = kind == Kind::Opening;
        let number = self.next_number;
        self.next_number += 1;
        self.owes_ack = false;
        if is_answered(opens, &chunks) {
            self.recovery.handle_sent(number, &chunks, opens, kind == Kind::Probe, now);
        }
        let content = Content { number, acks: self.arrived.iter().copied().collect(), chunks };
        Segment { opens, closes: false, body: Body::Tcp(content) }
    }

    /// Sends the flights of the handshake whose turn has come.
    fn shake_hands(&mut self) {
        let arrived = self.incoming.get(&HANDSHAKE).map_or(0, |incoming| incoming.arrived);
        let was_open = self.is_open();
        let mut due = self.handshake.next(arrived).unwrap_or_default();
        if self.end == End::Server && self.is_open() && !was_open {
            due += TICKETS_BYTES;
        }
        if due > 0 {
            let bytes = usize::try_from(due).expect("a flight is a few kilobytes");
            self.outgoing.push(HANDSHAKE, Bytes::from(vec![0; bytes]));
        }
    }
}

/// Says whether the other end must acknowledge a segment.
const fn is_answered(opens: bool, chunks: &[Chunk]) -> bool {
    opens || !chunks.is_empty()
}

/// Segments that one acknowledgement names: those of a few windows' loss.
const ACKS_MAX: usize = 64;

/// Header of TCP with its timestamps (RFC 9293, RFC 7323).
const TCP_BYTES: usize = 32;

/// What a TLS record adds to what it carries (RFC 8446 section 5.2: header, content type, tag).
const TLS_BYTES: usize = 22;

/// Bytes of streams that fit a segment: an IPv6 packet of 1,500 bytes, which IPv4 would exceed by 20, less the headers and a record's.
pub(super) const SEGMENT_BYTES: usize = 1_500 - 40 - TCP_BYTES - TLS_BYTES;
