//! A small model of TCP with TLS and of QUIC: handshakes by their round trips, loss recovery, slow start, order within a stream. Of QUIC
//! it has what noq does besides, which the lab shows in medians: how it paces, asks after a loss, and looks for longer packets.
//!
//! Both ends of a connection are a [`Connection`]. It has the bytes of its streams really, and everything else by its length: the
//! flights of a handshake, headers, and what encryption adds. TCP has one stream; QUIC has as many as are written to, and what one
//! lost holds none of the others up. Acknowledgements name packets, as QUIC's do; TCP with selective acknowledgement and timestamps
//! knows as much.

mod connection;
mod handshake;
mod mtu;
mod pacer;
mod recovery;
mod streams;

pub(crate) use connection::Connection;
pub(crate) use handshake::transport;

use std::time::Duration;

use bytes::Bytes;

/// What carries a connection's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Transport {
    Quic,
    Tcp,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

/// What a packet of a connection carries.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) number: u64,
    /// The newest packets that arrived at the sender.
    acks: Vec<u64>,
    /// How long the newest of them waited for this.
    ack_delay: Duration,
    chunks: Vec<Chunk>,
    /// Bytes that say nothing.
    padding: usize,
    /// SYN, or the answer to it.
    pub(crate) opens: bool,
    /// The sender is done with the connection.
    pub(crate) closes: bool,
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    stream: u64,
    offset: u64,
    data: Bytes,
}

impl Segment {
    /// Says whether the client's first words of TLS are in it.
    pub(crate) fn has_client_hello(&self, from: End) -> bool {
        from == End::Client && self.chunks.iter().any(|chunk| chunk.stream == HANDSHAKE && chunk.offset == 0)
    }

    /// Says whether the other end must acknowledge it.
    fn is_answered(&self) -> bool {
        self.opens || !self.chunks.is_empty()
    }

    /// Counts the bytes of the IP packet.
    pub(crate) fn ip_bytes(&self, transport: Transport, is_v6: bool) -> usize {
        let data = self.chunks.iter().map(|chunk| chunk.data.len()).sum::<usize>() + self.padding;
        let ip = if is_v6 { 40 } else { 20 };
        let is_handshake = self.chunks.iter().any(|chunk| chunk.stream == HANDSHAKE);
        ip + match transport {
            Transport::Tcp => TCP_BYTES + data + if data == 0 || is_handshake { 0 } else { TLS_BYTES },
            // A datagram with an Initial is filled up (RFC 9000 section 14.1).
            Transport::Quic if is_handshake => UDP_BYTES + QUIC_DATAGRAM_BYTES,
            Transport::Quic => UDP_BYTES + QUIC_BYTES + data,
        }
    }
}

impl Transport {
    /// Returns the bytes of streams that fit a packet.
    const fn segment_bytes(self) -> usize {
        match self {
            Self::Quic => QUIC_DATAGRAM_BYTES - QUIC_BYTES,
            Self::Tcp => TCP_SEGMENT_BYTES - TLS_BYTES,
        }
    }
}

/// The stream of a handshake, which no application uses.
const HANDSHAKE: u64 = u64::MAX;

/// The stream of packets whose length alone matters; it has no bytes.
const PADDING: u64 = u64::MAX - 1;

/// Header of TCP with its timestamps (RFC 9293, RFC 7323).
const TCP_BYTES: usize = 32;

/// What a TLS record adds to what it carries (RFC 8446 section 5.2: header, content type, tag).
const TLS_BYTES: usize = 22;

/// Bytes a TCP segment carries in an IPv6 packet of 1,500 bytes, which IPv4 would exceed by 20.
const TCP_SEGMENT_BYTES: usize = 1_428;

/// Header of UDP.
const UDP_BYTES: usize = 8;

/// Smallest datagram a QUIC path must carry, and the one to begin with (RFC 9000 section 14).
const QUIC_DATAGRAM_BYTES: usize = 1_200;

/// What QUIC adds to what it carries: short header, connection id, number, tag, and the head of a STREAM or ACK frame.
const QUIC_BYTES: usize = 38;

#[cfg(test)]
mod tests;
