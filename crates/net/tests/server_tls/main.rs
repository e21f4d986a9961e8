//! The server TLS against rustls's own client, over loopback sockets.

mod early;
mod handshake;
mod hostile;
mod rig;
mod stream;
mod transfer;
