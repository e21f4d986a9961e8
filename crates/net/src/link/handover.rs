//! When and on which links a request was handed over.

use std::sync::{Arc, Mutex, PoisonError};

use ropeway_core::Time;

/// Notes each time that the head of a request is handed to a carrier; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Handovers(Arc<Mutex<Vec<HandedOver>>>);

/// One time that a request was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandedOver {
    /// The link of the session, counted from 1.
    pub link: u64,
    /// When it was.
    pub at: Time,
    /// It went out behind HELLO, before the gateway said WELCOME.
    pub is_early: bool,
}

impl Handovers {
    /// Returns them in their order, the first 16.
    #[must_use]
    pub fn list(&self) -> Vec<HandedOver> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn push(&self, handed: HandedOver) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < HANDOVERS_MAX {
            list.push(handed);
        }
    }
}

/// Hand-overs that are noted of one exchange. 16; our choice: more links than one request lives to see.
const HANDOVERS_MAX: usize = 16;
