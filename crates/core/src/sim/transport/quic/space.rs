//! One packet number space of one end: what was sent in it, what arrived, and what is to be acknowledged.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    super::{
        Chunk,
        streams::{Incoming, Outgoing},
    },
    packet::{Ack, is_control},
};
use crate::Time;

/// A packet number space.
#[derive(Clone, Debug, Default)]
pub(super) struct SpaceState {
    pub(super) outgoing: Outgoing,
    /// What arrived of TLS, or of the connection itself.
    pub(super) control: Incoming,
    pub(super) sent: BTreeMap<u64, Sent>,
    pub(super) next_number: u64,
    pub(super) largest_acked: Option<u64>,
    /// When the oldest packet that others have overtaken is lost.
    pub(super) loss_at: Option<Time>,
    /// When something that must be acknowledged was last sent.
    pub(super) eliciting_at: Option<Time>,
    /// Packets that a timeout asks for.
    pub(super) probes: u32,
    pub(super) owes_ping: bool,
    pub(super) arrivals: Arrivals,
    pub(super) is_discarded: bool,
}

/// A packet that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) at: Time,
    /// Bytes that are in flight with it; none of one that acknowledges and no more.
    pub(super) bytes: usize,
    pub(super) is_eliciting: bool,
    pub(super) chunks: Vec<Chunk>,
    /// The largest number that it acknowledged.
    pub(super) acked: Option<u64>,
}

/// What arrived, and what of it is to be acknowledged when (RFC 9000 section 13.2).
#[derive(Clone, Debug, Default)]
pub(super) struct Arrivals {
    /// Numbers that acknowledgements name, until one of those was acknowledged; at most [`ACKS_MAX`].
    unconfirmed: BTreeSet<u64>,
    /// Numbers that have been seen; at most [`SEEN_MAX`], the newest.
    seen: BTreeSet<u64>,
    largest: Option<(u64, Time)>,
    largest_eliciting: Option<u64>,
    /// Packets that must be acknowledged, since the last acknowledgement.
    unanswered: u32,
    /// When the first of them came.
    since: Option<Time>,
    is_due: bool,
}

impl SpaceState {
    /// Says whether anything in flight could be acknowledged.
    pub(super) fn has_in_flight(&self) -> bool {
        self.sent.values().any(|sent| sent.bytes > 0)
    }

    /// Makes sure that a timeout has something to send: what waits, else what TLS or the connection itself sent first and has not been
    /// told of, else a PING. What streams sent is not repeated before it is known to be lost.
    pub(super) fn prepare_probe(&mut self) {
        if !self.outgoing.is_empty() {
            return;
        }
        for sent in self.sent.values_mut() {
            if sent.chunks.iter().any(is_control) {
                let (control, rest) = std::mem::take(&mut sent.chunks).into_iter().partition(is_control);
                sent.chunks = rest;
                return self.outgoing.lose(control);
            }
        }
        self.owes_ping = true;
    }
}

impl Arrivals {
    /// Takes in a packet; says no if it came before.
    pub(super) fn note(&mut self, number: u64, is_eliciting: bool, at_once: bool, now: Time) -> bool {
        let is_forgotten = self.seen.len() >= SEEN_MAX && self.seen.first().is_some_and(|oldest| number < *oldest);
        if is_forgotten || !self.seen.insert(number) {
            return false;
        }
        if self.seen.len() > SEEN_MAX {
            self.seen.pop_first();
        }
        self.unconfirmed.insert(number);
        if self.unconfirmed.len() > ACKS_MAX {
            self.unconfirmed.pop_first();
        }
        if self.largest.is_none_or(|(largest, _)| largest < number) {
            self.largest = Some((number, now));
        }
        if is_eliciting {
            let before = self.largest_eliciting.unwrap_or_default();
            self.largest_eliciting = self.largest_eliciting.max(Some(number));
            self.unanswered += 1;
            self.is_due |= at_once || self.unanswered > UNANSWERED_MAX || self.is_out_of_order(number, before);
            if self.since.is_none() && !self.is_due {
                self.since = Some(now);
            }
        }
        true
    }

    /// Says whether an acknowledgement is to be sent, alone if need be.
    pub(super) const fn is_due(&self) -> bool {
        self.is_due
    }

    /// Returns when one is to be sent at the latest.
    pub(super) fn due_at(&self) -> Option<Time> {
        self.since.filter(|_| !self.is_due).map(|since| since + MAX_ACK_DELAY)
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if self.due_at().is_some_and(|at| at <= now) {
            self.is_due = self.unanswered > 0;
        }
    }

    /// Makes an acknowledgement if it is time for one.
    pub(super) fn take(&mut self, now: Time) -> Option<Ack> {
        if !self.is_due || self.unconfirmed.is_empty() {
            return None;
        }
        (self.is_due, self.unanswered, self.since) = (false, 0, None);
        let delay = self.largest.map_or(Duration::ZERO, |(_, at)| now.since(at));
        Some(Ack { numbers: self.unconfirmed.clone(), delay })
    }

    /// Takes in that the other end knows what was acknowledged up to a number.
    pub(super) fn confirm(&mut self, number: u64) {
        self.unconfirmed = self.unconfirmed.split_off(&(number + 1));
    }

    /// RFC 9000 section 13.2.1: it is behind one that came before, or one is missing before it.
    fn is_out_of_order(&self, number: u64, before: u64) -> bool {
        number < before || self.seen.range(before..=number).count() as u64 <= number - before
    }
}

/// How long an acknowledgement may wait for company. 25 ms; RFC 9000 section 18.2, and noq's default.
pub(super) const MAX_ACK_DELAY: Duration = Duration::from_millis(25);

/// Packets that may wait for an acknowledgement. 1; RFC 9000 section 13.2.2, and noq's `ack_eliciting_threshold`.
const UNANSWERED_MAX: u32 = 1;

/// Numbers that one acknowledgement names, the newest. 64; those of a few windows' loss, and as many as noq has ranges.
const ACKS_MAX: usize = 64;

/// Numbers that are remembered, so that none is taken twice; more than are on their way at once.
const SEEN_MAX: usize = 4_096;
