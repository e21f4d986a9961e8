//! The same cases over the three carriers, both ends real, over loopback sockets.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod closing;
mod credit;
mod driver;
mod exchanges;
mod frames;
mod hostile;
mod quic;
mod rig;
mod world;
