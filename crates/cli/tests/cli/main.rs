//! The binary as its users meet it.

mod config;
mod push;
mod support;
mod ticket;
mod up;
mod usage;
