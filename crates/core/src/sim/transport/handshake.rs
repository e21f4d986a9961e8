//! The flights of a handshake over TCP, by their lengths.

use super::{End, Transport};
use crate::CarrierKind;

/// One flight: who sends it and how many bytes.
type Flight = (End, u64);

/// How far a handshake is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handshake {
    flights: &'static [Flight],
    end: End,
    /// Flights that this end has sent or received in full.
    done: usize,
}

impl Handshake {
    pub(super) const fn new(carrier: CarrierKind, end: End) -> Self {
        let flights: &[Flight] = match carrier {
            // QUIC carries TLS in packets of its own, by its own module.
            CarrierKind::Quic | CarrierKind::Tls => &TLS,
            CarrierKind::Ws => &WEBSOCKET,
        };
        Self { flights, end, done: 0 }
    }

    /// Makes a handshake that this end never answers.
    pub(super) const fn ignored() -> Self {
        Self { flights: &IGNORED, end: End::Server, done: 0 }
    }

    /// Returns the bytes this end has to send now that so many have arrived from the other, if its turn has come.
    pub(super) fn next(&mut self, arrived: u64) -> Option<u64> {
        let mut due = None;
        while let Some((sender, bytes)) = self.flights.get(self.done) {
            if *sender == self.end {
                due = Some(due.unwrap_or_default() + bytes);
            } else if arrived < self.awaited(self.done) {
                break;
            }
            self.done += 1;
        }
        due
    }

    pub(super) const fn is_done(&self) -> bool {
        self.done == self.flights.len()
    }

    /// Counts the other end's bytes up to a flight, that included.
    fn awaited(&self, flight: usize) -> u64 {
        self.flights[..=flight].iter().filter(|(sender, _)| *sender != self.end).map(|(_, bytes)| bytes).sum()
    }
}

/// Returns what carries the packets of a carrier.
pub(crate) const fn transport(carrier: CarrierKind) -> Transport {
    match carrier {
        CarrierKind::Quic => Transport::Quic,
        CarrierKind::Tls | CarrierKind::Ws => Transport::Tcp,
    }
}

/// TLS 1.3 without resumption (RFC 8446 section 2), as it was counted in the lab: ClientHello; ServerHello to Finished with the lab's
/// chain, two certificates of P-256 with 900 bytes together; Finished.
const TLS: [Flight; 3] = [(End::Client, 243), (End::Server, 1_193), (End::Client, 80)];

/// The same, and the upgrade to WebSocket (RFC 6455 section 1.2) behind the client's Finished.
const WEBSOCKET: [Flight; 4] = [(End::Client, 243), (End::Server, 1_193), (End::Client, 80 + 300), (End::Server, 250)];

/// What a server sends when the handshake is complete, and no client waits for: two tickets of rustls, counted in the lab.
pub(super) const TICKETS_BYTES: u64 = 200;

/// More than any client sends.
const IGNORED: [Flight; 1] = [(End::Client, u64::MAX)];
