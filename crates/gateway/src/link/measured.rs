//! Bodies that must be as long as their head says.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body::{Body, Frame, SizeHint};

use crate::proxy::{ProxyBody, ProxyError};

/// A body that ends in an error where its length is not the one declared: HTTP libraries see to that on their own connections, and
/// frames of a link have no length but their own (RFC 9113 section 8.1.1 asks the same of HTTP/2).
pub(super) struct Measured {
    inner: ProxyBody,
    left: Option<u64>,
    wrong: ProxyError,
    /// Of a body that is too long, pass on as much as was declared: its receiver hears of the cut. A service would take that for the whole.
    passes_part: bool,
    is_wrong: bool,
}

impl Measured {
    /// Holds the body of an answer to the `content-length` of its head, if there is one.
    pub(super) fn answer(inner: ProxyBody, head: &HeaderMap) -> Self {
        Self { passes_part: true, ..Self::new(inner, head, ProxyError::UpstreamBodyCut) }
    }

    /// Does the same for the body of a request.
    pub(super) fn request(inner: ProxyBody, head: &HeaderMap) -> Self {
        Self::new(inner, head, ProxyError::RequestBodyCut)
    }

    fn new(inner: ProxyBody, head: &HeaderMap, wrong: ProxyError) -> Self {
        let declared = head.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        Self { inner, left: declared, wrong, passes_part: false, is_wrong: false }
    }

    /// Says whether it was the length that ended the body.
    pub(super) const fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// Passes a frame on, as far as it belongs to the body.
    fn check(&mut self, frame: Option<Frame<Bytes>>) -> Result<Option<Frame<Bytes>>, ProxyError> {
        let Some(left) = &mut self.left else { return Ok(frame) };
        let data = match frame.map(Frame::into_data) {
            Some(Ok(data)) => data,
            Some(Err(frame)) if *left == 0 => return Ok(Some(frame)),
            None if *left == 0 => return Ok(None),
            Some(Err(_)) | None => return Err(self.fail()),
        };
        match left.checked_sub(data.len() as u64) {
            Some(rest) => {
                *left = rest;
                Ok(Some(Frame::data(data)))
            }
            // What belongs to it comes before the error.
            None if *left > 0 && self.passes_part => {
                let fitting = data.slice(..std::mem::take(left) as usize);
                self.is_wrong = true;
                Ok(Some(Frame::data(fitting)))
            }
            None => Err(self.fail()),
        }
    }

    const fn fail(&mut self) -> ProxyError {
        self.is_wrong = true;
        self.wrong
    }
}

impl Body for Measured {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        if self.is_wrong {
            return Poll::Ready(Some(Err(self.wrong)));
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()?;
        Poll::Ready(self.check(frame)?.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && self.left.is_none_or(|left| left == 0) && !self.is_wrong
    }

    fn size_hint(&self) -> SizeHint {
        match self.left {
            Some(left) if !self.inner.is_end_stream() => SizeHint::with_exact(left),
            Some(_) | None => self.inner.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use http_body_util::{BodyExt, Full, StreamBody};

    use super::*;

    async fn collect(declared: Option<&'static str>, body: &'static [u8]) -> Result<usize, ProxyError> {
        let mut head = HeaderMap::new();
        if let Some(declared) = declared {
            head.insert(header::CONTENT_LENGTH, HeaderValue::from_static(declared));
        }
        let body = Full::new(Bytes::from_static(body)).map_err(|never| match never {}).boxed_unsync();
        let measured = Measured::answer(body, &head);
        Ok(measured.collect().await?.to_bytes().len())
    }

    #[tokio::test]
    async fn a_body_of_another_length_than_declared_is_never_complete() {
        assert_eq!(collect(None, b"12345").await, Ok(5));
        assert_eq!(collect(Some("5"), b"12345").await, Ok(5));
        assert_eq!(collect(Some("0"), b"").await, Ok(0));
        for wrong in ["4", "6", "0"] {
            assert_eq!(collect(Some(wrong), b"12345").await, Err(ProxyError::UpstreamBodyCut), "{wrong}");
        }
        assert_eq!(collect(Some("1"), b"").await, Err(ProxyError::UpstreamBodyCut));
    }

    #[tokio::test]
    async fn of_a_body_that_is_too_long_what_belongs_to_it_comes_before_the_error() {
        for (declared, told) in [("4", &b"1234"[..]), ("8", b"12345678")] {
            let mut head = HeaderMap::new();
            head.insert(header::CONTENT_LENGTH, HeaderValue::from_static(declared));
            let pieces = [Bytes::from_static(b"12345"), Bytes::from_static(b"67890")];
            let frames = pieces.map(|piece| Ok::<_, ProxyError>(Frame::data(piece)));
            let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
            let mut measured = Measured::answer(body, &head);
            let mut read = Vec::new();
            let error = loop {
                assert!(!measured.is_end_stream());
                match measured.frame().await.unwrap() {
                    Ok(frame) => read.extend_from_slice(&frame.into_data().unwrap()),
                    Err(error) => break error,
                }
            };
            assert_eq!((&read[..], error, measured.is_wrong()), (told, ProxyError::UpstreamBodyCut, true));
        }
    }
}
