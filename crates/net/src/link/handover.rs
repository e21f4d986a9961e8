//! When and on which links a request was handed over, and which brought its answer.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ropeway_core::Time;

/// Notes each time that the head of a request is handed to a carrier, and where its answer comes; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Handovers(Arc<Mutex<Noted>>);

#[derive(Debug, Default)]
struct Noted {
    handed: Vec<HandedOver>,
    answered: Option<u64>,
}

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
        self.lock().handed.clone()
    }

    /// Returns the link that brought the head of the answer, by its number.
    #[must_use]
    pub fn answered(&self) -> Option<u64> {
        self.lock().answered
    }

    pub(super) fn push(&self, handed: HandedOver) {
        let list = &mut self.lock().handed;
        if list.len() < HANDOVERS_MAX {
            list.push(handed);
        }
    }

    pub(super) fn answer(&self, link: u64) {
        self.lock().answered = Some(link);
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hand-overs that are noted of one exchange. 16; our choice: more links than one request lives to see.
const HANDOVERS_MAX: usize = 16;
