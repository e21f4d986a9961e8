//! Link protocol version 1 on the wire: varints, frames, control payloads. The prose is in `docs/protocol/`.

pub mod batch;
pub mod fields;
pub mod frame;
pub mod list;
pub mod message;
pub mod varint;

pub use frame::{Decoder, Flags, Frame, FrameError, FrameRef, Kind};
pub use varint::VARINT_MAX;

/// ALPN name of the link over TLS and QUIC.
pub const ALPN: &[u8] = b"ropeway/1";

/// WebSocket subprotocol of the link.
pub const SUBPROTOCOL: &str = "ropeway.v1";
