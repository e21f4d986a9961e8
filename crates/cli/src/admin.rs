//! Calls of the gateway's admin API.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use ropeway::Side;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The admin API of one gateway.
#[derive(Debug)]
pub(crate) struct Admin {
    address: SocketAddr,
    token: String,
}

/// Why a call of the admin API failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum AdminError {
    /// The answer is not what the API gives.
    #[error("the admin API at {address} gave no good answer: {reason}")]
    Answer {
        /// The address.
        address: SocketAddr,
        /// What is wrong.
        reason: String,
    },
    /// Nothing listens there.
    #[error("the admin API at {address} cannot be reached: {source}; is `ropeway up` running?")]
    Connect {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The API refused the call.
    #[error("the admin API refused: {message} (status {})", status.as_u16())]
    Refused {
        /// The status of the answer.
        status: StatusCode,
        /// What it says.
        message: String,
    },
    /// The gateway answered too late.
    #[error("the admin API at {address} did not answer within {} s", TIMEOUT.as_secs())]
    TimedOut {
        /// The address.
        address: SocketAddr,
    },
    /// The token cannot be read.
    #[error("cannot read the admin token in {}: {source}; `ropeway up` makes it", path.display())]
    Token {
        /// Its file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl AdminError {
    /// Gives the name of the error for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Answer { .. } => "admin_answer",
            Self::Connect { .. } => "admin_unreachable",
            Self::Refused { .. } => "admin_refused",
            Self::TimedOut { .. } => "admin_timed_out",
            Self::Token { .. } => "admin_token",
        }
    }

    /// Says whose fault it is.
    pub(crate) fn side(&self) -> Side {
        match self {
            Self::Answer { .. } | Self::Connect { .. } | Self::TimedOut { .. } => Side::Peer,
            Self::Refused { status, .. } if status.is_server_error() => Side::Peer,
            Self::Refused { .. } | Self::Token { .. } => Side::Local,
        }
    }
}

impl Admin {
    /// Takes the address and the file of the token.
    pub(crate) fn new(address: SocketAddr, token_file: &Path) -> Result<Self, AdminError> {
        let unreadable = |source| AdminError::Token { path: token_file.to_owned(), source };
        let token = fs::read_to_string(token_file).map_err(unreadable)?;
        Ok(Self { address, token: token.trim().to_owned() })
    }

    /// Calls the API; an answer with a status that `expected` names is good.
    pub(crate) async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        expected: &[StatusCode],
    ) -> Result<Value, AdminError> {
        let exchange = self.exchange(method, path, body, expected);
        timeout(TIMEOUT, exchange).await.map_err(|_| AdminError::TimedOut { address: self.address })?
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        expected: &[StatusCode],
    ) -> Result<Value, AdminError> {
        let bad = |reason: String| AdminError::Answer { address: self.address, reason };
        let unreachable = |source| AdminError::Connect { address: self.address, source };
        let tcp = TcpStream::connect(self.address).await.map_err(unreachable)?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(tcp)).await.map_err(|error| bad(error.to_string()))?;
        // It ends with the exchange; what goes wrong in it is told there.
        tokio::spawn(connection);

        let text = body.map(Value::to_string).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token));
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(Bytes::from(text))).map_err(|error| bad(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|error| bad(error.to_string()))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|error| bad(error.to_string()))?.to_bytes();
        if !expected.contains(&status) {
            return Err(AdminError::Refused { status, message: message(&body) });
        }
        serde_json::from_slice(&body).map_err(|error| bad(error.to_string()))
    }
}

/// Finds what an answer says to people: the `message` or `error` of an object, or the text as it is.
fn message(body: &[u8]) -> String {
    let object: Value = serde_json::from_slice(body).unwrap_or_default();
    let said = ["message", "error"].iter().find_map(|key| object[key].as_str());
    said.map_or_else(|| String::from_utf8_lossy(body).trim().to_owned(), str::to_owned)
}

/// Time for one call; the API answers from memory.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of an answer that are read: far more than the API gives.
const ANSWER_BYTES_MAX: usize = 1 << 20;
