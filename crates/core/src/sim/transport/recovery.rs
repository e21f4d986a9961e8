//! What a sender of TCP knows of its segments: how long a round trip takes, what was lost, and how much may be under way.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Chunk, HANDSHAKE,
    pacer::{Burst, Pacer},
    tcp::SEGMENT_BYTES,
};
use crate::Time;

/// The packets under way and what they teach.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
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
    pub(super) const fn new(now: Time) -> Self {
        Self {
            sent: BTreeMap::new(),
            in_flight: 0,
            copies: 0,
            window: WINDOW_SEGMENTS * SEGMENT_BYTES,
            threshold: usize::MAX,
            cut_at: 0,
            largest_acked: None,
            rtt: None,
            pacer: Pacer::new(Burst::Fixed, SEGMENT_BYTES, now),
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
        // The first flight goes at once.
        let is_in_pace = self.smoothed_rtt().is_none_or(|rtt| self.pacer.has_room(self.window, rtt, now));
        self.in_flight < self.window && is_in_pace
    }

    /// Returns when the pace lets the next packet go, where the window would.
    pub(super) fn paced_until(&self) -> Option<Time> {
        let rtt = self.smoothed_rtt()?;
        (self.in_flight < self.window).then(|| self.pacer.full_at(self.window, rtt))
    }

    fn smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.map(|rtt| rtt.smoothed)
    }

    /// Takes in that a packet was sent; `is_copy` says that another that carries the same may still be under way.
    pub(super) fn handle_sent(&mut self, number: u64, chunks: &[Chunk], opens: bool, is_copy: bool, now: Time) {
        let bytes = chunks.iter().map(|chunk| chunk.data.len()).sum();
        self.restart_after_idle(now);
        if let Some(rtt) = self.smoothed_rtt() {
            self.pacer.handle_sent(bytes, self.window, rtt);
        }
        self.in_flight += bytes;
        self.copies += usize::from(is_copy);
        self.armed_at = now;
        self.sent.insert(number, Sent { at: now, bytes, chunks: chunks.to_vec(), opens, is_copy });
    }

    /// Takes in that these packets arrived; gives back what others carried that are lost. The window grows where it, and not what there
    /// is to send, has been the limit; in slow start half of it is enough (Linux, `tcp_is_cwnd_limited`).
    pub(super) fn handle_acks(&mut self, acks: &[u64], has_more: bool, now: Time) -> Vec<Chunk> {
        let is_limit = has_more || self.window < self.threshold.min(2 * self.in_flight);
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
        if self.largest_acked < Some(number) {
            self.largest_acked = Some(number);
            self.sample(now.since(at));
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
        if self.timeouts == 1 {
            // RFC 8985 section 7: a loss probe at the tail.
            let last = self.sent.last_entry().map(|entry| Expired::Probe(entry.get().chunks.clone()));
            return (Vec::new(), last);
        }
        // RFC 6298 section 5: everything is taken for lost.
        let mut lost = self.forget_all().into_iter();
        self.threshold = (self.window / 2).max(WINDOW_SEGMENTS_MIN * SEGMENT_BYTES);
        self.window = SEGMENT_BYTES;
        let first = lost.next().map(|chunk| Expired::Probe(vec![chunk]));
        (lost.collect(), first)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.overtaken_at(), self.expires_at()].into_iter().flatten().min()
    }

    /// When packets that others have overtaken are lost for being too late (RFC 8985 section 6.2).
    fn overtaken_at(&self) -> Option<Time> {
        let (largest, rtt) = (self.largest_acked?, self.rtt?);
        let oldest = self.sent.range(..largest).map(|(_, sent)| sent.at).min()?;
        Some(oldest + rtt.smoothed * 9 / 8)
    }

    fn expires_at(&self) -> Option<Time> {
        (!self.sent.is_empty()).then(|| self.armed_at + self.timeout())
    }

    fn timeout(&self) -> Duration {
        let Some(rtt) = self.rtt else {
            let is_opening = self.sent.values().any(|sent| sent.opens);
            let linear = if is_opening { SYN_LINEAR } else { 0 };
            return backed_off(INITIAL_TIMEOUT, self.timeouts.saturating_sub(linear));
        };
        let retransmission = rtt.smoothed + (rtt.variation * 4).max(TCP_TIMEOUT_MIN);
        let alone = if self.sent.len() == 1 { TCP_TIMEOUT_MIN } else { PROBE_MARGIN };
        match self.timeouts {
            0 => retransmission.min(rtt.smoothed * 2 + alone),
            more => backed_off(retransmission, more - 1),
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
            let least = WINDOW_SEGMENTS_MIN * SEGMENT_BYTES;
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
        if self.sent.is_empty() && now >= self.armed_at + self.timeout() {
            self.window = self.window.min(WINDOW_SEGMENTS * SEGMENT_BYTES);
        }
    }

    /// Slow start, then one segment a round trip (RFC 5681 section 3.1).
    fn grow(&mut self, bytes: usize) {
        let gain = if self.window < self.threshold { bytes } else { SEGMENT_BYTES * bytes / self.window.max(1) };
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

/// Doubles a timeout for each of those before it.
fn backed_off(base: Duration, times: u32) -> Duration {
    base * 2_u32.pow(times.min(DOUBLINGS_MAX))
}

/// Segments of the first window. 10; RFC 6928.
const WINDOW_SEGMENTS: usize = 10;

/// Segments of the smallest window that a loss leaves. 2; RFC 5681 section 3.1.
const WINDOW_SEGMENTS_MIN: usize = 2;

/// Bytes of the largest window: the credit of a link and half as much again.
const WINDOW_BYTES_MAX: usize = 1_536 * 1_024;

/// Packets that overtake one before it counts as lost. 3; RFC 5681 section 3.2.
const REORDER_PACKETS: u64 = 3;

/// The timeout before a round trip was measured. 1 s; RFC 6298 section 2.1.
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);

/// SYNs that are sent again after the same time before it doubles. 4; Linux since 6.5, `tcp_syn_linear_timeouts`.
const SYN_LINEAR: u32 = 4;

/// What the variation counts for at least. 200 ms; Linux, `TCP_RTO_MIN`.
const TCP_TIMEOUT_MIN: Duration = Duration::from_millis(200);

/// What a loss probe waits beyond two round trips where several packets are under way. 1 ms; Linux counts in ticks of about that.
const PROBE_MARGIN: Duration = Duration::from_millis(1);

/// Doublings of a timeout: 2^7 times the first is beyond every deadline here.
const DOUBLINGS_MAX: u32 = 7;
