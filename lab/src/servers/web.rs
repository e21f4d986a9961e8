//! Accepting HTTP, in the clear or over TLS, for any answer.

use std::{
    io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto,
};
use rustls::ServerConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// The body of what servers here answer.
pub(crate) type Body = BoxBody<Bytes, io::Error>;

/// An answer under way; an error closes the connection without one.
pub(crate) type Answer = Pin<Box<dyn Future<Output = io::Result<Response<Body>>> + Send>>;

/// What answers requests.
pub(crate) type Handler = Arc<dyn Fn(Request<Incoming>) -> Answer + Send + Sync>;

/// Makes a handler of a function.
pub(crate) fn handler<F>(answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Handler
where
    F: Future<Output = io::Result<Response<Body>>> + Send + 'static,
{
    Arc::new(move |request| Box::pin(answer(request)))
}

/// Binds a port on every address of the namespace.
pub(crate) fn bind_all(port: u16) -> io::Result<TcpListener> {
    bind(Ipv6Addr::UNSPECIFIED.into(), port)
}

/// Binds a port of one address; that of the unspecified IPv6 address takes IPv4 as well.
pub(crate) fn bind(address: IpAddr, port: u16) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(SocketAddr::new(address, port))?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Accepts connections for ever and serves each on a task of its own.
pub(crate) async fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Only a matter of latency.
                let _ = stream.set_nodelay(true);
                tokio::spawn(serve(stream));
            }
            // Out of descriptors, most likely; some will come back.
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Starts a server that answers every request on a port with `handler`, over TLS if it is given a configuration.
pub(crate) fn start(listener: TcpListener, tls: Option<Arc<ServerConfig>>, handler: Handler) {
    tokio::spawn(accept(listener, move |stream| {
        let (tls, handler) = (tls.clone(), handler.clone());
        async move {
            match tls {
                None => serve(stream, handler).await,
                Some(config) => {
                    if let Some(stream) = shake_hands(stream, config).await {
                        serve(stream, handler).await;
                    }
                }
            }
        }
    }));
}

/// Serves HTTP of any version on one connection.
pub(crate) async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, handler: Handler) {
    let service = service_fn(move |request| handler(request));
    // How a connection ends is for the client to find out.
    let _ = auto::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
}

/// Makes the TLS handshake of a server; there is nothing to serve where it fails.
pub(crate) async fn shake_hands(stream: TcpStream, config: Arc<ServerConfig>) -> Option<TlsStream<TcpStream>> {
    timeout(HANDSHAKE_MAX, TlsAcceptor::from(config).accept(stream)).await.ok()?.ok()
}

/// Makes an answer of plain text.
pub(crate) fn text(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(whole(text));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Makes a body of bytes that are there.
pub(crate) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed()
}

/// Longest TLS handshake that a server waits for; far beyond what the slowest scenario needs.
const HANDSHAKE_MAX: Duration = Duration::from_secs(60);

/// Pause after a failure to accept a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
