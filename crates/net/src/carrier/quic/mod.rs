//! The `quic` carrier: control frames on one stream, every exchange on its own.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    future::Future,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use noq::{
    Connection, ConnectionError, IdleTimeout, MtuDiscoveryConfig, RecvStream, SendStream, TransportConfig, VarInt,
};
use ropeway_core::{
    CarrierKind,
    wire::{
        Flags, Frame, Kind,
        message::{Reset, ResetCode},
    },
};

mod lane;
mod ready;

use self::{
    lane::{Lane, LaneRole, Read, Written},
    ready::Ready,
};
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
    lanes: BTreeMap<u64, Lane>,
    /// The stream of each exchange. One that was resumed has none, and travels on the control stream.
    streams: BTreeMap<u64, u64>,
    ready: Arc<Ready>,
    /// Streams with bytes to write, or to be finished.
    writable: BTreeSet<u64>,
    /// Exchanges whose stream the peer broke off, and was not told of yet.
    broken: Vec<u64>,
    accepting: Option<Pair>,
    opening: Option<Pair>,
    /// Frames that wait for a stream, oldest first.
    waiting: VecDeque<Frame>,
    waiting_bytes: usize,
    unsent_bytes: usize,
    /// Finished halves whose last bytes may still be on their way: a goodbye waits for them.
    departing: Vec<SendStream>,
    departing_max: usize,
    closing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

type Streams = (SendStream, RecvStream);
type Pair = Pin<Box<dyn Future<Output = Result<Streams, ConnectionError>> + Send>>;

impl QuicCarrier {
    /// Takes over a connection to `peer`; `opens` says that this end is the client.
    #[must_use]
    pub fn new(connection: Connection, peer: SocketAddr, opens: bool) -> Self {
        let mut carrier = Self {
            connection,
            peer,
            opens,
            admitted: opens,
            lanes: BTreeMap::new(),
            streams: BTreeMap::new(),
            ready: Arc::default(),
            writable: BTreeSet::new(),
            broken: Vec::new(),
            accepting: None,
            opening: None,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            unsent_bytes: 0,
            departing: Vec::new(),
            departing_max: DEPARTING_MIN,
            closing: None,
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

    /// Returns how many streams are held, the control stream included.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.lanes.len()
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

    fn has_control(&self) -> bool {
        self.lanes.contains_key(&CONTROL)
    }

    fn add_lane(&mut self, streams: Streams, role: LaneRole) {
        let stream = streams.1.id().index();
        if role == LaneRole::Control {
            // It fails on a connection that is lost, which shows soon.
            let _ = streams.0.set_priority(CONTROL_PRIORITY);
        }
        let waker = self.ready.waker(stream);
        // The new stream is to be read as well.
        waker.wake_by_ref();
        self.lanes.insert(stream, Lane::new(streams, role, waker));
    }

    /// Accepts what the client opened: the control stream first. A connection that is lost says so elsewhere.
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> bool {
        let mut accepted = false;
        while let Some(accepting) = self.accepting.as_mut()
            && let Poll::Ready(streams) = accepting.as_mut().poll(cx)
        {
            self.accepting = None;
            let Ok(streams) = streams else { break };
            let role = if self.has_control() { LaneRole::Accepted(None) } else { LaneRole::Control };
            self.add_lane(streams, role);
            accepted = true;
            if role == LaneRole::Control {
                self.waiting_bytes = 0;
                std::mem::take(&mut self.waiting).into_iter().for_each(|frame| self.take(frame));
            }
            // Strangers' exchanges stay in the QUIC stack, under its bounds.
            self.accepting = self.admitted.then(|| self.accept());
        }
        accepted
    }

    /// Gives waiting frames their streams.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Result<(), ConnectionError> {
        loop {
            if let Some(opening) = self.opening.as_mut() {
                let Poll::Ready(streams) = opening.as_mut().poll(cx) else { return Ok(()) };
                self.opening = None;
                let streams = streams?;
                if !self.has_control() {
                    self.add_lane(streams, LaneRole::Control);
                } else if let Some(channel) = self.waiting.front().map(|frame| frame.channel) {
                    self.streams.insert(channel, streams.1.id().index());
                    self.add_lane(streams, LaneRole::Opened(channel));
                }
                self.waiting_bytes = 0;
                for frame in std::mem::take(&mut self.waiting) {
                    self.take(frame);
                }
            }
            if self.waiting.is_empty() || !self.opens || !self.has_control() {
                return Ok(());
            }
            self.opening = Some(self.open());
        }
    }

    /// Takes a frame from the source. One whose stream is not open yet waits, and only its own exchange with it.
    fn take(&mut self, frame: Frame) {
        let opens = self.opens && frame.kind.is_exchange() && !self.streams.contains_key(&frame.channel);
        let waits = opens && (frame.kind == Kind::Request || self.is_waiting(frame.channel));
        if waits || !self.has_control() {
            self.waiting_bytes += frame.payload.len();
            self.waiting.push_back(frame);
        } else {
            self.push(&frame);
        }
    }

    fn is_waiting(&self, channel: u64) -> bool {
        self.waiting.iter().any(|frame| frame.channel == channel && frame.kind.is_exchange())
    }

    /// Appends a frame to what its stream has to write.
    fn push(&mut self, frame: &Frame) {
        let own = self.streams.get(&frame.channel).filter(|_| frame.kind.is_exchange());
        let stream = own.copied().unwrap_or(CONTROL);
        if let Some(lane) = self.lanes.get_mut(&stream) {
            self.unsent_bytes += lane.push(frame);
            self.writable.insert(stream);
        }
    }

    fn write_lanes(&mut self) -> Result<(), WriteFailed> {
        for stream in std::mem::take(&mut self.writable) {
            let Some(lane) = self.lanes.get_mut(&stream) else { continue };
            let before = lane.unsent_bytes();
            let written = lane.write();
            self.unsent_bytes -= before - lane.unsent_bytes();
            match written {
                Written::All(None) => {}
                Written::All(Some(send)) => self.depart(send),
                Written::Lost(error) => return Err(WriteFailed::Lost(error)),
                Written::Some => drop(self.writable.insert(stream)),
                Written::Stopped => self.break_off(stream)?,
            }
            self.forget_done(stream);
        }
        Ok(())
    }

    /// Keeps a finished half until its bytes have arrived.
    fn depart(&mut self, send: SendStream) {
        if self.departing.len() >= self.departing_max {
            // The QUIC stack knows a half no more once all of it was acknowledged.
            self.departing.retain(|send| send.priority().is_ok());
            self.departing_max = DEPARTING_MIN.max(2 * self.departing.len());
        }
        self.departing.push(send);
    }

    /// The peer aborted a stream. A gateway takes it for the client's RESET; a client cannot know what the gateway decoded, so that
    /// the link ends and the next one settles.
    fn break_off(&mut self, stream: u64) -> Result<(), WriteFailed> {
        if stream == CONTROL || self.opens {
            return Err(WriteFailed::Aborted);
        }
        let Some(lane) = self.lanes.remove(&stream) else { return Ok(()) };
        self.unsent_bytes -= lane.unsent_bytes();
        if let Some(channel) = lane.channel() {
            self.streams.remove(&channel);
            self.broken.push(channel);
            self.ready.wake();
        }
        Ok(())
    }

    fn forget_done(&mut self, stream: u64) {
        let Some(lane) = self.lanes.get(&stream).filter(|lane| lane.is_done()) else { return };
        if let Some(channel) = lane.channel() {
            self.streams.remove(&channel);
        }
        self.lanes.remove(&stream);
    }

    /// Reads one stream once.
    fn read_lane(&mut self, stream: u64, scratch: &mut Scratch, sink: &mut Sink<'_>) -> Result<bool, CarrierError> {
        let Some(lane) = self.lanes.get_mut(&stream) else { return Ok(false) };
        let named = lane.channel().is_some();
        let read = lane.read(scratch, sink)?;
        if !named && let Some(channel) = lane.channel() {
            self.streams.insert(channel, stream);
        }
        match read {
            Read::Broken => self.break_off(stream).map_err(|error| self.write_failed(&error))?,
            Read::Ended => {}
            Read::Lost | Read::Nothing => return Ok(false),
            Read::Some => self.ready.mark(stream),
        }
        // What arrived may let this end's half finish.
        self.writable.insert(stream);
        self.forget_done(stream);
        Ok(true)
    }

    fn tell_broken(&mut self, sink: &mut Sink<'_>) -> Result<bool, CarrierError> {
        let broken = std::mem::take(&mut self.broken);
        for channel in &broken {
            let reset = Reset { code: ResetCode::Cancelled.into(), detail: "the stream was aborted".into() };
            let frame = Frame { channel: *channel, flags: Flags::END, ..Frame::control(Kind::Reset, &reset) };
            sink(frame.as_ref(), false)?;
        }
        Ok(!broken.is_empty())
    }

    /// Says how the connection ended, if it did.
    fn poll_end(&self) -> Poll<Result<Arrived, CarrierError>> {
        match self.connection.close_reason() {
            Some(error) if !is_goodbye(&error) => Poll::Ready(Err(self.failed(&error))),
            Some(_) => {
                self.lanes.values().try_for_each(Lane::check_whole)?;
                Poll::Ready(Ok(Arrived::Closed))
            }
            None if self.lanes.get(&CONTROL).is_some_and(Lane::is_ended) => Poll::Ready(Ok(Arrived::Closed)),
            None => Poll::Pending,
        }
    }

    fn write_failed(&self, error: &WriteFailed) -> CarrierError {
        match error {
            WriteFailed::Aborted => self.failed(&"the other end aborted a stream"),
            WriteFailed::Lost(error) => self.failed(error),
        }
    }

    fn is_full(&self) -> bool {
        self.unsent_bytes + self.waiting_bytes >= UNSENT_BYTES_MAX || self.waiting.len() >= WAITING_MAX
    }

    /// Waits until everything that was finished has arrived, then ends the control stream, which is the goodbye.
    fn goodbye(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let connection = self.connection.clone();
        let departing = std::mem::take(&mut self.departing);
        let control = self.lanes.get_mut(&CONTROL).and_then(Lane::take_send);
        async move {
            for send in departing {
                // Lost, stopped or arrived: nothing more is to be waited for.
                let _ = send.stopped().await;
            }
            if let Some(mut control) = control {
                let _ = control.finish();
                let _ = control.stopped().await;
            }
            if connection.close_reason().is_some() {
                return;
            }
            connection.close(VarInt::from_u32(0), b"");
            // A task of noq's sends the last datagram, and tells nobody when it did. A process that ends before leaves its peer
            // with a connection that is open until it times out.
            for _ in 0..FAREWELL_LOOKS_MAX {
                if connection.stats().frame_tx.connection_close > 0 {
                    break;
                }
                tokio::time::sleep(FAREWELL_PAUSE).await;
            }
        }
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
        self.ready.register(cx.waker());
        let mut some = self.poll_accept(cx);
        for stream in self.ready.take() {
            some |= self.read_lane(stream, scratch, sink)?;
        }
        some |= self.tell_broken(sink)?;
        if some { Poll::Ready(Ok(Arrived::Some)) } else { self.poll_end() }
    }

    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        _scratch: &mut Scratch,
        source: &mut dyn FnMut() -> Option<Frame>,
    ) -> Poll<Result<(), CarrierError>> {
        self.ready.register(cx.waker());
        let mut dry = false;
        loop {
            match self.poll_open(cx).map_err(WriteFailed::Lost).and_then(|()| self.write_lanes()) {
                Ok(()) => {}
                Err(WriteFailed::Lost(error)) if is_goodbye(&error) => {
                    // The receiving side tells it, after what arrived before.
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(self.write_failed(&error))),
            }
            if dry || self.is_full() {
                let sent = self.unsent_bytes == 0 && self.waiting.is_empty();
                return if sent { Poll::Ready(Ok(())) } else { Poll::Pending };
            }
            while !dry && !self.is_full() {
                match source() {
                    None => dry = true,
                    Some(frame) => self.take(frame),
                }
            }
        }
    }

    fn poll_close(&mut self, cx: &mut Context<'_>, _scratch: &mut Scratch) -> Poll<()> {
        self.ready.register(cx.waker());
        if self.closing.is_none() {
            if self.write_lanes().is_err() {
                self.connection.close(VarInt::from_u32(0), b"");
                return Poll::Ready(());
            }
            if self.unsent_bytes > 0 {
                return Poll::Pending;
            }
        }
        let closing = match &mut self.closing {
            Some(closing) => closing,
            None => {
                let goodbye = self.goodbye();
                self.closing.insert(Box::pin(goodbye))
            }
        };
        closing.as_mut().poll(cx)
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
            if self.has_control() {
                self.accepting = Some(self.accept());
            }
            self.ready.wake();
        }
    }
}

impl Drop for QuicCarrier {
    fn drop(&mut self) {
        // Streams that are dropped first would be finished, and look as if their bodies were complete or given up.
        self.connection.close(VarInt::from_u32(0), b"");
    }
}

enum WriteFailed {
    Aborted,
    Lost(ConnectionError),
}

fn is_goodbye(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ApplicationClosed(_) | ConnectionError::LocallyClosed)
}

/// The QUIC settings of a gateway's end: a stranger may open 16 streams and have 64 KiB held (DESIGN section 4). Before its handshake
/// nobody knows whether it wants a link or HTTP/3.
#[must_use]
pub fn link_transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(STRANGER_STREAMS_MAX));
    transport.max_concurrent_uni_streams(VarInt::from_u32(STRANGER_ONE_WAY_STREAMS_MAX));
    transport.receive_window(VarInt::from_u32(STRANGER_RECEIVE_WINDOW));
    transport.stream_receive_window(VarInt::from_u32(STREAM_RECEIVE_WINDOW));
    transport.send_window(u64::from(RECEIVE_WINDOW));
    transport.max_idle_timeout(Some(idle_timeout()));
    let mut search = MtuDiscoveryConfig::default();
    search.minimum_change(MTU_STEP_MIN);
    transport.mtu_discovery_config(Some(search));
    transport
}

/// Returns the silence after which QUIC itself gives a connection up.
pub(crate) fn idle_timeout() -> IdleTimeout {
    IdleTimeout::from(VarInt::from_u32(IDLE_TIMEOUT_MS))
}

/// Index of the control stream: the client opens it first (RFC 9000 section 2.1 numbers streams in that order).
const CONTROL: u64 = 0;

/// Looks whether the last datagram was sent, and the time between two.
const FAREWELL_LOOKS_MAX: usize = 50;
const FAREWELL_PAUSE: Duration = Duration::from_millis(1);

/// Bytes that a longer datagram must gain. 200; our choice (decision 0032): the search tries 1,452 bytes, which most networks take, and
/// nothing else. noq would try four sizes, 5.6 kB, which a network of 20 kbit/s is busy with for 2 s, just when the first requests come.
const MTU_STEP_MIN: u16 = 200;

const STRANGER_STREAMS_MAX: u32 = 16;

/// What HTTP/3 needs at least (RFC 9114 section 6.2). A link has none, and nobody reads those that come.
const STRANGER_ONE_WAY_STREAMS_MAX: u32 = 3;
const STRANGER_RECEIVE_WINDOW: u32 = 64 * 1024;

/// Streams of an admitted link: its 256 exchanges, as many whose end is still on its way, and the control stream.
const STREAMS_MAX: u32 = 513;

/// Bytes in flight on an admitted link, either way: the credit of the link (1 MiB) and half as much again for heads and control, so
/// that credit and not QUIC is what stops a sender.
const RECEIVE_WINDOW: u32 = 1536 * 1024;

/// Bytes in flight on one stream: a channel's credit (256 KiB) and half as much again.
const STREAM_RECEIVE_WINDOW: u32 = 384 * 1024;

/// The longest heartbeat on `quic`, 2 min (DESIGN section 5), and half a minute for the answer, so that the session's own verdict
/// comes first.
const IDLE_TIMEOUT_MS: u32 = 150_000;

/// Bytes handed to streams that QUIC has not taken, or that wait for a stream; above it no more frames are asked for. A few times the
/// 16 KiB of the other carriers, since streams fill independently.
const UNSENT_BYTES_MAX: usize = 64 * 1024;

/// Frames that wait for a stream to open.
const WAITING_MAX: usize = 64;

/// Finished halves kept before it is looked which of them have arrived.
const DEPARTING_MIN: usize = 8;

/// Above the exchanges' zero.
const CONTROL_PRIORITY: i32 = 10;
