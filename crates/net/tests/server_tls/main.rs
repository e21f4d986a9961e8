//! The server TLS against rustls's own client, over loopback sockets.
#![expect(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod early;
mod handshake;
mod hostile;
mod rig;
mod stream;
mod transfer;
