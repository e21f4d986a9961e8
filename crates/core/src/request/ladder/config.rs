//! The constants of a climb.

use std::time::Duration;

use crate::{Time, policy::TRIES_MAX};

/// How long a request waits for a link, and how often it is sent over one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LadderConfig {
    /// How long a request waits for a link before its next way starts beside. 4 s; Mars `net_source.cc` and the article on its compound
    /// connect give one address as long.
    pub link_patience: Duration,
    /// How long at least, where one has been sought for longer than that already, or no candidate gave one. 500 ms;
    /// the interval of DESIGN section 5 at which a lost link is sought while somebody waits.
    pub link_patience_min: Duration,
    /// How long after an attempt to get a link last came further. 8 s; our choice: between the signs of life of a handshake at 20 kbit/s and
    /// 1.3 s of round trip (`2g-rural`) lie up to 6 s.
    pub link_patience_alive: Duration,
    /// How long a request waits for a link in which no attempt to get one comes further. 10 s: a race has its five addresses started by
    /// then, at the stagger of unknown ones; our choice. The client waits for as long as the app gave the request, if it did
    /// (decision 0033).
    pub link_wait: Duration,
    /// No link is waited for beyond this time, whatever comes further: what says why there is none comes before the end of the request's
    /// own time. By default there is no such time.
    pub link_wait_until: Option<Time>,
    /// How long a request that has no other way waits for a link where every place refuses, again and again. 3 s; curl's manual,
    /// `--retry`: the waits before its first two repetitions, 1 s and 2 s. A gateway that starts again has that long (decision 0029).
    pub refused_wait: Duration,
    /// How long a request that has no other way waits for a link where the device has no route to any place, or is refused by the others.
    /// 10 s; our choice: phones take seconds from one network to the next (decision 0033).
    pub offline_wait: Duration,
    /// Sends over links, each another one. 3, the most tries DESIGN section 5 gives one way.
    pub links_max: u32,
}

impl Default for LadderConfig {
    fn default() -> Self {
        Self {
            link_patience: Duration::from_secs(4),
            link_patience_min: Duration::from_millis(500),
            link_patience_alive: Duration::from_secs(8),
            link_wait: Duration::from_secs(10),
            link_wait_until: None,
            refused_wait: Duration::from_secs(3),
            offline_wait: Duration::from_secs(10),
            links_max: TRIES_MAX.into(),
        }
    }
}
