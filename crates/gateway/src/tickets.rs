//! Tickets: who a user is, said by an issuer and bound to one device.
//!
//! A ticket is a JSON Web Token (RFC 7519) signed with Ed25519 (RFC 8037). Its `sub` is the user, its `aud` the app, its
//! `cnf` (RFC 7800) the key of the device that may use it. No other algorithm is ever accepted, whatever the header
//! says. Its `device` says how the device may call itself ([`DeviceRule`]).

mod device;
mod issue;
mod provider;

use std::collections::HashMap;
use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use ropeway_net::pem;
use rustls::pki_types::SubjectPublicKeyInfoDer;
use rustls::pki_types::pem::PemObject;
use serde::Deserialize;

use crate::config::{KeySource, TicketsConfig};

pub use device::DeviceRule;
pub(crate) use issue::private_pem;
pub use issue::{IssueError, TicketIssuer};

/// Verifies tickets with the keys of the configured issuers.
#[derive(Debug)]
pub struct TicketVerifier {
    keys: HashMap<String, DecodingKey>,
    apps: Vec<String>,
    leeway_s: u64,
}

/// What a good ticket says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Ticket {
    /// The user: `sub`.
    pub user: String,
    /// The app that the ticket is for: the one of its `aud` that the device named.
    pub app: String,
    /// The Ed25519 key of the device that may use the ticket: `cnf`.
    pub device_key: [u8; 32],
    /// What the device may call itself: `device`.
    pub device: DeviceRule,
    /// Seconds since the Unix epoch until which it is good: `exp`, without the leeway.
    pub expires_unix: u64,
    /// The issuer's name for this ticket: `jti`.
    pub ticket_id: Option<String>,
}

/// Why a ticket was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TicketError {
    /// The signature is not that of the key that the ticket names, or not of Ed25519.
    #[error("ticket has a bad signature")]
    BadSignature,
    /// Its time is over.
    #[error("ticket has expired")]
    Expired,
    /// The device calls itself by a name that the ticket does not allow it.
    #[error("ticket is for another device than HELLO names")]
    ForeignDevice,
    /// It is for another app than the device named, or for one that is not served.
    #[error("ticket is for another app")]
    ForeignApp,
    /// It is no ticket, or lacks the user or the time of expiry.
    #[error("ticket is malformed")]
    Malformed,
    /// It is bound to no device, or not by an Ed25519 key.
    #[error("ticket names no device key")]
    NoDeviceKey,
    /// Its time has not come.
    #[error("ticket is not yet valid")]
    NotYetValid,
    /// It names no key, or one that is not configured.
    #[error("ticket is signed by an unknown key")]
    UnknownKey,
}

impl Ticket {
    /// Checks that the device may call itself `name`.
    ///
    /// # Errors
    /// [`TicketError::ForeignDevice`].
    pub fn check_device(&self, name: &str) -> Result<(), TicketError> {
        if self.device.allows(name, &self.device_key) { Ok(()) } else { Err(TicketError::ForeignDevice) }
    }
}

impl TicketError {
    /// Gives the name of the error in metrics and refusals.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadSignature => "bad_signature",
            Self::Expired => "expired",
            Self::ForeignApp => "foreign_app",
            Self::ForeignDevice => "foreign_device",
            Self::Malformed => "malformed",
            Self::NoDeviceKey => "no_device_key",
            Self::NotYetValid => "not_yet_valid",
            Self::UnknownKey => "unknown_key",
        }
    }
}

/// Why the key of an issuer cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssuerKeyError {
    /// The file holds another kind of key.
    #[error("public key of issuer `{kid}` in {} is not Ed25519; {PUBLIC_HALF}", file.display())]
    NotEd25519 {
        /// Name of the key.
        kid: String,
        /// Its file.
        file: PathBuf,
    },
    /// The file cannot be read, or is not PEM.
    #[error("public key of issuer `{kid}` in {}: {reason}; {PUBLIC_HALF}", file.display())]
    Unreadable {
        /// Name of the key.
        kid: String,
        /// Its file.
        file: PathBuf,
        /// What the reader said.
        reason: String,
    },
}

impl TicketVerifier {
    /// Creates a verifier, reading the keys that are in files.
    ///
    /// # Errors
    /// A key cannot be read or is not Ed25519.
    pub fn new(config: &TicketsConfig) -> Result<Self, IssuerKeyError> {
        provider::install();
        let mut keys = HashMap::new();
        for key in &config.keys {
            let public_key = match &key.public_key {
                KeySource::File(file) => read_public_key(&key.kid, file.clone())?,
                KeySource::Raw(raw) => *raw,
            };
            keys.insert(key.kid.clone(), DecodingKey::from_ed_der(&public_key));
        }
        Ok(Self { keys, apps: config.apps.clone(), leeway_s: config.leeway.as_secs() })
    }

    /// Verifies the ticket of a device that names itself a device of `app`, at the given second since the Unix epoch.
    ///
    /// # Errors
    /// The first reason found, in this order: form, key, signature, time, app, device key. Nothing that the ticket says
    /// is looked at before its signature was found good.
    pub fn verify(&self, token: &str, app: &str, now_unix: u64) -> Result<Ticket, TicketError> {
        if token.len() > TICKET_BYTES_MAX {
            return Err(TicketError::Malformed);
        }
        let header = decode_header(token).map_err(|_| TicketError::Malformed)?;
        if header.alg != Algorithm::EdDSA {
            return Err(TicketError::BadSignature);
        }
        let key = header.kid.and_then(|kid| self.keys.get(&kid)).ok_or(TicketError::UnknownKey)?;
        let claims = decode::<Claims>(token, key, &signature_only()).map_err(|error| refusal(error.kind()))?.claims;
        self.check_time(&claims, now_unix)?;
        if !claims.aud.names(app) || !self.apps.iter().any(|served| served == app) {
            return Err(TicketError::ForeignApp);
        }
        let device_key = claims.cnf.and_then(device_key).ok_or(TicketError::NoDeviceKey)?;
        if claims.sub.is_empty() {
            return Err(TicketError::Malformed);
        }
        Ok(Ticket {
            user: claims.sub,
            app: app.to_owned(),
            device_key,
            device: DeviceRule::from_claim(claims.device),
            expires_unix: seconds(claims.exp),
            ticket_id: claims.jti,
        })
    }

    fn check_time(&self, claims: &Claims, now_unix: u64) -> Result<(), TicketError> {
        // RFC 7519 section 4.1.4: "on or after" the time of expiry a token is refused.
        if now_unix >= seconds(claims.exp).saturating_add(self.leeway_s) {
            return Err(TicketError::Expired);
        }
        if claims.nbf.is_some_and(|nbf| now_unix.saturating_add(self.leeway_s) < seconds(nbf)) {
            return Err(TicketError::NotYetValid);
        }
        Ok(())
    }
}

/// The claims that are read; others are passed over, as RFC 7519 section 4 asks.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    #[serde(default)]
    aud: Audience,
    /// A NumericDate, which may have a fraction.
    exp: f64,
    nbf: Option<f64>,
    jti: Option<String>,
    cnf: Option<serde_json::Value>,
    device: Option<String>,
}

/// One app or several; RFC 7519 section 4.1.3.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    Many(Vec<String>),
    One(String),
}

impl Audience {
    fn names(&self, app: &str) -> bool {
        match self {
            Self::Many(apps) => apps.iter().any(|named| named == app),
            Self::One(named) => named == app,
        }
    }
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

/// A `cnf` with a JSON Web Key (RFC 7800 section 3.2) for Ed25519 (RFC 8037 section 2).
#[derive(Deserialize)]
struct Confirmation {
    jwk: DeviceJwk,
}

#[derive(Deserialize)]
struct DeviceJwk {
    kty: String,
    crv: String,
    x: String,
}

fn device_key(cnf: serde_json::Value) -> Option<[u8; 32]> {
    let Confirmation { jwk } = serde_json::from_value(cnf).ok()?;
    if jwk.kty != "OKP" || jwk.crv != "Ed25519" {
        return None;
    }
    URL_SAFE_NO_PAD.decode(jwk.x).ok()?.try_into().ok()
}

/// Takes a NumericDate as whole seconds; what is before the epoch, or is no number, is the epoch.
fn seconds(date: f64) -> u64 {
    date as u64
}

/// Asks for the signature alone: the library would check times by the system's clock.
fn signature_only() -> Validation {
    let mut validation = Validation::new(Algorithm::EdDSA);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation
}

fn refusal(kind: &ErrorKind) -> TicketError {
    if matches!(kind, ErrorKind::InvalidAlgorithm | ErrorKind::InvalidSignature) {
        TicketError::BadSignature
    } else {
        TicketError::Malformed
    }
}

fn read_public_key(kid: &str, file: PathBuf) -> Result<[u8; 32], IssuerKeyError> {
    let der = match SubjectPublicKeyInfoDer::from_pem_file(&file) {
        Ok(der) => der,
        Err(error) => {
            let reason = pem::reason("public key", &error);
            return Err(IssuerKeyError::Unreadable { kid: kid.to_owned(), file, reason });
        }
    };
    let key = der.strip_prefix(&SPKI_PREFIX).and_then(|key| key.try_into().ok());
    key.ok_or_else(|| IssuerKeyError::NotEd25519 { kid: kid.to_owned(), file })
}

/// What to do about a file without such a key.
const PUBLIC_HALF: &str = "`openssl pkey -in PRIVATE -pubout` writes the public half of an issuer's key";

/// Bytes of a ticket. An Ed25519 ticket with the claims read here has about 400.
const TICKET_BYTES_MAX: usize = 4_096;

/// What stands before the 32 bytes of every Ed25519 key in a SubjectPublicKeyInfo; RFC 8410 sections 3 and 4.
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

#[cfg(test)]
mod tests;
