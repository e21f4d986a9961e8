//! The connections of a client: opened, greeted, driven as links, dropped.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use ropeway_core::{
    CarrierKind,
    connect::{Candidate, ConnectionId, DropReason, Ended, FailReason, LostReason, Place, Prepared, Source, Unit},
    heartbeat::{INTERVAL_QUIC, INTERVAL_TCP},
    request::Way,
    session::{self, ClientConfig, HelloFacts, LinkError},
};
use ropeway_net::{
    carrier::CarrierError,
    dial::{DialError, Dialed, socket_reason},
    link::Session,
    unix_ms,
};
use tokio::{sync::Semaphore, task::AbortHandle, time::timeout};
use tracing::{Instrument as _, debug, debug_span};

use super::{Answered, Engine, Fetched, Job, Member, link::Link};
use crate::{
    Action, Event,
    builder::{AccessPoint, Seat},
    identity::{Tickets, audience, subject},
    places::Places,
    shared::{EXCHANGES_MAX, Shared},
    sources::{Sources, Target},
};

/// A connection and what it is at.
pub(super) struct Connection {
    candidate: Candidate,
    /// The name that its gateway's certificate must carry, and that HELLO is for.
    gateway: Arc<str>,
    /// What it is at in the log of attempts.
    log: Option<u64>,
    stage: Stage,
}

enum Stage {
    Dialed(Dialed),
    Dialing(AbortHandle),
    Link { session: u64, link: u64, task: AbortHandle },
}

impl Engine {
    /// Fetches addresses and ticket.
    pub(super) fn prepare(&mut self, generation: u64) {
        let stagger_max = self.shared.with_policy(|policy| policy.stagger_max);
        self.keeper.handle_stagger(self.shared.pace.network_kind(), stagger_max);
        let known = self.ticket.clone();
        let (points, tickets) = (self.shared.config.access_points.clone(), self.shared.config.tickets.clone());
        let listed = listed(&self.shared);
        let mut places: Vec<Place> = points.iter().flat_map(AccessPoint::known).collect();
        places.extend(listed);
        // Names are not waited for where there is somewhere to go already.
        let is_known = !places.is_empty() || !self.resolved.is_empty();
        let sources = self.shared.sources().cloned();
        let within = if is_known { LOOKUP_BESIDE_WITHIN } else { LOOKUP_WITHIN };
        self.jobs.spawn(async move {
            let (resolved, ticket) = tokio::join!(resolve(&points, sources.as_ref(), within), fetch(known, &tickets));
            Job::Fetched(Fetched { generation, places, resolved, ticket })
        });
    }

    pub(super) fn handle_fetched(&mut self, fetched: Fetched) {
        let Fetched { generation, mut places, resolved, ticket } = fetched;
        if !resolved.is_empty() {
            self.resolved = resolved;
        }
        places.extend(self.resolved.iter().cloned());
        self.names_nothing = places.is_empty();
        if self.names_nothing {
            self.trouble = Some("no name of an access point was resolved".into());
        }
        let ticket = match ticket {
            Ok(ticket) => {
                self.shared.handle_user(subject(&ticket));
                self.ticket = Some(ticket);
                None
            }
            Err(reason) => Some(reason),
        };
        self.keeper.handle_prepared(generation, Prepared { places, ticket }, self.shared.clock.now());
    }

    /// Opens a connection to a gateway, of the name that the app gave where its place has none.
    pub(super) fn dial(&mut self, number: ConnectionId, candidate: Candidate, gateway: Option<Arc<str>>) {
        let gateway = gateway.unwrap_or_else(|| self.shared.config.gateway.as_str().into());
        let log = self.shared.log.start(Way::Link, None, Action::Connect, candidate);
        let (dialer, answers) = (self.dialer.clone(), self.answers.0.clone());
        let name = Arc::clone(&gateway);
        let task = self.jobs.spawn(async move {
            // Where nobody takes the sign of life, the race goes on as if there were none.
            let answered = move |rtt| drop(answers.try_send(Answered { connection: number, rtt }));
            Job::Dialed { connection: number, dialed: dialer.dial_watched(candidate, &name, answered).await }
        });
        let stage = Stage::Dialing(task);
        self.connections.insert(number, Connection { candidate, gateway, log: Some(log), stage });
    }

    pub(super) fn handle_dialed(&mut self, number: ConnectionId, dialed: Result<Dialed, DialError>) {
        let now = self.shared.clock.now();
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let log = connection.log.take();
        match dialed {
            Ok(dialed) => {
                log.into_iter().for_each(|log| self.shared.log.end(log, None));
                let rtt = dialed.rtt;
                connection.stage = Stage::Dialed(dialed);
                self.shared.pace.handle_rtt(rtt);
                self.keeper.handle_connected(number, rtt, now);
            }
            Err(error) => {
                let candidate = connection.candidate;
                self.connections.remove(&number);
                log.into_iter().for_each(|log| self.shared.log.end(log, Some(error.cause())));
                debug!(%error, "attempt failed");
                self.tell_failed(candidate, error.to_string());
                self.keeper.handle_dial_failed(number, error.reason(), now);
                // Requests that wait are to say what went wrong, should nothing else happen.
                self.publish();
            }
        }
    }

    /// Drops a connection without a goodbye, whatever it is at.
    pub(super) fn drop_connection(&mut self, number: ConnectionId, reason: DropReason) {
        let told = reason.to_string();
        self.note_end(number, &told);
        let Some(connection) = self.connections.remove(&number) else { return };
        let Connection { candidate, log, stage, .. } = connection;
        log.into_iter().for_each(|log| self.shared.log.end(log, Some(told.clone())));
        if reason == DropReason::NoWelcome {
            self.tell_failed(candidate, told);
        }
        match stage {
            Stage::Dialed(_) => {}
            Stage::Dialing(task) => task.abort(),
            Stage::Link { session, link, task } => {
                task.abort();
                if let Some(member) = self.members.get(&session) {
                    member.session.end_link(link);
                }
            }
        }
    }

    /// Says HELLO for a session on a connection.
    pub(super) fn greet(&mut self, number: ConnectionId, session: u64, fresh: bool) {
        if fresh {
            self.make_session(session);
        }
        let Some(Connection { candidate, gateway, stage: Stage::Dialed(dialed), .. }) =
            self.connections.remove(&number)
        else {
            return;
        };
        let log = self.shared.log.start(Way::Link, None, Action::Greet, candidate);
        let facts = self.facts(candidate.carrier, &gateway);
        let Some(member) = self.members.get(&session) else { return };
        let key = self.shared.config.device_key.clone();
        let binding = dialed.carrier.binding();
        // Without a key to believe a list by, the policy alone is wanted.
        let list_epoch_ms = self.shared.sources().map_or(u64::MAX, Sources::list_epoch_ms);
        let (link, ()) = member.session.begin_link_with(|client, now| {
            let sign = |message: &[u8]| key.sign(message);
            client.set_list_epoch(list_epoch_ms);
            client.connect(facts, &sign, now);
            if let Some(binding) = binding {
                client.prove(&binding, &sign);
            }
        });
        let driven = Link {
            shared: Arc::clone(&self.shared),
            connection: number,
            number: link,
            session: member.session.clone(),
            reports: self.reports.0.clone(),
            leaving: Arc::clone(&member.leaving),
        };
        member.places.begin(link, candidate, self.shared.clock.now());
        let span = debug_span!("link", session, link, carrier = %candidate.carrier);
        let task = tokio::spawn(driven.run(dialed.carrier).instrument(span)).abort_handle();
        let stage = Stage::Link { session, link, task };
        self.connections.insert(number, Connection { candidate, gateway, log: Some(log), stage });
    }

    /// The gateway said WELCOME.
    pub(super) fn handle_welcome(&mut self, number: ConnectionId, resumed: bool, hosts: &[String]) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.log.take().into_iter().for_each(|log| self.shared.log.end(log, None));
        let candidate = connection.candidate;
        self.welcome(candidate, resumed, hosts);
        self.keeper.handle_welcomed(number, self.shared.clock.now());
    }

    /// A connection that was greeted broke, or was refused.
    pub(super) fn end_greeting(&mut self, number: ConnectionId, reason: &str) {
        self.note_end(number, reason);
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let candidate = connection.candidate;
        if let Some(log) = connection.log.take() {
            self.shared.log.end(log, Some(reason.to_owned()));
            self.tell_failed(candidate, reason.to_owned());
        }
    }

    /// Notes why a connection that was greeted, or a link, ended: requests that were sent on it tell of it.
    pub(super) fn note_end(&self, number: ConnectionId, reason: &str) {
        if let Some(Connection { stage: Stage::Link { session, link, .. }, .. }) = self.connections.get(&number)
            && let Some(member) = self.members.get(session)
        {
            member.places.end(*link, reason, self.shared.clock.now());
        }
    }

    /// Says whether WELCOME is awaited on a connection.
    pub(super) fn greets(&self, number: ConnectionId) -> bool {
        self.connections.get(&number).is_some_and(|connection| connection.log.is_some())
    }

    /// Makes a session that has no link yet.
    fn make_session(&mut self, number: u64) {
        let config = &self.shared.config;
        let named = || self.ticket.as_deref().and_then(audience);
        let machine = session::Client::new(
            ClientConfig {
                app: config.app.clone().or_else(named).unwrap_or_default(),
                device: config.device_id.clone(),
                sdk: concat!("ropeway-rust/", env!("CARGO_PKG_VERSION")).into(),
                platform: std::env::consts::OS.into(),
                ..ClientConfig::default()
            },
            self.shared.clock.now(),
        );
        let session = Session::new(machine, self.shared.clock);
        let mut roster = self.shared.roster();
        for topic in &roster.topics {
            session.with(|client, _| client.subscribe(topic));
        }
        roster.sessions.push((number, session.clone()));
        drop(roster);
        let permits = Arc::new(Semaphore::new(EXCHANGES_MAX));
        let (island, leaving, places) = (Arc::default(), Arc::default(), Places::default());
        self.members.insert(number, Member { session, permits, island, leaving, places });
    }

    fn facts(&self, carrier: CarrierKind, gateway: &str) -> HelloFacts {
        let (ordered, heartbeat) = match carrier {
            CarrierKind::Quic => (false, INTERVAL_QUIC),
            CarrierKind::Tls | CarrierKind::Ws => (true, INTERVAL_TCP),
        };
        HelloFacts {
            ticket: self.ticket.clone().unwrap_or_default(),
            gateway: gateway.to_owned(),
            network: self.shared.pace.network_kind(),
            unix_ms: unix_ms(),
            nonce: nonce(),
            trace_parent: String::new(),
            ordered,
            heartbeat,
        }
    }

    /// Drops the links of a session that is over.
    pub(super) fn drop_links(&mut self, over: u64) {
        self.connections.retain(|_, connection| match &connection.stage {
            Stage::Link { session, task, .. } if *session == over => {
                task.abort();
                false
            }
            Stage::Dialed(_) | Stage::Dialing(_) | Stage::Link { .. } => true,
        });
    }

    fn tell_failed(&mut self, candidate: Candidate, reason: String) {
        self.trouble = Some(reason.as_str().into());
        let Candidate { address, carrier } = candidate;
        self.shared.config.watcher.tell(Event::AttemptFailed { address, carrier, reason });
    }
}

/// Returns how a link ended in the words of the keeper.
pub(super) fn ended(ended: &Result<(), CarrierError>) -> Ended {
    match ended {
        Ok(()) => Ended::Orderly,
        Err(CarrierError::Link(LinkError::Silent)) => Ended::Broken(LostReason::Silent),
        Err(CarrierError::Io { source, .. }) if socket_reason(source.kind()) == FailReason::Closed => {
            Ended::Broken(LostReason::Closed)
        }
        Err(_) => Ended::Broken(LostReason::Network),
    }
}

/// Returns what the access list knows beyond what the app named.
fn listed(shared: &Shared) -> Vec<Place> {
    let Some(sources) = shared.sources() else { return Vec::new() };
    let targets = sources.candidates().borrow().clone();
    let place = |target: &Target| Place {
        candidate: target.candidate,
        source: target.source,
        unit: target.unit.as_deref().map(Unit::from),
        gateway: target.gateway.as_deref().map(Arc::from),
    };
    targets.iter().map(place).collect()
}

impl AccessPoint {
    /// Returns where it is, if its address was given.
    fn known(&self) -> Vec<Place> {
        match &self.seat {
            Seat::Address(address) => self.places(*address, Source::Config),
            Seat::Name(..) => Vec::new(),
        }
    }

    fn places(&self, address: SocketAddr, source: Source) -> Vec<Place> {
        let place = |carrier: &CarrierKind| {
            let candidate = Candidate { address, carrier: *carrier };
            Place { candidate, source, unit: self.unit.clone(), gateway: None }
        };
        self.carriers.iter().map(place).collect()
    }
}

/// Looks the names of access points up.
async fn resolve(points: &[AccessPoint], sources: Option<&Sources>, within: Duration) -> Vec<Place> {
    let lookups = points.iter().map(|point| async move {
        match &point.seat {
            Seat::Address(_) => Vec::new(),
            Seat::Name(name, port) => {
                let looked_up = timeout(within, look_up(name, *port, sources)).await;
                let addresses = looked_up.unwrap_or_default();
                addresses.into_iter().flat_map(|address| point.places(address, Source::Dns)).collect()
            }
        }
    });
    futures_util::future::join_all(lookups).await.into_iter().flatten().collect()
}

async fn look_up(name: &str, port: u16, sources: Option<&Sources>) -> Vec<SocketAddr> {
    let found: Result<Vec<SocketAddr>, String> = match sources {
        Some(sources) => match sources.resolve(name, port).await {
            Ok(resolved) => Ok(resolved.into_iter().map(|(address, _)| address).collect()),
            Err(error) => Err(error.to_string()),
        },
        None => match tokio::net::lookup_host((name, port)).await {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => Err(error.to_string()),
        },
    };
    found.unwrap_or_else(|reason| {
        debug!(name, reason, "name of an access point was not resolved");
        Vec::new()
    })
}

async fn fetch(known: Option<String>, tickets: &Tickets) -> Result<String, String> {
    match known {
        Some(ticket) => Ok(ticket),
        None => timeout(TICKET_WITHIN, tickets.fetch()).await.unwrap_or_else(|_| Err("the source is too slow".into())),
    }
}

fn nonce() -> [u8; 16] {
    let mut nonce = [0; 16];
    // Without random bytes TLS has failed before; a nonce of zeros is refused as replayed at the latest.
    let _ = getrandom::fill(&mut nonce);
    nonce
}

/// How long the names of access points may take. 2 s; Mars `net_source.cc`, its own DNS.
const LOOKUP_WITHIN: Duration = Duration::from_secs(2);

/// How long they are waited for where other access points are known. 300 ms; as long as the sources of addresses wait for the system
/// before they ask others.
const LOOKUP_BESIDE_WITHIN: Duration = Duration::from_millis(300);

/// How long a ticket may take: as long as a request waits for a link by default; our choice.
const TICKET_WITHIN: Duration = Duration::from_secs(10);
