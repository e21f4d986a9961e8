//! Opens connections to gateways: one attempt, one address, one carrier.

use std::{
    error::Error,
    io,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use http::HeaderValue;
use noq::{ConnectionError, Endpoint, EndpointConfig, TransportConfig, VarInt, crypto::rustls::QuicClientConfig};
use ropeway_core::{
    CarrierKind,
    connect::{Candidate, FailReason},
    wire::{ALPN, SUBPROTOCOL},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{net::TcpStream, time::Instant};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::carrier::{Carrier, EXPORTER_LABEL, QuicCarrier, StreamCarrier, WsCarrier, idle_timeout, ws_limits};

/// Whose certificates a client believes.
#[derive(Clone, Debug)]
pub enum Trust {
    /// The operating system's.
    Platform,
    /// These authorities' alone.
    Roots(Vec<CertificateDer<'static>>),
}

/// Opens connections to gateways.
#[derive(Clone)]
pub struct Dialer {
    link: TlsConnector,
    web: TlsConnector,
    endpoint: Endpoint,
    quic: noq::ClientConfig,
}

/// A connection whose TLS handshake is complete.
pub struct Dialed {
    /// The connection.
    pub carrier: Box<dyn Carrier>,
    /// Time of one round trip, as the handshake showed it.
    pub rtt: Duration,
}

/// Why an attempt to connect failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialError {
    /// TLS, QUIC or the WebSocket handshake failed.
    #[error("{carrier} handshake with {address} failed: {reason}")]
    Handshake {
        /// The address.
        address: SocketAddr,
        /// The carrier.
        carrier: CarrierKind,
        /// What the protocol stack says.
        reason: String,
    },
    /// The name of the gateway is no valid server name.
    #[error("{0:?} is no server name")]
    Name(String),
    /// The socket failed.
    #[error("connection to {address} failed: {source}")]
    Socket {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// Whoever answered has no certificate that this device trusts for the gateway's name.
    #[error("whoever answers {carrier} at {address} is not trusted: {reason}")]
    Untrusted {
        /// The address.
        address: SocketAddr,
        /// The carrier.
        carrier: CarrierKind,
        /// What is wrong with the certificate.
        reason: String,
    },
}

impl DialError {
    /// Returns the failure in the words of the race.
    #[must_use]
    pub fn reason(&self) -> FailReason {
        match self {
            Self::Handshake { .. } | Self::Name(_) => FailReason::Handshake,
            Self::Socket { source, .. } => socket_reason(source.kind()),
            Self::Untrusted { .. } => FailReason::Untrusted,
        }
    }

    /// Says what happened without the address and the carrier, for those who name them themselves.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Self::Handshake { reason, .. } => format!("handshake failed: {reason}"),
            Self::Name(_) => self.to_string(),
            Self::Socket { source, .. } => format!("connection failed: {source}"),
            Self::Untrusted { reason, .. } => format!("whoever answers is not trusted: {reason}"),
        }
    }

    /// Names the failure of a handshake; `error` is what the protocol stack says, `cause` what lies under it.
    pub(crate) fn of_handshake(
        candidate: Candidate,
        error: &dyn Error,
        cause: Option<&(dyn Error + Send + Sync + 'static)>,
    ) -> Self {
        let Candidate { address, carrier } = candidate;
        match cause.filter(|cause| handshake_reason(*cause) == FailReason::Untrusted) {
            Some(cause) => Self::Untrusted { address, carrier, reason: cause.to_string() },
            None => Self::Handshake { address, carrier, reason: error.to_string() },
        }
    }
}

impl Dialer {
    /// Makes a dialer that believes `trust`. Needs a tokio runtime, for its QUIC socket.
    ///
    /// # Errors
    ///
    /// When no UDP socket can be bound, or a root certificate or the platform's verifier cannot be used.
    pub fn new(trust: &Trust) -> io::Result<Self> {
        let link = client_config(trust, &[ALPN])?;
        let web = client_config(trust, &[b"http/1.1"])?;
        let crypto = QuicClientConfig::try_from(link.clone()).map_err(io::Error::other)?;
        let mut quic = noq::ClientConfig::new(Arc::new(crypto));
        quic.transport_config(Arc::new(transport()));
        let endpoint = Endpoint::new(EndpointConfig::default(), None, udp_socket()?, Arc::new(noq::TokioRuntime))?;
        Ok(Self { link: Arc::new(link).into(), web: Arc::new(web).into(), endpoint, quic })
    }

    /// Connects to one candidate, whose certificate must carry `name`. There is no deadline in here; the race sets one.
    ///
    /// # Errors
    ///
    /// A [`DialError`] with the address and what failed.
    pub async fn dial(&self, candidate: Candidate, name: &str) -> Result<Dialed, DialError> {
        self.dial_watched(candidate, name, |_| ()).await
    }

    /// Does as [`Self::dial`], and calls `answered` with the time of a round trip once something comes back: a TCP connection is open,
    /// or QUIC's server has begun its part of the handshake.
    ///
    /// # Errors
    ///
    /// As [`Self::dial`].
    pub async fn dial_watched(
        &self,
        candidate: Candidate,
        name: &str,
        answered: impl FnOnce(Duration) + Send,
    ) -> Result<Dialed, DialError> {
        match candidate.carrier {
            CarrierKind::Quic => self.dial_quic(candidate.address, name, answered).await,
            CarrierKind::Tls => self.dial_tls(candidate.address, name, answered).await,
            CarrierKind::Ws => self.dial_ws(candidate.address, name, answered).await,
        }
    }

    /// Moves every QUIC connection to a new socket, as after a change of network.
    ///
    /// # Errors
    ///
    /// When no socket can be bound.
    pub fn rebind(&self) -> io::Result<()> {
        self.endpoint.rebind(udp_socket()?)
    }

    /// Waits until the goodbyes of QUIC connections that were closed have had their time: a peer that still sends is answered with one
    /// more, so that it learns of the end although the first was lost (RFC 9000 section 10.2.1).
    pub async fn idle(&self) {
        self.endpoint.wait_idle().await;
    }

    async fn dial_quic(
        &self,
        address: SocketAddr,
        name: &str,
        answered: impl FnOnce(Duration) + Send,
    ) -> Result<Dialed, DialError> {
        let failed = |reason: String| DialError::Handshake { address, carrier: CarrierKind::Quic, reason };
        let begun = Instant::now();
        let mut connecting =
            self.endpoint.connect_with(self.quic.clone(), address, name).map_err(|error| failed(error.to_string()))?;
        let candidate = Candidate { address, carrier: CarrierKind::Quic };
        // What went wrong is told where the connection is awaited.
        if connecting.handshake_data().await.is_ok() {
            answered(begun.elapsed());
        }
        let connection =
            connecting.await.map_err(|error| DialError::of_handshake(candidate, &error, tls_cause(&error)))?;
        let rtt = connection.rtt(noq::PathId::ZERO).unwrap_or_else(|| begun.elapsed());
        Ok(Dialed { carrier: Box::new(QuicCarrier::new(connection, address, true)), rtt })
    }

    async fn dial_tls(
        &self,
        address: SocketAddr,
        name: &str,
        answered: impl FnOnce(Duration) + Send,
    ) -> Result<Dialed, DialError> {
        let (stream, rtt) = connect_tls(&self.link, address, name, CarrierKind::Tls, answered).await?;
        let mut binding = [0; 32];
        stream
            .get_ref()
            .1
            .export_keying_material(&mut binding, EXPORTER_LABEL, None)
            .map_err(|error| DialError::Handshake { address, carrier: CarrierKind::Tls, reason: error.to_string() })?;
        Ok(Dialed { carrier: Box::new(StreamCarrier::new(stream, address, binding)), rtt })
    }

    async fn dial_ws(
        &self,
        address: SocketAddr,
        name: &str,
        answered: impl FnOnce(Duration) + Send,
    ) -> Result<Dialed, DialError> {
        let failed = |reason: String| DialError::Handshake { address, carrier: CarrierKind::Ws, reason };
        let (stream, rtt) = connect_tls(&self.web, address, name, CarrierKind::Ws, answered).await?;
        let (socket, response) = tokio_websockets::ClientBuilder::new()
            .uri(&format!("wss://{name}{LINK_PATH}"))
            .map_err(|error| failed(error.to_string()))?
            .limits(ws_limits())
            .add_header(http::header::SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL))
            .map_err(|error| failed(error.to_string()))?
            .connect_on(stream)
            .await
            .map_err(|error| failed(error.to_string()))?;
        if response.headers().get(http::header::SEC_WEBSOCKET_PROTOCOL).is_none_or(|chosen| chosen != SUBPROTOCOL) {
            return Err(failed(format!("the server does not speak {SUBPROTOCOL}")));
        }
        Ok(Dialed { carrier: Box::new(WsCarrier::new(socket, address)), rtt })
    }
}

/// Makes the TLS settings of a client that offers `alpn`.
///
/// # Errors
///
/// When a root certificate or the platform's verifier cannot be used.
pub fn client_config(trust: &Trust, alpn: &[&[u8]]) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?;
    let mut config = match trust {
        Trust::Platform => {
            let verifier = rustls_platform_verifier::Verifier::new(provider).map_err(io::Error::other)?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth()
        }
        Trust::Roots(certificates) => {
            let mut roots = RootCertStore::empty();
            for certificate in certificates {
                roots.add(certificate.clone()).map_err(io::Error::other)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

async fn connect_tls(
    connector: &TlsConnector,
    address: SocketAddr,
    name: &str,
    carrier: CarrierKind,
    answered: impl FnOnce(Duration) + Send,
) -> Result<(TlsStream<TcpStream>, Duration), DialError> {
    let server_name = ServerName::try_from(name.to_owned()).map_err(|_| DialError::Name(name.into()))?;
    let begun = Instant::now();
    let tcp = TcpStream::connect(address).await.map_err(|source| DialError::Socket { address, source })?;
    let rtt = begun.elapsed();
    answered(rtt);
    // Only latency suffers if it fails.
    let _ = tcp.set_nodelay(true);
    let stream = connector.connect(server_name, tcp).await.map_err(|source| match source.get_ref() {
        Some(tls) => DialError::of_handshake(Candidate { address, carrier }, tls, Some(tls)),
        None => DialError::Socket { address, source },
    })?;
    Ok((stream, rtt))
}

/// Returns why a handshake failed in the words of the race; `cause` is what the TLS stack says.
#[must_use]
pub fn handshake_reason(cause: &(dyn Error + Send + Sync + 'static)) -> FailReason {
    match cause.downcast_ref() {
        Some(rustls::Error::InvalidCertificate(_)) => FailReason::Untrusted,
        Some(_) | None => FailReason::Handshake,
    }
}

/// Returns what the TLS stack of a QUIC connection found wrong.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not ours, and only one of its variants comes from TLS")]
pub(crate) fn tls_cause(error: &ConnectionError) -> Option<&(dyn Error + Send + Sync + 'static)> {
    match error {
        ConnectionError::TransportError(error) => error.crypto.as_deref(),
        _ => None,
    }
}

/// Returns why a socket failed in the words of the race.
#[must_use]
pub fn socket_reason(kind: io::ErrorKind) -> FailReason {
    if kind == io::ErrorKind::ConnectionRefused {
        FailReason::Refused
    } else if kind == io::ErrorKind::TimedOut {
        FailReason::TimedOut
    } else if CLOSED.contains(&kind) {
        FailReason::Closed
    } else {
        FailReason::Unreachable
    }
}

/// The other end gave up during the handshake.
const CLOSED: [io::ErrorKind; 3] =
    [io::ErrorKind::ConnectionAborted, io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof];

pub(crate) fn udp_socket() -> io::Result<UdpSocket> {
    UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(0));
    transport.max_concurrent_uni_streams(VarInt::from_u32(0));
    transport.max_idle_timeout(Some(idle_timeout()));
    // What a phone sends is mostly short; the search would take the time of its first requests (decision 0032).
    transport.mtu_discovery_config(None);
    transport
}

/// Where a gateway takes the WebSocket of a link.
pub const LINK_PATH: &str = "/.ropeway/link";
