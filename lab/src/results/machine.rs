//! Where and when a comparison ran.

use std::fs;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

/// The machine a comparison ran on.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Machine {
    /// Model of the processor.
    pub(crate) processor: String,
    /// Processors the system has.
    pub(crate) processors: usize,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// How TCP on it controls congestion, which weighs on every peer.
    pub(crate) congestion_control: String,
}

impl Machine {
    /// Describes this one.
    pub(crate) fn this() -> Self {
        let line = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            processor: model.map_or_else(|| "unknown".to_owned(), |(_, model)| model.trim().to_owned()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: line("/proc/sys/kernel/osrelease"),
            congestion_control: line("/proc/sys/net/ipv4/tcp_congestion_control"),
        }
    }
}

/// Gives the day, by UTC, as in 2026-11-30.
pub(crate) fn today() -> String {
    OffsetDateTime::now_utc().date().to_string()
}
