//! A certificate authority of the data folder's own, and the gateway's certificate by it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SerialNumber,
};
use ropeway_net::pem::reason_in;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use super::files::{self, Access};
use super::{CA_CERT, CA_KEY, DataDir, DataDirError, GATEWAY_CERT, GATEWAY_KEY};

/// Makes the authority unless it is there, and a gateway certificate for `names` unless the present one still serves.
pub(super) fn provide(folder: &DataDir, names: &[String], now: SystemTime) -> Result<(), DataDirError> {
    let drafts = plan(folder, names, now)?;
    [CA_KEY, GATEWAY_KEY].into_iter().for_each(|secret| files::close(&folder.root.join(secret)));
    for Draft { path, access, text, reason } in drafts {
        files::write(&path, access, &text)?;
        tracing::info!(file = %path.display(), reason, "file of the data folder made");
    }
    Ok(())
}

/// Says what is wrong with the files from which [`provide`] would work, and changes none of them. A certificate of the gateway's that
/// cannot be read is told too: a start makes another, but somebody may have meant this one.
pub(super) fn check(folder: &DataDir, names: &[String], now: SystemTime) -> Result<(), DataDirError> {
    let path = folder.root.join(GATEWAY_CERT);
    if let Some(text) = files::read(&path)? {
        certificate(&text).map_err(|reason| DataDirError::damaged(&path, reason))?;
    }
    plan(folder, names, now).map(drop)
}

/// A file that is to be written.
struct Draft {
    path: PathBuf,
    access: Access,
    text: String,
    /// Why it is.
    reason: String,
}

/// Reads what is there and makes what is missing, in memory alone.
fn plan(folder: &DataDir, names: &[String], now: SystemTime) -> Result<Vec<Draft>, DataDirError> {
    let mut drafts = Vec::new();
    let (ca_key, ca_pem) = authority(folder, now, &mut drafts)?;
    let (key_path, cert_path) = (folder.root.join(GATEWAY_KEY), folder.root.join(GATEWAY_CERT));
    let (key_pem, key) = key(key_path, &mut drafts)?;
    let names = with_loopback(names);
    let serves = |cert_pem: &str| verify(&ca_pem, cert_pem, &key_pem, &names, now + RENEW_BEFORE);
    let reason = match files::read(&cert_path)? {
        Some(cert_pem) => match serves(&cert_pem) {
            Ok(()) => return Ok(drafts),
            Err(reason) => reason,
        },
        None => NONE_THERE.to_owned(),
    };
    let cert_pem = gateway_certificate(&ca_key, &key, &names, now).map_err(cannot_issue(&cert_path))?.pem();
    // What the authority signs here must be good; if it is not, its own files are to blame.
    serves(&cert_pem).map_err(|reason| DataDirError::Damaged {
        path: folder.root.join(CA_CERT),
        reason: format!("certificates by it are not valid: {reason}"),
        hint: "remove ca.pem and ca.key, and `ropeway up` makes a new authority, which clients must then trust",
    })?;
    drafts.push(Draft { path: cert_path, access: Access::Public, text: cert_pem, reason });
    Ok(drafts)
}

/// Reads the authority's key and certificate, or makes them.
fn authority(folder: &DataDir, now: SystemTime, drafts: &mut Vec<Draft>) -> Result<(KeyPair, String), DataDirError> {
    let cert_path = folder.root.join(CA_CERT);
    let (_, key) = key(folder.root.join(CA_KEY), drafts)?;
    // A certificate whose key is gone is of no use any more.
    let cert_pem = if drafts.is_empty() { files::read(&cert_path)? } else { None };
    let cert_pem = match cert_pem {
        Some(pem) => pem,
        None => {
            let mut params = authority_params(&key);
            let issued = dated(&mut params, now, AUTHORITY_LIFE).and_then(|()| params.self_signed(&key));
            let pem = issued.map_err(cannot_issue(&cert_path))?.pem();
            let (text, reason) = (pem.clone(), NONE_THERE.to_owned());
            drafts.push(Draft { path: cert_path, access: Access::Public, text, reason });
            pem
        }
    };
    Ok((key, cert_pem))
}

/// Reads a private key, or makes one.
fn key(path: PathBuf, drafts: &mut Vec<Draft>) -> Result<(String, KeyPair), DataDirError> {
    if let Some(text) = files::read(&path)? {
        let damaged = |reason| DataDirError::damaged(&path, reason);
        let read = PrivateKeyDer::from_pem_slice(text.as_bytes());
        let der = read.map_err(|error| damaged(reason_in("private key", text.as_bytes(), &error)))?;
        let key =
            KeyPair::try_from(&der).map_err(|_| damaged("its private key is none that can be used here".to_owned()))?;
        return Ok((text, key));
    }
    let key = KeyPair::generate().map_err(cannot_issue(&path))?;
    let (text, reason) = (key.serialize_pem(), NONE_THERE.to_owned());
    drafts.push(Draft { path, access: Access::Secret, text: text.clone(), reason });
    Ok((text, key))
}

/// Reads a certificate, or says what is there instead.
fn certificate(text: &str) -> Result<CertificateDer<'static>, String> {
    let read = CertificateDer::from_pem_slice(text.as_bytes());
    let certificate = read.map_err(|error| reason_in("certificate", text.as_bytes(), &error))?;
    match ParsedCertificate::try_from(&certificate) {
        Ok(_) => Ok(certificate),
        Err(_) => Err("what is in its PEM is no certificate".to_owned()),
    }
}

fn cannot_issue(path: &Path) -> impl FnOnce(rcgen::Error) -> DataDirError {
    move |error| DataDirError::damaged(path, format!("cannot be made: {error}"))
}

/// What the authority is called and may do: all of it follows from the key, so that it need not be read back from the
/// certificate.
fn authority_params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let id = params.key_identifier(key);
    // Two folders' authorities in one trust store are told apart by it.
    let id: String = id.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("Ropeway development CA {id}"));
    params
}

fn gateway_certificate(
    ca_key: &KeyPair,
    key: &impl PublicKeyData,
    names: &[String],
    now: SystemTime,
) -> Result<Certificate, rcgen::Error> {
    let mut params = CertificateParams::default();
    for name in names {
        params.subject_alt_names.push(match address(name) {
            Some(address) => SanType::IpAddress(address),
            None => SanType::DnsName(name.as_str().try_into()?),
        });
    }
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Ropeway gateway");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    dated(&mut params, now, GATEWAY_LIFE)?;
    params.signed_by(key, &Issuer::new(authority_params(ca_key), ca_key))
}

/// Sets the time of validity, and a serial number that no other certificate has.
fn dated(params: &mut CertificateParams, now: SystemTime, life: Duration) -> Result<(), rcgen::Error> {
    params.not_before = (now - BACKDATED).into();
    params.not_after = (now + life).into();
    let mut serial = [0; 16];
    getrandom::fill(&mut serial).map_err(|_| rcgen::Error::RingUnspecified)?;
    // RFC 5280 section 4.1.2.2 wants a positive number.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(())
}

/// Says why a client that trusts the authority would refuse the certificate at that time, for the first such name.
fn verify(ca_pem: &str, cert_pem: &str, key_pem: &str, names: &[String], at: SystemTime) -> Result<(), String> {
    let text = |error: rustls::Error| error.to_string();
    let (ca, cert) = (certificate(ca_pem)?, certificate(cert_pem)?);
    let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
        .map_err(|error| reason_in("private key", key_pem.as_bytes(), &error))?;
    let provider = default_provider();
    CertifiedKey::from_der(vec![cert.clone()], key, &provider).map_err(text)?;

    let mut roots = RootCertStore::empty();
    roots.add(ca).map_err(text)?;
    let parsed = ParsedCertificate::try_from(&cert).map_err(text)?;
    let at = UnixTime::since_unix_epoch(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default());
    let algorithms = provider.signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], at, algorithms).map_err(text)?;
    for name in names {
        // A certificate for every name below one is good for this name below it.
        let one = name.strip_prefix("*.").map_or_else(|| name.clone(), |parent| format!("name.{parent}"));
        let server_name = match address(&one) {
            Some(address) => ServerName::IpAddress(address.into()),
            None => ServerName::try_from(one).map_err(|_| format!("`{name}` is no server name"))?,
        };
        verify_server_name(&parsed, &server_name).map_err(|_| format!("it was not for {name}"))?;
    }
    Ok(())
}

/// Adds the names under which this machine is reached, and leaves out what no certificate can say.
fn with_loopback(names: &[String]) -> Vec<String> {
    let loopback = [Ipv4Addr::LOCALHOST.to_string(), Ipv6Addr::LOCALHOST.to_string()];
    let mut wanted: Vec<String> = vec!["localhost".to_owned()];
    wanted.extend(loopback);
    wanted.extend(names.iter().filter(|name| name.as_str() != "*").cloned());
    wanted.sort_unstable();
    wanted.dedup();
    wanted
}

/// Reads an IP address as it stands alone or in a URL.
fn address(name: &str) -> Option<IpAddr> {
    name.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Why a file is made that was not there.
const NONE_THERE: &str = "there was none";

/// Life of the authority: 10 years, longer than anything is developed against it.
const AUTHORITY_LIFE: Duration = Duration::from_hours(10 * 365 * 24);

/// Life of the gateway's certificate: 397 days, the most that browsers take since 2020 (CA/Browser Forum ballot SC31
/// gives 398).
const GATEWAY_LIFE: Duration = Duration::from_hours(397 * 24);

/// Time before its end from which a certificate is replaced at the next start.
const RENEW_BEFORE: Duration = Duration::from_hours(30 * 24);

/// A device whose clock is behind, or in the wrong time zone, takes a new certificate all the same.
const BACKDATED: Duration = Duration::from_hours(24);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn stage() -> (tempfile::TempDir, DataDir, SystemTime) {
        let folder = tempfile::tempdir().expect("a folder");
        let data = DataDir::new(Some(folder.path()));
        (folder, data, SystemTime::now())
    }

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn certificate(data: &DataDir) -> String {
        fs::read_to_string(data.root.join(GATEWAY_CERT)).expect("there")
    }

    fn accepts(data: &DataDir, name: &str, at: SystemTime) -> Result<(), String> {
        let read = |file: &str| fs::read_to_string(data.root.join(file)).expect("there");
        verify(&read(CA_CERT), &read(GATEWAY_CERT), &read(GATEWAY_KEY), &hosts(&[name]), at)
    }

    #[test]
    fn a_client_that_trusts_the_authority_accepts_every_name() {
        let (_folder, data, now) = stage();
        provide(&data, &hosts(&["edge.test", "api.test", "*.shop.test", "[::1]", "192.0.2.7", "*", "a_b.test"]), now)
            .expect("issued");
        let names =
            ["localhost", "127.0.0.1", "::1", "edge.test", "api.test", "cart.shop.test", "192.0.2.7", "a_b.test"];
        for name in names {
            assert_eq!(accepts(&data, name, now), Ok(()), "{name}");
        }
        assert!(accepts(&data, "other.test", now).is_err());
        assert_eq!(accepts(&data, "api.test", now - Duration::from_hours(23)), Ok(()), "a clock that is behind");
        assert!(accepts(&data, "api.test", now + GATEWAY_LIFE + RENEW_BEFORE).is_err());
    }

    #[test]
    fn the_certificate_stays_while_it_serves() {
        let (_folder, data, now) = stage();
        provide(&data, &hosts(&["api.test", "web.test"]), now).expect("issued");
        let first = certificate(&data);
        provide(&data, &hosts(&["web.test"]), now + GATEWAY_LIFE - RENEW_BEFORE * 2).expect("kept");
        assert_eq!(certificate(&data), first);
    }

    #[test]
    fn a_new_host_and_a_near_end_bring_a_new_certificate_by_the_same_authority() {
        let (_folder, data, now) = stage();
        provide(&data, &hosts(&["api.test"]), now).expect("issued");
        let (ca, first) = (fs::read(data.ca_path()).expect("there"), certificate(&data));
        provide(&data, &hosts(&["api.test", "new.test"]), now).expect("issued");
        let second = certificate(&data);
        assert_ne!(second, first);
        assert_eq!(accepts(&data, "new.test", now), Ok(()));

        let late = now + GATEWAY_LIFE - RENEW_BEFORE + Duration::from_secs(1);
        provide(&data, &hosts(&["api.test", "new.test"]), late).expect("issued");
        assert_ne!(certificate(&data), second);
        assert_eq!(accepts(&data, "new.test", late + GATEWAY_LIFE / 2), Ok(()));
        assert_eq!(fs::read(data.ca_path()).expect("there"), ca);
    }

    #[test]
    fn a_lost_key_or_a_broken_certificate_is_made_again() {
        for file in [GATEWAY_KEY, GATEWAY_CERT, CA_KEY, CA_CERT] {
            let (_folder, data, now) = stage();
            provide(&data, &hosts(&["api.test"]), now).expect("issued");
            fs::remove_file(data.root.join(file)).expect("removed");
            provide(&data, &hosts(&["api.test"]), now).unwrap_or_else(|error| panic!("{file}: {error}"));
            assert_eq!(accepts(&data, "api.test", now), Ok(()), "{file}");
        }
        let (_folder, data, now) = stage();
        provide(&data, &hosts(&["api.test"]), now).expect("issued");
        fs::write(data.root.join(GATEWAY_CERT), "nothing").expect("written");
        provide(&data, &hosts(&["api.test"]), now).expect("issued");
        assert_eq!(accepts(&data, "api.test", now), Ok(()));
    }

    #[test]
    fn a_broken_key_and_an_authority_of_another_folder_are_named() {
        let ((_folder, data, now), (_other, other, _)) = (stage(), stage());
        provide(&data, &hosts(&["api.test"]), now).expect("issued");
        provide(&other, &hosts(&["api.test"]), now).expect("issued");
        fs::copy(other.ca_path(), data.ca_path()).expect("copied");
        let error = provide(&data, &hosts(&["api.test"]), now).expect_err("not its key").to_string();
        assert!(
            error.contains("ca.pem: certificates by it are not valid") && error.contains("remove ca.pem"),
            "{error}"
        );

        fs::write(data.root.join(GATEWAY_KEY), "nothing").expect("written");
        let error = provide(&data, &hosts(&["api.test"]), now).expect_err("no key").to_string();
        assert!(error.contains("gateway.key: ") && error.contains("remove it"), "{error}");
    }
}
