//! Why a request failed, whose fault it is, and whether to try again.

use std::{fmt, time::Duration};

use ropeway_core::{
    Retry, Side,
    request::Way,
    wire::message::{RefuseCode, ResetCode},
};
use thiserror::Error;

use crate::{Timeline, sources::ListTrouble};

/// Any error a body of the app's own may end in.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why a request failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The request was executed, and its answer is too large for the way it went; no other way brought it, or the request must not run
    /// a second time to be sent by one.
    #[error("{host} executed the request, and its answer is too large for the way {way} ({timeline})")]
    AnswerTooLarge {
        /// The host.
        host: String,
        /// By which way it was to come.
        way: Way,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The body of the request, which the app produces, failed.
    #[error("body of the request failed: {0}")]
    Body(#[source] BoxError),
    /// The body of the answer is not what its coding says.
    #[error("body of the answer is not {coding}: {reason}")]
    BodyCorrupt {
        /// The coding, as `content-encoding` named it.
        coding: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The body of the answer ended before it was complete. A part is never passed off as the whole.
    #[error("body of the answer was cut: {reason}")]
    BodyCut {
        /// Whose fault it is.
        side: Side,
        /// What happened.
        reason: String,
    },
    /// The body of the answer unpacks to far more than was sent, as nothing but a bomb does, or to more than the app allows
    /// ([`DecodeConfig`](crate::DecodeConfig)). What came before was as it should be, but is not the whole.
    #[error("body of the answer was stopped: {packed_bytes} bytes had unpacked to {unpacked_bytes}")]
    BodyInflated {
        /// Bytes that were sent until then.
        packed_bytes: u64,
        /// Bytes they were unpacked to.
        unpacked_bytes: u64,
    },
    /// The body of the answer is larger than the app wants to hold.
    #[error("body of the answer is larger than {bytes_max} bytes")]
    BodyTooLarge {
        /// The bound.
        bytes_max: usize,
    },
    /// An exchange without the link broke off before the head of its answer. The request may have been executed.
    #[error("{way} to {host} broke off: {reason}")]
    BrokeOff {
        /// The host.
        host: String,
        /// By which way.
        way: Way,
        /// What the HTTP stack says.
        reason: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The client was closed.
    #[error("client is closed")]
    Closed,
    /// The request was not sent: its URL and headers are larger than a way may carry. Each header and each part of the URL counts its bytes
    /// and 32 more, as in HTTP/2.
    #[error(
        "headers of the request are too large: {bytes} bytes in {headers}, and no way takes more than {bytes_max} in {headers_max}"
    )]
    HeadTooLarge {
        /// Bytes of its method, URL and headers.
        bytes: usize,
        /// Its headers.
        headers: usize,
        /// Most bytes.
        bytes_max: usize,
        /// Most headers.
        headers_max: usize,
    },
    /// The request cannot be sent as it is.
    #[error("request is invalid: {0}")]
    Invalid(String),
    /// JSON could not be written or read.
    #[error("json: {0}")]
    Json(#[source] serde_json::Error),
    /// The request was not executed: no way could be taken, and the access list that might have named one was refused, or was not had where
    /// all the ways that are wanted lead where it says.
    #[error("no way to {host}: {reason} ({timeline})")]
    NoList {
        /// The host.
        host: String,
        /// What happened, why there is no list included.
        reason: Box<str>,
        /// Why there is no list.
        #[source]
        trouble: Box<ListTrouble>,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The request was not executed: no way could be taken.
    #[error("no way to {host}: {reason} ({timeline})")]
    NoWay {
        /// The host.
        host: String,
        /// What happened.
        reason: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The request was not executed, and could not be sent again: its body is used up, or it was tried often enough. Only one that may be
    /// executed twice may still have run: it goes out with the greeting of a link, which may come to nothing.
    #[error("request was not executed: {reason}")]
    NotExecuted {
        /// What happened.
        reason: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The request may have been executed, and nobody can say.
    #[error("outcome is unknown: the request may have been executed ({timeline})")]
    OutcomeUnknown {
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The URL says `http`, no gateway serves its host, and nobody allowed plain HTTP.
    #[error("{host} would be called over plain http, which was not allowed")]
    PlainHttp {
        /// The host.
        host: String,
    },
    /// The service sent the request on too often, or to nowhere.
    #[error("redirect at {url}: {reason}")]
    Redirect {
        /// The URL whose answer is not followed.
        url: String,
        /// Why not.
        reason: String,
        /// What was tried to get that answer.
        timeline: Box<Timeline>,
    },
    /// The gateway refused the link.
    #[error("gateway refused the link: {detail}")]
    Refused {
        /// The reason.
        code: RefuseCode,
        /// The reason, in words.
        detail: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The gateway ended the exchange before the head of the answer.
    #[error("gateway ended the exchange ({}): {detail}", reset_name(*code))]
    Reset {
        /// The reason.
        code: ResetCode,
        /// The reason, in words.
        detail: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The request was not sent: as many wait already for a place on routes that have room for so many at once.
    #[error("{waiting_max} requests wait for their turn already, this one for {route}")]
    RouteBusy {
        /// The route this one wanted.
        route: String,
        /// The bound.
        waiting_max: usize,
    },
    /// The device cannot open links at all.
    #[error("links cannot be opened: {reason}")]
    Setup {
        /// What is missing.
        reason: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// Somebody on the way put another answer in the place of the one that was sent, or took away what proves it. The request may have
    /// been executed.
    #[error("answer of {host} was changed on the way: {reason}; the request may have been executed")]
    Tampered {
        /// The host.
        host: String,
        /// What is wrong with it.
        reason: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The ticket source gave no ticket.
    #[error("no ticket: {reason}")]
    Ticket {
        /// What the source says.
        reason: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The time the app gave the request is over, or the answer paused for longer than it may.
    #[error("timed out {phase} after {} ms{}{}{}", after.as_millis(), outcome(*phase), because(list), in_brackets(timeline))]
    Timeout {
        /// What the request was at.
        phase: Phase,
        /// The time it had.
        after: Duration,
        /// Why there was no access list, where the request waited for one to name its ways.
        list: Option<Box<ListTrouble>>,
        /// What was tried.
        timeline: Box<Timeline>,
    },
    /// The request was not sent: the app has sent the same over and over, as a loop does. If it means to,
    /// [`RequestBuilder::allow_frequent`](crate::RequestBuilder::allow_frequent) lets this one pass, and
    /// [`Builder::frequency_guard`](crate::Builder::frequency_guard) all.
    #[error(
        "the same request was sent more than {times_max} times within {} ms; if that is meant, allow_frequent lets it pass",
        within.as_millis()
    )]
    TooFrequent {
        /// How often it may be sent.
        times_max: u32,
        /// Within which time.
        within: Duration,
    },
    /// A session subscribes to as many topics as it may.
    #[error("no more than {max} topics can be subscribed to")]
    TooManyTopics {
        /// The bound.
        max: usize,
    },
    /// As many requests wait for a link as may.
    #[error("{max} requests wait for a link already")]
    TooManyWaiting {
        /// The bound.
        max: usize,
    },
    /// Nothing was sent: whatever answers at the access points has no certificate that this client trusts. Either it is not the
    /// gateway, as behind a captive portal, or the client was built with other authorities.
    #[error("nothing that answers at the access points is trusted ({timeline})")]
    Untrusted {
        /// What was wrong with the last certificate.
        reason: String,
        /// What was tried.
        timeline: Box<Timeline>,
    },
}

/// What a request is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// It was handed to a carrier and waits for the head of its answer.
    Answer,
    /// It reads the body of its answer.
    Body,
    /// It waits for a link or a connection; nothing was sent.
    Connect,
    /// It reads the body of its answer, of which nothing has come for a while.
    Pause {
        /// Bytes of the body that had come.
        received_bytes: u64,
    },
}

impl Error {
    /// Returns whose fault it is.
    #[must_use]
    pub const fn side(&self) -> Side {
        match self {
            Self::Body(_)
            | Self::BodyTooLarge { .. }
            | Self::Closed
            | Self::HeadTooLarge { .. }
            | Self::Invalid(_)
            | Self::Json(_)
            | Self::PlainHttp { .. }
            | Self::RouteBusy { .. }
            | Self::Setup { .. }
            | Self::Ticket { .. }
            | Self::TooFrequent { .. }
            | Self::TooManyTopics { .. }
            | Self::TooManyWaiting { .. } => Side::Local,
            Self::BodyCut { side, .. } => *side,
            Self::AnswerTooLarge { .. }
            | Self::BodyCorrupt { .. }
            | Self::BodyInflated { .. }
            | Self::BrokeOff { .. }
            | Self::Redirect { .. } => Side::Service,
            Self::NoList { .. }
            | Self::NoWay { .. }
            | Self::NotExecuted { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Tampered { .. }
            | Self::Untrusted { .. } => Side::Network,
            Self::Refused { code, .. } => refusing_side(*code),
            Self::Reset { code, .. } => resetting_side(*code),
            Self::Timeout { phase, .. } => match phase {
                Phase::Answer => Side::Service,
                Phase::Body | Phase::Connect | Phase::Pause { .. } => Side::Network,
            },
        }
    }

    /// Returns whether to try again.
    #[must_use]
    pub const fn retry(&self) -> Retry {
        match self {
            Self::Body(_)
            | Self::BodyInflated { .. }
            | Self::BodyTooLarge { .. }
            | Self::Closed
            | Self::HeadTooLarge { .. }
            | Self::Invalid(_)
            | Self::Json(_)
            | Self::PlainHttp { .. }
            | Self::Redirect { .. }
            | Self::TooFrequent { .. }
            | Self::TooManyTopics { .. } => Retry::Never,
            Self::AnswerTooLarge { .. }
            | Self::BodyCorrupt { .. }
            | Self::BodyCut { .. }
            | Self::BrokeOff { .. }
            | Self::OutcomeUnknown { .. }
            | Self::Tampered { .. } => Retry::IdempotentOnly,
            Self::NoList { .. }
            | Self::NoWay { .. }
            | Self::NotExecuted { .. }
            | Self::RouteBusy { .. }
            | Self::Setup { .. }
            | Self::Ticket { .. }
            | Self::TooManyWaiting { .. }
            | Self::Untrusted { .. } => Retry::BeforeSend,
            Self::Refused { code, .. } => retry_refused(*code),
            Self::Reset { code, .. } => retry_reset(*code),
            Self::Timeout { phase, .. } => match phase {
                Phase::Answer | Phase::Body | Phase::Pause { .. } => Retry::IdempotentOnly,
                Phase::Connect => Retry::BeforeSend,
            },
        }
    }

    /// Returns what was tried before the error, where something was.
    #[must_use]
    pub const fn timeline(&self) -> Option<&Timeline> {
        match self {
            Self::AnswerTooLarge { timeline, .. }
            | Self::BrokeOff { timeline, .. }
            | Self::NoList { timeline, .. }
            | Self::NoWay { timeline, .. }
            | Self::NotExecuted { timeline, .. }
            | Self::OutcomeUnknown { timeline }
            | Self::Redirect { timeline, .. }
            | Self::Refused { timeline, .. }
            | Self::Reset { timeline, .. }
            | Self::Setup { timeline, .. }
            | Self::Tampered { timeline, .. }
            | Self::Ticket { timeline, .. }
            | Self::Timeout { timeline, .. }
            | Self::Untrusted { timeline, .. } => Some(timeline),
            Self::Body(_)
            | Self::BodyCorrupt { .. }
            | Self::BodyCut { .. }
            | Self::BodyInflated { .. }
            | Self::BodyTooLarge { .. }
            | Self::Closed
            | Self::HeadTooLarge { .. }
            | Self::Invalid(_)
            | Self::Json(_)
            | Self::PlainHttp { .. }
            | Self::RouteBusy { .. }
            | Self::TooFrequent { .. }
            | Self::TooManyTopics { .. }
            | Self::TooManyWaiting { .. } => None,
        }
    }

    pub(crate) fn cut(way: Way, closed: &ropeway_core::session::Closed) -> Self {
        use ropeway_core::session::Closed;
        match closed {
            Closed::NeverSeen | Closed::Unknown => {
                Self::BodyCut { side: Side::Network, reason: format!("the {way} was lost, and what followed with it") }
            }
            Closed::Reset { code, detail } => {
                Self::BodyCut { side: resetting_side(*code), reason: format!("{}: {detail}", reset_name(*code)) }
            }
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer => f.pad("waiting for the answer"),
            Self::Body => f.pad("reading the answer"),
            Self::Connect => f.pad("connecting"),
            Self::Pause { received_bytes } => {
                write!(f, "waiting for more of the answer than the first {received_bytes} bytes")
            }
        }
    }
}

/// Says what that means for the request, where it is not plain.
const fn outcome(phase: Phase) -> &'static str {
    match phase {
        Phase::Answer => "; the request may have been executed",
        Phase::Body | Phase::Connect | Phase::Pause { .. } => "",
    }
}

/// Tells why there was no list, where that is what was waited for.
fn because(list: &Option<Box<ListTrouble>>) -> String {
    list.as_deref().map(|trouble| format!("; {trouble}")).unwrap_or_default()
}

/// Tells what was tried, where it is told with the error.
fn in_brackets(timeline: &Timeline) -> String {
    if timeline.steps().is_empty() { String::new() } else { format!(" ({timeline})") }
}

const fn refusing_side(code: RefuseCode) -> Side {
    match code {
        RefuseCode::Draining
        | RefuseCode::HelloTimeout
        | RefuseCode::Internal
        | RefuseCode::Overloaded
        | RefuseCode::Protocol
        | RefuseCode::Replayed
        | RefuseCode::ResumeRefused => Side::Peer,
        RefuseCode::BadSignature
        | RefuseCode::ClockSkew
        | RefuseCode::TicketExpired
        | RefuseCode::TicketForeignApp
        | RefuseCode::TicketInvalid
        | RefuseCode::TicketUnbound
        | RefuseCode::WrongGateway => Side::Local,
    }
}

const fn retry_refused(code: RefuseCode) -> Retry {
    match code {
        RefuseCode::ClockSkew
        | RefuseCode::Draining
        | RefuseCode::HelloTimeout
        | RefuseCode::Internal
        | RefuseCode::Overloaded
        | RefuseCode::Replayed
        | RefuseCode::ResumeRefused
        | RefuseCode::TicketExpired => Retry::BeforeSend,
        RefuseCode::BadSignature
        | RefuseCode::Protocol
        | RefuseCode::TicketForeignApp
        | RefuseCode::TicketInvalid
        | RefuseCode::TicketUnbound
        | RefuseCode::WrongGateway => Retry::Never,
    }
}

const fn resetting_side(code: ResetCode) -> Side {
    match code {
        ResetCode::UpstreamCut => Side::Service,
        ResetCode::BodyTooLarge | ResetCode::Malformed | ResetCode::Unsupported => Side::Local,
        ResetCode::Cancelled
        | ResetCode::CreditExceeded
        | ResetCode::Internal
        | ResetCode::Refused
        | ResetCode::Unreplayable => Side::Peer,
    }
}

const fn retry_reset(code: ResetCode) -> Retry {
    match code {
        ResetCode::BodyTooLarge | ResetCode::Malformed | ResetCode::Unsupported => Retry::Never,
        ResetCode::Refused => Retry::BeforeSend,
        ResetCode::Cancelled
        | ResetCode::CreditExceeded
        | ResetCode::Internal
        | ResetCode::Unreplayable
        | ResetCode::UpstreamCut => Retry::IdempotentOnly,
    }
}

const fn reset_name(code: ResetCode) -> &'static str {
    match code {
        ResetCode::BodyTooLarge => "body too large",
        ResetCode::Cancelled => "cancelled",
        ResetCode::CreditExceeded => "credit exceeded",
        ResetCode::Internal => "internal error",
        ResetCode::Malformed => "malformed",
        ResetCode::Refused => "not executed",
        ResetCode::Unreplayable => "part of the body is no longer kept",
        ResetCode::Unsupported => "unsupported",
        ResetCode::UpstreamCut => "the service broke off",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_may_have_run_is_repeated_by_its_owner_alone() {
        let unknown = Error::OutcomeUnknown { timeline: Box::default() };
        assert_eq!((unknown.side(), unknown.retry()), (Side::Network, Retry::IdempotentOnly));
        let no_way = Error::NoWay { host: "api.test".into(), reason: String::new(), timeline: Box::default() };
        assert_eq!(no_way.retry(), Retry::BeforeSend);
        assert!(no_way.timeline().is_some());
    }

    #[test]
    fn a_wrong_ticket_is_the_apps_own_fault_and_stays_wrong() {
        let refused = Error::Refused { code: RefuseCode::TicketInvalid, detail: "no".into(), timeline: Box::default() };
        assert_eq!((refused.side(), refused.retry()), (Side::Local, Retry::Never));
    }

    #[test]
    fn an_error_is_small_and_can_cross_threads() {
        fn assert_portable<E: Send + Sync + 'static>() {}
        assert_portable::<Error>();
        assert!(size_of::<Error>() <= 64, "{} bytes", size_of::<Error>());
    }
}
