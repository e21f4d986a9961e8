//! The race: attempts at several candidates, started one after the other, won by the first finished handshake.

mod config;
mod output;

use std::{collections::VecDeque, net::SocketAddr, time::Duration};

pub use self::{
    config::RaceConfig,
    output::{AbandonReason, AttemptId, AttemptOutcome, AttemptReport, FailReason, RaceError, RaceOutput, Timer},
};
use super::{Candidate, RankedCandidate, Score};
use crate::{CarrierKind, Time};

/// One race for a link.
///
/// The next candidate starts when the stagger ends, or at once when an address has failed. After
/// [`RaceOutput::Won`] the attempts still under way run on to be scored, and the first that finishes becomes the
/// spare; the owner drives the race until [`Race::is_finished`], or drops it with them.
///
/// It draws no random numbers: the chance is in the order of its candidates.
#[derive(Clone, Debug)]
pub struct Race {
    config: RaceConfig,
    began: Time,
    phase: Phase,
    /// Candidates not started yet.
    pending: VecDeque<RankedCandidate>,
    /// QUIC at an address that was tried with a SYN first: it starts when that is answered, or else with the next.
    held: Option<RankedCandidate>,
    /// Every attempt so far, at most `config.attempts_max`; the index is the attempt's number.
    attempts: Vec<Attempt>,
    /// When the stagger of the last start ends.
    next_start: Time,
    /// A candidate has shown shorter round trips: what takes longer now was lost, or held back in an outage.
    was_fast: bool,
    /// The least stagger, once an attempt has shown that the network is slow.
    slow_stagger: Duration,
    /// Whether an attempt has shown that this device has a network at all.
    has_network: bool,
    /// Candidates this device had no route to, until it is known to have a network.
    unreachable: Vec<Candidate>,
    /// At most four for each attempt and one for the race.
    outputs: VecDeque<RaceOutput>,
}

impl Race {
    /// Begins a race over candidates in their order; the first outputs are there at once.
    #[must_use]
    pub fn new(config: RaceConfig, candidates: Vec<RankedCandidate>, now: Time) -> Self {
        let was_fast = candidates.iter().any(|ranked| ranked.srtt.is_some_and(|srtt| srtt < config.slow_rtt));
        let mut race = Self {
            config,
            began: now,
            phase: Phase::Running,
            pending: candidates.into(),
            held: None,
            attempts: Vec::new(),
            next_start: now,
            was_fast,
            slow_stagger: Duration::ZERO,
            has_network: false,
            unreachable: Vec::new(),
            outputs: VecDeque::new(),
        };
        race.go_on(now);
        race
    }

    /// Takes in that an attempt finished its whole handshake: TLS or QUIC and the link's.
    ///
    /// `rtt` is a sample of the path's round-trip time. Attempts that are unknown or over are ignored.
    pub fn handle_connected(&mut self, attempt: AttemptId, rtt: Duration, now: Time) {
        let Some(candidate) = self.finish(attempt, End::Connected, now) else { return };
        self.show_network();
        let won = self.phase == Phase::Running;
        self.outputs.push_back(RaceOutput::Scored { candidate, score: Score::Success { rtt, won } });
        match self.phase {
            Phase::Running => {
                let is_slow = self.is_slow(rtt);
                self.phase = Phase::Won { has_spare: is_slow };
                self.clear_pending();
                self.outputs.push_back(RaceOutput::Won { attempt });
                if is_slow {
                    self.give_way(|_, _| true, now);
                }
            }
            Phase::Won { has_spare: false } => {
                self.phase = Phase::Won { has_spare: true };
                self.outputs.push_back(RaceOutput::KeepSpare { attempt });
            }
            Phase::Won { has_spare: true } => {
                self.outputs.push_back(RaceOutput::Abandon { attempt, why: AbandonReason::SpareHeld });
            }
            Phase::Lost => unreachable!("a lost race has no attempt left to finish"),
        }
    }

    /// Takes in that something came back on an attempt whose handshake goes on: a TCP connection is open, or QUIC has its first
    /// answer. `rtt` is a sample of the path's round-trip time.
    ///
    /// From then on the attempt has as much time as one with this round-trip time on record, so that a slow network is not
    /// filled with further handshakes while one of them is on its way. Attempts that are unknown or over are ignored.
    pub fn handle_alive(&mut self, attempt: AttemptId, rtt: Duration, now: Time) {
        let ends_at = self.ends_at();
        let alive_until = now + self.config.stagger_alive(rtt);
        let Some(index) = usize::try_from(attempt.0).ok() else { return };
        // One that gave its slot up has it back only if nobody else has taken it.
        let has_room = self.in_flight(now) < self.config.in_flight_max;
        let Some(alive) = self.attempts.get_mut(index).filter(|attempt| attempt.is_running()) else { return };
        alive.alive_until = Some(alive_until);
        if has_room || alive.holds_slot(now) {
            alive.slot_ends_at = alive.slot_ends_at.max(alive_until);
        }
        let patience = now + rtt.saturating_mul(ALIVE_RTTS);
        alive.times_out_at = alive.times_out_at.max(patience.min(ends_at));
        self.next_start = self.next_start.max(alive_until);
        self.show_network();
        if self.phase != Phase::Running {
            return;
        }
        let address = self.attempts[index].address();
        if self.is_slow(rtt) {
            self.clear_the_way(index, rtt, now);
        } else if let Some(beside) = self.held.take_if(|held| held.candidate.address == address) {
            self.start(beside, now);
        }
    }

    /// Takes in that an attempt failed. Attempts that are unknown or over are ignored.
    pub fn handle_failed(&mut self, attempt: AttemptId, reason: FailReason, now: Time) {
        let Some(candidate) = self.finish(attempt, End::Failed(reason), now) else { return };
        self.score_failure(candidate, reason);
        self.hurry_unless_running(candidate.address, now);
        self.go_on(now);
    }

    /// Starts one more attempt now, because someone waits: the next candidate, or once all have started, the one that
    /// has been silent longest, or else the one whose refusal is the oldest, again.
    ///
    /// The bounds of the race hold; where they leave no room, or while an attempt is on its way, nothing happens.
    pub fn handle_hurry(&mut self, now: Time) {
        let is_alive = |attempt: &Attempt| attempt.is_running() && attempt.alive_until.is_some_and(|until| now < until);
        if self.phase != Phase::Running || self.attempts.iter().any(is_alive) {
            return;
        }
        if self.next().is_none() {
            let again = self.silent(now).or_else(|| self.refused(now));
            self.pending.extend(again.map(|ranked| RankedCandidate { with_previous: false, ..ranked }));
        }
        self.next_start = now;
        self.go_on(now);
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        for index in 0..self.attempts.len() {
            if self.attempts[index].is_running() && self.attempts[index].times_out_at <= now {
                self.time_out(index, now);
            }
        }
        if self.phase == Phase::Running && self.ends_at() <= now {
            self.pass_deadline(now);
        }
        self.go_on(now);
    }

    /// Returns when the race next wants [`Race::handle_timeout`], and why.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, Timer)> {
        let running = self.attempts.iter().filter(|attempt| attempt.is_running());
        let attempt = running.map(|attempt| (attempt.times_out_at, Timer::Attempt)).min();
        if self.phase != Phase::Running {
            return attempt;
        }
        [attempt, Some((self.ends_at(), Timer::Deadline)), self.next_start()].into_iter().flatten().min()
    }

    /// Returns the next thing the owner has to do.
    pub fn poll_output(&mut self) -> Option<RaceOutput> {
        self.outputs.pop_front()
    }

    /// Returns whether the race is decided and no attempt is under way any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.phase != Phase::Running && !self.attempts.iter().any(Attempt::is_running)
    }

    /// Returns how many addresses hold a slot.
    #[must_use]
    pub fn in_flight(&self, now: Time) -> usize {
        let holders = self.attempts.iter().enumerate().filter(|(index, attempt)| {
            let address = attempt.address();
            attempt.holds_slot(now)
                && !self.attempts[..*index].iter().any(|other| other.address() == address && other.holds_slot(now))
        });
        holders.count()
    }

    /// Returns the candidate that has been silent long enough to be tried once more: with a SYN. QUIC's first packet is twenty times as long
    /// and is sent again by QUIC itself, and WebSocket's SYN goes where that of TLS does.
    fn silent(&self, now: Time) -> Option<RankedCandidate> {
        let silent = self.attempts.iter().find(|attempt| {
            let again = self.attempts.iter().filter(|other| other.ranked.candidate == attempt.ranked.candidate);
            let is_silent = attempt.started + self.config.again_after <= now && !attempt.holds_slot(now);
            let is_short = attempt.ranked.candidate.carrier == CarrierKind::Tls;
            attempt.is_running() && is_short && is_silent && again.count() == 1
        });
        silent.map(|attempt| attempt.ranked)
    }

    /// Returns the candidate whose last attempt was refused first, if that is long enough ago: a gateway may start meanwhile.
    fn refused(&self, now: Time) -> Option<RankedCandidate> {
        let is_last = |(index, attempt): &(usize, &Attempt)| {
            !self.attempts[index + 1..].iter().any(|later| later.ranked.candidate == attempt.ranked.candidate)
        };
        let lasts = self.attempts.iter().enumerate().filter(is_last);
        let refused = lasts.filter_map(|(_, attempt)| match attempt.end? {
            (End::Failed(FailReason::Refused), at) => Some((at, attempt.ranked)),
            (End::Connected | End::Failed(_) | End::Unfinished, _) => None,
        });
        let first = refused.min_by_key(|(at, _)| *at);
        first.filter(|(at, _)| *at + self.config.refused_again_after <= now).map(|(_, ranked)| ranked)
    }

    fn ends_at(&self) -> Time {
        self.began + self.config.deadline
    }

    /// Starts what may start now, and ends the race if nothing is left.
    fn go_on(&mut self, now: Time) {
        if self.phase != Phase::Running {
            return;
        }
        self.drop_beyond_bounds();
        if self.next_start <= now && self.next().is_some() && self.has_slot_for_next(now) {
            self.start_next(now);
            self.drop_beyond_bounds();
        }
        if self.next().is_none() && !self.attempts.iter().any(Attempt::is_running) {
            let attempts = self.reports(now);
            let error = if attempts.is_empty() { RaceError::NoCandidate } else { RaceError::AllFailed { attempts } };
            self.lose(error);
        }
    }

    /// Drops pending candidates that the bounds on addresses and attempts keep from ever starting.
    fn drop_beyond_bounds(&mut self) {
        if self.attempts.len() >= self.config.attempts_max {
            self.clear_pending();
        }
        if self.addresses_started() >= self.config.addresses_max {
            let attempts = &self.attempts;
            let is_started = |address| attempts.iter().any(|attempt| attempt.address() == address);
            self.pending.retain(|ranked| is_started(ranked.candidate.address));
        }
        if self.config.in_flight_max == 0 {
            self.clear_pending();
        }
    }

    fn clear_pending(&mut self) {
        self.pending.clear();
        self.held = None;
    }

    /// Returns what starts next.
    fn next(&self) -> Option<&RankedCandidate> {
        self.pending.front().or(self.held.as_ref())
    }

    fn addresses_started(&self) -> usize {
        let first_of_its_address = |(index, attempt): &(usize, &Attempt)| {
            !self.attempts[..*index].iter().any(|other| other.address() == attempt.address())
        };
        self.attempts.iter().enumerate().filter(first_of_its_address).count()
    }

    fn has_slot_for_next(&self, now: Time) -> bool {
        let holds = self.next().is_some_and(|ranked| self.holds_slot(ranked.candidate.address, now));
        holds || self.in_flight(now) < self.config.in_flight_max
    }

    fn holds_slot(&self, address: SocketAddr, now: Time) -> bool {
        self.attempts.iter().any(|attempt| attempt.address() == address && attempt.holds_slot(now))
    }

    /// Starts the next candidate and those that start together with it.
    fn start_next(&mut self, now: Time) {
        let mut starting = Vec::new();
        if let Some(held) = self.held.take() {
            let has_slot = self.pending.is_empty() || self.holds_slot(held.candidate.address, now);
            if has_slot { starting.push(held) } else { self.pending.push_back(held) }
        }
        if let Some(first) = self.pending.pop_front() {
            let address = first.candidate.address;
            let goes_with = |ranked: &mut RankedCandidate| ranked.with_previous && ranked.candidate.address == address;
            let mut together = vec![first];
            while let Some(ranked) = self.pending.pop_front_if(goes_with) {
                together.push(ranked);
            }
            self.hold_back(&mut together);
            starting.append(&mut together);
        }
        let mut stagger = self.slow_stagger;
        for ranked in starting {
            if self.attempts.len() < self.config.attempts_max {
                stagger = stagger.max(self.start(ranked, now));
            }
        }
        self.next_start = now + stagger;
    }

    /// Holds QUIC back at every address but the first while nothing has come back: a SYN asks a silent network for little, QUIC's first
    /// packet for 1,200 bytes each way, and as much again when it is sent again after a second.
    fn hold_back(&mut self, together: &mut Vec<RankedCandidate>) {
        if self.attempts.is_empty() || self.has_network || together.len() < 2 {
            return;
        }
        let is_long = |ranked: &RankedCandidate| ranked.candidate.carrier == CarrierKind::Quic && ranked.srtt.is_none();
        self.held = together.iter().position(is_long).map(|index| together.remove(index));
    }

    fn start(&mut self, ranked: RankedCandidate, now: Time) -> Duration {
        let number = u32::try_from(self.attempts.len()).expect("attempts are few");
        self.attempts.push(Attempt {
            ranked,
            started: now,
            slot_ends_at: now + self.config.slot_life(ranked.srtt),
            times_out_at: now + self.config.attempt_timeout,
            alive_until: None,
            end: None,
        });
        self.outputs.push_back(RaceOutput::Start { attempt: AttemptId(number), candidate: ranked.candidate });
        self.config.stagger(ranked.srtt)
    }

    /// Returns when the next candidate can start: when the stagger has ended and a slot is free.
    fn next_start(&self) -> Option<(Time, Timer)> {
        self.next()?;
        if self.has_slot_for_next(self.next_start) {
            return Some((self.next_start, Timer::Stagger));
        }
        // An address may hold its slot by several attempts, so not every end of one frees a slot.
        let running = self.attempts.iter().filter(|attempt| attempt.is_running());
        let frees_slot = |at: &Time| *at > self.next_start && self.has_slot_for_next(*at);
        running.map(|attempt| attempt.slot_ends_at).filter(frees_slot).min().map(|at| (at, Timer::Slot))
    }

    /// Marks a running attempt as ended and returns its candidate.
    fn finish(&mut self, attempt: AttemptId, end: End, now: Time) -> Option<Candidate> {
        let attempt = self.attempts.get_mut(usize::try_from(attempt.0).ok()?)?;
        if !attempt.is_running() {
            return None;
        }
        attempt.end = Some((end, now));
        Some(attempt.ranked.candidate)
    }

    fn is_slow(&self, rtt: Duration) -> bool {
        !self.was_fast && rtt >= self.config.slow_rtt
    }

    /// Leaves a slow network to the attempt that was answered, and from then on starts others more slowly.
    ///
    /// QUIC has most of its handshake behind it when it is answered. TCP's answer is a small packet that overtakes one of QUIC, so QUIC
    /// at the same address goes on beside it.
    fn clear_the_way(&mut self, answered: usize, rtt: Duration, now: Time) {
        self.slow_stagger = self.config.stagger_alive(rtt);
        let Candidate { address, carrier } = self.attempts[answered].ranked.candidate;
        let is_in_the_way = |index: usize, attempt: &Attempt| match carrier {
            CarrierKind::Quic => index != answered,
            CarrierKind::Tls | CarrierKind::Ws => {
                let is_beside = attempt.address() == address && attempt.ranked.candidate.carrier == CarrierKind::Quic;
                attempt.alive_until.is_none() && !is_beside
            }
        };
        let ended = self.give_way(is_in_the_way, now);
        ended.into_iter().rev().for_each(|ranked| self.pending.push_front(ranked));
    }

    /// Ends the running attempts that are meant, and returns their candidates.
    fn give_way(&mut self, is_meant: impl Fn(usize, &Attempt) -> bool, now: Time) -> Vec<RankedCandidate> {
        let mut ended = Vec::new();
        for (index, attempt) in self.attempts.iter_mut().enumerate() {
            if attempt.is_running() && is_meant(index, attempt) {
                attempt.end = Some((End::Unfinished, now));
                ended.push(attempt.ranked);
                let attempt = AttemptId(u32::try_from(index).expect("attempts are few"));
                self.outputs.push_back(RaceOutput::Abandon { attempt, why: AbandonReason::InTheWay });
            }
        }
        ended
    }

    fn time_out(&mut self, index: usize, now: Time) {
        let attempt = AttemptId(u32::try_from(index).expect("attempts are few"));
        let Some(candidate) = self.finish(attempt, End::Failed(FailReason::TimedOut), now) else { return };
        self.score_failure(candidate, FailReason::TimedOut);
        self.outputs.push_back(RaceOutput::Abandon { attempt, why: AbandonReason::TimedOut });
        self.hurry_unless_running(candidate.address, now);
    }

    /// Lets the next candidate start at once, unless another carrier of the address that failed is under way.
    fn hurry_unless_running(&mut self, address: SocketAddr, now: Time) {
        if !self.attempts.iter().any(|attempt| attempt.is_running() && attempt.address() == address) {
            self.next_start = self.next_start.min(now);
        }
    }

    fn pass_deadline(&mut self, now: Time) {
        let attempts = self.reports(now);
        for index in 0..self.attempts.len() {
            let attempt = AttemptId(u32::try_from(index).expect("attempts are few"));
            let was_silent = !self.attempts[index].holds_slot(now);
            let Some(candidate) = self.finish(attempt, End::Unfinished, now) else { continue };
            if was_silent {
                self.score_failure(candidate, FailReason::TimedOut);
            }
            self.outputs.push_back(RaceOutput::Abandon { attempt, why: AbandonReason::Deadline });
        }
        self.lose(RaceError::Deadline { attempts });
    }

    fn lose(&mut self, error: RaceError) {
        self.phase = Phase::Lost;
        self.clear_pending();
        self.outputs.push_back(RaceOutput::Lost(error));
    }

    fn reports(&self, now: Time) -> Vec<AttemptReport> {
        let report = |attempt: &Attempt| {
            let (outcome, ended) = match attempt.end {
                Some((End::Failed(reason), ended)) => (AttemptOutcome::Failed(reason), ended),
                Some((End::Connected | End::Unfinished, _)) | None => (AttemptOutcome::Unfinished, now),
            };
            AttemptReport {
                candidate: attempt.ranked.candidate,
                outcome,
                started_after: attempt.started.since(self.began),
                took: ended.since(attempt.started),
            }
        };
        self.attempts.iter().map(report).collect()
    }

    /// Scores a failure, as far as it says something about the candidate.
    ///
    /// A device without any network has no route to all of them, which is not theirs to pay for: such a failure counts
    /// only once another attempt has shown that there is a network.
    fn score_failure(&mut self, candidate: Candidate, reason: FailReason) {
        let failure = RaceOutput::Scored { candidate, score: Score::Failure(reason) };
        match reason {
            FailReason::Closed | FailReason::Handshake | FailReason::Refused | FailReason::Untrusted => {
                self.show_network();
                self.outputs.push_back(failure);
            }
            FailReason::Rejected => self.show_network(),
            FailReason::TimedOut => self.outputs.push_back(failure),
            FailReason::Unreachable if self.has_network => self.outputs.push_back(failure),
            FailReason::Unreachable => self.unreachable.push(candidate),
        }
    }

    fn show_network(&mut self) {
        self.has_network = true;
        for candidate in self.unreachable.drain(..) {
            let score = Score::Failure(FailReason::Unreachable);
            self.outputs.push_back(RaceOutput::Scored { candidate, score });
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Lost,
    Running,
    Won { has_spare: bool },
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    ranked: RankedCandidate,
    started: Time,
    slot_ends_at: Time,
    times_out_at: Time,
    /// Something came back, and the rest of the handshake has until then before others are started beside it.
    alive_until: Option<Time>,
    end: Option<(End, Time)>,
}

impl Attempt {
    const fn address(&self) -> SocketAddr {
        self.ranked.candidate.address
    }

    const fn is_running(&self) -> bool {
        self.end.is_none()
    }

    fn holds_slot(&self, now: Time) -> bool {
        self.is_running() && now < self.slot_ends_at
    }
}

#[derive(Clone, Copy, Debug)]
enum End {
    Connected,
    Failed(FailReason),
    Unfinished,
}

/// Round trips, as a handshake under way showed them, that the rest of it may take. 8 round trips: the two that are left, each
/// lost once and sent again after a second timeout of twice the first.
const ALIVE_RTTS: u32 = 8;

#[cfg(test)]
mod tests;
