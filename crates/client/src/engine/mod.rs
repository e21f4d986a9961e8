//! The task that keeps the link: it does what the keeper of `ropeway_core` says.

mod connection;
mod link;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use ropeway_core::{
    connect::{Candidate, ConnectionId, Keeper, KeeperConfig, KeeperFailure, KeeperOutput, Place},
    quality::Island,
    request::Hosts,
    session::{self, Machine as _},
    wire::message::RefuseCode,
};
use ropeway_net::{
    carrier::CarrierError,
    dial::{DialError, Dialed, Dialer, Trust},
};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};
use tracing::{debug, info, warn};

use self::{
    connection::{Connection, ended},
    link::{Report, What},
};
use crate::{
    Event, LinkState,
    places::Places,
    shared::{self, ClientSession, LinkFailure, Live, Shared, View},
    sources::Sources,
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
    keeper: Keeper,
    members: BTreeMap<u64, Member>,
    connections: BTreeMap<ConnectionId, Connection>,
    jobs: JoinSet<Job>,
    reports: (mpsc::Sender<Report>, mpsc::Receiver<Report>),
    answers: (mpsc::Sender<Answered>, mpsc::Receiver<Answered>),
    ticket: Option<String>,
    hosts: Option<Arc<Hosts>>,
    /// What went wrong last.
    trouble: Option<Arc<str>>,
    /// What the names of access points led to last.
    resolved: Vec<Place>,
    /// No access point was known at the last attempt.
    names_nothing: bool,
}

/// A session.
struct Member {
    session: ClientSession,
    permits: Arc<Semaphore>,
    island: Arc<Mutex<Island>>,
    leaving: Arc<AtomicBool>,
    places: Places,
}

/// What was done beside the engine.
enum Job {
    Dialed { connection: ConnectionId, dialed: Result<Dialed, DialError> },
    Fetched(Fetched),
}

/// What a link needs before the race.
struct Fetched {
    generation: u64,
    /// Of the addresses and the list.
    places: Vec<Place>,
    /// Of the names.
    resolved: Vec<Place>,
    ticket: Result<String, String>,
}

/// Something came back on a connection whose handshake goes on.
struct Answered {
    connection: ConnectionId,
    rtt: Duration,
}

impl Engine {
    fn new(shared: Arc<Shared>, dialer: Dialer) -> Self {
        let config = &shared.config;
        let config = KeeperConfig { establish: config.establish.clone(), reconnect: config.reconnect.clone() };
        Self {
            keeper: Keeper::new(config, shared::seed(), shared.clock.now()),
            hosts: shared.config.hosts.clone(),
            shared,
            dialer,
            members: BTreeMap::new(),
            connections: BTreeMap::new(),
            jobs: JoinSet::new(),
            reports: mpsc::channel(REPORTS_MAX),
            answers: mpsc::channel(ANSWERS_MAX),
            ticket: None,
            trouble: None,
            resolved: Vec::new(),
            names_nothing: false,
        }
    }

    async fn run(mut self) {
        let mut listed = self.shared.sources().map(Sources::candidates);
        loop {
            self.obey_wishes();
            self.follow_keeper();
            if self.shared.wishes().close {
                return self.close().await;
            }
            let deadline = self.keeper.poll_timeout();
            let sleep =
                sleep_until(deadline.map_or_else(|| Instant::now() + IDLE_TURN, |at| self.shared.clock.instant(at)));
            tokio::select! {
                () = self.shared.wished.notified() => {}
                Some(report) = self.reports.1.recv() => self.handle_report(report),
                Some(answered) = self.answers.1.recv() => {
                    self.keeper.handle_answered(answered.connection, answered.rtt, self.shared.clock.now());
                }
                () = shared::changed(&mut listed) => {
                    if self.names_nothing {
                        self.keeper.handle_changed(false, self.shared.clock.now());
                    }
                }
                Some(Ok(job)) = self.jobs.join_next(), if !self.jobs.is_empty() => match job {
                    Job::Dialed { connection, dialed } => self.handle_dialed(connection, dialed),
                    Job::Fetched(fetched) => self.handle_fetched(fetched),
                },
                () = sleep => self.keeper.handle_timeout(self.shared.clock.now()),
            }
        }
    }

    /// Does what the keeper asks for.
    fn follow_keeper(&mut self) {
        let mut has_changed = false;
        while let Some(output) = self.keeper.poll_output(self.shared.clock.now()) {
            debug!(?output, "keeper");
            match output {
                KeeperOutput::Changed => has_changed = true,
                KeeperOutput::Cut { session } => self.cut(session),
                KeeperOutput::Dial { connection, candidate, gateway } => self.dial(connection, candidate, gateway),
                KeeperOutput::Drop { connection, reason } => self.drop_connection(connection, reason),
                KeeperOutput::Exhausted => {
                    if let Some(sources) = self.shared.sources() {
                        sources.handle_failed_unit();
                    }
                }
                KeeperOutput::ForgetTicket => self.ticket = None,
                KeeperOutput::Greet { connection, session, fresh, .. } => self.greet(connection, session, fresh),
                KeeperOutput::Leave { session } => self.leave(session),
                KeeperOutput::LinkUp { .. } => self.trouble = None,
                KeeperOutput::Prepare { generation } => self.prepare(generation),
                KeeperOutput::Settle { session, gap } => self.settle(session, gap),
            }
        }
        if has_changed {
            self.publish();
        }
    }

    fn obey_wishes(&mut self) {
        let now = self.shared.clock.now();
        let (waiting, changed, ticket, unserved) = {
            let mut wishes = self.shared.wishes();
            let unserved = std::mem::take(&mut wishes.unserved);
            (wishes.waiting > 0, wishes.network.take(), wishes.ticket.take(), unserved)
        };
        if let Some(ticket) = ticket {
            self.ticket = Some(ticket);
            self.keeper.handle_changed(false, now);
        }
        if let Some(label) = changed {
            if let Err(error) = self.dialer.rebind() {
                warn!(%error, "no socket on the new network");
            }
            for member in self.members.values() {
                member.session.with(session::Client::check);
            }
            // Whoever asks for them tells them of it.
            self.shared.sources();
            self.keeper.handle_network(&label);
            self.keeper.handle_changed(true, now);
        }
        if let Some(session) = unserved {
            self.keeper.handle_unserved(session, now);
        }
        let busy = waiting || self.shared.in_flight.load(Ordering::Relaxed) > 0;
        self.keeper.handle_waiting(busy, now);
    }

    fn handle_report(&mut self, report: Report) {
        // Who waits now decides how soon a lost link is sought again.
        self.obey_wishes();
        let now = self.shared.clock.now();
        let Report { connection, what } = report;
        if !self.keeper.holds(connection) {
            return;
        }
        debug!(?connection, ?what, "connection");
        match what {
            What::Doubted { can_move } => self.keeper.handle_doubted(connection, can_move, now),
            What::Draining { close_after } => {
                info!(?close_after, "gateway is draining");
                self.shared.config.watcher.tell(Event::Draining { close_after });
                self.keeper.handle_draining(connection, now);
            }
            What::Ended(how) => self.handle_ended(connection, &how),
            What::Late => self.keeper.handle_late(connection, now),
            What::Refused { code, detail, retry_after } => {
                self.shared.config.watcher.tell(Event::Refused { code, detail: detail.clone() });
                self.handle_refused(connection, code, detail, retry_after);
            }
            What::RoundTrip(rtt) => self.keeper.handle_round_trip(connection, rtt),
            What::Trusted => self.keeper.handle_trusted(connection),
            What::Welcome { resumed, hosts } => self.handle_welcome(connection, resumed, &hosts),
        }
    }

    fn handle_refused(&mut self, connection: ConnectionId, code: RefuseCode, detail: String, retry_after: Duration) {
        if self.greets(connection) {
            self.end_greeting(connection, &format!("refused: {detail}"));
        } else {
            // An open link is closed: the gateway says why, the end follows.
            warn!(?code, "gateway closes the link");
            self.trouble = Some(detail.as_str().into());
        }
        let ticket_source = self.shared.config.tickets.is_source();
        let now = self.shared.clock.now();
        self.keeper.handle_refused(connection, (code, detail, retry_after), ticket_source, now);
    }

    fn welcome(&mut self, candidate: Candidate, resumed: bool, hosts: &[String]) {
        let Candidate { address, carrier } = candidate;
        self.hosts = Some(Arc::new(Hosts::new(hosts)));
        info!(%carrier, resumed, "link is up");
        self.shared.config.watcher.tell(Event::LinkUp { address, carrier, resumed });
    }

    fn handle_ended(&mut self, connection: ConnectionId, how: &Result<(), CarrierError>) {
        if self.greets(connection) {
            self.end_greeting(connection, &reason(how));
        } else {
            let reason = reason(how);
            info!(cause = how.as_ref().map_or_else(CarrierError::name, |()| "closed"), "link is lost");
            debug!(reason, "why it is lost");
            self.trouble = Some(reason.as_str().into());
            self.note_end(connection, &reason);
            self.shared.config.watcher.tell(Event::LinkLost { reason });
        }
        self.connections.remove(&connection);
        self.keeper.handle_ended(connection, ended(how), self.shared.clock.now());
    }

    /// Ends what is under way on a session that has had no link for long.
    fn cut(&self, number: u64) {
        if let Some(member) = self.members.get(&number) {
            member.session.with(|client, _| client.cut());
        }
    }

    /// Ends a session: nothing will resume it.
    fn settle(&mut self, number: u64, gap: bool) {
        let Some(member) = self.members.remove(&number) else { return };
        self.shared.roster().sessions.retain(|(known, _)| *known != number);
        member.session.with(|client, _| client.abandon());
        self.drop_links(number);
        if gap {
            self.shared.feed(session::Feed::gap);
        }
        debug!(session = number, gap, "session is over");
    }

    /// Lets a session go that another has replaced, once it is done.
    fn leave(&self, session: u64) {
        if let Some(member) = self.members.get(&session) {
            member.leaving.store(true, Ordering::Relaxed);
            // Wakes the driver, which closes the link when nothing runs on it.
            member.session.with(|_, _| ());
        }
    }

    /// Shows the handles where the link is.
    fn publish(&self) {
        let open = self.keeper.open_link();
        let live = open.and_then(|open| {
            let member = self.members.get(&open.session)?;
            let (permits, island) = (Arc::clone(&member.permits), Arc::clone(&member.island));
            let (number, session) = (open.session, member.session.clone());
            let places = member.places.clone();
            Some(Live { number, session, candidate: open.candidate, permits, island, places })
        });
        let failure = self.failure();
        let state = match (&live, &failure) {
            (Some(live), _) if open.is_some_and(|open| open.is_up) => {
                LinkState::Open { address: live.candidate.address, carrier: live.candidate.carrier }
            }
            (_, Some(LinkFailure::Refused { code, .. })) => LinkState::Refused { code: *code },
            (_, _) if self.keeper.is_connecting() => LinkState::Connecting,
            (_, _) => LinkState::Offline,
        };
        let closed = self.shared.wishes().close;
        self.shared.view.send_replace(View {
            live,
            hosts: self.hosts.clone(),
            failure,
            trouble: self.trouble.clone(),
            link: self.keeper.view(self.shared.clock.now()),
            closed,
        });
        self.shared.state.send_if_modified(|known| std::mem::replace(known, state) != state);
    }

    fn failure(&self) -> Option<LinkFailure> {
        Some(match self.keeper.failure()?.clone() {
            KeeperFailure::Refused { code, detail } => LinkFailure::Refused { code, detail },
            KeeperFailure::Ticket { reason } => LinkFailure::Ticket { reason },
            KeeperFailure::Untrusted { at } => {
                LinkFailure::Untrusted { reason: self.trouble.as_deref().unwrap_or_default().to_owned(), at }
            }
        })
    }

    /// Takes no new requests, lets those under way finish, and closes the links.
    async fn close(mut self) {
        self.keeper.handle_close();
        self.follow_keeper();
        self.publish();
        let deadline = Instant::now() + CLOSE_WITHIN;
        while self.shared.in_flight.load(Ordering::Acquire) > 0 {
            tokio::select! {
                () = self.shared.wished.notified() => {}
                Some(report) = self.reports.1.recv() => self.handle_last(&report),
                () = sleep_until(deadline) => break,
            }
        }
        let mut is_cut = self.shared.was_cut.load(Ordering::Relaxed);
        for member in self.members.values() {
            if member.session.peek(|client| client.mux().running()) > 0 {
                is_cut = true;
                member.session.with(|client, _| client.abandon());
            }
            member.leaving.store(true, Ordering::Relaxed);
            member.session.with(|_, _| ());
        }
        while !self.connections.is_empty() {
            tokio::select! {
                Some(report) = self.reports.1.recv() => self.handle_last(&report),
                () = sleep_until(deadline + GOODBYES_WITHIN) => break,
            }
        }
        for number in self.members.keys().copied().collect::<Vec<_>>() {
            self.settle(number, false);
        }
        if is_cut {
            // Their gateways may still be sending, and so fast that a goodbye is lost.
            let _ = timeout(IDLE_WITHIN, self.dialer.idle()).await;
        }
        self.shared.state.send_replace(LinkState::Closed);
    }

    /// Takes in the end of a link of a client that is being closed.
    fn handle_last(&mut self, report: &Report) {
        if let What::Ended(how) = &report.what {
            self.handle_ended(report.connection, how);
            self.follow_keeper();
        }
    }
}

fn reason(ended: &Result<(), CarrierError>) -> String {
    match ended {
        Ok(()) => "closed".into(),
        Err(error) => error.to_string(),
    }
}

/// Reports that may wait for the engine; a link says four things in its life, of which two may come often.
const REPORTS_MAX: usize = 64;

/// Signs of life of attempts that may wait for the engine: as many as a race makes attempts, and some of the race before.
const ANSWERS_MAX: usize = 16;

/// The engine looks around this often when it has nothing to wait for. 1 h; our choice.
const IDLE_TURN: Duration = Duration::from_secs(3_600);

/// How long requests under way may take once the client is being closed. 5 s; our choice.
const CLOSE_WITHIN: Duration = Duration::from_secs(5);

/// How much longer the goodbyes of links that were cut may take to arrive. 250 ms; our choice: three probe timeouts of a path of 30 ms.
const IDLE_WITHIN: Duration = Duration::from_millis(250);

/// How much longer the links may take to say goodbye. 1 s; our choice.
const GOODBYES_WITHIN: Duration = Duration::from_secs(1);
