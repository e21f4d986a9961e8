//! Content codings of answers: what is asked for, and how it is unpacked.
//!
//! A layer over [`Body`] that does not care which way an answer came. It decodes as the body is read, with windows of bounded size, and
//! stops a body that would unpack to far more than was sent.

mod body;
#[cfg(feature = "brotli")]
mod brotli;
mod coding;
#[cfg(feature = "gzip")]
mod inflate;
#[cfg(feature = "zstd")]
mod zstd;

use http::{HeaderMap, Method, Response, StatusCode, header};

pub(crate) use self::body::Decoded;
use crate::Body;

/// Bounds of unpacking an answer's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeConfig {
    /// Bytes a body may unpack to. By default 4 GiB, our choice: a bound for what is written to storage as it comes.
    pub bytes_max: u64,
    /// How many times the bytes sent a body may unpack to, once it is past 1 MiB. By default 100, our choice: JSON and HTML reach 5 to
    /// 20, and bombs what their coding allows, which is 1,032 for gzip and far more for zstd and brotli.
    pub ratio_max: u32,
}

impl Default for DecodeConfig {
    fn default() -> Self {
        Self { bytes_max: UNPACKED_BYTES_MAX, ratio_max: RATIO_MAX }
    }
}

/// Asks for codings, and says whether the answer is to be decoded.
///
/// Not where the app asks for codings itself, since it then decodes them itself, and not for a part of a resource: a part of something
/// coded cannot be decoded.
pub(crate) fn ask(headers: &mut HeaderMap) -> bool {
    if headers.contains_key(header::ACCEPT_ENCODING) || headers.contains_key(header::RANGE) {
        return false;
    }
    match coding::accepted() {
        Some(accepted) => {
            headers.insert(header::ACCEPT_ENCODING, accepted);
            true
        }
        None => false,
    }
}

/// Lets the body of an answer be decoded as it is read. What is in a coding that was not asked for stays as it is.
pub(crate) fn answer(method: &Method, response: Response<Body>, config: DecodeConfig) -> Response<Body> {
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED, StatusCode::PARTIAL_CONTENT];
    if method == Method::HEAD || bodiless.contains(&response.status()) {
        return response;
    }
    let Some(codings) = coding::applied(response.headers()) else { return response };
    let (mut parts, body) = response.into_parts();
    parts.headers.remove(header::CONTENT_ENCODING);
    parts.headers.remove(header::CONTENT_LENGTH);
    // A service that has nothing to say may name a coding all the same.
    let empty = http_body::Body::is_end_stream(&body);
    let body = if empty { body } else { body::decoded(body, &codings, config) };
    Response::from_parts(parts, body)
}

/// 4 GiB; see [`DecodeConfig::bytes_max`].
const UNPACKED_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

/// 100 times; see [`DecodeConfig::ratio_max`].
const RATIO_MAX: u32 = 100;

#[cfg(test)]
#[cfg(all(feature = "brotli", feature = "gzip", feature = "zstd"))]
mod tests;
