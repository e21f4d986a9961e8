//! The task that keeps the link: it drives the machines of `ropeway_core` and does what they say.

mod connecting;
mod link;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ropeway_core::{
    Time,
    connect::{AttemptId, Candidate, FailReason, LostReason, Reconnect, ReconnectOutput, Records, Source},
    request::Hosts,
    session::{self, ClientConfig, Fate, HelloFacts, LinkError, Machine as _, Succession},
    wire::message::RefuseCode,
};
use ropeway_net::{
    carrier::CarrierError,
    dial::{DialError, Dialed, Dialer, Trust, socket_reason},
    link::Session,
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};
use tracing::{Instrument as _, debug, debug_span, info, warn};

use self::{
    connecting::{Answered, Connecting, Prepared, Spare},
    link::{Link, Report, What},
};
use crate::{
    Event, LinkState,
    identity::audience,
    shared::{ClientSession, EXCHANGES_MAX, LinkFailure, Live, Shared, View},
};

/// Keeps the link of a client until all its handles are gone.
pub(crate) async fn run(shared: Arc<Shared>) {
    let trust = shared.config.trust.clone().map_or(Trust::Platform, Trust::Roots);
    match Dialer::new(&trust) {
        Ok(dialer) => Engine::new(shared, dialer).run().await,
        Err(error) => {
            warn!(%error, "links cannot be opened");
            let failure = LinkFailure::Setup { reason: error.to_string() };
            shared.view.send_modify(|view| view.failure = Some(failure));
            while !shared.wishes().close {
                shared.wished.notified().await;
            }
            shared.state.send_replace(LinkState::Closed);
        }
    }
}

struct Engine {
    shared: Arc<Shared>,
    dialer: Dialer,
    reconnect: Reconnect,
    records: Records,
    succession: Succession,
    members: BTreeMap<u64, Member>,
    connecting: Option<Connecting>,
    /// Counts attempts to get a link, so that late news of an earlier one are known as such.
    generation: u64,
    /// A connection that the last race left over.
    spare: Option<Spare>,
    jobs: JoinSet<Job>,
    reports: (mpsc::Sender<Report>, mpsc::Receiver<Report>),
    answers: (mpsc::Sender<Answered>, mpsc::Receiver<Answered>),
    /// The newest candidates that names resolved to.
    candidates: Vec<(Candidate, Source)>,
    ticket: Option<String>,
    seed: u64,
    failure: Option<LinkFailure>,
    /// Nothing but a new ticket or another network can help.
    blocked: bool,
    hosts: Option<Arc<Hosts>>,
    /// What went wrong last.
    trouble: Option<Arc<str>>,
    /// When an attempt to get a link last came further.
    alive_at: Time,
}

/// A session and its link.
struct Member {
    session: ClientSession,
    permits: Arc<Semaphore>,
    leaving: Arc<AtomicBool>,
    link: Option<OpenLink>,
}

struct OpenLink {
    number: u64,
    candidate: Candidate,
    task: AbortHandle,
}

/// What was done beside the engine.
enum Job {
    Dialed { generation: u64, attempt: AttemptId, dialed: Result<Dialed, DialError> },
    Prepared { generation: u64, prepared: Prepared },
}

impl Engine {
    fn new(shared: Arc<Shared>, dialer: Dialer) -> Self {
        let seed = seed();
        let now = shared.clock.now();
        Self {
            reconnect: Reconnect::new(shared.config.reconnect.clone(), seed, now),
            hosts: shared.config.hosts.clone(),
            shared,
            dialer,
            records: Records::new(),
            succession: Succession::default(),
            members: BTreeMap::new(),
            connecting: None,
            generation: 0,
            spare: None,
            jobs: JoinSet::new(),
            reports: mpsc::channel(REPORTS_MAX),
            answers: mpsc::channel(ANSWERS_MAX),
            candidates: Vec::new(),
            ticket: None,
            seed,
            failure: None,
            blocked: false,
            trouble: None,
            alive_at: now,
        }
    }

    async fn run(mut self) {
        loop {
            self.obey_wishes();
            while let Some(ReconnectOutput::Connect) = self.reconnect.poll_output() {
                self.connect();
            }
            if self.shared.wishes().close {
                return self.close().await;
            }
            let deadline = self.poll_timeout();
            let sleep =
                sleep_until(deadline.map_or_else(|| Instant::now() + IDLE_TURN, |at| self.shared.clock.instant(at)));
            tokio::select! {
                () = self.shared.wished.notified() => {}
                Some(report) = self.reports.1.recv() => self.handle_report(report),
                Some(answered) = self.answers.1.recv() => self.handle_answered(answered),
                Some(Ok(job)) = self.jobs.join_next(), if !self.jobs.is_empty() => self.handle_job(job),
                () = sleep => self.handle_timeout(),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Time> {
        let connecting = self.connecting.as_ref().and_then(Connecting::poll_timeout);
        let reconnect = self.reconnect.poll_timeout().filter(|_| !self.blocked);
        let spare = self.spare.as_ref().map(|spare| spare.until);
        [connecting, reconnect, spare].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self) {
        let now = self.shared.clock.now();
        self.spare.take_if(|spare| spare.until <= now);
        self.reconnect.handle_timeout(now);
        self.handle_connect_timeout();
    }

    fn handle_job(&mut self, job: Job) {
        match job {
            Job::Dialed { generation, attempt, dialed } if generation == self.generation => {
                self.handle_dialed(attempt, dialed);
            }
            Job::Prepared { generation, prepared } if generation == self.generation => self.handle_prepared(prepared),
            Job::Dialed { .. } | Job::Prepared { .. } => {}
        }
    }

    fn obey_wishes(&mut self) {
        let now = self.shared.clock.now();
        let (waiting, changed, ticket) = {
            let mut wishes = self.shared.wishes();
            (wishes.waiting > 0, std::mem::take(&mut wishes.network_changed), wishes.ticket.take())
        };
        if let Some(ticket) = ticket {
            self.ticket = Some(ticket);
            self.try_anew(now);
        }
        if changed {
            self.spare = None;
            if let Err(error) = self.dialer.rebind() {
                warn!(%error, "no socket on the new network");
            }
            for member in self.members.values() {
                member.session.with(session::Client::check);
            }
            self.try_anew(now);
        }
        let busy = waiting || self.shared.in_flight.load(Ordering::Relaxed) > 0;
        self.reconnect.handle_waiting(busy, now);
    }

    /// Something changed that may let the gateways take what they refused.
    fn try_anew(&mut self, now: Time) {
        self.blocked = false;
        if self.failure.take().is_some() {
            self.publish();
        }
        self.reconnect.handle_network_changed(now);
    }

    fn handle_report(&mut self, report: Report) {
        // Who waits now decides how soon a lost link is sought again.
        self.obey_wishes();
        let Report { session, link, what } = report;
        let greets = self.connecting.as_ref().is_some_and(|connecting| connecting.greets(session, link));
        match what {
            What::Doubted => self.handle_doubted(session, link),
            What::Draining { close_after } => self.handle_draining(session, close_after),
            What::Ended(ended) if greets => self.handle_greeting_broken(reason(&ended)),
            What::Ended(ended) => self.handle_ended(session, link, &ended),
            What::Refused { code, detail, retry_after } if greets => {
                self.handle_greeting_refused(code, detail, retry_after);
            }
            What::Refused { code, detail, retry_after } => self.handle_dismissed(code, detail, retry_after),
            What::Trusted => self.handle_trusted(session, link),
            What::Welcome { resumed, hosts } if greets => self.handle_welcome(session, resumed, &hosts),
            What::Welcome { .. } => {}
        }
    }

    fn handle_welcome(&mut self, session: u64, resumed: bool, hosts: &[String]) {
        let Some(Candidate { address, carrier }) = self.finish_greeting() else { return };
        self.succession.handle_open(session);
        self.reconnect.handle_connected(self.shared.clock.now());
        self.hosts = Some(Arc::new(Hosts::new(hosts)));
        self.failure = None;
        self.trouble = None;
        self.blocked = false;
        info!(%carrier, resumed, "link is up");
        self.shared.config.watcher.tell(Event::LinkUp { address, carrier, resumed });
        self.dismiss_replaced();
        self.publish();
    }

    /// Seeks another link beside one that says nothing although an answer is awaited.
    fn handle_doubted(&mut self, session: u64, link: u64) {
        if self.succession.for_request() == Some(session) && self.has_link(session, link) {
            debug!("link is doubted");
            self.reconnect.handle_doubted(self.shared.clock.now());
        }
    }

    /// The link that was doubted speaks again: none is sought beside it, unless one is being greeted.
    fn handle_trusted(&mut self, session: u64, link: u64) {
        if self.succession.for_request() == Some(session) && self.has_link(session, link) {
            debug!("link speaks again");
            self.reconnect.handle_trusted();
            if self.connecting.as_ref().is_some_and(Connecting::is_racing) {
                self.stop_connecting();
            }
        }
    }

    fn has_link(&self, session: u64, link: u64) -> bool {
        let open = self.members.get(&session).and_then(|member| member.link.as_ref());
        open.is_some_and(|open| open.number == link)
    }

    fn handle_draining(&mut self, session: u64, close_after: Duration) {
        info!(?close_after, "gateway is draining");
        self.shared.config.watcher.tell(Event::Draining { close_after });
        let was_current = self.succession.for_request() == Some(session);
        if let Some(surplus) = self.succession.handle_draining(session) {
            self.settle(surplus, true);
        }
        if was_current {
            self.reconnect.handle_lost(self.shared.clock.now(), LostReason::Drained);
        }
        self.dismiss_replaced();
        self.publish();
    }

    /// An open link was closed by REFUSE: the gateway says why, the end follows.
    fn handle_dismissed(&mut self, code: RefuseCode, detail: String, retry_after: Duration) {
        if !retry_after.is_zero() {
            self.reconnect.handle_retry_after(retry_after, self.shared.clock.now());
        }
        warn!(?code, "gateway closes the link");
        self.trouble = Some(detail.as_str().into());
        self.shared.config.watcher.tell(Event::Refused { code, detail });
    }

    fn handle_ended(&mut self, session: u64, link: u64, ended: &Result<(), CarrierError>) {
        let Some(member) = self.members.get_mut(&session) else { return };
        if member.link.as_ref().is_none_or(|open| open.number != link) {
            return;
        }
        member.link = None;
        let leaving = ended.is_ok() && member.leaving.load(Ordering::Relaxed);
        let reason = if leaving { "closed by this client".into() } else { reason(ended) };
        info!(cause = ended.as_ref().map_or_else(CarrierError::name, |()| "closed"), "link is lost");
        debug!(reason, "why it is lost");
        self.trouble = Some(reason.as_str().into());
        self.shared.config.watcher.tell(Event::LinkLost { reason });
        match self.succession.handle_lost(session, ended.is_ok()) {
            Fate::Resume => {
                let reason = lost_reason(ended);
                if matches!(reason, LostReason::Network | LostReason::Silent) {
                    // Whatever took the link took it as well.
                    self.spare = None;
                }
                self.reconnect.handle_lost(self.shared.clock.now(), reason);
            }
            Fate::Settle { gap } => self.settle(session, gap),
        }
        self.publish();
    }

    /// Returns the session the next link is for.
    fn heir(&mut self) -> u64 {
        let heir = self.succession.heir();
        if heir.fresh {
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
            roster.sessions.push((heir.number, session.clone()));
            drop(roster);
            let permits = Arc::new(Semaphore::new(EXCHANGES_MAX));
            self.members.insert(heir.number, Member { session, permits, leaving: Arc::default(), link: None });
        }
        heir.number
    }

    /// Begins a link of a session on a connection; returns its number.
    fn begin_link(&mut self, number: u64, facts: HelloFacts, candidate: Candidate, dialed: Dialed) -> u64 {
        if self.succession.for_request() == Some(number) {
            // It was doubted; its driver ends by itself, as the session is no longer its own.
            self.succession.handle_lost(number, false);
            self.reconnect.handle_replaced(self.shared.clock.now());
        }
        let member = self.members.get_mut(&number).expect("an heir is a member");
        let key = self.shared.config.device_key.clone();
        let binding = dialed.carrier.binding();
        let (link, ()) = member.session.begin_link_with(|client, now| {
            let sign = |message: &[u8]| key.sign(message);
            client.connect(facts, &sign, now);
            if let Some(binding) = binding {
                client.prove(&binding, &sign);
            }
        });
        let driven = Link {
            shared: Arc::clone(&self.shared),
            number: link,
            session_number: number,
            session: member.session.clone(),
            reports: self.reports.0.clone(),
            leaving: Arc::clone(&member.leaving),
        };
        let span = debug_span!("link", session = number, link, carrier = %candidate.carrier);
        let task = tokio::spawn(driven.run(dialed.carrier).instrument(span)).abort_handle();
        member.link = Some(OpenLink { number: link, candidate, task });
        link
    }

    /// Drops a link without a goodbye.
    fn drop_link(&mut self, session: u64, link: u64) {
        let Some(member) = self.members.get_mut(&session) else { return };
        if let Some(open) = member.link.take_if(|open| open.number == link) {
            open.task.abort();
            member.session.end_link(link);
        }
    }

    /// Ends a session: nothing will resume it.
    fn settle(&mut self, session: u64, gap: bool) {
        let Some(member) = self.members.remove(&session) else { return };
        self.shared.roster().sessions.retain(|(number, _)| *number != session);
        member.session.with(|client, _| client.abandon());
        if let Some(open) = member.link {
            open.task.abort();
        }
        if gap {
            self.shared.feed(session::Feed::gap);
        }
        debug!(session, gap, "session is over");
    }

    /// The gateway does not take the session back.
    fn disown(&mut self) {
        if let Some((session, fate)) = self.succession.handle_disowned() {
            let gap = match fate {
                Fate::Resume => false,
                Fate::Settle { gap } => gap,
            };
            self.settle(session, gap);
        }
    }

    /// Lets the sessions go that another has replaced, once they are done.
    fn dismiss_replaced(&self) {
        for (number, member) in &self.members {
            if self.succession.is_replaced(*number) {
                member.leaving.store(true, Ordering::Relaxed);
                // Wakes the driver, which closes the link when nothing runs on it.
                member.session.with(|_, _| ());
            }
        }
    }

    /// Shows the handles where the link is.
    fn publish(&self) {
        let open = self.succession.for_request().and_then(|number| self.members.get(&number));
        let live = open.and_then(|member| {
            let link = member.link.as_ref()?;
            let permits = Arc::clone(&member.permits);
            Some(Live { session: member.session.clone(), candidate: link.candidate, permits })
        });
        let state = match &live {
            Some(live) => LinkState::Open { address: live.candidate.address, carrier: live.candidate.carrier },
            None => self.closed_state(),
        };
        let closed = self.shared.wishes().close;
        self.shared.view.send_replace(View {
            live,
            hosts: self.hosts.clone(),
            failure: self.failure.clone(),
            trouble: self.trouble.clone(),
            alive_at: self.alive_at,
            closed,
        });
        self.shared.state.send_if_modified(|known| std::mem::replace(known, state) != state);
    }

    /// Takes no new requests, lets those under way finish, and closes the links.
    async fn close(mut self) {
        self.stop_connecting();
        self.publish();
        let deadline = Instant::now() + CLOSE_WITHIN;
        while self.shared.in_flight.load(Ordering::Acquire) > 0 {
            tokio::select! {
                () = self.shared.wished.notified() => {}
                Some(report) = self.reports.1.recv() => {
                    if let What::Ended(ended) = &report.what {
                        self.handle_ended(report.session, report.link, ended);
                    }
                }
                () = sleep_until(deadline) => break,
            }
        }
        for member in self.members.values() {
            if member.session.peek(|client| client.mux().running()) > 0 {
                member.session.with(|client, _| client.abandon());
            }
            member.leaving.store(true, Ordering::Relaxed);
            member.session.with(|_, _| ());
        }
        while self.members.values().any(|member| member.link.is_some()) {
            tokio::select! {
                Some(report) = self.reports.1.recv() => {
                    if let What::Ended(ended) = &report.what {
                        self.handle_ended(report.session, report.link, ended);
                    }
                }
                () = sleep_until(deadline + GOODBYES_WITHIN) => break,
            }
        }
        for number in self.members.keys().copied().collect::<Vec<_>>() {
            self.settle(number, false);
        }
        self.shared.state.send_replace(LinkState::Closed);
    }
}

fn reason(ended: &Result<(), CarrierError>) -> String {
    match ended {
        Ok(()) => "closed by the gateway".into(),
        Err(error) => error.to_string(),
    }
}

/// Returns why a link was lost in the words of the reconnect policy.
fn lost_reason(ended: &Result<(), CarrierError>) -> LostReason {
    match ended {
        Ok(()) => LostReason::Closed,
        Err(CarrierError::Link(LinkError::Silent)) => LostReason::Silent,
        Err(CarrierError::Io { source, .. }) if socket_reason(source.kind()) == FailReason::Closed => {
            LostReason::Closed
        }
        Err(_) => LostReason::Network,
    }
}

fn seed() -> u64 {
    let mut seed = [0; 8];
    // Without random bytes every client of a crowd begins alike; nothing else depends on it.
    let _ = getrandom::fill(&mut seed);
    u64::from_le_bytes(seed)
}

/// Reports that may wait for the engine; a link says four things in its life, of which two may come often.
const REPORTS_MAX: usize = 64;

/// Signs of life of attempts that may wait for the engine: as many as a race makes attempts, and some of the race before.
const ANSWERS_MAX: usize = 16;

/// The engine looks around this often when it has nothing to wait for. 1 h; our choice.
const IDLE_TURN: Duration = Duration::from_secs(3_600);

/// How long requests under way may take once the client is being closed. 5 s; our choice.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// How much longer the links may take to say goodbye. 1 s; our choice.
const GOODBYES_WITHIN: Duration = Duration::from_secs(1);
