//! What becomes of one request: which ways it takes, and whether it is sent again when one fails.
//!
//! [`choose`] picks the first [`Way`] from what the gateways said they serve. A [`Ladder`] takes the request from one way to the next;
//! resends of what may have run are paid from the client's one [`Budget`]. On the gateway's side [`idempotency`] remembers which keyed
//! requests have run.

mod budget;
mod facts;
pub mod idempotency;
mod ladder;
mod ways;

pub use budget::Budget;
pub use facts::{Failure, NOT_EXECUTED_HEADER, RequestFacts, is_idempotent};
pub use ladder::{Ladder, LadderConfig, LadderOutput, LinkView, Rung, TryEnd, TryId};
pub use ways::{Choice, Hosts, NoChoice, Target, Way, choose};
