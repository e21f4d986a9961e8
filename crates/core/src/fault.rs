//! What every error of Ropeway can say about itself: whose fault it is, and whether to try again.

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// This program's or this device's: its configuration, its request, its ticket.
    Local,
    /// The network's between the two ends.
    Network,
    /// The gateway's, or that of whatever answered in its place.
    Peer,
    /// The HTTP service's behind the gateway, or the host's that was called directly.
    Service,
}

/// Whether the caller may do again what failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Retry {
    /// At any time: nothing was executed that a second time would double.
    Always,
    /// Yes: the failure came before the request was handed to a carrier.
    BeforeSend,
    /// Only what may be executed twice: the request may have run.
    IdempotentOnly,
    /// The same again would fail the same way.
    Never,
}

impl Side {
    /// Returns the side's name as logs and metrics spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Network => "network",
            Self::Peer => "peer",
            Self::Service => "service",
        }
    }
}

impl Retry {
    /// Returns the answer's name as logs and metrics spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::BeforeSend => "before_send",
            Self::IdempotentOnly => "idempotent_only",
            Self::Never => "never",
        }
    }

    /// Returns whether a request may be repeated that is, or is not, safe to execute twice.
    #[must_use]
    pub const fn allows(self, idempotent: bool) -> bool {
        match self {
            Self::Always | Self::BeforeSend => true,
            Self::IdempotentOnly => idempotent,
            Self::Never => false,
        }
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::fmt::Display for Retry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_run_is_repeated_only_if_running_twice_does_no_harm() {
        assert!(Retry::IdempotentOnly.allows(true));
        assert!(!Retry::IdempotentOnly.allows(false));
        assert!(Retry::BeforeSend.allows(false));
        assert!(!Retry::Never.allows(true));
    }
}
