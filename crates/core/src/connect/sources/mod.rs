//! Where addresses come from: the access list, HTTPDNS, DNS over HTTPS, the system's name servers, and what is built in.
//!
//! [`Sources`] asks them, a few at a time, and merges what they say. What comes first is used and what comes later is merged; a stale
//! answer is used at once while a fresh one is asked for. Signed sources outrank the others, private addresses for public names are
//! refused, and a source that fails is left alone for a while. It asks nobody itself: [`SourcesOutput::Ask`] says whom to ask, and
//! [`Sources::handle_answer`] takes what came of it.
//!
//! Time is told twice, for a list is dated by the wall: `now` never jumps, `wall_ms` may. Permissions hold while both clocks allow
//! them, addresses while either does.

mod ask;
mod list;
mod names;
mod output;
mod public;
mod servers;
mod services;
mod trouble;

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use bytes::Bytes;
use rand_core::SeedableRng as _;
use rand_pcg::Pcg32;

use self::{
    ask::{Asks, Pending},
    list::{Held, Round},
    names::Entry,
    servers::{Hints, Servers},
    services::Services,
};
use crate::{
    Time,
    policy::Policy,
    random::within,
    wire::list::{HostAddress, ListError, Verifier},
};

pub use self::{
    ask::{Answer, AskId, Family, Question, Server},
    list::{PipeTarget, PlainTarget, Target},
    names::{Origin, Resolution, Resolved},
    output::{DispatchSeed, NamedPoint, Seed, SourcesConfig, SourcesOutput, SourcesWarning},
    public::is_public,
    trouble::{ListOrigin, ListState, ListTrouble},
};

/// Asks every source of addresses and merges what they say.
#[derive(Debug)]
pub struct Sources {
    config: SourcesConfig,
    verifier: Verifier,
    rng: Pcg32,
    /// The newest list that is believed.
    held: Option<Held>,
    /// The newest policy that a link brought.
    pushed_policy: Option<(Policy, Time)>,
    names: BTreeMap<String, Entry>,
    servers: Servers,
    services: Services,
    asks: Asks,
    round: Option<Round>,
    /// When a list is to be fetched next.
    refresh_at: Option<Time>,
    /// Fetches in a row that brought none.
    fetch_failures: u32,
    /// Why the last attempt to have a list brought none; none once one came.
    trouble: Option<ListTrouble>,
    /// When the last search for a list began.
    searched_at: Option<Time>,
    /// When other units were last asked in need.
    rescued_at: Option<Time>,
    /// Hints that keys are out of date.
    hints: Hints,
    /// Addresses whose certificate was not the host's, and until when they are not believed.
    untrusted: BTreeMap<(String, IpAddr), Time>,
    outputs: output::Queue,
}

impl Sources {
    /// Makes the machine. What the last process kept comes with [`handle_stored`](Self::handle_stored), if there is any.
    #[must_use]
    pub fn new(mut config: SourcesConfig, seed: u64, now: Time) -> Self {
        config.bound();
        let verifier = Verifier::new(config.list_keys.iter().cloned());
        // A link brings the list with it; without anything to open one to, nobody else will.
        let is_alone = config.seeds.is_empty() && config.names.is_empty() && config.access_points.is_empty();
        let grace = if is_alone { Duration::ZERO } else { FIRST_FETCH_AFTER };
        Self {
            refresh_at: verifier.has_keys().then_some(now + grace),
            verifier,
            rng: Pcg32::seed_from_u64(seed),
            held: None,
            pushed_policy: None,
            names: BTreeMap::new(),
            servers: Servers::default(),
            services: Services::default(),
            asks: Asks::default(),
            round: None,
            fetch_failures: 0,
            trouble: None,
            searched_at: None,
            rescued_at: None,
            hints: Hints::default(),
            untrusted: BTreeMap::new(),
            outputs: output::Queue::default(),
            config,
        }
    }

    /// Takes the list that the last process kept. It was believed once, so a clock that stands before its date does not count against
    /// it: a device without a battery for its clock begins in 1970.
    ///
    /// # Errors
    ///
    /// A [`ListError`] if it is none, is not signed by a trusted key, or expired more than 30 days ago.
    pub fn handle_stored(&mut self, document: &Bytes, now: Time, wall_ms: u64) -> Result<(), ListError> {
        let list = self.verifier.verify_stored(document, wall_ms)?;
        if self.held.as_ref().is_none_or(|held| held.list.epoch_ms < list.epoch_ms) {
            self.held = Some(Held::new(list, now, wall_ms));
            self.outputs.push(SourcesOutput::Changed);
        }
        Ok(())
    }

    /// Takes a list that a link brought. An empty one asks for a fetch.
    pub fn handle_list(&mut self, document: &Bytes, now: Time, wall_ms: u64) {
        if document.is_empty() {
            self.refresh_at = self.verifier.has_keys().then_some(now);
            self.handle_timeout(now, wall_ms);
        } else if self.verifier.has_keys() {
            self.take_list(document, ListOrigin::Link, Duration::ZERO, now, wall_ms);
        }
    }

    /// Takes a policy that a link brought.
    pub fn handle_policy(&mut self, document: &[u8], now: Time) {
        match Policy::decode(document) {
            Ok(policy) if self.pushed_policy.as_ref().is_none_or(|(known, _)| known.epoch_ms <= policy.epoch_ms) => {
                self.pushed_policy = Some((policy, now));
                self.outputs.push(SourcesOutput::Changed);
            }
            Ok(_) => {}
            Err(error) => self.outputs.warn(SourcesWarning::PolicyRefused { error }),
        }
    }

    /// Says which user the device has, and so which unit.
    pub fn set_user(&mut self, user: Option<String>) {
        if self.config.user != user {
            self.config.user = user;
            self.outputs.push(SourcesOutput::Changed);
        }
    }

    /// Takes what came of an ask; one that is not awaited any more is passed over.
    pub fn handle_answer(&mut self, ask: AskId, answer: Answer, now: Time, wall_ms: u64) {
        let Some(pending) = self.asks.take(ask) else { return };
        self.take_answer(&pending, answer, now, wall_ms);
    }

    fn take_answer(&mut self, pending: &Pending, answer: Answer, now: Time, wall_ms: u64) {
        match &pending.question {
            Question::Host { .. } => self.handle_host_answer(pending, answer, now),
            Question::List { .. } => self.handle_list_answer(pending, answer, now, wall_ms),
            Question::Service { .. } => self.handle_service_answer(pending, &answer, now),
        }
    }

    /// All access points of the user's unit fail: asks the dispatch addresses of two others at once, at most every 5 s.
    pub fn handle_failed_unit(&mut self, now: Time) {
        let rested = self.rescued_at.is_none_or(|at| now.since(at) >= RESCUE_PAUSE);
        if !rested || !self.verifier.has_keys() {
            return;
        }
        self.rescued_at = Some(now);
        for address in self.rescuers(now) {
            self.ask_for_list(address, now);
        }
    }

    /// A request finds no way that works without a list: where there is none one is fetched at once, at most every 5 s.
    pub fn handle_needed(&mut self, now: Time, wall_ms: u64) {
        if !self.list_state(now, wall_ms).is_awaited() || self.round.is_some() {
            return;
        }
        let soon = self.searched_at.map_or(now, |at| now.max(at + NEED_PAUSE));
        self.refresh_at = Some(self.refresh_at.map_or(soon, |at| at.min(soon)));
        self.handle_timeout(now, wall_ms);
    }

    /// Whoever answered at a gateway's address claims not to know a key of the list. Anyone can claim that, so the list stays as it is,
    /// but a newer one is fetched soon: at most every 30 s, and twice as seldom each time that there was none.
    pub fn handle_key_unknown(&mut self, now: Time) {
        if !self.verifier.has_keys() || !self.hints.take(now) {
            return;
        }
        // Everyone who is told so after a restart would ask at once.
        let soon = now + within(&mut self.rng, HINTED_WITHIN);
        if self.round.is_none() {
            self.refresh_at = Some(self.refresh_at.map_or(soon, |at| at.min(soon)));
        }
    }

    /// The certificate of this address was not the host's: it is not offered for the host for a while.
    pub fn handle_untrusted(&mut self, host: &str, address: IpAddr, now: Time) {
        let host = names::normalised(host);
        while self.untrusted.len() >= UNTRUSTED_MAX {
            let Some(soonest) = self.untrusted.iter().min_by_key(|(_, until)| **until).map(|(key, _)| key.clone())
            else {
                break;
            };
            self.untrusted.remove(&soonest);
        }
        self.untrusted.insert((host.clone(), address), now + UNTRUSTED_FOR);
        self.drop_address(&host, address);
        // Whoever lied about it may lie again; the others may know better.
        self.ask_others(&host, now);
    }

    /// The network changed: its name servers are others, and what failed on the old one may work here.
    pub fn handle_network_changed(&mut self, now: Time) {
        self.servers = Servers::default();
        self.services.handle_network_changed(now);
        for entry in self.names.values_mut() {
            entry.handle_network_changed(now);
        }
        if self.verifier.has_keys() {
            self.fetch_failures = 0;
            self.trouble = None;
            self.hints = Hints::default();
            let soon = now + FIRST_FETCH_AFTER;
            self.refresh_at = Some(self.refresh_at.map_or(soon, |at| at.min(soon)));
        }
    }

    /// Says that time has come; deadlines up to `now` fire.
    pub fn handle_timeout(&mut self, now: Time, wall_ms: u64) {
        for (ask, pending) in self.asks.overdue(now) {
            tracing::debug!(?ask, "a source of addresses is late");
            self.take_answer(&pending, late(&pending, now), now, wall_ms);
        }
        let held = self.names.values_mut().filter_map(|entry| entry.hold_until.take_if(|until| *until <= now)).count();
        if held > 0 {
            self.outputs.push(SourcesOutput::Changed);
        }
        let due: Vec<String> =
            self.names.iter().filter(|(_, entry)| entry.is_due(now)).map(|(name, _)| name.clone()).collect();
        for name in due {
            self.ask_others(&name, now);
        }
        if self.refresh_at.is_some_and(|at| at <= now) {
            self.begin_round(now);
        }
        self.step_round(now);
    }

    /// Returns the next deadline and what it is for.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let asks = self.asks.poll_timeout().map(|at| (at, "a source is late"));
        let names = self.names.values().filter_map(Entry::poll_timeout).min().map(|at| (at, "others are asked"));
        let refresh = self.refresh_at.map(|at| (at, "the list is fetched"));
        let round = self.round.as_ref().and_then(Round::poll_timeout).map(|at| (at, "the next dispatch is asked"));
        [asks, names, refresh, round].into_iter().flatten().min()
    }

    /// Returns what to do next.
    pub fn poll_output(&mut self) -> Option<SourcesOutput> {
        self.outputs.pop()
    }

    /// Returns the epoch of the newest list, zero without any: what HELLO names. Without a key to believe one by it is the largest
    /// number, for then none is wanted.
    #[must_use]
    pub fn list_epoch_ms(&self) -> u64 {
        match &self.held {
            _ if !self.verifier.has_keys() => u64::MAX,
            Some(held) => held.list.epoch_ms,
            None => 0,
        }
    }

    /// Says how it stands with the list.
    #[must_use]
    pub fn list_state(&self, now: Time, wall_ms: u64) -> ListState {
        match &self.held {
            _ if !self.verifier.has_keys() => ListState::Unwanted,
            Some(held) => ListState::Held(held.validity(now, wall_ms)),
            None => ListState::Missing,
        }
    }

    /// Returns why the last attempt to have a list brought none; `None` once one came, or before anybody was asked.
    #[must_use]
    pub const fn list_trouble(&self) -> Option<&ListTrouble> {
        self.trouble.as_ref()
    }

    /// Returns the oldest question for a list that nobody has answered yet, as the trouble that it is to who cannot wait any longer.
    #[must_use]
    pub fn list_silence(&self, now: Time) -> Option<ListTrouble> {
        let pending = self.asks.oldest_for_list()?;
        let Server::Dispatch(address) = pending.server else { return None };
        let reason = "it has not answered yet".to_owned();
        Some(ListTrouble::Failed { address, took: now.since(pending.asked_at), reason })
    }

    /// Says whether an answer beside the list is signed by a trusted key.
    #[must_use]
    pub fn is_signed(&self, context: &str, message: &[u8], key_id: &str, signature: &[u8]) -> bool {
        self.verifier.is_signed(context, message, key_id, signature)
    }

    fn is_untrusted(&self, host: &str, address: IpAddr, now: Time) -> bool {
        self.untrusted.get(&(host.to_owned(), address)).is_some_and(|until| *until > now)
    }
}

/// Says that nobody answered.
fn late(pending: &Pending, now: Time) -> Answer {
    Answer::Failed(format!("no answer within {} ms", now.since(pending.asked_at).as_millis()))
}

/// Time at the start before a list is fetched, where a link may bring one. 5 s; a link takes one or two on a slow network. Our choice.
const FIRST_FETCH_AFTER: Duration = Duration::from_secs(5);

/// Time between two calls to other units in need. 5 s; a race of five silent addresses takes longer. Our choice.
const RESCUE_PAUSE: Duration = Duration::from_secs(5);

/// Time between two searches for a list that requests are in need of. 5 s, as between two calls for help; our choice.
const NEED_PAUSE: Duration = Duration::from_secs(5);

/// Time within which a list is fetched after a hint, at a moment of each client's own. 2 s; our choice: the next request of a person
/// comes later, and a restarted gateway sees its clients apart.
const HINTED_WITHIN: Duration = Duration::from_secs(2);

/// How long an address with a wrong certificate is not offered. 10 min; longer than most hijacked answers are cached, shorter than an
/// operator's mistake is forgiven. Our choice.
const UNTRUSTED_FOR: Duration = Duration::from_secs(600);

/// Addresses with a wrong certificate that are remembered. 128; the ones that end first go first.
const UNTRUSTED_MAX: usize = 128;

#[cfg(test)]
mod tests;
