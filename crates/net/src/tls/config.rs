//! Settings of the TLS server.

use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, version};

use super::capture::{self, ExporterCapture};
use super::{Alpn, SessionStore};

/// A certificate with its key that can be exchanged while connections come in.
///
/// Connections that are already up keep running; every later handshake uses the new one.
#[derive(Debug)]
pub struct CertSource {
    current: ArcSwap<CertifiedKey>,
}

impl CertSource {
    /// Takes a chain, leaf first, and the leaf's private key.
    ///
    /// # Errors
    /// When the chain is empty, the key is of an unknown kind, or key and leaf do not belong together.
    pub fn new(cert_chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, rustls::Error> {
        Ok(Self { current: ArcSwap::from_pointee(certified(cert_chain, key)?) })
    }

    /// Replaces chain and key for all later handshakes.
    ///
    /// # Errors
    /// As for [`CertSource::new`]; the old certificate then stays in use.
    pub fn replace(
        &self,
        cert_chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), rustls::Error> {
        self.current.store(Arc::new(certified(cert_chain, key)?));
        Ok(())
    }
}

impl ResolvesServerCert for CertSource {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        capture::note_server_name(hello.server_name());
        Some(self.current.load_full())
    }
}

/// What a TLS server is made of.
#[derive(Clone, Debug)]
pub struct ServerTlsOptions {
    /// Protocols to accept, best first. A client that offers none at all is accepted as well.
    pub alpn: Vec<Alpn>,
    /// The certificate.
    pub certificates: Arc<CertSource>,
    /// Most early data of one connection, in bytes; 0 turns early data off. Default
    /// [`ServerTlsOptions::EARLY_DATA_BYTES_MAX`].
    pub early_data_bytes_max: u32,
    /// Sessions that clients may resume. TCP and QUIC need one each.
    pub sessions: Arc<SessionStore>,
}

impl ServerTlsOptions {
    /// 16 KiB of early data: a HELLO with its requests, and one full record.
    pub const EARLY_DATA_BYTES_MAX: u32 = 16 * 1024;

    /// Serves `alpn` with `certificates`, a session store of default size and early data on.
    #[must_use]
    pub fn new(certificates: Arc<CertSource>, alpn: Vec<Alpn>) -> Self {
        Self {
            alpn,
            certificates,
            early_data_bytes_max: Self::EARLY_DATA_BYTES_MAX,
            sessions: Arc::new(SessionStore::default()),
        }
    }
}

/// Makes the configuration for [`super::ServerTls`]: TLS 1.3 only, stateful resumption, no client certificate.
#[must_use]
pub fn server_config(options: ServerTlsOptions) -> Arc<ServerConfig> {
    let early_data_bytes_max = options.early_data_bytes_max;
    let mut config = base(options);
    config.max_early_data_size = early_data_bytes_max;
    config.key_log = Arc::new(ExporterCapture);
    Arc::new(config)
}

/// Makes the configuration for a QUIC endpoint: as [`server_config`], but QUIC itself bounds early data by flow control,
/// so that any value above 0 of `early_data_bytes_max` only turns it on (RFC 9001 section 4.6.1).
#[must_use]
pub fn quic_server_config(options: ServerTlsOptions) -> ServerConfig {
    let early_data = options.early_data_bytes_max > 0;
    let mut config = base(options);
    config.max_early_data_size = if early_data { u32::MAX } else { 0 };
    config
}

fn base(options: ServerTlsOptions) -> ServerConfig {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&version::TLS13])
        .expect("ring offers TLS 1.3 suites")
        .with_no_client_auth()
        .with_cert_resolver(options.certificates);
    config.alpn_protocols = options.alpn.iter().map(|alpn| alpn.as_bytes().to_vec()).collect();
    config.session_storage = options.sessions;
    config.send_tls13_tickets = SESSIONS_PER_HANDSHAKE;
    config.send_half_rtt_data = true;
    config
}

fn certified(
    cert_chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<CertifiedKey, rustls::Error> {
    if cert_chain.is_empty() {
        return Err(rustls::Error::NoCertificatesPresented);
    }
    CertifiedKey::from_der(cert_chain, key, &provider())
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Sessions given to a client in each handshake: 2, as each is good for one connection and a race opens two at once.
const SESSIONS_PER_HANDSHAKE: usize = 2;
