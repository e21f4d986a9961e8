//! The weak-network laboratory's decisions: what a scenario says, and how a link behaves.
//!
//! A [`Scenario`] is data: access links, sites, events and faults, read from `scenarios/*.toml`. A [`LinkModel`] is one direction
//! of one access link. The lab drives the model with real packets in real time, the simulation with virtual ones in virtual time,
//! so both show the same network.

pub mod link;
mod net;
pub mod scenario;
pub mod trace;
mod transport;
pub mod work;
pub mod world;

pub use link::LinkModel;
pub use scenario::Scenario;
pub use trace::Trace;
pub use work::Work;
pub use world::{Report, run};
