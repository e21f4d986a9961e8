//! One attempt to get a link, from the addresses to WELCOME.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use ropeway_core::{
    CarrierKind, Time,
    connect::{
        AttemptId, Candidate, Establish, EstablishOutput, GreetFailure, LostReason, Means, RankedCandidate, Remedy,
        Source, candidate, remedy,
    },
    heartbeat::{INTERVAL_QUIC, INTERVAL_TCP},
    session::HelloFacts,
    wire::message::{NetworkKind, RefuseCode},
};
use ropeway_net::{
    dial::{DialError, Dialed},
    unix_ms,
};
use tokio::{task::AbortHandle, time::timeout};
use tracing::debug;

use super::{Engine, Job};
use crate::{
    Action, Event, LinkState,
    builder::{AccessPoint, Place},
    identity::Tickets,
    shared::LinkFailure,
};

/// An attempt to get a link.
#[derive(Default)]
pub(super) struct Connecting {
    /// `None` while addresses and ticket are fetched.
    establish: Option<Establish>,
    attempts: BTreeMap<AttemptId, Started>,
    dialed: BTreeMap<AttemptId, Dialed>,
    greeting: Option<Greeting>,
    restarts: u32,
    /// The soonest of the times at which gateways asked to be called again.
    retry_after: Option<Duration>,
}

struct Started {
    candidate: Candidate,
    log: u64,
    task: AbortHandle,
}

/// A connection that a race left over.
pub(super) struct Spare {
    dialed: Dialed,
    candidate: Candidate,
    pub(super) until: Time,
}

/// HELLO is out, WELCOME is awaited.
pub(super) struct Greeting {
    attempt: AttemptId,
    pub(super) session: u64,
    pub(super) link: u64,
    candidate: Candidate,
    log: u64,
}

/// Something came back on an attempt whose handshake goes on.
pub(super) struct Answered {
    generation: u64,
    attempt: AttemptId,
    rtt: Duration,
}

/// What a link needs before the race.
#[derive(Debug)]
pub(super) struct Prepared {
    candidates: Vec<(Candidate, Source)>,
    ticket: Result<String, String>,
}

impl Connecting {
    pub(super) fn is_undecided(&self) -> bool {
        self.establish.as_ref().is_none_or(Establish::is_undecided)
    }

    /// Says whether no connection is being greeted.
    pub(super) const fn is_racing(&self) -> bool {
        self.greeting.is_none()
    }

    pub(super) fn greets(&self, session: u64, link: u64) -> bool {
        self.greeting.as_ref().is_some_and(|greeting| greeting.session == session && greeting.link == link)
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.establish.as_ref()?.poll_timeout().map(|(at, _)| at)
    }

    /// Drops everything that is under way.
    fn abort(&mut self, engine_log: &crate::shared::AttemptLog) {
        for started in std::mem::take(&mut self.attempts).into_values() {
            started.task.abort();
            engine_log.end(started.log, Some("given up".into()));
        }
        self.dialed.clear();
    }
}

impl Engine {
    /// Begins to get a link, or hurries the attempt that is under way.
    pub(super) fn connect(&mut self) {
        if self.blocked || self.shared.config.access_points.is_empty() {
            return;
        }
        let now = self.shared.clock.now();
        match &mut self.connecting {
            Some(connecting) if connecting.is_undecided() => {
                if let Some(establish) = &mut connecting.establish {
                    establish.handle_hurry(now);
                    self.follow_establish();
                }
            }
            Some(_) | None => self.prepare(0),
        }
    }

    /// Fetches addresses and ticket.
    fn prepare(&mut self, restarts: u32) {
        self.stop_connecting();
        self.generation += 1;
        self.connecting = Some(Connecting { restarts, ..Connecting::default() });
        self.publish();
        let (generation, known) = (self.generation, self.ticket.clone());
        let (points, tickets) = (self.shared.config.access_points.clone(), self.shared.config.tickets.clone());
        self.jobs.spawn(async move {
            let (candidates, ticket) = tokio::join!(resolve(&points), fetch(known, &tickets));
            Job::Prepared { generation, prepared: Prepared { candidates, ticket } }
        });
    }

    pub(super) fn handle_prepared(&mut self, prepared: Prepared) {
        let now = self.shared.clock.now();
        match prepared.ticket {
            Ok(ticket) => self.ticket = Some(ticket),
            Err(reason) => return self.fail(LinkFailure::Ticket { reason }, true),
        }
        if !prepared.candidates.is_empty() {
            self.candidates = prepared.candidates;
        }
        if self.candidates.is_empty() {
            self.trouble = Some("no name of an access point was resolved".into());
        }
        let known = candidate::merge(self.candidates.iter().copied());
        self.seed = self.seed.wrapping_add(1);
        let ranked: Vec<RankedCandidate> = candidate::rank(&known, &self.records, self.seed, now);
        let config = self.shared.config.establish.clone();
        if let Some(connecting) = &mut self.connecting {
            connecting.establish = Some(match self.spare.take() {
                Some(Spare { dialed, candidate, .. }) => {
                    connecting.dialed.insert(AttemptId(0), dialed);
                    Establish::with_spare(config, ranked, candidate, now)
                }
                None => Establish::new(config, ranked, now),
            });
        }
        self.follow_establish();
    }

    pub(super) fn handle_dialed(&mut self, attempt: AttemptId, dialed: Result<Dialed, DialError>) {
        let now = self.shared.clock.now();
        let Some(connecting) = &mut self.connecting else { return };
        let Some(started) = connecting.attempts.remove(&attempt) else { return };
        let Some(establish) = &mut connecting.establish else { return };
        match dialed {
            Ok(dialed) => {
                self.shared.log.end(started.log, None);
                let rtt = dialed.rtt;
                connecting.dialed.insert(attempt, dialed);
                establish.handle_connected(attempt, rtt, now);
                self.show_life(now);
            }
            Err(error) => {
                self.shared.log.end(started.log, Some(error.to_string()));
                establish.handle_failed(attempt, error.reason(), now);
                debug!(%error, "attempt failed");
                self.tell_failed(started.candidate, error.to_string());
            }
        }
        self.follow_establish();
    }

    pub(super) fn handle_answered(&mut self, answered: Answered) {
        let Answered { generation, attempt, rtt } = answered;
        let now = self.shared.clock.now();
        let establish = self.connecting.as_mut().and_then(|connecting| connecting.establish.as_mut());
        if generation == self.generation
            && let Some(establish) = establish
        {
            establish.handle_alive(attempt, rtt, now);
            self.show_life(now);
            self.follow_establish();
        }
    }

    /// Lets requests wait on, since an attempt to get a link came further.
    fn show_life(&mut self, now: Time) {
        self.alive_at = now;
        self.shared.view.send_modify(|view| view.alive_at = now);
    }

    pub(super) fn handle_connect_timeout(&mut self) {
        let now = self.shared.clock.now();
        if let Some(establish) = self.connecting.as_mut().and_then(|connecting| connecting.establish.as_mut()) {
            establish.handle_timeout(now);
            self.follow_establish();
        }
    }

    /// Does what the machine asks for.
    fn follow_establish(&mut self) {
        let now = self.shared.clock.now();
        loop {
            let Some(connecting) = &mut self.connecting else { return };
            let Some(output) = connecting.establish.as_mut().and_then(Establish::poll_output) else { break };
            match output {
                EstablishOutput::Abandon { attempt } => self.abandon(attempt),
                EstablishOutput::Greet { attempt, candidate } => self.greet(attempt, candidate),
                EstablishOutput::KeepSpare { attempt, candidate } => {
                    let dialed = connecting.dialed.remove(&attempt);
                    self.spare = dialed.map(|dialed| Spare { dialed, candidate, until: now + SPARE_FOR });
                }
                EstablishOutput::Lost { untrusted } => {
                    let retry_after = connecting.retry_after;
                    self.stop_connecting();
                    if let Some(after) = retry_after {
                        self.reconnect.handle_retry_after(after, now);
                    }
                    if untrusted {
                        let reason = self.trouble.as_deref().unwrap_or_default().to_owned();
                        self.failure = Some(LinkFailure::Untrusted { reason, at: now });
                    }
                    self.reconnect.handle_lost(now, LostReason::RaceLost);
                    self.publish();
                    return;
                }
                EstablishOutput::Scored { candidate, score } => self.records.observe(candidate, score, now),
                EstablishOutput::Start { attempt, candidate } => self.dial(attempt, candidate),
            }
        }
        if self
            .connecting
            .as_ref()
            .and_then(|connecting| connecting.establish.as_ref())
            .is_some_and(Establish::is_finished)
        {
            self.connecting = None;
        }
    }

    fn dial(&mut self, attempt: AttemptId, candidate: Candidate) {
        let (generation, name) = (self.generation, self.shared.config.gateway.clone());
        let log = self.shared.log.start(None, Action::Connect, candidate);
        let (dialer, answers) = (self.dialer.clone(), self.answers.0.clone());
        let task = self.jobs.spawn(async move {
            // Where nobody takes the sign of life, the race goes on as if there were none.
            let answered = move |rtt| drop(answers.try_send(Answered { generation, attempt, rtt }));
            Job::Dialed { generation, attempt, dialed: dialer.dial_watched(candidate, &name, answered).await }
        });
        if let Some(connecting) = &mut self.connecting {
            connecting.attempts.insert(attempt, Started { candidate, log, task });
        }
    }

    fn abandon(&mut self, attempt: AttemptId) {
        let Some(connecting) = &mut self.connecting else { return };
        if let Some(started) = connecting.attempts.remove(&attempt) {
            started.task.abort();
            self.shared.log.end(started.log, Some("given up".into()));
        }
        connecting.dialed.remove(&attempt);
        if connecting.greeting.as_ref().is_some_and(|greeting| greeting.attempt == attempt)
            && let Some(greeting) = connecting.greeting.take()
        {
            self.shared.log.end(greeting.log, Some("no WELCOME in time".into()));
            self.tell_failed(greeting.candidate, "no WELCOME in time".into());
            self.drop_link(greeting.session, greeting.link);
        }
    }

    /// Says HELLO on a connection.
    fn greet(&mut self, attempt: AttemptId, candidate: Candidate) {
        let Some(dialed) = self.connecting.as_mut().and_then(|connecting| connecting.dialed.remove(&attempt)) else {
            return;
        };
        let session = self.heir();
        let facts = HelloFacts {
            ticket: self.ticket.clone().unwrap_or_default(),
            gateway: self.shared.config.gateway.clone(),
            network: NetworkKind::Unspecified,
            unix_ms: unix_ms(),
            nonce: nonce(),
            trace_parent: String::new(),
            ordered: match candidate.carrier {
                CarrierKind::Quic => false,
                CarrierKind::Tls | CarrierKind::Ws => true,
            },
            heartbeat: match candidate.carrier {
                CarrierKind::Quic => INTERVAL_QUIC,
                CarrierKind::Tls | CarrierKind::Ws => INTERVAL_TCP,
            },
        };
        let log = self.shared.log.start(None, Action::Greet, candidate);
        let link = self.begin_link(session, facts, candidate, dialed);
        if let Some(connecting) = &mut self.connecting {
            connecting.greeting = Some(Greeting { attempt, session, link, candidate, log });
        }
    }

    /// WELCOME came: returns where the link leads.
    pub(super) fn finish_greeting(&mut self) -> Option<Candidate> {
        let connecting = self.connecting.as_mut()?;
        let greeting = connecting.greeting.take()?;
        if let Some(establish) = &mut connecting.establish {
            establish.handle_welcomed();
        }
        self.shared.log.end(greeting.log, None);
        Some(greeting.candidate)
    }

    /// The greeted connection broke.
    pub(super) fn handle_greeting_broken(&mut self, reason: String) {
        self.end_greeting(reason, GreetFailure::Broken);
    }

    /// The gateway refused the greeted connection.
    pub(super) fn handle_greeting_refused(&mut self, code: RefuseCode, detail: String, retry_after: Duration) {
        self.shared.config.watcher.tell(Event::Refused { code, detail: detail.clone() });
        let Some(connecting) = &mut self.connecting else { return };
        let restarts = connecting.restarts;
        let means = Means { ticket_source: self.shared.config.tickets.is_source(), restarts };
        match remedy(code, means) {
            Remedy::Elsewhere => {
                if !retry_after.is_zero() {
                    let soonest = connecting.retry_after.map_or(retry_after, |known| known.min(retry_after));
                    connecting.retry_after = Some(soonest);
                }
                self.end_greeting(format!("refused: {detail}"), GreetFailure::Refused);
            }
            Remedy::Fail { heals } => self.fail(LinkFailure::Refused { code, detail }, heals),
            Remedy::Restart { fresh_session, fresh_ticket } => {
                if fresh_ticket {
                    self.ticket = None;
                }
                self.stop_connecting();
                if fresh_session {
                    self.disown();
                }
                self.prepare(restarts + 1);
            }
        }
    }

    fn end_greeting(&mut self, reason: String, failure: GreetFailure) {
        let now = self.shared.clock.now();
        let Some(connecting) = &mut self.connecting else { return };
        let Some(greeting) = connecting.greeting.take() else { return };
        self.shared.log.end(greeting.log, Some(reason.clone()));
        if let Some(establish) = &mut connecting.establish {
            establish.handle_greet_failed(greeting.attempt, failure, now);
        }
        self.tell_failed(greeting.candidate, reason);
        self.drop_link(greeting.session, greeting.link);
        self.follow_establish();
    }

    /// Gives up until the next try, and tells whoever waits.
    pub(super) fn fail(&mut self, failure: LinkFailure, heals: bool) {
        self.stop_connecting();
        self.blocked = !heals;
        self.reconnect.handle_lost(self.shared.clock.now(), LostReason::RaceLost);
        self.failure = Some(failure);
        self.publish();
    }

    /// Drops the attempt that is under way, if there is one.
    pub(super) fn stop_connecting(&mut self) {
        let Some(mut connecting) = self.connecting.take() else { return };
        connecting.abort(&self.shared.log);
        if let Some(greeting) = connecting.greeting {
            self.shared.log.end(greeting.log, Some("given up".into()));
            self.drop_link(greeting.session, greeting.link);
        }
    }

    fn tell_failed(&mut self, candidate: Candidate, reason: String) {
        self.trouble = Some(reason.as_str().into());
        let Candidate { address, carrier } = candidate;
        self.shared.config.watcher.tell(Event::AttemptFailed { address, carrier, reason });
    }

    /// Returns the state of the link while none is open.
    pub(super) fn closed_state(&self) -> LinkState {
        let is_connecting = self.connecting.as_ref().is_some_and(Connecting::is_undecided);
        match &self.failure {
            Some(LinkFailure::Refused { code, .. }) => LinkState::Refused { code: *code },
            Some(LinkFailure::Setup { .. } | LinkFailure::Ticket { .. } | LinkFailure::Untrusted { .. }) | None => {
                if is_connecting {
                    LinkState::Connecting
                } else {
                    LinkState::Offline
                }
            }
        }
    }
}

async fn resolve(points: &[AccessPoint]) -> Vec<(Candidate, Source)> {
    let lookups = points.iter().map(|point| async move {
        let (addresses, source) = match &point.place {
            Place::Address(address) => (vec![*address], Source::Config),
            Place::Name(name, port) => (look_up(name, *port).await, Source::Dns),
        };
        let pairs = addresses.into_iter().flat_map(|address| {
            point.carriers.iter().map(move |carrier| (Candidate { address, carrier: *carrier }, source))
        });
        pairs.collect::<Vec<_>>()
    });
    futures_util::future::join_all(lookups).await.into_iter().flatten().collect()
}

async fn look_up(name: &str, port: u16) -> Vec<SocketAddr> {
    match timeout(LOOKUP_WITHIN, tokio::net::lookup_host((name, port))).await {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => {
            debug!(name, %error, "name of an access point was not resolved");
            Vec::new()
        }
        Err(_) => Vec::new(),
    }
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

/// How long a ticket may take: as long as a request waits for a link by default; our choice.
const TICKET_WITHIN: Duration = Duration::from_secs(10);

/// How long a connection that a race left over is kept. 30 s; our choice: as long as a link must live to count as settled. Gateways
/// close it sooner where they wait less for a HELLO.
const SPARE_FOR: Duration = Duration::from_secs(30);
