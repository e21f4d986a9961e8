//! How frames travel over a simulated connection: as the carriers of the real client and gateway have them travel.

use std::collections::BTreeMap;

use bytes::BytesMut;

use crate::{
    CarrierKind, Time,
    session::LinkError,
    sim::{
        net::Flow,
        transport::{Connection, End},
    },
    wire::{Decoder, Frame, FrameRef, Kind, frame::PAYLOAD_BYTES_MAX},
};

/// One end of a connection that carries frames.
///
/// Over TCP all frames are on one stream. Over QUIC the client gives each exchange a stream of its own; what is of the link itself, or
/// of an exchange that an earlier connection began, is on the first.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) connection: Connection,
    kind: CarrierKind,
    end: End,
    /// The stream of each exchange that has one.
    streams: BTreeMap<u64, u64>,
    opened: u64,
    decoders: BTreeMap<u64, Decoder>,
}

impl Carrier {
    pub(super) fn new(kind: CarrierKind, end: End, now: Time) -> Self {
        Self {
            connection: Connection::new(kind, end, now),
            kind,
            end,
            streams: BTreeMap::new(),
            opened: CONTROL,
            decoders: BTreeMap::new(),
        }
    }

    /// Makes the end of a server that takes connections and says nothing on them.
    pub(super) fn mute(kind: CarrierKind, now: Time) -> Self {
        Self { connection: Connection::mute(kind, now), ..Self::new(kind, End::Server, now) }
    }

    pub(super) const fn kind(&self) -> CarrierKind {
        self.kind
    }

    pub(super) fn send(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        frame.encode(&mut bytes);
        let stream = self.stream_of(frame);
        self.connection.write(stream, bytes.freeze());
    }

    /// Passes on the frames that arrived; says whether anything did.
    pub(super) fn receive(
        &mut self,
        sink: &mut dyn FnMut(FrameRef<'_>) -> Result<(), LinkError>,
    ) -> Result<bool, LinkError> {
        let mut has_arrived = false;
        while let Some((stream, data)) = self.connection.read() {
            has_arrived = true;
            let Self { decoders, streams, .. } = self;
            let decoder = decoders.entry(stream).or_insert_with(|| Decoder::new(PAYLOAD_BYTES_MAX));
            decoder.feed(&data, &mut |frame| {
                if stream != CONTROL {
                    streams.insert(frame.channel, stream);
                }
                sink(frame)
            })?;
        }
        Ok(has_arrived)
    }

    fn stream_of(&mut self, frame: &Frame) -> u64 {
        if self.kind == CarrierKind::Quic && self.end == End::Client && frame.kind == Kind::Request {
            self.opened += 1;
            self.streams.insert(frame.channel, self.opened);
        }
        let own = self.streams.get(&frame.channel).filter(|_| frame.kind.is_exchange());
        own.copied().unwrap_or(CONTROL)
    }
}

/// Returns what both ends of a connection know of its handshake and nobody else does: TLS's exporter.
pub(super) fn binding(flow: Flow) -> [u8; 32] {
    let mut binding = [0; 32];
    binding[..8].copy_from_slice(&flow.to_be_bytes());
    binding
}

const CONTROL: u64 = 0;
