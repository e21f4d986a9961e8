//! Bodies that are held whole, because they are decrypted, encrypted or signed in one piece.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::{BodyExt, Full};
use ropeway_net::pipe::Content;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::proxy::{ProxyBody, ProxyError};

/// Places for requests that are held whole, and so for what they can make the gateway hold.
#[derive(Debug)]
pub(crate) struct Places {
    /// Bodies of more than a few bytes take one while they come.
    reading: Semaphore,
    /// Requests take one while they are served. Apart from the others, so that slow bodies keep no small request out.
    serving: Semaphore,
}

/// Why a body is not held.
#[derive(Debug)]
pub(crate) enum Collect {
    /// As many are held as may be.
    Busy,
    /// It failed.
    Failed(ProxyError),
    /// It is too large.
    TooLarge,
}

impl Places {
    /// Makes as many places as requests may be held at once.
    pub(crate) const fn new(count: usize) -> Self {
        Self { reading: Semaphore::const_new(count), serving: Semaphore::const_new(count) }
    }

    /// Holds the body of a request.
    pub(crate) async fn collect(&self, mut body: ProxyBody, bytes_max: usize) -> Result<Content, Collect> {
        hold(&mut body, bytes_max, Some(&self.reading)).await
    }

    /// Takes a place for serving a request.
    pub(crate) fn serve(&self) -> Option<SemaphorePermit<'_>> {
        self.serving.try_acquire().ok()
    }
}

/// Holds the body of an answer whole, up to a size.
pub(crate) async fn collect(mut body: ProxyBody, bytes_max: usize) -> Result<Content, Collect> {
    hold(&mut body, bytes_max, None).await
}

async fn hold(body: &mut ProxyBody, bytes_max: usize, places: Option<&Semaphore>) -> Result<Content, Collect> {
    let mut data = BytesMut::new();
    let mut trailers: Option<HeaderMap> = None;
    let mut place = None;
    while let Some(frame) = body.frame().await {
        let piece = match frame.map_err(Collect::Failed)?.into_data() {
            Ok(piece) => piece,
            Err(frame) => {
                trailers = frame.into_trailers().ok();
                continue;
            }
        };
        let length = data.len().saturating_add(piece.len());
        if length > bytes_max {
            return Err(Collect::TooLarge);
        }
        if let (Some(places), None, true) = (places, &place, length > SMALL_BYTES) {
            place = Some(places.try_acquire().map_err(|_| Collect::Busy)?);
        }
        data.extend_from_slice(&piece);
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

/// Bytes of a body that takes no place: what hyper buffers of a connection anyway.
const SMALL_BYTES: usize = 64 << 10;

/// Time for the whole of a request that is held. 30 s; as for the head of a request, and enough for 1 MiB at 300 kbit/s.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time for the whole of an answer that is held. Two minutes: four times the default of a route's first byte.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn large_bodies_take_places_and_small_ones_do_not() {
        let body = |length| full(vec![0; length].into());
        let none = Places::new(0);
        assert!(none.collect(body(SMALL_BYTES), SMALL_BYTES).await.is_ok());
        assert!(matches!(none.collect(body(SMALL_BYTES + 1), 1 << 20).await, Err(Collect::Busy)));
        assert!(matches!(none.collect(body(2), 1).await, Err(Collect::TooLarge)));
        let one = Places::new(1);
        let serving = one.serve();
        assert!(serving.is_some() && one.serve().is_none());
        assert!(
            one.collect(body(SMALL_BYTES + 1), 1 << 20).await.is_ok(),
            "who is served keeps nobody from being read"
        );
    }
}
