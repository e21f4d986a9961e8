//! The binary as its users meet it.

mod bench;
mod config;
mod endurance;
mod listen;
mod peers;
mod push;
mod request;
mod support;
mod ticket;
mod told;
mod up;
mod usage;
