//! What takes packets from the queue of a link, at the pace of its capacity.

use std::{sync::Arc, time::Duration};

use super::Capacity;
use crate::{Time, sim::trace::OPPORTUNITY_BYTES};

/// Serves the head of a queue.
#[derive(Clone, Debug)]
pub(super) struct Server {
    capacity: Capacity,
    /// When the trace began.
    trace_began: Time,
    /// The next opportunity of the trace.
    opportunity: u64,
    is_paused: bool,
    /// How much of the head is sent, in bits times 1,000,000,000, which no rate has to round.
    sent_nanobits: u128,
    /// Up to when that is counted.
    counted_to: Time,
    /// When the head's turn came.
    turn_began: Time,
    last_service: Duration,
}

impl Server {
    pub(super) const fn new(capacity: Capacity, now: Time) -> Self {
        Self {
            capacity,
            trace_began: now,
            opportunity: 0,
            is_paused: false,
            sent_nanobits: 0,
            counted_to: now,
            turn_began: now,
            last_service: Duration::ZERO,
        }
    }

    /// Takes in that a packet came to an empty queue.
    pub(super) fn begin(&mut self, now: Time) {
        self.sent_nanobits = 0;
        self.turn_began = now;
        self.go_on(now);
    }

    /// Says when a head of this length may be sent, or may be sent in part.
    pub(super) fn next(&self, length: usize) -> Option<Time> {
        if self.is_paused {
            return None;
        }
        Some(match &self.capacity {
            Capacity::Rate { bits_per_s } => {
                let left = work(length).saturating_sub(self.sent_nanobits);
                let nanos = left.div_ceil(u128::from((*bits_per_s).max(1)));
                self.counted_to + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            Capacity::Trace(trace) => self.trace_began + trace.moment(self.opportunity),
            Capacity::Unlimited => self.counted_to,
        })
    }

    /// Begins to send at a moment that [`Server::next`] gave.
    pub(super) fn open(&mut self, now: Time) {
        self.count(now);
        if matches!(self.capacity, Capacity::Trace(_)) {
            self.sent_nanobits += u128::from(OPPORTUNITY_BYTES) * NANOBITS_PER_BYTE;
            self.opportunity += 1;
        }
    }

    /// Sends a head of this length, or says that it needs another moment.
    pub(super) fn take(&mut self, length: usize, now: Time) -> bool {
        if !matches!(self.capacity, Capacity::Unlimited) {
            let Some(left) = self.sent_nanobits.checked_sub(work(length)) else { return false };
            self.sent_nanobits = left;
        }
        self.last_service = now.since(self.turn_began);
        self.turn_began = now;
        true
    }

    /// Ends a moment: what it could have sent beyond the queue is gone.
    pub(super) const fn close(&mut self, is_empty: bool) {
        if is_empty {
            self.sent_nanobits = 0;
        }
    }

    pub(super) fn pause(&mut self, now: Time) {
        self.count(now);
        self.is_paused = true;
    }

    pub(super) fn resume(&mut self, now: Time) {
        if std::mem::take(&mut self.is_paused) {
            self.go_on(now);
        }
    }

    /// Goes on at another pace; a trace that is the one before goes on where it is.
    pub(super) fn set_capacity(&mut self, capacity: Capacity, now: Time) {
        self.count(now);
        if let Capacity::Trace(trace) = &capacity
            && !matches!(&self.capacity, Capacity::Trace(before) if Arc::ptr_eq(before, trace))
        {
            self.trace_began = now;
            self.opportunity = 0;
        }
        self.capacity = capacity;
        self.go_on(now);
    }

    /// Returns how long the packet sent last had its turn.
    pub(super) const fn last_service(&self) -> Duration {
        self.last_service
    }

    /// Counts what is sent of the head by now.
    fn count(&mut self, now: Time) {
        if let Capacity::Rate { bits_per_s } = self.capacity
            && !self.is_paused
        {
            self.sent_nanobits += now.since(self.counted_to).as_nanos() * u128::from(bits_per_s.max(1));
        }
        self.counted_to = now;
    }

    /// Takes up service from now on, with no opportunity twice.
    fn go_on(&mut self, now: Time) {
        self.counted_to = now;
        if let Capacity::Trace(trace) = &self.capacity {
            self.opportunity = self.opportunity.max(trace.first_from(now.since(self.trace_began)));
        }
    }
}

const fn work(length: usize) -> u128 {
    length as u128 * NANOBITS_PER_BYTE
}

/// Units of [`Server::sent_nanobits`] in a byte.
const NANOBITS_PER_BYTE: u128 = 8 * 1_000_000_000;
