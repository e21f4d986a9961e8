//! What becomes of one request: which way it takes, and whether it is sent again when the way fails.
//!
//! [`choose`] picks the [`Way`] from what the gateways said they serve. [`Progress`] follows a request over its sends and judges
//! each failure; resends of what may have run are paid from the client's one [`Budget`]. On the gateway's side [`idempotency`]
//! remembers which keyed requests have run.

mod budget;
pub mod idempotency;
mod progress;
mod ways;

pub use budget::Budget;
pub use progress::{Failure, Progress, RequestFacts, Verdict, is_idempotent};
pub use ways::{Choice, Hosts, NoChoice, Target, Way, choose};
