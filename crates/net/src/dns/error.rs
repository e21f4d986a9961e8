//! Why a name or a list was not had.

use std::{io, net::SocketAddr};

use thiserror::Error;

use crate::innermost;

/// Why a name or a list was not had.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DnsError {
    /// The server answered something else than was asked for.
    #[error("{server}: answer is malformed: {reason}")]
    Malformed {
        /// The server.
        server: SocketAddr,
        /// What is wrong.
        reason: String,
    },
    /// The name is none that can be asked for.
    #[error("{0:?} is no host name")]
    Name(String),
    /// There is no such name, or it is not answered for.
    #[error("name does not exist")]
    NoName,
    /// The answer is longer than any good one.
    #[error("{server}: answer has more than {bytes_max} bytes")]
    Oversized {
        /// The server.
        server: SocketAddr,
        /// The most that is read.
        bytes_max: usize,
    },
    /// The server cannot be reached, or its certificate is not its name's.
    #[error("{server}: {source}")]
    Socket {
        /// The server.
        server: SocketAddr,
        /// What the system or TLS says.
        source: io::Error,
    },
    /// The server refused.
    #[error("{server}: answered {status}")]
    Status {
        /// The server.
        server: SocketAddr,
        /// The status of its answer.
        status: http::StatusCode,
    },
    /// The system's name servers were asked in vain.
    #[error("name servers: {0}")]
    System(String),
    /// The exchange broke off.
    #[error("{server}: {reason}")]
    Transfer {
        /// The server.
        server: SocketAddr,
        /// What HTTP says.
        reason: String,
    },
}

impl DnsError {
    /// Says what happened without the server, for those who name it themselves.
    #[must_use]
    pub fn cause(&self) -> String {
        match self {
            Self::Malformed { reason, .. } => format!("answer is malformed: {reason}"),
            Self::Oversized { bytes_max, .. } => format!("answer has more than {bytes_max} bytes"),
            Self::Socket { source, .. } => innermost(source),
            Self::Status { status, .. } => format!("answered {status}"),
            Self::Transfer { reason, .. } => reason.clone(),
            Self::Name(_) | Self::NoName | Self::System(_) => self.to_string(),
        }
    }
}
