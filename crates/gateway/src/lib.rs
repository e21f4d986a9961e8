//! The access gateway.

pub mod config;
pub mod tickets;
