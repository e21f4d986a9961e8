//! The carriers a link can travel over.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// How the bytes of a link travel between a client and a gateway.
///
/// Written `quic`, `tls` or `ws` in configuration, logs and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CarrierKind {
    /// QUIC: control frames on one stream, each request on its own.
    Quic,
    /// TLS 1.3 over TCP: all frames on one ordered stream.
    Tls,
    /// WebSocket over TLS, for networks that let only the web through.
    Ws,
}

impl CarrierKind {
    /// Every carrier, in the order of preference when nothing else speaks for one.
    pub const ALL: [Self; 3] = [Self::Quic, Self::Tls, Self::Ws];

    /// Returns the carrier's name as configuration, logs and metrics spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Tls => "tls",
            Self::Ws => "ws",
        }
    }
}

impl fmt::Display for CarrierKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for CarrierKind {
    type Err = UnknownCarrier;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|carrier| carrier.as_str() == name).ok_or(UnknownCarrier)
    }
}

/// A name that is none of the carriers'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown carrier, expected one of quic, tls, ws")]
#[non_exhaustive]
pub struct UnknownCarrier;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_carrier_reads_back_from_its_name() {
        for carrier in CarrierKind::ALL {
            assert_eq!(carrier.to_string().parse(), Ok(carrier));
            assert_eq!(serde_json::to_string(&carrier).unwrap(), format!("\"{carrier}\""));
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_known_ones() {
        let error = "QUIC".parse::<CarrierKind>().unwrap_err();
        assert_eq!(error.to_string(), "unknown carrier, expected one of quic, tls, ws");
    }
}
