//! A front door to knock at, and what to say there.

use std::sync::Arc;
use std::time::Duration;

use http::Response;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ropeway_gateway::front::{Connection, Front, FrontLimits, Protocol, serve};
use ropeway_gateway::metrics::Metrics;
use ropeway_gateway::proxy::{Proxy, ProxyBody};
use ropeway_gateway::route::{RouteSpec, Router};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_util::sync::CancellationToken;

use crate::support::*;

/// A front door before one upstream at `a.test`, reached over pipes in memory.
pub(crate) struct Door {
    pub(crate) front: Arc<Front>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) drain: CancellationToken,
    pub(crate) connection: Connection,
}

impl Door {
    pub(crate) fn to(upstream: &str) -> Self {
        Self::with(RouteSpec::new("a.test", upstream))
    }

    pub(crate) fn with(spec: RouteSpec) -> Self {
        Self::build(spec, |front| front)
    }

    pub(crate) fn build(spec: RouteSpec, finish: impl FnOnce(Front) -> Front) -> Self {
        let metrics = Arc::new(Metrics::new());
        let router = Router::new(vec![spec]).expect("valid route");
        let proxy = Arc::new(Proxy::new(router, Arc::clone(&metrics)));
        let drain = CancellationToken::new();
        let front = Front::new(proxy, &metrics, FrontLimits::default(), drain.clone());
        let connection = Connection::new("192.0.2.7:1234".parse().expect("an address"));
        Self { front: Arc::new(finish(front)), metrics, drain, connection }
    }

    pub(crate) fn open(&self, protocol: Protocol) -> DuplexStream {
        let (client, server) = tokio::io::duplex(PIPE_BYTES);
        tokio::spawn(serve(server, protocol, Arc::clone(&self.front), self.connection.clone()));
        client
    }

    /// Sends bytes over HTTP/1 and reads until the door closes.
    pub(crate) async fn say(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut client = self.open(Protocol::H1);
        // The door may refuse before it has read everything.
        let _ = client.write_all(bytes.as_ref()).await;
        read_all(&mut client).await
    }

    pub(crate) async fn h2(&self) -> hyper::client::conn::http2::SendRequest<ProxyBody> {
        let io = TokioIo::new(self.open(Protocol::H2));
        let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), io);
        let (sender, connection) = handshake.await.expect("a connection");
        tokio::spawn(connection);
        sender
    }

    pub(crate) async fn get_h2(&self, path: &str) -> hyper::Result<Response<hyper::body::Incoming>> {
        self.h2().await.send_request(get(&format!("https://a.test{path}"))).await
    }

    pub(crate) fn in_flight(&self) -> i64 {
        self.metrics.route("a.test/").in_flight.value()
    }
}

pub(crate) async fn read_all(stream: &mut DuplexStream) -> String {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8(bytes).expect("text")
}

pub(crate) async fn read_until(stream: &mut DuplexStream, end: &str) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(end.as_bytes()) {
        match stream.read_u8().await {
            Ok(byte) => bytes.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(bytes).expect("text")
}

/// Waits until what other tasks do makes this true.
pub(crate) async fn eventually(holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("it never became true");
}

/// Bytes in flight in each direction of a pipe, as of a small socket buffer.
const PIPE_BYTES: usize = 16 << 10;
