//! The binary as its users meet it.

mod bench;
mod config;
mod listen;
mod push;
mod request;
mod support;
mod ticket;
mod up;
mod usage;
