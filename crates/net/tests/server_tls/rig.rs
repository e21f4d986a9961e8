//! A server made at run time, clients for it, and sockets between them.

use std::future::poll_fn;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ropeway_net::scratch::with_scratch;
use ropeway_net::tls::{
    Alpn, CertSource, Received, ServerTls, ServerTlsOptions, SessionStore, TlsError, server_config,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedCipherSuite, SupportedProtocolVersion};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Everything both ends need.
pub(crate) struct Rig {
    pub(crate) server: Arc<ServerConfig>,
    pub(crate) certificates: Arc<CertSource>,
    pub(crate) sessions: Arc<SessionStore>,
    roots: RootCertStore,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let (chain, key) = certificate();
        let mut roots = RootCertStore::empty();
        roots.add(chain[0].clone()).unwrap();
        let certificates = Arc::new(CertSource::new(chain, key).unwrap());
        Self::with(certificates, roots)
    }

    /// Makes a server with the same certificate that knows none of this one's sessions.
    pub(crate) fn restarted(&self) -> Self {
        Self::with(self.certificates.clone(), self.roots.clone())
    }

    fn with(certificates: Arc<CertSource>, roots: RootCertStore) -> Self {
        let options = ServerTlsOptions::new(certificates.clone(), vec![Alpn::Link, Alpn::H2, Alpn::Http11]);
        let sessions = options.sessions.clone();
        Self { server: server_config(options), certificates, sessions, roots }
    }

    /// Makes the settings of a client that offers `alpn` and early data.
    pub(crate) fn client(&self, alpn: &[&[u8]]) -> ClientConfig {
        let mut config = client_config(self.roots.clone(), provider(), rustls::ALL_VERSIONS);
        config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
        config.enable_early_data = true;
        config
    }

    /// Makes the settings of a client that knows one cipher suite only.
    pub(crate) fn client_with_suite(&self, suite: SupportedCipherSuite) -> ClientConfig {
        let provider = CryptoProvider { cipher_suites: vec![suite], ..provider() };
        client_config(self.roots.clone(), provider, &[&rustls::version::TLS13])
    }

    /// Makes the settings of a client that knows TLS 1.2 only.
    pub(crate) fn client_of_tls_1_2(&self) -> ClientConfig {
        client_config(self.roots.clone(), provider(), &[&rustls::version::TLS12])
    }

    /// Opens a socket pair with this rig's server on one end, not yet shaken hands.
    pub(crate) async fn accept(&self) -> (TcpStream, ServerTls) {
        let (client, server) = sockets().await;
        (client, ServerTls::new(server, self.server.clone()).unwrap())
    }

    /// Completes a handshake with a client of protocol `alpn`.
    pub(crate) async fn connect(&self, alpn: Alpn) -> (TlsStream<TcpStream>, ServerTls) {
        self.connect_as(self.client(&[alpn.as_bytes()])).await
    }

    /// Completes a handshake with a client of these settings.
    pub(crate) async fn connect_as(&self, config: ClientConfig) -> (TlsStream<TcpStream>, ServerTls) {
        let (tcp, mut server) = self.accept().await;
        let connector = TlsConnector::from(Arc::new(config));
        let (client, greeting) = tokio::join!(connector.connect(name(), tcp), server.handshake());
        greeting.unwrap();
        (client.unwrap(), server)
    }
}

/// Makes the settings of a client that trusts one certificate.
pub(crate) fn client_trusting(certificate: CertificateDer<'static>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    client_config(roots, provider(), rustls::ALL_VERSIONS)
}

fn client_config(
    roots: RootCertStore,
    provider: CryptoProvider,
    versions: &[&'static SupportedProtocolVersion],
) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth()
}

pub(crate) fn provider() -> CryptoProvider {
    rustls::crypto::ring::default_provider()
}

pub(crate) fn certificate() -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let made = rcgen::generate_simple_self_signed(vec!["gateway.test".into()]).unwrap();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    (vec![made.cert.der().clone()], key)
}

pub(crate) fn name() -> ServerName<'static> {
    "gateway.test".try_into().unwrap()
}

pub(crate) async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (client, accepted) = tokio::join!(connecting, listener.accept());
    let client = client.unwrap();
    client.set_nodelay(true).unwrap();
    (client, accepted.unwrap().0)
}

/// Receives once, and appends what came to `bytes`.
pub(crate) async fn receive(server: &mut ServerTls, bytes: &mut Vec<u8>) -> Result<Received, TlsError> {
    poll_fn(|cx| {
        with_scratch(|scratch| server.poll_recv(cx, scratch, &mut |plaintext| bytes.extend_from_slice(plaintext.bytes)))
    })
    .await
}

/// Receives until `count` bytes are there.
pub(crate) async fn receive_exact(server: &mut ServerTls, count: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while bytes.len() < count {
        assert_ne!(receive(server, &mut bytes).await.unwrap(), Received::CloseNotify);
    }
    assert_eq!(bytes.len(), count);
    bytes
}

/// Sends and flushes all of `bytes`.
pub(crate) async fn send(server: &mut ServerTls, mut bytes: &[u8]) -> Result<(), TlsError> {
    while !bytes.is_empty() {
        let sent = poll_fn(|cx| with_scratch(|scratch| server.poll_send(cx, scratch, bytes))).await?;
        bytes = &bytes[sent..];
    }
    poll_fn(|cx| server.poll_flush(cx)).await
}

/// Says `close_notify` and closes the sending side.
pub(crate) async fn close(server: &mut ServerTls) -> Result<(), TlsError> {
    poll_fn(|cx| with_scratch(|scratch| server.poll_close(cx, scratch))).await
}

/// Bytes that do not repeat at any power of two.
pub(crate) fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// A runtime that looks at the sockets after every poll, so that [`Chopped`] pieces arrive one by one.
pub(crate) fn attentive_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build().unwrap()
}

/// A socket that sends in pieces of given sizes, with a turn of the scheduler between them.
pub(crate) struct Chopped {
    tcp: TcpStream,
    sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
    rested: bool,
}

impl Chopped {
    pub(crate) fn new(tcp: TcpStream, sizes: Vec<usize>) -> Self {
        Self { tcp, sizes: sizes.into_iter().cycle(), rested: true }
    }
}

impl AsyncRead for Chopped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Chopped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.rested = !self.rested;
        if self.rested {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let size = self.sizes.next().unwrap().clamp(1, bytes.len());
        Pin::new(&mut self.tcp).poll_write(cx, &bytes[..size])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}

/// A socket that changes one byte of what is written to it, and then ends its stream once an answer is waited for: a
/// changed length can make both ends wait for each other.
pub(crate) struct Flipped {
    pub(crate) tcp: TcpStream,
    pub(crate) at: usize,
    pub(crate) flip: u8,
    pub(crate) written: usize,
}

impl AsyncRead for Flipped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        if self.written > self.at {
            let _ = Pin::new(&mut self.tcp).poll_shutdown(cx);
        }
        Pin::new(&mut self.tcp).poll_read(cx, buf)
    }
}

impl AsyncWrite for Flipped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let mut bytes = bytes.to_vec();
        if let Some(byte) = self.at.checked_sub(self.written).and_then(|at| bytes.get_mut(at)) {
            *byte ^= self.flip;
        }
        let polled = Pin::new(&mut self.tcp).poll_write(cx, &bytes);
        if let Poll::Ready(Ok(count)) = polled {
            self.written += count;
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.tcp).poll_shutdown(cx)
    }
}
