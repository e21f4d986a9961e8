//! What a gateway decides about sealed pipes: which requests it takes, and when its keys change.
//!
//! A sealed pipe is a request encrypted as Oblivious HTTP (RFC 9458). Anyone on the way can keep it and send it again, so
//! [`Admission`] takes each once; and its key has to be known before the first byte is sent, so [`Rotation`] changes keys
//! slowly enough for clients to follow; [`KeyDay`] does where gateways derive their keys. What is encrypted and how is for the edge
//! to know.

mod admission;
mod day;
mod rotation;

pub use admission::{Admission, AdmissionConfig, PipeRefusal, REQUESTS_MAX, SKEW_MAX};
pub use day::{EARLY, KeyDay};
pub use rotation::{KEYS_MAX, KeyRecord, PERIOD, Rotation, RotationConfig, RotationOutput};
