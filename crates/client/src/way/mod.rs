//! What the ways of single exchanges have in common: how they fail, and the shape they have on the wire.
//!
//! A way sends a request once and brings its answer or says how far it came. It tries nothing again, and has no timeouts
//! besides that of the connection: whoever calls it drops the future to give up.

mod http1;
mod trace;

use std::{fmt, net::SocketAddr, time::Duration};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use ropeway_core::{Retry, Side};
use thiserror::Error;

use crate::{Body, BoxError, Phase};

pub(crate) use self::{
    http1::exchange,
    trace::{Aim, Peer, Trace},
};

/// Shape of an exchange over plain HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// HTTP/1.0: one exchange a connection, each body with its length, none in chunks. What the oldest middleboxes let
    /// through.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// Whether a request was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Fate {
    /// It was: its answer came, or the gateway has proved it and the answer cannot come this way.
    Executed,
    /// It was handed over, and may have been.
    MayHaveRun,
    /// It was handed over, and the gateway has proved that it was not.
    NotExecuted,
    /// It was not handed over.
    NothingSent,
}

impl Fate {
    /// Returns its name as timelines spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::MayHaveRun => "may_have_run",
            Self::NotExecuted => "not_executed",
            Self::NothingSent => "nothing_sent",
        }
    }
}

/// Why a way brought no answer.
#[derive(Debug, Error)]
#[error("{address}, {phase}: {cause}")]
pub struct Failed {
    /// Where the request went, or was to go.
    pub address: SocketAddr,
    /// What it was at.
    pub phase: Phase,
    /// Whether it was executed.
    pub fate: Fate,
    /// What happened.
    pub cause: Cause,
}

/// What happened to a request on its way.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Cause {
    /// The gateway has executed the request, and holds an answer that is too large for the way.
    #[error("request was executed, and its answer is too large to be sent this way")]
    AnswerHeldBack,
    /// The answer is larger than the way may hold.
    #[error("answer is larger than {bytes_max} bytes")]
    AnswerTooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// The body of the request, which the app produces, failed.
    #[error("body of the request failed: {0}")]
    Body(#[source] BoxError),
    /// The gateway's time is another. The request may be sent again with this offset, once.
    #[error("gateway's clock differs by {} s", offset_ms / 1_000)]
    Clock {
        /// The gateway's time less the device's, in ms.
        offset_ms: i64,
    },
    /// There is no connection.
    #[error("no connection: {0}")]
    Connect(String),
    /// The exchange broke off.
    #[error("exchange broke off: {0}")]
    Exchange(String),
    /// Something answered that does not know the way, such as a captive portal.
    #[error("answer is not the gateway's, status {status}")]
    Foreign {
        /// The status it answered with.
        status: u16,
    },
    /// The request cannot go this way as it is.
    #[error("request cannot go this way: {0}")]
    Invalid(String),
    /// Whoever answered claims not to know the key. Fetch it anew, over TLS or with the list.
    #[error("key is not known there")]
    KeyUnknown,
    /// The gateway refused the request; the answer is surely its own.
    #[error("gateway refused the request: {}", in_words(name))]
    Refused {
        /// The reason, as the gateway's metrics spell it.
        name: String,
    },
    /// The gateway was restarted, and takes no request that may not run twice whose date an earlier process could have taken.
    #[error("gateway was restarted {}, and takes no such request by this way yet", ago(*up))]
    Restarted {
        /// For how long it has run since, where it says so.
        up: Option<Duration>,
        /// How it would take the request, where that can be done soon.
        again: Option<Redate>,
    },
    /// The body of the request is larger than the way takes.
    #[error("body of the request is larger than {bytes_max} bytes")]
    RequestTooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// The answer was changed on the way, or is somebody else's.
    #[error("answer was changed on the way: {0}")]
    Tampered(&'static str),
    /// The answer proves nothing of where it comes from: a captive portal's, a filter's, or one whose signature was taken away.
    #[error("answer is not signed, status {status}")]
    Unsigned {
        /// The status it has.
        status: u16,
    },
}

/// How a request is sent once more, sealed with a date that the gateway takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redate {
    /// The time from now on until the gateway takes the date, at most 3 s.
    pub pause: Duration,
    /// The date less the device's time after the pause, in ms: what [`Pipe::send`](crate::pipe::Pipe::send) takes as the offset of the clock.
    pub offset_ms: i64,
}

impl Failed {
    /// Says whether someone on the way put another answer in the place of the gateway's, or took its proof away.
    #[must_use]
    pub const fn is_tampered(&self) -> bool {
        matches!(self.cause, Cause::Tampered(_) | Cause::Unsigned { .. })
    }

    /// Returns whose fault it is.
    #[must_use]
    pub const fn side(&self) -> Side {
        match &self.cause {
            Cause::Body(_) | Cause::Clock { .. } | Cause::Invalid(_) | Cause::RequestTooLarge { .. } => Side::Local,
            Cause::AnswerHeldBack | Cause::AnswerTooLarge { .. } => Side::Service,
            Cause::Connect(_)
            | Cause::Exchange(_)
            | Cause::Foreign { .. }
            | Cause::Tampered(_)
            | Cause::Unsigned { .. } => Side::Network,
            Cause::KeyUnknown | Cause::Refused { .. } | Cause::Restarted { .. } => Side::Peer,
        }
    }

    /// Returns whether to try again, by this way or another.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match (&self.cause, self.fate) {
            (Cause::Body(_), _) => Retry::Never,
            (_, Fate::Executed | Fate::MayHaveRun) => Retry::IdempotentOnly,
            (_, Fate::NotExecuted | Fate::NothingSent) => Retry::BeforeSend,
        }
    }

    pub(crate) fn before(address: SocketAddr, cause: Cause) -> Self {
        Self { address, phase: Phase::Connect, fate: Fate::NothingSent, cause }
    }

    pub(crate) fn after(address: SocketAddr, phase: Phase, cause: Cause) -> Self {
        Self { address, phase, fate: Fate::MayHaveRun, cause }
    }
}

/// Says what a gateway means by the name of a refusal.
fn in_words(name: &str) -> &str {
    match name {
        "answer_slow" => "the answer did not end within the time that it gives one",
        "malformed" => "what was sealed is no request to it",
        "replay_window_full" => "it has taken as many requests as it can remember",
        "replayed" => "it was taken before, so somebody has sent it a second time on the way",
        _ => name,
    }
}

fn ago(up: Option<Duration>) -> String {
    match up {
        Some(up) => format!("{} s ago", up.as_secs()),
        None => "less than two minutes ago".to_owned(),
    }
}

/// Holds the body of a request, which goes in one piece, and its trailers.
pub(crate) async fn hold(mut body: Body, bytes_max: usize) -> Result<(Bytes, Option<HeaderMap>), Cause> {
    let mut data = BytesMut::new();
    let mut trailers = None;
    while let Some(frame) = body.frame().await {
        match frame.map_err(|error| Cause::Body(BoxError::from(error)))?.into_data() {
            Ok(piece) if data.len().saturating_add(piece.len()) > bytes_max => {
                return Err(Cause::RequestTooLarge { bytes_max });
            }
            Ok(piece) => data.extend_from_slice(&piece),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok((data.freeze(), trailers))
}

impl Shape {
    pub(crate) const fn version(self) -> http::Version {
        match self {
            Self::Http10 => http::Version::HTTP_10,
            Self::Http11 => http::Version::HTTP_11,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Http10 => "http/1.0",
            Self::Http11 => "http/1.1",
        })
    }
}
