//! Certificates of one lab: an authority that its programs are told to trust, and one that nobody trusts.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// The certificates of a lab, and the files they are in.
#[derive(Clone, Debug)]
pub struct Authority {
    /// File of the authority's certificate, for programs to trust.
    pub ca_file: PathBuf,
    /// File of the origin's certificate, which names `api.test`, all below `test` and every address.
    pub cert_file: PathBuf,
    /// File of the origin's private key.
    pub key_file: PathBuf,
    origin: Arc<ServerConfig>,
    untrusted: Arc<ServerConfig>,
}

/// Why certificates cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityError {
    /// A certificate cannot be signed.
    #[error("cannot make a certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// A certificate cannot be served.
    #[error("cannot serve a certificate: {0}")]
    Tls(#[from] rustls::Error),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl Authority {
    /// Makes the certificates of a lab whose servers have `addresses`, and writes them into `folder`.
    pub(crate) fn make(
        folder: &Path,
        names: &[&str],
        addresses: impl Iterator<Item = IpAddr>,
    ) -> Result<Self, AuthorityError> {
        let issuer = issuer("Ropeway lab CA")?;
        let mut subjects = Vec::new();
        for name in names {
            subjects.push(SanType::DnsName((*name).try_into()?));
        }
        subjects.extend(addresses.map(SanType::IpAddress));
        let (certificate, key) = leaf("Ropeway lab origin", subjects, &issuer)?;
        let authority = Self {
            ca_file: folder.join("ca.pem"),
            cert_file: folder.join("cert.pem"),
            key_file: folder.join("key.pem"),
            origin: server_config(&certificate, &key)?,
            untrusted: untrusted()?,
        };
        write(&authority.ca_file, PUBLIC, &issuer.pem())?;
        write(&authority.cert_file, PUBLIC, &certificate.pem())?;
        write(&authority.key_file, SECRET, &key.serialize_pem())?;
        Ok(authority)
    }

    /// Gives the TLS of a server with the origin's certificate, for h2 and HTTP/1.1.
    pub(crate) fn origin(&self) -> Arc<ServerConfig> {
        self.origin.clone()
    }

    /// Gives the TLS of a server whose certificate names somebody else and is signed by an authority nobody trusts.
    pub(crate) fn untrusted(&self) -> Arc<ServerConfig> {
        self.untrusted.clone()
    }
}

type Issuer = CertifiedIssuer<'static, KeyPair>;

fn issuer(name: &str) -> Result<Issuer, rcgen::Error> {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn leaf(name: &str, subjects: Vec<SanType>, issuer: &Issuer) -> Result<(rcgen::Certificate, KeyPair), rcgen::Error> {
    let mut params = params(name);
    params.subject_alt_names = subjects;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    Ok((params.signed_by(&key, issuer)?, key))
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let now = SystemTime::now();
    params.not_before = (now - LIFE).into();
    params.not_after = (now + LIFE).into();
    params
}

fn untrusted() -> Result<Arc<ServerConfig>, AuthorityError> {
    let subject = SanType::DnsName("gateway.captive.test".try_into()?);
    let (certificate, key) = leaf("Captive gateway", vec![subject], &issuer("Nobody's CA")?)?;
    server_config(&certificate, &key)
}

fn server_config(certificate: &rcgen::Certificate, key: &KeyPair) -> Result<Arc<ServerConfig>, AuthorityError> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn write(path: &Path, mode: u32, text: &str) -> Result<(), AuthorityError> {
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path);
    opened
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| AuthorityError::Write { path: path.to_owned(), source })
}

/// How long before and after its making a certificate is valid; no lab runs longer.
const LIFE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Mode of a file that everyone may read.
const PUBLIC: u32 = 0o644;

/// Mode of a file for the owner alone.
const SECRET: u32 = 0o600;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_files_hold_a_chain_that_names_every_server() {
        let folder = tempfile::tempdir().expect("a folder");
        let address = IpAddr::from([198, 18, 0, 10]);

        let authority =
            Authority::make(folder.path(), &["api.test", "*.test"], [address].into_iter()).expect("certificates");

        let read = |path: &Path| fs::read_to_string(path).expect("written");
        assert!(read(&authority.ca_file).starts_with("-----BEGIN CERTIFICATE"));
        assert!(read(&authority.key_file).contains("PRIVATE KEY"));
        assert_eq!(authority.origin().alpn_protocols, authority.untrusted().alpn_protocols);
    }
}
