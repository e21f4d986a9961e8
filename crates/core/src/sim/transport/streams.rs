//! The two halves of a connection's streams: what is to be sent, and what arrived out of order.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::{Chunk, HANDSHAKE};

/// What waits to be sent, by stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Outgoing {
    /// What was lost, oldest first; it goes before anything new.
    lost: VecDeque<Chunk>,
    streams: BTreeMap<u64, Unsent>,
    unsent_bytes: usize,
    /// The stream that was served last.
    last: u64,
}

#[derive(Clone, Debug, Default)]
struct Unsent {
    offset: u64,
    pieces: VecDeque<Bytes>,
}

impl Outgoing {
    pub(super) fn push(&mut self, stream: u64, data: Bytes) {
        self.unsent_bytes += data.len();
        self.streams.entry(stream).or_default().pieces.push_back(data);
    }

    /// Puts back what a lost packet carried.
    pub(super) fn lose(&mut self, chunks: Vec<Chunk>) {
        self.lost.extend(chunks);
    }

    /// Says whether nothing was ever pushed.
    pub(super) fn is_unused(&self) -> bool {
        self.streams.is_empty()
    }

    pub(super) const fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.lost.is_empty() && self.unsent_bytes == 0
    }

    /// Takes what one packet of so many bytes carries.
    pub(super) fn take(&mut self, bytes_max: usize, mixed: Mixed) -> Vec<Chunk> {
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut room = bytes_max;
        while room > 0
            && let Some(chunk) = self.lost.front_mut()
            && mixed.allows(&chunks, chunk.stream)
        {
            let chunk = if chunk.data.len() > room {
                let data = chunk.data.split_to(room);
                let offset = chunk.offset;
                chunk.offset += room as u64;
                Chunk { stream: chunk.stream, offset, data }
            } else {
                self.lost.pop_front().expect("there is a front")
            };
            room -= chunk.data.len();
            chunks.push(chunk);
        }
        while room > 0
            && let Some(stream) = self.next_stream().filter(|stream| mixed.allows(&chunks, *stream))
        {
            let chunk = self.take_new(stream, room);
            room -= chunk.data.len();
            chunks.push(chunk);
        }
        chunks
    }

    /// Chooses the stream whose turn it is: the handshake, then the first one, then the others in turn.
    fn next_stream(&self) -> Option<u64> {
        let has_more = |stream: &u64| self.streams.get(stream).is_some_and(|unsent| !unsent.pieces.is_empty());
        let ordered = [HANDSHAKE, 0].into_iter().find(has_more);
        let after = self.streams.range(self.last.saturating_add(1)..).map(|(stream, _)| *stream);
        let from_start = self.streams.keys().copied();
        ordered.or_else(|| after.chain(from_start).find(has_more))
    }

    fn take_new(&mut self, stream: u64, bytes_max: usize) -> Chunk {
        self.last = stream;
        let unsent = self.streams.get_mut(&stream).expect("the stream has more");
        let piece = unsent.pieces.front_mut().expect("the stream has more");
        let data = if piece.len() > bytes_max {
            piece.split_to(bytes_max)
        } else {
            unsent.pieces.pop_front().expect("the stream has more")
        };
        let offset = unsent.offset;
        unsent.offset += data.len() as u64;
        self.unsent_bytes -= data.len();
        Chunk { stream, offset, data }
    }
}

/// Whether a packet carries the handshake and other streams together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mixed {
    /// Each goes in packets of its own, as records of TLS that are written one by one do.
    No,
    Yes,
}

impl Mixed {
    fn allows(self, chunks: &[Chunk], stream: u64) -> bool {
        self == Self::Yes || chunks.iter().all(|chunk| (chunk.stream == HANDSHAKE) == (stream == HANDSHAKE))
    }
}

/// What arrived on a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct Incoming {
    /// Bytes that arrived in order.
    pub(super) arrived: u64,
    early: BTreeMap<u64, Bytes>,
}

impl Incoming {
    /// Takes a piece and passes on what is in order by it.
    pub(super) fn take(&mut self, offset: u64, data: Bytes, sink: &mut impl FnMut(Bytes)) {
        let known = self.early.get(&offset).map_or(0, Bytes::len);
        if offset + data.len() as u64 > self.arrived && data.len() > known {
            self.early.insert(offset, data);
        }
        while let Some((&offset, _)) = self.early.first_key_value()
            && offset <= self.arrived
        {
            let Some((_, mut piece)) = self.early.pop_first() else { return };
            let behind = usize::try_from(self.arrived - offset).unwrap_or(usize::MAX).min(piece.len());
            let fresh = piece.split_off(behind);
            self.arrived += fresh.len() as u64;
            if !fresh.is_empty() {
                sink(fresh);
            }
        }
    }
}
