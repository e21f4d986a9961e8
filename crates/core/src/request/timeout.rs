//! How long an answer may take to its first byte, and how long it may pause after that.

mod class;
mod known;
mod verdict;

use std::{collections::BTreeMap, time::Duration};

use self::{
    class::Class,
    known::{Known, KnownUntil},
    verdict::Verdict,
};
use crate::{Time, policy::Policy, wire::message::NetworkKind};

pub use self::verdict::NetworkState;

/// Learns from answers how long the next may take, for each network on its own.
///
/// A network about which nothing is known has the constants of its class, which are Mars's. Once its round trips and its throughput are
/// measured, they count instead; ten quick answers in a row shorten the time further, and a share of failures lengthens it. What a policy
/// says stands in place of all that. Nothing is due here at any time: the owner asks when it needs an answer.
#[derive(Clone, Debug)]
pub struct Timeouts {
    place: Place,
    known: BTreeMap<Place, Known>,
    verdict: Verdict,
}

/// A try whose time is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Bytes of the request, its body above all.
    pub bytes: u64,
    /// Requests that are under way before it on the same path; the first [`QUEUE_MAX`] count.
    pub in_flight: usize,
    /// Number of the try, from 0: the first has a short time, later ones longer.
    pub attempt: u32,
    /// What the service itself takes, where that is known ([`RouteRules::server_time`](crate::policy::RouteRules::server_time)).
    pub server_time: Option<Duration>,
    /// What is left of the time that the app gives the whole request. Nothing exceeds it.
    pub left: Duration,
    /// What the gateways ask for.
    pub policy: &'a Policy,
}

/// An answer that came, to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Bytes of the request's body.
    pub sent_bytes: u64,
    /// Bytes of the answer's body, as they crossed the network.
    pub received_bytes: u64,
    /// From the hand-off to the head of the answer.
    pub head_after: Duration,
    /// From the hand-off to the end of the answer.
    pub ended_after: Duration,
}

/// A network, as the platform names it. The same label with another kind is another network: an operator's 4G is not its 2G.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    label: String,
    kind: NetworkKind,
}

impl Timeouts {
    /// Makes those of a client that knows nothing of its network.
    #[must_use]
    pub fn new() -> Self {
        let place = Place { label: String::new(), kind: NetworkKind::Unspecified };
        Self { place, known: BTreeMap::new(), verdict: Verdict::new() }
    }

    /// Takes in on which network the device is; says whether it is another than before.
    ///
    /// Of a label the first [`LABEL_CHARS_MAX`] characters count.
    pub fn handle_network(&mut self, label: &str, kind: NetworkKind, now: Time) -> bool {
        let place = Place { label: label.chars().take(LABEL_CHARS_MAX).collect(), kind };
        let is_other = place != self.place;
        if is_other {
            self.place = place;
            self.handle_changed(now);
        }
        is_other
    }

    /// Takes in that the network changed, whether or not it has another name now.
    ///
    /// The verdict begins anew. What was measured is kept for each label, and for none without one.
    pub fn handle_changed(&mut self, now: Time) {
        self.verdict = Verdict::new();
        self.known.retain(|place, known| !place.label.is_empty() && known.is_of_use(now));
    }

    /// Takes in a round-trip time of the network: of a handshake, or of a question to which nobody has to think.
    pub fn handle_rtt(&mut self, sample: Duration, now: Time) {
        let life = Class::of(self.place.kind).life;
        self.here(now).handle_rtt(sample, KnownUntil { now, life });
    }

    /// Takes in an answer that came to its end.
    pub fn handle_answered(&mut self, answered: &Answered, now: Time) {
        let class = Class::of(self.place.kind);
        self.verdict.handle_answered(class, answered, now);
        self.here(now).handle_answered(answered, KnownUntil { now, life: class.life });
    }

    /// Takes in that a request got no answer, or not the whole of it, and that the network is to blame: it ran out of time, or what it
    /// was on broke.
    pub fn handle_failed(&mut self, now: Time) {
        self.verdict.handle_failed(now);
    }

    /// Returns the kind of network the device is on.
    #[must_use]
    pub const fn network_kind(&self) -> NetworkKind {
        self.place.kind
    }

    /// Returns what is thought of the network.
    #[must_use]
    pub fn state(&self, now: Time) -> NetworkState {
        self.verdict.state(now)
    }

    /// Says whether the network is weak: it is 2G, its round trips take as long, or several of the last requests failed.
    #[must_use]
    pub fn is_weak(&self, now: Time) -> bool {
        let srtt = self.known.get(&self.place).and_then(|known| known.srtt(now));
        let is_slow = self.place.kind == NetworkKind::Cellular2g || srtt.is_some_and(|srtt| srtt >= WEAK_RTT);
        is_slow || self.state(now) == NetworkState::Bad
    }

    /// Returns how long a try may take to the first byte of its answer, from its start, connecting included.
    ///
    /// It is at least [`FIRST_BYTE_FLOOR`], and at most the cap with the queue and the service's own time added; the time that is left
    /// bounds all of it.
    #[must_use]
    pub fn first_byte(&self, ask: &Ask<'_>, now: Time) -> Duration {
        let class = Class::of(self.place.kind);
        let known = self.known.get(&self.place);
        let share = TRIES.get(ask.attempt as usize).unwrap_or(&LATER_TRIES);
        let base = ask.policy.first_byte_base.unwrap_or_else(|| self.base(ask.server_time, now));
        let rate = ask.policy.rate_min_bytes_per_s.map(u64::from);
        let rate = rate.or_else(|| known.and_then(|known| known.up(now))).unwrap_or(class.rate);
        let network = share.of(base).saturating_add(transfer(ask.bytes, rate));
        let network = network.min(self.cap(ask.policy, now)).max(FIRST_BYTE_FLOOR);
        let queue = self.queue(now) * u32::try_from(ask.in_flight.min(QUEUE_MAX)).unwrap_or(u32::MAX);
        network.saturating_add(queue).saturating_add(ask.server_time.unwrap_or_default()).min(ask.left)
    }

    /// Returns how long an answer may pause between two of its bytes: what the policy says, or at least [`GAP_FLOOR`] and at most the cap
    /// of the first byte.
    #[must_use]
    pub fn gap(&self, policy: &Policy, now: Time) -> Duration {
        if let Some(gap) = policy.gap {
            return gap;
        }
        let class = Class::of(self.place.kind);
        let known = self.known.get(&self.place);
        let measured = known.and_then(|known| {
            let record = transfer(RECORD_BYTES, known.down(now).unwrap_or(class.rate));
            let losses = known.late_after(now)?.saturating_mul(GAP_ROUND_TRIPS);
            Some(SERVICE_ALLOWANCE + losses.saturating_add(record))
        });
        let gap = self.stretched(measured.unwrap_or(class.gap), now);
        gap.min(self.cap(policy, now)).max(GAP_FLOOR)
    }

    /// Returns the time of a second try without its bytes.
    fn base(&self, server_time: Option<Duration>, now: Time) -> Duration {
        let class = Class::of(self.place.kind);
        let service = if server_time.is_some() { Duration::ZERO } else { SERVICE_ALLOWANCE };
        let late_after = self.known.get(&self.place).and_then(|known| known.late_after(now));
        let base = late_after.map_or(class.base, |late_after| {
            LOSS_ALLOWANCE + service + late_after.saturating_mul(FIRST_BYTE_ROUND_TRIPS)
        });
        match self.state(now) {
            NetworkState::Bad | NetworkState::Evaluating => self.stretched(base, now),
            NetworkState::Excellent => base.min(class.excellent),
        }
    }

    fn cap(&self, policy: &Policy, now: Time) -> Duration {
        policy.first_byte_cap.unwrap_or_else(|| self.stretched(Class::of(self.place.kind).cap, now))
    }

    /// Returns how much each request under way before another delays it.
    fn queue(&self, now: Time) -> Duration {
        let class = Class::of(self.place.kind);
        let down = self.known.get(&self.place).and_then(|known| known.down(now));
        down.map_or(class.queue, |down| transfer(QUEUED_BYTES, down).min(class.queue))
    }

    /// Lengthens a time on a bad network.
    fn stretched(&self, time: Duration, now: Time) -> Duration {
        match self.state(now) {
            NetworkState::Bad => BAD_STRETCH.of(time),
            NetworkState::Evaluating | NetworkState::Excellent => time,
        }
    }

    /// Returns what is known of this network, to be added to.
    fn here(&mut self, now: Time) -> &mut Known {
        if !self.known.contains_key(&self.place) && self.known.len() >= LABELS_MAX {
            self.known.retain(|_, known| known.is_of_use(now));
            let oldest = self.known.iter().min_by_key(|(_, known)| known.touched()).map(|(place, _)| place.clone());
            if let Some(oldest) = oldest.filter(|_| self.known.len() >= LABELS_MAX) {
                self.known.remove(&oldest);
            }
        }
        self.known.entry(self.place.clone()).or_default()
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self::new()
    }
}

/// A time as a number of halves of another.
#[derive(Clone, Copy, Debug)]
struct Halves(u32);

impl Halves {
    fn of(self, time: Duration) -> Duration {
        time.saturating_mul(self.0) / 2
    }
}

/// Returns how long bytes take at a rate, in bytes a second.
fn transfer(bytes: u64, rate: u64) -> Duration {
    Duration::from_millis(bytes.saturating_mul(1_000) / rate.max(1))
}

/// Round trips of a weak network. 1,420 ms; DESIGN section 5, where the second grade from below begins.
const WEAK_RTT: Duration = Duration::from_millis(1_420);

/// What the first tries have of the base, in halves: the first a half, the second all of it. Our choice: that later tries have longer is
/// iQIYI's (mobile network practice, 2020: short at first, longer on retries). On Wi-Fi that is not measured the ways of one request
/// then begin at 0, 6 and 18 s, where Mars's would at 0, 12 and 24 s, most of the 30 s that an app may wait.
const TRIES: [Halves; 2] = [Halves(1), Halves(2)];

/// What all later tries have: half as much again.
const LATER_TRIES: Halves = Halves(3);

/// How much longer everything may take on a bad network: half as much again. Our choice, as much as from one try to the next; Mars, which
/// knows the state, changes nothing in it.
const BAD_STRETCH: Halves = Halves(3);

/// Least time to a first byte, before queue and service. 1 s; RFC 6298 section 2.4, the least time after which a sender may think
/// a packet lost.
pub const FIRST_BYTE_FLOOR: Duration = Duration::from_secs(1);

/// Least time between two bytes, unless a policy says less. 8 s; Mars `stn/config.h`, packet to packet on Wi-Fi. No shorter time is
/// learned: once the app has the head, what is cut is not sent again, and a stall of 4 s is ordinary (the upward gaps of
/// mahimahi's ATT-LTE-2016).
pub const GAP_FLOOR: Duration = Duration::from_secs(8);

/// Requests under way that delay another. 5; Mars `stn/config.h`.
pub const QUEUE_MAX: usize = 5;

/// Networks of which something is kept at once; the one not heard of for longest makes room. 16, our choice: home, work, operator in its
/// generations, and the Wi-Fi networks of a week.
pub const LABELS_MAX: usize = 16;

/// Characters of a label that count. 64: a Wi-Fi name has at most 32 bytes (IEEE 802.11), and a platform may add to it.
pub const LABEL_CHARS_MAX: usize = 64;

/// Part of a measured base: what two packets in a row cost that are lost while there is no round trip to go by. 3 s: 1 s and 2 s; RFC 6298
/// sections 2.1 and 5.5.
const LOSS_ALLOWANCE: Duration = Duration::from_secs(3);

/// Part of a measured base, and of a pause: what a service takes that nobody has measured. 3 s, our choice: with the losses it makes 6 s on
/// a near network, about what Mars gives an excellent one.
const SERVICE_ALLOWANCE: Duration = Duration::from_secs(3);

/// Round trips of a try, each with its variation. 8, our choice: five for name, TCP, TLS 1.2 and the request, and three for what is lost.
const FIRST_BYTE_ROUND_TRIPS: u32 = 8;

/// Round trips of a pause, each with its variation. 7: 1, 2 and 4, as a sender waits for a packet that is lost three times (RFC 6298
/// section 5.5).
const GAP_ROUND_TRIPS: u32 = 7;

/// Bytes of which nothing is seen before the last has come: 16 KiB, a record of TLS (RFC 8446 section 5.1).
const RECORD_BYTES: u64 = 16 << 10;

/// Bytes that one request under way may have in front of another. 64 KiB: a frame as every receiver takes it, and what Mars takes an answer
/// for (`stn/config.h`, the time to read and write).
const QUEUED_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests;
