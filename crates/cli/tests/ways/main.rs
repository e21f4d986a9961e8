//! The ways of single exchanges, through a real gateway on loopback.

mod drops;
mod fleet;
mod heads;
mod ladder;
mod lost;
mod middlebox;
mod pipe;
mod plain;
mod ports;
mod support;
