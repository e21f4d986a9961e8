//! What is measured, one module each.

mod black_holes;
mod front;
mod handshake;
mod latency;
mod memory;
mod slow_reader;
mod throughput;

use super::figure::Figure;
use super::{BenchError, Scale, Suite};

/// Measures one suite.
pub(super) async fn run(suite: Suite, scale: Scale) -> Result<Vec<Figure>, BenchError> {
    match suite {
        Suite::BlackHoles => black_holes::run(scale).await,
        Suite::Echo => throughput::echo(scale).await,
        Suite::Front => front::run(scale).await,
        Suite::Handshake => handshake::run(scale).await,
        Suite::Latency => latency::run(scale).await,
        Suite::Memory => memory::run(scale).await,
        Suite::SlowReader => slow_reader::run(scale).await,
        Suite::Upstream => throughput::upstream(scale).await,
    }
}
