//! The access gateway: links and HTTP in front of services, and messages back to devices.
//!
//! It admits links, keeps their sessions, forwards requests to upstreams and pushes to the devices they are for. It never decides
//! how the protocol goes (that is `ropeway_core`'s), never knows other roles (they meet on the bus of `ropeway_cluster`), and
//! never presents a cut answer as whole.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ropeway_cluster::{LocalBus, LocalBusConfig};
//! use ropeway_gateway::{Gateway, config::Config};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let config = Arc::new(Config::load("ropeway.toml".as_ref())?);
//! let gateway = Gateway::start(config, LocalBus::new(LocalBusConfig::default())).await?;
//! println!("links on {}", gateway.addresses().tcp);
//! gateway.drain().await;
//! # Ok(())
//! # }
//! ```

mod admin;
mod batch;
pub mod builtin;
pub mod config;
pub mod front;
mod gateway;
mod held;
mod link;
mod listen;
pub mod lists;
pub mod metrics;
pub mod pipe;
pub mod proxy;
mod push;
pub mod route;
mod secret;
pub mod signing;
pub mod tickets;
pub mod upstream;

pub use gateway::{Addresses, Gateway, StartError, check_files};

/// Draws bytes from the system's randomness.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has randomness");
    bytes
}
