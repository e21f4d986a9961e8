//! The halves of an HTTP/3 stream.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming, StreamId, WriteBuf};
use noq::{ReadError, RecvStream, SendStream, VarInt, WriteError};

use super::{EXCESSIVE_LOAD, REQUEST_CANCELLED, Rules, lost, watch::Watch};

/// A stream of one exchange, both ways.
pub struct H3Stream<B: Buf> {
    send: H3Send<B>,
    recv: H3Recv,
}

/// The half of a stream that this end writes.
///
/// On the server [`quic::SendStream::poll_finish`] waits until the client has everything: closing the connection before would take
/// the answer away again.
pub struct H3Send<B: Buf> {
    stream: SendStream,
    unsent: Option<WriteBuf<B>>,
    /// Reset unless it ends well; a one-way stream is open as long as its connection.
    is_exchange: bool,
    is_over: bool,
    waits_for_ack: bool,
    arriving: Option<Pin<Box<noq::Stopped>>>,
}

/// The half of a stream that the peer writes.
pub struct H3Recv {
    stream: RecvStream,
    watch: Watch,
    unread: VarInt,
}

/// The peer ended a stream inside a frame.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("stream ended inside a frame")]
struct CutFrame;

impl<B: Buf> H3Stream<B> {
    pub(super) fn new((send, recv): (SendStream, RecvStream), rules: Rules) -> Self {
        let mut send = H3Send::one_way(send, rules);
        send.is_exchange = true;
        Self {
            send,
            recv: H3Recv { stream: recv, watch: Watch::exchange(rules.frame_bytes_max), unread: rules.unread() },
        }
    }
}

impl<B: Buf> H3Send<B> {
    pub(super) const fn one_way(stream: SendStream, rules: Rules) -> Self {
        Self {
            stream,
            unsent: None,
            is_exchange: false,
            is_over: false,
            waits_for_ack: rules.is_server,
            arriving: None,
        }
    }
}

impl H3Recv {
    pub(super) const fn one_way(stream: RecvStream, rules: Rules) -> Self {
        Self { stream, watch: Watch::one_way(rules.frame_bytes_max), unread: rules.unread() }
    }
}

impl<B: Buf> quic::SendStream<B> for H3Send<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if let Some(unsent) = &mut self.unsent {
            while unsent.has_remaining() {
                let written = ready!(Pin::new(&mut self.stream).poll_write(cx, unsent.chunk())).map_err(write_error)?;
                unsent.advance(written);
            }
        }
        self.unsent = None;
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        if self.unsent.is_some() {
            let connection_error =
                ConnectionErrorIncoming::InternalError("data was sent before the stream was ready".into());
            return Err(StreamErrorIncoming::ConnectionErrorIncoming { connection_error });
        }
        self.unsent = Some(data.into());
        Ok(())
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        if !self.is_over {
            ready!(self.poll_ready(cx))?;
            self.is_over = true;
            self.stream.finish().map_err(|closed| StreamErrorIncoming::Unknown(Box::new(closed)))?;
        }
        if self.waits_for_ack && self.is_exchange {
            let arriving = self.arriving.get_or_insert_with(|| Box::pin(self.stream.stopped()));
            // Whether all of it arrived, the client stopped reading or is gone: nothing more is to be waited for.
            let _ = ready!(arriving.as_mut().poll(cx));
        }
        Poll::Ready(Ok(()))
    }

    fn reset(&mut self, reset_code: u64) {
        self.is_over = true;
        // It fails on a stream that is over, which is as good.
        let _ = self.stream.reset(VarInt::from_u64(reset_code).unwrap_or(REQUEST_CANCELLED));
    }

    fn send_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl<B: Buf> Drop for H3Send<B> {
    fn drop(&mut self) {
        if self.is_exchange && !self.is_over {
            quic::SendStream::<B>::reset(self, REQUEST_CANCELLED.into_inner());
        }
    }
}

impl quic::RecvStream for H3Recv {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        // A read that is dropped while it waits stays registered: the waker is the stream's, not the future's.
        let read = ready!(pin!(self.stream.read_chunk(READ_BYTES_MAX)).poll(cx));
        Poll::Ready(match read.map_err(read_error)? {
            Some(bytes) => match self.watch.feed(&bytes) {
                Ok(()) => Ok(Some(bytes)),
                Err(oversized) => {
                    let _ = self.stream.stop(EXCESSIVE_LOAD);
                    Err(StreamErrorIncoming::Unknown(Box::new(oversized)))
                }
            },
            None if self.watch.is_between_frames() => Ok(None),
            None => Err(StreamErrorIncoming::Unknown(Box::new(CutFrame))),
        })
    }

    fn stop_sending(&mut self, error_code: u64) {
        // It fails on a stream that is over, which is as good.
        let _ = self.stream.stop(VarInt::from_u64(error_code).unwrap_or(self.unread));
    }

    fn recv_id(&self) -> StreamId {
        stream_id(self.stream.id())
    }
}

impl Drop for H3Recv {
    fn drop(&mut self) {
        let _ = self.stream.stop(self.unread);
    }
}

impl<B: Buf> quic::SendStream<B> for H3Stream<B> {
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(cx)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(cx)
    }

    fn reset(&mut self, reset_code: u64) {
        self.send.reset(reset_code);
    }

    fn send_id(&self) -> StreamId {
        self.send.send_id()
    }
}

impl<B: Buf> quic::RecvStream for H3Stream<B> {
    type Buf = Bytes;

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(cx)
    }

    fn stop_sending(&mut self, error_code: u64) {
        self.recv.stop_sending(error_code);
    }

    fn recv_id(&self) -> StreamId {
        self.recv.recv_id()
    }
}

impl<B: Buf> quic::BidiStream<B> for H3Stream<B> {
    type SendStream = H3Send<B>;
    type RecvStream = H3Recv;

    fn split(self) -> (H3Send<B>, H3Recv) {
        (self.send, self.recv)
    }
}

fn stream_id(id: noq::StreamId) -> StreamId {
    u64::from(id).try_into().expect("QUIC numbers streams below 2^62")
}

fn read_error(error: ReadError) -> StreamErrorIncoming {
    match error {
        ReadError::Reset(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        ReadError::ConnectionLost(error) => lost(error),
        ReadError::ClosedStream | ReadError::ZeroRttRejected => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

fn write_error(error: WriteError) -> StreamErrorIncoming {
    match error {
        WriteError::Stopped(code) => StreamErrorIncoming::StreamTerminated { error_code: code.into_inner() },
        WriteError::ConnectionLost(error) => lost(error),
        WriteError::ClosedStream | WriteError::ZeroRttRejected => StreamErrorIncoming::Unknown(Box::new(error)),
    }
}

/// Bytes taken off a stream at once: no more than a packet brings in order, unless some came late.
const READ_BYTES_MAX: usize = 64 * 1024;
