//! Issues tickets for development and tests; in service the app's own backend does.

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use ropeway_net::pem;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::json;

use super::{DeviceRule, SPKI_PREFIX, provider};

/// Signs tickets with one Ed25519 key.
pub struct TicketIssuer {
    kid: String,
    key: EncodingKey,
    public_key: [u8; 32],
}

/// Why there is no issuer or no ticket.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IssueError {
    /// The key is not an Ed25519 key in PKCS #8.
    #[error("issuer key is not an Ed25519 key in PKCS #8; `openssl genpkey -algorithm ed25519` makes one")]
    NotEd25519,
    /// The key is not PEM.
    #[error("issuer key: {0}; `openssl genpkey -algorithm ed25519` makes one")]
    NotPem(String),
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system")]
    NoRandom,
    /// The ticket could not be signed.
    #[error("ticket could not be signed: {0}")]
    NotSigned(String),
}

impl TicketIssuer {
    /// Creates an issuer with a new key.
    ///
    /// # Errors
    /// The operating system gives no random bytes.
    pub fn generate(kid: &str) -> Result<Self, IssueError> {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(|_| IssueError::NoRandom)?;
        Self::from_pkcs8(kid, document.as_ref())
    }

    /// Creates an issuer with a private key in PEM, PKCS #8 of version 1 or 2.
    ///
    /// # Errors
    /// The text is not PEM, or holds another kind of key.
    pub fn from_pem(kid: &str, pem: &str) -> Result<Self, IssueError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes());
        Self::from_pkcs8(
            kid,
            der.map_err(|error| IssueError::NotPem(pem::reason("private key", &error)))?.secret_pkcs8_der(),
        )
    }

    fn from_pkcs8(kid: &str, pkcs8: &[u8]) -> Result<Self, IssueError> {
        provider::install();
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(pkcs8).map_err(|_| IssueError::NotEd25519)?;
        let public_key = pair.public_key().as_ref().try_into().map_err(|_| IssueError::NotEd25519)?;
        Ok(Self { kid: kid.to_owned(), key: EncodingKey::from_ed_der(pkcs8), public_key })
    }

    /// Gives the name of the key, which every ticket carries.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// Gives the public key, for a verifier.
    #[must_use]
    pub fn public_key(&self) -> [u8; 32] {
        self.public_key
    }

    /// Writes the public key as PEM.
    #[must_use]
    pub fn public_pem(&self) -> String {
        armoured("PUBLIC KEY", &[&SPKI_PREFIX[..], &self.public_key[..]].concat())
    }

    /// Writes the private key as PEM, PKCS #8.
    #[must_use]
    pub fn private_pem(&self) -> String {
        private_pem(self.key.as_bytes())
    }

    /// Issues a ticket for one user's device, good from `now_unix`, in seconds since the Unix epoch, for `ttl`.
    ///
    /// # Errors
    /// The operating system gives no random bytes for the ticket's id.
    pub fn issue(
        &self,
        user: &str,
        app: &str,
        device_key: &[u8; 32],
        device: &DeviceRule,
        ttl: Duration,
        now_unix: u64,
    ) -> Result<String, IssueError> {
        let mut id = [0; 16];
        getrandom::fill(&mut id).map_err(|_| IssueError::NoRandom)?;
        let mut claims = json!({
            "sub": user,
            "aud": app,
            "iat": now_unix,
            "exp": now_unix.saturating_add(ttl.as_secs()),
            "jti": URL_SAFE_NO_PAD.encode(id),
            "cnf": { "jwk": { "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(device_key) } },
        });
        if let Some(claim) = device.claim() {
            claims["device"] = claim.into();
        }
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(self.kid.clone());
        encode(&header, &claims, &self.key).map_err(|error| IssueError::NotSigned(error.to_string()))
    }
}

impl fmt::Debug for TicketIssuer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketIssuer").field("kid", &self.kid).finish_non_exhaustive()
    }
}

/// Writes a private key in PKCS #8 as PEM.
pub(crate) fn private_pem(pkcs8: &[u8]) -> String {
    armoured("PRIVATE KEY", pkcs8)
}

/// Writes a PEM text: the label and Base64 in lines of 64 (RFC 7468 section 2).
fn armoured(label: &str, der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    let lines: Vec<_> = (0..body.len()).step_by(64).map(|at| &body[at..(at + 64).min(body.len())]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
