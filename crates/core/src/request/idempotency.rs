//! The memory of requests with an `Idempotency-Key`: which one runs, which ones wait for it, and which are answered from memory.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::Time;

/// What is remembered of keyed requests, so that each runs once.
///
/// `A` is the answer, or what will become it: the owner's handle, of which each repeat gets a clone. Running requests are kept
/// until [`finish`](Self::finish), finished ones for the time to live. Nothing that may have run is ever forgotten before its
/// time: when bytes run short the oldest answers go and their keys stay, when keys run short new ones are refused.
#[derive(Debug)]
pub struct Idempotency<A> {
    config: IdempotencyConfig,
    scopes: BTreeMap<Scope, Run>,
    entries: BTreeMap<Run, Entry<A>>,
    /// Finished requests and when they are forgotten, in this order.
    finished: VecDeque<(Time, Run)>,
    /// Those of them whose answers are kept, in the order in which these go.
    kept: VecDeque<Run>,
    kept_bytes: usize,
    next: Run,
}

/// The bounds of an [`Idempotency`] memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdempotencyConfig {
    /// Time that a finished request is remembered. Default: 10 min.
    pub ttl: Duration,
    /// Keys remembered at once, running ones included; further ones are refused. Default: 262,144.
    pub keys_max: usize,
    /// Bytes of the answers kept for finished requests, all together. Default: 64 MiB.
    pub bytes_max: usize,
}

impl Default for IdempotencyConfig {
    fn default() -> Self {
        Self { ttl: TTL, keys_max: KEYS_MAX, bytes_max: BYTES_MAX }
    }
}

/// One name of a keyed request: a digest over who sent it, the authority and the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(pub [u8; 32]);

/// A digest over what a keyed request asks for: its method, its path and its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub [u8; 32]);

/// The number of a remembered request; none is used twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run(u64);

/// What to do with a keyed request that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Begin<A> {
    /// Refuse it unexecuted: no further key can be remembered.
    Full,
    /// Do not run it. It has the answer of this one, if there still is one, or will have it.
    Join(Run, Option<A>),
    /// Run it, and say how it ended.
    Run(Run),
}

/// How a request that was to run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It ran, or may have, and what to answer takes so many bytes to remember.
    Answered {
        /// Bytes of the answer.
        bytes: usize,
    },
    /// It ran, or may have, and its answer is not to be had.
    Gone,
    /// It certainly did not run: the next one with its key does.
    NotExecuted,
}

/// How a repeat compares with the request it repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Likeness {
    /// It asks for something else under the same key.
    Different,
    /// It asks for the same.
    Same,
    /// Nobody knows yet, or nobody will: the body of the first has not been read to its end.
    Unknown,
}

impl<A: Clone> Idempotency<A> {
    /// Makes an empty memory.
    #[must_use]
    pub const fn new(config: IdempotencyConfig) -> Self {
        Self {
            config,
            scopes: BTreeMap::new(),
            entries: BTreeMap::new(),
            finished: VecDeque::new(),
            kept: VecDeque::new(),
            kept_bytes: 0,
            next: Run(0),
        }
    }

    /// Decides about a request that has arrived under any of these names, the safest first; `answer` makes the handle of its
    /// answer if it is to run. Names beyond the third are not heeded.
    pub fn begin(&mut self, scopes: &[Scope], answer: impl FnOnce() -> A, now: Time) -> Begin<A> {
        self.expire(now, EXPIRED_AT_ONCE_MAX);
        let scopes = &scopes[..scopes.len().min(SCOPES_MAX)];
        if let Some(run) = scopes.iter().find_map(|scope| self.scopes.get(scope)) {
            let entry = self.entries.get(run).expect("a name leads to an entry until the entry goes");
            return Begin::Join(*run, entry.answer.clone());
        }
        if self.entries.len() >= self.config.keys_max {
            return Begin::Full;
        }
        let run = self.next;
        self.next = Run(run.0 + 1);
        self.scopes.extend(scopes.iter().map(|scope| (*scope, run)));
        let entry = Entry { scopes: scopes.to_vec(), fingerprint: None, answer: Some(answer()), bytes: None };
        self.entries.insert(run, entry);
        Begin::Run(run)
    }

    /// Takes in what a running request asks for, once its body has been read.
    pub fn handle_fingerprint(&mut self, run: Run, fingerprint: Fingerprint) {
        if let Some(entry) = self.entries.get_mut(&run) {
            entry.fingerprint = Some(fingerprint);
        }
    }

    /// Compares a repeat with the request it repeats.
    #[must_use]
    pub fn compare(&self, run: Run, fingerprint: Fingerprint) -> Likeness {
        match self.entries.get(&run).and_then(|entry| entry.fingerprint) {
            Some(known) if known == fingerprint => Likeness::Same,
            Some(_) => Likeness::Different,
            None => Likeness::Unknown,
        }
    }

    /// Takes in that no further repeat can have the answer of a running request: it is too large to be kept.
    pub fn handle_overflow(&mut self, run: Run) {
        if let Some(entry) = self.entries.get_mut(&run) {
            entry.answer = None;
        }
    }

    /// Takes in how a running request has ended; the first word counts.
    pub fn finish(&mut self, run: Run, ending: Ending, now: Time) {
        let Some(entry) = self.entries.get_mut(&run).filter(|entry| entry.bytes.is_none()) else { return };
        match ending {
            Ending::NotExecuted => return self.forget(run),
            // Without a fingerprint no repeat can be told from another request, so none gets the answer.
            Ending::Answered { bytes } if entry.answer.is_some() && entry.fingerprint.is_some() => {
                entry.bytes = Some(bytes);
                self.kept.push_back(run);
                self.kept_bytes += bytes;
            }
            Ending::Answered { .. } | Ending::Gone => {
                entry.answer = None;
                entry.bytes = Some(0);
            }
        }
        self.finished.push_back((now + self.config.ttl, run));
        while self.kept_bytes > self.config.bytes_max {
            self.drop_oldest_answer();
        }
    }

    /// Forgets what has been remembered for its time.
    pub fn handle_timeout(&mut self, now: Time) {
        self.expire(now, usize::MAX);
    }

    /// Says when the next request is to be forgotten.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.finished.front().map(|(expires, _)| *expires)
    }

    /// Returns how many keys are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Says whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the bytes of the answers that are kept.
    #[must_use]
    pub const fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    fn expire(&mut self, now: Time, count_max: usize) {
        for _ in 0..count_max {
            match self.finished.front() {
                Some((expires, run)) if *expires <= now => {
                    let run = *run;
                    self.finished.pop_front();
                    self.forget(run);
                }
                Some(_) | None => return,
            }
        }
    }

    fn drop_oldest_answer(&mut self) {
        let run = self.kept.pop_front().expect("bytes belong to answers");
        if let Some(entry) = self.entries.get_mut(&run) {
            self.kept_bytes -= entry.bytes.replace(0).unwrap_or(0);
            entry.answer = None;
        }
    }

    fn forget(&mut self, run: Run) {
        if self.kept.front() == Some(&run) {
            self.drop_oldest_answer();
        }
        if let Some(entry) = self.entries.remove(&run) {
            for scope in entry.scopes {
                self.scopes.remove(&scope);
            }
        }
    }
}

#[derive(Debug)]
struct Entry<A> {
    scopes: Vec<Scope>,
    fingerprint: Option<Fingerprint>,
    answer: Option<A>,
    /// `None` while it runs.
    bytes: Option<usize>,
}

/// Time that a finished request is remembered. Payment interfaces say 24 h (Stripe, "Idempotent requests"), out of a database. This
/// memory is lost with the process, so it can only promise what a client needs that is still trying: 20 times the longest
/// deadline of 30 s that the client has by default, and the time a person takes to press a button again.
const TTL: Duration = Duration::from_secs(10 * 60);

/// Keys remembered at once: 436 new ones a second for the ten minutes, at about 300 bytes each.
const KEYS_MAX: usize = 1 << 18;

/// Bytes of answers kept: 4 KiB each for 16,384 answers. Where that is too little the oldest answers go first, which were most
/// likely received.
const BYTES_MAX: usize = 64 << 20;

/// Names of one request: its user or credentials, and the secret of its sender.
const SCOPES_MAX: usize = 3;

/// Requests forgotten before a new one is looked up, so that no one of them waits for all that expired in a quiet hour. More than
/// one, so that the memory shrinks.
const EXPIRED_AT_ONCE_MAX: usize = 64;

#[cfg(test)]
mod tests;
