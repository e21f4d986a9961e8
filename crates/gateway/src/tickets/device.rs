//! What a device may call itself.

use ropeway_core::session::device_id;

/// The names that a ticket allows its device, so that nobody receives what is pushed to the device of another: its claim `device`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum DeviceRule {
    /// Any name: `"*"`. For development, where one ticket serves several devices.
    Any,
    /// The name made from its key, [`device_id`]: no claim.
    #[default]
    Key,
    /// This name, given by the issuer.
    Named(String),
}

impl DeviceRule {
    /// Reads the claim.
    #[must_use]
    pub fn from_claim(claim: Option<String>) -> Self {
        match claim {
            None => Self::Key,
            Some(claim) if claim == ANY => Self::Any,
            Some(name) => Self::Named(name),
        }
    }

    /// Writes the claim.
    #[must_use]
    pub fn claim(&self) -> Option<&str> {
        match self {
            Self::Any => Some(ANY),
            Self::Key => None,
            Self::Named(name) => Some(name),
        }
    }

    /// Says whether a device with this key may call itself `name`.
    #[must_use]
    pub fn allows(&self, name: &str, key: &[u8; 32]) -> bool {
        match self {
            Self::Any => true,
            Self::Key => name == device_id(key),
            Self::Named(allowed) => name == allowed,
        }
    }
}

/// The claim that allows any name.
const ANY: &str = "*";
