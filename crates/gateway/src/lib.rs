//! The access gateway.

pub mod builtin;
pub mod config;
pub mod front;
pub mod metrics;
pub mod proxy;
pub mod route;
pub mod tickets;
pub mod upstream;
