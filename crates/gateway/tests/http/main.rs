//! The HTTP side of the gateway against real upstreams and clients, on loopback.

mod door;
mod front;
mod hostile;
mod linger;
mod proxy;
mod support;
