//! Upstreams and clients made in the test, on loopback.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ropeway_gateway::metrics::Metrics;
use ropeway_gateway::proxy::{Peer, Proxy, ProxyBody, ProxyError};
use ropeway_gateway::route::{RouteSpec, Router};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Accepts connections and gives each to `serve`, with its number from 0.
pub(crate) async fn raw_upstream<F, Fut>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream, usize) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback binds");
    let address = listener.local_addr().expect("bound");
    tokio::spawn(async move {
        for number in 0.. {
            let (stream, _) = listener.accept().await.expect("loopback accepts");
            tokio::spawn(serve(stream, number));
        }
    });
    address
}

/// Serves HTTP/1.1 or, with `h2`, HTTP/2 in the clear.
pub(crate) async fn http_upstream<F, Fut>(h2: bool, answer: F) -> SocketAddr
where
    F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response<ProxyBody>> + Send + 'static,
{
    let answer = Arc::new(answer);
    raw_upstream(move |stream, _| {
        let answer = Arc::clone(&answer);
        async move { serve_upstream(stream, h2, move |request| answer(request)).await }
    })
    .await
}

/// Serves one connection of [`http_upstream`].
pub(crate) async fn serve_upstream<F, Fut>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    h2: bool,
    answer: F,
) where
    F: Fn(Request<Incoming>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Response<ProxyBody>> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let io = TokioIo::new(stream);
    if h2 {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.serve_connection(io, service).await;
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new());
        let _ = builder.serve_connection(io, service).with_upgrades().await;
    }
}

/// Reads one request head, up to and with the empty line.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).expect("text")
}

/// Answers one request with these bytes, then closes.
pub(crate) async fn answering(bytes: &'static [u8]) -> SocketAddr {
    raw_upstream(move |mut stream, _| async move {
        read_head(&mut stream).await;
        let _ = stream.write_all(bytes).await;
        let _ = stream.shutdown().await;
    })
    .await
}

/// Answers so many bytes of one more, then closes.
pub(crate) async fn cutting(length: usize) -> SocketAddr {
    raw_upstream(move |mut stream, _| async move {
        read_head(&mut stream).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", length + 1);
        let _ = stream.write_all(head.as_bytes()).await;
        let _ = stream.write_all(&vec![b'x'; length]).await;
        let _ = stream.shutdown().await;
    })
    .await
}

/// A proxy for `http://a.test/` to one upstream.
pub(crate) fn proxy_to(upstream: &str) -> (Arc<Proxy>, Arc<Metrics>) {
    proxy_with(RouteSpec::new("a.test", upstream))
}

pub(crate) fn proxy_with(spec: RouteSpec) -> (Arc<Proxy>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::new());
    let router = Router::new(vec![spec]).expect("valid route");
    (Arc::new(Proxy::new(router, Arc::clone(&metrics))), metrics)
}

pub(crate) fn peer() -> Peer {
    Peer::new("192.0.2.7:1234".parse().expect("an address"))
}

pub(crate) fn full(bytes: impl Into<Bytes>) -> ProxyBody {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) fn get(uri: &str) -> Request<ProxyBody> {
    Request::get(uri).body(full("")).expect("valid request")
}

pub(crate) fn post(uri: &str, body: ProxyBody) -> Request<ProxyBody> {
    Request::post(uri).body(body).expect("valid request")
}

/// A body fed by the test; dropping the sender without an error ends it well.
pub(crate) fn channel(bound: usize) -> (tokio::sync::mpsc::Sender<Result<Bytes, ProxyError>>, ProxyBody) {
    let (sender, receiver) = tokio::sync::mpsc::channel(bound);
    (sender, Channel(receiver).boxed_unsync())
}

struct Channel(tokio::sync::mpsc::Receiver<Result<Bytes, ProxyError>>);

impl http_body::Body for Channel {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, ProxyError>>> {
        self.0.poll_recv(cx).map(|item| item.map(|data| data.map(http_body::Frame::data)))
    }
}

/// Asserts that one error was counted so often.
pub(crate) fn assert_counted(metrics: &Metrics, error: ProxyError, count: u64) {
    assert_eq!(metrics.request_error(error.name()).value(), count, "{}", metrics.render());
}
