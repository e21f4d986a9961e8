//! One stream of a link over QUIC.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use bytes::{Buf, BytesMut};
use noq::{ConnectionError, ReadError, RecvStream, SendStream, WriteError};
use ropeway_core::{
    session::LinkError,
    wire::{Decoder, Flags, Frame, FrameRef, Kind, frame::PAYLOAD_BYTES_MAX},
};

use super::Streams;
use crate::{carrier::Sink, scratch::Scratch};

/// One stream with what it has not sent and not decoded. The control stream has no channel.
pub(super) struct Lane {
    send: Option<SendStream>,
    receive: Option<RecvStream>,
    unsent: BytesMut,
    decoder: Decoder,
    waker: Waker,
    role: LaneRole,
    early: bool,
    sent_end: bool,
    received_end: bool,
    /// RESET went or came: nothing follows from this end.
    reset: bool,
}

/// What a stream is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LaneRole {
    Control,
    /// An exchange this end opened.
    Opened(u64),
    /// An exchange the peer opened, once its first frame told the channel.
    Accepted(Option<u64>),
}

/// What came of reading a stream once.
pub(super) enum Read {
    /// The peer broke the stream off, or ended it without END or RESET.
    Broken,
    /// The peer's half is over.
    Ended,
    /// The connection is gone; it says why itself.
    Lost,
    Nothing,
    Some,
}

/// What came of writing a stream.
pub(super) enum Written {
    /// The stream took everything; where it was finished, for whoever wants to know when it has arrived.
    All(Option<SendStream>),
    Lost(ConnectionError),
    /// The stream is full.
    Some,
    /// The peer does not read it.
    Stopped,
}

impl Lane {
    pub(super) fn new((send, receive): Streams, role: LaneRole, waker: Waker) -> Self {
        let early = receive.is_0rtt();
        Self {
            send: Some(send),
            receive: Some(receive),
            unsent: BytesMut::new(),
            decoder: Decoder::new(PAYLOAD_BYTES_MAX),
            waker,
            role,
            early,
            sent_end: false,
            received_end: false,
            reset: false,
        }
    }

    pub(super) const fn channel(&self) -> Option<u64> {
        match self.role {
            LaneRole::Control => None,
            LaneRole::Opened(channel) => Some(channel),
            LaneRole::Accepted(channel) => channel,
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.send.is_none() && self.receive.is_none()
    }

    /// Says whether the peer's half is over.
    pub(super) const fn is_ended(&self) -> bool {
        self.receive.is_none()
    }

    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent.len()
    }

    /// Checks that the peer's half ended between two frames.
    pub(super) fn check_whole(&self) -> Result<(), LinkError> {
        Ok(self.decoder.finish()?)
    }

    /// Takes the sending half away.
    pub(super) const fn take_send(&mut self) -> Option<SendStream> {
        self.send.take()
    }

    /// Appends a frame; returns how many bytes it takes. A frame for a half that is over has nobody to read it.
    pub(super) fn push(&mut self, frame: &Frame) -> usize {
        if self.send.is_none() {
            return 0;
        }
        let before = self.unsent.len();
        frame.encode(&mut self.unsent);
        if self.role != LaneRole::Control {
            self.sent_end |= frame.flags.contains(Flags::END);
            self.reset |= frame.kind == Kind::Reset;
        }
        self.unsent.len() - before
    }

    /// Writes what the stream takes, and finishes it when nothing can follow.
    pub(super) fn write(&mut self) -> Written {
        let Some(send) = self.send.as_mut() else { return Written::All(None) };
        let mut cx = Context::from_waker(&self.waker);
        while !self.unsent.is_empty() {
            match Pin::new(&mut *send).poll_write(&mut cx, &self.unsent) {
                Poll::Pending => return Written::Some,
                Poll::Ready(Ok(written)) => self.unsent.advance(written),
                Poll::Ready(Err(WriteError::ConnectionLost(error))) => return Written::Lost(error),
                Poll::Ready(Err(WriteError::Stopped(_) | WriteError::ClosedStream | WriteError::ZeroRttRejected)) => {
                    self.unsent = BytesMut::new();
                    self.send = None;
                    return if self.reset { Written::All(None) } else { Written::Stopped };
                }
            }
        }
        self.unsent = BytesMut::new();
        Written::All(if self.is_over() { self.finish() } else { None })
    }

    fn finish(&mut self) -> Option<SendStream> {
        let mut send = self.send.take()?;
        // It fails where the peer stopped reading, which is as good.
        let _ = send.finish();
        Some(send)
    }

    /// Says whether this end sends nothing more. Who opened an exchange may RESET it until the answer has ended.
    const fn is_over(&self) -> bool {
        let answered = match self.role {
            LaneRole::Control => return false,
            LaneRole::Opened(_) => self.received_end,
            LaneRole::Accepted(_) => true,
        };
        self.reset || (self.sent_end && answered)
    }

    /// Reads once and passes what came to `sink`.
    pub(super) fn read(&mut self, scratch: &mut Scratch, sink: &mut Sink<'_>) -> Result<Read, LinkError> {
        let Some(receive) = self.receive.as_mut() else { return Ok(Read::Nothing) };
        let mut cx = Context::from_waker(&self.waker);
        match receive.poll_read(&mut cx, &mut scratch.recv) {
            Poll::Pending => Ok(Read::Nothing),
            Poll::Ready(Err(ReadError::ConnectionLost(_))) => Ok(Read::Lost),
            Poll::Ready(Err(ReadError::Reset(_) | ReadError::ClosedStream | ReadError::ZeroRttRejected)) => {
                self.receive = None;
                Ok(if self.reset { Read::Ended } else { Read::Broken })
            }
            Poll::Ready(Ok(0)) => {
                self.receive = None;
                self.decoder.finish()?;
                let expected = self.received_end || self.reset || self.role == LaneRole::Control;
                Ok(if expected { Read::Ended } else { Read::Broken })
            }
            Poll::Ready(Ok(count)) => {
                let Self { decoder, role, early, received_end, reset, .. } = self;
                decoder.feed(&scratch.recv[..count], &mut |frame| {
                    role.check(frame)?;
                    if *role != LaneRole::Control {
                        *reset |= frame.kind == Kind::Reset;
                        *received_end |= frame.flags.contains(Flags::END) || *reset;
                    }
                    sink(frame, *early)
                })?;
                Ok(Read::Some)
            }
        }
    }
}

impl LaneRole {
    /// Checks that a frame may come here. The first one names the channel of a stream that the peer opened.
    fn check(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        let opens = matches!(frame.kind, Kind::Request | Kind::Stream);
        let fits = match self {
            Self::Control => !opens,
            Self::Opened(channel) => frame.kind.is_exchange() && frame.channel == *channel,
            Self::Accepted(Some(channel)) => frame.kind.is_exchange() && frame.channel == *channel,
            Self::Accepted(unnamed) => {
                *unnamed = Some(frame.channel);
                opens
            }
        };
        if fits { Ok(()) } else { Err(LinkError::Unexpected { kind: frame.kind }) }
    }
}
