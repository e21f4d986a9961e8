//! What lies around an exchange so that many requests fit through a narrow network: loops in the app are stopped, identical GETs share
//! one exchange, routes have room for so many at once, and answers come packed.

mod batching;
#[cfg(feature = "zstd")]
mod compress;
mod kept;
mod limits;
mod options;
mod sharing;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{Request, Response, Uri, uri::Authority};
use ropeway_core::{
    policy::Policy,
    request::{Fingerprint, Guard, LimitRule, RoutePattern, SharedKey},
};
use tokio::{
    task,
    time::{Instant, timeout_at},
};
use tracing::debug;

use self::{batching::Batching, limits::Limits, sharing::Sharing};
pub(crate) use self::{
    kept::Kept,
    options::{Config, Wishes},
};
use crate::{
    Body, Error, Phase, Progress, Timeline,
    client::Handle,
    decode,
    exchange::{self, Options},
    shared::{ANSWER_WITHIN, lock},
};

/// What the requests of a client know of each other.
#[derive(Debug)]
pub(crate) struct Density {
    batching: Batching,
    guard: Option<Mutex<Guard>>,
    limits: Limits,
    policy: Mutex<Arc<Policy>>,
    sharing: Sharing,
    /// The app says that the network is weak.
    is_told_weak: AtomicBool,
    /// The network is weak, by that or by what was measured.
    weak: AtomicBool,
    /// Host, path prefix and most requests at once of each limit that the policy asks for.
    asked_limits: Mutex<Vec<(String, String, u32)>>,
}

impl Density {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            batching: Batching::new(config.batch_routes.clone(), config.batching),
            guard: config.guard.map(|config| Mutex::new(Guard::new(config))),
            limits: Limits::new(config.limits.clone()),
            policy: Mutex::default(),
            sharing: Sharing::new(config.sharing),
            is_told_weak: AtomicBool::new(false),
            weak: AtomicBool::new(false),
            asked_limits: Mutex::default(),
        }
    }

    /// Takes in what the gateways ask for over a link, unless it is older than what they asked for last.
    pub(crate) fn handle_policy(&self, document: &[u8]) {
        let policy = match Policy::decode(document) {
            Ok(policy) => policy,
            Err(error) => {
                debug!(%error, "policy cannot be read");
                return;
            }
        };
        let mut known = lock(&self.policy);
        if policy.epoch_ms >= known.epoch_ms {
            *known = Arc::new(policy);
        }
    }

    /// Obeys the limits of the policy that holds. The app's own stay.
    pub(crate) fn obey(&self, policy: &Policy, config: &Config) {
        let limits = policy.routes.iter().filter_map(|route| {
            route.concurrency_max.map(|max| (route.host.as_str(), route.path_prefix.as_str(), max))
        });
        let mut known = lock(&self.asked_limits);
        if limits.clone().eq(known.iter().map(|(host, path, max)| (host.as_str(), path.as_str(), *max))) {
            return;
        }
        let rule = |(host, path, max)| LimitRule { route: RoutePattern::new(host, path), in_flight_max: max };
        self.limits.set_rules(config.limits.rules.iter().cloned().chain(limits.clone().map(rule)).collect());
        *known = limits.map(|(host, path, max)| (host.to_owned(), path.to_owned(), max)).collect();
    }

    /// Returns what the gateways ask for over links.
    pub(crate) fn policy(&self) -> Arc<Policy> {
        Arc::clone(&lock(&self.policy))
    }

    /// Takes in whether the app says that the network is weak.
    fn set_weak(&self, told: bool, measured: bool) {
        self.is_told_weak.store(told, Ordering::Relaxed);
        self.note_weak(measured);
    }

    /// Takes in whether the network is weak by what was measured.
    fn note_weak(&self, measured: bool) {
        let weak = measured || self.is_told_weak.load(Ordering::Relaxed);
        if self.weak.swap(weak, Ordering::Relaxed) != weak {
            self.limits.set_weak(weak);
            self.batching.set_weak(weak);
        }
    }
}

/// Sends a request and returns the head of its answer, with what was tried for it.
pub(crate) async fn run(
    handle: Handle,
    mut request: Request<Body>,
    options: Options,
    wishes: Wishes,
) -> Result<(Response<Body>, Timeline), Error> {
    let shared = handle.shared();
    if let Err(error) = check_frequency(&handle, &request, &wishes) {
        // A loop that asks again at once would keep its thread from everything else.
        task::yield_now().await;
        return Err(error);
    }
    #[cfg(feature = "zstd")]
    compress::pack(&handle, &mut request, &wishes).await;
    let config = &shared.config.density;
    shared.density.note_weak(shared.pace.is_weak());
    let decodes = config.codings && decode::ask(request.headers_mut());
    let total = options.timeout.or(shared.config.timeout);
    let rules = shared.with_policy(|policy| {
        shared.density.obey(policy, config);
        policy.route(place(request.uri()).0, request.uri().path())
    });
    let shares = rules.coalesce && wishes.coalesce.unwrap_or(config.coalesce) && is_empty(request.body());
    let key = shares.then(|| {
        let facts = format!("{:?} {:?} {decodes}", Options { timeout: None, ..options }, wishes.priority);
        let wants = wishes.coalesce == Some(true);
        SharedKey::new(request.method(), request.uri(), request.headers(), &facts, wants)
    });
    let _changes =
        (!request.method().is_safe()).then(|| Changes { handle: handle.clone(), url: request.uri().clone() });
    let patience = Patience { began: Instant::now(), total };
    let call = Call { handle, request, options, wishes, decodes, patience };
    match key.flatten() {
        Some(key) => {
            call.note_carried();
            sharing::run(call, key).await
        }
        None if call.handle.shared().density.batching.takes(&call, rules.batch) => {
            call.note_carried();
            batching::run(call).await
        }
        None => call.go().await,
    }
}

/// Refuses what comes of a loop. Bodies that are streams, or long, are not compared.
fn check_frequency(handle: &Handle, request: &Request<Body>, wishes: &Wishes) -> Result<(), Error> {
    let shared = handle.shared();
    let Some(guard) = shared.density.guard.as_ref().filter(|_| !wishes.frequent) else { return Ok(()) };
    let Some(body) = request.body().bytes().filter(|body| body.len() <= GUARDED_BYTES_MAX) else { return Ok(()) };
    let same = Fingerprint::new(request.method().as_str(), &request.uri().to_string(), body);
    let checked = lock(guard).handle_request(same, shared.clock.now());
    checked.map_err(|found| Error::TooFrequent { times_max: found.times_max, within: found.within })
}

/// Returns host and port of a URL, which need not be one that can be called.
fn place(uri: &Uri) -> (&str, u16) {
    let port = if uri.scheme_str() == Some("http") { 80 } else { 443 };
    (uri.host().unwrap_or_default(), uri.port_u16().unwrap_or(port))
}

fn is_empty(body: &Body) -> bool {
    body.bytes().is_some_and(bytes::Bytes::is_empty)
}

/// One request on its way to an exchange.
struct Call {
    handle: Handle,
    request: Request<Body>,
    options: Options,
    wishes: Wishes,
    decodes: bool,
    patience: Patience,
}

/// The time a request has, from when the app sent it.
#[derive(Clone, Copy)]
struct Patience {
    began: Instant,
    /// Unless the app bounds it, only the head of the answer has a time.
    total: Option<Duration>,
}

impl Patience {
    /// Waits for something before the request is sent.
    async fn within<F: Future>(self, something: F) -> Result<F::Output, Error> {
        let after = self.total.unwrap_or(ANSWER_WITHIN);
        let waited = timeout_at(self.began + after, something).await;
        waited.map_err(|_| Error::Timeout { phase: Phase::Connect, after, list: None, timeline: Box::default() })
    }

    fn left(self) -> Option<Duration> {
        self.total.map(|total| total.saturating_sub(self.began.elapsed()))
    }
}

impl Call {
    fn sharing(&self) -> &Sharing {
        &self.handle.shared().density.sharing
    }

    /// Notes that another request may carry this one.
    fn note_carried(&self) {
        self.request.extensions().get().into_iter().for_each(Progress::handle_carried);
    }

    /// Takes a place on the route and sends.
    async fn go(mut self) -> Result<(Response<Body>, Timeline), Error> {
        let limits = self.handle.shared().density.limits.clone();
        let uri = self.request.uri().clone();
        let (host, port) = place(&uri);
        let slot = self.patience.within(limits.acquire(host, port, uri.path(), self.wishes.priority)).await?;
        let slot = slot.map_err(|full| Error::RouteBusy { route: full.route, waiting_max: full.waiting_max })?;
        // What it waited counts against its time.
        self.options.timeout = self.patience.left();
        let method = self.request.method().clone();
        let config = self.handle.shared().config.density.decode;
        let pace = Arc::clone(&self.handle.shared().pace);
        self.handle.shared().with_policy(|policy| pace.handle_policy(policy));
        let sent = exchange::run(self.handle, self.request, self.options).await;
        let sent = sent.inspect_err(|error| pace.handle_error(error));
        let (response, timeline) = sent.map_err(|error| with_total(error, self.patience.total))?;
        let response = match slot {
            Some(slot) => response.map(|body| Body::kept(Kept::holding(body, slot))),
            None => response,
        };
        let response = if self.decodes { decode::answer(&method, response, config) } else { response };
        Ok((response, timeline))
    }
}

/// Tells the time a request had, not what was left of it when it was sent.
fn with_total(mut error: Error, total: Option<Duration>) -> Error {
    if let (Error::Timeout { after, .. }, Some(total)) = (&mut error, total) {
        *after = total;
    }
    error
}

/// A request under way that may change what others ask for.
struct Changes {
    handle: Handle,
    url: Uri,
}

impl Drop for Changes {
    fn drop(&mut self) {
        let authority = self.url.authority().map_or("", Authority::as_str);
        self.handle.shared().density.sharing.changed(authority);
    }
}

/// Bytes of a body that the frequency guard compares: 1 MiB, our choice; a loop sends what is small, and comparing takes time.
const GUARDED_BYTES_MAX: usize = 1024 * 1024;
