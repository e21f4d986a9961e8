//! Why there is no access list, or no newer one.

use std::{fmt, net::SocketAddr, time::Duration};

use thiserror::Error;

use crate::wire::list::{ListError, Validity};

/// How it stands with the access list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListState {
    /// There is one, of which so much may be taken.
    Held(Validity),
    /// None has come.
    Missing,
    /// None is wanted, for want of a key to believe one by.
    Unwanted,
}

impl ListState {
    /// Says whether a list that comes may show other ways.
    #[must_use]
    pub const fn is_awaited(self) -> bool {
        match self {
            Self::Held(Validity::Gone) | Self::Missing => true,
            Self::Held(Validity::Addresses | Validity::Full) | Self::Unwanted => false,
        }
    }
}

/// Who gave a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListOrigin {
    /// A dispatch address.
    Dispatch(SocketAddr),
    /// The gateway of a link.
    Link,
}

/// Why an attempt to have an access list brought none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListTrouble {
    /// A dispatch address gave none.
    #[error("{address} gave no access list: {reason} ({} ms)", took.as_millis())]
    Failed {
        /// The address.
        address: SocketAddr,
        /// How long it was asked.
        took: Duration,
        /// What happened.
        reason: String,
    },
    /// Nobody is known who could be asked.
    #[error("no address is known that answers for access lists")]
    Nobody,
    /// One was given that is not believed.
    #[error("{from} gave an access list that is not believed{}: {error}", asked_for(*took))]
    Refused {
        /// Who gave it.
        from: ListOrigin,
        /// How long the fetch took; zero over a link, where nobody asked.
        took: Duration,
        /// Why it is not believed.
        #[source]
        error: ListError,
    },
}

impl ListTrouble {
    /// Says whether this one tells the same as another, whatever time each took.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Failed { address, reason, .. }, Self::Failed { address: known, reason: other, .. }) => {
                (address, reason) == (known, other)
            }
            (Self::Nobody, Self::Nobody) => true,
            (Self::Refused { from, error, .. }, Self::Refused { from: known, error: other, .. }) => {
                // How far ahead or behind it is moves with the clock.
                (from, error.name()) == (known, other.name())
            }
            (Self::Failed { .. } | Self::Nobody | Self::Refused { .. }, _) => false,
        }
    }

    /// Says whether this one is to be told in place of an earlier one: that a list was refused says more than that another address was
    /// silent.
    pub(super) fn replaces(&self, earlier: &Self) -> bool {
        match (earlier, self) {
            (Self::Refused { from: ListOrigin::Dispatch(refused), .. }, Self::Failed { address, .. }) => {
                refused == address
            }
            (Self::Refused { .. }, Self::Failed { .. } | Self::Nobody) => false,
            (Self::Failed { .. } | Self::Nobody | Self::Refused { .. }, _) => true,
        }
    }
}

impl fmt::Display for ListOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dispatch(address) => address.fmt(f),
            Self::Link => f.write_str("the link's gateway"),
        }
    }
}

/// Says how long a fetch took, where there was one.
fn asked_for(took: Duration) -> String {
    if took.is_zero() { String::new() } else { format!(" ({} ms)", took.as_millis()) }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_refusal_names_who_gave_the_list_and_why_it_is_not_believed() {
        let (address, took) = (SocketAddr::from(([192, 0, 2, 1], 443)), Duration::from_millis(12));
        let refused = |from, took| ListTrouble::Refused { from, took, error: ListError::Malformed };
        let asked = refused(ListOrigin::Dispatch(address), took);
        let expected = "192.0.2.1:443 gave an access list that is not believed (12 ms): access list is malformed";
        assert_eq!(asked.to_string(), expected);
        assert_eq!(asked.source().unwrap().to_string(), "access list is malformed");
        let pushed = refused(ListOrigin::Link, Duration::ZERO).to_string();
        assert_eq!(pushed, "the link's gateway gave an access list that is not believed: access list is malformed");
    }

    #[test]
    fn a_refused_list_is_told_until_its_own_server_fails_otherwise() {
        let at = |port| SocketAddr::from(([192, 0, 2, 1], port));
        let failed = |port| ListTrouble::Failed { address: at(port), took: Duration::ZERO, reason: "silent".into() };
        let from = ListOrigin::Dispatch(at(1));
        let refused = ListTrouble::Refused { from, took: Duration::ZERO, error: ListError::Malformed };
        assert!(refused.replaces(&failed(2)) && failed(1).replaces(&refused) && failed(2).replaces(&failed(1)));
        assert!(!failed(2).replaces(&refused) && !ListTrouble::Nobody.replaces(&refused));
    }
}
