//! Which streams of a connection have something to read.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Wake, Waker},
};

use atomic_waker::AtomicWaker;

/// Collects the streams that woke, so that a turn costs what happened and not what is open.
#[derive(Default)]
pub(super) struct Ready {
    streams: Mutex<BTreeSet<u64>>,
    task: AtomicWaker,
}

impl Ready {
    /// Keeps the waker of the task that drives the connection.
    pub(super) fn register(&self, task: &Waker) {
        self.task.register(task);
    }

    /// Wakes the task that drives the connection.
    pub(super) fn wake(&self) {
        self.task.wake();
    }

    /// Returns a waker that marks one stream.
    pub(super) fn waker(self: &Arc<Self>, stream: u64) -> Waker {
        Waker::from(Arc::new(StreamWaker { ready: Arc::clone(self), stream }))
    }

    /// Marks a stream whose reading is not finished, without waking the task.
    pub(super) fn mark(&self, stream: u64) {
        self.lock().insert(stream);
    }

    /// Takes the streams that are marked.
    pub(super) fn take(&self) -> BTreeSet<u64> {
        std::mem::take(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct StreamWaker {
    ready: Arc<Ready>,
    stream: u64,
}

impl Wake for StreamWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.mark(self.stream);
        self.ready.task.wake();
    }
}
