//! What the client has learned about its candidates on one network.

use std::{collections::BTreeMap, time::Duration};

use super::{Candidate, FailReason};
use crate::{CarrierKind, Time, quality::SmoothedRtt};

/// The learned records of one network: one [`Record`] a candidate, and the carrier that wins there.
///
/// The owner keeps one of these for each network label, with [`super::OtherNetworks`]; nothing here outlives the process by itself.
#[derive(Clone, Debug, Default)]
pub struct Records {
    records: BTreeMap<Candidate, Record>,
    wins: Option<Wins>,
}

/// How one attempt at a candidate ended, as far as it says something about the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Score {
    /// The attempt failed for the reason given.
    Failure(FailReason),
    /// The handshake finished.
    Success {
        /// A sample of the path's round-trip time, not the length of the handshake.
        rtt: Duration,
        /// Whether this attempt won its race.
        won: bool,
    },
}

impl Records {
    /// Makes the records of a network about which nothing is known.
    #[must_use]
    pub const fn new() -> Self {
        Self { records: BTreeMap::new(), wins: None }
    }

    /// Takes in how one attempt ended.
    pub fn observe(&mut self, candidate: Candidate, score: Score, now: Time) {
        if self.get(candidate, now).is_none() {
            self.make_room(candidate);
            self.records.insert(candidate, Record::default());
        }
        let record = self.records.get_mut(&candidate).expect("inserted above where it was missing");
        match score {
            Score::Failure(_) => record.fail(now),
            Score::Success { rtt, won } => {
                record.succeed(rtt, now);
                if won {
                    self.win(candidate.carrier, now);
                }
            }
        }
    }

    /// Takes in a round-trip time of a connection to a candidate, beyond that of its handshake.
    pub fn handle_round_trip(&mut self, candidate: Candidate, rtt: Duration) {
        if let Some(known) = self.records.get_mut(&candidate).and_then(|record| record.rtt.as_mut()) {
            known.handle_sample(rtt);
        }
    }

    /// Returns the record of a candidate, unless there is none or it is older than [`RECORD_LIFE`].
    #[must_use]
    pub fn get(&self, candidate: Candidate, now: Time) -> Option<&Record> {
        self.records.get(&candidate).filter(|record| now.since(record.touched()) < RECORD_LIFE)
    }

    /// Returns the carrier that won the last races on this network.
    ///
    /// While it stands, races start with this carrier alone. A carrier other than QUIC counts as learned for
    /// [`FALLBACK_LEARNED_FOR`] from its first win in a row; then QUIC is tried beside it once more.
    #[must_use]
    pub fn learned_carrier(&self, now: Time) -> Option<CarrierKind> {
        let wins = self.wins.as_ref()?;
        let (began, life) = match wins.carrier {
            CarrierKind::Quic => (wins.last, RECORD_LIFE),
            CarrierKind::Tls | CarrierKind::Ws => (wins.first, FALLBACK_LEARNED_FOR),
        };
        (now.since(began) < life).then_some(wins.carrier)
    }

    /// Returns whether IPv6 has the better record (`true`), IPv4 has (`false`), or neither.
    #[must_use]
    pub fn prefers_ipv6(&self, now: Time) -> Option<bool> {
        let mut failures = [0_u64; 2];
        let mut attempts = [0_u64; 2];
        for (candidate, record) in &self.records {
            if now.since(record.touched()) < RECORD_LIFE {
                let family = usize::from(candidate.address.is_ipv6());
                failures[family] += u64::from(record.failures());
                attempts[family] += u64::from(record.attempts());
            }
        }
        // IPv4 that was not tried has not failed; IPv6 may well not be there at all.
        if attempts[0] == 0 && failures[1] > 0 {
            return Some(false);
        }
        // Compares the shares failures/attempts without dividing: a family without attempts prefers nothing.
        let (v4, v6) = (failures[0] * attempts[1], failures[1] * attempts[0]);
        (v4 != v6).then_some(v6 < v4)
    }

    /// Returns how many candidates have a record.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns whether no candidate has a record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    fn make_room(&mut self, candidate: Candidate) {
        if self.records.len() < RECORDS_MAX || self.records.contains_key(&candidate) {
            return;
        }
        let oldest = self.records.iter().min_by_key(|(_, record)| record.touched()).map(|(candidate, _)| *candidate);
        if let Some(oldest) = oldest {
            self.records.remove(&oldest);
        }
    }

    fn win(&mut self, carrier: CarrierKind, now: Time) {
        let same_row = self.learned_carrier(now) == Some(carrier);
        match &mut self.wins {
            Some(wins) if same_row => wins.last = now,
            Some(_) | None => self.wins = Some(Wins { carrier, first: now, last: now }),
        }
    }
}

/// What is known of one candidate on one network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// The newest outcome in the lowest bit, a failure as 1.
    window: u8,
    attempts: u8,
    failures_in_row: u32,
    rtt: Option<SmoothedRtt>,
    last_failure: Option<Time>,
    last_success: Option<Time>,
}

impl Record {
    /// Returns how many of the last [`WINDOW`] attempts failed.
    #[must_use]
    pub const fn failures(&self) -> u32 {
        self.window.count_ones()
    }

    /// Returns how many attempts the window holds, at most [`WINDOW`].
    #[must_use]
    pub const fn attempts(&self) -> u8 {
        self.attempts
    }

    /// Returns the smoothed round-trip time, if an attempt ever succeeded.
    #[must_use]
    pub fn srtt(&self) -> Option<Duration> {
        self.rtt.map(|rtt| rtt.srtt())
    }

    /// Returns when an attempt last failed.
    #[must_use]
    pub const fn last_failure(&self) -> Option<Time> {
        self.last_failure
    }

    /// Returns when an attempt last succeeded.
    #[must_use]
    pub const fn last_success(&self) -> Option<Time> {
        self.last_success
    }

    /// Returns whether the newest outcome is a success.
    #[must_use]
    pub const fn is_good(&self) -> bool {
        self.failures_in_row == 0 && self.attempts > 0
    }

    /// Returns until when the candidate is banned, if it is.
    ///
    /// A ban lasts [`BAN_STEP`] from the last failure, one step more for each failure in a row beyond
    /// [`BAN_FAILURES`], at most [`BAN_MAX`]. A success ends it.
    #[must_use]
    pub fn banned_until(&self, now: Time) -> Option<Time> {
        if self.failures_in_row == 0 || self.failures() < BAN_FAILURES {
            return None;
        }
        let steps = 1 + self.failures_in_row.saturating_sub(BAN_FAILURES);
        let until = self.last_failure? + BAN_STEP.saturating_mul(steps).min(BAN_MAX);
        (now < until).then_some(until)
    }

    fn fail(&mut self, now: Time) {
        let repeated = self.failures_in_row > 0 && self.last_failure.is_some_and(|last| now.since(last) < SAMPLE_GAP);
        if !repeated {
            self.push(true);
            self.failures_in_row = self.failures_in_row.saturating_add(1);
            self.last_failure = Some(now);
        }
    }

    fn succeed(&mut self, rtt: Duration, now: Time) {
        match &mut self.rtt {
            Some(known) => known.handle_sample(rtt),
            None => self.rtt = Some(SmoothedRtt::new(rtt)),
        }
        let repeated = self.is_good() && self.last_success.is_some_and(|last| now.since(last) < SAMPLE_GAP);
        if !repeated {
            self.push(false);
            self.failures_in_row = 0;
            self.last_success = Some(now);
        }
    }

    fn push(&mut self, failed: bool) {
        self.window = self.window << 1 | u8::from(failed);
        self.attempts = (self.attempts + 1).min(WINDOW);
    }

    fn touched(&self) -> Time {
        self.last_failure.max(self.last_success).unwrap_or_default()
    }
}

/// The carrier of the last races and when it won the first and the last of them in a row.
#[derive(Clone, Copy, Debug)]
struct Wins {
    carrier: CarrierKind,
    first: Time,
    last: Time,
}

/// Records kept for one network; the one unused for longest makes room. 256 candidates; about four times the largest
/// merged list ([`super::candidate::CANDIDATES_MAX`]), so that a list that changes daily does not wash out what is
/// known.
pub const RECORDS_MAX: usize = 256;

/// Attempts a record remembers. 8 attempts; Mars `simple_ipport_sort.cc`.
pub const WINDOW: u8 = 8;

/// Failures within the window that ban a candidate. 3 attempts; Mars `simple_ipport_sort.cc`.
pub const BAN_FAILURES: u32 = 3;

/// How long a first ban lasts and by how much each further failure in a row prolongs it. 6 min; Mars
/// `simple_ipport_sort.cc`.
pub const BAN_STEP: Duration = Duration::from_mins(6);

/// The longest ban. 30 min; Mars `simple_ipport_sort.cc`.
pub const BAN_MAX: Duration = Duration::from_mins(30);

/// Equal outcomes closer together than this count once: one outage is one failure, however often it is probed. 10 s;
/// Mars `simple_ipport_sort.cc`.
pub const SAMPLE_GAP: Duration = Duration::from_secs(10);

/// How long a record counts after its last outcome. 24 h; Mars `simple_ipport_sort.cc` (there from its creation).
pub const RECORD_LIFE: Duration = Duration::from_hours(24);

/// How long QUIC is left alone once another carrier won. 20 min; Mars disables QUIC for as long after a failure.
pub const FALLBACK_LEARNED_FOR: Duration = Duration::from_mins(20);

#[cfg(test)]
mod tests;
