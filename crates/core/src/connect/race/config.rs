//! The constants of a race.

use std::time::Duration;

use crate::wire::message::NetworkKind;

/// How a race paces and bounds its attempts. Every field is configurable; see `docs/decisions/0002-race-constants.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaceConfig {
    /// How long an attempt over TLS must have been silent before a waiting request makes the race try its candidate again. 3 s; our
    /// choice: by then two SYNs have been lost (RFC 6298: after 1 s and 3 s), and the round trips of a very bad network (2,010 ms) are over.
    pub again_after: Duration,
    /// Addresses a race tries. 5 addresses; Mars `complexconnect.cc`.
    pub addresses_max: usize,
    /// How long one attempt may take, up to its finished handshake. 10 s; Mars `complexconnect.cc`.
    pub attempt_timeout: Duration,
    /// Attempts a race makes, over all addresses and carriers. 15 attempts: 5 addresses with three carriers each (decision 0025).
    pub attempts_max: usize,
    /// How long a race may take until it is won. 30 s: at the longest stagger, 4 s, the fifth address starts at 16 s
    /// and has its 10 s; and a waiting request is reconnected for as long.
    pub deadline: Duration,
    /// Addresses in flight at once, counted as addresses, not as carriers. 3 addresses; Mars `complexconnect.cc`.
    pub in_flight_max: usize,
    /// How long after a refusal a waiting request makes the race try the candidate again, where all have started. 500 ms, as between
    /// two attempts hurried by requests (decision 0029).
    pub refused_again_after: Duration,
    /// The round trip from which on a network is so slow that other handshakes are in the way of the first that is answered. 1 s; our
    /// choice (decision 0030).
    pub slow_rtt: Duration,
    /// The longest stagger. 2 s; RFC 8305 section 8. On 2G 4 s, WeChat's published interval ([`RaceConfig::on`]).
    pub stagger_max: Duration,
    /// The shortest stagger. 100 ms; RFC 8305 section 8.
    pub stagger_min: Duration,
    /// The stagger after a candidate without a record. 250 ms; RFC 8305 section 8.
    pub stagger_unknown: Duration,
}

impl RaceConfig {
    /// Returns the constants on a network of this kind: on 2G a first answer takes a second or two, and what starts meanwhile is in its way.
    /// `stagger_max` is what the gateways ask for, if they do.
    #[must_use]
    pub fn on(&self, kind: NetworkKind, stagger_max: Option<Duration>) -> Self {
        let (unknown, max) = match kind {
            NetworkKind::Cellular2g => (STAGGER_UNKNOWN_2G, STAGGER_ALIVE_MAX),
            NetworkKind::Unspecified
            | NetworkKind::Cellular3g
            | NetworkKind::Cellular4g
            | NetworkKind::Cellular5g
            | NetworkKind::Wifi
            | NetworkKind::Wired => (self.stagger_unknown, self.stagger_max),
        };
        Self { stagger_unknown: unknown, stagger_max: stagger_max.unwrap_or(max), ..self.clone() }
    }

    /// Returns how long to wait after the start of a candidate with this record before the next may start.
    #[must_use]
    pub fn stagger(&self, srtt: Option<Duration>) -> Duration {
        let wanted = srtt.map_or(self.stagger_unknown, |srtt| srtt.saturating_mul(STAGGER_RTTS));
        wanted.max(self.stagger_min).min(self.stagger_max)
    }

    /// Returns how long the others wait for an attempt that has shown this round-trip time.
    #[must_use]
    pub fn stagger_alive(&self, rtt: Duration) -> Duration {
        rtt.saturating_mul(STAGGER_RTTS).clamp(self.stagger_min, STAGGER_ALIVE_MAX.max(self.stagger_min))
    }

    /// Returns how long an attempt at a candidate with this record keeps its slot.
    #[must_use]
    pub fn slot_life(&self, srtt: Option<Duration>) -> Duration {
        let staggers = self.stagger(srtt).saturating_mul(SLOT_STAGGERS);
        staggers.max(srtt.unwrap_or_default().saturating_mul(SLOT_RTTS))
    }
}

impl Default for RaceConfig {
    fn default() -> Self {
        Self {
            again_after: Duration::from_secs(3),
            addresses_max: 5,
            attempt_timeout: Duration::from_secs(10),
            attempts_max: 15,
            deadline: Duration::from_secs(30),
            in_flight_max: 3,
            refused_again_after: Duration::from_millis(500),
            slow_rtt: Duration::from_secs(1),
            stagger_max: Duration::from_secs(2),
            stagger_min: Duration::from_millis(100),
            stagger_unknown: Duration::from_millis(250),
        }
    }
}

/// The longest that others wait for an attempt under way. 4 s; DESIGN section 5, the stagger on 2G.
const STAGGER_ALIVE_MAX: Duration = Duration::from_secs(4);

/// The stagger on 2G after a candidate without a record. 2 s; our choice: the longest round trip of a very bad network (2,010 ms, DESIGN
/// section 5).
const STAGGER_UNKNOWN_2G: Duration = Duration::from_secs(2);

/// Round trips the stagger waits for. 4 round trips: TCP, TLS 1.3 and the link's handshake take three, one to spare.
const STAGGER_RTTS: u32 = 4;

/// Staggers after which an attempt gives up its slot. 2 staggers; our choice: a blackholed address must not hold back
/// the fourth one, as it does for seconds in Mars (15 s measured).
const SLOT_STAGGERS: u32 = 2;

/// Round trips before which no attempt gives up its slot, however short the stagger's cap. 3 round trips, a handshake.
const SLOT_RTTS: u32 = 3;
