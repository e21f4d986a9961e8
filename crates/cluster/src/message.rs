//! A message on its way to devices: whom it is for, what it holds, how far it got.

use std::{fmt, str::FromStr, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::id::{CollapseKey, ContentType, DeviceId, IdError, MessageId, Topic, UserId};

/// One message to push.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// Its name: sending the same id again is the same message.
    pub id: MessageId,
    /// Whom it is for.
    pub target: Target,
    /// What the app gets.
    pub payload: Bytes,
    /// The payload's media type, if the sender said.
    pub content_type: Option<ContentType>,
    /// What makes an older message superfluous that is not delivered yet, if anything does.
    pub collapse_key: Option<CollapseKey>,
    /// How long it is worth delivering, from when the bus takes it; at most [`TTL_MAX`], which is the default.
    pub ttl: Duration,
}

impl Message {
    /// Makes a message without content type and collapse key that lives as long as a message can.
    #[must_use]
    pub const fn new(id: MessageId, target: Target, payload: Bytes) -> Self {
        Self { id, target, payload, content_type: None, collapse_key: None, ttl: TTL_MAX }
    }
}

/// Whom a message is for. Written `all`, `user:NAME`, `device:ID` or `topic:NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(into = "String", try_from = "String")]
pub enum Target {
    /// Everyone who is online.
    All,
    /// One device.
    Device(DeviceId),
    /// Every device subscribed to a topic.
    Topic(Topic),
    /// Every device of a user.
    User(UserId),
}

/// Why a text names no target.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetError {
    /// The kind is known, the name after it is not one.
    #[error(transparent)]
    Id(#[from] IdError),
    /// It is none of the four kinds.
    #[error("a target is written all, user:NAME, device:ID or topic:NAME")]
    Kind,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::Device(device) => write!(f, "device:{device}"),
            Self::Topic(topic) => write!(f, "topic:{topic}"),
            Self::User(user) => write!(f, "user:{user}"),
        }
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        if text == "all" {
            return Ok(Self::All);
        }
        match text.split_once(':') {
            Some(("device", id)) => Ok(Self::Device(id.parse()?)),
            Some(("topic", name)) => Ok(Self::Topic(name.parse()?)),
            Some(("user", name)) => Ok(Self::User(name.parse()?)),
            Some(_) | None => Err(TargetError::Kind),
        }
    }
}

impl From<Target> for String {
    fn from(target: Target) -> Self {
        target.to_string()
    }
}

impl TryFrom<String> for Target {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        text.parse()
    }
}

/// How far a message got; of a target with several devices, the furthest that any of them got.
///
/// The order is that of progress: a status is only ever replaced by a later one. A message that expires can still be
/// acknowledged, when the device had it already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// The bus has taken it.
    Queued,
    /// A gateway wrote it to a link.
    Written,
    /// Its time passed before a device acknowledged it.
    Expired,
    /// A device showed it to its app.
    Acked,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Acked => "acked",
            Self::Expired => "expired",
            Self::Queued => "queued",
            Self::Written => "written",
        })
    }
}

/// The longest a message is worth delivering; a longer wish is cut to this, as RFC 8030 section 5.2 lets a push service
/// do. 28 days, the four weeks that mobile push services keep a message at most.
pub const TTL_MAX: Duration = Duration::from_hours(28 * 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_reads_back_as_it_is_written() {
        for text in ["all", "user:ada", "device:0b7e", "topic:news", "topic:a:b", "user:all"] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_text_that_names_no_target_is_refused() {
        for text in ["", "ALL", "ada", "group:ada", "all:ada", ":"] {
            assert_eq!(text.parse::<Target>(), Err(TargetError::Kind), "{text}");
        }
        for text in ["user:", "device:a b", "topic:\n"] {
            assert!(matches!(text.parse::<Target>(), Err(TargetError::Id(_))), "{text:?}");
        }
    }

    #[test]
    fn json_has_targets_and_statuses_as_words() {
        let target: Target = serde_json::from_str("\"topic:news\"").expect("a target");
        assert_eq!(serde_json::to_string(&target).expect("a target is a string"), "\"topic:news\"");
        assert_eq!(serde_json::to_string(&Status::Acked).expect("a status is a string"), "\"acked\"");
    }

    #[test]
    fn statuses_are_ordered_by_progress() {
        assert!(
            Status::Queued < Status::Written && Status::Written < Status::Expired && Status::Expired < Status::Acked
        );
    }
}
