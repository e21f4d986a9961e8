//! What the client of a world is given to do.

use std::{fmt, str::FromStr, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Uri, header};

use crate::{sim::Scenario, wire::fields::RequestHead};

/// A work: the requests of one run, each with 30 s to its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// GET of 2 KB, at the times of the scenario.
    Get2k,
    /// POST of 10 KB, at the times of the scenario.
    Post10k,
    /// GET of 200 KB, at the times of the scenario.
    Get200k,
    /// 60 POSTs of 256 bytes at once, at the first of the times.
    Burst,
    /// GET of 2 KB as the first request of a client of its own, at the times of the scenario.
    Cold,
    /// GETs of 2 KB that begin 500 to 200 ms before the first outage.
    BeforeOutage,
}

/// One request of a work.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) start: Duration,
    pub(super) method: Method,
    pub(super) body_bytes: usize,
    pub(super) answer_bytes: usize,
}

impl Work {
    /// Every work, in the order of reports.
    pub const ALL: [Self; 6] = [Self::Get2k, Self::Post10k, Self::Get200k, Self::Burst, Self::Cold, Self::BeforeOutage];

    /// Returns the work's name as reports spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get2k => "get-2k",
            Self::Post10k => "post-10k",
            Self::Get200k => "get-200k",
            Self::Burst => "burst",
            Self::Cold => "cold",
            Self::BeforeOutage => "before-outage",
        }
    }

    /// Says whether each request is the first of a client of its own.
    #[must_use]
    pub const fn is_cold(self) -> bool {
        match self {
            Self::Cold => true,
            Self::Get2k | Self::Post10k | Self::Get200k | Self::Burst | Self::BeforeOutage => false,
        }
    }

    /// Lays out the requests; none where the work makes no sense in the scenario.
    pub(super) fn tasks(self, scenario: &Scenario) -> Vec<Task> {
        let starts = scenario.starts.iter().copied();
        match self {
            Self::Get2k | Self::Cold => starts.map(|start| get(start, 2 * KB)).collect(),
            Self::Post10k => starts.map(|start| post(start, 10 * KB)).collect(),
            Self::Get200k => starts.map(|start| get(start, 200 * KB)).collect(),
            Self::Burst => {
                let start = starts.min().unwrap_or_default();
                (0..BURST).map(|_| post(start, BURST_BODY_BYTES)).collect()
            }
            Self::BeforeOutage => {
                let outage = scenario.outages().map(|(start, _)| start).filter(|start| *start >= LEADS[0]).min();
                let leads = outage.into_iter().flat_map(|start| LEADS.map(|lead| start - lead));
                leads.map(|start| get(start, 2 * KB)).collect()
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
#[error("unknown work, expected one of get-2k, post-10k, get-200k, burst, cold, before-outage")]
#[non_exhaustive]
pub struct UnknownWork;

impl Task {
    /// Makes the head of the request with this number.
    pub(super) fn head(&self, number: u64) -> RequestHead {
        let path = if self.body_bytes == 0 { format!("/bytes/{}", self.answer_bytes) } else { "/post".to_owned() };
        let uri = Uri::try_from(format!("https://{ORIGIN}{path}?id={number}")).expect("its parts make a URL");
        let mut headers = HeaderMap::new();
        if self.body_bytes > 0 {
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(self.body_bytes));
        }
        RequestHead { method: self.method.clone(), uri, headers }
    }
}

fn get(start: Duration, answer_bytes: usize) -> Task {
    Task { start, method: Method::GET, body_bytes: 0, answer_bytes }
}

fn post(start: Duration, body_bytes: usize) -> Task {
    // The origin answers with the length.
    Task { start, method: Method::POST, body_bytes, answer_bytes: body_bytes.to_string().len() }
}

/// Name of the origin, and of the gateways before it.
pub(super) const ORIGIN: &str = "api.test";

/// How long a request may take.
pub(super) const DEADLINE: Duration = Duration::from_secs(30);

const KB: usize = 1024;

/// POSTs of a burst.
const BURST: usize = 60;

/// Body of a POST of the burst: a click, or a short message.
const BURST_BODY_BYTES: usize = 256;

/// How long before an outage requests begin.
const LEADS: [Duration; 4] =
    [Duration::from_millis(500), Duration::from_millis(400), Duration::from_millis(300), Duration::from_millis(200)];
