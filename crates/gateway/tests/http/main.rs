//! The HTTP side of the gateway against real upstreams and clients, on loopback.

mod proxy;
mod support;
