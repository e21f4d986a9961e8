//! Ropeway at the edge of the operating system: carriers, TLS, and the asynchronous face of a session.
//!
//! With the feature `dns`, it also asks name servers and dispatchers for addresses.
//!
//! It moves bytes and keeps time; it decides nothing. Decisions are `ropeway_core`'s.

pub mod carrier;
mod clock;
pub mod dial;
#[cfg(feature = "dns")]
pub mod dns;
pub mod h3;
pub mod link;
pub mod pem;
pub mod pipe;
pub mod scratch;
pub mod signed;
pub mod tls;
mod words;

pub use clock::{Clock, unix_ms};
pub use words::innermost;
#[cfg(feature = "dns")]
pub use words::of_hyper;
