//! Connections that are open, and who may use which.

use std::{
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use hyper::client::conn::{http1, http2};
use ropeway_core::{
    CarrierKind,
    connect::{Candidate, Origin},
    request::Way,
};
use tokio::{
    sync::{Notify, futures::OwnedNotified, oneshot},
    time::{Instant, sleep},
};

use super::{Been, connect::ConnectError, h3::H3Sender, target::Http};
use crate::{Body, shared::lock};

/// The connections of a client's short links.
pub(super) struct Pool {
    limits: Limits,
    inner: Mutex<Inner>,
}

/// How many connections short links may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Connections in all. 256; our choice: a client whose hosts never answer must not grow without end.
    pub(crate) connections_max: usize,
    /// Connections to one host. 6; what browsers open to one over HTTP/1.1.
    pub(crate) host_connections_max: usize,
    /// Connections to one host that carry several requests each. 1; more on a network that loses packets, where one that stands
    /// still stops all of its requests.
    pub(crate) host_multiplexed_max: usize,
    /// Time a connection may be unused. 90 s; the default of hyper-util.
    pub(crate) idle: Duration,
}

/// Where connections lead that may stand for one another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) encrypted: bool,
    pub(super) origin: Origin,
    /// The way it was opened for.
    pub(super) way: Way,
}

/// What sends requests on a connection.
pub(super) enum Sender {
    H1(http1::SendRequest<Body>),
    H2(http2::SendRequest<Body>),
    H3(H3Sender),
}

/// The right to send one request on a connection. Dropping it gives the right back.
pub(super) struct Lease {
    pool: Arc<Pool>,
    key: Key,
    /// The connection's, never used twice.
    pub(super) number: u64,
    /// Where the connection leads.
    pub(super) peer: Candidate,
    /// Whether it has carried a request before.
    pub(super) is_reused: bool,
}

#[derive(Default)]
struct Inner {
    hosts: BTreeMap<Key, Host>,
    /// Number of the next connection.
    next: u64,
    is_swept: bool,
}

#[derive(Default)]
struct Host {
    open: Vec<Entry>,
    opening: usize,
    /// The newest attempt and the listed addresses it is for, for requests that can do with its connection.
    newest: Option<(Vec<SocketAddr>, Opening)>,
    /// Whether one connection carries several requests here.
    multiplexes: Option<bool>,
    changed: Arc<Notify>,
}

struct Entry {
    number: u64,
    peer: Candidate,
    http: Http,
    /// Nothing while a request has it to itself.
    sender: Option<Sender>,
    requests: usize,
    is_used: bool,
    free_since: Instant,
}

/// The end of an attempt to open a connection.
type Opening = Shared<BoxFuture<'static, Result<(), ConnectError>>>;

/// What a request that wants a connection does next.
enum Step {
    Open { changed: OwnedNotified },
    Take { lease: Lease, sender: Sender, opens_another: bool },
    Wait { changed: OwnedNotified, opening: Option<Opening> },
}

impl Pool {
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, inner: Mutex::default() })
    }

    /// Waits for a connection, by address to a `listed` one, and opens one where none is free and there may be another. A request that is
    /// sent again goes on none of its connections before, and by name on no kept one to where it has been.
    pub(super) async fn acquire<F>(
        self: &Arc<Self>,
        key: &Key,
        listed: &[SocketAddr],
        been: &Been,
        open: impl Fn() -> F,
    ) -> Result<(Lease, Sender), ConnectError>
    where
        F: Future<Output = Result<(Candidate, Sender), ConnectError>> + Send + 'static,
    {
        let newest = lock(&self.inner).next;
        let mut own = None;
        loop {
            let may_take = |number, peer: Candidate| match key.way {
                Way::Address => !been.used(number) && listed.iter().any(|known| leads_to(peer, *known, listed)),
                Way::Link | Way::Name | Way::Original | Way::Pipe | Way::Plain => {
                    number > newest || been.last_try(peer.address, &[]).is_none()
                }
            };
            let (changed, opening) = match self.step(key, listed, may_take)? {
                Step::Take { lease, sender, opens_another } => {
                    if opens_another {
                        // For requests to come.
                        drop(self.begin(key, listed, open()));
                    }
                    return Ok((lease, sender));
                }
                // One that is given back meanwhile may not be for this request.
                Step::Open { changed } => {
                    let opening = own.take().unwrap_or_else(|| self.begin(key, listed, open()));
                    own = Some(opening.clone());
                    (changed, Some(opening))
                }
                Step::Wait { changed, opening } => (changed, opening),
            };
            let failed = async {
                match opening {
                    Some(opening) => opening.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                opened = failed => {
                    own = None;
                    opened?;
                }
                () = changed => {}
            }
        }
    }

    fn step(
        self: &Arc<Self>,
        key: &Key,
        listed: &[SocketAddr],
        may_take: impl Fn(u64, Candidate) -> bool,
    ) -> Result<Step, ConnectError> {
        let Limits { connections_max, host_connections_max, host_multiplexed_max, idle } = self.limits;
        let mut inner = lock(&self.inner);
        let is_full = inner.connections() >= connections_max;
        let host = inner.host(key);
        host.prune(idle);
        let is_usable = |entry: &&mut Entry| entry.sender.is_some() && may_take(entry.number, entry.peer);
        let multiplexed = host.open.iter().filter(|entry| entry.http != Http::H1).count();
        let least = host.open.iter_mut().filter(is_usable).min_by_key(|entry| entry.requests);
        let changed = Arc::clone(&host.changed).notified_owned();
        if let Some(entry) = least {
            let lease = Lease {
                pool: Arc::clone(self),
                key: key.clone(),
                number: entry.number,
                peer: entry.peer,
                is_reused: entry.is_used,
            };
            let is_busy = entry.requests > 0;
            let sender = entry.take().expect("it is usable");
            let another = is_busy && multiplexed + host.opening < host_multiplexed_max && !is_full;
            return Ok(Step::Take { lease, sender, opens_another: another });
        }
        if host.opening > 0
            && host.multiplexes != Some(false)
            && let Some((places, opening)) = &host.newest
            && places == listed
        {
            return Ok(Step::Wait { changed, opening: Some(opening.clone()) });
        }
        if host.open.len() + host.opening >= host_connections_max {
            return Ok(Step::Wait { changed, opening: None });
        }
        if is_full && !inner.drop_oldest() {
            return Err(ConnectError::TooMany { max: connections_max });
        }
        Ok(Step::Open { changed })
    }

    /// Opens a connection in a task of its own: whoever waits for it may leave, and others use it.
    fn begin(
        self: &Arc<Self>,
        key: &Key,
        listed: &[SocketAddr],
        opening: impl Future<Output = Result<(Candidate, Sender), ConnectError>> + Send + 'static,
    ) -> Opening {
        let (ended, end) = oneshot::channel();
        let end = end.map(|end| end.unwrap_or_else(|_| Err(ConnectError::Lost("connecting was given up".into()))));
        let end = end.boxed().shared();
        let mut inner = lock(&self.inner);
        let host = inner.host(key);
        host.opening += 1;
        host.newest = Some((listed.to_vec(), end.clone()));
        drop(inner);
        let begun = Begun { pool: Arc::clone(self), key: key.clone() };
        tokio::spawn(async move {
            let result = opening.await.map(|(peer, sender)| begun.pool.add(&begun.key, peer, sender));
            drop(begun);
            // Nobody may wait for it any more.
            let _ = ended.send(result);
        });
        end
    }

    fn add(self: &Arc<Self>, key: &Key, peer: Candidate, sender: Sender) {
        let mut inner = lock(&self.inner);
        inner.next += 1;
        let number = inner.next;
        let host = inner.host(key);
        let http = sender.http();
        host.multiplexes = Some(http != Http::H1);
        let free_since = Instant::now();
        let entry = Entry { number, peer, http, sender: Some(sender), requests: 0, is_used: false, free_since };
        host.open.push(entry);
        if !std::mem::replace(&mut inner.is_swept, true) {
            let (pool, idle) = (Arc::downgrade(self), self.limits.idle);
            tokio::spawn(async move {
                loop {
                    sleep(idle / SWEEPS_PER_IDLE).await;
                    if pool.upgrade().is_none_or(|pool| !pool.sweep()) {
                        return;
                    }
                }
            });
        }
    }

    /// Closes what has been idle for too long; says whether anything is left to look after.
    fn sweep(&self) -> bool {
        let mut inner = lock(&self.inner);
        inner.hosts.values_mut().for_each(|host| host.prune(self.limits.idle));
        inner.is_swept = inner.connections() > 0;
        inner.is_swept
    }

    /// Takes a connection back, or forgets it where it does not come back.
    fn give_back(&self, key: &Key, number: u64, sender: Option<Sender>) {
        let mut inner = lock(&self.inner);
        let Some(host) = inner.hosts.get_mut(key) else { return };
        let Some(place) = host.open.iter().position(|entry| entry.number == number) else { return };
        let entry = &mut host.open[place];
        entry.requests = entry.requests.saturating_sub(1);
        entry.free_since = Instant::now();
        if let Some(sender) = sender {
            entry.sender = Some(sender);
        }
        if entry.sender.is_none() {
            host.open.swap_remove(place);
        }
        host.changed.notify_waiters();
    }

    /// Forgets a connection that takes no more requests.
    fn forget(&self, key: &Key, number: u64) {
        if let Some(host) = lock(&self.inner).hosts.get_mut(key) {
            host.open.retain(|entry| entry.number != number);
        }
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        lock(&self.inner).connections()
    }
}

impl Lease {
    /// Gives a connection back that can carry the next request.
    pub(super) fn finish(self, sender: http1::SendRequest<Body>) {
        self.pool.give_back(&self.key, self.number, Some(Sender::H1(sender)));
    }

    /// Says that the connection takes no more requests.
    pub(super) fn condemn(&self) {
        self.pool.forget(&self.key, self.number);
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.pool.give_back(&self.key, self.number, None);
    }
}

impl Sender {
    pub(super) const fn http(&self) -> Http {
        match self {
            Self::H1(_) => Http::H1,
            Self::H2(_) => Http::H2,
            Self::H3(_) => Http::H3,
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::H1(sender) => !sender.is_ready(),
            Self::H2(sender) => sender.is_closed(),
            Self::H3(sender) => sender.is_closed(),
        }
    }
}

impl Inner {
    fn connections(&self) -> usize {
        self.hosts.values().map(|host| host.open.len() + host.opening).sum()
    }

    fn host(&mut self, key: &Key) -> &mut Host {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(key) {
            self.hosts.retain(|_, host| !host.open.is_empty() || host.opening > 0);
        }
        self.hosts.entry(key.clone()).or_default()
    }

    /// Closes the connection that has been idle for longest; says whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let idle = self.hosts.values().flat_map(|host| &host.open).filter(|entry| entry.requests == 0);
        let Some(oldest) = idle.min_by_key(|entry| entry.free_since).map(|entry| entry.number) else { return false };
        self.hosts.values_mut().for_each(|host| host.open.retain(|entry| entry.number != oldest));
        true
    }
}

impl Host {
    /// Drops connections that are closed, or have been idle for too long.
    fn prune(&mut self, idle: Duration) {
        let now = Instant::now();
        self.open.retain(|entry| {
            let is_stale = entry.requests == 0 && now >= entry.free_since + idle;
            !is_stale && !entry.sender.as_ref().is_some_and(Sender::is_closed)
        });
    }
}

impl Entry {
    /// Takes the sender for one more request.
    fn take(&mut self) -> Option<Sender> {
        self.requests += 1;
        self.is_used = true;
        match self.sender.as_ref()? {
            Sender::H1(_) => self.sender.take(),
            Sender::H2(sender) => Some(Sender::H2(sender.clone())),
            Sender::H3(sender) => Some(Sender::H3(sender.clone())),
        }
    }
}

/// Says whether a connection is to an address, one of these. The port of HTTP/3 may be another than that of the address, if it is not that
/// of another one.
pub(super) fn leads_to(peer: Candidate, address: SocketAddr, among: &[SocketAddr]) -> bool {
    let is_machines = peer.carrier == CarrierKind::Quic && peer.address.ip() == address.ip();
    peer.address == address || is_machines && !among.contains(&peer.address)
}

/// Counts one attempt to open a connection.
struct Begun {
    pool: Arc<Pool>,
    key: Key,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(host) = lock(&self.pool.inner).hosts.get_mut(&self.key) {
            host.opening = host.opening.saturating_sub(1);
            host.changed.notify_waiters();
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections_max: 256, host_connections_max: 6, host_multiplexed_max: 1, idle: Duration::from_secs(90) }
    }
}

/// Hosts whose habits are remembered without a connection; as many as there may be connections.
const HOSTS_MAX: usize = 256;

/// Looks for idle connections within the time one may be idle.
const SWEEPS_PER_IDLE: u32 = 4;
