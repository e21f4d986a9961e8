//! The list that is held: what is read from it, and how another is fetched.

use std::{
    collections::{BTreeSet, VecDeque},
    net::SocketAddr,
    time::Duration,
};

use bytes::Bytes;

use super::{
    Answer, ListOrigin, ListTrouble, Question, Seed, Server, Sources, SourcesOutput, SourcesWarning, ask::Pending,
    names,
};
use crate::{
    Time,
    connect::{Candidate, Source, candidate::CANDIDATES_MAX},
    policy::Policy,
    random::within,
    wire::list::{ADDRESSES_AFTER_EXPIRY, AccessList, AccessPoint, HostAddress, PipeKey, PlainKey, Unit, Validity},
};

/// Where a link could be opened, and what is known of the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The candidate.
    pub candidate: Candidate,
    /// From where it is known.
    pub source: Source,
    /// Name on the gateway's certificate; `None` leaves it to the client's own settings.
    pub gateway: Option<String>,
    /// The unit it belongs to, where that is known.
    pub unit: Option<String>,
}

/// Where a sealed pipe request could be posted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipeTarget {
    /// The address.
    pub address: SocketAddr,
    /// The key of the pipe there, to seal with.
    pub key: PipeKey,
    /// Name of the gateway there, or empty.
    pub gateway: String,
    /// The unit it belongs to.
    pub unit: String,
}

/// Where a request could be sent over plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainTarget {
    /// The address.
    pub address: SocketAddr,
    /// The keys that may have signed the answer.
    pub keys: Vec<PlainKey>,
    /// The unit it belongs to.
    pub unit: String,
}

/// A list that is believed, and when it came.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) list: AccessList,
    received_at: Time,
    /// Time that its permissions had left when it came.
    left: Duration,
}

impl Held {
    pub(super) fn new(list: AccessList, now: Time, wall_ms: u64) -> Self {
        // A clock that stands before the date of the list must not make it last longer than it was meant to.
        let left = Duration::from_millis(list.expires_ms.saturating_sub(wall_ms.max(list.epoch_ms)));
        Self { list, received_at: now, left }
    }

    /// Says what may be taken from the list: permissions while both clocks allow it, addresses while either does.
    pub(super) fn validity(&self, now: Time, wall_ms: u64) -> Validity {
        let age = now.since(self.received_at);
        let by_wall = self.list.validity(wall_ms);
        let by_age = if age <= self.left {
            Validity::Full
        } else if age <= self.left + ADDRESSES_AFTER_EXPIRY {
            Validity::Addresses
        } else {
            Validity::Gone
        };
        match (by_wall, by_age) {
            (Validity::Full, Validity::Full) => Validity::Full,
            (Validity::Gone, Validity::Gone) => Validity::Gone,
            _ => Validity::Addresses,
        }
    }
}

/// A search for a list: one dispatch address after the other.
#[derive(Debug)]
pub(super) struct Round {
    rest: VecDeque<SocketAddr>,
    /// When the next is asked, though the one before is still silent.
    next_at: Time,
}

impl Round {
    pub(super) fn poll_timeout(&self) -> Option<Time> {
        (!self.rest.is_empty()).then_some(self.next_at)
    }
}

impl Sources {
    /// Returns where a link could be opened: what somebody chose, then the list's access points, those of the user's unit before those
    /// of the others in their order; then what names resolve to, and what is built in. At most 64.
    #[must_use]
    pub fn targets(&self, now: Time, wall_ms: u64) -> Vec<Target> {
        let mut targets: Vec<Target> =
            self.config.access_points.iter().flat_map(|point| named(point, Source::Config)).collect();
        if let Some((held, validity)) = self.valid(now, wall_ms) {
            let source = if validity == Validity::Full { Source::List } else { Source::Learned };
            for unit in self.units(&held.list) {
                let usable = unit.access_points.iter().filter(|point| !held.list.is_banned(point.address, wall_ms));
                targets.extend(usable.flat_map(|point| listed(point, unit, source)));
            }
        }
        for point in &self.config.names {
            for resolved in self.known(&point.name, now) {
                let candidate = |carrier| Candidate { address: resolved.address.at(point.port), carrier };
                targets.extend(point.carriers.iter().map(|carrier| Target {
                    candidate: candidate(*carrier),
                    source: resolved.origin.source(),
                    gateway: None,
                    unit: None,
                }));
            }
        }
        targets.extend(self.config.seeds.iter().flat_map(|seed| named(seed, Source::BuiltIn)));
        let mut seen = BTreeSet::new();
        targets.retain(|target| seen.insert(target.candidate));
        targets.truncate(CANDIDATES_MAX);
        targets
    }

    /// Returns the addresses that the list has for a host, for short links that do without its name.
    #[must_use]
    pub fn direct_addresses(&self, host: &str, now: Time, wall_ms: u64) -> Vec<HostAddress> {
        let host = names::normalised(host);
        let Some((held, _)) = self.valid(now, wall_ms) else { return Vec::new() };
        let Some(known) = held.list.host(&host) else { return Vec::new() };
        let is_free = |address: &&HostAddress| !held.list.is_banned(address.at(HTTPS_PORT), wall_ms);
        let (good, distrusted): (Vec<_>, Vec<_>) =
            known.addresses.iter().filter(is_free).partition(|address| !self.is_untrusted(&host, address.ip, now));
        // The signed list is not contradicted by whoever stands in the way; what they touched is tried last.
        good.into_iter().chain(distrusted).copied().collect()
    }

    /// Says whether the list has a host as one that speaks HTTP/3.
    #[must_use]
    pub fn speaks_h3(&self, host: &str, now: Time, wall_ms: u64) -> bool {
        let known = self.valid(now, wall_ms).and_then(|(held, _)| held.list.host(host));
        known.is_some_and(|host| host.speaks_h3)
    }

    /// Returns where the sealed pipe may be used: one address of each unit in turn, the user's first, so that two tries go to two
    /// sites, each with the key of its own. At most 16. Without a list, those that are built in.
    #[must_use]
    pub fn pipe_targets(&self, now: Time, wall_ms: u64) -> Vec<PipeTarget> {
        let Some((held, _)) = self.valid(now, wall_ms) else {
            return self.config.pipes.iter().filter(|pipe| pipe.key.expires_ms > wall_ms).cloned().collect();
        };
        let key = |point: &AccessPoint| held.list.pipe_key(point, wall_ms);
        let spread = self.spread(&held.list, wall_ms, |point| key(point).is_some());
        let target = |(unit, point): (&Unit, &AccessPoint)| {
            Some(PipeTarget {
                address: point.address,
                key: key(point)?.clone(),
                gateway: point.gateway.clone(),
                unit: unit.name.clone(),
            })
        };
        spread.into_iter().filter_map(target).collect()
    }

    /// Returns where plain HTTP may be used, in the same order; nothing once the permissions of the list have ended. At most 16.
    #[must_use]
    pub fn plain_targets(&self, now: Time, wall_ms: u64) -> Vec<PlainTarget> {
        let Some((held, Validity::Full)) = self.valid(now, wall_ms) else { return Vec::new() };
        let keys: Vec<PlainKey> = held.list.plain_keys.iter().filter(|key| key.expires_ms > wall_ms).cloned().collect();
        if keys.is_empty() {
            return Vec::new();
        }
        let spread = self.spread(&held.list, wall_ms, |point| point.serves_plain);
        let target = |(unit, point): (&Unit, &AccessPoint)| PlainTarget {
            address: point.address,
            keys: keys.clone(),
            unit: unit.name.clone(),
        };
        spread.into_iter().map(target).collect()
    }

    /// Returns the policy that holds: the newest of the list's and the one a link brought, and none once the permissions of either
    /// have ended.
    #[must_use]
    pub fn policy(&self, now: Time, wall_ms: u64) -> Option<&Policy> {
        let listed = match self.valid(now, wall_ms) {
            Some((held, Validity::Full)) => Some(&held.list.policy),
            Some(_) | None => None,
        };
        let pushed = self.pushed_policy.as_ref().filter(|(_, at)| now.since(*at) <= PUSHED_POLICY_FOR);
        listed.into_iter().chain(pushed.map(|(policy, _)| policy)).max_by_key(|policy| policy.epoch_ms)
    }

    /// Returns the unit of the user, where the list says so.
    #[must_use]
    pub fn unit(&self, now: Time, wall_ms: u64) -> Option<&str> {
        self.home(&self.valid(now, wall_ms)?.0.list)
    }

    pub(super) fn valid(&self, now: Time, wall_ms: u64) -> Option<(&Held, Validity)> {
        let held = self.held.as_ref()?;
        let validity = held.validity(now, wall_ms);
        (validity != Validity::Gone).then_some((held, validity))
    }

    fn home<'a>(&self, list: &'a AccessList) -> Option<&'a str> {
        list.unit_map.unit_of(self.config.user.as_deref()?)
    }

    /// Returns the units, the user's first.
    fn units<'a>(&self, list: &'a AccessList) -> Vec<&'a Unit> {
        let home = self.home(list);
        let mut units: Vec<&Unit> = list.units.iter().collect();
        units.sort_by_key(|unit| home != Some(unit.name.as_str()));
        units
    }

    /// Returns access points of one kind, one of each unit in turn.
    fn spread<'a>(
        &self,
        list: &'a AccessList,
        wall_ms: u64,
        serves: impl Fn(&AccessPoint) -> bool,
    ) -> Vec<(&'a Unit, &'a AccessPoint)> {
        let usable = |point: &&AccessPoint| serves(point) && !list.is_banned(point.address, wall_ms);
        let mut units: Vec<_> =
            self.units(list).into_iter().map(|unit| (unit, unit.access_points.iter().filter(usable))).collect();
        let mut spread = Vec::new();
        while spread.len() < TARGETS_MAX {
            let before = spread.len();
            spread.extend(units.iter_mut().filter_map(|(unit, points)| points.next().map(|point| (*unit, point))));
            if spread.len() == before {
                break;
            }
        }
        spread.truncate(TARGETS_MAX);
        spread
    }

    /// Takes a list from anywhere, if it is believed and newer.
    pub(super) fn take_list(
        &mut self,
        document: &Bytes,
        from: ListOrigin,
        took: Duration,
        now: Time,
        wall_ms: u64,
    ) -> bool {
        match self.verifier.verify(document, wall_ms) {
            Ok(list) => {
                if self.held.as_ref().is_none_or(|held| held.list.epoch_ms < list.epoch_ms) {
                    self.held = Some(Held::new(list, now, wall_ms));
                    self.hints.handle_list();
                    self.outputs.push(SourcesOutput::Store(document.clone()));
                    self.outputs.push(SourcesOutput::Changed);
                }
                self.handle_fetched(now);
                true
            }
            Err(error) => {
                self.handle_trouble(ListTrouble::Refused { from, took, error });
                false
            }
        }
    }

    pub(super) fn handle_list_answer(&mut self, pending: &Pending, answer: Answer, now: Time, wall_ms: u64) {
        let Server::Dispatch(address) = pending.server else { return };
        let took = now.since(pending.asked_at);
        let failed = |reason: String| ListTrouble::Failed { address, took, reason };
        let good = match answer {
            Answer::List(document) => self.take_list(&document, ListOrigin::Dispatch(address), took, now, wall_ms),
            Answer::NotModified => {
                self.handle_fetched(now);
                true
            }
            Answer::Failed(reason) => {
                self.handle_trouble(failed(reason));
                false
            }
            Answer::Addresses { .. } | Answer::NoName | Answer::Service { .. } => {
                self.handle_trouble(failed("it answered something else".into()));
                false
            }
        };
        if good {
            self.servers.succeeded(pending.server);
            return;
        }
        self.servers.failed(pending.server, now);
        if let Some(round) = &mut self.round {
            round.next_at = now;
        }
        self.step_round(now);
    }

    /// A list was had: the next is fetched when this one is old, at a moment of each client's own.
    fn handle_fetched(&mut self, now: Time) {
        self.round = None;
        self.fetch_failures = 0;
        self.trouble = None;
        self.refresh_at = Some(now + REFRESH + within(&mut self.rng, REFRESH / 4));
    }

    /// Takes in why an attempt to have a list brought none. What is known already is not told again.
    fn handle_trouble(&mut self, trouble: ListTrouble) {
        if self.trouble.as_ref().is_none_or(|known| !trouble.is_like(known)) {
            self.outputs.warn(SourcesWarning::List(trouble.clone()));
        }
        if self.trouble.as_ref().is_none_or(|earlier| trouble.replaces(earlier)) {
            self.trouble = Some(trouble);
        }
    }

    /// Begins to ask for a list, the dispatch addresses of the user's unit first.
    pub(super) fn begin_round(&mut self, now: Time) {
        let servers: VecDeque<SocketAddr> =
            self.dispatch(now).into_iter().map(|(_, address)| address).take(ROUND_MAX).collect();
        if servers.is_empty() && self.trouble.is_none() {
            self.trouble = Some(ListTrouble::Nobody);
        }
        // Without anybody to ask it is tried again later, as after a failure.
        self.refresh_at = None;
        self.searched_at = Some(now);
        self.round = Some(Round { rest: servers, next_at: now });
    }

    /// Asks the next address of a search, or ends it where there is none left.
    pub(super) fn step_round(&mut self, now: Time) {
        let Some(round) = &mut self.round else { return };
        if round.next_at > now && !round.rest.is_empty() {
            return;
        }
        match round.rest.pop_front() {
            Some(address) => {
                round.next_at = now + ROUND_STAGGER;
                self.ask_for_list(address, now);
            }
            None if self.asks.is_list_asked() => {}
            None => {
                self.round = None;
                let pause = RETRY.saturating_mul(1 << self.fetch_failures.min(RETRY_DOUBLINGS_MAX)).min(RETRY_MAX);
                self.fetch_failures = self.fetch_failures.saturating_add(1);
                self.refresh_at = Some(now + pause / 2 + within(&mut self.rng, pause / 2));
            }
        }
    }

    pub(super) fn ask_for_list(&mut self, address: SocketAddr, now: Time) {
        let known_epoch_ms = self.held.as_ref().map_or(0, |held| held.list.epoch_ms);
        let (server, question) = (Server::Dispatch(address), Question::List { known_epoch_ms });
        if let Some(ask) = self.asks.begin(server, question.clone(), now) {
            self.outputs.push(SourcesOutput::Ask { ask, server, question });
        }
    }

    /// Returns every dispatch address with its unit: those of the list, the user's unit first, then those built in. Servers that
    /// failed a moment ago come last.
    pub(super) fn dispatch(&self, now: Time) -> Vec<(Option<&str>, SocketAddr)> {
        let mut all: Vec<(Option<&str>, SocketAddr)> = Vec::new();
        if let Some(held) = &self.held {
            for unit in self.units(&held.list) {
                all.extend(unit.dispatch.iter().map(|address| (Some(unit.name.as_str()), *address)));
            }
        }
        all.extend(self.config.dispatch.iter().map(|seed| (seed.unit.as_deref(), seed.address)));
        let mut seen = BTreeSet::new();
        all.retain(|(_, address)| seen.insert(*address));
        all.sort_by_key(|(_, address)| !self.servers.is_free(Server::Dispatch(*address), now));
        all
    }

    /// Returns the name on the certificate at a dispatch address: that of the access point there, or the one that all access points at its
    /// IP address have, or all of its unit. `None` leaves it to the client's own settings.
    #[must_use]
    pub fn dispatch_gateway(&self, address: SocketAddr) -> Option<&str> {
        let units = self.held.as_ref().map_or(&[][..], |held| &held.list.units);
        let points = || units.iter().flat_map(|unit| &unit.access_points);
        let listed = points().find(|point| point.address == address).map(|point| &*point.gateway);
        let mut seeds = self.config.access_points.iter().chain(&self.config.seeds);
        let mut seeded = || seeds.find(|seed| seed.address == address)?.gateway.as_deref();
        let of_host = || common_name(points().filter(|point| point.address.ip() == address.ip()));
        let built_in = self.config.dispatch.iter().find(|seed| seed.address == address);
        let built_in = built_in.and_then(|seed| seed.unit.as_deref());
        let is_home = |unit: &&Unit| unit.dispatch.contains(&address) || built_in == Some(&*unit.name);
        let of_unit = || common_name(&units.iter().find(is_home)?.access_points);
        listed.or_else(&mut seeded).or_else(of_host).or_else(of_unit).filter(|name| !name.is_empty())
    }

    /// Returns one dispatch address of each of two units that are not the user's.
    pub(super) fn rescuers(&self, now: Time) -> Vec<SocketAddr> {
        let first = self.held.as_ref().and_then(|held| held.list.units.first()).map(|unit| unit.name.as_str());
        let home = self.held.as_ref().and_then(|held| self.home(&held.list)).or(first);
        let mut units = BTreeSet::new();
        let others = self.dispatch(now).into_iter().filter(|(unit, _)| unit.is_none() || *unit != home);
        others
            .filter(|(unit, _)| unit.is_none() || units.insert(*unit))
            .map(|(_, address)| address)
            .take(RESCUERS)
            .collect()
    }
}

/// Returns the name that all of some access points have.
fn common_name<'a>(points: impl IntoIterator<Item = &'a AccessPoint>) -> Option<&'a str> {
    let mut names = points.into_iter().map(|point| &*point.gateway);
    let first = names.next()?;
    names.all(|name| name == first).then_some(first)
}

fn named(seed: &Seed, source: Source) -> impl Iterator<Item = Target> + '_ {
    seed.carriers.iter().map(move |carrier| Target {
        candidate: Candidate { address: seed.address, carrier: *carrier },
        source,
        gateway: seed.gateway.clone(),
        unit: seed.unit.clone(),
    })
}

fn listed<'a>(point: &'a AccessPoint, unit: &'a Unit, source: Source) -> impl Iterator<Item = Target> + 'a {
    point.carriers.iter().map(move |carrier| Target {
        candidate: Candidate { address: point.address, carrier: *carrier },
        source,
        gateway: (!point.gateway.is_empty()).then(|| point.gateway.clone()),
        unit: Some(unit.name.clone()),
    })
}

/// Time after which a list is fetched anew, where no link brought one. 8 h, as often as Aliyun's HTTPDNS has its clients do.
const REFRESH: Duration = Duration::from_secs(8 * 3_600);

/// Pause before a search for a list is begun again after it failed. 1 s, gRPC's `connection-backoff.md`, doubled each time; a request
/// that needs the list ends it.
const RETRY: Duration = Duration::from_secs(1);

/// Longest such pause. 30 min; our choice.
const RETRY_MAX: Duration = Duration::from_secs(1_800);

/// Doublings that are counted; RETRY_MAX is reached before.
const RETRY_DOUBLINGS_MAX: u32 = 11;

/// Time between two dispatch addresses of a search. 1 s; a round trip on the slowest graded network. Our choice.
const ROUND_STAGGER: Duration = Duration::from_secs(1);

/// Dispatch addresses of one search. 6; our choice.
const ROUND_MAX: usize = 6;

/// Units that are asked at once when the user's own is gone. 2 (DESIGN section 5, Lists).
const RESCUERS: usize = 2;

/// Targets of the pipe and of plain HTTP. 16; a ladder tries two or three.
const TARGETS_MAX: usize = 16;

/// How long a policy of a link holds beyond its link. A day, as long as a list's permissions by default.
const PUSHED_POLICY_FOR: Duration = Duration::from_secs(24 * 3_600);

/// The port that a URL with `https` has without saying so.
const HTTPS_PORT: u16 = 443;
