//! What the peers are given to do.

use std::{fmt, str::FromStr, time::Duration};

use super::network::Network;

/// A work: the requests of one run.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Work {
    /// GET of 2 KB, at the times of the scenario.
    Get2k,
    /// POST of 10 KB, at the times of the scenario.
    Post10k,
    /// GET of 200 KB, at the times of the scenario.
    Get200k,
    /// 60 POSTs of 256 bytes at once, as telemetry and clicks come, at the first of the times.
    Burst,
    /// GET of 2 KB as the first request of a process, at the times of the scenario.
    Cold,
    /// GETs of 2 KB that begin shortly before the network goes away.
    BeforeOutage,
}

/// A request of a work.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Request {
    /// When it begins, from the start of the run.
    pub(crate) start: Duration,
    /// Its method.
    pub(crate) method: Method,
    /// Bytes of its body.
    pub(crate) body_bytes: usize,
    /// Bytes of the answer's body.
    pub(crate) answer_bytes: usize,
}

/// A method.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Method {
    /// GET, which may be repeated.
    Get,
    /// POST, which may not.
    Post,
}

impl Work {
    /// All of them, in the order of the report.
    pub(crate) const ALL: [Self; 6] =
        [Self::Get2k, Self::Post10k, Self::Get200k, Self::Burst, Self::Cold, Self::BeforeOutage];

    /// Gives its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get2k => "get-2k",
            Self::Post10k => "post-10k",
            Self::Get200k => "get-200k",
            Self::Burst => "burst",
            Self::Cold => "cold",
            Self::BeforeOutage => "before-outage",
        }
    }

    /// Says whether each request is the first of a process of its own.
    pub(crate) const fn is_cold(self) -> bool {
        match self {
            Self::Cold => true,
            Self::Get2k | Self::Post10k | Self::Get200k | Self::Burst | Self::BeforeOutage => false,
        }
    }

    /// Lays the requests of one run out over a network's time; none where the work makes no sense there.
    pub(crate) fn requests(self, network: &Network) -> Vec<Request> {
        let starts = network.starts.iter().copied();
        match self {
            Self::Get2k | Self::Cold => starts.map(|start| get(start, 2 * KB)).collect(),
            Self::Post10k => starts.map(|start| post(start, 10 * KB)).collect(),
            Self::Get200k => starts.map(|start| get(start, 200 * KB)).collect(),
            Self::Burst => {
                let start = network.starts.first().copied().unwrap_or_default();
                (0..BURST).map(|_| post(start, BURST_BODY_BYTES)).collect()
            }
            Self::BeforeOutage => {
                let Some(outage) = network.outages.first() else { return Vec::new() };
                let leads = BEFORE_OUTAGE_MS.into_iter().map(Duration::from_millis);
                leads.map(|lead| get(outage.start.saturating_sub(lead), 2 * KB)).collect()
            }
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|work| work.name() == text);
        found.ok_or_else(|| format!("no work `{text}`; there are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

impl Method {
    /// Gives its name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
        }
    }
}

impl Request {
    /// Gives path and query; the id is how the origin's log knows the request.
    pub(crate) fn target(&self, id: &str) -> String {
        match self.method {
            Method::Get => format!("/bytes/{}?id={id}", self.answer_bytes),
            Method::Post => format!("/post?id={id}"),
        }
    }
}

fn get(start: Duration, answer_bytes: usize) -> Request {
    Request { start, method: Method::Get, body_bytes: 0, answer_bytes }
}

fn post(start: Duration, body_bytes: usize) -> Request {
    // The origin answers with the length.
    Request { start, method: Method::Post, body_bytes, answer_bytes: body_bytes.to_string().len() }
}

/// How long a request may take: 30 s, as the comparison's rules say.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

const KB: usize = 1024;

/// POSTs of a burst.
const BURST: usize = 60;

/// Body of a POST of the burst; the size of a short message or a click.
const BURST_BODY_BYTES: usize = 256;

/// Begin of the requests before an outage, ms ahead of it: the first opens a connection, and the others are on their way when it comes.
const BEFORE_OUTAGE_MS: [u64; 4] = [600, 60, 40, 20];

#[cfg(test)]
mod tests {
    use super::*;

    fn network() -> Network {
        let seconds = Duration::from_secs;
        Network::steady(vec![seconds(1), seconds(2)], std::iter::once(seconds(3)..seconds(13)).collect())
    }

    #[test]
    fn every_work_is_found_by_its_name() {
        for work in Work::ALL {
            assert_eq!(work.name().parse(), Ok(work));
        }
        assert!("get".parse::<Work>().expect_err("no such work").contains("get-2k, post-10k"));
    }

    #[test]
    fn requests_begin_when_the_scenario_says() {
        let starts: Vec<_> = Work::Post10k.requests(&network()).iter().map(|request| request.start.as_secs()).collect();
        assert_eq!(starts, [1, 2]);
        assert_eq!(Work::Burst.requests(&network()).len(), BURST);
    }

    #[test]
    fn requests_before_an_outage_begin_before_it_or_not_at_all() {
        let requests = Work::BeforeOutage.requests(&network());
        assert_eq!(requests.len(), 4);
        assert!(requests.iter().all(|request| request.start < Duration::from_secs(3)));
        assert!(Work::BeforeOutage.requests(&Network::steady(Vec::new(), Vec::new())).is_empty());
    }

    #[test]
    fn a_post_is_answered_with_the_length_of_its_body() {
        let request = &Work::Post10k.requests(&network())[0];
        assert_eq!((request.body_bytes, request.answer_bytes), (10_240, "10240".len()));
        assert_eq!(request.target("7"), "/post?id=7");
    }
}
