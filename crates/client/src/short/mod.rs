//! Short links: one HTTP exchange with the host of a URL, by its name or at a listed address, over HTTP/1.1, HTTP/2 or HTTP/3.
//!
//! There is no retry in here and no time limit beyond those of connecting: whoever waits drops the future, and [`Trace`] says how
//! far it came.

mod connect;
mod exchange;
mod h3;
mod io;
mod pool;
mod resolve;
mod target;
mod tls;
mod words;

use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock},
};

use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::Body as _;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ropeway_core::{
    CarrierKind,
    connect::{AltSvc, Candidate, OtherNetworks, RaceConfig, Records, Source, altsvc},
    request::{Hosts, Way, fresh},
};
use ropeway_net::{Clock, h3::H3Dialer, innermost};
use rustls::pki_types::CertificateDer;
use thiserror::Error;

pub(crate) use self::{
    connect::{ConnectError, OnUntrusted},
    exchange::ShortBody,
    pool::Limits,
    resolve::{Resolver, resolver},
};
use self::{
    connect::{Connector, Opened, Place},
    exchange::Fault,
    h3::H3Sender,
    pool::{Key, Pool, Sender, leads_to},
    target::Target,
};
use crate::{
    Body, BoxError, Error,
    pace::{Pace, Pauses},
    shared::{AttemptLog, lock},
    way::{Aim, Trace},
};

/// What short links are made of.
pub(crate) struct Setup {
    /// Authorities trusted beside the platform's.
    pub(crate) trust: Vec<CertificateDer<'static>>,
    /// Hosts that the app knows to speak HTTP/3 on the port of the URL.
    pub(crate) h3_hosts: Hosts,
    pub(crate) limits: Limits,
    pub(crate) race: RaceConfig,
    pub(crate) resolver: Resolver,
    pub(crate) on_untrusted: OnUntrusted,
    pub(crate) log: Arc<AttemptLog>,
    pub(crate) pace: Arc<Pace>,
    pub(crate) clock: Clock,
}

/// Calls hosts without a link, from a pool of connections.
pub(crate) struct Short {
    setup: Setup,
    pool: Arc<Pool>,
    alt_svc: Arc<Mutex<AltSvc>>,
    /// How the addresses of hosts did on this network.
    records: Arc<Mutex<Records>>,
    /// How they did on others.
    other_records: Mutex<OtherNetworks>,
    /// Asks the system alone.
    system: Resolver,
    /// Made with the first call: the platform's certificates take a while to read.
    connector: OnceLock<Result<Connector, String>>,
}

/// Where a request is sent. Name of the server, `Host` and certificate are those of the URL either way.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To<'a> {
    /// To one of these addresses.
    Addresses(&'a [Listed]),
    /// To an address of the URL's host.
    Name,
    /// To an address of the URL's host as the system knows it, over TCP and on a connection of its own.
    Original,
}

/// Where a request has been that is sent again: no try goes to the same address as long as others are known, or on the same connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Been {
    /// Where each try went, or was to go, the oldest first.
    tries: Vec<Vec<Candidate>>,
    /// The connections that they went on.
    connections: Vec<u64>,
}

impl Been {
    pub(crate) fn of<'a>(traces: impl IntoIterator<Item = &'a Trace>) -> Self {
        let mut been = Self::default();
        for trace in traces {
            been.tries.push(trace.gone_to());
            been.connections.extend(trace.connection());
        }
        been
    }

    /// Says whether a try went on a connection.
    fn used(&self, connection: u64) -> bool {
        self.connections.contains(&connection)
    }

    /// Returns which try was the last to go to an address, one of these.
    fn last_try(&self, address: SocketAddr, among: &[SocketAddr]) -> Option<usize> {
        self.tries.iter().rposition(|peers| peers.iter().any(|peer| leads_to(*peer, address, among)))
    }

    /// Returns those of some places of a host that are this try's turn.
    fn fresh<P: Copy>(&self, places: &[P], address: impl Fn(&P) -> SocketAddr) -> Vec<P> {
        let addresses: Vec<SocketAddr> = places.iter().map(&address).collect();
        fresh(places, |place| self.last_try(address(place), &addresses))
    }
}

/// An address of the access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) address: SocketAddr,
    /// Whether HTTP/3 is served on the same port.
    pub(crate) h3: bool,
}

/// How an exchange failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// What went wrong.
    pub(crate) cause: Cause,
    /// Whether the host may have executed the request.
    pub(crate) executed: Executed,
    /// Whether the connection had carried a request before, so that it may simply have been at its end.
    pub(crate) is_reused: bool,
}

/// Whether a request that failed was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Executed {
    /// Nobody can say.
    Maybe,
    /// It was sent, and the host says that it did nothing with it.
    No,
    /// Nothing was sent.
    NotSent,
}

/// What went wrong with an exchange.
#[derive(Debug, Error)]
pub(crate) enum Cause {
    /// The body of the request did, which is the app's own.
    #[error("{0}")]
    Body(Error),
    /// There is no connection.
    #[error("{0}")]
    Connect(ConnectError),
    /// The connection or the host broke the exchange off.
    #[error("{0}")]
    Exchange(String),
    /// The head of the answer is none, or larger than any.
    #[error("head of the answer: {0}")]
    Head(String),
    /// The request cannot be sent like that.
    #[error("{0}")]
    Request(String),
    /// This device cannot open connections.
    #[error("{0}")]
    Setup(String),
}

impl Short {
    pub(crate) fn new(setup: Setup) -> Self {
        let pool = Pool::new(setup.limits);
        Self {
            setup,
            pool,
            alt_svc: Arc::default(),
            records: Arc::default(),
            other_records: Mutex::default(),
            system: resolve::system(),
            connector: OnceLock::new(),
        }
    }

    /// Takes in the label of the network that the device is on; empty if nobody has named it.
    pub(crate) fn handle_network(&self, label: &str) {
        lock(&self.other_records).handle_network(label, &mut lock(&self.records));
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// Where a connection of the pool turns out to be gone before anything was written to it, another is taken: that is no retry.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        to: To<'_>,
        been: &Been,
        trace: &Trace,
    ) -> Result<Response<Body>, Failed> {
        let fail = |cause, executed, is_reused| Failed { cause, executed, is_reused };
        let target = Target::of(request.uri());
        let target = target.map_err(|reason| fail(Cause::Request(reason), Executed::NotSent, false))?;
        let connector = match self.connector.get_or_init(|| self.connector()) {
            Ok(connector) => connector,
            Err(reason) => return Err(fail(Cause::Setup(reason.clone()), Executed::NotSent, false)),
        };
        let left: Vec<Listed> = match to {
            To::Addresses(listed) => been.fresh(listed, |listed| listed.address),
            To::Name | To::Original => Vec::new(),
        };
        let to = if let To::Addresses(_) = to { To::Addresses(&left) } else { to };
        let listed: Vec<SocketAddr> = left.iter().map(|listed| listed.address).collect();
        trace.aim().set(listed.clone());
        let key = Key { encrypted: target.encrypted, origin: target.origin.clone(), way: to.way() };
        let pauses = request.extensions().get().copied().unwrap_or(Pauses::Network);
        let broken = Arc::new(Mutex::new(None));
        let mut request = request.map(|body| body.noting(&broken));
        let mut stale_left = STALE_MAX;
        loop {
            let open = || self.open(connector.clone(), target.clone(), to, been.clone(), trace.aim().clone());
            let leased = self.pool.acquire(&key, &listed, been, open).await;
            let (lease, sender) = leased.map_err(|error| fail(Cause::Connect(error), Executed::NotSent, false))?;
            let (is_reused, carrier) = (lease.is_reused, lease.peer.carrier);
            target.shape(&mut request, sender.http());
            let measured = self.setup.pace.begin(request.body().size_hint().lower());
            match exchange::exchange(lease, sender, request, trace).await {
                Ok(answer) => {
                    self.note(&target, carrier, answer.status(), answer.headers());
                    return Ok(measured.answer(answer.map(Body::short), pauses));
                }
                Err(Fault::Unsent(unsent, _)) if is_reused && stale_left > 0 => {
                    stale_left -= 1;
                    request = *unsent;
                }
                Err(Fault::Unsent(_, reason)) => {
                    return Err(fail(Cause::Exchange(reason), Executed::NotSent, false));
                }
                Err(Fault::Failed(executed, cause)) => {
                    let failed: Option<BoxError> = lock(&broken).take();
                    let cause = failed.map_or(cause, |reason| Cause::Body(Error::Body(reason)));
                    return Err(fail(cause, executed, is_reused));
                }
            }
        }
    }

    /// Returns what opens a connection for `target`; it may go on when its caller is gone.
    fn open(
        &self,
        connector: Connector,
        target: Target,
        to: To<'_>,
        been: Been,
        aim: Aim,
    ) -> impl Future<Output = Result<(Candidate, Sender), ConnectError>> + Send + use<> {
        let origin = &target.origin;
        let now = self.setup.clock.now();
        let (promised, is_broken) = {
            let alt_svc = lock(&self.alt_svc);
            (alt_svc.port(origin, now), alt_svc.is_broken(origin, now))
        };
        let is_named = self.setup.h3_hosts.serve(&origin.host, origin.port);
        let listed: Option<Vec<Place>> = match to {
            To::Addresses(listed) => {
                let addresses: Vec<SocketAddr> = listed.iter().map(|listed| listed.address).collect();
                let place = |listed: &Listed| {
                    let is_said = (listed.h3 || is_named) && !is_broken;
                    let h3 = altsvc::h3_port(promised, is_said, listed.address, &addresses);
                    Place { address: listed.address, h3 }
                };
                Some(listed.iter().map(place).collect())
            }
            To::Name | To::Original => None,
        };
        let way = to.way();
        let is_original = way == Way::Original;
        let resolver = if is_original { &self.system } else { &self.setup.resolver };
        let is_hint_wanted =
            target.encrypted && connector.h3.is_some() && promised.is_none() && !is_named && !is_broken;
        let resolving = resolver(&origin.host, origin.port, is_hint_wanted && !is_original);
        async move {
            let (places, source) = match listed {
                Some(places) => (places, Source::List),
                None => {
                    let resolved = resolving.await.map_err(|error| ConnectError::Unresolved(error.to_string()))?;
                    let addresses = been.fresh(&resolved.addresses, |address| *address);
                    aim.set(addresses.clone());
                    let said = resolved.h3_hint || is_named;
                    // The app, the host and the signed list have the word over a record.
                    let promised = promised.or(resolved.h3_port.filter(|_| is_hint_wanted && !said));
                    let place = |address| {
                        let h3 = altsvc::h3_port(promised, said && !is_broken, address, &resolved.addresses);
                        Place { address, h3: h3.filter(|_| !is_original) }
                    };
                    (addresses.into_iter().map(place).collect(), Source::Config)
                }
            };
            let (peer, opened) = connector.connect(target, places, source, way).await?;
            let sender = begin_http(opened).await.map_err(ConnectError::Http)?;
            Ok((peer, sender))
        }
    }

    /// Learns from an answer where HTTP/3 is.
    fn note(&self, target: &Target, carrier: CarrierKind, status: StatusCode, headers: &HeaderMap) {
        if !target.encrypted {
            return;
        }
        let now = self.setup.clock.now();
        if carrier == CarrierKind::Quic && status == StatusCode::MISDIRECTED_REQUEST {
            // RFC 7838 section 6: the alternative is not the host.
            lock(&self.alt_svc).handle_broken(&target.origin, now);
        }
        let said: Vec<&str> = headers.get_all(header::ALT_SVC).iter().filter_map(|value| value.to_str().ok()).collect();
        if !said.is_empty() {
            lock(&self.alt_svc).handle_header(&target.origin, &said.join(","), now);
        }
    }

    fn connector(&self) -> Result<Connector, String> {
        let (tcp, quic) = tls::settings(&self.setup.trust).map_err(|error| error.to_string())?;
        Ok(Connector {
            tls: Arc::new(tcp).into(),
            // Without a UDP socket there is TCP.
            h3: H3Dialer::new(quic).ok(),
            records: Arc::clone(&self.records),
            alt_svc: Arc::clone(&self.alt_svc),
            race: self.setup.race.clone(),
            log: Arc::clone(&self.setup.log),
            on_untrusted: Arc::clone(&self.setup.on_untrusted),
            pace: Arc::clone(&self.setup.pace),
            clock: self.setup.clock,
        })
    }

    /// Says whether HTTP/3 was tried in vain at a host, and is not to be tried yet.
    #[cfg(test)]
    fn is_h3_broken(&self, origin: &ropeway_core::connect::Origin) -> bool {
        lock(&self.alt_svc).is_broken(origin, self.setup.clock.now())
    }
}

impl To<'_> {
    const fn way(self) -> Way {
        match self {
            To::Addresses(_) => Way::Address,
            To::Name => Way::Name,
            To::Original => Way::Original,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        f.write_str(if self.is_reused { ", on a connection that had been used before" } else { "" })
    }
}

/// Begins HTTP, in the version both ends have settled on.
async fn begin_http(opened: Opened) -> Result<Sender, String> {
    let io = match opened {
        Opened::Quic(connection) => return H3Sender::open(connection).await.map(Sender::H3),
        Opened::Tcp(io) => io,
    };
    let head_bytes_max = u32::try_from(HEAD_BYTES_MAX).expect("it is small");
    if io.is_h2() {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).max_header_list_size(head_bytes_max);
        let (mut sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(|error| innermost(&error))?;
        tokio::spawn(connection);
        sender.ready().await.map_err(|error| innermost(&error))?;
        return Ok(Sender::H2(sender));
    }
    let mut builder = http1::Builder::new();
    builder.max_headers(HEADERS_MAX).max_buf_size(head_bytes_max as usize);
    let (mut sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(|error| innermost(&error))?;
    tokio::spawn(connection);
    sender.ready().await.map_err(|error| innermost(&error))?;
    Ok(Sender::H1(sender))
}

/// Bytes of an answer's head. 256 KiB; Chromium `http_stream_parser.h`.
const HEAD_BYTES_MAX: u64 = 256 << 10;

/// Connections of the pool that one request may find gone. 16; our choice: more than a host has.
const STALE_MAX: u32 = 16;

/// Header lines of an answer over HTTP/1. 256; our choice: hyper's 100 is too few for some hosts' cookies.
const HEADERS_MAX: usize = 256;

#[cfg(test)]
mod tests;
