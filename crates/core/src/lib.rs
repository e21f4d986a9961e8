//! Every decision of Ropeway, as sans-I/O state machines.
//!
//! Nothing here touches a socket, a file, a thread, the operating system's clock or its randomness: time and seeds are
//! arguments. All machines speak the same verbs: `new(config, seed, now)`, `handle_*(…, now)`, `handle_timeout(now)`,
//! `poll_timeout()` and `poll_output()`. The owner makes one call that changes the machine, then drains its outputs.

pub mod carrier;
pub mod connect;
pub mod fault;
pub mod heartbeat;
pub mod pipe;
pub mod policy;
pub mod quality;
mod random;
pub mod request;
pub mod session;
#[cfg(feature = "sim")]
pub mod sim;
pub mod time;
pub mod wire;

pub use carrier::CarrierKind;
pub use fault::{Retry, Side};
pub use time::Time;
