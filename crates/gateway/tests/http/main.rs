//! The HTTP side of the gateway against real upstreams and clients, on loopback.

mod batch;
mod door;
mod front;
mod h3;
mod hostile;
mod keyed;
mod linger;
mod proxy;
mod reach;
mod support;
