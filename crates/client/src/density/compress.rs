//! Packing the bodies of requests.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use tokio::task::spawn_blocking;

use super::{Wishes, place};
use crate::{Body, client::Handle};

/// Packs the body of a request where the app wishes it, its service takes it, and it gets smaller.
pub(super) async fn pack(handle: &Handle, request: &mut Request<Body>, wishes: &Wishes) {
    let density = &handle.shared().density;
    let (host, port) = place(request.uri());
    let routes = &handle.shared().config.density.takes_zstd;
    let is_taken = routes.iter().any(|route| route.matches(host, port, request.uri().path()));
    let Some(body) =
        request.body().bytes().filter(|body| wishes.compress && is_taken && body.len() >= PACKED_FROM_BYTES)
    else {
        return;
    };
    if [header::CONTENT_ENCODING, header::CONTENT_RANGE].iter().any(|name| request.headers().contains_key(name)) {
        return;
    }
    let level = if density.weak.load(Ordering::Relaxed) { LEVEL_WEAK } else { LEVEL };
    let body = body.clone();
    let packed = if body.len() <= AT_ONCE_BYTES_MAX {
        packed(&body, level)
    } else {
        spawn_blocking(move || packed(&body, level)).await.unwrap_or_default()
    };
    if let Some(packed) = packed {
        *request.body_mut() = packed.into();
        request.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        request.headers_mut().remove(header::CONTENT_LENGTH);
    }
}

/// Returns the bytes packed, if they are fewer then.
fn packed(body: &Bytes, level: i32) -> Option<Bytes> {
    let mut packed = Vec::with_capacity(zstd_safe::compress_bound(body.len()));
    zstd_safe::compress(&mut packed, body, level).ok()?;
    (packed.len() < body.len()).then(|| packed.into())
}

/// Bytes from which a body is packed: 1 KiB, our choice; less fits the packets it needs anyway.
const PACKED_FROM_BYTES: usize = 1024;

/// Bytes that are packed where the request is made: 64 KiB, well below a millisecond on a phone at 100 MB/s; our choice.
const AT_ONCE_BYTES_MAX: usize = 64 * 1024;

/// How hard zstd tries: 3, its own default.
const LEVEL: i32 = 3;

/// The same on a weak network: 9, our choice; some percent smaller for a few times the work.
const LEVEL_WEAK: i32 = 9;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_do_not_get_smaller_stay_as_they_are() {
        let text = Bytes::from("the same again and again, ".repeat(100));
        let small = packed(&text, LEVEL).unwrap();
        assert!(small.len() < text.len() / 10);
        let mut back = Vec::with_capacity(text.len());
        zstd_safe::decompress(&mut back, &small).unwrap();
        assert_eq!(back, text);
        let mut state = 1_u64;
        let noise: Bytes = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .take(2_000)
        .collect();
        assert_eq!(packed(&noise, LEVEL), None);
    }
}
