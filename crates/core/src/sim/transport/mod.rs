//! Models of TCP with TLS and of QUIC: handshakes by their round trips, loss recovery, slow start, order within a stream.
//!
//! Both ends of a connection are a [`Connection`]. It has the bytes of its streams really, and everything else by its length: the
//! flights of a handshake, headers, and what encryption adds. TCP has one stream; QUIC has as many as are written to, and what one
//! lost holds none of the others up. QUIC is modelled as noq has it, beside which the tests run it: packet number spaces, what is
//! acknowledged when, what a timeout sends and how late, how it paces, and how it looks for longer packets. Of TCP, acknowledgements
//! name packets; with selective acknowledgement and timestamps it knows as much.

mod connection;
mod handshake;
mod pacer;
mod quic;
mod recovery;
mod streams;
mod tcp;

pub(crate) use connection::Connection;
pub(crate) use handshake::transport;

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
    /// TCP's SYN, or the answer to it.
    pub(crate) opens: bool,
    /// The sender is done with the connection.
    pub(crate) closes: bool,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Quic(quic::Datagram),
    Tcp(tcp::Content),
}

/// A piece of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    stream: u64,
    offset: u64,
    data: Bytes,
}

impl Segment {
    const fn quic(datagram: quic::Datagram) -> Self {
        Self { opens: false, closes: false, body: Body::Quic(datagram) }
    }

    /// Says whether the client's first words of TLS are in it.
    pub(crate) fn has_client_hello(&self, from: End) -> bool {
        let begins = |chunk: &Chunk| chunk.stream == HANDSHAKE && chunk.offset == 0;
        from == End::Client
            && match &self.body {
                Body::Quic(datagram) => datagram.is_first(),
                Body::Tcp(content) => content.chunks.iter().any(begins),
            }
    }

    /// Counts the bytes of the IP packet.
    pub(crate) fn ip_bytes(&self, transport: Transport, is_v6: bool) -> usize {
        debug_assert!(matches!(
            (&self.body, transport),
            (Body::Quic(_), Transport::Quic) | (Body::Tcp(_), Transport::Tcp)
        ));
        let ip = if is_v6 { 40 } else { 20 };
        ip + match &self.body {
            Body::Quic(datagram) => UDP_BYTES + datagram.bytes,
            Body::Tcp(content) => content.tcp_bytes(),
        }
    }
}

/// The stream of a handshake, which no application uses.
const HANDSHAKE: u64 = u64::MAX;

/// Header of UDP.
const UDP_BYTES: usize = 8;

#[cfg(test)]
mod tests;
