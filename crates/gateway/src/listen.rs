//! The gateway's sockets: TCP ports for links and HTTP, UDP ports for links and HTTP/3, one for the admin API.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use noq::{
    Endpoint, EndpointConfig, VarInt,
    crypto::rustls::{HandshakeData, QuicServerConfig},
};
use noq_proto::HashedConnectionIdGenerator;
use ring::hmac;
use ropeway_cluster::Bus;
use ropeway_net::{
    carrier::{QuicCarrier, TlsCarrier, WsCarrier, link_transport, ws_limits},
    pem,
    tls::{
        Alpn, CertSource, FirstByte, ServerTls, ServerTlsOptions, SessionStore, quic_server_config, server_config,
        sniff,
    },
};
use rustls::pki_types::{self, CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::{debug, warn};

use crate::{
    admin,
    config::Config,
    front::{self, Connection, Protocol},
    gateway::{Addresses, Shared, StartError},
};

/// The certificate chain and key in memory.
pub(crate) struct TlsFiles {
    certificates: Arc<CertSource>,
    early_data_bytes_max: u32,
    sessions_max: usize,
    /// What QUIC keys are made from that must outlive the process: a client learns by them that the gateway has restarted and knows
    /// nothing of its connection (RFC 9000 section 10.3).
    quic_secret: hmac::Key,
}

/// Sockets that are bound and not served yet.
pub(crate) struct Listeners {
    /// The first one is the one that has a name of its own in the configuration.
    tcp: Vec<TcpListener>,
    udp: Vec<Endpoint>,
    admin: TcpListener,
    addresses: Addresses,
}

impl TlsFiles {
    pub(crate) fn load(config: &Config) -> Result<Self, StartError> {
        let (chain, key) = read_certificate(config)?;
        let quic_secret = hmac::Key::new(hmac::HMAC_SHA256, key.secret_der());
        let certificates = CertSource::new(chain, key).map_err(|error| unusable(config, &error))?;
        Ok(Self {
            certificates: Arc::new(certificates),
            early_data_bytes_max: config.tls.early_data_bytes,
            sessions_max: config.tls.sessions_max,
            quic_secret,
        })
    }

    /// Returns the certificate that handshakes use, to exchange it while they do.
    pub(crate) fn certificates(&self) -> Arc<CertSource> {
        Arc::clone(&self.certificates)
    }

    /// Options with a session store of their own: a session of TCP is none of QUIC's.
    fn options(&self, alpn: Vec<Alpn>) -> ServerTlsOptions {
        ServerTlsOptions {
            early_data_bytes_max: self.early_data_bytes_max,
            sessions: Arc::new(SessionStore::new(self.sessions_max)),
            ..ServerTlsOptions::new(Arc::clone(&self.certificates), alpn)
        }
    }
}

impl Listeners {
    /// Binds every socket of the configuration. Where the UDP port is zero it becomes the TCP one.
    pub(crate) async fn bind(config: &Config, tls: &TlsFiles) -> Result<Self, StartError> {
        let failed = |address, protocol| move |source| StartError::Listen { address, protocol, source };
        let admin = TcpListener::bind(config.admin.listen).await.map_err(failed(config.admin.listen, "admin"))?;
        let (tcp_listen, udp_listen) = (config.gateway.tcp_listen, config.gateway.udp_listen);
        // A port the system chose for TCP may be taken for UDP: it is asked for another one then.
        let mut tries = if tcp_listen.port() == 0 && udp_listen.port() == 0 { PORT_TRIES_MAX } else { 1 };
        let (tcp, udp) = loop {
            tries -= 1;
            let tcp = TcpListener::bind(tcp_listen).await.map_err(failed(tcp_listen, "tcp"))?;
            let mut udp_listen = udp_listen;
            if udp_listen.port() == 0 {
                udp_listen.set_port(tcp.local_addr().map_err(failed(tcp_listen, "tcp"))?.port());
            }
            match quic_endpoint(udp_listen, tls) {
                Ok(udp) => break (tcp, udp),
                Err(error) if tries > 0 && error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(failed(udp_listen, "udp")(error)),
            }
        };
        let mut addresses = Addresses {
            admin: admin.local_addr().map_err(failed(config.admin.listen, "admin"))?,
            tcp: tcp.local_addr().map_err(failed(tcp_listen, "tcp"))?,
            tcp_more: Vec::new(),
            udp: udp.local_addr().map_err(failed(udp_listen, "udp"))?,
            udp_more: Vec::new(),
        };
        let (mut tcp, mut udp) = (vec![tcp], vec![udp]);
        for address in config.gateway.tcp_listen_more.iter().copied() {
            let listener = TcpListener::bind(address).await.map_err(failed(address, "tcp"))?;
            addresses.tcp_more.push(listener.local_addr().map_err(failed(address, "tcp"))?);
            tcp.push(listener);
        }
        for address in config.gateway.udp_listen_more.iter().copied() {
            let endpoint = quic_endpoint(address, tls).map_err(failed(address, "udp"))?;
            addresses.udp_more.push(endpoint.local_addr().map_err(failed(address, "udp"))?);
            udp.push(endpoint);
        }
        Ok(Self { tcp, udp, admin, addresses })
    }

    pub(crate) const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves the sockets until the gateway drains; the admin API goes on until the gateway is down.
    pub(crate) fn serve<B: Bus>(self, shared: &Arc<Shared<B>>, tls: &TlsFiles, token: String) {
        let tls = server_config(tls.options(vec![Alpn::Link, Alpn::H2, Alpn::Http11]));
        for listener in self.tcp {
            shared.tasks.spawn(accept_tcp(Arc::clone(shared), listener, Arc::clone(&tls)));
        }
        for endpoint in self.udp {
            shared.tasks.spawn(accept_quic(Arc::clone(shared), endpoint));
        }
        shared.tasks.spawn(admin::serve(Arc::clone(shared), self.admin, token));
    }
}

/// Uses the certificate that the files hold now for all later handshakes.
pub(crate) fn renew_certificate(config: &Config, certificates: &CertSource) -> Result<(), StartError> {
    let (chain, key) = read_certificate(config)?;
    certificates.replace(chain, key).map_err(|error| unusable(config, &error))
}

/// Forgets sessions and answers whose time is over.
pub(crate) async fn sweep<B: Bus>(shared: Arc<Shared<B>>) {
    let interval = SWEEP_INTERVAL.min(shared.config().gateway.session_ttl);
    while !shared.down().is_cancelled() {
        let now = shared.clock.now();
        shared.proxy.sweep();
        let next = shared.registry.sweep(now).map_or(now + interval, |next| next.min(now + interval));
        let pause = sleep_until(shared.clock.instant(next).max(Instant::now() + SWEEP_PAUSE));
        tokio::select! {
            () = pause => {}
            () = shared.down().cancelled() => {}
        }
    }
}

/// Makes a link of a WebSocket that the front door switched.
pub(crate) fn take_websocket<B: Bus>(shared: &Arc<Shared<B>>, upgraded: Upgraded, peer: SocketAddr) {
    let socket = tokio_websockets::ServerBuilder::new().limits(ws_limits()).serve(TokioIo::new(upgraded));
    shared.spawn_link(Box::new(WsCarrier::new(socket, peer)), shared.hello_deadline());
}

fn read_certificate(config: &Config) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), StartError> {
    let refused = |path: PathBuf, what, error| StartError::CertificateFile { path, reason: pem::reason(what, &error) };
    let (cert, key) = (config.cert_path(), config.key_path());
    let chain = CertificateDer::pem_file_iter(&cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = match chain {
        Ok(chain) if chain.is_empty() => Err(pki_types::pem::Error::NoItemsFound),
        Ok(chain) => Ok(chain),
        Err(error) => Err(error),
    };
    let chain = chain.map_err(|error| refused(cert, "certificate", error))?;
    let key = PrivateKeyDer::from_pem_file(&key).map_err(|error| refused(key, "private key", error))?;
    Ok((chain, key))
}

fn unusable(config: &Config, error: &rustls::Error) -> StartError {
    let reason = match matches!(error, rustls::Error::InconsistentKeys(_)) {
        true => "they do not belong together".to_owned(),
        false => error.to_string(),
    };
    StartError::Certificate { cert: config.cert_path(), key: config.key_path(), reason }
}

async fn accept_tcp<B: Bus>(shared: Arc<Shared<B>>, listener: TcpListener, tls: Arc<rustls::ServerConfig>) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.draining().cancelled() => return,
        };
        match accepted {
            Ok((tcp, peer)) => {
                shared.spawn_connection(serve_tcp(Arc::clone(&shared), tcp, peer, Arc::clone(&tls)));
            }
            Err(error) => {
                // Out of file descriptors or memory: a pause lets some connections end.
                warn!(%error, "cannot accept connections");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn serve_tcp<B: Bus>(
    shared: Arc<Shared<B>>,
    tcp: TcpStream,
    peer: SocketAddr,
    config: Arc<rustls::ServerConfig>,
) {
    // One deadline for all that comes before HELLO is verified: a slow client cannot have it anew at each step.
    let deadline = shared.hello_deadline();
    let patience = shared.clock.instant(deadline);
    let refused = |reason| shared.metrics.refusal(reason).inc();
    match timeout_at(patience, sniff(&tcp)).await {
        Err(_) => return refused("first_byte_timeout"),
        Ok(Err(_) | Ok(FirstByte::Closed)) => return refused("closed_early"),
        Ok(Ok(FirstByte::Other(_))) => {
            let connection = Connection { plain: true, ..Connection::new(peer) };
            return front::serve(tcp, Protocol::H1, Arc::clone(&shared.front), connection).await;
        }
        Ok(Ok(FirstByte::Tls)) => {}
    }
    let Ok(mut tls) = ServerTls::new(tcp, config) else { return refused("tls_settings") };
    let greeting = match timeout_at(patience, tls.handshake()).await {
        Ok(Ok(greeting)) => greeting,
        Ok(Err(error)) => {
            debug!(%peer, %error, "tls handshake failed");
            return refused(error.cause());
        }
        Err(_) => return refused("tls_handshake_timeout"),
    };
    let protocol = match greeting.alpn {
        Some(Alpn::Link) => return shared.spawn_link(Box::new(TlsCarrier::new(tls, peer)), deadline),
        Some(Alpn::H2) => Protocol::H2,
        Some(Alpn::Http11) | None => Protocol::H1,
        Some(Alpn::H3) => return refused("no_common_protocol"),
    };
    // HTTP requests wait for the end of the handshake instead of being served as early data (RFC 8470 section 3).
    match timeout_at(patience, tls.confirm()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return refused(error.cause()),
        Err(_) => return refused("tls_handshake_timeout"),
    }
    front::serve(tls.into_stream(), protocol, Arc::clone(&shared.front), Connection::new(peer)).await;
}

fn quic_endpoint(address: SocketAddr, tls: &TlsFiles) -> io::Result<Endpoint> {
    let config = quic_server_config(tls.options(vec![Alpn::Link, Alpn::H3]));
    let crypto = QuicServerConfig::try_from(config).map_err(io::Error::other)?;
    let mut server = noq::ServerConfig::with_crypto(Arc::new(crypto));
    server.transport_config(Arc::new(link_transport()));
    let socket = std::net::UdpSocket::bind(address)?;
    Endpoint::new(endpoint_config(&tls.quic_secret), Some(server), socket, Arc::new(noq::TokioRuntime))
}

/// Makes an endpoint that answers packets of an earlier process's connections by a stateless reset.
fn endpoint_config(secret: &hmac::Key) -> EndpointConfig {
    let reset_key = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(secret, RESET_CONTEXT).as_ref());
    let mut config = EndpointConfig::new(Arc::new(reset_key));
    let ids = hmac::sign(secret, CONNECTION_ID_CONTEXT);
    let ids = u64::from_be_bytes(*ids.as_ref().first_chunk().expect("a digest has 32 bytes"));
    // Packets whose connection id this endpoint cannot have made are dropped without an answer.
    config.cid_generator(Arc::new(move || Box::new(HashedConnectionIdGenerator::from_key(ids))));
    config
}

async fn accept_quic<B: Bus>(shared: Arc<Shared<B>>, endpoint: Endpoint) {
    loop {
        let incoming = tokio::select! {
            incoming = endpoint.accept() => incoming,
            () = shared.draining().cancelled() => {
                // Connections that are up go on; new ones are refused.
                endpoint.set_server_config(None);
                tokio::select! {
                    () = endpoint.wait_idle() => return,
                    () = shared.down().cancelled() => {}
                }
                endpoint.close(VarInt::from_u32(0), b"");
                endpoint.wait_idle().await;
                return;
            }
        };
        let Some(incoming) = incoming else { return };
        let peer = incoming.remote_address();
        let shared = Arc::clone(&shared);
        let tasks = shared.tasks.clone();
        tasks.spawn(async move {
            let refused = |reason| shared.metrics.refusal(reason).inc();
            let Ok(connecting) = incoming.accept() else { return refused("quic_broken") };
            let deadline = shared.hello_deadline();
            match timeout_at(shared.clock.instant(deadline), connecting).await {
                Ok(Ok(connection)) if speaks_h3(&connection) => {
                    let front = Arc::clone(&shared.front);
                    shared.spawn_connection(front::serve_h3(connection, front, Connection::new(peer)));
                }
                Ok(Ok(connection)) => {
                    shared.spawn_link(Box::new(QuicCarrier::new(connection, peer, false)), deadline);
                }
                Ok(Err(error)) => {
                    debug!(%peer, %error, "quic handshake failed");
                    refused("quic_handshake");
                }
                Err(_) => refused("quic_handshake_timeout"),
            }
        });
    }
}

/// Says which of its two protocols a connection speaks. Its handshake is over, so that no request on it is early data.
fn speaks_h3(connection: &noq::Connection) -> bool {
    let settled = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
    settled.is_some_and(|settled| settled.protocol.as_deref() == Some(Alpn::H3.as_bytes()))
}

/// Keep the keys that are made from the private one apart.
const RESET_CONTEXT: &[u8] = b"ropeway quic stateless reset";
const CONNECTION_ID_CONTEXT: &[u8] = b"ropeway quic connection id";

/// Ports tried for TCP and UDP together, where the configuration leaves the choice to the system: with a tenth of all ports taken for
/// UDP, one start in a hundred million fails.
const PORT_TRIES_MAX: u32 = 8;

/// Longest time between two looks for sessions to forget.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Shortest time between two such looks.
const SWEEP_PAUSE: Duration = Duration::from_millis(100);

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
