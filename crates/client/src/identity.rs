//! Who the client is: the device's key and the user's ticket.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ed25519_dalek::{Signer as _, SigningKey};

use crate::BoxError;

/// The device's Ed25519 key, which the ticket names.
#[derive(Clone)]
pub(crate) struct DeviceKey(Arc<SigningKey>);

impl DeviceKey {
    pub(crate) fn from_seed(seed: &[u8; 32]) -> Self {
        Self(Arc::new(SigningKey::from_bytes(seed)))
    }

    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed)?;
        Ok(Self::from_seed(&seed))
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }

    pub(crate) fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }
}

/// Where tickets come from.
#[derive(Clone)]
pub(crate) enum Tickets {
    Ask(Arc<dyn Fn() -> TicketFuture + Send + Sync>),
    Fixed(String),
}

pub(crate) type TicketFuture = Pin<Box<dyn Future<Output = Result<String, BoxError>> + Send>>;

impl Tickets {
    /// Returns the ticket, where there is one from the start.
    pub(crate) const fn fixed(&self) -> Option<&str> {
        match self {
            Self::Ask(_) => None,
            Self::Fixed(ticket) => Some(ticket.as_str()),
        }
    }

    pub(crate) const fn is_source(&self) -> bool {
        matches!(self, Self::Ask(_))
    }

    pub(crate) async fn fetch(&self) -> Result<String, String> {
        match self {
            Self::Ask(ask) => ask().await.map_err(|error| error.to_string()),
            Self::Fixed(ticket) => Ok(ticket.clone()),
        }
    }
}

impl fmt::Debug for DeviceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceKey({})", URL_SAFE_NO_PAD.encode(self.public()))
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_source() { "Ask" } else { "Fixed" })
    }
}

/// Reads the app a ticket is for, its audience, without checking anything: the gateway does that.
pub(crate) fn audience(ticket: &str) -> Option<String> {
    claim(ticket, "aud")
}

/// Reads the user a ticket is for, its subject, as little checked.
pub(crate) fn subject(ticket: &str) -> Option<String> {
    claim(ticket, "sub")
}

fn claim(ticket: &str, name: &str) -> Option<String> {
    let claims = URL_SAFE_NO_PAD.decode(ticket.split('.').nth(1)?).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    claims.get(name)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audience_of_a_ticket_is_read_and_nothing_else_is_believed() {
        let ticket = |claims: &str| format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(audience(&ticket(r#"{"aud":"demo","sub":"a"}"#)).as_deref(), Some("demo"));
        assert_eq!(audience(&ticket(r#"{"aud":["demo"]}"#)), None);
        assert_eq!(subject(&ticket(r#"{"aud":"demo","sub":"a"}"#)).as_deref(), Some("a"));
        assert_eq!(audience("not a ticket"), None);
    }

    #[test]
    fn neither_key_nor_ticket_is_printed() {
        let key = DeviceKey::from_seed(&[1; 32]);
        assert!(!format!("{key:?}").contains(&URL_SAFE_NO_PAD.encode([1; 32])));
        assert_eq!(format!("{:?}", Tickets::Fixed("secret".into())), "Fixed");
    }
}
