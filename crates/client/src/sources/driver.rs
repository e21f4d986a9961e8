//! Does what the machine says: asks, waits, keeps, and tells.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use ropeway_core::{
    CarrierKind, Time,
    connect::sources::{
        Answer, AskId, Family, ListTrouble, Question, Resolution, Resolved, Server, Sources as Machine, SourcesConfig,
        SourcesOutput, SourcesWarning, Target,
    },
    wire::list::RESOLVE_CONTEXT,
};
use ropeway_net::{
    Clock,
    dns::{AddressKind, Answered, Binding, Dispatch, DnsError, Doh, Fetched, FetchedList, Signed, SystemResolver},
    unix_ms,
};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};
use tracing::{debug, warn};

use super::{SourcesEvent, state::StateFile};

/// The machine and everything it acts through.
pub(super) struct Inner {
    machine: Mutex<Machine>,
    clock: Clock,
    names: Names,
    clients: Clients,
    system: Mutex<Arc<SystemResolver>>,
    state: Option<StateFile>,
    watcher: Box<dyn Fn(SourcesEvent) + Send + Sync>,
    /// A dispatcher's time less the device's, in ms, as its certificate vouched for it last; zero where they are much the same.
    pub(super) clock_offset_ms: AtomicI64,
    pub(super) targets: watch::Sender<Arc<Vec<Target>>>,
    /// Counts how often something that is read from the machine became another.
    pub(super) changes: watch::Sender<u64>,
    /// Something that is read from the machine is another than before.
    changed: Notify,
    /// The machine's deadline may be another than before.
    rearmed: Arc<Notify>,
    /// For the tasks, which must not keep all this alive.
    own: Weak<Self>,
}

/// What the certificates of servers must carry, and what is allowed.
pub(super) struct Names {
    pub(super) gateway: String,
    pub(super) doh: BTreeMap<SocketAddr, String>,
    pub(super) carriers: Vec<CarrierKind>,
}

impl Names {
    fn allow(&self, carrier: CarrierKind) -> bool {
        self.carriers.is_empty() || self.carriers.contains(&carrier)
    }
}

/// What questions are asked with.
pub(super) struct Clients {
    /// Nothing where nobody is known who is asked over HTTPS.
    pub(super) web: Option<(Dispatch, Doh)>,
    /// Name servers to ask instead of the system's.
    pub(super) name_servers: Vec<SocketAddr>,
}

impl Clients {
    fn system(&self) -> Arc<SystemResolver> {
        Arc::new(match &self.name_servers[..] {
            [] => SystemResolver::new(),
            servers => SystemResolver::with_servers(servers),
        })
    }
}

impl Inner {
    pub(super) fn new(
        config: SourcesConfig,
        seed: u64,
        clock: Clock,
        names: Names,
        clients: Clients,
        state: Option<StateFile>,
        watcher: Box<dyn Fn(SourcesEvent) + Send + Sync>,
    ) -> Arc<Self> {
        let known: Vec<String> = config.names.iter().map(|point| point.name.clone()).collect();
        let machine = Machine::new(config, seed, clock.now());
        let inner = Arc::new_cyclic(|own| Self {
            machine: Mutex::new(machine),
            clock,
            names,
            system: Mutex::new(clients.system()),
            clients,
            state,
            watcher,
            clock_offset_ms: AtomicI64::new(0),
            targets: watch::Sender::new(Arc::default()),
            changes: watch::Sender::new(0),
            changed: Notify::new(),
            rearmed: Arc::new(Notify::new()),
            own: own.clone(),
        });
        inner.load();
        for name in known {
            inner.change(|machine, now, wall_ms| drop(machine.resolve(&name, now, wall_ms)));
        }
        inner
    }

    /// Begins to act on deadlines, until all handles are gone.
    pub(super) fn start(inner: Arc<Self>) -> Arc<Self> {
        let (own, rearmed) = (Weak::clone(&inner.own), Arc::clone(&inner.rearmed));
        tokio::spawn(async move {
            loop {
                let Some(deadline) = own.upgrade().map(|inner| inner.deadline()) else { return };
                let woken = rearmed.notified();
                match deadline {
                    Some(at) => {
                        tokio::select! {
                            () = woken => continue,
                            () = sleep_until(at) => {}
                        }
                    }
                    None => {
                        woken.await;
                        continue;
                    }
                }
                let Some(inner) = own.upgrade() else { return };
                inner.change(Machine::handle_timeout);
            }
        });
        inner.change(Machine::handle_timeout);
        inner
    }

    /// Reads something that changes nothing.
    pub(super) fn read<T>(&self, read: impl FnOnce(&Machine, Time, u64) -> T) -> T {
        read(&self.lock(), self.clock.now(), unix_ms())
    }

    /// Tells the machine something and does what it says then.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Machine, Time, u64) -> T) -> T {
        let mut outputs = Vec::new();
        let (told, targets) = {
            let mut machine = self.lock();
            let (now, wall_ms) = (self.clock.now(), unix_ms());
            let told = change(&mut machine, now, wall_ms);
            while let Some(output) = machine.poll_output() {
                outputs.push(output);
            }
            (told, machine.targets(now, wall_ms))
        };
        let is_allowed = |target: &Target| self.names.allow(target.candidate.carrier);
        let targets: Vec<Target> = targets.into_iter().filter(is_allowed).collect();
        self.targets.send_if_modified(|known| {
            let differs = **known != targets;
            if differs {
                *known = Arc::new(targets);
            }
            differs
        });
        for output in outputs {
            self.act(output);
        }
        self.rearmed.notify_one();
        told
    }

    /// Returns where a host is, once anybody knows; `None` if nobody does.
    pub(super) async fn resolve(&self, host: &str) -> Option<Vec<Resolved>> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.change(|machine, now, wall_ms| machine.resolve(host, now, wall_ms)) {
                Resolution::Failed => return None,
                Resolution::Ready(resolved) => return Some(resolved),
                Resolution::Wait => changed.await,
            }
        }
    }

    /// Returns the UDP port at which a host has HTTP/3 as its HTTPS record has it, if that is known by now and QUIC is allowed.
    pub(super) fn h3_port(&self, host: &str, port: u16) -> Option<u16> {
        let is_allowed = self.names.allow(CarrierKind::Quic);
        is_allowed.then(|| self.change(|machine, now, _| machine.h3_port(host, port, now))).flatten()
    }

    /// Reads the system's name servers anew.
    pub(super) fn renew_system(&self) {
        *self.system.lock().unwrap_or_else(PoisonError::into_inner) = self.clients.system();
    }

    /// Returns what asks the system, its name servers read anew where they may be others by now.
    fn system(&self) -> Arc<SystemResolver> {
        let mut system = self.system.lock().unwrap_or_else(PoisonError::into_inner);
        if system.is_outdated() {
            *system = self.clients.system();
        }
        Arc::clone(&system)
    }

    fn act(&self, output: SourcesOutput) {
        match output {
            SourcesOutput::Ask { ask, server, question } => self.ask(ask, server, question),
            SourcesOutput::Changed => {
                self.changed.notify_waiters();
                self.changes.send_modify(|changes| *changes += 1);
            }
            SourcesOutput::Store(document) => self.keep(document),
            SourcesOutput::Warn(warning) => {
                if let SourcesWarning::List(ListTrouble::Refused { error, .. }) = &warning {
                    // Without the address, which the event has.
                    warn!(%error, "access list is not believed");
                }
                (self.watcher)(SourcesEvent::Warning(warning));
            }
        }
    }

    fn ask(&self, ask: AskId, server: Server, question: Question) {
        let own = Weak::clone(&self.own);
        let asked = self.asking(server, question);
        tokio::spawn(async move {
            // The machine gives up before; this is for a machine that is gone.
            let answer = tokio::time::timeout(ASK_TIMEOUT, asked).await.unwrap_or_else(|_| failed("no answer"));
            if let Some(inner) = own.upgrade() {
                inner.change(|machine, now, wall_ms| machine.handle_answer(ask, answer, now, wall_ms));
            }
        });
    }

    /// Returns the future of one question; it holds nothing of this.
    fn asking(&self, server: Server, question: Question) -> impl Future<Output = Answer> + Send + 'static {
        let own = Weak::clone(&self.own);
        let web = self.clients.web.clone();
        let system = self.system();
        let name = self.name_of(server);
        async move {
            let answered = match (server, question, web) {
                (Server::Dispatch(address), Question::List { known_epoch_ms }, Some((dispatch, _))) => {
                    dispatch.list(address, &name, known_epoch_ms).await.map(|Fetched { date_ms, list }| {
                        if let (Some(inner), Some(date_ms)) = (own.upgrade(), date_ms) {
                            inner.clock_offset_ms.store(offset_ms(date_ms, unix_ms()), Ordering::Relaxed);
                        }
                        match list {
                            FetchedList::List(document) => Answer::List(document),
                            FetchedList::NotModified => Answer::NotModified,
                        }
                    })
                }
                (Server::Dispatch(address), Question::Host { name: host, .. }, Some((dispatch, _))) => {
                    dispatch.resolve(address, &name, &host).await.map(|signed| judged(&own, signed))
                }
                (Server::Doh(address), Question::Host { name: host, family }, Some((_, doh))) => {
                    doh.lookup(address, &name, &host, kind(family)).await.map(|answered| addresses(answered, false))
                }
                (Server::System, Question::Host { name: host, family }, _) => {
                    let own = system.is_listed(&host);
                    system.lookup(&host, kind(family)).await.map(|answered| addresses(answered, own))
                }
                (Server::Doh(address), Question::Service { name: host, port }, Some((_, doh))) => {
                    doh.binding(address, &name, &host, port).await.map(|binding| service(binding, port))
                }
                (Server::System, Question::Service { name: host, port }, _) => {
                    system.binding(&host, port).await.map(|binding| service(binding, port))
                }
                (Server::Dispatch(_), Question::Service { .. }, _) => Ok(failed("it has no records")),
                (Server::Doh(_) | Server::System, Question::List { .. }, _) => Ok(failed("it has no lists")),
                (Server::Dispatch(_) | Server::Doh(_), Question::Host { .. } | Question::List { .. }, None)
                | (Server::Doh(_), Question::Service { .. }, None) => Ok(failed("nobody is asked over HTTPS")),
            };
            answered.unwrap_or_else(|error| {
                debug!(?server, %error, "a source of addresses failed");
                if matches!(error, DnsError::NoName) { Answer::NoName } else { failed(&error.cause()) }
            })
        }
    }

    /// Returns the name that the certificate of a server must carry.
    fn name_of(&self, server: Server) -> String {
        match server {
            Server::Dispatch(address) => {
                let listed = self.read(|machine, _, _| machine.dispatch_gateway(address).map(str::to_owned));
                listed.unwrap_or_else(|| self.names.gateway.clone())
            }
            Server::Doh(address) => self.names.doh.get(&address).cloned().unwrap_or_else(|| address.ip().to_string()),
            Server::System => String::new(),
        }
    }

    /// Takes what the last process kept.
    fn load(&self) {
        let Some(state) = &self.state else { return };
        let stored = match state.load() {
            Ok(Some(document)) => document,
            Ok(None) => return,
            Err(reason) => return self.set_aside(state, reason),
        };
        let taken = self.change(|machine, now, wall_ms| machine.handle_stored(&stored, now, wall_ms));
        if let Err(error) = taken {
            self.set_aside(state, error.to_string());
        }
    }

    fn set_aside(&self, state: &StateFile, reason: String) {
        state.set_aside();
        (self.watcher)(SourcesEvent::StateIgnored { path: state.path().to_owned(), reason });
    }

    /// Writes a list to disk, away from the threads that must not wait for one.
    fn keep(&self, document: Bytes) {
        let Some(state) = self.state.clone() else { return };
        let own = Weak::clone(&self.own);
        tokio::task::spawn_blocking(move || {
            let Err(error) = state.store(&document) else { return };
            if let Some(inner) = own.upgrade() {
                let path = state.path().to_owned();
                (inner.watcher)(SourcesEvent::StateNotKept { path, reason: error.to_string() });
            }
        });
    }

    fn deadline(&self) -> Option<Instant> {
        self.lock().poll_timeout().map(|(at, _)| self.clock.instant(at))
    }

    fn lock(&self) -> MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The task that waits for deadlines looks up and finds nothing.
        self.rearmed.notify_one();
    }
}

/// Checks the signature of an answer of HTTPDNS.
fn judged(own: &Weak<Inner>, answer: Signed) -> Answer {
    let Some(inner) = own.upgrade() else { return failed("the client is gone") };
    let Signed { body, key_id, signature, answered, .. } = answer;
    let signed = inner.read(|machine, _, _| machine.is_signed(RESOLVE_CONTEXT, &body, &key_id, &signature));
    match answered {
        Some(Answered { addresses, ttl }) => Answer::Addresses { addresses, own: false, ttl, signed },
        None if signed => Answer::NoName,
        None => failed("its answer is neither an address nor signed"),
    }
}

fn failed(reason: &str) -> Answer {
    Answer::Failed(reason.to_owned())
}

fn addresses(answered: Answered, own: bool) -> Answer {
    Answer::Addresses { addresses: answered.addresses, own, ttl: answered.ttl, signed: false }
}

/// Reads where HTTP/3 is out of a record for URLs with this port.
fn service(binding: Option<Binding>, port: u16) -> Answer {
    let Some(binding) = binding else { return Answer::NoName };
    let speaks_h3 = binding.protocols.iter().any(|protocol| protocol == "h3");
    Answer::Service { h3_port: speaks_h3.then_some(binding.port.unwrap_or(port)), ttl: binding.ttl }
}

const fn kind(family: Family) -> AddressKind {
    match family {
        Family::V6 => AddressKind::V6,
        Family::Both | Family::V4 => AddressKind::V4,
    }
}

/// Returns a server's time less the device's; zero where it differs by no more than the time that its answer took, and the second that
/// dates are cut to.
fn offset_ms(date_ms: u64, here_ms: u64) -> i64 {
    let [told_ms, here_ms] = [date_ms.saturating_add(500), here_ms].map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let offset_ms = told_ms.saturating_sub(here_ms);
    if offset_ms.unsigned_abs() < OFFSET_MIN_MS { 0 } else { offset_ms }
}

/// Difference of clocks from which on it counts. 15 s; longer than any question is pursued, and a quarter of what gateways allow.
const OFFSET_MIN_MS: u64 = 15_000;

/// Longest time that a question is pursued. 15 s; longer than the machine waits for any answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_far_off_is_known_by_the_date_of_an_answer() {
        for (date_ms, here_ms, expected) in
            [(120_000, 0, 120_500), (0, 120_000, -119_500), (14_000, 0, 0), (0, 15_000, 0), (u64::MAX, 0, i64::MAX)]
        {
            assert_eq!(offset_ms(date_ms, here_ms), expected, "{date_ms} {here_ms}");
        }
    }
}
