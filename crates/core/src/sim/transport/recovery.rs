//! What a sender knows of its packets: how long a round trip takes, what was lost, and how much may be under way.

use std::{collections::BTreeMap, time::Duration};

use super::{Chunk, HANDSHAKE, Transport};
use crate::Time;

/// The packets under way and what they teach.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    transport: Transport,
    sent: BTreeMap<u64, Sent>,
    in_flight: usize,
    /// Packets under way that carry what others carry too.
    copies: usize,
    window: usize,
    threshold: usize,
    /// Packets up to this one were sent before the window was last cut.
    cut_at: u64,
    largest_acked: Option<u64>,
    rtt: Option<Rtt>,
    /// When the next packet may go.
    pace: Time,
    /// Timeouts in a row.
    timeouts: u32,
    /// When the newest of them was sent, or the last acknowledgement came.
    armed_at: Time,
}

#[derive(Clone, Debug)]
struct Sent {
    at: Time,
    bytes: usize,
    chunks: Vec<Chunk>,
    opens: bool,
    is_copy: bool,
}

#[derive(Clone, Copy, Debug)]
struct Rtt {
    smoothed: Duration,
    variation: Duration,
}

/// What a timeout asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expired {
    /// Open the connection again.
    Open,
    /// Send these again, whatever the window says.
    Probe(Vec<Chunk>),
}

impl Recovery {
    pub(super) const fn new(transport: Transport, now: Time) -> Self {
        Self {
            transport,
            sent: BTreeMap::new(),
            in_flight: 0,
            copies: 0,
            window: WINDOW_SEGMENTS * transport.segment_bytes(),
            threshold: usize::MAX,
            cut_at: 0,
            largest_acked: None,
            rtt: None,
            pace: Time::ZERO,
            timeouts: 0,
            armed_at: now,
        }
    }

    /// Says whether packets are under way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Says whether a full packet may be sent: within the window, and not all of it at once.
    pub(super) fn has_room(&self, now: Time) -> bool {
        self.in_flight < self.window && self.pace <= now
    }

    /// Returns when the pace lets the next packet go, where the window would.
    pub(super) fn paced_until(&self) -> Option<Time> {
        (self.in_flight < self.window).then_some(self.pace)
    }

    pub(super) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.map(|rtt| rtt.smoothed)
    }

    /// Takes in that a packet was sent; `is_copy` says that another that carries the same may still be under way.
    pub(super) fn handle_sent(&mut self, number: u64, chunks: Vec<Chunk>, opens: bool, is_copy: bool, now: Time) {
        let bytes = chunks.iter().map(|chunk| chunk.data.len()).sum();
        self.restart_after_idle(now);
        self.pace_after(bytes, now);
        self.in_flight += bytes;
        self.copies += usize::from(is_copy);
        self.armed_at = now;
        self.sent.insert(number, Sent { at: now, bytes, chunks, opens, is_copy });
    }

    /// Takes in that these packets arrived; gives back what others carried that are lost.
    pub(super) fn handle_acks(&mut self, acks: &[u64], now: Time) -> Vec<Chunk> {
        let mut newest = None;
        for number in acks {
            let Some(sent) = self.sent.remove(number) else { continue };
            self.in_flight -= sent.bytes;
            self.grow(sent.bytes);
            newest = newest.max(Some((*number, sent.at)));
            if sent.is_copy || self.copies > 0 {
                self.forget_copies(&sent);
            }
        }
        let Some((number, at)) = newest else { return Vec::new() };
        self.largest_acked = self.largest_acked.max(Some(number));
        self.sample(now.since(at));
        if self.transport == Transport::Quic && self.timeouts >= PERSISTENT_TIMEOUTS {
            self.threshold = self.window * 7 / 10;
            self.window = WINDOW_SEGMENTS_MIN * self.transport.segment_bytes();
        }
        self.timeouts = 0;
        self.armed_at = now;
        self.lose_overtaken(now)
    }

    /// Takes in that time has passed: gives back what is lost by it, or what a timeout asks for.
    pub(super) fn handle_timeout(&mut self, now: Time) -> (Vec<Chunk>, Option<Expired>) {
        let lost = self.lose_overtaken(now);
        if !lost.is_empty() || self.expires_at().is_none_or(|at| now < at) {
            return (lost, None);
        }
        self.armed_at = now;
        self.timeouts += 1;
        if self.sent.values().any(|sent| sent.opens) {
            self.forget_all();
            return (Vec::new(), Some(Expired::Open));
        }
        let is_first = self.timeouts == 1;
        match self.transport {
            // RFC 9002 section 6.2.4: what is oldest goes again.
            Transport::Quic => {
                (Vec::new(), self.sent.first_entry().map(|entry| Expired::Probe(entry.get().chunks.clone())))
            }
            // RFC 8985 section 7: a loss probe at the tail, then RFC 6298 section 5: everything is taken for lost.
            Transport::Tcp if is_first => {
                (Vec::new(), self.sent.last_entry().map(|entry| Expired::Probe(entry.get().chunks.clone())))
            }
            Transport::Tcp => {
                let mut lost = self.forget_all().into_iter();
                self.threshold = (self.window / 2).max(WINDOW_SEGMENTS_MIN * self.transport.segment_bytes());
                self.window = self.transport.segment_bytes();
                let first = lost.next().map(|chunk| Expired::Probe(vec![chunk]));
                (lost.collect(), first)
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.overtaken_at(), self.expires_at()].into_iter().flatten().min()
    }

    /// When packets that others have overtaken are lost for being too late (RFC 9002 section 6.1.2, RFC 8985 section 6.2).
    fn overtaken_at(&self) -> Option<Time> {
        let (largest, rtt) = (self.largest_acked?, self.rtt?);
        let oldest = self.sent.range(..largest).map(|(_, sent)| sent.at).min()?;
        Some(oldest + rtt.smoothed * 9 / 8)
    }

    fn expires_at(&self) -> Option<Time> {
        (!self.sent.is_empty()).then(|| self.armed_at + self.timeout())
    }

    fn timeout(&self) -> Duration {
        let is_opening = self.sent.values().any(|sent| sent.opens);
        let Some(rtt) = self.rtt else {
            let doublings = match self.transport {
                Transport::Tcp if is_opening => self.timeouts.saturating_sub(SYN_LINEAR),
                Transport::Quic | Transport::Tcp => self.timeouts,
            };
            return INITIAL_TIMEOUT * 2_u32.pow(doublings.min(DOUBLINGS_MAX));
        };
        match self.transport {
            Transport::Quic => {
                let probe = rtt.smoothed + (rtt.variation * 4).max(GRANULARITY) + QUIC_ACK_DELAY;
                probe * 2_u32.pow(self.timeouts.min(DOUBLINGS_MAX))
            }
            Transport::Tcp => {
                let retransmission = rtt.smoothed + (rtt.variation * 4).max(TCP_TIMEOUT_MIN);
                let alone = if self.sent.len() == 1 { TCP_TIMEOUT_MIN } else { GRANULARITY };
                match self.timeouts {
                    0 => retransmission.min(rtt.smoothed * 2 + alone),
                    more => retransmission * 2_u32.pow((more - 1).min(DOUBLINGS_MAX)),
                }
            }
        }
    }

    fn lose_overtaken(&mut self, now: Time) -> Vec<Chunk> {
        let Some(largest) = self.largest_acked else { return Vec::new() };
        let late = self.rtt.map(|rtt| rtt.smoothed * 9 / 8);
        let is_lost = |number: u64, sent: &Sent| {
            number + REORDER_PACKETS <= largest || late.is_some_and(|late| now >= sent.at + late)
        };
        let overtaken = self.sent.range(..largest);
        let lost: Vec<u64> =
            overtaken.filter(|(number, sent)| is_lost(**number, sent)).map(|(number, _)| *number).collect();
        let Some(newest) = lost.last().copied() else { return Vec::new() };
        if newest >= self.cut_at {
            self.cut_at = self.sent.last_key_value().map_or(newest, |(number, _)| *number) + 1;
            let least = WINDOW_SEGMENTS_MIN * self.transport.segment_bytes();
            self.window = (self.window * 7 / 10).max(least);
            self.threshold = self.window;
        }
        let chunks = lost.into_iter().filter_map(|number| self.sent.remove(&number));
        chunks
            .flat_map(|sent| {
                self.in_flight -= sent.bytes;
                self.copies -= usize::from(sent.is_copy);
                sent.chunks
            })
            .collect()
    }

    /// Takes everything for lost, once however often it was sent.
    fn forget_all(&mut self) -> Vec<Chunk> {
        self.in_flight = 0;
        self.copies = 0;
        let mut chunks: Vec<Chunk> =
            std::mem::take(&mut self.sent).into_values().flat_map(|sent| sent.chunks).collect();
        chunks.sort_by_key(|chunk| (chunk.stream != HANDSHAKE, chunk.stream, chunk.offset));
        chunks.dedup();
        chunks
    }

    /// Forgets the packets that carry nothing but what arrived with another.
    fn forget_copies(&mut self, arrived: &Sent) {
        self.copies -= usize::from(arrived.is_copy);
        let is_known = |sent: &Sent| !sent.opens && sent.chunks.iter().all(|chunk| arrived.chunks.contains(chunk));
        let copies: Vec<u64> = self.sent.iter().filter(|(_, sent)| is_known(sent)).map(|(number, _)| *number).collect();
        for sent in copies.into_iter().filter_map(|number| self.sent.remove(&number)) {
            self.in_flight -= sent.bytes;
            self.copies -= usize::from(sent.is_copy);
        }
    }

    /// A TCP that was idle for a timeout begins again with the first window (RFC 5681 section 4.1).
    fn restart_after_idle(&mut self, now: Time) {
        let is_idle = self.sent.is_empty() && now >= self.armed_at + self.timeout();
        if is_idle && self.transport == Transport::Tcp {
            self.window = self.window.min(WINDOW_SEGMENTS * self.transport.segment_bytes());
        }
    }

    /// Spreads a window over its round trip (RFC 9002 section 7.7), but for the bytes of a first window.
    fn pace_after(&mut self, bytes: usize, now: Time) {
        let Some(rtt) = self.rtt else { return };
        let share = bytes as f64 / self.window.max(1) as f64 / PACE_GAIN;
        let burst = WINDOW_SEGMENTS * self.transport.segment_bytes();
        let ahead = rtt.smoothed.mul_f64(burst as f64 / self.window.max(burst) as f64 / PACE_GAIN);
        self.pace = self.pace.max(now - ahead) + rtt.smoothed.mul_f64(share);
    }

    /// Slow start, then one segment a round trip (RFC 5681 section 3.1).
    fn grow(&mut self, bytes: usize) {
        let gain = if self.window < self.threshold {
            bytes
        } else {
            self.transport.segment_bytes() * bytes / self.window.max(1)
        };
        self.window = (self.window + gain).min(WINDOW_BYTES_MAX);
    }

    /// RFC 6298 section 2.
    fn sample(&mut self, sample: Duration) {
        self.rtt = Some(match self.rtt {
            None => Rtt { smoothed: sample, variation: sample / 2 },
            Some(rtt) => Rtt {
                smoothed: rtt.smoothed * 7 / 8 + sample / 8,
                variation: rtt.variation * 3 / 4 + rtt.smoothed.abs_diff(sample) / 4,
            },
        });
    }
}

/// Segments of the first window; RFC 6928, RFC 9002 section 7.2.
const WINDOW_SEGMENTS: usize = 10;

/// By how much a window is spread over less than its round trip. 1.25; RFC 9002 section 7.7, N.
const PACE_GAIN: f64 = 1.25;

/// Segments of the smallest window; RFC 9002 section 7.2.
const WINDOW_SEGMENTS_MIN: usize = 2;

/// Bytes of the largest window: the credit of a link and half as much again, which is what noq is set to.
const WINDOW_BYTES_MAX: usize = 1_536 * 1_024;

/// Packets that overtake one before it counts as lost; RFC 9002 section 6.1.1, RFC 5681 section 3.2.
const REORDER_PACKETS: u64 = 3;

/// Timeouts in a row after which QUIC begins with the smallest window. 3, of which the last two take three times the first and more:
/// persistent congestion by RFC 9002 section 7.6.
const PERSISTENT_TIMEOUTS: u32 = 3;

/// The timeout before a round trip was measured. 1 s; RFC 6298 section 2.1, and RFC 9002 section 6.2.2 with its 333 ms.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// SYNs that are sent again after the same time before it doubles. 4; Linux since 6.5, `tcp_syn_linear_timeouts`.
const SYN_LINEAR: u32 = 4;

/// What the variation counts for at least. 200 ms; Linux, `TCP_RTO_MIN`.
const TCP_TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// The finest time that counts; RFC 9002 section 6.1.2.
const GRANULARITY: Duration = Duration::from_millis(1);

/// How long the other end may wait with an acknowledgement; RFC 9000 section 18.2.
const QUIC_ACK_DELAY: Duration = Duration::from_millis(25);

/// Doublings of a timeout: 2^7 times the first is beyond every deadline here.
const DOUBLINGS_MAX: u32 = 7;
