//! Buffers of a thread, lent to one poll at a time.

use std::cell::RefCell;

/// Working memory of one thread.
///
/// Connections borrow it while they are polled and keep nothing in it, so an idle connection costs no buffer. Contents
/// are undefined at every borrow.
#[derive(Debug)]
pub struct Scratch {
    /// Bytes as they came from a socket: one read of [`RECV_BYTES`] behind one kept partial record. The length is fixed.
    pub recv: Vec<u8>,
    /// Plaintext being gathered before it is encrypted. Empty at first; grows to what its users need.
    pub plain: Vec<u8>,
    /// Records about to be written to a socket. Starts with [`CIPHER_BYTES`]; its length is capacity, not content.
    pub cipher: Vec<u8>,
}

impl Scratch {
    /// Allocates a set of buffers.
    #[must_use]
    pub fn new() -> Self {
        Self { recv: vec![0; RECV_BYTES + RECORD_WIRE_BYTES_MAX], plain: Vec::new(), cipher: vec![0; CIPHER_BYTES] }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Lends this thread's buffers to `f`.
///
/// The borrow must last for one poll only: `f` is not async, so it cannot be held across an await. A nested call gets
/// buffers of its own, at the price of an allocation.
pub fn with_scratch<R>(f: impl FnOnce(&mut Scratch) -> R) -> R {
    thread_local! {
        static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
    }
    SCRATCH.with(|scratch| match scratch.try_borrow_mut() {
        Ok(mut scratch) => f(&mut scratch),
        Err(_nested) => f(&mut Scratch::new()),
    })
}

/// Most bytes taken from a socket in one read: 64 KiB, four full TLS records.
pub const RECV_BYTES: usize = 64 * 1024;

/// Most plaintext of one TLS record: 2^14 bytes (RFC 8446 section 5.1).
pub const RECORD_PLAIN_BYTES_MAX: usize = 1 << 14;

/// Most bytes of one record on the wire, which is also the most that is kept of an incomplete one: header 5, plaintext
/// 2^14, expansion 2048 (the larger bound of RFC 5246 section 6.2.3, which rustls accepts).
pub const RECORD_WIRE_BYTES_MAX: usize = 5 + RECORD_PLAIN_BYTES_MAX + 2048;

/// Most plaintext encrypted in one go: 64 KiB, four full records.
pub const SEND_BYTES_MAX: usize = 4 * RECORD_PLAIN_BYTES_MAX;

/// Room for [`SEND_BYTES_MAX`] in four records of 22 bytes overhead each, and 4 KiB for handshake messages before them.
pub const CIPHER_BYTES: usize = SEND_BYTES_MAX + 4 * 22 + 4 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_buffers_of_a_thread_are_reused() {
        let first = with_scratch(|scratch| scratch.recv.as_ptr());

        let second = with_scratch(|scratch| scratch.recv.as_ptr());

        assert_eq!(first, second);
    }

    #[test]
    fn a_nested_borrow_gets_its_own_buffers() {
        let (outer, inner) = with_scratch(|outer| (outer.recv.as_ptr(), with_scratch(|inner| inner.recv.as_ptr())));

        assert_ne!(outer, inner);
    }
}
