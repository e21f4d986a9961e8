//! What becomes of one request: which ways it takes, and whether it is sent again when one fails.
//!
//! [`plan`] puts the ways in order that a request may take. A [`Ladder`] takes the request from one way to the next, [`Timeouts`] says
//! how long each try may take, and [`Detours`] which way is taken last for a while; resends of what may have run are paid from the client's
//! one [`Budget`]. Before a request goes, [`Guard`] looks whether the app runs
//! in a loop, [`Coalesce`] whether the same is being asked already, [`Batch`] whether it may wait for others, and [`Limit`] whether its
//! route has room. On the gateway's side [`idempotency`] remembers which keyed requests have run.

mod batch;
mod budget;
mod coalesce;
mod detours;
mod facts;
mod guard;
mod head;
pub mod idempotency;
mod ladder;
mod limit;
mod pattern;
mod port;
mod redirect;
mod spread;
mod timeout;
mod ways;

pub use batch::{Batch, BatchConfig, BatchId};
pub use budget::Budget;
pub use coalesce::{Coalesce, CoalesceConfig, CoalesceOutput, MemberId, Role, SharedKey, UNCOMPARED_HEADERS};
pub use detours::Detours;
pub use facts::{
    ERROR_HEADER, Failure, KEY_HEADER, NOT_EXECUTED_HEADER, RequestFacts, has_broken_off, is_idempotent, is_unavailable,
};
pub use guard::{Fingerprint, Guard, GuardConfig, TooFrequent};
pub use head::{HEAD_BYTES_MAX, HEADERS_MAX, HeadSize};
pub use ladder::{Denial, Denied, Ladder, LadderConfig, LadderOutput, LinkView, Rung, TryEnd, TryId};
pub use limit::{HTTP1_PER_HOST, Limit, LimitConfig, LimitFull, LimitId, LimitRule, Priority};
pub use pattern::RoutePattern;
pub use port::{PortError, port_of};
pub use redirect::{BadLocation, REDIRECTS_MAX, Redirected};
pub use spread::{fresh, pick, spot};
pub use timeout::{
    Answered, Ask, FIRST_BYTE_FLOOR, GAP_FLOOR, LABEL_CHARS_MAX, LABELS_MAX, NetworkState, QUEUE_MAX, Timeouts,
};
pub use ways::{AtHand, HELD_BYTES_MAX, Hosts, NoPlan, Plan, Target, UnknownWay, Way, plan};
