//! Control payloads, generated from `proto/ropeway.proto`.
#![expect(missing_docs, reason = "generated code; the schema carries the comments")]

include!(concat!(env!("OUT_DIR"), "/ropeway.v1.rs"));
