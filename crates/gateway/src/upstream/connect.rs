//! Opens TCP and TLS connections to one upstream, within a time limit.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::target::{HttpTarget, Tls};
use super::turns::Turns;

/// Connects to its one target, whatever authority the request names.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    target: HttpTarget,
    timeout: Duration,
}

impl Connector {
    pub(super) fn new(target: HttpTarget, timeout: Duration) -> Self {
        Self { target, timeout }
    }

    /// Connects; `h1_only` keeps HTTP/2 out of what an encrypted upstream is offered.
    pub(super) async fn connect(&self, h1_only: bool) -> Result<TokioIo<UpstreamIo>, ConnectError> {
        match tokio::time::timeout(self.timeout, self.open(h1_only)).await {
            Ok(opened) => opened.map(TokioIo::new),
            Err(_) => Err(ConnectError::Timeout),
        }
    }

    async fn open(&self, h1_only: bool) -> Result<UpstreamIo, ConnectError> {
        let addresses = tokio::net::lookup_host((self.target.host(), self.target.port()))
            .await
            .map_err(ConnectError::Unresolved)?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return self.secure(stream, h1_only).await,
                Err(error) => last = error,
            }
        }
        Err(ConnectError::Refused(last))
    }

    async fn secure(&self, stream: TcpStream, h1_only: bool) -> Result<UpstreamIo, ConnectError> {
        // Small requests and answers alternate: Nagle's algorithm only delays them.
        stream.set_nodelay(true).map_err(ConnectError::Refused)?;
        let Some(Tls { config, config_h1, server_name }) = self.target.tls().cloned() else {
            let turns = (!self.target.is_h2()).then(Turns::default);
            return Ok(UpstreamIo { stream: Stream::Plain(stream), turns });
        };
        let config = if h1_only { config_h1 } else { config };
        let stream = TlsConnector::from(config).connect(server_name, stream).await.map_err(ConnectError::Tls)?;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let turns = (!is_h2).then(Turns::default);
        Ok(UpstreamIo { stream: Stream::Tls(Box::new(stream)), turns })
    }
}

/// Why no connection to an upstream came about; the request was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The last attempts waited in vain, and this one was not made.
    #[error("upstream is beyond reach")]
    Down,
    /// Every address refused or was unreachable.
    #[error("upstream refused: {0}")]
    Refused(#[source] io::Error),
    /// The limit on connecting ran out.
    #[error("connecting to the upstream took too long")]
    Timeout,
    /// The TLS handshake failed; the certificate may not be trusted.
    #[error("tls handshake with the upstream: {0}")]
    Tls(#[source] io::Error),
    /// The name could not be resolved.
    #[error("upstream name not resolved: {0}")]
    Unresolved(#[source] io::Error),
}

/// An open connection to an upstream.
#[derive(Debug)]
pub struct UpstreamIo {
    stream: Stream,
    /// For HTTP/1 alone: HTTP/2 says by itself which requests were not processed.
    turns: Option<Turns>,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl UpstreamIo {
    /// Notes that something is about to be written, where a failure would not tell whether it was.
    fn begins_writing(&self) {
        match (&self.stream, &self.turns) {
            // What TLS has encrypted may be sent although writing fails.
            (Stream::Tls(_), Some(turns)) => turns.wrote(),
            (Stream::Plain(_), _) | (Stream::Tls(_), None) => {}
        }
    }

    fn written(&self, outcome: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let (Poll::Ready(Ok(1..)), Some(turns)) = (&outcome, &self.turns) {
            turns.wrote();
        }
        outcome
    }
}

impl Connection for UpstreamIo {
    fn connected(&self) -> Connected {
        match (&self.stream, &self.turns) {
            (_, Some(turns)) => Connected::new().extra(turns.clone()),
            (Stream::Tls(_), None) => Connected::new().negotiated_h2(),
            (Stream::Plain(_), None) => Connected::new(),
        }
    }
}

impl AsyncRead for UpstreamIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let outcome = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        };
        if let Some(turns) = this.turns.as_ref().filter(|_| buf.filled().len() > before) {
            turns.read();
        }
        outcome
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.begins_writing();
        let outcome = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        };
        this.written(outcome)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.begins_writing();
        let outcome = match &mut this.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Stream::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        };
        this.written(outcome)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
