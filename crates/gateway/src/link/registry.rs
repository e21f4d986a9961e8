//! The sessions of this gateway: by number, and by whom a message may be for.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ropeway_cluster::{Interest, Interests, Target};
use ropeway_core::{
    Time,
    session::{Cookie, Refusal, Server, ServerConfig, SessionId},
    wire::message::RefuseCode,
};
use ropeway_net::{Clock, link::Session};

use super::busy;

/// Whose session it is.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) user: String,
    pub(crate) device: String,
}

/// One session and what the gateway knows around it.
pub(crate) struct Entry {
    id: SessionId,
    identity: Identity,
    session: Session<Server>,
    peer: Mutex<Option<SocketAddr>>,
    /// Registered at the bus as long as the session lives.
    interests: Mutex<Vec<Interest>>,
}

impl Entry {
    pub(crate) const fn session(&self) -> &Session<Server> {
        &self.session
    }

    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Every session of the gateway.
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    sessions_max: usize,
    ttl: Duration,
    attached: AtomicUsize,
}

#[derive(Default)]
struct Inner {
    sessions: HashMap<SessionId, Arc<Entry>>,
    targets: HashMap<Target, HashSet<SessionId>>,
    /// Sessions without a link, by when they may be forgotten, oldest first; stale where another link came since.
    detached: VecDeque<(Time, SessionId, u64)>,
}

impl Registry {
    pub(crate) fn new(sessions_max: usize, ttl: Duration) -> Self {
        Self { inner: Mutex::default(), sessions_max, ttl, attached: AtomicUsize::new(0) }
    }

    pub(crate) fn session(&self, id: SessionId) -> Option<Arc<Entry>> {
        self.lock().sessions.get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.lock().sessions.values().cloned().collect()
    }

    /// Returns the sessions a message for `target` is for.
    pub(crate) fn sessions(&self, target: &Target) -> Vec<Arc<Entry>> {
        let inner = self.lock();
        match target {
            Target::All => inner.sessions.values().cloned().collect(),
            Target::Device(_) | Target::Topic(_) | Target::User(_) => {
                let ids = inner.targets.get(target).into_iter().flatten();
                ids.filter_map(|id| inner.sessions.get(id).cloned()).collect()
            }
        }
    }

    /// Makes a session.
    pub(crate) fn create(
        &self,
        identity: Identity,
        device_key: [u8; 32],
        config: Arc<ServerConfig>,
        clock: Clock,
        interests: &Interests,
    ) -> Result<Arc<Entry>, Refusal> {
        let targets = [format!("user:{}", identity.user), format!("device:{}", identity.device)];
        let targets: Vec<Target> =
            targets.iter().map(|target| target.parse()).collect::<Result<_, _>>().map_err(|error| {
                Refusal::new(RefuseCode::Protocol, format!("user or device cannot be addressed: {error}"))
            })?;
        let registered: Vec<Interest> = targets
            .iter()
            .chain([&Target::All])
            .map(|target| interests.interest(target.clone()))
            .collect::<Result<_, _>>()
            .map_err(|error| busy(&error.to_string()))?;
        let mut inner = self.lock();
        if inner.sessions.len() >= self.sessions_max {
            return Err(busy("this gateway holds as many sessions as it may"));
        }
        let id = loop {
            let id = SessionId(u64::from_be_bytes(crate::random_bytes()));
            if !inner.sessions.contains_key(&id) {
                break id;
            }
        };
        let cookie = Cookie::new(id, crate::random_bytes());
        let session = Session::new(Server::new(config, cookie, device_key, clock.now()), clock);
        let entry =
            Arc::new(Entry { id, identity, session, peer: Mutex::new(None), interests: Mutex::new(registered) });
        for target in targets {
            inner.targets.entry(target).or_default().insert(id);
        }
        inner.sessions.insert(id, Arc::clone(&entry));
        Ok(entry)
    }

    pub(crate) fn attached(&self, entry: &Entry, peer: SocketAddr) {
        let mut known = entry.peer.lock().unwrap_or_else(PoisonError::into_inner);
        if known.replace(peer).is_none() {
            self.attached.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Notes that link `number` is gone; without another one the session is forgotten in time.
    pub(crate) fn detached(&self, entry: &Entry, number: u64, now: Time) {
        if !entry.session.is_current(number) {
            return;
        }
        let mut known = entry.peer.lock().unwrap_or_else(PoisonError::into_inner);
        if known.take().is_some() {
            self.attached.fetch_sub(1, Ordering::Relaxed);
        }
        self.lock().detached.push_back((now + self.ttl, entry.id, number));
    }

    /// Returns the number of sessions that have a link.
    pub(crate) fn attached_count(&self) -> usize {
        self.attached.load(Ordering::Relaxed)
    }

    pub(crate) fn subscribe(&self, entry: &Entry, topic: &str, interests: &Interests) {
        let Ok(target) = format!("topic:{topic}").parse::<Target>() else { return };
        let Ok(interest) = interests.interest(target.clone()) else { return };
        entry.interests.lock().unwrap_or_else(PoisonError::into_inner).push(interest);
        self.lock().targets.entry(target).or_default().insert(entry.id);
    }

    pub(crate) fn unsubscribe(&self, entry: &Entry, topic: &str) {
        let Ok(target) = format!("topic:{topic}").parse::<Target>() else { return };
        entry.interests.lock().unwrap_or_else(PoisonError::into_inner).retain(|interest| *interest.target() != target);
        self.lock().drop_target(&target, entry.id);
    }

    /// Forgets the sessions whose time is over; returns when the next one's is.
    pub(crate) fn sweep(&self, now: Time) -> Option<Time> {
        let mut gone = Vec::new();
        let next = loop {
            let mut inner = self.lock();
            let Some((at, id, number)) = inner.detached.front().copied() else { break None };
            if at > now {
                break Some(at);
            }
            inner.detached.pop_front();
            let Some(entry) = inner.sessions.get(&id) else { continue };
            if entry.session.is_current(number) && entry.session.peek(|server| !server.is_attached()) {
                gone.extend(inner.sessions.remove(&id));
            }
        };
        for entry in &gone {
            self.forget(entry);
        }
        next
    }

    fn forget(&self, entry: &Entry) {
        let registered = std::mem::take(&mut *entry.interests.lock().unwrap_or_else(PoisonError::into_inner));
        let mut inner = self.lock();
        for interest in &registered {
            inner.drop_target(interest.target(), entry.id);
        }
        drop(inner);
        entry.session.dissolve();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn drop_target(&mut self, target: &Target, id: SessionId) {
        if let Some(ids) = self.targets.get_mut(target) {
            ids.remove(&id);
            if ids.is_empty() {
                self.targets.remove(target);
            }
        }
    }
}
