//! What a ladder is told, and what it asks for.

use std::time::Duration;

use crate::{
    Time,
    request::{Failure, Way},
};

/// One step of a ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rung {
    /// The way.
    pub way: Way,
    /// How long the request may take to be handed over before the next way is taken instead. A link has its own patience.
    pub connect: Duration,
    /// How long the head of the answer may take before the next way starts beside.
    pub first_byte: Duration,
    /// It is the last try of its way, which takes the plainest shape: HTTP/1.0, where the way has one.
    pub is_last: bool,
}

/// Number of a try, never used twice by one ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TryId(pub u32);

/// How the link is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkView {
    /// It takes requests.
    Open {
        /// Its session.
        session: u64,
        /// It may be trusted with what may not be executed twice: no awaited answer is late, or there is no other unit to move to.
        is_sure: bool,
        /// There is another unit to move to.
        can_move: bool,
    },
    /// None is open, and none can be expected.
    #[default]
    None,
    /// One is sought.
    Sought {
        /// Since when, if not just from now on.
        since: Option<Time>,
        /// When an attempt last came further.
        alive_at: Option<Time>,
        /// Every candidate has failed since then.
        is_exhausted: bool,
        /// What all the places that are tried said at once, where nothing else has come since.
        denied: Option<Denied>,
    },
}

/// What is known at once of every place that is tried for a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// When it became known of the last of them.
    pub at: Time,
    /// Why none of them can be had.
    pub why: Denial,
}

/// Why a place cannot be had, as far as that is known at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denial {
    /// Nobody listens there.
    Refused,
    /// The device has no route there; of several places, to some.
    Unreachable,
}

/// How a try ended without an answer for the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryEnd {
    /// A gateway answered that its service broke off ([`has_broken_off`](super::super::has_broken_off)). The owner keeps the answer, for
    /// the app if nothing better comes.
    BrokenOff {
        /// The request may have been executed, as it may where the gateway does not say that it was not.
        may_have_run: bool,
    },
    /// The request may have been executed.
    MayHaveRun,
    /// It was handed over, and not executed.
    NotExecuted,
    /// It was not handed over.
    NotSent,
    /// The peer ended it for a reason of its own.
    Reset,
    /// The request may have been executed, and its answer is too large for a way that holds it whole ([`Way::is_held`]).
    TooLarge,
    /// It was answered, with a status by which whoever stands before a service says that the service cannot be had
    /// ([`is_unavailable`](super::super::is_unavailable)), and not said to be not executed. The owner keeps the answer, for the app if
    /// nothing better comes.
    Unavailable,
}

/// What the owner of a ladder has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LadderOutput {
    /// The request has failed: nothing is under way any more.
    Fail(Failure),
    /// A try on this session's link had no answer in its time.
    Late {
        /// The session.
        session: u64,
    },
    /// Take a try back if it was not handed over yet, and answer with [`Ladder::handle_ended`](super::Ladder::handle_ended) as not sent; else leave it.
    Recall(TryId),
    /// Send the request.
    Start {
        /// Number of the try.
        number: TryId,
        /// The step.
        rung: Rung,
        /// The session, where the way is a link.
        session: Option<u64>,
    },
}
