//! The one frame format of all carriers: type, flags, channel, length, payload.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use thiserror::Error;

use super::varint;

/// What a frame is, with its number on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Who the client is; the first frame of a link.
    Hello = 0x01,
    /// A challenge, or the signature that binds HELLO to this connection.
    Proof = 0x02,
    /// The gateway accepted the link.
    Welcome = 0x03,
    /// The gateway closes the link and says why.
    Refuse = 0x04,
    /// Asks for a PONG with the same payload.
    Ping = 0x05,
    /// Answers a PING.
    Pong = 0x06,
    /// Grants body bytes on a channel, or on the whole link (channel 0).
    Credit = 0x07,
    /// The head of a request: a field block.
    Request = 0x10,
    /// The head of an answer: a field block.
    Response = 0x11,
    /// Bytes of a body.
    Body = 0x12,
    /// A field block after the body; ends it.
    Trailers = 0x13,
    /// Ends an exchange without completing it.
    Reset = 0x14,
    /// Opens a channel of opaque bytes.
    Stream = 0x15,
    /// Topics the client wants.
    Subscribe = 0x20,
    /// Topics the client no longer wants.
    Unsubscribe = 0x21,
    /// A message for the app.
    Push = 0x22,
    /// What the client was shown, and which field blocks it decoded.
    Ack = 0x23,
    /// Asks for every message after a sequence number.
    Sync = 0x24,
    /// Asks whether the client is still there.
    Probe = 0x25,
    /// Sends the client to another unit.
    Redirect = 0x30,
    /// An access list.
    List = 0x31,
    /// Constants of the client's behaviour.
    Policy = 0x32,
    /// The gateway will close; the client should move.
    Drain = 0x33,
}

impl Kind {
    /// Every kind, in the order of the wire.
    pub const ALL: [Self; 23] = [
        Self::Hello,
        Self::Proof,
        Self::Welcome,
        Self::Refuse,
        Self::Ping,
        Self::Pong,
        Self::Credit,
        Self::Request,
        Self::Response,
        Self::Body,
        Self::Trailers,
        Self::Reset,
        Self::Stream,
        Self::Subscribe,
        Self::Unsubscribe,
        Self::Push,
        Self::Ack,
        Self::Sync,
        Self::Probe,
        Self::Redirect,
        Self::List,
        Self::Policy,
        Self::Drain,
    ];

    /// Returns the kind with this number, `None` if version 1 has none.
    #[must_use]
    pub const fn from_wire(number: u8) -> Option<Self> {
        Some(match number {
            0x01 => Self::Hello,
            0x02 => Self::Proof,
            0x03 => Self::Welcome,
            0x04 => Self::Refuse,
            0x05 => Self::Ping,
            0x06 => Self::Pong,
            0x07 => Self::Credit,
            0x10 => Self::Request,
            0x11 => Self::Response,
            0x12 => Self::Body,
            0x13 => Self::Trailers,
            0x14 => Self::Reset,
            0x15 => Self::Stream,
            0x20 => Self::Subscribe,
            0x21 => Self::Unsubscribe,
            0x22 => Self::Push,
            0x23 => Self::Ack,
            0x24 => Self::Sync,
            0x25 => Self::Probe,
            0x30 => Self::Redirect,
            0x31 => Self::List,
            0x32 => Self::Policy,
            0x33 => Self::Drain,
            _ => return None,
        })
    }

    /// Says whether frames of this kind belong to one exchange and travel, on `quic`, on that exchange's own stream.
    #[must_use]
    pub const fn is_exchange(self) -> bool {
        matches!(self, Self::Request | Self::Response | Self::Body | Self::Trailers | Self::Reset | Self::Stream)
    }
}

/// The flags byte of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// The sender's last frame of this exchange.
    pub const END: Self = Self(0x01);
    /// A receiver that does not know the kind skips the frame.
    pub const IGNORABLE: Self = Self(0x02);
    /// No flag.
    pub const NONE: Self = Self(0);

    /// Says whether every flag of `other` is set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A frame that owns its payload: what a machine sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What the frame is.
    pub kind: Kind,
    /// Its flags.
    pub flags: Flags,
    /// The exchange it belongs to; zero is the link itself.
    pub channel: u64,
    /// Its payload, at most the negotiated size.
    pub payload: Bytes,
}

impl Frame {
    /// Makes a frame of the link itself with a protobuf payload.
    #[must_use]
    pub fn control(kind: Kind, message: &impl Message) -> Self {
        Self { kind, flags: Flags::NONE, channel: 0, payload: message.encode_to_vec().into() }
    }

    /// Returns how many bytes [`encode_head`](Self::encode_head) writes.
    #[must_use]
    pub fn head_length(&self) -> usize {
        2 + varint::length(self.channel) + varint::length(self.payload.len() as u64)
    }

    /// Writes everything that stands before the payload.
    pub fn encode_head(&self, out: &mut impl BufMut) {
        out.put_u8(self.kind as u8);
        out.put_u8(self.flags.0);
        varint::write(self.channel, out);
        varint::write(self.payload.len() as u64, out);
    }

    /// Writes the whole frame.
    pub fn encode(&self, out: &mut impl BufMut) {
        self.encode_head(out);
        out.put_slice(&self.payload);
    }

    /// Borrows the frame in the shape a receiver sees.
    #[must_use]
    pub fn as_ref(&self) -> FrameRef<'_> {
        FrameRef { kind: self.kind, flags: self.flags, channel: self.channel, payload: &self.payload }
    }
}

/// A frame whose payload is borrowed from the carrier's scratch: what a machine receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRef<'a> {
    /// What the frame is.
    pub kind: Kind,
    /// Its flags.
    pub flags: Flags,
    /// The exchange it belongs to; zero is the link itself.
    pub channel: u64,
    /// Its payload.
    pub payload: &'a [u8],
}

impl FrameRef<'_> {
    /// Decodes a protobuf payload.
    ///
    /// # Errors
    ///
    /// [`FrameError::BadPayload`] if it is none.
    pub fn message<M: Message + Default>(&self) -> Result<M, FrameError> {
        M::decode(self.payload).map_err(|_| FrameError::BadPayload { kind: self.kind })
    }

    /// Copies the payload.
    #[must_use]
    pub fn to_owned(&self) -> Frame {
        Frame {
            kind: self.kind,
            flags: self.flags,
            channel: self.channel,
            payload: Bytes::copy_from_slice(self.payload),
        }
    }
}

/// Why bytes are no frame; every case closes the link.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The payload is not the message its kind promises.
    #[error("payload of {kind:?} is malformed")]
    BadPayload {
        /// Kind of the frame.
        kind: Kind,
    },
    /// The payload is longer than was negotiated.
    #[error("frame of {length} bytes is longer than the {max} negotiated")]
    Oversized {
        /// Length the frame claims.
        length: u64,
        /// Largest length agreed.
        max: usize,
    },
    /// The bytes ended inside a frame.
    #[error("connection ended inside a frame")]
    Truncated,
    /// The kind is unknown and not marked as ignorable.
    #[error("frame kind {0:#04x} is unknown")]
    UnknownKind(u8),
}

/// Cuts an ordered stream of bytes into frames, keeping nothing but an incomplete tail.
#[derive(Debug)]
pub struct Decoder {
    payload_bytes_max: usize,
    tail: Vec<u8>,
}

impl Decoder {
    /// Makes a decoder that takes payloads of at most `payload_bytes_max` bytes.
    #[must_use]
    pub const fn new(payload_bytes_max: usize) -> Self {
        Self { payload_bytes_max, tail: Vec::new() }
    }

    /// Changes the largest payload, once it is negotiated.
    pub const fn set_payload_bytes_max(&mut self, bytes: usize) {
        self.payload_bytes_max = bytes;
    }

    /// Returns how many bytes of an incomplete frame are kept.
    #[must_use]
    pub const fn kept_bytes(&self) -> usize {
        self.tail.len()
    }

    /// Takes the next bytes of the stream and passes every frame they complete to `sink`.
    ///
    /// # Errors
    ///
    /// The first [`FrameError`] of the bytes, or of the sink; the stream is of no use after it.
    pub fn feed<E: From<FrameError>>(
        &mut self,
        mut bytes: &[u8],
        sink: &mut dyn FnMut(FrameRef<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        while !self.tail.is_empty() && !bytes.is_empty() {
            let wanted = self.wanted()?.clamp(1, bytes.len());
            self.tail.extend_from_slice(&bytes[..wanted]);
            bytes.advance(wanted);
            if let Some((frame, _)) = decode(&self.tail, self.payload_bytes_max)? {
                if let Some(frame) = frame {
                    sink(frame)?;
                }
                self.tail = Vec::new();
            }
        }
        while let Some((frame, length)) = decode(bytes, self.payload_bytes_max)? {
            if let Some(frame) = frame {
                sink(frame)?;
            }
            bytes.advance(length);
        }
        self.tail.extend_from_slice(bytes);
        Ok(())
    }

    /// Checks that the stream ended between two frames.
    ///
    /// # Errors
    ///
    /// [`FrameError::Truncated`] if it did not.
    pub const fn finish(&self) -> Result<(), FrameError> {
        if self.tail.is_empty() { Ok(()) } else { Err(FrameError::Truncated) }
    }

    /// How many more bytes the frame in `tail` needs: one at a time until its length is known.
    fn wanted(&self) -> Result<usize, FrameError> {
        let Some(head) = Head::read(&self.tail) else { return Ok(1) };
        head.check(self.payload_bytes_max)?;
        Ok((head.bytes + head.length as usize).saturating_sub(self.tail.len()))
    }
}

/// Reads one frame from the front of `input`.
///
/// Returns the frame (`None` where it is of an unknown kind that may be skipped) and its length, or `None` if `input` ends before it does.
///
/// # Errors
///
/// A [`FrameError`] as soon as the head shows that the frame cannot be accepted.
pub fn decode(input: &[u8], payload_bytes_max: usize) -> Result<Option<(Option<FrameRef<'_>>, usize)>, FrameError> {
    let Some(head) = Head::read(input) else {
        return match input {
            [number, flags, ..] => known(*number, Flags(*flags)).map(|_| None),
            _ => Ok(None),
        };
    };
    let kind = head.check(payload_bytes_max)?;
    let end = head.bytes + head.length as usize;
    let Some(payload) = input.get(head.bytes..end) else { return Ok(None) };
    let frame = kind.map(|kind| FrameRef { kind, flags: head.flags, channel: head.channel, payload });
    Ok(Some((frame, end)))
}

struct Head {
    number: u8,
    flags: Flags,
    channel: u64,
    length: u64,
    bytes: usize,
}

impl Head {
    fn read(input: &[u8]) -> Option<Self> {
        let [number, flags, rest @ ..] = input else { return None };
        let (channel, channel_bytes) = varint::read(rest)?;
        let (length, length_bytes) = varint::read(&rest[channel_bytes..])?;
        let bytes = 2 + channel_bytes + length_bytes;
        Some(Self { number: *number, flags: Flags(*flags), channel, length, bytes })
    }

    fn check(&self, payload_bytes_max: usize) -> Result<Option<Kind>, FrameError> {
        let kind = known(self.number, self.flags)?;
        if self.length > payload_bytes_max as u64 {
            return Err(FrameError::Oversized { length: self.length, max: payload_bytes_max });
        }
        Ok(kind)
    }
}

fn known(number: u8, flags: Flags) -> Result<Option<Kind>, FrameError> {
    match Kind::from_wire(number) {
        None if !flags.contains(Flags::IGNORABLE) => Err(FrameError::UnknownKind(number)),
        kind => Ok(kind),
    }
}

/// Largest payload before anything is negotiated, bytes; the default afterwards too (DESIGN section 4).
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests;
