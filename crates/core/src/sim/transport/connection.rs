//! One end of a connection, whatever carries it.

use std::time::Duration;

use bytes::Bytes;

use super::{End, Segment, Transport, handshake::transport, quic::Quic, tcp::Tcp};
use crate::{CarrierKind, Time};

/// One end of a connection. The owner moves its segments, in the verbs of the other machines.
#[derive(Clone, Debug)]
pub(crate) enum Connection {
    Quic(Box<Quic>),
    Tcp(Box<Tcp>),
}

impl Connection {
    pub(crate) fn new(carrier: CarrierKind, end: End, now: Time) -> Self {
        match transport(carrier) {
            Transport::Quic => Self::Quic(Box::new(Quic::new(end, now))),
            Transport::Tcp => Self::Tcp(Box::new(Tcp::new(carrier, end, now))),
        }
    }

    /// Makes the end of a server that takes connections and says nothing on them.
    pub(crate) fn mute(carrier: CarrierKind, now: Time) -> Self {
        match transport(carrier) {
            Transport::Quic => Self::Quic(Box::new(Quic::mute(now))),
            Transport::Tcp => Self::Tcp(Box::new(Tcp::mute(carrier, now))),
        }
    }

    /// Says whether anything is to be sent, or under way.
    pub(crate) fn is_busy(&self) -> bool {
        match self {
            Self::Quic(quic) => quic.is_busy(),
            Self::Tcp(tcp) => tcp.is_busy(),
        }
    }

    /// Says whether any byte of TCP has arrived.
    pub(crate) fn has_data(&self) -> bool {
        match self {
            Self::Quic(_) => false,
            Self::Tcp(tcp) => tcp.has_data(),
        }
    }

    /// Says whether the handshake is complete at this end.
    pub(crate) const fn is_open(&self) -> bool {
        match self {
            Self::Quic(quic) => quic.is_open(),
            Self::Tcp(tcp) => tcp.is_open(),
        }
    }

    /// Says whether the other end has said anything.
    pub(crate) fn is_answered(&self) -> bool {
        match self {
            Self::Quic(quic) => quic.is_answered(),
            Self::Tcp(tcp) => tcp.is_answered(),
        }
    }

    /// Returns the time of a round trip, as the handshake showed it.
    pub(crate) fn rtt(&self) -> Duration {
        match self {
            Self::Quic(quic) => quic.rtt(),
            Self::Tcp(tcp) => tcp.rtt(),
        }
    }

    /// Says whether as much waits to be sent as a socket takes.
    pub(crate) const fn is_full(&self) -> bool {
        let unsent = match self {
            Self::Quic(quic) => quic.unsent_bytes(),
            Self::Tcp(tcp) => tcp.unsent_bytes(),
        };
        unsent >= UNSENT_BYTES_MAX
    }

    /// Appends to a stream; TCP has one.
    pub(crate) fn write(&mut self, stream: u64, data: Bytes) {
        match self {
            Self::Quic(quic) => quic.write(stream, data),
            Self::Tcp(tcp) => tcp.write(data),
        }
    }

    /// Returns what arrived next, once the handshake is complete.
    pub(crate) fn read(&mut self) -> Option<(u64, Bytes)> {
        match self {
            Self::Quic(quic) => quic.read(),
            Self::Tcp(tcp) => tcp.read(),
        }
    }

    /// Takes in that the client seems to have moved: until it proves that, it is sent three times what it sends.
    pub(crate) fn handle_moved(&mut self, now: Time) {
        match self {
            Self::Quic(quic) => quic.handle_moved(now),
            Self::Tcp(_) => {}
        }
    }

    /// Takes a segment of the other end; one of another transport is none of this connection.
    pub(crate) fn handle_segment(&mut self, segment: Segment, now: Time) {
        match (self, segment.body) {
            (Self::Quic(quic), super::Body::Quic(datagram)) => quic.handle_datagram(datagram, now),
            (Self::Tcp(tcp), super::Body::Tcp(body)) => tcp.handle_segment(segment.opens, body, now),
            (Self::Quic(_), super::Body::Tcp(_)) | (Self::Tcp(_), super::Body::Quic(_)) => {}
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Time) {
        match self {
            Self::Quic(quic) => quic.handle_timeout(now),
            Self::Tcp(tcp) => tcp.handle_timeout(now),
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        match self {
            Self::Quic(quic) => quic.poll_timeout(),
            Self::Tcp(tcp) => tcp.poll_timeout(),
        }
    }

    /// Returns the next segment to send.
    pub(crate) fn poll_transmit(&mut self, now: Time) -> Option<Segment> {
        match self {
            Self::Quic(quic) => quic.poll_transmit(now).map(Segment::quic),
            Self::Tcp(tcp) => tcp.poll_transmit(now),
        }
    }

    /// Makes the segment that says goodbye.
    pub(crate) fn goodbye(&mut self, now: Time) -> Segment {
        let last = match self {
            Self::Quic(_) => Segment::quic(super::quic::Datagram::goodbye()),
            Self::Tcp(tcp) => tcp.goodbye(now),
        };
        Segment { closes: true, ..last }
    }
}

/// Bytes a socket takes before they are sent. 128 KiB; Linux gives a new TCP socket 16 KiB and lets it grow.
const UNSENT_BYTES_MAX: usize = 128 * 1024;
