//! Connections from the gateway to the services behind it.

mod connect;
mod gate;
mod target;
mod turns;

pub use self::connect::{ConnectError, UpstreamIo};
pub use self::gate::DownMetrics;
pub use self::target::{HttpTarget, Target, TargetError};
pub use self::turns::Turns;

use std::time::Duration;

use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};

use self::connect::Connector;
use self::gate::Gate;
use crate::route::RouteSpec;

/// Pooled HTTP client of one route.
#[derive(Debug)]
pub struct Upstream<B> {
    client: Client<Gate, B>,
    gate: Gate,
}

impl<B> Upstream<B>
where
    B: Body<Data = bytes::Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    /// Makes a client with an empty pool.
    pub fn new(target: &HttpTarget, spec: &RouteSpec, metrics: DownMetrics) -> Self {
        let gate = Gate::new(Connector::new(target.clone(), spec.connect_timeout), metrics);
        let window = H2_STREAM_WINDOW_BYTES;
        let streams = u32::try_from(spec.in_flight_max).unwrap_or(u32::MAX);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(spec.in_flight_max.min(POOL_IDLE_MAX))
            .http1_max_buf_size(H1_BUFFER_BYTES)
            .http2_only(target.is_h2())
            .http2_initial_stream_window_size(window)
            // Room for every stream's window at once: a slow reader of one body never takes the
            // credit of another (RFC 9113 section 5.2 leaves the sizes to the receiver).
            .http2_initial_connection_window_size(window.saturating_mul(streams).min(H2_WINDOW_MAX))
            .http2_max_send_buf_size(H2_SEND_BYTES)
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .http2_keep_alive_interval(H2_KEEP_ALIVE)
            .build(gate.clone());
        Self { client, gate }
    }

    /// Sends a request over a pooled connection or a new one.
    ///
    /// A request that a dying pooled connection gave back unwritten is sent again by
    /// hyper-util; one that was taken for writing never is.
    ///
    /// # Errors
    /// Those of hyper-util; a failed connect holds a [`ConnectError`] as a source.
    pub async fn send(&self, request: Request<B>) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        self.client.request(request).await
    }

    /// Opens an HTTP/1.1 connection outside the pool, for a request that may turn into a tunnel.
    ///
    /// # Errors
    /// As [`ConnectError`] says.
    pub async fn connect(&self) -> Result<TokioIo<UpstreamIo>, ConnectError> {
        self.gate.connect(true).await
    }
}

/// How long an unused connection stays pooled. Node's `server.keepAliveTimeout` and Apache's
/// `KeepAliveTimeout` close after 5 s: leaving first avoids writing into a closing connection.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Unused connections kept per route: as many as a route has in flight by default. Fewer would be closed and opened again
/// in every lull of a busy route.
const POOL_IDLE_MAX: usize = 1_024;

/// Most bytes hyper buffers of one HTTP/1 answer before the client takes them; also the limit on
/// an answer's head. Eight pages of nginx's `large_client_header_buffers` (4 × 8 KiB), twice.
const H1_BUFFER_BYTES: usize = 64 << 10;

/// Credit of one HTTP/2 answer: what the gateway holds at most while its client is slow.
const H2_STREAM_WINDOW_BYTES: u32 = 256 << 10;

/// Largest window: RFC 9113 section 6.9.1.
const H2_WINDOW_MAX: u32 = (1 << 31) - 1;

/// Request bytes held per HTTP/2 stream while the upstream gives no credit.
const H2_SEND_BYTES: usize = 256 << 10;

/// Largest header section of an answer, bytes, as for HTTP/1.
const HEADER_BYTES_MAX: u32 = 64 << 10;

/// Pause after which an HTTP/2 upstream with open streams is pinged, so that a vanished one is
/// noticed: below the shortest idle time-out in use by far.
const H2_KEEP_ALIVE: Duration = Duration::from_secs(10);
