//! The secrets besides the certificates: the ticket issuer, the admin token, device keys and the development ticket.

use std::fmt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ed25519_dalek::SigningKey;
use ropeway_gateway::config::{KeySource, TicketKey, TicketsConfig};
use ropeway_gateway::tickets::{TicketIssuer, TicketVerifier};
use ropeway_net::pem::looks_like;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};

use super::files::{self, Access};
use super::{DEVELOPMENT_DEVICE, DEVELOPMENT_USER, DataDirError, TICKET_TTL};

/// The key of a device: its private part, or the public one alone, which is enough for a ticket.
#[derive(Clone, Eq, PartialEq)]
pub(crate) enum DeviceKey {
    /// The 32 bytes from which an Ed25519 key is made (RFC 8032 section 5.1.5).
    Private([u8; 32]),
    /// The 32 bytes of the public key.
    Public([u8; 32]),
}

impl DeviceKey {
    /// Makes a new key.
    pub(crate) fn generate() -> Result<Self, DataDirError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|_| DataDirError::NoRandom)?;
        Ok(Self::Private(seed))
    }

    /// Reads a key from a PEM file, private (PKCS #8) or public.
    pub(crate) fn read(path: &Path) -> Result<Self, DataDirError> {
        let content = files::content(path)?.ok_or_else(|| DataDirError::Missing { path: path.to_owned() })?;
        let text = std::str::from_utf8(&content).unwrap_or_default();
        Self::from_pem(text).ok_or_else(|| DataDirError::Damaged {
            path: path.to_owned(),
            reason: format!("this is no Ed25519 key in PEM, it looks like {}", looks_like(&content)),
            hint: "`ropeway ticket --device-key generate` makes one, as does `openssl genpkey -algorithm ed25519`",
        })
    }

    fn from_pem(text: &str) -> Option<Self> {
        if let Ok(der) = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes()) {
            let der = der.secret_pkcs8_der();
            let rest = PKCS8_PREFIXES.iter().find_map(|prefix| der.strip_prefix(&prefix[..]))?;
            return rest.first_chunk().copied().map(Self::Private);
        }
        let der = SubjectPublicKeyInfoDer::from_pem_slice(text.as_bytes()).ok()?;
        der.strip_prefix(&SPKI_PREFIX[..])?.try_into().ok().map(Self::Public)
    }

    /// Gives the public key.
    pub(crate) fn public_key(&self) -> [u8; 32] {
        match self {
            Self::Private(seed) => SigningKey::from_bytes(seed).verifying_key().to_bytes(),
            Self::Public(key) => *key,
        }
    }

    /// Gives the private part, where there is one.
    pub(crate) fn seed(&self) -> Option<[u8; 32]> {
        match self {
            Self::Private(seed) => Some(*seed),
            Self::Public(_) => None,
        }
    }

    /// Writes the key as PEM.
    pub(crate) fn to_pem(&self) -> String {
        let (label, der) = match self {
            Self::Private(seed) => ("PRIVATE KEY", [&PKCS8_PREFIXES[0][..], seed].concat()),
            Self::Public(key) => ("PUBLIC KEY", [&SPKI_PREFIX[..], key].concat()),
        };
        // 48 bytes and less fill one line of 64 letters (RFC 7468 section 2).
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
    }
}

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceKey").finish_non_exhaustive()
    }
}

/// Reads the device key of a file, or makes one there.
pub(super) fn make_device_key(path: &Path) -> Result<DeviceKey, DataDirError> {
    files::read_or_make(path, Access::Secret, || Ok(DeviceKey::generate()?.to_pem()))?;
    DeviceKey::read(path)
}

/// Reads the issuer's key, or makes one if that is wanted. Its name follows from the key.
pub(super) fn issuer(path: &Path, make: bool) -> Result<TicketIssuer, DataDirError> {
    let generate = || {
        if !make {
            return Err(DataDirError::Missing { path: path.to_owned() });
        }
        TicketIssuer::generate(DEVELOPMENT_USER).map(|issuer| issuer.private_pem()).map_err(|_| DataDirError::NoRandom)
    };
    files::read_or_make(path, Access::Secret, generate)?;
    read_issuer(path)
}

fn read_issuer(path: &Path) -> Result<TicketIssuer, DataDirError> {
    let pem = files::read(path)?.ok_or_else(|| DataDirError::Missing { path: path.to_owned() })?;
    let named = TicketIssuer::from_pem(DEVELOPMENT_USER, &pem).and_then(|issuer| {
        let id = &URL_SAFE_NO_PAD.encode(issuer.public_key())[..ISSUER_ID_CHARS];
        TicketIssuer::from_pem(&format!("dev-{id}"), &pem)
    });
    named.map_err(|error| DataDirError::damaged(path, error))
}

/// Reads the admin token, or makes one.
pub(super) fn admin_token(path: &Path) -> Result<String, DataDirError> {
    let token = files::read_or_make(path, Access::Secret, || {
        let mut token = [0; 32];
        getrandom::fill(&mut token).map_err(|_| DataDirError::NoRandom)?;
        Ok(format!("{}\n", URL_SAFE_NO_PAD.encode(token)))
    })?;
    one_word(path, token)
}

/// Reads the admin token, which need not be there yet.
pub(crate) fn check_admin_token(path: &Path) -> Result<(), DataDirError> {
    files::read(path)?.map_or(Ok(()), |token| one_word(path, token).map(drop))
}

/// Refuses what no client could send as a bearer token (RFC 6750 section 2.1).
fn one_word(path: &Path, token: String) -> Result<String, DataDirError> {
    let word = token.trim();
    if !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(token);
    }
    let looks = looks_like(token.as_bytes());
    Err(DataDirError::damaged(path, format!("a token is one word of ASCII, and this looks like {looks}")))
}

/// Says what is wrong with the development issuer and device, as far as they are there, and changes neither.
pub(super) fn check_development(issuer_path: &Path, device_path: &Path) -> Result<(), DataDirError> {
    if issuer_path.exists() {
        read_issuer(issuer_path)?;
    }
    if device_path.exists() {
        DeviceKey::read(device_path)?;
    }
    Ok(())
}

/// Issues the development ticket, unless the present one is good for this app and device, and for some time.
pub(super) fn development_ticket(
    path: &Path,
    issuer: &TicketIssuer,
    app: &str,
    device: &DeviceKey,
    now: SystemTime,
) -> Result<(), DataDirError> {
    let key = TicketKey { kid: issuer.kid().to_owned(), public_key: KeySource::Raw(issuer.public_key()) };
    let config = TicketsConfig { apps: vec![app.to_owned()], keys: vec![key], leeway: Duration::ZERO };
    let verifier = TicketVerifier::new(&config).map_err(|error| DataDirError::damaged(path, error))?;
    if let Some(token) = files::read(path)? {
        let later = unix_seconds(now + TICKET_TTL / 2);
        let serves = verifier.verify(token.trim(), app, later).is_ok_and(|ticket| {
            ticket.device_key == device.public_key()
                && ticket.device == DEVELOPMENT_DEVICE
                && ticket.user == DEVELOPMENT_USER
        });
        if serves {
            return Ok(());
        }
    }
    let now = unix_seconds(now);
    let token = issuer.issue(DEVELOPMENT_USER, app, &device.public_key(), &DEVELOPMENT_DEVICE, TICKET_TTL, now);
    let token = token.map_err(|error| DataDirError::damaged(path, error))?;
    files::write(path, Access::Secret, &format!("{token}\n"))
}

/// Counts the seconds since the Unix epoch; a clock before it counts none.
pub(crate) fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// What stands before the 32 private bytes of an Ed25519 key in PKCS #8: version 1 (RFC 8410 section 7), and version 2,
/// which has the public key behind (RFC 5958 section 2) in the two lengths that are met.
const PKCS8_PREFIXES: [[u8; 16]; 3] = [pkcs8_prefix(0x2e, 0), pkcs8_prefix(0x51, 1), pkcs8_prefix(0x53, 1)];

const fn pkcs8_prefix(bytes: u8, version: u8) -> [u8; 16] {
    [0x30, bytes, 0x02, 0x01, version, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20]
}

/// What stands before the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410 section 4).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Letters of the public key in an issuer's name: 48 bits tell the keys of one configuration apart.
const ISSUER_ID_CHARS: usize = 8;

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_device_key_reads_back_from_its_pem_and_from_that_of_other_tools() {
        let key = DeviceKey::generate().expect("a key");
        assert_eq!(DeviceKey::from_pem(&key.to_pem()), Some(key.clone()));
        let public = DeviceKey::Public(key.public_key());
        assert_eq!(DeviceKey::from_pem(&public.to_pem()), Some(public.clone()));
        assert_eq!(public.public_key(), key.public_key());

        let v2 = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let read = DeviceKey::from_pem(&v2.serialize_pem()).expect("an Ed25519 key");
        assert_eq!(read.public_key(), v2.public_key_raw());
        let issuer = TicketIssuer::generate("k").expect("a key");
        let read = DeviceKey::from_pem(&issuer.private_pem()).expect("an Ed25519 key");
        assert_eq!(read.public_key(), issuer.public_key());
    }

    #[test]
    fn another_kind_of_key_is_refused_with_its_file_and_what_to_do() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("device.key");
        let foreign = rcgen::KeyPair::generate().expect("a key");
        for text in [foreign.serialize_pem(), foreign.public_key_pem(), "nothing".to_owned(), String::new()] {
            fs::write(&path, &text).expect("written");
            let error = DeviceKey::read(&path).expect_err("no Ed25519 key").to_string();
            assert!(error.starts_with(&path.display().to_string()) && error.contains("generate"), "{error}");
        }
    }

    #[test]
    fn a_device_key_does_not_print_itself() {
        assert_eq!(format!("{:?}", DeviceKey::Private([7; 32])), "DeviceKey { .. }");
    }

    #[test]
    fn the_issuer_keeps_its_key_and_name() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("issuer.key");
        assert!(matches!(issuer(&path, false), Err(DataDirError::Missing { .. })));
        let first = issuer(&path, true).expect("made");
        let second = issuer(&path, false).expect("read");
        assert_eq!((first.kid(), first.public_key()), (second.kid(), second.public_key()));
        assert!(first.kid().starts_with("dev-"));
        fs::write(&path, "nothing").expect("written");
        assert!(matches!(issuer(&path, true), Err(DataDirError::Damaged { .. })));
    }

    #[test]
    fn the_admin_token_has_32_bytes_and_stays() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("admin.token");
        let token = admin_token(&path).expect("made");
        assert_eq!(URL_SAFE_NO_PAD.decode(token.trim()).expect("Base64").len(), 32);
        assert_eq!(admin_token(&path).expect("read"), token);
        fs::write(&path, "\n").expect("written");
        assert!(matches!(admin_token(&path), Err(DataDirError::Damaged { .. })));
    }

    #[test]
    fn the_development_ticket_stays_until_it_would_not_serve() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("ticket");
        let issuer = TicketIssuer::generate("k").expect("a key");
        let device = DeviceKey::Private([7; 32]);
        let start = SystemTime::now();
        let ticket = |issuer: &TicketIssuer, app: &str, device: &DeviceKey, now| {
            development_ticket(&path, issuer, app, device, now).expect("a ticket");
            fs::read_to_string(&path).expect("there")
        };
        let mut last = ticket(&issuer, "dev", &device, start);
        assert_eq!(ticket(&issuer, "dev", &device, start + TICKET_TTL / 4), last);
        let other = DeviceKey::Private([8; 32]);
        let stranger = TicketIssuer::generate("k").expect("a key");
        for (issuer, app, device, now) in [
            (&issuer, "dev", &device, start + TICKET_TTL * 2 / 3),
            (&issuer, "shop", &device, start),
            (&issuer, "shop", &other, start),
            (&stranger, "shop", &other, start),
        ] {
            let next = ticket(issuer, app, device, now);
            assert_ne!(next, last);
            last = next;
        }
    }
}
