//! What a sender knows of its packets: how long a round trip takes, what was lost, and how much may be under way.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;

use super::{Chunk, HANDSHAKE, PADDING, Segment, Transport, pacer::Pacer};
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
    pacer: Pacer,
    /// Timeouts in a row.
    timeouts: u32,
    /// When the newest of them was sent, or the last acknowledgement came.
    armed_at: Time,
}

#[derive(Clone, Debug)]
struct Sent {
    at: Time,
    bytes: usize,
    /// Bytes of these that say nothing.
    padding: usize,
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
    /// Send these again, a packet each, whatever the window says.
    Probe(Vec<Vec<Chunk>>),
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
            pacer: Pacer::new(transport, now),
            timeouts: 0,
            armed_at: now,
        }
    }

    /// Says whether packets are under way.
    pub(super) fn is_waiting(&self) -> bool {
        !self.sent.is_empty()
    }

    /// Says whether a full packet may be sent: within the window, and not all of it at once.
    pub(super) fn has_room(&mut self, now: Time) -> bool {
        let rtt = self.smoothed_rtt();
        self.in_flight < self.window && self.pacer.has_room(self.window, rtt, now)
    }

    /// Returns when the pace lets the next packet go, where the window would.
    pub(super) fn paced_until(&self) -> Option<Time> {
        (self.in_flight < self.window).then(|| self.pacer.full_at(self.window, self.smoothed_rtt()))
    }

    pub(super) fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.map(|rtt| rtt.smoothed)
    }

    /// Takes in that a packet was sent; `is_copy` says that another that carries the same may still be under way.
    pub(super) fn handle_sent(&mut self, segment: &Segment, is_copy: bool, now: Time) {
        let Segment { number, chunks, padding, opens, .. } = segment.clone();
        let bytes = padding + chunks.iter().map(|chunk| chunk.data.len()).sum::<usize>();
        self.restart_after_idle(now);
        self.pacer.handle_sent(bytes, self.window, self.smoothed_rtt());
        self.in_flight += bytes;
        self.copies += usize::from(is_copy);
        self.armed_at = now;
        self.sent.insert(number, Sent { at: now, bytes, padding, chunks, opens, is_copy });
    }

    /// Takes in that packets have become longer.
    pub(super) const fn handle_segment_bytes(&mut self, bytes: usize) {
        self.pacer.handle_segment_bytes(bytes);
    }

    /// Says whether a packet is neither acknowledged nor lost.
    pub(super) fn awaits(&self, number: u64) -> bool {
        self.sent.contains_key(&number)
    }

    /// Takes in that these packets arrived; gives back what others carried that are lost. The window grows where it, and not what there
    /// is to send, has been the limit (RFC 9002 section 7.8).
    pub(super) fn handle_acks(&mut self, acks: &[u64], delay: Duration, has_more: bool, now: Time) -> Vec<Chunk> {
        let is_limit = match self.transport {
            Transport::Quic => has_more,
            // Linux, `tcp_is_cwnd_limited`: in slow start half of the window is enough.
            Transport::Tcp => has_more || self.window < self.threshold.min(2 * self.in_flight),
        };
        let mut newest = None;
        for number in acks {
            let Some(sent) = self.sent.remove(number) else { continue };
            self.in_flight -= sent.bytes;
            if is_limit {
                self.grow(sent.bytes);
            }
            newest = newest.max(Some((*number, sent.at)));
            if sent.is_copy || self.copies > 0 {
                self.forget_copies(&sent);
            }
        }
        let Some((number, at)) = newest else { return Vec::new() };
        // RFC 9002 section 5.1: only the largest gives a sample.
        if self.largest_acked < Some(number) {
            self.largest_acked = Some(number);
            self.sample(now.since(at).saturating_sub(delay));
        }
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
            // RFC 9002 section 6.2.4: two packets. noq repeats the handshake in them, and else asks what has arrived.
            Transport::Quic => {
                let holders = self.sent.values_mut().filter(|sent| is_of_handshake(&sent.chunks)).take(PROBES);
                let mut packets: Vec<_> = holders.map(|sent| std::mem::take(&mut sent.chunks)).collect();
                packets.resize(PROBES, vec![ping()]);
                (Vec::new(), Some(Expired::Probe(packets)))
            }
            // RFC 8985 section 7: a loss probe at the tail, then RFC 6298 section 5: everything is taken for lost.
            Transport::Tcp if is_first => {
                (Vec::new(), self.sent.last_entry().map(|entry| Expired::Probe(vec![entry.get().chunks.clone()])))
            }
            Transport::Tcp => {
                let mut lost = self.forget_all().into_iter();
                self.threshold = (self.window / 2).max(WINDOW_SEGMENTS_MIN * self.transport.segment_bytes());
                self.window = self.transport.segment_bytes();
                let first = lost.next().map(|chunk| Expired::Probe(vec![vec![chunk]]));
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
            return backed_off(INITIAL_TIMEOUT, doublings, Duration::ZERO, self.transport);
        };
        match self.transport {
            Transport::Quic => {
                let probe = rtt.smoothed + (rtt.variation * 4).max(GRANULARITY) + QUIC_ACK_DELAY;
                backed_off(probe, self.timeouts, rtt.smoothed, self.transport)
            }
            Transport::Tcp => {
                let retransmission = rtt.smoothed + (rtt.variation * 4).max(TCP_TIMEOUT_MIN);
                let alone = if self.sent.len() == 1 { TCP_TIMEOUT_MIN } else { GRANULARITY };
                match self.timeouts {
                    0 => retransmission.min(rtt.smoothed * 2 + alone),
                    more => backed_off(retransmission, more - 1, rtt.smoothed, self.transport),
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
        // A longer datagram that is lost tells of the path's limit, not of its load.
        let is_load = lost.iter().any(|number| self.sent.get(number).is_some_and(|sent| sent.padding == 0));
        if newest >= self.cut_at && is_load {
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

/// Returns a timeout after so many in a row: doubled each time, but QUIC's by no more than what noq allows.
fn backed_off(base: Duration, times: u32, rtt: Duration, transport: Transport) -> Duration {
    let doubled = |times: u32| base * 2_u32.pow(times.min(DOUBLINGS_MAX));
    match transport {
        Transport::Quic => {
            let step = BACKOFF_STEP_MAX.max(rtt * 3 / 2);
            (1..=times.min(DOUBLINGS_MAX)).fold(base, |timeout, times| doubled(times).min(timeout + step))
        }
        Transport::Tcp => doubled(times),
    }
}

fn is_of_handshake(chunks: &[Chunk]) -> bool {
    chunks.iter().any(|chunk| chunk.stream == HANDSHAKE)
}

/// Makes what asks for an acknowledgement and has nothing to say.
pub(super) const fn ping() -> Chunk {
    Chunk { stream: PADDING, offset: 0, data: Bytes::new() }
}

/// Packets that a timeout of QUIC sends. 2; RFC 9002 section 6.2.4, and noq.
const PROBES: usize = 2;

/// By how much a timeout of QUIC grows at most, where one and a half round trips are not more. 2 s; noq's default for connections that
/// may be idle for long.
const BACKOFF_STEP_MAX: Duration = Duration::from_secs(2);

/// Segments of the first window; RFC 6928, RFC 9002 section 7.2.
const WINDOW_SEGMENTS: usize = 10;

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

/// How long the other end may wait with an acknowledgement. 25 ms; RFC 9000 section 18.2, and noq's default.
pub(super) const QUIC_ACK_DELAY: Duration = Duration::from_millis(25);

/// Doublings of a timeout: 2^7 times the first is beyond every deadline here, or grows by its largest step.
const DOUBLINGS_MAX: u32 = 7;
