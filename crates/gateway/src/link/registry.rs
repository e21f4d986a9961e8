//! The sessions of this gateway: by number, and by whom a message may be for.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ropeway_cluster::{Interest, InterestError, Interests, Target};
use ropeway_core::{
    Time,
    session::{Cookie, Refusal, Server, ServerConfig, SessionId},
    wire::message::RefuseCode,
};
use ropeway_net::{Clock, link::Session};

use super::busy;
use crate::metrics::{Gauge, GaugeHold};

/// Whose session it is. Only the same user, app and device may resume it, with the same key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) app: String,
    pub(crate) device: String,
    pub(crate) user: String,
}

/// One session and what the gateway knows around it.
pub(crate) struct Entry {
    id: SessionId,
    identity: Identity,
    session: Session<Server>,
    /// Registered at the bus as long as the session lives.
    interests: Mutex<Vec<Interest>>,
    /// Held while the session's events are acted on, so that they are in their order.
    settling: Mutex<()>,
    _held: GaugeHold,
}

impl Entry {
    pub(crate) const fn session(&self) -> &Session<Server> {
        &self.session
    }

    pub(crate) const fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn settling(&self) -> MutexGuard<'_, ()> {
        self.settling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Every session of the gateway.
///
/// Its lock is taken before a session's, never after: a link begins and ends under both, so that a session is never forgotten just
/// as it is resumed.
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    sessions_max: usize,
    ttl: Duration,
    held: Gauge,
}

#[derive(Default)]
struct Inner {
    sessions: HashMap<SessionId, Held>,
    /// Who is to get what: most targets have one session, so that a set for each would hold little but itself.
    targets: BTreeSet<(Target, SessionId)>,
    /// Sessions without a link, by when they are forgotten.
    detached: BTreeSet<(Time, SessionId)>,
}

struct Held {
    entry: Arc<Entry>,
    /// When the session is forgotten, where it has no link.
    expires: Option<Time>,
}

impl Registry {
    /// Makes an empty registry of at most `sessions_max` sessions, each kept for `ttl` after its link; `held` counts them.
    pub(crate) fn new(sessions_max: usize, ttl: Duration, held: Gauge) -> Self {
        Self { inner: Mutex::default(), sessions_max, ttl, held }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Entry>> {
        self.lock().sessions.values().map(|held| Arc::clone(&held.entry)).collect()
    }

    /// Returns the sessions a message for `target` is for.
    pub(crate) fn sessions(&self, target: &Target) -> Vec<Arc<Entry>> {
        match target {
            Target::All => self.all(),
            Target::Device(_) | Target::Topic(_) | Target::User(_) => {
                let inner = self.lock();
                let all = (target.clone(), SessionId(0))..=(target.clone(), SessionId(u64::MAX));
                let ids = inner.targets.range(all).map(|(_, id)| id);
                ids.filter_map(|id| inner.sessions.get(id)).map(|held| Arc::clone(&held.entry)).collect()
            }
        }
    }

    /// Begins a link of a new session, which `attach` is to change. Where the registry is full, the session that has been without
    /// a link for longest makes room.
    pub(crate) fn create(
        &self,
        identity: Identity,
        device_key: [u8; 32],
        config: Arc<ServerConfig>,
        clock: Clock,
        interests: &Interests,
        attach: impl FnOnce(&mut Server, Time),
    ) -> Result<(Arc<Entry>, u64), Refusal> {
        let targets = targets(&identity)?;
        let registered: Vec<Interest> = targets
            .iter()
            .chain([&Target::All])
            .map(|target| interests.interest(target.clone()))
            .collect::<Result<_, _>>()
            .map_err(|error| busy(&error.to_string()))?;
        let mut inner = self.lock();
        let mut evicted = None;
        if inner.sessions.len() >= self.sessions_max {
            let Some((_, oldest)) = inner.detached.pop_first() else {
                return Err(busy("this gateway holds as many links as it may"));
            };
            evicted = inner.sessions.remove(&oldest);
        }
        let id = loop {
            let id = SessionId(u64::from_be_bytes(crate::random_bytes()));
            if !inner.sessions.contains_key(&id) {
                break id;
            }
        };
        let cookie = Cookie::new(id, crate::random_bytes());
        let entry = Arc::new(Entry {
            id,
            identity,
            session: Session::new(Server::new(config, cookie, device_key, clock.now()), clock),
            interests: Mutex::new(registered),
            settling: Mutex::new(()),
            _held: self.held.hold(),
        });
        for target in targets {
            inner.targets.insert((target, id));
        }
        inner.sessions.insert(id, Held { entry: Arc::clone(&entry), expires: None });
        let (number, ()) = entry.session.begin_link_with(attach);
        drop(inner);
        if let Some(evicted) = evicted {
            self.forget(&evicted.entry);
        }
        Ok((entry, number))
    }

    /// Begins a link that takes over the session of `cookie`, which `attach` is to change; `None` if there is no such session.
    pub(crate) fn resume(
        &self,
        cookie: &Cookie,
        identity: &Identity,
        device_key: &[u8; 32],
        attach: impl FnOnce(&mut Server, Time),
    ) -> Result<Option<(Arc<Entry>, u64)>, Refusal> {
        let mut inner = self.lock();
        let Inner { sessions, detached, .. } = &mut *inner;
        let Some(held) = sessions.get_mut(&cookie.session()) else { return Ok(None) };
        let entry = Arc::clone(&held.entry);
        if entry.identity != *identity {
            return Err(Refusal::new(RefuseCode::ResumeRefused, "the session is another user's or device's"));
        }
        entry.session.peek(|server| server.check_resume(cookie, device_key))?;
        if let Some(at) = held.expires.take() {
            detached.remove(&(at, entry.id));
        }
        let (number, ()) = entry.session.begin_link_with(attach);
        Ok(Some((entry, number)))
    }

    /// Ends link `number`. Without a newer one the session is forgotten in time.
    pub(crate) fn detach(&self, entry: &Entry, number: u64, now: Time) {
        let mut inner = self.lock();
        if !entry.session.end_link(number) {
            return;
        }
        let at = now + self.ttl;
        let Inner { sessions, detached, .. } = &mut *inner;
        if let Some(held) = sessions.get_mut(&entry.id)
            && held.expires.is_none()
        {
            held.expires = Some(at);
            detached.insert((at, entry.id));
        }
    }

    /// Returns the number of sessions that have a link.
    pub(crate) fn attached_count(&self) -> usize {
        let inner = self.lock();
        inner.sessions.len() - inner.detached.len()
    }

    pub(crate) fn subscribe(&self, entry: &Entry, topic: &str, interests: &Interests) -> Result<(), NoTopic> {
        let target: Target = format!("topic:{topic}").parse().map_err(|_| NoTopic::Name)?;
        let interest = interests.interest(target.clone()).map_err(NoTopic::Full)?;
        let mut inner = self.lock();
        if inner.sessions.contains_key(&entry.id) {
            inner.targets.insert((target, entry.id));
            entry.interests().push(interest);
        }
        Ok(())
    }

    pub(crate) fn unsubscribe(&self, entry: &Entry, topic: &str) {
        let Ok(target) = format!("topic:{topic}").parse::<Target>() else { return };
        entry.interests().retain(|interest| *interest.target() != target);
        self.lock().targets.remove(&(target, entry.id));
    }

    /// Forgets the sessions whose time is over; returns when the next one's is.
    pub(crate) fn sweep(&self, now: Time) -> Option<Time> {
        loop {
            let mut gone = Vec::new();
            let mut inner = self.lock();
            let next = loop {
                let Some((at, id)) = inner.detached.first().copied() else { break None };
                if at > now || gone.len() >= SWEEP_MAX {
                    break Some(at);
                }
                inner.detached.pop_first();
                gone.extend(inner.sessions.remove(&id));
            };
            drop(inner);
            for held in &gone {
                self.forget(&held.entry);
            }
            if next.is_none_or(|at| at > now) {
                return next;
            }
        }
    }

    /// Forgets every session.
    pub(crate) fn clear(&self) {
        let mut inner = self.lock();
        inner.detached.clear();
        let gone: Vec<Held> = inner.sessions.drain().map(|(_, held)| held).collect();
        drop(inner);
        for held in &gone {
            self.forget(&held.entry);
        }
    }

    fn forget(&self, entry: &Entry) {
        let registered = std::mem::take(&mut *entry.interests());
        let mut inner = self.lock();
        for interest in &registered {
            inner.targets.remove(&(interest.target().clone(), entry.id));
        }
        drop(inner);
        entry.session.dissolve();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn interests(&self) -> MutexGuard<'_, Vec<Interest>> {
        self.interests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a session gets no messages of a topic it asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoTopic {
    #[error(transparent)]
    Full(InterestError),
    #[error("no topic can have this name")]
    Name,
}

impl NoTopic {
    /// Returns the stable name of the reason, for metrics.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Full(_) => "interests_full",
            Self::Name => "bad_topic",
        }
    }
}

/// What messages can be addressed to, besides topics.
fn targets(identity: &Identity) -> Result<Vec<Target>, Refusal> {
    let targets = [format!("user:{}", identity.user), format!("device:{}", identity.device)];
    targets
        .iter()
        .map(|target| target.parse())
        .collect::<Result<_, _>>()
        .map_err(|error| Refusal::new(RefuseCode::Protocol, format!("user or device cannot be addressed: {error}")))
}

/// Sessions forgotten before others get the lock.
const SWEEP_MAX: usize = 256;

#[cfg(test)]
mod tests;
