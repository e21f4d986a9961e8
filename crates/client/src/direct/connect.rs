//! Connects to a host by racing its addresses; a connection counts when its TLS handshake is complete.

use std::{
    collections::BTreeMap,
    future::Future,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use http::Uri;
use hyper_util::rt::TokioIo;
use ropeway_core::{
    CarrierKind,
    connect::{AttemptId, Candidate, FailReason, Race, RaceConfig, RaceError, RaceOutput, Records, Source, candidate},
};
use ropeway_net::{
    Clock,
    dial::{handshake_reason, socket_reason},
};
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
    version::{TLS12, TLS13},
};
use thiserror::Error;
use tokio::{
    net::TcpStream,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until, timeout},
};
use tokio_rustls::TlsConnector;
use tracing::debug;

use super::io::DirectIo;
use crate::{
    Action,
    shared::{AttemptLog, lock},
};

/// Opens connections for direct calls.
#[derive(Clone)]
pub(crate) struct Connector {
    tls: TlsConnector,
    records: Arc<Mutex<Records>>,
    log: Arc<AttemptLog>,
    clock: Clock,
}

/// Why no connection to a host came about; nothing was sent.
#[derive(Debug, Error)]
pub(crate) enum ConnectError {
    #[error("{0:?} is no server name")]
    Name(String),
    #[error(transparent)]
    Race(#[from] RaceError),
    #[error("name was not resolved: {0}")]
    Unresolved(io::Error),
}

/// Why one attempt failed.
struct Failure {
    reason: FailReason,
    told: String,
}

type Attempted = (AttemptId, Result<(DirectIo, Duration), Failure>);

impl Connector {
    pub(super) fn new(trust: &[CertificateDer<'static>], log: Arc<AttemptLog>, clock: Clock) -> Result<Self, String> {
        let tls = Arc::new(tls_config(trust).map_err(|error| error.to_string())?).into();
        Ok(Self { tls, records: Arc::new(Mutex::new(Records::new())), log, clock })
    }

    async fn connect(self, uri: Uri) -> Result<TokioIo<DirectIo>, ConnectError> {
        let encrypted = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let server_name = match encrypted {
            true => Some(ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::Name(host.clone()))?),
            false => None,
        };
        let addresses = resolve(name, port).await.map_err(ConnectError::Unresolved)?;
        let now = self.clock.now();
        let known = candidate::merge(addresses.into_iter().map(|address| {
            // The carrier only names the record: a direct call has none.
            (Candidate { address, carrier: CarrierKind::Tls }, Source::Config)
        }));
        let ranked = candidate::rank(&known, &lock(&self.records), 0, now);
        let race = Race::new(RaceConfig::default(), ranked, now);
        Ok(TokioIo::new(self.race(race, &host.into(), server_name).await?))
    }

    /// Runs a race to its winner; the losers are dropped with it.
    async fn race(
        &self,
        mut race: Race,
        host: &Arc<str>,
        server_name: Option<ServerName<'static>>,
    ) -> Result<DirectIo, RaceError> {
        let mut attempts: JoinSet<Attempted> = JoinSet::new();
        let mut running: BTreeMap<AttemptId, (u64, AbortHandle)> = BTreeMap::new();
        let mut finished: Option<(AttemptId, DirectIo)> = None;
        loop {
            while let Some(output) = race.poll_output() {
                match output {
                    RaceOutput::Abandon { attempt, .. } => {
                        if let Some((log, task)) = running.remove(&attempt) {
                            task.abort();
                            self.log.end(log, Some("given up".into()));
                        }
                    }
                    RaceOutput::KeepSpare { .. } => {}
                    RaceOutput::Lost(error) => return Err(error),
                    RaceOutput::Scored { candidate, score } => {
                        lock(&self.records).observe(candidate, score, self.clock.now());
                    }
                    RaceOutput::Start { attempt, candidate } => {
                        let log = self.log.start(Some(Arc::clone(host)), Action::Connect, candidate);
                        let (tls, server_name) = (self.tls.clone(), server_name.clone());
                        let open = async move { (attempt, open(candidate.address, tls, server_name).await) };
                        running.insert(attempt, (log, attempts.spawn(open)));
                    }
                    RaceOutput::Won { attempt } => {
                        if let Some((_, io)) = finished.take_if(|(winner, _)| *winner == attempt) {
                            running.into_values().for_each(|(log, _)| self.log.end(log, Some("given up".into())));
                            return Ok(io);
                        }
                    }
                }
            }
            let deadline = race.poll_timeout().map_or_else(Instant::now, |(at, _)| self.clock.instant(at));
            tokio::select! {
                Some(Ok((attempt, result))) = attempts.join_next(), if !attempts.is_empty() => {
                    let log = running.remove(&attempt).map(|(log, _)| log);
                    let error = result.as_ref().err().map(|failure| failure.told.clone());
                    log.into_iter().for_each(|log| self.log.end(log, error.clone()));
                    let now = self.clock.now();
                    match result {
                        Ok((io, rtt)) => {
                            finished = Some((attempt, io));
                            race.handle_connected(attempt, rtt, now);
                        }
                        Err(failure) => race.handle_failed(attempt, failure.reason, now),
                    }
                }
                () = sleep_until(deadline) => race.handle_timeout(self.clock.now()),
            }
        }
    }
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<DirectIo>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(self.clone().connect(uri))
    }
}

async fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match timeout(LOOKUP_WITHIN, tokio::net::lookup_host((name, port))).await {
        Ok(addresses) => Ok(addresses?.collect()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn open(
    address: SocketAddr,
    tls: TlsConnector,
    server_name: Option<ServerName<'static>>,
) -> Result<(DirectIo, Duration), Failure> {
    let begun = Instant::now();
    let tcp = TcpStream::connect(address).await.map_err(|error| Failure::of(&error))?;
    let rtt = begun.elapsed();
    // Only latency suffers if it fails.
    let _ = tcp.set_nodelay(true);
    let Some(server_name) = server_name else { return Ok((DirectIo::Plain(tcp), rtt)) };
    let stream = tls.connect(server_name, tcp).await.map_err(|error| match error.get_ref() {
        Some(tls) => Failure { reason: handshake_reason(tls), told: tls.to_string() },
        None => Failure::of(&error),
    })?;
    debug!(%address, "direct connection is open");
    Ok((DirectIo::Tls(Box::new(stream)), rtt))
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        Self { reason: socket_reason(error.kind()), told: error.to_string() }
    }
}

/// TLS 1.2 and 1.3, as foreign hosts need it, with the platform's authorities and `trust`.
fn tls_config(trust: &[CertificateDer<'static>]) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        rustls_platform_verifier::Verifier::new_with_extra_roots(trust.iter().cloned(), Arc::clone(&provider))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS12, &TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// How long the name of a host may take. 5 s; the timeout of one query of resolv.conf(5).
const LOOKUP_WITHIN: Duration = Duration::from_secs(5);
