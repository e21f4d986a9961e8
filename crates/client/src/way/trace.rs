//! How far an exchange has come.

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use ropeway_core::connect::Candidate;

use crate::shared::lock;

/// How far an exchange outside the link has come, for whoever gives it up.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    handed_off: AtomicBool,
    peer: Mutex<Option<Candidate>>,
}

impl Trace {
    /// Says whether the request was handed to a connection.
    pub(crate) fn is_handed_off(&self) -> bool {
        self.handed_off.load(Ordering::Relaxed)
    }

    /// Returns where the request was sent, if it was.
    pub(crate) fn peer(&self) -> Option<Candidate> {
        *lock(&self.peer)
    }

    /// Notes that the request is handed to a connection now.
    pub(crate) fn hand_off(&self, peer: Candidate) {
        *lock(&self.peer) = Some(peer);
        self.handed_off.store(true, Ordering::Relaxed);
    }

    /// Notes that nothing was written after all.
    pub(crate) fn take_back(&self) {
        self.handed_off.store(false, Ordering::Relaxed);
    }
}
