//! Keeps a client's link: when one is sought, where, for which session, and what becomes of those it replaces.

mod attempt;
mod denials;
mod opinion;
mod output;
mod passage;
mod units;

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

pub use self::output::{
    ConnectionId, DropReason, Ended, KeeperConfig, KeeperFailure, KeeperOutput, OpenLink, Place, Prepared, Unit,
};
use self::{attempt::Attempt, denials::Denials, opinion::Opinion, passage::Passage, units::Units};
use super::{
    Candidate, Establish, GreetFailure, LostReason, Means, OtherNetworks, Reconnect, ReconnectOutput, Records, Remedy,
    Source, candidate, remedy,
};
use crate::{
    Time,
    request::LinkView,
    session::{Fate, Over, Succession},
    wire::message::{NetworkKind, RefuseCode},
};

/// The policy of a client's link, without its sockets, names, tickets and sessions: those are its owner's.
///
/// It puts together the machines of this module: [`Reconnect`] says when an attempt is due, [`candidate::rank`] in which order,
/// [`Establish`] how, and [`Succession`] for which session. Where the current link is doubted, or its unit does not serve, other units
/// come first, and a link to one of them gets a session of its own: what is under way at the old one may still finish there.
#[derive(Clone, Debug)]
pub struct Keeper {
    config: KeeperConfig,
    /// Of the shuffles, another for each attempt.
    seed: u64,
    reconnect: Reconnect,
    records: Records,
    networks: OtherNetworks,
    succession: Succession,
    /// The open links, by session.
    links: BTreeMap<u64, Link>,
    attempt: Option<Attempt>,
    /// Counts attempts, so that late news of an earlier one are known as such.
    generations: u64,
    connections: u64,
    /// A connection that the last race left over.
    spare: Option<Spare>,
    /// The newest places that any source named; at most [`candidate::CANDIDATES_MAX`] count.
    known: Vec<(Candidate, Source)>,
    /// The names of the gateways there, where they have one of their own.
    names: BTreeMap<Candidate, Arc<str>>,
    units: Units,
    /// Of every connection that is not dropped yet.
    passages: BTreeMap<ConnectionId, Passage>,
    opinion: Opinion,
    doubt: Option<Doubt>,
    failure: Option<KeeperFailure>,
    /// Nothing but a new ticket or another network can help.
    is_blocked: bool,
    /// The connection by which an attempt to get a link last came further, and when, unless it was broken off.
    alive: Option<(ConnectionId, Time)>,
    /// When a link was first sought since there was one, or since the network changed.
    sought_since: Option<Time>,
    /// No candidate gave one since then.
    is_exhausted: bool,
    denials: Denials,
    /// The kind of network, and the longest stagger of a race, where the gateways ask for another than the configuration has.
    stagger: (NetworkKind, Option<Duration>),
    outputs: VecDeque<KeeperOutput>,
}

#[derive(Clone, Debug)]
struct Link {
    connection: ConnectionId,
    candidate: Candidate,
}

#[derive(Clone, Debug)]
struct Spare {
    connection: ConnectionId,
    candidate: Candidate,
    until: Time,
}

/// What becomes of the session of a link that says nothing, when another link is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// It goes on there.
    Moves,
    /// It stays, with what it has under way, and the other link begins one of its own.
    Stays,
}

impl Keeper {
    /// Makes the keeper of a client that has no link; the first attempt is due at once.
    #[must_use]
    pub fn new(config: KeeperConfig, seed: u64, now: Time) -> Self {
        Self {
            reconnect: Reconnect::new(config.reconnect.clone(), seed, now),
            config,
            seed,
            records: Records::new(),
            networks: OtherNetworks::default(),
            succession: Succession::default(),
            links: BTreeMap::new(),
            attempt: None,
            generations: 0,
            connections: 0,
            spare: None,
            known: Vec::new(),
            names: BTreeMap::new(),
            units: Units::default(),
            passages: BTreeMap::new(),
            opinion: Opinion::default(),
            doubt: None,
            failure: None,
            is_blocked: false,
            alive: None,
            sought_since: None,
            is_exhausted: false,
            denials: Denials::default(),
            stagger: (NetworkKind::Unspecified, None),
            outputs: VecDeque::new(),
        }
    }

    /// Returns the link that takes new requests, or the one that is being greeted if there is none.
    #[must_use]
    pub fn open_link(&self) -> Option<OpenLink> {
        let Some(session) = self.succession.for_request() else {
            let greeting = self.attempt.as_ref()?.greeting.as_ref()?;
            let attempt::Greeting { connection, session, candidate, .. } = *greeting;
            return Some(OpenLink { session, connection, candidate, is_doubted: false, is_up: false });
        };
        let Link { connection, candidate } = *self.links.get(&session)?;
        Some(OpenLink { session, connection, candidate, is_doubted: self.doubt.is_some(), is_up: true })
    }

    /// Returns how the link is, as requests see it.
    #[must_use]
    pub fn view(&self, now: Time) -> LinkView {
        match self.open_link() {
            Some(OpenLink { session, is_doubted, .. }) => {
                let can_move = self.units.has_other(session, now);
                // At the same unit the session is resumed, and says what became of what it was given, unless it stays behind.
                let stays = self.doubt == Some(Doubt::Stays);
                let is_sure = !(is_doubted || self.is_moving()) || !(can_move || stays);
                LinkView::Open { session, is_sure, can_move }
            }
            None if self.is_blocked => LinkView::None,
            None => {
                let (since, alive_at, is_exhausted) =
                    (self.sought_since, self.alive.map(|(_, at)| at), self.is_exhausted);
                LinkView::Sought { since, alive_at, is_exhausted, denied: self.denials.denied() }
            }
        }
    }

    /// Returns why there is no link and none to be expected.
    #[must_use]
    pub const fn failure(&self) -> Option<&KeeperFailure> {
        self.failure.as_ref()
    }

    /// Says whether a link is being sought and none found yet.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        self.attempt.as_ref().is_some_and(Attempt::is_undecided)
    }

    /// Returns what is known of the candidates on this network.
    #[must_use]
    pub const fn records(&self) -> &Records {
        &self.records
    }

    /// Says whether the connection is the link of a session, or is being greeted for one.
    #[must_use]
    pub fn holds(&self, connection: ConnectionId) -> bool {
        self.greets(connection) || self.session_of(connection).is_some()
    }

    /// Takes in the addresses and the ticket that [`KeeperOutput::Prepare`] asked for.
    pub fn handle_prepared(&mut self, generation: u64, prepared: Prepared, now: Time) {
        if self.attempt.as_ref().is_none_or(|attempt| attempt.generation != generation) {
            return;
        }
        if let Some(reason) = prepared.ticket {
            return self.fail(KeeperFailure::Ticket { reason }, true, now);
        }
        if !prepared.places.is_empty() {
            self.units.handle_places(&prepared.places);
            self.known = prepared.places.iter().map(|place| (place.candidate, place.source)).collect();
            self.names =
                prepared.places.into_iter().filter_map(|place| Some((place.candidate, place.gateway?))).collect();
        }
        let known = candidate::merge(self.known.iter().copied());
        self.seed = self.seed.wrapping_add(1);
        let mut ranked = candidate::rank(&known, &self.records, self.seed, now);
        self.units.forget_avoided(now);
        // The pairs that start together share an address, and so stay neighbours.
        ranked.sort_by_key(|ranked| self.is_unwanted(ranked.candidate.address, now));
        self.spread(&mut ranked, now);
        let mut config = self.config.establish.clone();
        config.race = config.race.on(self.stagger.0, self.stagger.1);
        let spare = self.take_spare(now);
        let establish = match spare {
            Some((_, candidate)) => Establish::with_spare(config, ranked, candidate, now),
            None => Establish::new(config, ranked, now),
        };
        if let Some((connection, _)) = spare {
            self.adopt(connection);
        }
        if let Some(attempt) = &mut self.attempt {
            attempt.establish = Some(establish);
        }
        self.follow_establish(now);
    }

    /// Takes in that a gateway refused a connection. `ticket_source` says that another ticket can be had.
    pub fn handle_refused(
        &mut self,
        connection: ConnectionId,
        refusal: (RefuseCode, String, Duration),
        ticket_source: bool,
        now: Time,
    ) {
        let (code, detail, retry_after) = refusal;
        if !self.greets(connection) {
            // An open link was closed by REFUSE; its end follows.
            if self.session_of(connection).is_some() && !retry_after.is_zero() {
                self.reconnect.handle_retry_after(retry_after, now);
            }
            return;
        }
        let Some(attempt) = &mut self.attempt else { return };
        let restarts = attempt.restarts;
        match remedy(code, Means { ticket_source, restarts }) {
            Remedy::Elsewhere { is_told } => {
                if is_told {
                    attempt.refused = Some(KeeperFailure::Refused { code, detail });
                }
                if !retry_after.is_zero() {
                    let soonest = attempt.retry_after.map_or(retry_after, |known| known.min(retry_after));
                    attempt.retry_after = Some(soonest);
                }
                self.end_greeting(GreetFailure::Refused, now);
            }
            Remedy::Fail { heals } => self.fail(KeeperFailure::Refused { code, detail }, heals, now),
            Remedy::Restart { fresh_session, fresh_ticket } => {
                if fresh_ticket {
                    self.outputs.push_back(KeeperOutput::ForgetTicket);
                }
                let greeted = attempt.greeting.as_ref().map(|greeting| greeting.session);
                self.stop_attempt();
                if let Some(session) = greeted.filter(|_| fresh_session) {
                    let over = self.succession.handle_disowned(session);
                    self.settle(over);
                }
                self.prepare(restarts + 1);
            }
        }
    }

    /// Takes in that a connection that was greeted, or a link, has ended.
    pub fn handle_ended(&mut self, connection: ConnectionId, ended: Ended, now: Time) {
        if self.greets(connection) {
            return self.end_greeting(GreetFailure::Broken, now);
        }
        let Some(session) = self.session_of(connection) else { return };
        let was_current = self.succession.current() == Some(session);
        self.links.remove(&session);
        self.passages.remove(&connection);
        match self.succession.handle_lost(session, ended == Ended::Orderly, now) {
            Fate::Resume => {
                let reason = ended.reason();
                if matches!(reason, LostReason::Network | LostReason::Silent) {
                    // Whatever took the link took it as well.
                    self.drop_spare();
                }
                self.reconnect.handle_lost(now, reason);
            }
            Fate::Settle { gap } => self.settle(Some(Over { number: session, gap })),
        }
        self.doubt = self.doubt.filter(|_| !was_current);
        self.outputs.push_back(KeeperOutput::Changed);
    }

    /// Takes in that a link says nothing although an answer is awaited: another is sought beside it. `can_move` says whether that could
    /// take over all that is under way; if not, the session stays with its link, and the other begins one of its own.
    pub fn handle_doubted(&mut self, connection: ConnectionId, can_move: bool, now: Time) {
        if self.is_current(connection) && self.doubt.is_none() {
            self.doubt = Some(if can_move { Doubt::Moves } else { Doubt::Stays });
            self.reconnect.handle_doubted(now);
            self.outputs.push_back(KeeperOutput::Changed);
        }
    }

    /// Takes in that the link that was doubted speaks again: none is sought beside it, unless one is being greeted.
    pub fn handle_trusted(&mut self, connection: ConnectionId) {
        if self.is_current(connection) && self.doubt.is_some() {
            self.doubt = None;
            self.reconnect.handle_trusted();
            if self.attempt.as_ref().is_some_and(|attempt| attempt.greeting.is_none()) {
                self.stop_attempt();
            }
            self.outputs.push_back(KeeperOutput::Changed);
        }
    }

    /// Takes in that the gateway of a link asks the client to move.
    pub fn handle_draining(&mut self, connection: ConnectionId, now: Time) {
        if let Some(session) = self.session_of(connection) {
            self.leave(session, LostReason::Drained, now);
        }
    }

    /// Takes in that the gateway of a session cannot do what it is there for: requests end unexecuted, or in time-outs while its
    /// heartbeats pass. The client moves to another unit. Says whether there is one to move to, or it has moved already.
    pub fn handle_unserved(&mut self, session: u64, now: Time) -> bool {
        if self.succession.current() != Some(session) {
            return true;
        }
        let Some(unit) = self.units.home(session).cloned().filter(|_| self.units.has_other(session, now)) else {
            return false;
        };
        self.units.avoid(unit, false, now);
        self.leave(session, LostReason::Left, now);
        true
    }

    /// Takes in whether a foreground request waits.
    pub fn handle_waiting(&mut self, waiting: bool, now: Time) {
        self.reconnect.handle_waiting(waiting, now);
        self.follow_reconnect(now);
    }

    /// Takes in that the network changed, or the ticket: what gateways refused they may take now.
    pub fn handle_changed(&mut self, network: bool, now: Time) {
        if network {
            self.drop_spare();
            self.sought_since = None;
            self.is_exhausted = false;
        }
        self.is_blocked = false;
        if self.failure.take().is_some() {
            self.outputs.push_back(KeeperOutput::Changed);
        }
        self.reconnect.handle_network_changed(now);
        self.follow_reconnect(now);
    }

    /// Takes in the label of the network that the device is on; empty if nobody has named it. What was learned on it counts from here on.
    /// That it is another is told by [`handle_changed`](Self::handle_changed), afterwards.
    pub fn handle_network(&mut self, label: &str) {
        self.networks.handle_network(label, &mut self.records);
    }

    /// Takes in a round-trip time that a link has shown.
    pub fn handle_round_trip(&mut self, connection: ConnectionId, rtt: Duration) {
        if let Some(link) = self.links.values().find(|link| link.connection == connection) {
            self.records.handle_round_trip(link.candidate, rtt);
        }
    }

    /// Takes in the kind of network, and the longest stagger that the gateways ask for, from the next attempt on; `None` for the stagger that
    /// is right there.
    pub const fn handle_stagger(&mut self, kind: NetworkKind, max: Option<Duration>) {
        self.stagger = (kind, max);
    }

    /// Gives up whatever is being sought, as the client is being closed.
    pub fn handle_close(&mut self) {
        self.stop_attempt();
        self.dismiss_opinion();
        self.drop_spare();
        self.is_blocked = true;
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.spare.as_ref().is_some_and(|spare| spare.until <= now) {
            self.drop_spare();
        }
        self.handle_opinion_timeout(now);
        if let Some(session) = self.cut_at().and_then(|_| self.succession.handle_timeout(now)) {
            self.outputs.push_back(KeeperOutput::Cut { session });
        }
        self.reconnect.handle_timeout(now);
        if let Some(establish) = self.attempt.as_mut().and_then(|attempt| attempt.establish.as_mut()) {
            establish.handle_timeout(now);
            self.follow_establish(now);
        }
        self.follow_reconnect(now);
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let attempt = self.attempt.as_ref().and_then(Attempt::poll_timeout);
        let reconnect = self.reconnect.poll_timeout().filter(|_| !self.is_blocked);
        let spare = self.spare.as_ref().map(|spare| spare.until);
        [attempt, reconnect, spare, self.opinion_timeout(), self.cut_at()].into_iter().flatten().min()
    }

    /// Returns when what is under way on a session without a link ends, unless it is being greeted for.
    fn cut_at(&self) -> Option<Time> {
        let greets = self.attempt.as_ref().is_some_and(|attempt| attempt.greeting.is_some());
        self.succession.poll_timeout().filter(|_| !greets)
    }

    /// Returns the next thing the owner has to do.
    pub fn poll_output(&mut self, now: Time) -> Option<KeeperOutput> {
        if self.outputs.is_empty() {
            self.follow_reconnect(now);
        }
        let output = self.outputs.pop_front()?;
        if let KeeperOutput::Drop { connection, .. } = output {
            self.passages.remove(&connection);
        }
        Some(output)
    }

    fn follow_reconnect(&mut self, now: Time) {
        while let Some(ReconnectOutput::Connect) = self.reconnect.poll_output() {
            if self.is_blocked {
                continue;
            }
            match &mut self.attempt {
                Some(attempt) if attempt.is_undecided() => {
                    if let Some(establish) = &mut attempt.establish {
                        establish.handle_hurry(now);
                        self.follow_establish(now);
                    }
                }
                Some(_) | None => {
                    self.sought_since.get_or_insert(now);
                    self.prepare(0);
                }
            }
        }
    }

    /// Begins an attempt: addresses and ticket are fetched first.
    fn prepare(&mut self, restarts: u32) {
        self.stop_attempt();
        self.denials.handle_attempt();
        self.generations += 1;
        self.attempt = Some(Attempt::new(self.generations, restarts));
        self.outputs.push_back(KeeperOutput::Prepare { generation: self.generations });
        self.outputs.push_back(KeeperOutput::Changed);
    }

    /// Gives up until the next attempt, and tells whoever waits.
    fn fail(&mut self, failure: KeeperFailure, heals: bool, now: Time) {
        self.stop_attempt();
        self.is_blocked = !heals;
        self.reconnect.handle_lost(now, LostReason::RaceLost);
        self.failure = Some(failure);
        self.outputs.push_back(KeeperOutput::Changed);
    }

    /// Leaves a session to finish what it has under way; the next link begins another.
    fn leave(&mut self, session: u64, reason: LostReason, now: Time) {
        let was_current = self.succession.current() == Some(session);
        let over = self.succession.handle_draining(session);
        self.settle(over);
        if was_current {
            self.doubt = None;
            self.reconnect.handle_lost(now, reason);
        }
        self.dismiss_replaced();
        self.outputs.push_back(KeeperOutput::Changed);
    }

    fn settle(&mut self, over: Option<Over>) {
        if let Some(Over { number, gap }) = over {
            if let Some(link) = self.links.remove(&number) {
                self.passages.remove(&link.connection);
            }
            self.units.handle_over(number);
            self.outputs.push_back(KeeperOutput::Settle { session: number, gap });
        }
    }

    fn dismiss_replaced(&mut self) {
        for session in self.succession.replaced() {
            self.outputs.push_back(KeeperOutput::Leave { session });
        }
    }

    fn drop_spare(&mut self) {
        if let Some(Spare { connection, .. }) = self.spare.take() {
            self.outputs.push_back(KeeperOutput::Drop { connection, reason: DropReason::NotNeeded });
        }
    }

    fn session_of(&self, connection: ConnectionId) -> Option<u64> {
        self.links.iter().find(|(_, link)| link.connection == connection).map(|(session, _)| *session)
    }

    fn is_current(&self, connection: ConnectionId) -> bool {
        self.session_of(connection).is_some_and(|session| self.succession.for_request() == Some(session))
    }

    /// Says whether other units come before the one of an address: it is avoided, or its link is doubted.
    fn is_unwanted(&self, address: SocketAddr, now: Time) -> bool {
        let Some(unit) = self.units.of(address) else { return false };
        let doubted = self.succession.current().filter(|_| self.doubt.is_some());
        doubted.and_then(|session| self.units.home(session)) == Some(unit) || self.units.is_avoided(unit, now)
    }
}

#[cfg(test)]
mod tests;
