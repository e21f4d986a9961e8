//! What clients are given to do, in the simulation and in the lab alike.

use std::{fmt, str::FromStr, time::Duration};

use http::Method;

/// A work: the requests of one run, each with [`DEADLINE`] to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Work {
    /// GET of 2 KB, at the times of the scenario.
    Get2k,
    /// POST of 10 KB, at the times of the scenario.
    Post10k,
    /// POST of 10 KB with a key by which the service executes it once however often it comes, at the times of the scenario.
    PostKeyed,
    /// GET of 200 KB, at the times of the scenario.
    Get200k,
    /// 60 POSTs of 256 bytes at once, as telemetry and clicks come, at the first of the times.
    Burst,
    /// GET of 2 KB as the first request of a client of its own, at the times of the scenario.
    Cold,
    /// GETs of 2 KB that begin 600 to 20 ms before the first outage.
    BeforeOutage,
    /// 51 GETs of 2 KB, 200 ms apart, from the first of the times: all but the first find everything open.
    Warm,
}

/// One request of a work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// When it begins, from the start of the run.
    pub start: Duration,
    /// GET, which may be repeated, or POST, which may not unless it has a key.
    pub method: Method,
    /// It has an `Idempotency-Key`, which the service honours.
    pub has_key: bool,
    /// Bytes of its body.
    pub body_bytes: usize,
    /// Bytes of the answer's body.
    pub answer_bytes: usize,
}

impl Work {
    /// Every work, in the order of reports.
    pub const ALL: [Self; 8] = [
        Self::Get2k,
        Self::Post10k,
        Self::PostKeyed,
        Self::Get200k,
        Self::Burst,
        Self::Cold,
        Self::BeforeOutage,
        Self::Warm,
    ];

    /// Returns the work's name as reports spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get2k => "get-2k",
            Self::Post10k => "post-10k",
            Self::PostKeyed => "post-keyed",
            Self::Get200k => "get-200k",
            Self::Burst => "burst",
            Self::Cold => "cold",
            Self::BeforeOutage => "before-outage",
            Self::Warm => "warm",
        }
    }

    /// Says whether each request is the first of a client of its own.
    #[must_use]
    pub const fn is_cold(self) -> bool {
        match self {
            Self::Cold => true,
            Self::Get2k
            | Self::Post10k
            | Self::PostKeyed
            | Self::Get200k
            | Self::Burst
            | Self::BeforeOutage
            | Self::Warm => false,
        }
    }

    /// Lays out the requests of a run where requests begin at `starts` and the network goes away at `outages`; none where the work makes
    /// no sense.
    #[must_use]
    pub fn tasks(self, starts: &[Duration], outages: impl IntoIterator<Item = Duration>) -> Vec<Task> {
        let starts = starts.iter().copied();
        match self {
            Self::Get2k | Self::Cold => starts.map(|start| get(start, 2 * KB)).collect(),
            Self::Post10k => starts.map(|start| post(start, 10 * KB)).collect(),
            Self::PostKeyed => starts.map(|start| Task { has_key: true, ..post(start, 10 * KB) }).collect(),
            Self::Get200k => starts.map(|start| get(start, 200 * KB)).collect(),
            Self::Burst => {
                let start = starts.min().unwrap_or_default();
                (0..BURST).map(|_| post(start, BURST_BODY_BYTES)).collect()
            }
            Self::BeforeOutage => {
                let outage = outages.into_iter().filter(|start| *start >= LEADS[0]).min();
                let leads = outage.into_iter().flat_map(|start| LEADS.map(|lead| start - lead));
                leads.map(|start| get(start, 2 * KB)).collect()
            }
            Self::Warm => {
                let first = starts.min().unwrap_or_default();
                (0..WARM).map(|number| get(first + WARM_EVERY * number, 2 * KB)).collect()
            }
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Work {
    type Err = UnknownWork;

    fn from_str(name: &str) -> Result<Self, UnknownWork> {
        Self::ALL.into_iter().find(|work| work.as_str() == name).ok_or(UnknownWork)
    }
}

/// A name that is none of the works'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown work, expected one of get-2k, post-10k, post-keyed, get-200k, burst, cold, before-outage, warm")]
#[non_exhaustive]
pub struct UnknownWork;

impl Task {
    /// Returns path and query; the id is how the origin knows the request.
    #[must_use]
    pub fn target(&self, id: impl fmt::Display) -> String {
        if self.body_bytes == 0 { format!("/bytes/{}?id={id}", self.answer_bytes) } else { format!("/post?id={id}") }
    }
}

fn get(start: Duration, answer_bytes: usize) -> Task {
    Task { start, method: Method::GET, has_key: false, body_bytes: 0, answer_bytes }
}

fn post(start: Duration, body_bytes: usize) -> Task {
    // The origin answers with the length.
    Task { start, method: Method::POST, has_key: false, body_bytes, answer_bytes: body_bytes.to_string().len() }
}

/// How long a request may take: 30 s, as the comparison's rules say.
pub const DEADLINE: Duration = Duration::from_secs(30);

const KB: usize = 1024;

/// POSTs of a burst.
const BURST: usize = 60;

/// Body of a POST of the burst: a click, or a short message.
const BURST_BODY_BYTES: usize = 256;

/// GETs of the warm work: the first opens a connection, and 50 use it.
const WARM: u32 = 51;

/// Time between them.
const WARM_EVERY: Duration = Duration::from_millis(200);

/// How long before an outage requests begin: the first opens a connection, and the others are on their way when it comes.
const LEADS: [Duration; 4] =
    [Duration::from_millis(600), Duration::from_millis(60), Duration::from_millis(40), Duration::from_millis(20)];

#[cfg(test)]
mod tests {
    use super::*;

    const STARTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

    #[test]
    fn every_work_is_found_by_its_name() {
        for work in Work::ALL {
            assert_eq!(work.as_str().parse(), Ok(work));
        }
        assert!("get".parse::<Work>().expect_err("no such work").to_string().contains("get-2k, post-10k"));
    }

    #[test]
    fn requests_begin_when_the_scenario_says() {
        let starts: Vec<_> = Work::Post10k.tasks(&STARTS, []).iter().map(|task| task.start).collect();
        assert_eq!(starts, STARTS);
        let keyed = Work::PostKeyed.tasks(&STARTS, []);
        assert!(keyed.iter().all(|task| task.has_key) && keyed.len() == STARTS.len());
        assert_eq!(Work::Burst.tasks(&STARTS, []).len(), BURST);
        let warm = Work::Warm.tasks(&STARTS, []);
        assert_eq!((warm.len(), warm[50].start), (51, Duration::from_secs(11)));
    }

    #[test]
    fn requests_before_an_outage_begin_before_it_or_not_at_all() {
        let outage = Duration::from_secs(3);
        let tasks = Work::BeforeOutage.tasks(&STARTS, [outage]);
        assert_eq!(tasks.len(), 4);
        assert!(tasks.iter().all(|task| task.start < outage));
        assert!(Work::BeforeOutage.tasks(&[], []).is_empty());
    }

    #[test]
    fn a_post_is_answered_with_the_length_of_its_body() {
        let task = &Work::Post10k.tasks(&STARTS, [])[0];
        assert_eq!((task.body_bytes, task.answer_bytes), (10_240, "10240".len()));
        assert_eq!(task.target(7), "/post?id=7");
    }
}
