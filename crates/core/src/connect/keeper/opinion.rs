//! A second opinion: whether the way to another unit is smoother than the one to the link's.

use std::time::Duration;

use super::{Attempt, ConnectionId, DropReason, Keeper, KeeperOutput, Passage, Unit, units::AVOID_MAX};
use crate::{
    Time,
    connect::{Candidate, Establish, RankedCandidate, Score, candidate},
};

/// Connections to another unit, opened to see how the way to it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Opinion {
    /// At most two: the carriers of one address.
    asked: Vec<ConnectionId>,
    /// How long they may take.
    until: Time,
    /// None is asked for before.
    not_before: Time,
    /// Opinions in a row that said nothing better.
    in_vain: u32,
}

impl Keeper {
    /// Takes in that a link takes longer to reply than on a way that loses nothing.
    pub fn handle_late(&mut self, connection: ConnectionId, now: Time) {
        if self.is_current(connection)
            && let Some(passage) = self.passages.get_mut(&connection)
        {
            passage.handle_late();
            self.seek_opinion(now);
        }
    }

    /// Where the way of the link, or of what is greeted for one, is rough and another unit is known: moves to a connection whose way is
    /// smoother, or opens one to see.
    pub(super) fn seek_opinion(&mut self, now: Time) {
        if self.is_moving() || !self.is_on_rough_way() {
            return;
        }
        let Some(home) = self.current_unit() else { return };
        if let Some((connection, candidate)) = self.take_smoother(&home) {
            return self.move_to((connection, candidate), home, now);
        }
        let is_elsewhere = |candidate: Candidate| {
            let address = candidate.address;
            self.units.of(address).is_some_and(|unit| *unit != home) && !self.is_unwanted(address, now)
        };
        let is_begun = |connection: ConnectionId| {
            let passage = self.passages.get(&connection);
            passage.is_some_and(|passage| passage.is_dialing() && is_elsewhere(passage.candidate()))
        };
        let begun = self.attempt.as_ref().is_some_and(|attempt| attempt.connections().any(is_begun));
        if begun || now < self.opinion.not_before {
            return;
        }
        let known = candidate::merge(self.known.iter().copied());
        let ranked = candidate::rank(&known, &self.records, self.seed, now);
        let mut others = ranked.into_iter().filter(|ranked| is_elsewhere(ranked.candidate));
        let Some(first) = others.next() else { return };
        let beside = others.next().filter(|ranked| ranked.with_previous);
        self.opinion.until = now + OPINION_WITHIN;
        for RankedCandidate { candidate, .. } in [first].into_iter().chain(beside) {
            let connection = self.dial(candidate, now);
            self.opinion.asked.push(connection);
        }
        self.outputs.push_back(KeeperOutput::Changed);
    }

    /// Takes in that a connection is open; says whether it was asked for an opinion.
    pub(super) fn hear_opinion(&mut self, connection: ConnectionId, rtt: Duration, now: Time) -> bool {
        if !self.is_asked(connection) {
            return false;
        }
        let Some(passage) = self.passages.get(&connection).copied() else { return true };
        let candidate = passage.candidate();
        self.records.observe(candidate, Score::Success { rtt, won: false }, now);
        self.opinion.asked.retain(|asked| *asked != connection);
        self.dismiss_opinion();
        match self.current_unit().filter(|_| passage.is_smooth() && self.is_on_rough_way()) {
            Some(home) => self.move_to((connection, candidate), home, now),
            None => {
                self.keep_spare(connection, candidate, now);
                self.end_in_vain(now);
            }
        }
        true
    }

    /// Takes in that a connection could not be opened; says whether it was asked for an opinion.
    pub(super) fn miss_opinion(&mut self, connection: ConnectionId, now: Time) -> bool {
        let is_asked = self.is_asked(connection);
        self.opinion.asked.retain(|asked| *asked != connection);
        if is_asked && self.opinion.asked.is_empty() {
            self.end_in_vain(now);
        }
        is_asked
    }

    /// Takes in that time has passed.
    pub(super) fn handle_opinion_timeout(&mut self, now: Time) {
        if !self.opinion.asked.is_empty() && self.opinion.until <= now {
            self.dismiss_opinion();
            self.end_in_vain(now);
        }
        if let Some(greeted) = self.greeted()
            && self.passages.get_mut(&greeted).is_some_and(|passage| passage.handle_timeout(now))
        {
            self.seek_opinion(now);
        }
    }

    /// Returns when an opinion has had its time, or WELCOME is late.
    pub(super) fn opinion_timeout(&self) -> Option<Time> {
        let until = (!self.opinion.asked.is_empty()).then_some(self.opinion.until);
        let late = self.greeted().and_then(|greeted| self.passages.get(&greeted)?.poll_timeout());
        [until, late].into_iter().flatten().min()
    }

    /// Says whether the link may soon be left for a smoother way.
    pub(super) fn is_moving(&self) -> bool {
        let is_move = |attempt: &Attempt| attempt.leaves.is_some() && attempt.is_undecided();
        self.attempt.as_ref().is_some_and(is_move) || !self.opinion.asked.is_empty()
    }

    /// Drops what was opened for an opinion.
    pub(super) fn dismiss_opinion(&mut self) {
        for connection in std::mem::take(&mut self.opinion.asked) {
            self.outputs.push_back(KeeperOutput::Drop { connection, reason: DropReason::NotNeeded });
        }
    }

    /// Takes an open connection to another unit whose way is smooth from the attempt or the spare, unless one is greeted already.
    fn take_smoother(&mut self, home: &Unit) -> Option<(ConnectionId, Candidate)> {
        let is_smoother = |connection: ConnectionId| {
            let passage = self.passages.get(&connection).filter(|passage| passage.is_smooth())?;
            let candidate = passage.candidate();
            let is_elsewhere = self.units.of(candidate.address).is_some_and(|unit| unit != home);
            is_elsewhere.then_some((connection, candidate))
        };
        let begun = self.attempt.iter().flat_map(Attempt::connections);
        let held = self.spare.iter().map(|spare| spare.connection);
        let (connection, candidate) = begun.chain(held).find_map(is_smoother)?;
        if self.greeted() == Some(connection) {
            return None;
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.forget(connection);
        }
        self.spare.take_if(|spare| spare.connection == connection);
        Some((connection, candidate))
    }

    /// Leaves the link to a unit, or what is greeted for one, for a link over an open connection.
    fn move_to(&mut self, (connection, candidate): (ConnectionId, Candidate), home: Unit, now: Time) {
        self.stop_attempt();
        self.generations += 1;
        let mut attempt = Attempt::new(self.generations, 0);
        let establish = Establish::with_spare(self.config.establish.clone(), Vec::new(), candidate, now);
        attempt.establish = Some(establish);
        attempt.leaves = Some(home);
        self.attempt = Some(attempt);
        self.adopt(connection);
        self.follow_establish(now);
    }

    /// Takes in that the link to a unit has been left for a smoother way.
    pub(super) fn handle_moved(&mut self, home: Unit, now: Time) {
        self.opinion.in_vain = 0;
        self.units.avoid(home, true, now);
    }

    /// Takes in that nothing better was found: what is rough is the network, or it was chance.
    pub(super) fn end_in_vain(&mut self, now: Time) {
        let wait = OPINION_GAP.saturating_mul(1 << self.opinion.in_vain.min(GAP_DOUBLINGS_MAX)).min(AVOID_MAX);
        self.opinion.not_before = now + wait;
        self.opinion.in_vain = self.opinion.in_vain.saturating_add(1);
        if let Some(passage) = self.current().and_then(|current| self.passages.get_mut(&current)) {
            passage.forgive();
        }
        self.outputs.push_back(KeeperOutput::Changed);
    }

    fn is_asked(&self, connection: ConnectionId) -> bool {
        self.opinion.asked.contains(&connection)
    }

    fn is_on_rough_way(&self) -> bool {
        self.current().and_then(|current| self.passages.get(&current)).is_some_and(Passage::is_rough)
    }

    fn greeted(&self) -> Option<ConnectionId> {
        Some(self.attempt.as_ref()?.greeting.as_ref()?.connection)
    }

    /// Returns the connection of the link that takes new requests, or the one that is being greeted if there is none.
    fn current(&self) -> Option<ConnectionId> {
        self.open_link().map(|link| link.connection)
    }

    fn current_unit(&self) -> Option<Unit> {
        let link = self.open_link()?;
        self.units.of(link.candidate.address).cloned()
    }
}

/// How long the connections for an opinion may take. 2 s; our choice: by then a SYN has been sent again, and a way that is smoother shows
/// that in a third of a second.
const OPINION_WITHIN: Duration = Duration::from_secs(2);

/// How long no other opinion is asked for after one that said nothing better, doubled each time in a row up to [`AVOID_MAX`]. 30 s; our
/// choice: each costs a handshake of 6 kB.
const OPINION_GAP: Duration = Duration::from_secs(30);

/// Doublings that are counted: 30 s doubled six times is beyond [`AVOID_MAX`].
const GAP_DOUBLINGS_MAX: u32 = 6;
