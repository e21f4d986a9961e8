//! The HTTP front door: HTTP/1.1, HTTP/2 and HTTP/3 connections, with limits on what a client may make us hold.

mod guard;
mod h3;
mod incoming;
mod parting;
mod reserved;
mod service;
mod streams;
mod upgrade;
mod upload;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::HeaderValue;
use hyper::service::service_fn;
use hyper::upgrade::Upgraded;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::guard::Guarded;
use self::parting::Flushes;
use self::service::Service;
use self::streams::{Streams, Verdict};
use crate::lists::Lists;
use crate::metrics::{Counter, Gauge, Metrics};
use crate::pipe::Pipe;
use crate::proxy::Proxy;
use crate::signing::Signer;

pub use self::h3::serve_h3;
pub use self::service::HEALTH_PATH;
pub use self::upgrade::LINK_PROTOCOL;

/// HTTP version of a TCP connection, settled by ALPN or by its first bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// HTTP/1.1, and HTTP/1.0 where an answer has a length.
    H1,
    /// HTTP/2.
    H2,
}

/// What is known of a connection besides its bytes.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The client's address.
    pub address: SocketAddr,
    /// Whether the connection is unencrypted.
    pub plain: bool,
    /// True while the TLS handshake has not ended and what is read is early data.
    pub early: Option<Arc<AtomicBool>>,
}

impl Connection {
    /// Makes an encrypted connection whose handshake has ended.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, plain: false, early: None }
    }

    fn is_early(&self) -> bool {
        self.early.as_ref().is_some_and(|early| early.load(Ordering::Acquire))
    }
}

/// Takes over a WebSocket that speaks [`LINK_PROTOCOL`], once it has switched.
pub type OnLink = Box<dyn Fn(Upgraded, Connection) + Send + Sync>;

/// The front door's limits; each can be set by name.
#[derive(Clone, Debug)]
pub struct FrontLimits {
    /// Time for a request's head, and to the next one on an idle HTTP/1 connection. Default: 30 s.
    pub head_timeout: Duration,
    /// Largest request head, bytes. Default: 32 KiB.
    pub head_bytes_max: u32,
    /// Time an HTTP/2 or HTTP/3 connection may be without a request. Default: 60 s.
    pub idle_timeout: Duration,
    /// Bytes read of a body whose answer has begun and which nobody wants. Default: 64 MiB.
    pub linger_bytes_max: u64,
    /// Time such a body may stay silent behind its answer. Default: 5 s.
    pub linger_idle_timeout: Duration,
    /// Time such a body may last behind its answer. Default: 30 s.
    pub linger_timeout: Duration,
    /// Time a client may take no byte of an answer that is there. Default: 60 s.
    pub stall_timeout: Duration,
    /// Requests at once on one HTTP/2 or HTTP/3 connection. Default: 128.
    pub streams_max: u32,
}

impl Default for FrontLimits {
    fn default() -> Self {
        Self {
            head_timeout: HEAD_TIMEOUT,
            head_bytes_max: HEAD_BYTES_MAX,
            idle_timeout: IDLE_TIMEOUT,
            linger_bytes_max: LINGER_BYTES_MAX,
            linger_idle_timeout: LINGER_IDLE_TIMEOUT,
            linger_timeout: LINGER_TIMEOUT,
            stall_timeout: STALL_TIMEOUT,
            streams_max: STREAMS_MAX,
        }
    }
}

/// What all connections of the front door share.
pub struct Front {
    proxy: Arc<Proxy>,
    limits: FrontLimits,
    drain: CancellationToken,
    on_link: Option<OnLink>,
    alt_svc: Option<HeaderValue>,
    lists: Option<Arc<Lists>>,
    pipe: Option<Arc<Pipe>>,
    signer: Option<Arc<Signer>>,
    tunnels: TaskTracker,
    counters: Counters,
}

impl Front {
    /// Makes a front door before `proxy`; cancelling `drain` makes its connections finish what is in flight
    /// and close.
    pub fn new(proxy: Arc<Proxy>, metrics: &Metrics, limits: FrontLimits, drain: CancellationToken) -> Self {
        let tunnels = TaskTracker::new();
        Self {
            proxy,
            limits,
            drain,
            on_link: None,
            alt_svc: None,
            lists: None,
            pipe: None,
            signer: None,
            tunnels,
            counters: Counters::new(metrics),
        }
    }

    /// Hands WebSockets that speak [`LINK_PROTOCOL`] to `on_link`; they are refused without it.
    #[must_use]
    pub fn with_links(mut self, on_link: OnLink) -> Self {
        self.on_link = Some(on_link);
        self
    }

    /// Tells clients of HTTP/1.1 and HTTP/2 that HTTP/3 is served on UDP `port` (RFC 7838).
    #[must_use]
    pub fn with_h3_at(mut self, port: u16) -> Self {
        let value = format!("h3=\":{port}\"; ma={}", ALT_SVC_FRESH.as_secs());
        self.alt_svc = HeaderValue::try_from(value).ok();
        self
    }

    /// Answers for the access list; such requests go to the routes without it.
    #[must_use]
    pub(crate) fn with_lists(mut self, lists: Arc<Lists>) -> Self {
        self.lists = Some(lists);
        self
    }

    /// Takes sealed requests through `pipe`, and signs answers with `signer`; their paths are like any others without.
    #[must_use]
    pub(crate) fn with_secrets(mut self, pipe: Option<Arc<Pipe>>, signer: Option<Arc<Signer>>) -> Self {
        (self.pipe, self.signer) = (pipe, signer);
        self
    }

    /// Returns the tasks that pass upgraded connections through; they outlive [`serve`], and whoever drains
    /// may wait for them.
    pub fn tunnels(&self) -> &TaskTracker {
        &self.tunnels
    }
}

/// Serves one connection until it ends.
///
/// Every failure is counted and answered or cut here: there is nothing left for the caller to do. Dropping
/// the future cuts the connection.
pub async fn serve<I>(io: I, protocol: Protocol, front: Arc<Front>, connection: Connection)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let counters = &front.counters;
    let (total, open) = match protocol {
        Protocol::H1 => (&counters.h1, &counters.h1_open),
        Protocol::H2 => (&counters.h2, &counters.h2_open),
    };
    total.inc();
    let _open = open.hold();
    let io = Guarded::new(io, front.limits.stall_timeout);
    let flushes = io.flushes();
    let io = TokioIo::new(io);
    let ended = match protocol {
        Protocol::H1 => serve_h1(io, &front, connection, flushes).await,
        Protocol::H2 => serve_h2(io, &front, connection).await,
    };
    if let Err(error) = ended {
        counters.count(&error);
        tracing::debug!(%error, "front door connection ended");
    }
}

async fn serve_h1<I>(
    io: TokioIo<Guarded<I>>,
    front: &Arc<Front>,
    connection: Connection,
    flushes: Arc<Flushes>,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &front.limits;
    let service = Service::h1(Arc::clone(front), connection, flushes);
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_header_size(limits.head_bytes_max as usize)
        .max_headers(HEADERS_MAX)
        .max_buf_size(H1_BUFFER_BYTES.max(limits.head_bytes_max as usize));
    let serving = builder.serve_connection(io, service_fn(|request| service.answer(request)));
    let mut serving = pin!(serving.with_upgrades());
    tokio::select! {
        ended = serving.as_mut() => return ended,
        () = front.drain.cancelled() => serving.as_mut().graceful_shutdown(),
    }
    serving.await
}

async fn serve_h2<I>(io: TokioIo<Guarded<I>>, front: &Arc<Front>, connection: Connection) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &front.limits;
    let streams = Arc::new(Streams::new(limits.streams_max as usize));
    let service = Service::h2(Arc::clone(front), connection, Arc::clone(&streams));
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_max)
        .max_header_list_size(limits.head_bytes_max)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(H2_SEND_BYTES);
    let service = Arc::new(service);
    let answer = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { service.answer(request).await }
    });
    let mut serving = pin!(builder.serve_connection(io, answer));
    let mut draining = false;
    let mut watch = pin!(streams.watch(limits.idle_timeout, limits.stall_timeout));
    loop {
        tokio::select! {
            ended = serving.as_mut() => return ended,
            () = front.drain.cancelled(), if !draining => {
                draining = true;
                serving.as_mut().graceful_shutdown();
            }
            verdict = watch.as_mut() => {
                let reason = match verdict {
                    Verdict::Idle => &front.counters.idle,
                    Verdict::Stalled => &front.counters.stalled,
                };
                reason.inc();
                if verdict == Verdict::Idle {
                    serving.as_mut().graceful_shutdown();
                    // A client that will not take the farewell is cut.
                    let _ = tokio::time::timeout(FAREWELL_TIMEOUT, serving).await;
                }
                return Ok(());
            }
        }
    }
}

/// The front door's own counters.
#[derive(Debug)]
struct Counters {
    h1: Counter,
    h1_open: Gauge,
    h2: Counter,
    h2_open: Gauge,
    h3: Counter,
    h3_open: Gauge,
    head_timeout: Counter,
    idle: Counter,
    malformed: Counter,
    stalled: Counter,
    websocket: Counter,
}

impl Counters {
    fn new(metrics: &Metrics) -> Self {
        Self {
            h1: metrics.http_connections("h1"),
            h1_open: metrics.http_connections_open("h1"),
            h2: metrics.http_connections("h2"),
            h2_open: metrics.http_connections_open("h2"),
            h3: metrics.http_connections("h3"),
            h3_open: metrics.http_connections_open("h3"),
            head_timeout: metrics.refusal("http_head_timeout"),
            idle: metrics.refusal("http_idle"),
            malformed: metrics.refusal("http_malformed"),
            stalled: metrics.refusal("http_stalled"),
            websocket: metrics.refusal("websocket_handshake"),
        }
    }

    /// Counts what ended a connection, if it was the client's fault.
    fn count(&self, error: &hyper::Error) {
        if guard::is_stall(error) {
            self.stalled.inc();
        } else if error.is_timeout() {
            self.head_timeout.inc();
        } else if error.is_parse() || is_h2_protocol_error(error) {
            self.malformed.inc();
        }
    }
}

fn is_h2_protocol_error(error: &hyper::Error) -> bool {
    crate::proxy::source_of::<h2::Error>(error)
        .is_some_and(|error| error.is_library() && error.reason().is_some_and(|reason| reason != h2::Reason::NO_ERROR))
}

/// Time for a request's head: half of nginx's `client_header_timeout` default, and longer than 16 KiB take on the
/// slowest graded network.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Largest request head: as on links ([`FIELDS_BYTES_MAX`](ropeway_core::wire::fields::FIELDS_BYTES_MAX)), so that a request is taken by
/// whichever way it comes; hyper buffers as much anyway.
const HEAD_BYTES_MAX: u32 = ropeway_core::wire::fields::FIELDS_BYTES_MAX as u32;

/// Header fields of one request over HTTP/1: as in a sealed message ([`FIELDS_MAX`](ropeway_net::pipe::FIELDS_MAX)).
const HEADERS_MAX: usize = ropeway_net::pipe::FIELDS_MAX;

/// Time without a request: nginx's `keepalive_timeout` default is 75 s; a phone's radio sleeps long before.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes of a body read for nobody. Tomcat swallows 2 MiB (`maxSwallowSize`), nginx what comes in its `lingering_time`;
/// this is what a phone with 17 Mbit/s up sends in [`LINGER_TIMEOUT`]. They are held nowhere.
const LINGER_BYTES_MAX: u64 = 64 << 20;

/// Silence of a body read for nobody: nginx's `lingering_timeout` default.
const LINGER_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time a body is read for nobody: nginx's `lingering_time` default. Shorter than [`IDLE_TIMEOUT`], so that an HTTP/2
/// connection is not idle meanwhile.
const LINGER_TIMEOUT: Duration = Duration::from_secs(30);

/// Time a client may take nothing of its answer: nginx's `send_timeout` default.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Requests at once on one HTTP/2 connection: RFC 9113 section 6.5.2 advises no fewer than 100.
const STREAMS_MAX: u32 = 128;

/// Bytes hyper buffers of one HTTP/1 connection, each way.
const H1_BUFFER_BYTES: usize = 64 << 10;

/// Bytes of one request's body held for a slow upstream: the default of RFC 9113 section 6.9.2.
const STREAM_WINDOW_BYTES: u32 = (64 << 10) - 1;

/// The same over all requests of one connection, as for a link.
const WINDOW_BYTES: u32 = 1 << 20;

/// Bytes of one answer held for a client that gives no credit.
const H2_SEND_BYTES: usize = 256 << 10;

/// How long clients may remember where HTTP/3 is served: the default of RFC 7838 section 3.1.
const ALT_SVC_FRESH: Duration = Duration::from_secs(24 * 60 * 60);

/// Time for an idle client to answer the farewell of its connection.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
