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
    is_wrong: bool,
}

impl Measured {
    /// Holds a body to the `content-length` of its head, if there is one; `wrong` is the error of any other length.
    pub(super) fn new(inner: ProxyBody, head: &HeaderMap, wrong: ProxyError) -> Self {
        let declared = head.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        Self { inner, left: declared, wrong, is_wrong: false }
    }

    /// Says whether it was the length that ended the body.
    pub(super) const fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    fn check(&mut self, frame: Option<&Frame<Bytes>>) -> Result<(), ProxyError> {
        let Some(left) = &mut self.left else { return Ok(()) };
        let fits = match frame.map(Frame::data_ref) {
            Some(Some(data)) => left.checked_sub(data.len() as u64).map(|rest| *left = rest).is_some(),
            Some(None) | None => *left == 0,
        };
        self.is_wrong |= !fits;
        if fits { Ok(()) } else { Err(self.wrong) }
    }
}

impl Body for Measured {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx)).transpose()?;
        self.check(frame.as_ref())?;
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && self.left.is_none_or(|left| left == 0)
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
    use http_body_util::{BodyExt, Full};

    use super::*;

    async fn collect(declared: Option<&'static str>, body: &'static [u8]) -> Result<usize, ProxyError> {
        let mut head = HeaderMap::new();
        if let Some(declared) = declared {
            head.insert(header::CONTENT_LENGTH, HeaderValue::from_static(declared));
        }
        let body = Full::new(Bytes::from_static(body)).map_err(|never| match never {}).boxed_unsync();
        let measured = Measured::new(body, &head, ProxyError::UpstreamBodyCut);
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
}
