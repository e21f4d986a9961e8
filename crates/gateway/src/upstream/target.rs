//! What the `upstream` of a route means.

use std::sync::Arc;

use http::uri::{Authority, Scheme};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::builtin::Builtin;
use crate::route::split_port;

/// Where the requests of a route go.
#[derive(Clone, Debug)]
pub enum Target {
    /// A service inside the gateway, without a socket.
    Builtin(Builtin),
    /// A service spoken to in HTTP.
    Http(HttpTarget),
}

impl Target {
    /// Reads `builtin:NAME` or an `http`, `https` or `h2c` URL.
    ///
    /// `ca_pem` replaces the system's trusted roots.
    ///
    /// # Errors
    /// Says what of the URL or the certificates is unusable.
    pub fn parse(upstream: &str, ca_pem: Option<&[u8]>) -> Result<Self, TargetError> {
        if let Some(name) = upstream.strip_prefix("builtin:") {
            return Builtin::by_name(name).map(Self::Builtin).ok_or(TargetError::Builtin);
        }
        HttpTarget::parse(upstream, ca_pem).map(Self::Http)
    }
}

/// Address, protocol and trust of an HTTP upstream.
#[derive(Clone, Debug)]
pub struct HttpTarget {
    authority: Authority,
    port: u16,
    base_path: String,
    h2: bool,
    tls: Option<Tls>,
}

impl HttpTarget {
    /// Returns the authority as written in the URL.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns the host without port or brackets.
    pub fn host(&self) -> &str {
        self.authority.host().trim_start_matches('[').trim_end_matches(']')
    }

    /// Returns the port, the scheme's own by default.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the path put before each request's path; empty or without a slash at the end.
    pub fn base_path(&self) -> &str {
        &self.base_path
    }

    /// Whether the upstream is known beforehand to speak HTTP/2.
    pub fn is_h2(&self) -> bool {
        self.h2
    }

    /// Returns the scheme requests are sent with.
    pub fn scheme(&self) -> Scheme {
        if self.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP }
    }

    /// Whether the connection is encrypted, and the HTTP version settled by its handshake.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the TLS settings of an encrypted upstream.
    pub(super) fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    fn parse(upstream: &str, ca_pem: Option<&[u8]>) -> Result<Self, TargetError> {
        let (scheme, rest) = upstream.split_once("://").ok_or(TargetError::Scheme)?;
        let (h2, encrypted) = match scheme {
            "http" => (false, false),
            "https" => (false, true),
            "h2c" => (true, false),
            _ => return Err(TargetError::Scheme),
        };
        let (authority, path) = match rest.find(['/', '?', '#']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        if path.contains(['?', '#']) {
            return Err(TargetError::Path);
        }
        let base_path = path.trim_end_matches('/').to_owned();
        if !base_path.is_empty() {
            base_path.parse::<http::uri::PathAndQuery>().map_err(|_| TargetError::Path)?;
        }
        let authority: Authority = authority.parse().map_err(|_| TargetError::Authority)?;
        if authority.host().is_empty() || authority.as_str().contains('@') {
            return Err(TargetError::Authority);
        }
        let port = match split_port(authority.as_str()) {
            (_, Some(port)) => port.parse().map_err(|_| TargetError::Authority)?,
            (_, None) if encrypted => 443,
            (_, None) => 80,
        };
        let mut target = Self { authority, port, base_path, h2, tls: None };
        if encrypted {
            target.tls = Some(Tls::new(target.host(), ca_pem)?);
        }
        Ok(target)
    }
}

/// How an encrypted upstream is checked.
#[derive(Clone, Debug)]
pub(super) struct Tls {
    /// Offers HTTP/2 and HTTP/1.1.
    pub(super) config: Arc<ClientConfig>,
    /// Offers HTTP/1.1 only, for upgrades.
    pub(super) config_h1: Arc<ClientConfig>,
    pub(super) server_name: ServerName<'static>,
}

impl Tls {
    fn new(host: &str, ca_pem: Option<&[u8]>) -> Result<Self, TargetError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let builder = match ca_pem {
            Some(pem) => builder.with_root_certificates(roots(pem)?),
            None => builder.with_platform_verifier()?,
        };
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let config_h1 = Arc::new(config.clone());
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let server_name = ServerName::try_from(host.to_owned())?;
        Ok(Self { config: Arc::new(config), config_h1, server_name })
    }
}

/// Why an upstream is unusable.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// Host or port is missing or malformed.
    #[error("host or port is malformed")]
    Authority,
    /// No service of that name is built in.
    #[error("no such built-in service, there are builtin:demo and builtin:echo")]
    Builtin,
    /// The certificates are not PEM, or none is usable.
    #[error("no usable certificate in the PEM text")]
    Certificates,
    /// The path is malformed, or a query or fragment follows it.
    #[error("path is malformed or followed by a query or fragment")]
    Path,
    /// Not one of the known schemes.
    #[error("scheme must be http, https, h2c or builtin")]
    Scheme,
    /// The host cannot be checked against a certificate.
    #[error("host cannot be named in a certificate")]
    ServerName(#[from] InvalidDnsNameError),
    /// TLS cannot be set up.
    #[error("tls set-up: {0}")]
    Tls(#[from] rustls::Error),
}

fn roots(pem: &[u8]) -> Result<RootCertStore, TargetError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| TargetError::Certificates)?;
        roots.add(certificate).map_err(|_| TargetError::Certificates)?;
    }
    if roots.is_empty() {
        return Err(TargetError::Certificates);
    }
    Ok(roots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn http(upstream: &str) -> HttpTarget {
        match Target::parse(upstream, None).expect("valid upstream") {
            Target::Builtin(builtin) => panic!("{builtin:?} is no URL"),
            Target::Http(target) => target,
        }
    }

    #[test]
    fn urls_give_host_port_base_path_and_protocol() {
        let plain = http("http://127.0.0.1:8000");
        assert_eq!((plain.host(), plain.port(), plain.base_path()), ("127.0.0.1", 8000, ""));
        assert!(!plain.is_h2());
        let based = http("h2c://svc.local/base/");
        assert_eq!((based.host(), based.port(), based.base_path()), ("svc.local", 80, "/base"));
        assert!(based.is_h2());
        let six = http("http://[::1]:81/");
        assert_eq!((six.host(), six.port(), six.base_path()), ("::1", 81, ""));
    }

    #[test]
    fn malformed_upstreams_are_refused() {
        for (upstream, reason) in [
            ("127.0.0.1:8000", "scheme must be"),
            ("ftp://x", "scheme must be"),
            ("http://", "host or port"),
            ("http://user@x", "host or port"),
            ("http://x:99999", "host or port"),
            ("http://x/?a=b", "path is malformed"),
            ("builtin:nothing", "no such built-in"),
        ] {
            let error = Target::parse(upstream, None).expect_err(upstream).to_string();
            assert!(error.contains(reason), "{upstream}: {error}");
        }
    }

    #[test]
    fn a_ca_without_a_certificate_is_refused() {
        let error = Target::parse("https://x", Some(b"nothing")).expect_err("no certificate");
        assert!(matches!(error, TargetError::Certificates), "{error}");
    }
}
