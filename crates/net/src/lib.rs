//! Ropeway at the edge of the operating system.

pub mod scratch;
pub mod tls;
