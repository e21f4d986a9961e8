//! Opens a connection to a host by racing its addresses, and HTTP/3 with TCP; one counts when its TLS handshake is complete.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex},
    time::Duration,
};

use ropeway_core::{
    CarrierKind,
    connect::{
        AltSvc, AttemptId, Candidate, FailReason, Race, RaceConfig, RaceOutput, Records, Score, Source, candidate,
    },
    request::Way,
};
use ropeway_net::{
    Clock,
    dial::{handshake_reason, socket_reason},
    h3::H3Dialer,
};
use thiserror::Error;
use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};
use tokio_rustls::TlsConnector;

use super::{io::DirectIo, target::Target};
use crate::{
    Action,
    pace::Pace,
    shared::{AttemptLog, lock},
};

/// Opens connections for short links.
#[derive(Clone)]
pub(super) struct Connector {
    pub(super) tls: TlsConnector,
    /// Nothing where QUIC cannot be had on this device.
    pub(super) h3: Option<H3Dialer>,
    pub(super) records: Arc<Mutex<Records>>,
    pub(super) alt_svc: Arc<Mutex<AltSvc>>,
    pub(super) race: RaceConfig,
    pub(super) log: Arc<AttemptLog>,
    pub(super) on_untrusted: OnUntrusted,
    pub(super) pace: Arc<Pace>,
    pub(super) clock: Clock,
}

/// Is told of an address whose certificate was not the host's.
pub(crate) type OnUntrusted = Arc<dyn Fn(&str, IpAddr) + Send + Sync>;

/// An address to try, and the port on which it may speak HTTP/3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) h3: Option<u16>,
}

/// A connection whose TLS handshake is complete.
pub(super) enum Opened {
    Quic(noq::Connection),
    Tcp(DirectIo),
}

/// Why no connection to a host came about; nothing was sent.
#[derive(Clone, Debug, Error)]
pub(crate) enum ConnectError {
    /// The connection was there and its HTTP could not begin.
    #[error("http did not begin: {0}")]
    Http(String),
    /// Every attempt failed.
    #[error("{0}")]
    Lost(String),
    /// As many connections are in use as there may be.
    #[error("{max} connections are in use already")]
    TooMany {
        /// The bound.
        max: usize,
    },
    /// Whoever answered has no certificate that this device trusts for the host.
    #[error("whoever answers is not trusted: {0}")]
    Untrusted(String),
    /// The name has no address.
    #[error("name was not resolved: {0}")]
    Unresolved(String),
}

/// Why one attempt failed.
struct Failure {
    reason: FailReason,
    told: String,
}

type Attempted = (AttemptId, Result<(Opened, Duration), Failure>);

impl Connector {
    /// Races the places to a connection. The race goes on after its end, to learn whether HTTP/3 would have worked.
    pub(super) async fn connect(
        self,
        target: Target,
        places: Vec<Place>,
        source: Source,
        way: Way,
    ) -> Result<(Candidate, Opened), ConnectError> {
        let now = self.clock.now();
        let h3 = self.h3.is_some() && target.encrypted;
        let offered = places.into_iter().take(PLACES_MAX).flat_map(|Place { address, h3: port }| {
            let quic = port.filter(|_| h3).map(|port| SocketAddr::new(address.ip(), port));
            let quic = quic.map(|address| Candidate { address, carrier: CarrierKind::Quic });
            // Where nothing is encrypted the carrier only names the record.
            [quic, Some(Candidate { address, carrier: CarrierKind::Tls })]
        });
        let known = candidate::merge(offered.flatten().map(|candidate| (candidate, source)));
        let offers_both = known.iter().any(|known| known.candidate.carrier == CarrierKind::Quic);
        let ranked = candidate::rank(&known, &lock(&self.records), 0, now);
        let (winner, won) = oneshot::channel();
        let run = Run {
            race: Race::new(self.race.on(self.pace.network_kind(), None), ranked, now),
            host: target.origin.host.as_str().into(),
            connector: self,
            way,
            target,
            offers_both,
            attempts: JoinSet::new(),
            running: BTreeMap::new(),
            finished: None,
            winner: Some(winner),
            won: None,
            quic: None,
            quic_until: None,
            untrusted: None,
        };
        tokio::spawn(run.drive());
        won.await.unwrap_or_else(|_| Err(ConnectError::Lost("race was given up".into())))
    }
}

/// A race under way.
struct Run {
    race: Race,
    connector: Connector,
    way: Way,
    target: Target,
    host: Arc<str>,
    offers_both: bool,
    attempts: JoinSet<Attempted>,
    running: BTreeMap<AttemptId, Running>,
    finished: Option<(AttemptId, Candidate, Opened)>,
    winner: Option<oneshot::Sender<Result<(Candidate, Opened), ConnectError>>>,
    won: Option<CarrierKind>,
    /// Whether HTTP/3 worked, once an attempt has shown it.
    quic: Option<bool>,
    /// Until when HTTP/3 may still win where TCP has failed.
    quic_until: Option<Instant>,
    untrusted: Option<String>,
}

struct Running {
    log: u64,
    candidate: Candidate,
    task: AbortHandle,
}

impl Run {
    async fn drive(mut self) {
        let (alive, mut answered) = mpsc::channel(ALIVE_MAX);
        loop {
            while let Some(output) = self.race.poll_output() {
                self.obey(output, &alive);
            }
            if self.winner.is_none() && self.running.is_empty() {
                break;
            }
            let clock = self.connector.clock;
            let deadline = self.race.poll_timeout().map_or_else(Instant::now, |(at, _)| clock.instant(at));
            let deadline = self.quic_until.map_or(deadline, |until| until.min(deadline));
            tokio::select! {
                Some(Ok((attempt, result))) = self.attempts.join_next(), if !self.attempts.is_empty() => {
                    self.ended(attempt, result);
                }
                Some((attempt, rtt)) = answered.recv() => self.race.handle_alive(attempt, rtt, clock.now()),
                () = sleep_until(deadline) => {
                    self.end_quic();
                    self.race.handle_timeout(clock.now());
                }
            }
        }
        self.learn();
    }

    fn obey(&mut self, output: RaceOutput, alive: &mpsc::Sender<(AttemptId, Duration)>) {
        match output {
            RaceOutput::Abandon { attempt, why } => {
                if let Some(running) = self.running.remove(&attempt) {
                    self.give_up(running, &why.to_string());
                }
            }
            RaceOutput::KeepSpare { .. } => {}
            RaceOutput::Lost(error) => {
                let error = match self.untrusted.take() {
                    Some(reason) => ConnectError::Untrusted(reason),
                    None => ConnectError::Lost(error.to_string()),
                };
                self.tell(Err(error));
            }
            RaceOutput::Scored { candidate, score } => self.score(candidate, score),
            RaceOutput::Start { attempt, candidate } => {
                if candidate.carrier != CarrierKind::Quic {
                    self.quic_until = None;
                }
                let log = self.connector.log.start(self.way, Some(Arc::clone(&self.host)), Action::Connect, candidate);
                let alive = alive.clone();
                let answered = move |rtt| {
                    // There is room for each attempt's; a race that is over hears nothing.
                    let _ = alive.try_send((attempt, rtt));
                };
                let opening = open(candidate, self.connector.clone(), self.target.clone(), answered);
                let task = self.attempts.spawn(async move { (attempt, opening.await) });
                self.running.insert(attempt, Running { log, candidate, task });
            }
            RaceOutput::Won { attempt } => {
                if let Some((_, candidate, opened)) = self.finished.take_if(|(winner, ..)| *winner == attempt) {
                    self.won = Some(candidate.carrier);
                    self.tell(Ok((candidate, opened)));
                    let is_over = |running: &Running| running.candidate.carrier != CarrierKind::Quic;
                    let over: Vec<_> = self.running.extract_if(.., |_, running| is_over(running)).collect();
                    over.into_iter().for_each(|(_, running)| self.give_up(running, "another was first"));
                }
            }
        }
    }

    fn ended(&mut self, attempt: AttemptId, result: Result<(Opened, Duration), Failure>) {
        let Some(Running { log, candidate, .. }) = self.running.remove(&attempt) else { return };
        let now = self.connector.clock.now();
        self.connector.log.end(log, result.as_ref().err().map(|failure| failure.told.clone()));
        let is_quic = candidate.carrier == CarrierKind::Quic;
        match result {
            Ok((opened, rtt)) => {
                if is_quic {
                    self.quic = Some(true);
                }
                if self.won.is_none() {
                    self.finished = Some((attempt, candidate, opened));
                }
                self.connector.pace.handle_rtt(rtt);
                self.race.handle_connected(attempt, rtt, now);
            }
            Err(Failure { reason, told }) => {
                if is_quic && reason != FailReason::Unreachable {
                    self.quic.get_or_insert(false);
                }
                if reason == FailReason::Untrusted {
                    (self.connector.on_untrusted)(&self.host, candidate.address.ip());
                    self.untrusted.get_or_insert(told);
                }
                self.race.handle_failed(attempt, reason, now);
                let is_alone = self.running.values().all(|running| running.candidate.carrier == CarrierKind::Quic);
                if !is_quic && is_alone && self.won.is_none() {
                    self.quic_until = Some(Instant::now() + QUIC_ALONE_WITHIN);
                }
            }
        }
    }

    /// Gives HTTP/3 up that has been alone for too long.
    fn end_quic(&mut self) {
        if self.quic_until.is_none_or(|until| Instant::now() < until) {
            return;
        }
        self.quic_until = None;
        let now = self.connector.clock.now();
        for (attempt, running) in std::mem::take(&mut self.running) {
            self.give_up(running, "no answer in time");
            self.race.handle_failed(attempt, FailReason::TimedOut, now);
        }
        self.quic.get_or_insert(false);
    }

    fn score(&mut self, candidate: Candidate, score: Score) {
        let is_quic = candidate.carrier == CarrierKind::Quic;
        if let Score::Failure(FailReason::TimedOut) = score
            && is_quic
        {
            self.quic.get_or_insert(false);
        }
        // Attempts over TCP that the winner ended have not failed.
        if self.won.is_some() && !is_quic {
            return;
        }
        let score = match score {
            // A carrier has only won something where there was another.
            Score::Success { rtt, won } => Score::Success { rtt, won: won && self.offers_both },
            Score::Failure(reason) => Score::Failure(reason),
        };
        lock(&self.connector.records).observe(candidate, score, self.connector.clock.now());
    }

    fn tell(&mut self, result: Result<(Candidate, Opened), ConnectError>) {
        if let Some(winner) = self.winner.take() {
            // Nobody waits any more where the client is gone.
            let _ = winner.send(result);
        }
    }

    fn give_up(&self, running: Running, why: &str) {
        running.task.abort();
        self.connector.log.end(running.log, Some(format!("given up: {why}")));
    }

    /// Remembers whether HTTP/3 works where TCP does.
    fn learn(&self) {
        let now = self.connector.clock.now();
        let mut alt_svc = lock(&self.connector.alt_svc);
        match (self.quic, self.won) {
            (Some(true), _) => alt_svc.handle_works(&self.target.origin),
            (Some(false), Some(CarrierKind::Tls)) => alt_svc.handle_broken(&self.target.origin, now),
            (Some(false) | None, _) => {}
        }
    }
}

async fn open(
    candidate: Candidate,
    connector: Connector,
    target: Target,
    answered: impl FnOnce(Duration) + Send,
) -> Result<(Opened, Duration), Failure> {
    let Candidate { address, carrier } = candidate;
    if let (CarrierKind::Quic, Some(h3)) = (carrier, &connector.h3) {
        let dialed = h3.dial(address, &target.origin.host, answered).await;
        let (connection, rtt) = dialed.map_err(|error| Failure { reason: error.reason(), told: error.cause() })?;
        return Ok((Opened::Quic(connection), rtt));
    }
    let begun = Instant::now();
    let tcp = TcpStream::connect(address).await.map_err(|error| Failure::of(&error))?;
    let rtt = begun.elapsed();
    answered(rtt);
    // Only latency suffers if it fails.
    let _ = tcp.set_nodelay(true);
    let Some(server_name) = target.server_name else { return Ok((Opened::Tcp(DirectIo::Plain(tcp)), rtt)) };
    let stream = connector.tls.connect(server_name, tcp).await.map_err(|error| match error.get_ref() {
        Some(tls) => Failure { reason: handshake_reason(tls), told: tls.to_string() },
        None => Failure::of(&error),
    })?;
    Ok((Opened::Tcp(DirectIo::Tls(Box::new(stream))), rtt))
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        Self { reason: socket_reason(error.kind()), told: error.to_string() }
    }
}

/// How much longer HTTP/3 may take once TCP has failed. 1 s; our choice: whoever cuts TCP off lets UDP through or swallows it, and other
/// ways are left.
const QUIC_ALONE_WITHIN: Duration = Duration::from_secs(1);

/// Addresses of one name that are looked at. 16; our choice: a race tries five, and a name may have ten thousand.
const PLACES_MAX: usize = 16;

/// Signs of life that wait to be told: one for each attempt of a race.
const ALIVE_MAX: usize = 16;
