//! What is learned about networks and services from how they behave.
//!
//! [`Breaker`] knows when a service is beyond reach, so that nobody waits for it; [`ServerTime`] how long a service takes to answer,
//! [`SmoothedRtt`] how long a network takes there and back, [`Island`] when a gateway can be reached and nothing behind it, and
//! [`smooth_within`] how long round trips take where nothing is lost.

mod breaker;
mod island;
mod rtt;
mod server_time;
mod smooth;

pub use breaker::{Attempt, Breaker, BreakerConfig};
pub use island::{Island, LATE_MAX};
pub use rtt::{RTT_MAX, SmoothedRtt};
pub use server_time::{SERVER_TIME_SAMPLES_MIN, ServerTime};
pub use smooth::smooth_within;
