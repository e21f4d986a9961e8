//! Hosts by their names: what each source says, whom to ask next, and when an answer is good enough.

use std::{collections::BTreeMap, fmt, time::Duration};

use super::{
    Answer, Family, HostAddress, Question, Server, Sources, SourcesOutput, SourcesWarning, ask::Pending, is_public,
};
use crate::{Time, connect::Source, wire::list::HOST_ADDRESSES_MAX};

/// Who named an address, the most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// HTTPDNS, signed by a key of the list.
    HttpDns,
    /// The access list.
    List,
    /// DNS over HTTPS.
    Doh,
    /// The name servers of the system.
    System,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HttpDns => "HTTPDNS",
            Self::List => "the access list",
            Self::Doh => "DNS over HTTPS",
            Self::System => "the system's name server",
        })
    }
}

/// An address of a host and who named it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The address.
    pub address: HostAddress,
    /// Who named it.
    pub origin: Origin,
}

/// Where a host is, as far as is known now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Nobody knows, and everybody was asked.
    Failed,
    /// These addresses may be used at once, the most trusted first.
    Ready(Vec<Resolved>),
    /// Somebody is asked. It is worth looking again when the machine was told something, or its deadline has come.
    Wait,
}

impl Origin {
    /// Returns what this is for a candidate.
    pub(super) const fn source(self) -> Source {
        match self {
            Self::Doh => Source::Doh,
            Self::HttpDns => Source::HttpDns,
            Self::List => Source::List,
            Self::System => Source::Dns,
        }
    }
}

/// What is known of one name.
#[derive(Debug)]
pub(super) struct Entry {
    known: BTreeMap<(Origin, Family), Known>,
    used_at: Time,
    /// When the other sources are asked as well.
    others_at: Option<Time>,
    /// Until when a first IPv4 answer waits for the IPv6 one (RFC 8305 section 3).
    pub(super) hold_until: Option<Time>,
    /// Until when nobody is asked again, for nobody knew.
    failed_until: Option<Time>,
}

/// The answer of one source.
#[derive(Debug)]
struct Known {
    addresses: Vec<HostAddress>,
    at: Time,
    until: Time,
}

impl Entry {
    const fn new(now: Time) -> Self {
        Self { known: BTreeMap::new(), used_at: now, others_at: None, hold_until: None, failed_until: None }
    }

    pub(super) fn is_due(&self, now: Time) -> bool {
        self.others_at.is_some_and(|at| at <= now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        [self.others_at, self.hold_until].into_iter().flatten().min()
    }

    /// Answers of name servers belong to their network; what they said is stale at once, and used until others answer.
    pub(super) fn handle_network_changed(&mut self, now: Time) {
        self.failed_until = None;
        for ((origin, _), known) in &mut self.known {
            if matches!(origin, Origin::Doh | Origin::System) {
                known.until = known.until.min(now);
            }
        }
    }

    fn has_addresses(&self, now: Time) -> bool {
        self.known.values().any(|known| known.is_usable(now) && !known.addresses.is_empty())
    }

    fn is_fresh(&self, now: Time) -> bool {
        self.known.values().any(|known| known.until > now && !known.addresses.is_empty())
    }
}

impl Known {
    fn is_usable(&self, now: Time) -> bool {
        self.until > now || now.since(self.at) <= STALE_MAX
    }
}

impl Sources {
    /// Says where a host is, and asks where that is not known or no longer fresh. A stale answer is given at once.
    pub fn resolve(&mut self, host: &str, now: Time, wall_ms: u64) -> Resolution {
        let host = normalised(host);
        self.enter(&host, now);
        let Some(entry) = self.names.get_mut(&host) else { return Resolution::Failed };
        entry.used_at = now;
        let (had, fresh) = (entry.has_addresses(now), entry.is_fresh(now));
        let rests = entry.failed_until.is_some_and(|until| until > now);
        let holds = entry.hold_until.is_some_and(|until| until > now);
        if !fresh && !rests && !self.asks.is_asked(&host) {
            self.ask_system(&host, now);
        }
        let known = self.known(&host, now);
        let listed = self.direct_addresses(&host, now, wall_ms);
        if had && !known.is_empty() && !holds {
            return Resolution::Ready(confirmed(known, &listed));
        }
        // While name servers are silent the list has the word; so it has when they know nothing.
        let waited = self.names.get(&host).is_none_or(|entry| entry.others_at.is_none_or(|at| at <= now));
        if !listed.is_empty() && waited && !holds {
            return Resolution::Ready(listed.into_iter().map(by_list).collect());
        }
        if self.asks.is_asked(&host) { Resolution::Wait } else { Resolution::Failed }
    }

    /// Returns the addresses that are known of a name, merged: each once, under its most trusted source.
    pub(super) fn known(&self, host: &str, now: Time) -> Vec<Resolved> {
        let Some(entry) = self.names.get(&normalised(host)) else { return Vec::new() };
        let mut merged: Vec<Resolved> = Vec::new();
        for ((origin, _), known) in entry.known.iter().filter(|(_, known)| known.is_usable(now)) {
            for address in &known.addresses {
                let is_new = !merged.iter().any(|other| is_same(&other.address, address));
                if is_new && merged.len() < MERGED_MAX && !self.is_untrusted(host, address.ip, now) {
                    merged.push(Resolved { address: *address, origin: *origin });
                }
            }
        }
        merged
    }

    pub(super) fn handle_host_answer(&mut self, pending: &Pending, answer: Answer, now: Time) {
        let Question::Host { name, family } = &pending.question else { return };
        let (name, family) = (name.clone(), *family);
        let origin = match pending.server {
            Server::Dispatch(_) => Origin::HttpDns,
            Server::Doh(_) => Origin::Doh,
            Server::System => Origin::System,
        };
        let said = match answer {
            Answer::Addresses { signed: false, .. } if origin == Origin::HttpDns => Said::Failed,
            Answer::Addresses { addresses, own, ttl, .. } => {
                self.take_addresses(&name, (origin, family), (addresses, own), ttl, now)
            }
            Answer::NoName => Said::Nothing,
            Answer::Failed(_) | Answer::List(_) | Answer::NotModified | Answer::Service { .. } => Said::Failed,
        };
        if said == Said::Failed {
            self.servers.failed(pending.server, now);
        } else {
            self.servers.succeeded(pending.server);
        }
        self.settle(&name, said, now);
    }

    /// Takes what a source says of a name.
    fn take_addresses(
        &mut self,
        name: &str,
        (origin, family): (Origin, Family),
        (mut addresses, own): (Vec<HostAddress>, bool),
        ttl: Duration,
        now: Time,
    ) -> Said {
        addresses.truncate(HOST_ADDRESSES_MAX);
        let told = addresses.first().copied();
        if origin != Origin::HttpDns && !own {
            addresses.retain(|address| self.is_plausible(name, *address));
        }
        addresses.retain(|address| !self.is_untrusted(name, address.ip, now));
        if let (Some(told), true) = (told, addresses.is_empty()) {
            let warning = SourcesWarning::Hijacked { host: name.into(), address: told.ip, origin };
            self.outputs.warn(warning);
            return Said::Wrong;
        }
        let waits_for_v6 = family == Family::V4 && self.is_asked_for_v6(origin, name);
        let Some(entry) = self.names.get_mut(name) else { return Said::Nothing };
        let is_first = !entry.has_addresses(now);
        let said = if addresses.is_empty() { Said::Nothing } else { Said::Addresses };
        if said == Said::Addresses {
            entry.failed_until = None;
            entry.others_at = None;
            entry.hold_until = (is_first && waits_for_v6).then_some(now + RESOLUTION_DELAY);
        }
        let until = now + ttl.clamp(TTL_MIN, TTL_MAX);
        entry.known.insert((origin, family), Known { addresses, at: now, until });
        said
    }

    /// Goes on after an answer: the others are asked at once where this one was none, and nobody for a while where all were asked.
    fn settle(&mut self, name: &str, said: Said, now: Time) {
        self.outputs.push(SourcesOutput::Changed);
        let v6 = Question::Host { name: name.into(), family: Family::V6 };
        let awaits_v6 = self.asks.is_question_pending(&v6);
        let is_asked = self.asks.is_asked(name);
        let Some(entry) = self.names.get_mut(name) else { return };
        if !awaits_v6 {
            entry.hold_until = None;
        }
        if entry.is_fresh(now) {
            return;
        }
        // One family without an answer says nothing of the other.
        let is_over = !is_asked || matches!(said, Said::Failed | Said::Wrong);
        if is_over && entry.others_at.is_some() {
            self.ask_others(name, now);
        } else if !is_asked {
            entry.failed_until = Some(now + NEGATIVE_FOR);
        }
        if let Some(entry) = self.names.get_mut(name)
            && said == Said::Failed
        {
            entry.failed_until = entry.failed_until.map(|until| until.min(now + FAILED_FOR));
        }
    }

    /// Forgets what unsigned sources said of an address.
    pub(super) fn drop_address(&mut self, name: &str, address: std::net::IpAddr) {
        let Some(entry) = self.names.get_mut(name) else { return };
        for ((origin, _), known) in &mut entry.known {
            if *origin != Origin::HttpDns {
                known.addresses.retain(|known| known.ip != address);
            }
        }
    }

    /// Says whether an unsigned source may be right about an address.
    fn is_plausible(&self, name: &str, address: HostAddress) -> bool {
        if is_public(address.ip) || (is_localhost(name) && address.ip.is_loopback()) {
            return true;
        }
        let listed = self.held.as_ref().and_then(|held| held.list.host(name));
        match listed {
            Some(host) => host.private || host.addresses.iter().any(|known| known.ip == address.ip),
            None => !self.config.is_public_host(name),
        }
    }

    /// Asks the system, both families apart; the others follow if it is silent, and at once if it is known to fail.
    fn ask_system(&mut self, name: &str, now: Time) {
        // Where there are no others, leaving it alone would be giving the name up.
        let is_alone = self.config.doh.is_empty() && !self.has_httpdns(name);
        let free = is_alone || self.servers.is_free(Server::System, now);
        let asked = free && self.ask_families(Server::System, name, now);
        let Some(entry) = self.names.get_mut(name) else { return };
        entry.others_at = Some(if asked { now + OTHERS_AFTER } else { now });
        if !asked {
            self.ask_others(name, now);
        }
    }

    /// Asks DNS over HTTPS and, where the name is one of ours, HTTPDNS.
    pub(super) fn ask_others(&mut self, name: &str, now: Time) {
        let Some(entry) = self.names.get_mut(name) else { return };
        entry.others_at = None;
        let doh = self.config.doh.iter().map(|address| Server::Doh(*address));
        if let Some(server) = doh.into_iter().find(|server| self.servers.is_free(*server, now)) {
            self.ask_families(server, name, now);
        }
        if self.has_httpdns(name) {
            let free = |(_, address): &(Option<&str>, _)| self.servers.is_free(Server::Dispatch(*address), now);
            let servers: Vec<Server> =
                self.dispatch(now).into_iter().filter(free).map(|(_, address)| Server::Dispatch(address)).collect();
            for server in servers.into_iter().take(HTTPDNS_AT_ONCE) {
                self.ask_host(server, name, Family::Both, now);
            }
        }
        if let Some(entry) = self.names.get_mut(name)
            && !self.asks.is_asked(name)
        {
            entry.failed_until = Some(now + NEGATIVE_FOR);
        }
        self.outputs.push(SourcesOutput::Changed);
    }

    /// Says whether HTTPDNS may know a name: one of ours.
    fn has_httpdns(&self, name: &str) -> bool {
        let is_ours = self.config.is_public_host(name)
            || self.config.names.iter().any(|point| point.name == name)
            || self.held.as_ref().is_some_and(|held| held.list.host(name).is_some());
        is_ours && self.verifier.has_keys()
    }

    fn ask_families(&mut self, server: Server, name: &str, now: Time) -> bool {
        let v6 = self.ask_host(server, name, Family::V6, now);
        self.ask_host(server, name, Family::V4, now) || v6
    }

    fn ask_host(&mut self, server: Server, name: &str, family: Family, now: Time) -> bool {
        let question = Question::Host { name: name.into(), family };
        let Some(ask) = self.asks.begin(server, question.clone(), now) else { return false };
        self.outputs.push(SourcesOutput::Ask { ask, server, question });
        true
    }

    fn is_asked_for_v6(&self, origin: Origin, name: &str) -> bool {
        let question = Question::Host { name: name.into(), family: Family::V6 };
        match origin {
            Origin::Doh => self.config.doh.iter().any(|address| self.asks.is_pending(Server::Doh(*address), &question)),
            Origin::HttpDns | Origin::List => false,
            Origin::System => self.asks.is_pending(Server::System, &question),
        }
    }

    /// Makes room for a name, the one that was not used for longest going.
    fn enter(&mut self, name: &str, now: Time) {
        if self.names.contains_key(name) || name.is_empty() || name.len() > NAME_BYTES_MAX {
            return;
        }
        if self.names.len() >= NAMES_MAX {
            let oldest = self.names.iter().min_by_key(|(_, entry)| entry.used_at).map(|(name, _)| name.clone());
            if let Some(oldest) = oldest {
                self.names.remove(&oldest);
            }
        }
        self.names.insert(name.into(), Entry::new(now));
    }
}

/// What came of an ask for a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// Addresses that may be right.
    Addresses,
    /// Nothing: the server could not be asked.
    Failed,
    /// The server knows of no address.
    Nothing,
    /// Addresses that cannot be right.
    Wrong,
}

const fn by_list(address: HostAddress) -> Resolved {
    Resolved { address, origin: Origin::List }
}

/// Puts what an access list says beside the answers: behind signed ones; of the others those that it confirms come first, then the rest of
/// what it names, then those of which it knows nothing.
fn confirmed(known: Vec<Resolved>, listed: &[HostAddress]) -> Vec<Resolved> {
    if listed.is_empty() {
        return known;
    }
    let is_listed = |resolved: &Resolved| {
        resolved.origin == Origin::HttpDns || listed.iter().any(|address| is_same(&resolved.address, address))
    };
    let (first, last): (Vec<Resolved>, Vec<Resolved>) = known.into_iter().partition(is_listed);
    let is_new = |address: &&HostAddress| !first.iter().any(|known| is_same(&known.address, address));
    let between: Vec<Resolved> = listed.iter().filter(is_new).copied().map(by_list).collect();
    first.into_iter().chain(between).chain(last).take(MERGED_MAX).collect()
}

/// Says whether two answers name the same place: one without a port names the machine.
fn is_same(one: &HostAddress, other: &HostAddress) -> bool {
    one.ip == other.ip && (one.port == other.port || one.port.is_none() || other.port.is_none())
}

/// Writes a name as it is compared: in lower case, without the dot of the root.
pub(super) fn normalised(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Says whether a name is this machine's own (RFC 6761 section 6.3).
pub(super) fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// How long a first IPv4 answer waits for IPv6. 50 ms (RFC 8305 section 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// Silence of the system's name servers after which the others are asked. 300 ms; a few round trips of most networks, and less than
/// the 1 s after which resolvers ask again. Our choice.
const OTHERS_AFTER: Duration = Duration::from_millis(300);

/// Dispatch addresses that are asked for a name at once. 2, as HTTPDNS clients do; our choice.
const HTTPDNS_AT_ONCE: usize = 2;

/// How long nobody is asked again for a name that nobody knew. 5 s; a user who tries again is not kept waiting long. RFC 2308 allows
/// hours, RFC 9520 asks for 1 s to 5 min.
const NEGATIVE_FOR: Duration = Duration::from_secs(5);

/// How long nobody is asked again where nobody could be asked, as on a network that is gone. 1 s, the shortest that RFC 9520 section 3.2
/// allows: the next try of a request is to find the network that has come back.
const FAILED_FOR: Duration = Duration::from_secs(1);

/// Shortest time an answer counts as fresh. 10 s, so that a TTL of zero does not ask for every request.
pub(super) const TTL_MIN: Duration = Duration::from_secs(10);

/// Longest time an answer counts as fresh. 1 h; our choice.
pub(super) const TTL_MAX: Duration = Duration::from_secs(3_600);

/// How old an answer may be that is used while a fresh one is asked for. 3 days, the upper end of what RFC 8767 section 5 suggests.
pub(super) const STALE_MAX: Duration = Duration::from_secs(3 * 24 * 3_600);

/// Names that are remembered. 256; our choice.
const NAMES_MAX: usize = 256;

/// Bytes of a name (RFC 1035 section 3.1).
pub(super) const NAME_BYTES_MAX: usize = 253;

/// Addresses of one name that are given out. 64, as many as candidates are kept.
const MERGED_MAX: usize = 64;
