//! How far a request has come, for whoever may give it up.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use crate::{Phase, exchange::Handover, shared::lock};

/// How far one request has come, told at any moment; clones are the same. See
/// [`RequestBuilder::progress`](crate::RequestBuilder::progress).
#[derive(Clone, Default)]
pub struct Progress(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    /// The tries that may have it, by their lines in the timeline, except those that ended without its being executed.
    handovers: Vec<(usize, Handover)>,
    /// Another request carries it, or may do so at any moment.
    is_carried: bool,
    is_answered: bool,
}

impl Progress {
    /// Returns what the request is at: [`Phase::Connect`] as long as no carrier has it, so that nobody can have executed it;
    /// [`Phase::Answer`] from then on, and for a request that goes together with others; [`Phase::Body`] once the head of its answer is
    /// there.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let inner = lock(&self.0);
        if inner.is_answered {
            Phase::Body
        } else if inner.is_carried || inner.handovers.iter().any(|(_, handover)| handover.is_done()) {
            Phase::Answer
        } else {
            Phase::Connect
        }
    }

    /// Notes that the request goes with others, of which it is not told which one is handed over.
    pub(crate) fn handle_carried(&self) {
        lock(&self.0).is_carried = true;
    }

    /// Notes that the request goes by itself.
    pub(crate) fn handle_alone(&self) {
        lock(&self.0).is_carried = false;
    }

    pub(crate) fn handle_answered(&self) {
        lock(&self.0).is_answered = true;
    }

    /// Notes a try, which tells by itself when it is handed over.
    pub(crate) fn begin(&self, step: usize, handover: Handover) {
        lock(&self.0).handovers.push((step, handover));
    }

    /// Notes that a try has not executed the request.
    pub(crate) fn note_unexecuted(&self, step: usize) {
        lock(&self.0).handovers.retain(|(other, _)| *other != step);
    }

    /// Returns the lines of the tries that may have executed the request.
    pub(crate) fn handed_over(&self) -> Vec<usize> {
        let inner = lock(&self.0);
        inner.handovers.iter().filter(|(_, handover)| handover.is_done()).map(|(step, _)| *step).collect()
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("phase", &self.phase()).finish()
    }
}
