//! Bodies that are held whole, because they are decrypted, encrypted or signed in one piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::{BodyExt, Full};
use ropeway_net::pipe::Content;

use crate::proxy::{ProxyBody, ProxyError};

/// Why a body is not held.
#[derive(Debug)]
pub(crate) enum Collect {
    /// It failed.
    Failed(ProxyError),
    /// It is too large.
    TooLarge,
}

/// Holds a body whole, up to a size.
pub(crate) async fn collect(body: &mut ProxyBody, bytes_max: usize) -> Result<Content, Collect> {
    let mut data = BytesMut::new();
    let mut trailers: Option<HeaderMap> = None;
    while let Some(frame) = body.frame().await {
        match frame.map_err(Collect::Failed)?.into_data() {
            Ok(piece) if data.len().saturating_add(piece.len()) > bytes_max => return Err(Collect::TooLarge),
            Ok(piece) => data.extend_from_slice(&piece),
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    Ok(Content { data: data.freeze(), trailers })
}

/// Makes an answer of bytes, which nobody is to keep.
pub(crate) fn whole(media_type: &'static str, body: Bytes) -> Response<ProxyBody> {
    let mut response = Response::new(full(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Makes a body of bytes.
pub(crate) fn full(body: Bytes) -> ProxyBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// Time for the whole of a request that is held. 30 s; as for the head of a request, and enough for 1 MiB at 300 kbit/s.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for the whole of an answer that is held. Two minutes: four times the default of a route's first byte.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
