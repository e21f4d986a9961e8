//! The access gateway.

pub mod config;
