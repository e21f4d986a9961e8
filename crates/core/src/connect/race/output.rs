//! What a race tells its owner.

use std::{fmt, time::Duration};

use crate::connect::{Candidate, Score};

/// The number of an attempt within its race.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptId(pub u32);

/// What the owner of a race has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RaceOutput {
    /// Drop this attempt, finished or not.
    Abandon {
        /// The attempt.
        attempt: AttemptId,
        /// Why it is of no use.
        why: AbandonReason,
    },
    /// Keep this finished attempt beside the winner as a warm spare.
    KeepSpare {
        /// The attempt.
        attempt: AttemptId,
    },
    /// The race is over and nobody won it.
    Lost(RaceError),
    /// Tell the records of this network how an attempt at the candidate ended.
    Scored {
        /// The candidate.
        candidate: Candidate,
        /// How it did.
        score: Score,
    },
    /// Open a connection to the candidate and go through the whole handshake.
    Start {
        /// The attempt, to be named in every answer.
        attempt: AttemptId,
        /// Where to connect and how.
        candidate: Candidate,
    },
    /// This attempt won: its link is the link.
    Won {
        /// The attempt.
        attempt: AttemptId,
    },
}

/// Why an attempt is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AbandonReason {
    /// The race's deadline passed.
    Deadline,
    /// The network is slow, and another attempt was answered or has won.
    InTheWay,
    /// What it was for is over: its race has been lost, or another begins.
    Over,
    /// It finished after the winner, and there is a spare already.
    SpareHeld,
    /// It took longer than the attempt timeout.
    TimedOut,
}

impl fmt::Display for AbandonReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Deadline => "no answer before the race was over",
            Self::InTheWay => "another was answered, and the network is slow",
            Self::Over => "the race it was in had ended",
            Self::SpareHeld => "others were first",
            Self::TimedOut => "no answer in time",
        })
    }
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailReason {
    /// The connection was closed or reset in the middle of the handshake.
    Closed,
    /// TLS or QUIC could not agree.
    Handshake,
    /// The address answered that nobody listens there.
    Refused,
    /// The gateway refused the link: the path works, so this says nothing against the candidate.
    Rejected,
    /// No answer in time.
    TimedOut,
    /// This device has no route to the address.
    Unreachable,
    /// Whoever answered has no certificate that this device trusts.
    Untrusted,
}

impl FailReason {
    /// Returns the reason's name as logs and metrics spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Handshake => "handshake",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed out",
            Self::Unreachable => "unreachable",
            Self::Untrusted => "untrusted",
        }
    }
}

impl fmt::Display for FailReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// How an attempt of a lost race ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// It failed.
    Failed(FailReason),
    /// It was still under way when the race's deadline passed.
    Unfinished,
}

/// One attempt of a lost race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttemptReport {
    /// Where it went and how.
    pub candidate: Candidate,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// How long after the start of the race it began.
    pub started_after: Duration,
    /// How long it took until its end.
    pub took: Duration,
}

impl fmt::Display for AttemptReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            AttemptOutcome::Failed(reason) => reason.as_str(),
            AttemptOutcome::Unfinished => "unfinished",
        };
        write!(f, "{}: {outcome} after {} ms", self.candidate, self.took.as_millis())
    }
}

/// Why nobody won a race.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RaceError {
    /// Every attempt failed.
    #[error("every attempt failed ({})", List(attempts))]
    AllFailed {
        /// Every attempt, in the order of their starts.
        attempts: Vec<AttemptReport>,
    },
    /// The race's deadline passed before an attempt finished.
    #[error("no attempt finished before the deadline ({})", List(attempts))]
    Deadline {
        /// Every attempt, in the order of their starts.
        attempts: Vec<AttemptReport>,
    },
    /// There was no candidate to try.
    #[error("no candidate to connect to")]
    NoCandidate,
}

impl RaceError {
    /// Returns every attempt of the race, in the order of their starts.
    #[must_use]
    pub fn attempts(&self) -> &[AttemptReport] {
        match self {
            Self::AllFailed { attempts } | Self::Deadline { attempts } => attempts,
            Self::NoCandidate => &[],
        }
    }

    /// Says whether every attempt met a certificate that this device does not trust.
    #[must_use]
    pub fn is_untrusted(&self) -> bool {
        match self {
            Self::AllFailed { attempts } => {
                attempts.iter().all(|attempt| attempt.outcome == AttemptOutcome::Failed(FailReason::Untrusted))
            }
            Self::Deadline { .. } | Self::NoCandidate => false,
        }
    }
}

/// Why the race wants to be called at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// An attempt has used up its time.
    Attempt,
    /// The race has.
    Deadline,
    /// An attempt gives up its slot to a candidate that waits for one.
    Slot,
    /// The stagger ends.
    Stagger,
}

struct List<'a>(&'a [AttemptReport]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, attempt) in self.0.iter().enumerate() {
            write!(f, "{}{attempt}", if place == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}
