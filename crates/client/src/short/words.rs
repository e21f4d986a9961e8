//! What became of an exchange over HTTP/3, in words of ours: those of the library are about its own insides.

use h3::error::{ConnectionError, StreamError};
use ropeway_net::{h3::H3BodyError, innermost};

/// Says how an exchange ended.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not ours and open")]
pub(super) fn of_stream(error: &StreamError) -> String {
    match error {
        StreamError::RemoteTerminate { code, .. } => format!("the other end gave it up ({code})"),
        StreamError::ConnectionError { 0: ConnectionError::Timeout { .. }, .. } => {
            "the connection was lost: nothing came on it any more".to_owned()
        }
        StreamError::ConnectionError { 0: error, .. } => format!("the connection was lost: {}", innermost(error)),
        other => innermost(other),
    }
}

/// Says why the body of an answer is not whole.
#[expect(clippy::wildcard_enum_match_arm, reason = "its other kinds say themselves what they are")]
pub(super) fn of_body(error: &H3BodyError) -> String {
    match error {
        H3BodyError::Stream(error) => of_stream(error),
        other => other.to_string(),
    }
}
