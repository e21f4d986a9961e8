//! How large the head of a request may be, whichever way it goes.

use http::{HeaderMap, Method, Uri};

use crate::wire::fields::{FIELDS_BYTES_MAX, field_bytes};

/// The size of a request's head, in the measure of HTTP/2 and of links (RFC 7541 section 4.1): each header and each part of the URL counts
/// its bytes and 32 more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSize {
    /// Bytes of method, URL and headers.
    pub bytes: usize,
    /// Headers; one that is given twice counts twice.
    pub headers: usize,
}

impl HeadSize {
    /// Measures a head.
    #[must_use]
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let pseudo = [
            (":method", method.as_str()),
            (":scheme", uri.scheme_str().unwrap_or("https")),
            (":authority", authority),
            (":path", path),
        ];
        let pseudo = pseudo.iter().map(|(name, value)| field_bytes(name.len(), value.len()));
        let fields = headers.iter().map(|(name, value)| field_bytes(name.as_str().len(), value.len()));
        Self { bytes: pseudo.chain(fields).sum(), headers: headers.len() }
    }

    /// Says whether every way takes it.
    #[must_use]
    pub const fn fits(self) -> bool {
        self.bytes <= HEAD_BYTES_MAX && self.headers <= HEADERS_MAX
    }
}

/// Bytes of a request's head. 62 KiB: the 64 KiB that a link and a gateway's front door take, less what is added on the way (length, key
/// scope, codings, signatures). Services take less, as a rule 8 to 32 KiB, and say so by 431.
pub const HEAD_BYTES_MAX: usize = FIELDS_BYTES_MAX - 2 * 1024;

/// Headers of a request. 120: the 128 of a sealed message and of a gateway's front door, less what is added on the way; a link takes 256.
pub const HEADERS_MAX: usize = 120;

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use http::HeaderValue;

    use super::*;
    use crate::wire::fields::{Encoder, Mode};

    #[test]
    fn what_fits_is_taken_by_a_link_and_counted_as_there() {
        let uri: Uri = "https://api.test/a?b".parse().unwrap();
        let empty = HeadSize::of(&Method::GET, &uri, &HeaderMap::new());
        assert_eq!(empty, HeadSize { bytes: 4 * 32 + 7 + 3 + 7 + 5 + 10 + 8 + 5 + 4, headers: 0 });
        for (room, fits, is_taken) in
            [(HEAD_BYTES_MAX, true, true), (FIELDS_BYTES_MAX, false, true), (FIELDS_BYTES_MAX + 1, false, false)]
        {
            let value = "v".repeat(room - empty.bytes - 32 - 1);
            let headers = HeaderMap::from_iter([("x".parse().unwrap(), HeaderValue::from_str(&value).unwrap())]);
            let size = HeadSize::of(&Method::GET, &uri, &headers);
            assert_eq!((size.bytes, size.fits()), (room, fits));
            let encoded =
                Encoder::new(Mode::Ordered).encode_request(0, &Method::GET, &uri, &headers, &mut BytesMut::new());
            assert_eq!(encoded.is_ok(), is_taken, "{room}");
        }
        assert!(!HeadSize { bytes: 1, headers: HEADERS_MAX + 1 }.fits());
    }
}
