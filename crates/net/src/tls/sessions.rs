//! The sessions that clients may resume, each once.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::server::StoresServerSessions;

/// A bounded store of TLS sessions in memory.
///
/// A session is given out at most once, which is what makes early data safe from replay at this server (RFC 8446
/// section 8.1, single-use tickets). The oldest go first when it is full: a session lives until the capacity's worth of
/// later ones came, or [`SessionStore::LIFETIME`]. Nothing is written to disk. A session takes about 300 bytes, so the
/// default capacity takes at most 30 MB, and none of it before it is used.
pub struct SessionStore {
    shards: [Mutex<Shard>; SHARDS],
    lifetime: Duration,
    evicted: AtomicU64,
    missed: AtomicU64,
    stored: AtomicU64,
    taken: AtomicU64,
}

/// What happened to sessions since the store was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Pushed out by newer ones, not counting expired ones.
    pub evicted: u64,
    /// Asked for and not there: unknown, already taken, evicted or expired.
    pub missed: u64,
    /// Put in.
    pub stored: u64,
    /// Given out.
    pub taken: u64,
}

impl SessionStore {
    /// 100,000 sessions: the two of each of 50,000 clients.
    pub const CAPACITY: usize = 100_000;

    /// 24 hours, the lifetime that rustls writes into its tickets.
    pub const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);

    /// Makes an empty store for `capacity` sessions, rounded up to a multiple of 16; at least 16.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let slots_max = capacity.div_ceil(SHARDS).max(1);
        Self {
            shards: std::array::from_fn(|_| Mutex::new(Shard::new(slots_max))),
            lifetime: Self::LIFETIME,
            evicted: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            taken: AtomicU64::new(0),
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> SessionCounts {
        SessionCounts {
            evicted: self.evicted.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
            stored: self.stored.load(Ordering::Relaxed),
            taken: self.taken.load(Ordering::Relaxed),
        }
    }

    /// Returns the number of sessions held, expired ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).index.len()).sum()
    }

    /// Says whether no session is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn put_at(&self, key: &[u8], value: Vec<u8>, now: Instant) -> bool {
        let Ok(key) = Key::try_from(key) else { return false };
        if value.len() > VALUE_BYTES_MAX {
            return false;
        }
        let entry = Entry { key, value: value.into_boxed_slice(), expires: now + self.lifetime };
        if let Some(evicted) = lock(self.shard(&key)).put(entry)
            && evicted.expires > now
        {
            self.evicted.fetch_add(1, Ordering::Relaxed);
        }
        self.stored.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn take_at(&self, key: &[u8], now: Instant) -> Option<Vec<u8>> {
        let entry = Key::try_from(key).ok().and_then(|key| lock(self.shard(&key)).take(&key));
        let value = entry.filter(|entry| entry.expires > now).map(|entry| entry.value.into_vec());
        let counter = if value.is_some() { &self.taken } else { &self.missed };
        counter.fetch_add(1, Ordering::Relaxed);
        value
    }

    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        &self.shards[usize::from(key[0]) % SHARDS]
    }
}

impl Default for SessionStore {
    fn default() -> Self {
        Self::new(Self::CAPACITY)
    }
}

impl fmt::Debug for SessionStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionStore").field("counts", &self.counts()).finish_non_exhaustive()
    }
}

impl StoresServerSessions for SessionStore {
    fn put(&self, key: Vec<u8>, value: Vec<u8>) -> bool {
        self.put_at(&key, value, Instant::now())
    }

    /// Finds nothing: only TLS 1.2 resumes without taking, and a session here is good for one use.
    fn get(&self, _key: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.take_at(key, Instant::now())
    }

    fn can_cache(&self) -> bool {
        true
    }
}

/// The identity that rustls makes for a session: 32 random bytes.
type Key = [u8; 32];

struct Entry {
    key: Key,
    value: Box<[u8]>,
    expires: Instant,
}

/// One part of the store: a ring in order of arrival, and an index into it.
struct Shard {
    slots: Vec<Option<Entry>>,
    slots_max: usize,
    next: usize,
    index: HashMap<Key, usize>,
}

impl Shard {
    fn new(slots_max: usize) -> Self {
        Self { slots: Vec::new(), slots_max, next: 0, index: HashMap::new() }
    }

    /// Puts an entry in and returns the one it replaced.
    fn put(&mut self, entry: Entry) -> Option<Entry> {
        let replaced = self.take(&entry.key);
        let at = self.next;
        self.next = (at + 1) % self.slots_max;
        self.index.insert(entry.key, at);
        if at == self.slots.len() {
            self.slots.push(Some(entry));
            return replaced;
        }
        let evicted = self.slots[at].replace(entry);
        if let Some(evicted) = &evicted {
            self.index.remove(&evicted.key);
        }
        evicted.or(replaced)
    }

    fn take(&mut self, key: &Key) -> Option<Entry> {
        let at = self.index.remove(key)?;
        self.slots[at].take()
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    // No code that holds the lock can leave a shard half changed.
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 16 locks, so that handshakes on as many cores rarely wait for each other.
const SHARDS: usize = 16;

/// Most bytes of one session; rustls's take 94 on TCP, some more with QUIC's transport parameters.
const VALUE_BYTES_MAX: usize = 2 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(shard: u8, n: u8) -> Vec<u8> {
        let mut key = vec![0; 32];
        (key[0], key[31]) = (shard, n);
        key
    }

    #[test]
    fn a_session_is_taken_exactly_once() {
        let store = SessionStore::new(100);
        assert!(store.put(key(1, 1), b"session".to_vec()));

        assert_eq!(store.take(&key(1, 1)).as_deref(), Some(&b"session"[..]));
        assert_eq!(store.take(&key(1, 1)), None);
        assert_eq!(store.counts(), SessionCounts { evicted: 0, missed: 1, stored: 1, taken: 1 });
        assert!(store.is_empty());
    }

    #[test]
    fn a_session_raced_for_by_many_threads_goes_to_one() {
        let store = SessionStore::new(100);
        assert!(store.put(key(1, 1), b"session".to_vec()));

        let winners: usize = std::thread::scope(|scope| {
            let takers: Vec<_> =
                (0..8).map(|_| scope.spawn(|| usize::from(store.take(&key(1, 1)).is_some()))).collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).sum()
        });

        assert_eq!(winners, 1);
    }

    #[test]
    fn a_full_shard_gives_up_its_oldest_session() {
        let store = SessionStore::new(3 * SHARDS);
        for n in 0..4 {
            assert!(store.put(key(1, n), vec![n]));
        }

        assert_eq!(store.take(&key(1, 0)), None);
        for n in 1..4 {
            assert_eq!(store.take(&key(1, n)), Some(vec![n]));
        }
        assert_eq!(store.counts().evicted, 1);
    }

    #[test]
    fn the_store_never_holds_more_than_its_capacity() {
        let store = SessionStore::new(100);
        for shard in 0..=255 {
            for n in 0..20 {
                assert!(store.put(key(shard, n), vec![n]));
                store.take(&key(shard, n / 2));
            }
        }

        assert!(store.len() <= 112, "{} sessions", store.len());
        for shard in &store.shards {
            let shard = lock(shard);
            assert_eq!(shard.index.len(), shard.slots.iter().flatten().count());
            assert!(shard.slots.len() <= 7);
        }
    }

    #[test]
    fn a_session_expires_after_a_day() {
        let store = SessionStore::new(100);
        let now = Instant::now();
        assert!(store.put_at(&key(1, 1), vec![1], now));
        assert!(store.put_at(&key(1, 2), vec![2], now));

        assert!(store.take_at(&key(1, 1), now + SessionStore::LIFETIME - Duration::from_secs(1)).is_some());
        assert!(store.take_at(&key(1, 2), now + SessionStore::LIFETIME).is_none());
    }

    #[test]
    fn keys_that_rustls_never_makes_are_refused() {
        let store = SessionStore::new(100);

        assert!(!store.put(vec![1; 31], vec![1]));
        assert_eq!(store.take(&[]), None);
        assert_eq!(store.take(&[1; 300]), None);
        assert!(!store.put(key(1, 1), vec![0; VALUE_BYTES_MAX + 1]));
        assert_eq!(store.counts().stored, 0);
    }

    #[test]
    fn putting_a_key_again_replaces_its_session() {
        let store = SessionStore::new(100);
        assert!(store.put(key(1, 1), vec![1]));
        assert!(store.put(key(1, 1), vec![2]));

        assert_eq!(store.len(), 1);
        assert_eq!(store.take(&key(1, 1)), Some(vec![2]));
    }
}
