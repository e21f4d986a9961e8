//! The system calls a lab needs; the only place of this crate with unsafe code.

pub(crate) mod child;
pub(crate) mod namespace;
pub(crate) mod scheduler;
pub(crate) mod tun;
