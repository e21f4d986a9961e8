//! The bodies of the targets.

mod client;
mod gateway;
mod plain;
mod server;
mod wire;

pub use client::client;
pub use gateway::{config, ticket};
pub use plain::{pipe, signed};
pub use server::{hello, server};
pub use wire::{cookie, fields, frames, varint};
