//! One counter for each error, resolved once.

use super::ProxyError;
use crate::metrics::{Counter, Metrics};

/// The counters of `ropeway_request_errors_total`, by error.
#[derive(Debug)]
pub(super) struct ErrorCounters([Counter; ProxyError::ALL.len()]);

impl ErrorCounters {
    pub(super) fn new(metrics: &Metrics) -> Self {
        Self(ProxyError::ALL.map(|error| metrics.request_error(error.name())))
    }

    pub(super) fn count(&self, error: ProxyError) {
        self.0[error as usize].inc();
    }
}
