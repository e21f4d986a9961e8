//! Why a gateway did not start.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    path::PathBuf,
};

use crate::{lists::ListKeyError, route::RouteError, tickets::IssuerKeyError};

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The admin token cannot be read.
    #[error("admin token {} cannot be read: {source}", path.display())]
    AdminToken {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The bus has no place for this gateway.
    #[error("bus: {0}")]
    Bus(String),
    /// The certificate or its key cannot be used.
    #[error("certificate {} and key {}: {reason}; {MAKE_BOTH}", cert.display(), key.display())]
    Certificate {
        /// The certificate chain's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A file of the certificate holds nothing that can be used.
    #[error("{}: {reason}; {MAKE_BOTH}", path.display())]
    CertificateFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A key of a ticket issuer cannot be used.
    #[error(transparent)]
    IssuerKey(#[from] IssuerKeyError),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} ({protocol}): {source}{}", listen_hint(source))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// `tcp`, `udp` or `admin`.
        protocol: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// The key that signs the access list cannot be used.
    #[error("key of the access list {}: {source}", path.display())]
    ListKey {
        /// Its file.
        path: PathBuf,
        /// What is wrong, and what to do.
        source: ListKeyError,
    },
    /// The keys of the sealed pipe cannot be read, made or written.
    #[error("keys of the sealed pipe in {}: {reason}", path.display())]
    PipeKeys {
        /// Their file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The secret that keys of the sealed pipe are derived from cannot be used.
    #[error("secret of the sealed pipe {}: {reason}", path.display())]
    PipeSecret {
        /// Its file.
        path: PathBuf,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The key that signs answers cannot be read, made or written.
    #[error("signing key {}: {reason}", path.display())]
    SigningKey {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A route cannot be served.
    #[error(transparent)]
    Route(#[from] RouteError),
}

/// What to do about a certificate that cannot be used.
const MAKE_BOTH: &str = "`tls.cert` takes a chain and `tls.key` its private key, both in PEM; \
                         `ropeway up` makes both where neither is given";

/// Says what to do about an address that cannot be listened on.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not ours, and other kinds speak for themselves")]
fn listen_hint(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => "; is another gateway running?",
        ErrorKind::AddrNotAvailable => "; choose an address of this machine, or 0.0.0.0 or [::] for all of them",
        ErrorKind::PermissionDenied => "; ports below 1024 need the capability CAP_NET_BIND_SERVICE",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_for_not_listening_has_its_own_remedy() {
        let text = |kind: ErrorKind| {
            let address = ([192, 0, 2, 1], 443).into();
            StartError::Listen { address, protocol: "tcp", source: kind.into() }.to_string()
        };
        assert!(text(ErrorKind::AddrInUse).contains("another gateway"));
        assert!(text(ErrorKind::AddrNotAvailable).contains("address of this machine"));
        assert!(text(ErrorKind::PermissionDenied).contains("CAP_NET_BIND_SERVICE"));
    }
}
