//! What one end of QUIC makes of acknowledgements and of their absence (RFC 9002, as noq has it).

use std::{collections::BTreeSet, time::Duration};

use super::{
    super::End,
    Quic,
    packet::Space,
    space::{Sent, SpaceState},
};
use crate::Time;

impl Quic {
    pub(super) fn handle_ack(&mut self, space: Space, numbers: &BTreeSet<u64>, delay: Duration, now: Time) {
        let Some(largest) = numbers.last().copied() else { return };
        let state = self.space(space);
        let is_newer = state.largest_acked.is_none_or(|known| known < largest);
        let largest_at = state.sent.get(&largest).map(|sent| sent.at);
        state.largest_acked = state.largest_acked.max(Some(largest));
        let newly: Vec<(u64, Sent)> = state.sent.extract_if(.., |number, _| numbers.contains(number)).collect();
        if newly.is_empty() {
            return;
        }
        for (number, sent) in &newly {
            if let Some(acked) = sent.acked {
                self.space(space).arrivals.confirm(acked);
            }
            self.path.forget(sent);
            self.path.grow(sent);
            if space == Space::Data && self.path.mtu.under_way() == Some(*number) {
                self.path.mtu.handle_result(true);
                let bytes = self.path.mtu.datagram_bytes();
                self.path.pacer.handle_segment_bytes(bytes);
            }
        }
        if is_newer
            && newly.iter().any(|(_, sent)| sent.is_eliciting)
            && let Some(at) = largest_at
        {
            let delay = if space == Space::Data { delay.min(super::space::MAX_ACK_DELAY) } else { Duration::ZERO };
            self.path.sample(now.since(at), delay);
            let next = self.spaces[space as usize].next_number;
            self.path.measured_at.get_or_insert((space, next));
        }
        self.detect_lost(space, true, now);
        if self.is_peer_sure() {
            self.path.timeouts = 0;
        }
        self.set_loss_timer(now);
    }

    pub(super) fn handle_loss_timeout(&mut self, now: Time) {
        if let Some(space) = Space::ALL
            .into_iter()
            .filter(|space| self.loss_at(*space).is_some())
            .min_by_key(|space| self.loss_at(*space))
        {
            self.detect_lost(space, false, now);
            return self.set_loss_timer(now);
        }
        let Some((_, space)) = self.timeout(now) else { return self.set_loss_timer(now) };
        // RFC 9002 section 6.2.4: two packets, or one where nothing is in flight.
        let probes = if self.path.eliciting == 0 { 1 } else { PROBES };
        self.space(space).probes += probes;
        self.path.timeouts += 1;
        self.set_loss_timer(now);
    }

    /// Sets when loss or a timeout is looked for next.
    pub(super) fn set_loss_timer(&mut self, now: Time) {
        let lost = Space::ALL.into_iter().filter_map(|space| self.loss_at(space)).min();
        self.loss_timer = lost.or_else(|| self.timeout(now).map(|(at, _)| at));
    }

    /// Forgets a space whose keys are not used any more.
    pub(super) fn discard(&mut self, space: Space, now: Time) {
        if self.spaces[space as usize].is_discarded {
            return;
        }
        let SpaceState { sent, control, .. } = std::mem::take(self.space(space));
        for sent in sent.into_values() {
            self.path.forget(&sent);
        }
        *self.space(space) = SpaceState { control, is_discarded: true, ..SpaceState::default() };
        self.set_loss_timer(now);
    }

    fn loss_at(&self, space: Space) -> Option<Time> {
        self.spaces[space as usize].loss_at
    }

    /// Finds the packets that are lost: others that were sent later have arrived (RFC 9002 section 6.1).
    fn detect_lost(&mut self, space: Space, by_ack: bool, now: Time) {
        let (loss_delay, persistence) = (self.path.loss_delay(), self.path.data_timeout() * PERSISTENCE);
        let (measured_at, probe) = (self.path.measured_at, self.path.mtu.under_way().filter(|_| space == Space::Data));
        let state = self.space(space);
        state.loss_at = None;
        let Some(largest) = state.largest_acked else { return };
        let mut lost = Vec::new();
        let (mut run_since, mut before, mut is_persistent) = (None, None, false);
        for (&number, sent) in state.sent.range(..largest) {
            if before != number.checked_sub(1) {
                run_since = None;
            }
            before = Some(number);
            if number + REORDER_PACKETS > largest && now < sent.at + loss_delay {
                state.loss_at.get_or_insert(sent.at + loss_delay);
                run_since = None;
                continue;
            }
            lost.push(number);
            if sent.is_eliciting && by_ack && probe != Some(number) {
                let is_measured = measured_at.is_some_and(|at| at < (space, number));
                match run_since {
                    Some(since) => is_persistent |= sent.at.since(since) > persistence,
                    None => run_since = is_measured.then_some(sent.at),
                }
            }
        }
        let mut newest = None;
        for number in lost {
            let Some(sent) = self.space(space).sent.remove(&number) else { continue };
            self.path.forget(&sent);
            if probe == Some(number) {
                // A longer datagram that is lost tells of the path's limit, not of its load.
                self.path.mtu.handle_result(false);
                continue;
            }
            if sent.bytes > 0 {
                newest = newest.max(Some(sent.at));
            }
            self.space(space).outgoing.lose(sent.chunks);
        }
        if let Some(sent_at) = newest {
            self.path.cut(sent_at, is_persistent, now);
        }
    }

    /// Returns when a timeout is due, and in which space.
    fn timeout(&self, now: Time) -> Option<(Time, Space)> {
        if self.path.eliciting == 0 && !self.is_peer_sure() {
            // RFC 9000 section 8.1: else a server that may not send more would wait for ever.
            let has_handshake = self.can_read(Space::Handshake);
            let space = if has_handshake { Space::Handshake } else { Space::Initial };
            return Some((now + self.path.idle_timeout(), space));
        }
        if self.path.eliciting == 0 || self.path.is_amplification_limited() {
            return None;
        }
        let due = |space: &Space| {
            let state = &self.spaces[*space as usize];
            // RFC 9002 section 6.2.1: not for data before the handshake is confirmed.
            let counts = *space != Space::Data || self.is_confirmed;
            let at = state.eliciting_at.filter(|_| counts && state.has_in_flight())?;
            Some((at + self.path.timeout(*space), *space))
        };
        Space::ALL.iter().filter_map(due).min()
    }

    /// Says whether the server is known to know where this client is.
    fn is_peer_sure(&self) -> bool {
        let is_acked = |space: Space| self.spaces[space as usize].largest_acked.is_some();
        self.end == End::Server || self.is_confirmed || is_acked(Space::Handshake) || is_acked(Space::Data)
    }
}

/// Packets that a timeout sends. 2; RFC 9002 section 6.2.4, and noq.
const PROBES: u32 = 2;

/// Packets that overtake one before it counts as lost. 3; RFC 9002 section 6.1.1.
const REORDER_PACKETS: u64 = 3;

/// Timeouts of data without anything getting through that make the window the smallest. 3; RFC 9002 section 7.6.1.
const PERSISTENCE: u32 = 3;
