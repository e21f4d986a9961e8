//! Where and when a comparison ran.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

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
    let days = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs() / SECONDS_PER_DAY);
    date(days)
}

/// Gives the date of a day counted from 1970-01-01, as `civil_from_days` of Howard Hinnant's "chrono-Compatible Low-Level Date
/// Algorithms" does.
fn date(days: u64) -> String {
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02}")
}

const SECONDS_PER_DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (days, text) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_787, "2026-11-30"), (47_540, "2100-02-28")]
        {
            assert_eq!(date(days), text);
        }
    }
}
