//! The messages of the access list and the policy, generated from `proto/list.proto`.
#![expect(missing_docs, reason = "generated code; the schema carries the comments")]

include!(concat!(env!("OUT_DIR"), "/ropeway.list.v1.rs"));
