//! The body of a keyed request: held until it is whole where it is small, digested on its way where it is not.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::time::timeout;

use super::super::{ProxyBody, ProxyError};
use super::key::Asked;

/// What may come of a body, and how long it may be silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct UploadLimits {
    pub(super) held_bytes_max: usize,
    pub(super) bytes_max: u64,
    pub(super) idle: Duration,
}

/// The body of a request as far as it was read ahead.
pub(super) enum Held {
    /// It is longer than is held: this much, and the rest to come.
    Begun(Bytes, ProxyBody),
    /// All of it.
    Whole(Whole),
}

/// A whole body, to be sent as often as it takes.
#[derive(Clone, Debug, Default)]
pub(super) struct Whole {
    data: Bytes,
    trailers: Option<HeaderMap>,
}

impl Whole {
    pub(super) fn is_empty(&self) -> bool {
        self.data.is_empty() && self.trailers.is_none()
    }

    pub(super) fn body(&self) -> ProxyBody {
        let body = Full::new(self.data.clone()).map_err(|never| match never {});
        match self.trailers.clone() {
            Some(trailers) => body.with_trailers(std::future::ready(Some(Ok(trailers)))).boxed_unsync(),
            None => body.boxed_unsync(),
        }
    }
}

/// Reads a body up to what is held; nothing of it has been sent on meanwhile, so a failure means that nothing has run.
pub(super) async fn hold(mut body: ProxyBody, asked: &mut Asked, limits: UploadLimits) -> Result<Held, ProxyError> {
    let mut data = BytesMut::new();
    let mut trailers = None;
    while let Some(frame) = next(&mut body, limits.idle).await? {
        match frame.into_data() {
            Ok(piece) => {
                asked.body(&piece);
                data.extend_from_slice(&piece);
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
        if data.len() as u64 > limits.bytes_max {
            return Err(ProxyError::BodyTooLarge);
        }
        if data.len() > limits.held_bytes_max {
            return Ok(Held::Begun(data.freeze(), body));
        }
    }
    Ok(Held::Whole(Whole { data: data.freeze(), trailers }))
}

/// Reads the rest of a body for its digest alone.
pub(super) async fn skim(
    mut body: ProxyBody,
    read: usize,
    asked: &mut Asked,
    limits: UploadLimits,
) -> Result<(), ProxyError> {
    let mut read = read as u64;
    while let Some(frame) = next(&mut body, limits.idle).await? {
        if let Ok(piece) = frame.into_data() {
            read += piece.len() as u64;
            asked.body(&piece);
        }
        if read > limits.bytes_max {
            return Err(ProxyError::BodyTooLarge);
        }
    }
    Ok(())
}

async fn next(body: &mut ProxyBody, idle: Duration) -> Result<Option<Frame<Bytes>>, ProxyError> {
    match timeout(idle, body.frame()).await {
        Ok(frame) => frame.transpose(),
        Err(_) => Err(ProxyError::RequestBodyIdle),
    }
}

/// A body that is sent on while it comes: what was read ahead, then the rest, digested. Tells the digest at its end.
pub(super) struct Digested<F> {
    ahead: Option<Bytes>,
    rest: ProxyBody,
    told: Option<(Asked, F)>,
}

impl<F: FnOnce(Asked)> Digested<F> {
    pub(super) fn new(ahead: Bytes, rest: ProxyBody, asked: Asked, tell: F) -> Self {
        Self { ahead: Some(ahead), rest, told: Some((asked, tell)) }
    }
}

impl<F: FnOnce(Asked) + Unpin> Body for Digested<F> {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let this = self.get_mut();
        if let Some(ahead) = this.ahead.take() {
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        let frame = ready!(Pin::new(&mut this.rest).poll_frame(cx));
        if let (Some(Ok(frame)), Some((asked, _))) = (&frame, &mut this.told)
            && let Some(data) = frame.data_ref()
        {
            asked.body(data);
        }
        // Whoever knows the length does not poll for the end.
        let is_end = frame.is_none() || (matches!(frame, Some(Ok(_))) && this.rest.is_end_stream());
        if is_end && let Some((asked, tell)) = this.told.take() {
            tell(asked);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && self.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.as_ref().map_or(0, |ahead| ahead.len() as u64);
        let rest = self.rest.size_hint();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + ahead);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + ahead);
        }
        hint
    }
}
