//! What QUIC's datagrams carry.

use std::{collections::BTreeSet, time::Duration};

use super::super::{Chunk, HANDSHAKE};

/// A datagram: packets of one or more spaces, and what fills it up.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Datagram {
    pub(super) packets: Vec<Packet>,
    /// Bytes of UDP's payload.
    pub(in super::super) bytes: usize,
}

/// One packet.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) space: Space,
    pub(super) number: u64,
    pub(super) ack: Option<Ack>,
    pub(super) chunks: Vec<Chunk>,
    pub(super) has_ping: bool,
    pub(super) has_challenge: bool,
    pub(super) has_response: bool,
}

/// What arrived at the sender of a packet.
#[derive(Clone, Debug)]
pub(super) struct Ack {
    pub(super) numbers: BTreeSet<u64>,
    /// How long the largest of them waited for this.
    pub(super) delay: Duration,
}

/// A packet number space (RFC 9000 section 12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Space {
    Initial,
    Handshake,
    Data,
}

impl Datagram {
    /// Makes the one that says goodbye.
    pub(in super::super) const fn goodbye() -> Self {
        Self { packets: Vec::new(), bytes: GOODBYE_BYTES }
    }

    /// Says whether the first bytes of a handshake are in it.
    pub(in super::super) fn is_first(&self) -> bool {
        let begins =
            |packet: &Packet| packet.space == Space::Initial && packet.chunks.iter().any(|chunk| chunk.offset == 0);
        self.packets.iter().any(begins)
    }
}

impl Packet {
    /// Makes one that carries nothing.
    pub(super) const fn empty(space: Space, number: u64) -> Self {
        Self {
            space,
            number,
            ack: None,
            chunks: Vec::new(),
            has_ping: false,
            has_challenge: false,
            has_response: false,
        }
    }

    /// Says whether the other end must acknowledge it.
    pub(super) const fn is_eliciting(&self) -> bool {
        self.has_ping || self.has_challenge || self.has_response || !self.chunks.is_empty()
    }

    /// Counts its bytes.
    pub(super) fn bytes(&self) -> usize {
        let ack = self.ack.as_ref().map_or(0, Ack::bytes);
        let chunks: usize = self.chunks.iter().map(|chunk| CHUNK_BYTES + chunk.data.len()).sum();
        let path = usize::from(self.has_challenge) + usize::from(self.has_response);
        self.space.overhead_bytes() + ack + chunks + usize::from(self.has_ping) + path * PATH_FRAME_BYTES
    }
}

impl Ack {
    /// Counts the bytes of the frame: one range is in its head, each other takes a gap and a length.
    pub(super) fn bytes(&self) -> usize {
        let begins_range = |number: &&u64| number.checked_sub(1).is_none_or(|before| !self.numbers.contains(&before));
        ACK_BYTES + ACK_RANGE_BYTES * self.numbers.iter().filter(begins_range).count().saturating_sub(1)
    }
}

impl Space {
    pub(super) const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Data];

    /// Bytes that a packet's header and its tag take.
    pub(super) const fn overhead_bytes(self) -> usize {
        match self {
            Self::Initial => 45,
            Self::Handshake => 43,
            Self::Data => 27,
        }
    }
}

/// Says whether a piece is of TLS, or of the connection itself.
pub(super) const fn is_control(chunk: &Chunk) -> bool {
    chunk.stream == HANDSHAKE
}

/// Head of a CRYPTO or STREAM frame (RFC 9000 sections 19.6 and 19.8): type, stream, offset and length.
pub(super) const CHUNK_BYTES: usize = 6;

/// An ACK frame of one range (section 19.3).
const ACK_BYTES: usize = 5;

/// Bytes of a further range.
const ACK_RANGE_BYTES: usize = 2;

/// PATH_CHALLENGE or PATH_RESPONSE (sections 19.17 and 19.18).
const PATH_FRAME_BYTES: usize = 9;

/// A packet with CONNECTION_CLOSE and no words (section 19.19).
const GOODBYE_BYTES: usize = 31;
