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
    /// Nothing better is waited for beyond this time, neither a link, whatever comes further, nor another answer than that the service
    /// cannot be had: what the app is told comes before the end of the request's own time. By default there is no such time.
    pub wait_until: Option<Time>,
    /// When no further ways become known, as by an access list that is on its way: a request of which nothing was sent waits until then
    /// for them. By default none become known.
    pub ways_until: Option<Time>,
    /// How long a request that has no other way waits for a link where every place refuses, again and again. 3 s; curl's manual,
    /// `--retry`: the waits before its first two repetitions, 1 s and 2 s. A gateway that starts again has that long (decision 0029).
    pub refused_wait: Duration,
    /// How long a request that has no other way waits for a link where the device has no route to any place, or is refused by the others.
    /// 10 s; our choice: phones take seconds from one network to the next (decision 0033).
    pub offline_wait: Duration,
    /// Sends over links, each another one. 3, the most tries DESIGN section 5 gives one way.
    pub links_max: u32,
    /// How often a request is sent again because a gateway said that its service broke off. 1; RFC 9110 section 9.2.2 has a client not repeat
    /// what a repeat has lost as well. The service is the same behind every way (decision 0036).
    pub broken_off_again_max: u32,
}

impl LadderConfig {
    /// Returns the waits of a request that begins now and may take so long until the head of its answer. `link_wait` is how long a link is
    /// waited for in which nothing comes further: what the app says of that, or else the time it gave the request (decision 0033);
    /// the default where it gave none.
    #[must_use]
    pub fn timed(within: Duration, link_wait: Option<Duration>, now: Time) -> Self {
        let waits = Self::default();
        let wait_until = Some(now + within - within / END_SHARE);
        Self { link_wait: link_wait.unwrap_or(waits.link_wait), wait_until, ..waits }
    }
}

impl Default for LadderConfig {
    fn default() -> Self {
        Self {
            link_patience: Duration::from_secs(4),
            link_patience_min: Duration::from_millis(500),
            link_patience_alive: Duration::from_secs(8),
            link_wait: Duration::from_secs(10),
            wait_until: None,
            ways_until: None,
            refused_wait: Duration::from_secs(3),
            offline_wait: Duration::from_secs(10),
            links_max: TRIES_MAX.into(),
            broken_off_again_max: 1,
        }
    }
}

/// Share of a request's time that is left for telling the app what came of it. 1/32; our choice.
const END_SHARE: u32 = 32;
