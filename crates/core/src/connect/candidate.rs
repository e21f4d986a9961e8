//! Candidates: where a link could be opened, from which source that is known, and in which order to try.

use std::{cmp::Reverse, collections::BTreeMap, fmt, net::SocketAddr, time::Duration};

use rand_core::SeedableRng;
use rand_pcg::Pcg32;
use serde::{Deserialize, Serialize};

use super::Records;
use crate::{CarrierKind, Time, random::below};

/// One way to open a link: an access point's address and the carrier to speak there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Candidate {
    /// The access point.
    pub address: SocketAddr,
    /// The carrier to speak there.
    pub carrier: CarrierKind,
}

impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.carrier, self.address)
    }
}

/// From where a candidate is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Built into the app.
    BuiltIn,
    /// Written in the configuration.
    Config,
    /// Answered by a name server.
    Dns,
    /// Answered by DNS over HTTPS.
    Doh,
    /// Answered by HTTPDNS, signed by a key of the access list.
    HttpDns,
    /// Used before and remembered on disk.
    Learned,
    /// Named by the signed access list.
    List,
}

impl Source {
    /// Returns the place of this source among the others, the most trusted first.
    const fn place(self) -> u8 {
        match self {
            Self::Config => 0,
            Self::List => 1,
            Self::HttpDns => 2,
            Self::Learned => 3,
            Self::Doh => 4,
            Self::Dns => 5,
            Self::BuiltIn => 6,
        }
    }

    /// Returns whether the order within this source was chosen by someone, so that it must not be shuffled.
    const fn is_ordered(self) -> bool {
        match self {
            Self::Config | Self::List => true,
            Self::BuiltIn | Self::Dns | Self::Doh | Self::HttpDns | Self::Learned => false,
        }
    }
}

/// A candidate and the most trusted source that names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownCandidate {
    /// The candidate.
    pub candidate: Candidate,
    /// The most trusted source that names it.
    pub source: Source,
}

/// A candidate in its place in the race.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedCandidate {
    /// The candidate.
    pub candidate: Candidate,
    /// Its smoothed round-trip time, where a record has one.
    pub srtt: Option<Duration>,
    /// Whether it starts together with the candidate before it: QUIC and TLS of one address, neither learned yet.
    pub with_previous: bool,
}

/// Merges what the sources know: every candidate once, under its most trusted source, in the sources' order.
///
/// At most [`CANDIDATES_MAX`] are kept; the least trusted are dropped first.
#[must_use]
pub fn merge(known: impl IntoIterator<Item = (Candidate, Source)>) -> Vec<KnownCandidate> {
    let mut best: BTreeMap<Candidate, (u8, usize, Source)> = BTreeMap::new();
    for (position, (candidate, source)) in known.into_iter().enumerate() {
        let place = (source.place(), position, source);
        let entry = best.entry(candidate).or_insert(place);
        if place.0 < entry.0 {
            *entry = place;
        }
    }
    let mut merged: Vec<_> = best.into_iter().collect();
    merged.sort_by_key(|(_, (place, position, _))| (*place, *position));
    merged.truncate(CANDIDATES_MAX);
    merged.into_iter().map(|(candidate, (_, _, source))| KnownCandidate { candidate, source }).collect()
}

/// Orders candidates for a race by what the records of this network say.
///
/// - Candidates whose newest outcome is a success come first: fewest failures in the window, then smallest srtt, then
///   newest success. Unknown ones are interleaved with them, one after each. Then those whose newest outcome is a
///   failure, and last the banned ones, the soonest free first; nothing is removed.
/// - Unknown candidates keep the order of the configuration and of the access list; the others are shuffled by
///   `seed`, so that a crowd of clients does not begin at one address. Families alternate, unless one has the better
///   record.
/// - Until a carrier is learned, QUIC and TLS of one address are neighbours and start together; then the learned
///   carrier's candidates lead. After [`FALLBACK_AFTER`] of those in front, one of the other carriers follows each.
#[must_use]
pub fn rank(known: &[KnownCandidate], records: &Records, seed: u64, now: Time) -> Vec<RankedCandidate> {
    let offered = |carrier| known.iter().any(|known| known.candidate.carrier == carrier);
    let learned = records.learned_carrier(now).filter(|learned| offered(*learned));
    let shuffled = shuffle(known, seed);
    let (leading, following) = split(&shuffled, learned, records, now);
    let leading = order(leading, records.prefers_ipv6(now));
    let following = order(following, records.prefers_ipv6(now));
    let (leading, banned): (Vec<Unit>, Vec<Unit>) = leading.into_iter().partition(|unit| unit.class() != Class::Banned);
    let (following, banned_following): (Vec<Unit>, Vec<Unit>) =
        following.into_iter().partition(|unit| unit.class() != Class::Banned);
    let mut last: Vec<Unit> = banned.into_iter().chain(banned_following).collect();
    last.sort_by_key(|unit| unit.key);
    let mut ranked = Vec::with_capacity(known.len());
    let mut following = following.into_iter();
    for (place, unit) in leading.into_iter().enumerate() {
        unit.append_to(&mut ranked);
        if place + 1 >= FALLBACK_AFTER {
            following.by_ref().take(1).for_each(|unit| unit.append_to(&mut ranked));
        }
    }
    following.chain(last).for_each(|unit| unit.append_to(&mut ranked));
    ranked
}

/// What starts at one moment of a race: a candidate, or QUIC and TLS of one address.
#[derive(Clone, Debug)]
struct Unit {
    key: Key,
    first: RankedCandidate,
    second: Option<RankedCandidate>,
}

impl Unit {
    fn new(candidate: Candidate, records: &Records, now: Time) -> Self {
        let srtt = records.get(candidate, now).and_then(super::Record::srtt);
        let first = RankedCandidate { candidate, srtt, with_previous: false };
        Self { key: Key::new(candidate, records, now), first, second: None }
    }

    /// Joins another carrier of the same address to this one; the one with the better record leads.
    fn join(&mut self, mut other: Self) {
        if other.key < self.key {
            std::mem::swap(self, &mut other);
        }
        self.second = Some(RankedCandidate { with_previous: true, ..other.first });
    }

    const fn class(&self) -> Class {
        self.key.class
    }

    const fn is_ipv6(&self) -> bool {
        self.first.candidate.address.is_ipv6()
    }

    fn append_to(self, ranked: &mut Vec<RankedCandidate>) {
        ranked.push(self.first);
        ranked.extend(self.second);
    }
}

/// What the newest outcome of a candidate says, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Good,
    Unknown,
    Failing,
    Banned,
}

/// The sort key of a candidate: smaller is tried earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    class: Class,
    banned_until: Option<Time>,
    failures: u32,
    srtt: Duration,
    last_failure: Option<Time>,
    last_success: Reverse<Option<Time>>,
}

impl Key {
    fn new(candidate: Candidate, records: &Records, now: Time) -> Self {
        let Some(record) = records.get(candidate, now) else {
            return Self {
                class: Class::Unknown,
                banned_until: None,
                failures: 0,
                srtt: Duration::MAX,
                last_failure: None,
                last_success: Reverse(None),
            };
        };
        let banned_until = record.banned_until(now);
        let class = match (banned_until, record.is_good()) {
            (Some(_), _) => Class::Banned,
            (None, true) => Class::Good,
            (None, false) => Class::Failing,
        };
        Self {
            class,
            banned_until,
            failures: record.failures(),
            srtt: record.srtt().unwrap_or(Duration::MAX),
            last_failure: record.last_failure(),
            last_success: Reverse(record.last_success()),
        }
    }
}

/// Shuffles each run of candidates whose source has no order of its own.
fn shuffle(known: &[KnownCandidate], seed: u64) -> Vec<Candidate> {
    let mut rng = Pcg32::seed_from_u64(seed);
    let mut shuffled = Vec::with_capacity(known.len());
    for run in known.chunk_by(|one, next| one.source == next.source) {
        let start = shuffled.len();
        shuffled.extend(run.iter().map(|known| known.candidate));
        if run[0].source.is_ordered() {
            continue;
        }
        for end in (start + 1..shuffled.len()).rev() {
            let span = u64::try_from(end - start + 1).expect("a list of candidates is short");
            let chosen = start + usize::try_from(below(&mut rng, span)).expect("below the length of a list");
            shuffled.swap(end, chosen);
        }
    }
    shuffled
}

/// Parts the candidates into the units that lead the race and those that follow when the leading carrier is silent.
fn split(
    candidates: &[Candidate],
    learned: Option<CarrierKind>,
    records: &Records,
    now: Time,
) -> (Vec<Unit>, Vec<Unit>) {
    let mut leading: Vec<Unit> = Vec::new();
    let mut following = Vec::new();
    for &candidate in candidates {
        let unit = Unit::new(candidate, records, now);
        let leads = match learned {
            Some(learned) => candidate.carrier == learned,
            None => candidate.carrier != CarrierKind::Ws,
        };
        if !leads {
            following.push(unit);
            continue;
        }
        let neighbour = leading.iter_mut().find(|other| {
            let same_address = other.first.candidate.address == candidate.address;
            same_address && other.second.is_none() && other.class() != Class::Banned
        });
        match neighbour {
            Some(neighbour) if unit.class() != Class::Banned => neighbour.join(unit),
            Some(_) | None => leading.push(unit),
        }
    }
    // Without any of the leading carriers the others must not wait behind nothing.
    if leading.is_empty() { (following, leading) } else { (leading, following) }
}

/// Orders units: the good ones with the unknown between them, then the failing, then the banned.
fn order(units: Vec<Unit>, prefers_ipv6: Option<bool>) -> Vec<Unit> {
    let (unknown, mut known): (Vec<Unit>, Vec<Unit>) =
        units.into_iter().partition(|unit| unit.class() == Class::Unknown);
    known.sort_by_key(|unit| unit.key);
    let rest = known.split_off(known.partition_point(|unit| unit.class() == Class::Good));
    let mut ordered = Vec::with_capacity(unknown.len() + known.len() + rest.len());
    interleave(known, mix_families(unknown, prefers_ipv6), &mut ordered);
    ordered.extend(rest);
    ordered
}

/// Alternates the families as RFC 8305 section 4 does, from the family of the first; a better record goes first whole.
fn mix_families(units: Vec<Unit>, prefers_ipv6: Option<bool>) -> Vec<Unit> {
    let Some(first) = units.first() else { return units };
    let leader_is_ipv6 = prefers_ipv6.unwrap_or(first.is_ipv6());
    let (leader, mut other): (Vec<Unit>, Vec<Unit>) =
        units.into_iter().partition(|unit| unit.is_ipv6() == leader_is_ipv6);
    let mut mixed = Vec::with_capacity(leader.len() + other.len());
    if prefers_ipv6.is_some() {
        mixed.extend(leader);
        mixed.append(&mut other);
    } else {
        interleave(leader, other, &mut mixed);
    }
    mixed
}

fn interleave(first: Vec<Unit>, second: Vec<Unit>, into: &mut Vec<Unit>) {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    loop {
        let before = into.len();
        into.extend(first.next());
        into.extend(second.next());
        if into.len() == before {
            return;
        }
    }
}

/// Candidates kept of all sources together. 64 candidates; about ten access points with two ports and three carriers,
/// well over the 5 addresses a race tries.
pub const CANDIDATES_MAX: usize = 64;

/// Places of the learned carrier (of QUIC and TLS before one is learned) before the other carriers get every second
/// place. 5 places, the addresses of one race: a carrier that few networks need holds back no address (decision 0025).
pub const FALLBACK_AFTER: usize = 5;

#[cfg(test)]
mod tests;
