//! What the fuzz targets do with their input, and a mutational fuzzer that runs them on a stable toolchain.
//!
//! A body takes any bytes, gives them to one decoder or machine and asserts what must hold whatever they are. It returns
//! what happened, as a set of numbers: [`explore`] keeps inputs that made something new happen and mutates them further.
//! `cargo fuzz` has real coverage for that and ignores them.
//!
//! ```
//! assert_eq!(ropeway_fuzz_bodies::varint(&[0x40, 0x25]), ropeway_fuzz_bodies::varint(&[0x40, 0x25]));
//! ```

mod bodies;
mod corpus;
mod explore;
mod mutate;
mod outcome;

pub use bodies::{client, config, cookie, fields, frames, hello, pipe, server, signed, ticket, varint};
pub use explore::{Budget, Explored, Failure, explore, run_once};
pub use outcome::Outcome;

/// One decoder or machine under test.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name, which is also the name of its cargo-fuzz target.
    pub name: &'static str,
    /// What is done with an input.
    pub body: fn(&[u8]) -> Outcome,
    /// The inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What inputs are made of.
    pub shape: Shape,
}

/// What the inputs of a target are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Bytes.
    Bytes,
    /// Frames of the link protocol, whose lengths are kept true now and then.
    Frames,
    /// Text.
    Text,
}

/// Every target.
pub const TARGETS: [Target; 11] = [
    Target { name: "client", body: client, seeds: corpus::client, shape: Shape::Frames },
    Target { name: "config", body: config, seeds: corpus::config, shape: Shape::Text },
    Target { name: "cookie", body: cookie, seeds: corpus::cookie, shape: Shape::Bytes },
    Target { name: "fields", body: fields, seeds: corpus::fields, shape: Shape::Frames },
    Target { name: "frames", body: frames, seeds: corpus::frames, shape: Shape::Frames },
    Target { name: "hello", body: hello, seeds: corpus::hello, shape: Shape::Frames },
    Target { name: "pipe", body: pipe, seeds: corpus::pipe, shape: Shape::Bytes },
    Target { name: "server", body: server, seeds: corpus::server, shape: Shape::Frames },
    Target { name: "signed", body: signed, seeds: corpus::signed, shape: Shape::Text },
    Target { name: "ticket", body: ticket, seeds: corpus::ticket, shape: Shape::Text },
    Target { name: "varint", body: varint, seeds: corpus::varint, shape: Shape::Bytes },
];
