//! What the handles of a client and the task that keeps its link share.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    task::Waker,
    time::Duration,
};

use http::HeaderValue;
use ropeway_core::{
    CarrierKind, Time,
    connect::{Candidate, OtherNetworks, Records},
    policy::Policy,
    quality::Island,
    request::{Budget, Detours, Hosts, LinkView, Way},
    session::{self, Feed, FeedItem},
    wire::message::RefuseCode,
};
use ropeway_net::{Clock, link::Session};
use tokio::sync::{Notify, Semaphore, watch};
use tracing::warn;

use crate::{
    Action, Error, Event, LinkState, Step,
    builder::Config,
    density::Density,
    identity::subject,
    pace::Pace,
    places::Places,
    short::{self, Short},
    sources::{Sources, SourcesSetup},
    way::Fate,
};

/// The client's end of a session, as its tasks share it.
pub(crate) type ClientSession = Session<session::Client>;

/// What every handle of a client and its link's task hold together.
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) clock: Clock,
    pub(crate) view: watch::Sender<View>,
    pub(crate) state: watch::Sender<LinkState>,
    pub(crate) wished: Notify,
    pub(crate) in_flight: AtomicUsize,
    pub(crate) short: Short,
    pub(crate) density: Density,
    /// The time-outs.
    pub(crate) pace: Arc<Pace>,
    pub(crate) log: Arc<AttemptLog>,
    /// Where addresses come from, once somebody wanted to know.
    sources: Arc<OnceLock<Option<Sources>>>,
    /// The network is another than the sources know.
    is_elsewhere: AtomicBool,
    /// The user, as far as a ticket said.
    user: Mutex<Option<String>>,
    /// How far the gateways' clocks are ahead of the device's, in ms, as a sealed pipe showed.
    pub(crate) clock_offset_ms: AtomicI64,
    /// An exchange on a link was given up before its end.
    pub(crate) was_cut: AtomicBool,
    /// Answers that were changed on their way.
    pub(crate) tampered: AtomicU64,
    /// How the addresses of the ways without connections did on this network.
    spots: Mutex<Records>,
    /// How they did on others.
    other_spots: Mutex<OtherNetworks>,
    /// The ways that failed lately on this network.
    detours: Mutex<Detours>,
    wishes: Mutex<Wishes>,
    roster: Mutex<Roster>,
    pushes: Mutex<Pushes>,
    budget: Mutex<Budget>,
}

/// What requests see of the link.
#[derive(Clone, Default)]
pub(crate) struct View {
    /// The session that takes new requests.
    pub(crate) live: Option<Live>,
    /// How the link is, in the words of a request's ladder.
    pub(crate) link: LinkView,
    /// What the gateways serve; `None` until they said so.
    pub(crate) hosts: Option<Arc<Hosts>>,
    /// Why waiting for a link is of no use.
    pub(crate) failure: Option<LinkFailure>,
    /// What went wrong last.
    pub(crate) trouble: Option<Arc<str>>,
    pub(crate) closed: bool,
}

/// A session with an open link.
#[derive(Clone)]
pub(crate) struct Live {
    /// Number of the session.
    pub(crate) number: u64,
    pub(crate) session: ClientSession,
    pub(crate) candidate: Candidate,
    /// One for each exchange that may be open.
    pub(crate) permits: Arc<Semaphore>,
    /// Whether anything behind the gateway can be reached.
    pub(crate) island: Arc<Mutex<Island>>,
    /// Where its links led.
    pub(crate) places: Places,
}

/// Why there is no link and none to be expected.
#[derive(Clone, Debug)]
pub(crate) enum LinkFailure {
    Refused {
        code: RefuseCode,
        detail: String,
    },
    Setup {
        reason: String,
    },
    Ticket {
        reason: String,
    },
    /// What answers at the access points is not trusted, as was seen at a time. On another try another may answer.
    Untrusted {
        reason: String,
        at: Time,
    },
}

/// What the handles want of the link's task.
#[derive(Debug, Default)]
pub(crate) struct Wishes {
    pub(crate) waiting: usize,
    /// The network changed: the label of the new one, empty where nobody has named it.
    pub(crate) network: Option<String>,
    pub(crate) ticket: Option<String>,
    /// The newest session whose gateway could not do what it is there for.
    pub(crate) unserved: Option<u64>,
    pub(crate) close: bool,
}

/// The sessions that have links, and the topics of all of them.
#[derive(Default)]
pub(crate) struct Roster {
    pub(crate) sessions: Vec<(u64, ClientSession)>,
    pub(crate) topics: Vec<String>,
}

#[derive(Default)]
struct Pushes {
    feed: Feed,
    /// Counts push streams; only the newest is served.
    stream: u64,
    waker: Option<Waker>,
}

impl Shared {
    pub(crate) fn new(config: Config) -> Self {
        let clock = Clock::new();
        let log = Arc::new(AttemptLog::new(clock));
        let pace = Arc::new(Pace::new(clock));
        let link = if config.seeks_links() {
            LinkView::Sought { since: None, alive_at: None, is_exhausted: false, denied: None }
        } else {
            LinkView::None
        };
        let view = View { hosts: config.hosts.clone(), link, ..View::default() };
        let roster = Roster { sessions: Vec::new(), topics: config.topics.clone() };
        let sources = Arc::new(OnceLock::<Option<Sources>>::new());
        let untrusted = Arc::clone(&sources);
        let user = config.tickets.fixed().and_then(subject);
        Self {
            short: Short::new(short::Setup {
                trust: config.trust.clone().unwrap_or_default(),
                h3_hosts: config.h3_hosts.clone(),
                limits: config.short_limits,
                race: config.establish.race.clone(),
                resolver: short::resolver(Arc::clone(&sources)),
                on_untrusted: Arc::new(move |host: &str, address| {
                    if let Some(Some(sources)) = untrusted.get() {
                        sources.handle_untrusted(host, address);
                    }
                }),
                log: Arc::clone(&log),
                pace: Arc::clone(&pace),
                clock,
            }),
            density: Density::new(&config.density),
            pace,
            config,
            clock,
            view: watch::Sender::new(view),
            state: watch::Sender::new(LinkState::Offline),
            wished: Notify::new(),
            in_flight: AtomicUsize::new(0),
            log,
            sources,
            is_elsewhere: AtomicBool::new(false),
            user: Mutex::new(user),
            clock_offset_ms: AtomicI64::new(0),
            was_cut: AtomicBool::new(false),
            tampered: AtomicU64::new(0),
            spots: Mutex::default(),
            other_spots: Mutex::default(),
            detours: Mutex::default(),
            wishes: Mutex::default(),
            roster: Mutex::new(roster),
            pushes: Mutex::default(),
            budget: Mutex::default(),
        }
    }

    /// Changes what is wanted of the link's task and wakes it.
    pub(crate) fn wish<R>(&self, change: impl FnOnce(&mut Wishes) -> R) -> R {
        let result = change(&mut lock(&self.wishes));
        self.wished.notify_one();
        result
    }

    /// Looks at what is wanted, without waking anyone.
    pub(crate) fn wishes(&self) -> MutexGuard<'_, Wishes> {
        lock(&self.wishes)
    }

    pub(crate) fn roster(&self) -> MutexGuard<'_, Roster> {
        lock(&self.roster)
    }

    /// Returns where addresses come from; nothing where TLS cannot be set up, and the system is asked. Must be called within a tokio
    /// runtime.
    pub(crate) fn sources(&self) -> Option<&Sources> {
        let start = || {
            let setup = SourcesSetup { seed: seed(), ..self.config.sources.clone() };
            let watcher = self.config.watcher.clone();
            Sources::start(setup, self.clock, move |event| watcher.tell(Event::Sources(event)))
                .inspect_err(|error| warn!(%error, "lists cannot be fetched, what the app named has to do"))
                .ok()
        };
        let sources = self.sources.get_or_init(start).as_ref();
        if self.is_elsewhere.load(Ordering::Relaxed) && self.is_elsewhere.swap(false, Ordering::AcqRel) {
            sources.into_iter().for_each(Sources::handle_network_changed);
        }
        sources
    }

    /// Takes in who the user is.
    pub(crate) fn handle_user(&self, user: Option<String>) {
        lock(&self.user).clone_from(&user);
        if let Some(sources) = self.sources() {
            sources.set_user(user);
        }
    }

    /// Returns the secret by which gateways know the keys of the current user again. It follows from the device's key, so that the next
    /// process has the same, and another user of the device has another.
    pub(crate) fn key_scope(&self) -> HeaderValue {
        let user = lock(&self.user).clone().unwrap_or_default();
        let signature = self.config.device_key.sign(format!("ropeway key scope\0{user}").as_bytes());
        let digits: String = signature.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        let mut value = HeaderValue::try_from(digits).expect("digits are a value");
        value.set_sensitive(true);
        value
    }

    /// Reads the policy that holds.
    pub(crate) fn with_policy<R>(&self, read: impl FnOnce(&Policy) -> R) -> R {
        match self.sources() {
            Some(sources) => sources.with_policy(read),
            None => read(&self.density.policy()),
        }
    }

    pub(crate) fn spots(&self) -> MutexGuard<'_, Records> {
        lock(&self.spots)
    }

    /// Takes in that the device is on another network, which may have a label: what was learned of the network before says nothing of
    /// this one.
    pub(crate) fn handle_network(&self, label: &str) {
        {
            let mut spots = self.spots();
            lock(&self.other_spots).handle_network(label, &mut spots);
            if label.is_empty() {
                *spots = Records::new();
            }
        }
        *self.detours() = Detours::new();
        self.short.handle_network(label);
        // They are told when they are asked next, which is within a runtime.
        self.is_elsewhere.store(true, Ordering::Release);
        self.wish(|wishes| wishes.network = Some(label.to_owned()));
    }

    pub(crate) fn detours(&self) -> MutexGuard<'_, Detours> {
        lock(&self.detours)
    }

    pub(crate) fn budget(&self) -> MutexGuard<'_, Budget> {
        lock(&self.budget)
    }

    /// Counts the caller among those who wait for a link.
    pub(crate) fn wait(self: &Arc<Self>) -> Result<Waiting, Error> {
        let mut wishes = self.wishes();
        if wishes.waiting >= WAITING_MAX {
            return Err(Error::TooManyWaiting { max: WAITING_MAX });
        }
        wishes.waiting += 1;
        let first = wishes.waiting == 1;
        drop(wishes);
        if first {
            self.wished.notify_one();
        }
        Ok(Waiting(Arc::clone(self)))
    }

    /// Changes the feed and wakes the push stream.
    pub(crate) fn feed<R>(&self, change: impl FnOnce(&mut Feed) -> R) -> R {
        let mut pushes = lock(&self.pushes);
        let result = change(&mut pushes.feed);
        if let Some(waker) = pushes.waker.take() {
            waker.wake();
        }
        result
    }

    /// Begins a push stream; an older one ends.
    pub(crate) fn begin_stream(&self) -> u64 {
        let mut pushes = lock(&self.pushes);
        pushes.stream += 1;
        if let Some(waker) = pushes.waker.take() {
            waker.wake();
        }
        pushes.stream
    }

    /// Takes what the app is shown next by push stream `stream`; `None` if the stream is no longer the newest.
    pub(crate) fn next_push(&self, stream: u64, waker: &Waker) -> Option<Option<FeedItem>> {
        let mut pushes = lock(&self.pushes);
        if pushes.stream != stream {
            return None;
        }
        let item = pushes.feed.take();
        if item.is_none() {
            pushes.waker = Some(waker.clone());
        }
        Some(item)
    }
}

impl LinkFailure {
    /// Says whether a request that began at a time need not wait for a link.
    pub(crate) fn concerns(&self, began: Time) -> bool {
        match self {
            Self::Refused { .. } | Self::Setup { .. } | Self::Ticket { .. } => true,
            Self::Untrusted { at, .. } => *at >= began,
        }
    }

    pub(crate) fn error(&self) -> Error {
        match self {
            Self::Refused { code, detail } => {
                Error::Refused { code: *code, detail: detail.clone(), timeline: Box::default() }
            }
            Self::Setup { reason } => Error::Setup { reason: reason.clone(), timeline: Box::default() },
            Self::Ticket { reason } => Error::Ticket { reason: reason.clone(), timeline: Box::default() },
            Self::Untrusted { reason, .. } => Error::Untrusted { reason: reason.clone(), timeline: Box::default() },
        }
    }
}

/// Counts one request that waits for a link.
pub(crate) struct Waiting(Arc<Shared>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.wishes().waiting -= 1;
    }
}

/// Counts one exchange that is under way: while there is one, a lost link is sought again in haste.
pub(crate) struct InFlight(Arc<Shared>);

impl InFlight {
    pub(crate) fn new(shared: &Arc<Shared>) -> Self {
        shared.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(shared))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::Relaxed) == 1 && self.0.view.borrow().closed {
            self.0.wished.notify_one();
        }
    }
}

/// The newest attempts to connect, from which requests put their timelines together.
#[derive(Debug)]
pub(crate) struct AttemptLog {
    clock: Clock,
    attempts: Mutex<(u64, VecDeque<Attempt>)>,
}

#[derive(Clone, Debug)]
struct Attempt {
    number: u64,
    way: Way,
    /// The host, where it is called without a gateway.
    host: Option<Arc<str>>,
    action: Action,
    candidate: Candidate,
    started: Time,
    ended: Option<Time>,
    error: Option<String>,
}

impl AttemptLog {
    pub(crate) const fn new(clock: Clock) -> Self {
        Self { clock, attempts: Mutex::new((0, VecDeque::new())) }
    }

    /// Notes the start of an attempt and returns its number.
    pub(crate) fn start(&self, way: Way, host: Option<Arc<str>>, action: Action, candidate: Candidate) -> u64 {
        let mut attempts = lock(&self.attempts);
        attempts.0 += 1;
        let number = attempts.0;
        if attempts.1.len() >= ATTEMPTS_MAX {
            attempts.1.pop_front();
        }
        let started = self.clock.now();
        attempts.1.push_back(Attempt { number, way, host, action, candidate, started, ended: None, error: None });
        number
    }

    /// Notes the end of an attempt. The first end stands.
    pub(crate) fn end(&self, number: u64, error: Option<String>) {
        let ended = self.clock.now();
        let mut attempts = lock(&self.attempts);
        if let Some(attempt) =
            attempts.1.iter_mut().rev().find(|attempt| attempt.number == number && attempt.ended.is_none())
        {
            attempt.ended = Some(ended);
            attempt.error = error;
        }
    }

    /// Returns the attempts for links, or for `host`, that were under way after `since`.
    pub(crate) fn steps(&self, host: Option<&str>, since: Time) -> Vec<Step> {
        let attempts = lock(&self.attempts);
        let wanted = attempts
            .1
            .iter()
            .filter(|attempt| attempt.host.as_deref() == host && attempt.ended.is_none_or(|ended| ended >= since));
        let step = |attempt: &Attempt| Step {
            action: attempt.action,
            way: attempt.way,
            address: Some(attempt.candidate.address),
            // Over TCP a short link has no carrier to tell of.
            carrier: (attempt.host.is_none() || attempt.candidate.carrier == CarrierKind::Quic)
                .then_some(attempt.candidate.carrier),
            started: attempt.started.since(since),
            ended: attempt.ended.map(|ended| ended.since(since)),
            error: attempt.error.clone(),
            status: None,
            fate: Fate::NothingSent,
        };
        wanted.map(step).collect()
    }
}

/// Waits until what is watched is another; for ever where there is nothing to watch.
pub(crate) async fn changed<T>(watched: &mut Option<watch::Receiver<T>>) {
    let is_over = match watched {
        Some(watched) => watched.changed().await.is_err(),
        None => true,
    };
    if is_over {
        std::future::pending::<()>().await;
    }
}

/// Draws a seed for what is decided by chance.
pub(crate) fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without random bytes every client of a crowd begins alike; nothing else depends on it.
    let _ = getrandom::fill(&mut seed);
    u64::from_le_bytes(seed)
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that runs under these locks leaves them half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Requests that may wait for a link at once. 1,000; our choice: a client whose gateways are gone must not grow without end.
pub(crate) const WAITING_MAX: usize = 1_000;

/// Exchanges that may be open on a link. 240: the 256 a gateway takes, less some that are being reset.
pub(crate) const EXCHANGES_MAX: usize = 240;

/// Attempts remembered: those of several races.
const ATTEMPTS_MAX: usize = 64;

/// How long the head of an answer may take by default. 40 s; Mars `stn.cc`, the whole time of a task with one retry.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(40);
