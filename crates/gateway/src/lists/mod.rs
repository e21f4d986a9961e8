//! The access list of this gateway: made from the configuration, signed, served over HTTP and DNS, and pushed down links.

mod answer;
mod build;
mod dns;
mod key;
mod resolve;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use ropeway_core::{policy::Policy, session::Server, wire::list::AccessList};
use ropeway_net::unix_ms;
use tracing::info;

use crate::{
    config::Config,
    gateway::Addresses,
    metrics::{Counter, Metrics},
};

pub use self::key::{ListKeyError, ListSigner};
pub(crate) use self::{
    answer::is_internal,
    build::{Keys, Times, pipe_names},
};

/// The list in force, and what is answered from it.
pub(crate) struct Lists {
    signer: ListSigner,
    addresses: Addresses,
    issued: ArcSwap<Issued>,
    /// Held while a list is made, so that a later one is made of what is newer.
    issuing: Mutex<()>,
    counters: Counters,
}

/// A list that was issued.
#[derive(Clone)]
pub(crate) struct Issued {
    config: Arc<Config>,
    list: AccessList,
    document: Bytes,
    /// The policy in force: that of the list, or a newer one.
    policy: Policy,
    policy_document: Bytes,
    /// The policy says something else than the one before.
    is_news: bool,
}

struct Counters {
    fetched: Counter,
    not_modified: Counter,
    pushed: Counter,
    dns_answered: Counter,
    dns_malformed: Counter,
    dns_refused: Counter,
    resolve_answered: Counter,
    resolve_malformed: Counter,
    resolve_refused: Counter,
}

impl Lists {
    /// Issues the first list of a gateway that listens here.
    pub(crate) fn new(
        config: Arc<Config>,
        addresses: Addresses,
        keys: Keys,
        signer: ListSigner,
        metrics: &Metrics,
    ) -> Self {
        let issued = Issued::new(config, &addresses, &keys, &Times::new(), &signer, unix_ms());
        Self {
            signer,
            addresses,
            issued: ArcSwap::from_pointee(issued),
            issuing: Mutex::new(()),
            counters: Counters::new(metrics),
        }
    }

    /// Issues a list anew, for a configuration, for other keys or for time that has passed. Links have yet to be told.
    pub(crate) fn issue(&self, config: Arc<Config>, keys: impl FnOnce(&Config) -> Keys, times: &Times) {
        let _issuing = self.issuing.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = keys(&config);
        let epoch_ms = self.next_epoch();
        let before = self.issued.load();
        let mut issued = Issued::new(config, &self.addresses, &keys, times, &self.signer, epoch_ms);
        issued.is_news = before.policy != Policy { epoch_ms: before.policy.epoch_ms, ..issued.policy.clone() };
        self.issued.store(Arc::new(issued));
    }

    /// Makes a newer policy where what the routes' answers take is another than clients were told; says whether it did.
    pub(crate) fn renew_policy(&self, times: &Times) -> bool {
        let issued = self.issued.load_full();
        let epoch_ms = self.next_epoch();
        let policy = build::policy(&issued.config, times, epoch_ms);
        if !differs(&issued.policy, &policy) {
            return false;
        }
        let policy_document = policy.encode();
        self.issued.store(Arc::new(Issued { policy, policy_document, is_news: true, ..Issued::clone(&issued) }));
        true
    }

    fn next_epoch(&self) -> u64 {
        let issued = self.issued.load();
        unix_ms().max(issued.list.epoch_ms.max(issued.policy.epoch_ms) + 1)
    }

    /// Returns when the list should be issued anew: half of its time is left for clients that are away.
    pub(crate) fn renewal(&self) -> Duration {
        let issued = self.issued.load();
        let at_ms = issued.list.epoch_ms + (issued.list.expires_ms - issued.list.epoch_ms) / 2;
        Duration::from_millis(at_ms.saturating_sub(unix_ms()))
    }

    /// Sends list and policy over a link that has just begun, where the client's are older.
    pub(crate) fn greet(&self, server: &mut Server) {
        let issued = self.issued.load();
        self.send(&issued, !issued.policy.says_nothing(), true, server);
    }

    /// Sends list and policy over a link, once there are newer ones.
    pub(crate) fn tell(&self, server: &mut Server) {
        let issued = self.issued.load();
        // What is about the policy alone leaves the list as it was.
        let has_list = issued.list.epoch_ms >= issued.policy.epoch_ms;
        self.send(&issued, issued.is_news, has_list, server);
    }

    /// Sends what is newer; a client that believes no list gets the policy where that is worth a frame.
    fn send(&self, issued: &Issued, is_worth_it: bool, has_list: bool, server: &mut Server) {
        let epoch_ms = server.list_epoch();
        if !server.is_attached() {
            return;
        }
        if epoch_ms < issued.policy.epoch_ms || (epoch_ms == NO_LIST && is_worth_it) {
            server.send_policy(&issued.policy_document);
        }
        if epoch_ms < issued.list.epoch_ms && has_list {
            server.send_list(&issued.document);
            self.counters.pushed.inc();
        }
    }

    /// Returns the signer, whose public key apps carry.
    pub(crate) const fn signer(&self) -> &ListSigner {
        &self.signer
    }

    fn issued(&self) -> Arc<Issued> {
        self.issued.load_full()
    }
}

impl Issued {
    fn new(
        config: Arc<Config>,
        addresses: &Addresses,
        keys: &Keys,
        times: &Times,
        signer: &ListSigner,
        epoch_ms: u64,
    ) -> Self {
        let list = build::list(&config, addresses, keys, times, epoch_ms);
        let document = list.seal(signer.id(), &|message| signer.sign(message));
        let (units, hosts) = (list.units.len(), list.hosts.len());
        info!(epoch_ms, units, hosts, bytes = document.len(), "access list issued");
        let policy = list.policy.clone();
        Self { config, list, document, policy_document: policy.encode(), policy, is_news: true }
    }

    /// Returns the addresses of a host as a client is to try them; `None` if the list has no such host.
    fn addresses(&self, host: &str, client: SocketAddr) -> Option<Vec<ropeway_core::wire::list::HostAddress>> {
        let mut addresses = self.list.host(host)?.addresses.clone();
        if let Some(operator) = build::operator(&self.config, client) {
            addresses.sort_by_key(|address| !build::is_of(&self.list.units, address.ip, operator));
        }
        Some(addresses)
    }

    fn answer_ttl(&self) -> Duration {
        self.config.list.answer_ttl
    }
}

impl Counters {
    fn new(metrics: &Metrics) -> Self {
        Self {
            fetched: metrics.lists("fetched"),
            not_modified: metrics.lists("not_modified"),
            pushed: metrics.lists("pushed"),
            dns_answered: metrics.lookups("dns", "answered"),
            dns_malformed: metrics.lookups("dns", "malformed"),
            dns_refused: metrics.lookups("dns", "refused"),
            resolve_answered: metrics.lookups("resolve", "answered"),
            resolve_malformed: metrics.lookups("resolve", "malformed"),
            resolve_refused: metrics.lookups("resolve", "refused"),
        }
    }
}

/// Says whether a policy differs from the one that clients were told by more than its date and by measured times that wobble.
fn differs(told: &Policy, new: &Policy) -> bool {
    let mut same = new.clone();
    same.epoch_ms = told.epoch_ms;
    if same.routes.len() != told.routes.len() {
        return true;
    }
    for (route, known) in same.routes.iter_mut().zip(&told.routes) {
        if let (Some(new), Some(old)) = (route.server_time, known.server_time)
            && new.abs_diff(old) <= (old / WOBBLE).max(WOBBLE_MIN)
        {
            route.server_time = known.server_time;
        }
    }
    same != *told
}

/// The epoch of a client that believes no list (`docs/protocol/link-v1.md`).
const NO_LIST: u64 = u64::MAX;

/// Part of a measured time that may change without clients being told. A quarter; a timeout is no finer. Our choice.
const WOBBLE: u32 = 4;

/// Change of a measured time that is never told. 50 ms; our choice.
const WOBBLE_MIN: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use ropeway_core::policy::RoutePolicy;

    use super::*;

    fn policy(server_time_ms: Option<u64>) -> Policy {
        let server_time = server_time_ms.map(Duration::from_millis);
        Policy { routes: vec![RoutePolicy { server_time, ..RoutePolicy::default() }], ..Policy::default() }
    }

    #[test]
    fn a_measured_time_that_wobbles_is_no_news_and_one_that_moves_is() {
        for (told, new, is_news) in [
            (Some(1_000), Some(1_250), false),
            (Some(1_000), Some(1_251), true),
            (Some(1_000), Some(700), true),
            (Some(20), Some(70), false),
            (Some(20), Some(71), true),
            (None, Some(20), true),
            (None, None, false),
        ] {
            assert_eq!(differs(&policy(told), &policy(new)), is_news, "{told:?} {new:?}");
        }
        assert!(differs(&Policy::default(), &policy(None)));
        assert!(!differs(&policy(None), &Policy { epoch_ms: 9, ..policy(None) }));
    }
}
