//! The `quic` carrier: control frames on one stream, every exchange on its own.

use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf, BytesMut};
use noq::{Connection, ConnectionError, RecvStream, SendStream, TransportConfig, VarInt};
use ropeway_core::{
    CarrierKind,
    session::LinkError,
    wire::{Decoder, Flags, Frame, Kind, frame::PAYLOAD_BYTES_MAX},
};
use tokio::io::{AsyncRead, ReadBuf};

use super::{Arrived, Carrier, CarrierError, EXPORTER_LABEL, Sink};
use crate::scratch::Scratch;

/// A link over one QUIC connection.
///
/// The client opens the control stream first and one more stream for each exchange. Until the link is admitted only the control
/// stream is read, and the connection's bounds are those of [`link_transport`].
pub struct QuicCarrier {
    connection: Connection,
    peer: SocketAddr,
    opens: bool,
    admitted: bool,
    control: Option<Lane>,
    lanes: BTreeMap<u64, Lane>,
    /// Streams whose first frame has not told their channel yet.
    nameless: Vec<Lane>,
    accepting: Option<Pair>,
    opening: Option<Pair>,
    /// Frames that wait for a stream, oldest first; bounded by the credit of the link.
    waiting: VecDeque<Frame>,
    unsent_bytes: usize,
}

type Streams = (SendStream, RecvStream);
type Pair = Pin<Box<dyn Future<Output = Result<Streams, ConnectionError>> + Send>>;

/// One stream with what it has not sent and not decoded.
struct Lane {
    send: Option<SendStream>,
    receive: Option<RecvStream>,
    unsent: BytesMut,
    /// Nothing follows what is unsent.
    finish: bool,
    /// The other end gave the exchange up.
    reset: bool,
    decoder: Decoder,
}

impl QuicCarrier {
    /// Takes over a connection to `peer`; `opens` says that this end is the client.
    #[must_use]
    pub fn new(connection: Connection, peer: SocketAddr, opens: bool) -> Self {
        let mut carrier = Self {
            connection,
            peer,
            opens,
            admitted: opens,
            control: None,
            lanes: BTreeMap::new(),
            nameless: Vec::new(),
            accepting: None,
            opening: None,
            waiting: VecDeque::new(),
            unsent_bytes: 0,
        };
        if opens {
            carrier.opening = Some(carrier.open());
        } else {
            carrier.accepting = Some(carrier.accept());
        }
        carrier
    }

    /// Returns the QUIC connection, for its statistics.
    #[must_use]
    pub const fn connection(&self) -> &Connection {
        &self.connection
    }

    fn open(&self) -> Pair {
        let connection = self.connection.clone();
        Box::pin(async move { connection.open_bi().await })
    }

    fn accept(&self) -> Pair {
        let connection = self.connection.clone();
        Box::pin(async move { connection.accept_bi().await })
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> CarrierError {
        CarrierError::Quic { peer: self.peer, reason: error.to_string() }
    }

    /// Accepts what the client opened: the control stream first.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Result<bool, ConnectionError> {
        let mut accepted = false;
        while let Some(accepting) = self.accepting.as_mut() {
            match accepting.as_mut().poll(cx) {
                Poll::Pending => break,
                Poll::Ready(streams) => {
                    let lane = Lane::new(streams?);
                    accepted = true;
                    if self.control.is_none() {
                        self.control = Some(lane);
                    } else {
                        self.nameless.push(lane);
                    }
                    // Strangers' exchanges stay in the QUIC stack, under its bounds.
                    self.accepting = self.admitted.then(|| self.accept());
                }
            }
        }
        Ok(accepted)
    }

    /// Gives waiting frames their streams.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Result<(), CarrierError> {
        loop {
            if let Some(opening) = self.opening.as_mut() {
                let Poll::Ready(streams) = opening.as_mut().poll(cx) else { return Ok(()) };
                let lane = Lane::new(streams.map_err(|error| self.failed(&error))?);
                self.opening = None;
                // The new stream is to be read as well, from the next turn on.
                cx.waker().wake_by_ref();
                if self.control.is_none() {
                    if let Some(send) = &lane.send {
                        let _ = send.set_priority(CONTROL_PRIORITY);
                    }
                    self.control = Some(lane);
                } else if let Some(frame) = self.waiting.front() {
                    self.lanes.insert(frame.channel, lane);
                }
            }
            let Some(frame) = self.waiting.front() else { return Ok(()) };
            let known = !frame.kind.is_exchange() || self.lanes.contains_key(&frame.channel);
            if !known && self.opens && frame.kind == Kind::Request {
                self.opening = Some(self.open());
                continue;
            }
            if self.control.is_none() {
                return Ok(());
            }
            let Some(frame) = self.waiting.pop_front() else { return Ok(()) };
            self.assign(&frame);
        }
    }

    /// Writes a frame to its stream's buffer. An exchange without a stream on this connection was resumed, or is over at the other
    /// end: its frames travel on the control stream.
    fn assign(&mut self, frame: &Frame) {
        let own = if frame.kind.is_exchange() { self.lanes.get_mut(&frame.channel) } else { None };
        let is_own = own.is_some();
        let Some(lane) = own.or(self.control.as_mut()) else { return };
        let before = lane.unsent.len();
        frame.encode(&mut lane.unsent);
        self.unsent_bytes += lane.unsent.len() - before;
        // A client may still reset an exchange after its END, and does so where the gateway looks for it.
        let ends = frame.kind == Kind::Reset || (!self.opens && frame.flags.contains(Flags::END));
        lane.finish |= is_own && ends;
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Result<(), CarrierError> {
        let (peer, opens) = (self.peer, self.opens);
        let before = self.unsent_bytes;
        let mut unsent = 0;
        for lane in self.control.iter_mut().chain(self.lanes.values_mut()) {
            lane.poll_write(cx, opens).map_err(|reason| CarrierError::Quic { peer, reason })?;
            unsent += lane.unsent.len();
        }
        self.unsent_bytes = unsent;
        if unsent < before {
            self.lanes.retain(|_, lane| !lane.is_done());
        }
        Ok(())
    }

    fn poll_lanes(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        sink: &mut Sink<'_>,
    ) -> Result<Read, CarrierError> {
        let mut read = Read::Nothing;
        if let Some(control) = self.control.as_mut() {
            match control.poll_read(cx, scratch, sink, &mut None)? {
                Read::Closed => return Ok(Read::Closed),
                Read::Nothing => {}
                Read::Some => read = Read::Some,
            }
        }
        if !self.admitted {
            return Ok(read);
        }
        let mut named = Vec::new();
        let mut index = 0;
        while let Some(lane) = self.nameless.get_mut(index) {
            let mut channel = None;
            let outcome = lane.poll_read(cx, scratch, sink, &mut channel)?;
            if !matches!(outcome, Read::Nothing) {
                read = Read::Some;
            }
            match channel {
                Some(channel) => named.push((channel, self.nameless.swap_remove(index))),
                None if matches!(outcome, Read::Closed) => drop(self.nameless.swap_remove(index)),
                None => index += 1,
            }
        }
        for (channel, lane) in named {
            self.lanes.insert(channel, lane);
        }
        for (channel, lane) in &mut self.lanes {
            if !matches!(lane.poll_read(cx, scratch, sink, &mut Some(*channel))?, Read::Nothing) {
                read = Read::Some;
            }
        }
        self.lanes.retain(|_, lane| !lane.is_done());
        Ok(read)
    }
}

#[derive(Clone, Copy)]
enum Read {
    Closed,
    Nothing,
    Some,
}

impl Lane {
    fn new((send, receive): Streams) -> Self {
        Self {
            send: Some(send),
            receive: Some(receive),
            unsent: BytesMut::new(),
            finish: false,
            reset: false,
            decoder: Decoder::new(PAYLOAD_BYTES_MAX),
        }
    }

    const fn is_done(&self) -> bool {
        self.send.is_none() && self.receive.is_none()
    }

    /// Writes what there is. A client (`opens`) is done with the stream once the gateway is.
    fn poll_write(&mut self, cx: &mut Context<'_>, opens: bool) -> Result<(), String> {
        if self.reset {
            self.unsent.clear();
        }
        let Some(send) = self.send.as_mut() else {
            self.unsent.clear();
            return Ok(());
        };
        while !self.unsent.is_empty() {
            match Pin::new(&mut *send).poll_write(cx, &self.unsent) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(written)) => self.unsent.advance(written),
                Poll::Ready(Err(noq::WriteError::ConnectionLost(error))) => return Err(error.to_string()),
                Poll::Ready(Err(_)) => {
                    // The peer stopped reading this exchange.
                    self.unsent.clear();
                    self.send = None;
                    return Ok(());
                }
            }
        }
        self.unsent = BytesMut::new();
        if self.finish || self.reset || (opens && self.receive.is_none()) {
            let _ = send.finish();
            self.send = None;
        }
        Ok(())
    }

    /// Reads what there is; a frame of a channel other than `channel` is an error, the first one names it.
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        sink: &mut Sink<'_>,
        channel: &mut Option<u64>,
    ) -> Result<Read, LinkError> {
        let mut outcome = Read::Nothing;
        let reset = &mut self.reset;
        let early = self.receive.as_ref().is_some_and(RecvStream::is_0rtt);
        let own = channel.is_some() || self.receive.as_ref().is_some_and(|receive| receive.id().index() > 0);
        while let Some(receive) = self.receive.as_mut() {
            let mut buffer = ReadBuf::new(&mut scratch.recv);
            match AsyncRead::poll_read(Pin::new(receive), cx, &mut buffer) {
                Poll::Pending => break,
                Poll::Ready(Err(_)) => {
                    self.receive = None;
                    return Ok(Read::Closed);
                }
                Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                    self.receive = None;
                    self.decoder.finish()?;
                    return Ok(Read::Closed);
                }
                Poll::Ready(Ok(())) => {
                    outcome = Read::Some;
                    self.decoder.feed(buffer.filled(), &mut |frame| {
                        if own && (!frame.kind.is_exchange() || *channel.get_or_insert(frame.channel) != frame.channel)
                        {
                            return Err(LinkError::Unexpected { kind: frame.kind });
                        }
                        *reset |= own && frame.kind == Kind::Reset;
                        sink(frame, early)
                    })?;
                }
            }
        }
        Ok(outcome)
    }
}

impl Carrier for QuicCarrier {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Quic
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        scratch: &mut Scratch,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<Arrived, CarrierError>> {
        let accepted = match self.poll_accept(cx) {
            Ok(accepted) => accepted,
            Err(ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed) => {
                return Poll::Ready(Ok(Arrived::Closed));
            }
            Err(error) => return Poll::Ready(Err(self.failed(&error))),
        };
        match self.poll_lanes(cx, scratch, sink)? {
            Read::Closed => Poll::Ready(match self.connection.close_reason() {
                None | Some(ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed) => {
                    Ok(Arrived::Closed)
                }
                Some(error) => Err(self.failed(&error)),
            }),
            Read::Some => Poll::Ready(Ok(Arrived::Some)),
            Read::Nothing if accepted => Poll::Ready(Ok(Arrived::Some)),
            Read::Nothing => Poll::Pending,
        }
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        _scratch: &mut Scratch,
        source: &mut dyn FnMut() -> Option<Frame>,
    ) -> Poll<Result<(), CarrierError>> {
        loop {
            self.poll_open(cx)?;
            self.poll_write(cx)?;
            if self.unsent_bytes > UNSENT_BYTES_MAX || !self.waiting.is_empty() {
                return Poll::Pending;
            }
            let mut dry = true;
            while let Some(frame) = source() {
                let payload = frame.payload.len();
                self.waiting.push_back(frame);
                if payload + self.waiting.len() > UNSENT_BYTES_MAX || self.waiting.len() >= WAITING_MAX {
                    dry = false;
                    break;
                }
            }
            if dry && self.waiting.is_empty() {
                return if self.unsent_bytes == 0 { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, _scratch: &mut Scratch) -> Poll<()> {
        if self.poll_write(cx).is_ok() && self.unsent_bytes > 0 {
            return Poll::Pending;
        }
        self.connection.close(VarInt::from_u32(0), b"");
        Poll::Ready(())
    }

    fn binding(&self) -> Option<[u8; 32]> {
        let mut binding = [0; 32];
        self.connection.export_keying_material(&mut binding, EXPORTER_LABEL, b"").ok()?;
        Some(binding)
    }

    fn admit(&mut self) {
        if !self.admitted {
            self.admitted = true;
            self.connection.set_max_concurrent_bi_streams(VarInt::from_u32(STREAMS_MAX));
            self.connection.set_receive_window(VarInt::from_u32(RECEIVE_WINDOW));
            self.accepting = Some(self.accept());
        }
    }
}

/// The QUIC settings of a link's gateway end: a stranger may open 16 streams and have 64 KiB held (DESIGN section 4).
#[must_use]
pub fn link_transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(STRANGER_STREAMS_MAX));
    transport.max_concurrent_uni_streams(VarInt::from_u32(0));
    transport.receive_window(VarInt::from_u32(STRANGER_RECEIVE_WINDOW));
    transport.stream_receive_window(VarInt::from_u32(STREAM_RECEIVE_WINDOW));
    transport
}

const STRANGER_STREAMS_MAX: u32 = 16;
const STRANGER_RECEIVE_WINDOW: u32 = 64 * 1024;

/// Streams of an admitted link: its 256 exchanges and the control stream.
const STREAMS_MAX: u32 = 257;

/// Bytes in flight on an admitted link: the credit of the link (1 MiB) and half as much again for heads and control, so that credit
/// and not QUIC is what stops a sender.
const RECEIVE_WINDOW: u32 = 1536 * 1024;

/// Bytes in flight on one stream: a channel's credit (256 KiB) and half as much again.
const STREAM_RECEIVE_WINDOW: u32 = 384 * 1024;

/// Bytes handed to streams that QUIC has not taken; above it no more frames are asked for. One TLS record's worth on the other
/// carriers; here a few, since streams fill independently.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// Frames that wait for a stream to open.
const WAITING_MAX: usize = 64;

/// Above the exchanges' zero.
const CONTROL_PRIORITY: i32 = 10;
