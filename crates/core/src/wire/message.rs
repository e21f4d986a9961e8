//! Control payloads, generated from `proto/ropeway.proto`.
#![expect(missing_docs, clippy::use_self, reason = "generated code; the schema carries the comments")]

include!(concat!(env!("OUT_DIR"), "/ropeway.v1.rs"));
