//! One attempt to get a link, from the addresses to WELCOME.

use std::{collections::BTreeMap, time::Duration};

use super::{
    ConnectionId, Doubt, DropReason, Keeper, KeeperFailure, KeeperOutput, Link, Spare, Unit, passage::Passage,
};
use crate::{
    Time,
    connect::{
        AttemptId, Candidate, Establish, EstablishOutput, FailReason, GreetFailure, LostReason, RankedCandidate,
        Record, Score,
    },
};

/// An attempt to get a link.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) generation: u64,
    /// `None` while addresses and ticket are fetched.
    pub(super) establish: Option<Establish>,
    /// The connections of the attempt that are not dropped yet.
    connections: BTreeMap<AttemptId, ConnectionId>,
    pub(super) greeting: Option<Greeting>,
    pub(super) restarts: u32,
    /// The soonest of the times at which gateways asked to be called again.
    pub(super) retry_after: Option<Duration>,
    /// The last refusal that is told should no other gateway take the link.
    pub(super) refused: Option<KeeperFailure>,
    /// The unit whose link it is to leave for a smoother way.
    pub(super) leaves: Option<Unit>,
}

/// HELLO is out, WELCOME is awaited.
#[derive(Clone, Debug)]
pub(super) struct Greeting {
    attempt: AttemptId,
    pub(super) connection: ConnectionId,
    pub(super) session: u64,
    pub(super) candidate: Candidate,
}

impl Attempt {
    pub(super) const fn new(generation: u64, restarts: u32) -> Self {
        Self {
            generation,
            establish: None,
            connections: BTreeMap::new(),
            greeting: None,
            restarts,
            retry_after: None,
            refused: None,
            leaves: None,
        }
    }

    pub(super) fn is_undecided(&self) -> bool {
        self.establish.as_ref().is_none_or(Establish::is_undecided)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.establish.as_ref()?.poll_timeout().map(|(at, _)| at)
    }

    /// Lists the connections that are not dropped yet.
    pub(super) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.connections.values().copied()
    }

    /// Gives a connection up, which goes on without the attempt.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        self.connections.retain(|_, known| *known != connection);
    }

    fn number(&self, connection: ConnectionId) -> Option<AttemptId> {
        self.connections.iter().find(|(_, known)| **known == connection).map(|(attempt, _)| *attempt)
    }
}

impl Keeper {
    /// Takes in that a connection is open, its handshake complete; `rtt` is a sample of its path.
    pub fn handle_connected(&mut self, connection: ConnectionId, rtt: Duration, now: Time) {
        if let Some(passage) = self.passages.get_mut(&connection) {
            passage.handle_open(rtt, now);
        }
        if self.hear_opinion(connection, rtt, now) {
            return;
        }
        self.with_attempt(connection, |establish, attempt| establish.handle_connected(attempt, rtt, now));
        self.show_life(connection, now);
        self.follow_establish(now);
        self.seek_opinion(now);
    }

    /// Takes in that something came back on a connection whose handshake goes on.
    pub fn handle_answered(&mut self, connection: ConnectionId, rtt: Duration, now: Time) {
        if self.with_attempt(connection, |establish, attempt| establish.handle_alive(attempt, rtt, now)) {
            self.show_life(connection, now);
            self.follow_establish(now);
        }
    }

    /// Takes in that a connection could not be opened.
    pub fn handle_dial_failed(&mut self, connection: ConnectionId, reason: FailReason, now: Time) {
        let passage = self.passages.remove(&connection);
        if self.miss_opinion(connection, now) {
            if let Some(passage) = passage {
                self.records.observe(passage.candidate(), Score::Failure(reason), now);
            }
            return;
        }
        if let Some(passage) = passage {
            self.denials.handle_failed(passage.candidate().address, reason, now);
        }
        // What was broken off is no reason to wait on; what took too long may come further the next time.
        let is_over = !matches!(reason, FailReason::TimedOut | FailReason::Unreachable);
        if self.alive.take_if(|(alive, _)| *alive == connection && is_over).is_some() {
            self.outputs.push_back(KeeperOutput::Changed);
        }
        self.with_attempt(connection, |establish, attempt| establish.handle_failed(attempt, reason, now));
        if let Some(attempt) = &mut self.attempt {
            attempt.forget(connection);
        }
        self.follow_establish(now);
    }

    /// Takes in that WELCOME came on a connection.
    pub fn handle_welcomed(&mut self, connection: ConnectionId, now: Time) {
        let Some(attempt) = &mut self.attempt else { return };
        let Some(greeting) = attempt.greeting.take_if(|greeting| greeting.connection == connection) else { return };
        attempt.connections.remove(&greeting.attempt);
        let left = attempt.leaves.take();
        if let Some(establish) = &mut attempt.establish {
            establish.handle_welcomed();
        }
        let Greeting { session, candidate, .. } = greeting;
        self.links.insert(session, Link { connection, candidate });
        self.units.handle_open(session, candidate.address);
        let over = self.succession.handle_open(session);
        self.settle(over);
        self.reconnect.handle_connected(now);
        self.doubt = None;
        self.failure = None;
        self.is_blocked = false;
        self.sought_since = None;
        self.is_exhausted = false;
        self.outputs.push_back(KeeperOutput::LinkUp { session, candidate });
        self.dismiss_replaced();
        self.outputs.push_back(KeeperOutput::Changed);
        self.follow_establish(now);
        if let Some(home) = left {
            self.handle_moved(home, now);
        }
        if let Some(passage) = self.passages.get_mut(&connection) {
            passage.handle_welcomed(now);
        }
        self.seek_opinion(now);
    }

    /// Ends the greeting that is under way: the next connection is greeted, or another race is run.
    pub(super) fn end_greeting(&mut self, failure: GreetFailure, now: Time) {
        let Some(attempt) = &mut self.attempt else { return };
        let Some(greeting) = attempt.greeting.take() else { return };
        attempt.connections.remove(&greeting.attempt);
        if let Some(establish) = &mut attempt.establish {
            establish.handle_greet_failed(greeting.attempt, failure, now);
        }
        self.succession.handle_greet_failed(greeting.session);
        self.outputs.push_back(KeeperOutput::Drop { connection: greeting.connection, reason: DropReason::Told });
        self.follow_establish(now);
    }

    pub(super) fn greets(&self, connection: ConnectionId) -> bool {
        let greeting = self.attempt.as_ref().and_then(|attempt| attempt.greeting.as_ref());
        greeting.is_some_and(|greeting| greeting.connection == connection)
    }

    /// Drops the attempt that is under way, if there is one.
    pub(super) fn stop_attempt(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        for connection in attempt.connections.into_values() {
            self.outputs.push_back(KeeperOutput::Drop { connection, reason: DropReason::NotNeeded });
        }
        if let Some(greeting) = attempt.greeting {
            self.succession.handle_greet_failed(greeting.session);
        }
    }

    /// Does what the machine of the attempt asks for.
    pub(super) fn follow_establish(&mut self, now: Time) {
        loop {
            let Some(attempt) = &mut self.attempt else { return };
            let Some(output) = attempt.establish.as_mut().and_then(Establish::poll_output) else { break };
            match output {
                EstablishOutput::Abandon { attempt: number, why } => {
                    let Some(connection) = attempt.connections.remove(&number) else { continue };
                    let greeted = attempt.greeting.take_if(|greeting| greeting.attempt == number);
                    let reason = if greeted.is_some() { DropReason::NoWelcome } else { DropReason::Abandoned(why) };
                    if let Some(greeting) = greeted {
                        self.succession.handle_greet_failed(greeting.session);
                    }
                    self.outputs.push_back(KeeperOutput::Drop { connection, reason });
                }
                EstablishOutput::Greet { attempt: number, candidate } => self.greet(number, candidate, now),
                EstablishOutput::KeepSpare { attempt: number, candidate } => {
                    let Some(connection) = attempt.connections.remove(&number) else { continue };
                    self.keep_spare(connection, candidate, now);
                }
                EstablishOutput::Lost { untrusted } => return self.lose(untrusted, now),
                EstablishOutput::Scored { candidate, score } => self.records.observe(candidate, score, now),
                EstablishOutput::Start { attempt: number, candidate } => {
                    self.denials.handle_dial(candidate.address);
                    let connection = self.dial(candidate, now);
                    if let Some(attempt) = &mut self.attempt {
                        attempt.connections.insert(number, connection);
                    }
                }
            }
        }
        let establish = self.attempt.as_ref().and_then(|attempt| attempt.establish.as_ref());
        if establish.is_some_and(Establish::is_finished) {
            self.attempt = None;
        }
    }

    /// Keeps an open connection beside the link for a while.
    pub(super) fn keep_spare(&mut self, connection: ConnectionId, candidate: Candidate, now: Time) {
        self.drop_spare();
        self.spare = Some(Spare { connection, candidate, until: now + SPARE_FOR });
    }

    /// Begins with a connection that an earlier race left over, if there is one that is wanted.
    /// Lets the second address be one of another unit, where one is known and has not failed: what is wrong with the first address is often
    /// wrong with its whole unit, or with the way to it.
    pub(super) fn spread(&self, ranked: &mut [RankedCandidate], now: Time) {
        let unit = |ranked: &RankedCandidate| self.units.of(ranked.candidate.address);
        let Some(first) = ranked.first().copied() else { return };
        let Some(home) = unit(&first) else { return };
        let is_sound = |ranked: &RankedCandidate| {
            let address = ranked.candidate.address;
            !self.is_unwanted(address, now) && self.records.get(ranked.candidate, now).is_none_or(Record::is_good)
        };
        let other = |ranked: &RankedCandidate| unit(ranked).is_some_and(|unit| unit != home) && is_sound(ranked);
        let Some(start) = ranked.iter().position(other) else { return };
        let second = ranked[start].candidate.address;
        let count = ranked[start..].iter().take_while(|ranked| ranked.candidate.address == second).count();
        let place = ranked.iter().take_while(|ranked| ranked.candidate.address == first.candidate.address).count();
        ranked[place..start + count].rotate_right(count);
    }

    pub(super) fn take_spare(&mut self, now: Time) -> Option<(ConnectionId, Candidate)> {
        let unwanted = self.spare.as_ref().is_some_and(|spare| self.is_unwanted(spare.candidate.address, now));
        self.spare.take_if(|_| !unwanted).map(|spare| (spare.connection, spare.candidate))
    }

    pub(super) fn adopt(&mut self, connection: ConnectionId) {
        if let Some(attempt) = &mut self.attempt {
            attempt.connections.insert(AttemptId(0), connection);
        }
    }

    /// Says HELLO on a connection.
    fn greet(&mut self, number: AttemptId, candidate: Candidate, now: Time) {
        let Some(connection) = self.attempt.as_ref().and_then(|attempt| attempt.connections.get(&number).copied())
        else {
            return;
        };
        let current = self.succession.current();
        let is_elsewhere = current.is_some_and(|current| self.units.leads_elsewhere(current, candidate.address));
        let apart = is_elsewhere || self.doubt == Some(Doubt::Stays);
        let heir = self.succession.heir(apart);
        if let Some(doubted) = self.links.remove(&heir.number) {
            self.succession.handle_lost(heir.number, false, now);
            self.reconnect.handle_replaced(now);
            self.doubt = None;
            let reason = DropReason::Replaced;
            self.outputs.push_back(KeeperOutput::Drop { connection: doubted.connection, reason });
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.greeting = Some(Greeting { attempt: number, connection, session: heir.number, candidate });
        }
        if let Some(passage) = self.passages.get_mut(&connection) {
            passage.handle_greeted(now);
        }
        let (session, fresh) = (heir.number, heir.fresh);
        self.outputs.push_back(KeeperOutput::Greet { connection, candidate, session, fresh });
        self.outputs.push_back(KeeperOutput::Changed);
    }

    /// No candidate gave a link.
    fn lose(&mut self, untrusted: bool, now: Time) {
        let retry_after = self.attempt.as_ref().and_then(|attempt| attempt.retry_after);
        let refused = self.attempt.as_mut().and_then(|attempt| attempt.refused.take());
        let was_move = self.attempt.as_ref().is_some_and(|attempt| attempt.leaves.is_some());
        self.stop_attempt();
        if was_move {
            self.end_in_vain(now);
            if self.succession.for_request().is_some() && self.doubt.is_none() {
                return;
            }
        }
        if let Some(after) = retry_after {
            self.reconnect.handle_retry_after(after, now);
        }
        let untrusted = untrusted.then_some(KeeperFailure::Untrusted { at: now });
        if let Some(failure) = refused.or(untrusted) {
            self.failure = Some(failure);
        }
        self.reconnect.handle_lost(now, LostReason::RaceLost);
        self.is_exhausted = true;
        self.outputs.push_back(KeeperOutput::Exhausted);
        self.outputs.push_back(KeeperOutput::Changed);
    }

    /// Asks for another connection.
    pub(super) fn dial(&mut self, candidate: Candidate, now: Time) -> ConnectionId {
        self.connections += 1;
        let connection = ConnectionId(self.connections);
        self.passages.insert(connection, Passage::new(candidate, now));
        let of_address = || self.names.iter().find(|(known, _)| known.address == candidate.address);
        let gateway = self.names.get(&candidate).or_else(|| of_address().map(|(_, name)| name)).cloned();
        self.outputs.push_back(KeeperOutput::Dial { connection, candidate, gateway });
        connection
    }

    /// Lets requests wait on, since an attempt to get a link came further.
    fn show_life(&mut self, connection: ConnectionId, now: Time) {
        self.alive = Some((connection, now));
        self.denials.handle_life();
        self.outputs.push_back(KeeperOutput::Changed);
    }

    /// Tells the attempt's machine something of a connection; says whether it is the attempt's.
    fn with_attempt(&mut self, connection: ConnectionId, tell: impl FnOnce(&mut Establish, AttemptId)) -> bool {
        let Some(attempt) = &mut self.attempt else { return false };
        let Some(number) = attempt.number(connection) else { return false };
        let Some(establish) = &mut attempt.establish else { return false };
        tell(establish, number);
        true
    }
}

/// How long a connection that a race left over is kept. 30 s; our choice: as long as a link must live to count as settled. Gateways
/// close it sooner where they wait less for a HELLO.
const SPARE_FOR: Duration = Duration::from_secs(30);
