//! From candidates to a link: races, and the greeting with each winner until one says WELCOME.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{AbandonReason, AttemptId, Candidate, FailReason, Race, RaceConfig, RaceOutput, RankedCandidate, Score};
use crate::Time;

/// One attempt to get a link.
///
/// A [`Race`] opens connections. HELLO goes to its winner alone, since a HELLO attaches the session at the gateway. Where the
/// winner does not say WELCOME, the greeting goes to the spare, or a new race is run among the candidates that have not failed so.
#[derive(Clone, Debug)]
pub struct Establish {
    config: EstablishConfig,
    ranked: Vec<RankedCandidate>,
    /// `None` while a connection that was left over is greeted.
    race: Option<Race>,
    /// Number of the running race's first attempt.
    base: u32,
    races: u32,
    /// The candidate of every attempt, by its number; at most `RACES_MAX` races' worth.
    candidates: Vec<Candidate>,
    running: BTreeMap<AttemptId, Candidate>,
    phase: Phase,
    spare: Option<AttemptId>,
    /// Round trips of the open connections.
    rtts: BTreeMap<AttemptId, Duration>,
    failed: BTreeSet<Candidate>,
    outputs: VecDeque<EstablishOutput>,
}

/// The constants of getting a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstablishConfig {
    /// The constants of each race.
    pub race: RaceConfig,
    /// How long WELCOME may take at most. 8 s; Mars `longlink.cc` waits as long for the reply to its first packet, a noop.
    pub greet_within: Duration,
    /// How long it may take in round trips of the connection, if that is less. 4: one, and two losses that the transport makes good.
    pub greet_rtts: u32,
    /// How long it may take at least. 500 ms; DESIGN section 5, the gap between two attempts while a request waits.
    pub greet_within_min: Duration,
    /// How long WELCOME may take on a connection that an earlier race left over. 1 s; our choice, three round trips of a bad mobile
    /// network: it may be dead by now, and a race that would do better waits behind it.
    pub spare_within: Duration,
}

/// What the owner has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EstablishOutput {
    /// Drop this attempt, and its connection if it has one.
    Abandon {
        /// The attempt.
        attempt: AttemptId,
        /// Why.
        why: AbandonReason,
    },
    /// Send HELLO on this attempt's connection.
    Greet {
        /// The attempt.
        attempt: AttemptId,
        /// Where it leads.
        candidate: Candidate,
    },
    /// Keep this attempt's connection beside the link.
    KeepSpare {
        /// The attempt.
        attempt: AttemptId,
        /// Where it leads.
        candidate: Candidate,
    },
    /// No candidate gave a link.
    Lost {
        /// Every connection of the only race met a certificate that this device does not trust. Waiting for another race
        /// is of little use then.
        untrusted: bool,
    },
    /// Tell the records of this network how an attempt at the candidate ended.
    Scored {
        /// The candidate.
        candidate: Candidate,
        /// How it did.
        score: Score,
    },
    /// Open a connection to the candidate.
    Start {
        /// The attempt, to be named in every answer.
        attempt: AttemptId,
        /// Where to connect and how.
        candidate: Candidate,
    },
}

/// Why the greeting brought no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GreetFailure {
    /// The connection broke.
    Broken,
    /// The gateway refused the link, which says nothing against the path.
    Refused,
}

impl Establish {
    /// Begins with a race over candidates in their order; the first outputs are there at once.
    #[must_use]
    pub fn new(config: EstablishConfig, ranked: Vec<RankedCandidate>, now: Time) -> Self {
        let mut establish = Self::idle(config, ranked);
        establish.begin_race(establish.ranked.clone(), now);
        establish
    }

    /// Begins with a connection that an earlier race left over, as attempt 0, and races only if it gives no link.
    #[must_use]
    pub fn with_spare(config: EstablishConfig, ranked: Vec<RankedCandidate>, spare: Candidate, now: Time) -> Self {
        let mut establish = Self::idle(config, ranked);
        establish.candidates.push(spare);
        establish.greet(AttemptId(0), establish.config.spare_within, now);
        establish
    }

    const fn idle(config: EstablishConfig, ranked: Vec<RankedCandidate>) -> Self {
        Self {
            config,
            ranked,
            race: None,
            base: 0,
            races: 0,
            candidates: Vec::new(),
            running: BTreeMap::new(),
            phase: Phase::Racing,
            spare: None,
            rtts: BTreeMap::new(),
            failed: BTreeSet::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Takes in that an attempt's connection is open, its handshake complete.
    pub fn handle_connected(&mut self, attempt: AttemptId, rtt: Duration, now: Time) {
        let number = self.in_race(attempt);
        if self.running.remove(&attempt).is_some()
            && let Some(race) = &mut self.race
        {
            self.rtts.insert(attempt, rtt);
            race.handle_connected(number, rtt, now);
            self.follow_race(now);
        }
    }

    /// Takes in that something came back on an attempt whose handshake goes on; see [`Race::handle_alive`].
    pub fn handle_alive(&mut self, attempt: AttemptId, rtt: Duration, now: Time) {
        let number = self.in_race(attempt);
        if self.running.contains_key(&attempt)
            && let Some(race) = &mut self.race
        {
            race.handle_alive(number, rtt, now);
            self.follow_race(now);
        }
    }

    /// Takes in that an attempt failed.
    pub fn handle_failed(&mut self, attempt: AttemptId, reason: FailReason, now: Time) {
        let number = self.in_race(attempt);
        if self.running.remove(&attempt).is_some()
            && let Some(race) = &mut self.race
        {
            race.handle_failed(number, reason, now);
            self.follow_race(now);
        }
    }

    /// Takes in that WELCOME came.
    pub fn handle_welcomed(&mut self) {
        if matches!(self.phase, Phase::Greeting { .. }) {
            self.phase = Phase::Up;
            self.offer_spare();
        }
    }

    /// Takes in that the greeting of `attempt` failed.
    pub fn handle_greet_failed(&mut self, attempt: AttemptId, failure: GreetFailure, now: Time) {
        if matches!(self.phase, Phase::Greeting { attempt: greeted, .. } if greeted == attempt) {
            let reason = match failure {
                GreetFailure::Broken => FailReason::Closed,
                GreetFailure::Refused => FailReason::Rejected,
            };
            self.greet_next(attempt, reason, now);
        }
    }

    /// Starts one more attempt now, because someone waits.
    pub fn handle_hurry(&mut self, now: Time) {
        if self.phase == Phase::Racing
            && let Some(race) = &mut self.race
        {
            race.handle_hurry(now);
            self.follow_race(now);
        }
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        if let Phase::Greeting { attempt, until } = self.phase
            && until <= now
        {
            self.outputs.push_back(EstablishOutput::Abandon { attempt, why: AbandonReason::TimedOut });
            self.greet_next(attempt, FailReason::TimedOut, now);
        }
        if let Some(race) = &mut self.race {
            race.handle_timeout(now);
            self.follow_race(now);
        }
    }

    /// Returns the next deadline and what it is for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let greeting = match self.phase {
            Phase::Greeting { until, .. } => Some((until, "welcome is late")),
            Phase::Lost | Phase::Racing | Phase::Up => None,
        };
        let race = self.race.as_ref().and_then(Race::poll_timeout).map(|(at, _)| (at, "race"));
        [greeting, race].into_iter().flatten().min()
    }

    /// Returns the next thing the owner has to do.
    pub fn poll_output(&mut self) -> Option<EstablishOutput> {
        self.outputs.pop_front()
    }

    /// Says whether there is a link, or none will come, and no attempt is under way any more.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match self.phase {
            Phase::Greeting { .. } | Phase::Racing => false,
            Phase::Lost => true,
            Phase::Up => self.running.is_empty(),
        }
    }

    /// Says whether neither WELCOME came nor everything failed.
    #[must_use]
    pub const fn is_undecided(&self) -> bool {
        matches!(self.phase, Phase::Greeting { .. } | Phase::Racing)
    }

    fn in_race(&self, attempt: AttemptId) -> AttemptId {
        AttemptId(attempt.0.saturating_sub(self.base))
    }

    fn candidate(&self, attempt: AttemptId) -> Candidate {
        self.candidates[attempt.0 as usize]
    }

    /// Passes on what the race says, under numbers that no other race of this machine uses.
    fn follow_race(&mut self, now: Time) {
        while let Some(output) = self.race.as_mut().and_then(Race::poll_output) {
            match output {
                RaceOutput::Abandon { attempt, why } => {
                    let attempt = AttemptId(self.base + attempt.0);
                    self.running.remove(&attempt);
                    self.outputs.push_back(EstablishOutput::Abandon { attempt, why });
                }
                RaceOutput::KeepSpare { attempt } => {
                    self.spare = Some(AttemptId(self.base + attempt.0));
                    if self.phase == Phase::Up {
                        self.offer_spare();
                    }
                }
                RaceOutput::Lost(error) => {
                    if self.phase == Phase::Racing {
                        self.lose(self.races == 1 && error.is_untrusted());
                    }
                }
                RaceOutput::Scored { candidate, score } => {
                    self.outputs.push_back(EstablishOutput::Scored { candidate, score });
                }
                RaceOutput::Start { attempt, candidate } => {
                    let attempt = AttemptId(self.base + attempt.0);
                    self.candidates.push(candidate);
                    self.running.insert(attempt, candidate);
                    self.outputs.push_back(EstablishOutput::Start { attempt, candidate });
                }
                RaceOutput::Won { attempt } => {
                    let attempt = AttemptId(self.base + attempt.0);
                    self.greet(attempt, self.greet_within(attempt), now);
                }
            }
        }
    }

    fn begin_race(&mut self, candidates: Vec<RankedCandidate>, now: Time) {
        self.races += 1;
        self.base = u32::try_from(self.candidates.len()).expect("attempts are few");
        self.phase = Phase::Racing;
        self.race = Some(Race::new(self.config.race.clone(), candidates, now));
        self.follow_race(now);
    }

    fn greet(&mut self, attempt: AttemptId, within: Duration, now: Time) {
        self.phase = Phase::Greeting { attempt, until: now + within };
        self.outputs.push_back(EstablishOutput::Greet { attempt, candidate: self.candidate(attempt) });
    }

    /// Returns how long WELCOME may take on a connection.
    fn greet_within(&self, attempt: AttemptId) -> Duration {
        let rtt = self.rtts.get(&attempt).copied().unwrap_or(Duration::MAX);
        let config = &self.config;
        rtt.saturating_mul(config.greet_rtts).max(config.greet_within_min).min(config.greet_within)
    }

    /// Greets the spare, or races again without the candidates whose greeting failed.
    fn greet_next(&mut self, attempt: AttemptId, reason: FailReason, now: Time) {
        let candidate = self.candidate(attempt);
        // What was left over may just be old, which says nothing against its candidate.
        let counts = self.race.is_some() || reason == FailReason::Rejected;
        if counts {
            self.failed.insert(candidate);
        }
        match reason {
            FailReason::Closed
            | FailReason::Handshake
            | FailReason::Refused
            | FailReason::TimedOut
            | FailReason::Unreachable
            | FailReason::Untrusted => {
                if counts {
                    self.outputs.push_back(EstablishOutput::Scored { candidate, score: Score::Failure(reason) });
                }
            }
            FailReason::Rejected => {}
        }
        if let Some(spare) = self.spare.take() {
            return self.greet(spare, self.greet_within(spare), now);
        }
        let left: Vec<RankedCandidate> =
            self.ranked.iter().filter(|ranked| !self.failed.contains(&ranked.candidate)).copied().collect();
        if left.is_empty() || self.races >= RACES_MAX {
            return self.lose(false);
        }
        for attempt in std::mem::take(&mut self.running).into_keys() {
            self.outputs.push_back(EstablishOutput::Abandon { attempt, why: AbandonReason::Over });
        }
        self.begin_race(left, now);
    }

    fn offer_spare(&mut self) {
        if let Some(attempt) = self.spare.take() {
            let candidate = self.candidate(attempt);
            self.outputs.push_back(EstablishOutput::KeepSpare { attempt, candidate });
        }
    }

    fn lose(&mut self, untrusted: bool) {
        self.phase = Phase::Lost;
        for attempt in std::mem::take(&mut self.running).into_keys() {
            self.outputs.push_back(EstablishOutput::Abandon { attempt, why: AbandonReason::Over });
        }
        self.outputs.push_back(EstablishOutput::Lost { untrusted });
    }
}

impl Default for EstablishConfig {
    fn default() -> Self {
        Self {
            race: RaceConfig::default(),
            greet_within: Duration::from_secs(8),
            greet_rtts: 4,
            greet_within_min: Duration::from_millis(500),
            spare_within: Duration::from_secs(1),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Greeting { attempt: AttemptId, until: Time },
    Lost,
    Racing,
    Up,
}

/// Races one attempt to get a link may run: one for each address a race tries.
pub const RACES_MAX: u32 = 5;

#[cfg(test)]
mod tests;
