//! Bodies that come over HTTP/3, held to the length they were given.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use h3::{client, error::StreamError, server};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

use super::stream::H3Recv;

/// The body of a request or an answer as it comes.
///
/// It ends well only if it is as long as it was said to be: `h3` does not compare the two.
pub struct H3Body<S> {
    source: S,
    /// What came before the body was asked for.
    first: Option<Bytes>,
    /// Bytes still to come, where it was told how many there are.
    left: Option<u64>,
    /// Of a body that is too long, show as much as was declared.
    shows_part: bool,
    /// More came than there should be.
    is_long: bool,
    place: Place,
}

/// Why a body is not whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum H3BodyError {
    /// It is longer than it was said to be.
    #[error("body is longer than its content-length")]
    Long,
    /// It is shorter than it was said to be.
    #[error("body is {missing} bytes shorter than its content-length")]
    Short {
        /// Bytes that did not come.
        missing: u64,
    },
    /// Its stream or connection failed.
    #[error("body was cut: {0}")]
    Stream(#[source] StreamError),
}

/// The receiving half of an exchange.
pub trait H3Source {
    /// Takes the next bytes, or `None` where trailers may follow.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>>;

    /// Takes the trailers, after the bytes.
    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, StreamError>>;
}

/// How far a body has been read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Data,
    Trailers,
    Ended,
}

impl<S: H3Source> H3Body<S> {
    /// Reads a body from its stream; `declared` is its length, where the head told it.
    pub fn new(source: S, declared: Option<u64>) -> Self {
        let place = if declared == Some(0) { Place::Ended } else { Place::Data };
        Self { source, first: None, left: declared, shows_part: false, is_long: false, place }
    }

    /// Shows of a body that is longer than it was said to be as much as was said, before the error. Whoever passes it on to where the
    /// error cannot follow must not: it would be taken for the whole.
    #[must_use]
    pub fn showing_part(mut self) -> Self {
        self.shows_part = true;
        self
    }

    /// Waits until it is known whether there is a body at all. Trailers without one are nobody's.
    ///
    /// # Errors
    ///
    /// As reading the body.
    pub async fn begin(&mut self) -> Result<(), H3BodyError> {
        self.first = std::future::poll_fn(|cx| self.poll_data(cx)).await?;
        if self.first.is_none() {
            self.place = Place::Ended;
        }
        Ok(())
    }

    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, H3BodyError>> {
        if self.place != Place::Data {
            return Poll::Ready(Ok(None));
        }
        if self.is_long {
            return Poll::Ready(Err(self.fail(H3BodyError::Long)));
        }
        let data = match ready!(self.source.poll_data(cx)) {
            Ok(data) => data,
            Err(error) => return Poll::Ready(Err(self.fail(H3BodyError::Stream(error)))),
        };
        match (data, self.left) {
            (None, Some(missing @ 1..)) => Poll::Ready(Err(self.fail(H3BodyError::Short { missing }))),
            (None, Some(0) | None) => {
                self.place = Place::Trailers;
                Poll::Ready(Ok(None))
            }
            (Some(data), None) => Poll::Ready(Ok(Some(data))),
            (Some(data), Some(left)) => match left.checked_sub(data.len() as u64) {
                Some(left) => {
                    self.left = Some(left);
                    Poll::Ready(Ok(Some(data)))
                }
                // What belongs to it comes before the error.
                None if left > 0 && self.shows_part => {
                    self.left = Some(0);
                    self.is_long = true;
                    Poll::Ready(Ok(Some(data.slice(..left as usize))))
                }
                None => Poll::Ready(Err(self.fail(H3BodyError::Long))),
            },
        }
    }

    fn fail(&mut self, error: H3BodyError) -> H3BodyError {
        self.place = Place::Ended;
        error
    }
}

impl<S: H3Source + Unpin> Body for H3Body<S> {
    type Data = Bytes;
    type Error = H3BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, H3BodyError>>> {
        let this = self.get_mut();
        if let Some(data) = this.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if let Some(data) = ready!(this.poll_data(cx))? {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if this.place == Place::Ended {
            return Poll::Ready(None);
        }
        match ready!(this.source.poll_trailers(cx)) {
            Ok(trailers) => {
                this.place = Place::Ended;
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Err(error) => Poll::Ready(Some(Err(this.fail(H3BodyError::Stream(error))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.first.is_none() && self.place == Place::Ended
    }

    fn size_hint(&self) -> SizeHint {
        let first = self.first.as_ref().map_or(0, |first| first.len() as u64);
        match self.left {
            Some(left) => SizeHint::with_exact(first + left),
            None if self.place != Place::Data => SizeHint::with_exact(first),
            None => SizeHint::default(),
        }
    }
}

impl<S> std::fmt::Debug for H3Body<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H3Body").field("left", &self.left).field("place", &self.place).finish_non_exhaustive()
    }
}

impl H3Source for client::RequestStream<H3Recv, Bytes> {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
        self.poll_recv_data(cx).map_ok(|data| data.map(whole))
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, StreamError>> {
        self.poll_recv_trailers(cx)
    }
}

impl H3Source for server::RequestStream<H3Recv, Bytes> {
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
        self.poll_recv_data(cx).map_ok(|data| data.map(whole))
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, StreamError>> {
        self.poll_recv_trailers(cx)
    }
}

/// Takes the bytes out of a buffer; what `h3` gives is one piece, which is not copied.
fn whole(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::BodyExt as _;

    use super::*;

    struct Pieces(VecDeque<&'static [u8]>);

    impl H3Source for Pieces {
        fn poll_data(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamError>> {
            Poll::Ready(Ok(self.0.pop_front().map(Bytes::from_static)))
        }

        fn poll_trailers(&mut self, _cx: &mut Context<'_>) -> Poll<Result<Option<HeaderMap>, StreamError>> {
            Poll::Ready(Ok(None))
        }
    }

    #[tokio::test]
    async fn of_a_body_of_another_length_what_belongs_to_it_comes_before_the_error() {
        for (declared, told) in [(4, &b"1234"[..]), (8, b"12345678"), (12, b"1234567890")] {
            let mut body = H3Body::new(Pieces([&b"12345"[..], b"67890"].into()), Some(declared)).showing_part();
            let mut read = Vec::new();
            let error = loop {
                match body.frame().await.unwrap() {
                    Ok(frame) => read.extend_from_slice(&frame.into_data().unwrap()),
                    Err(error) => break error,
                }
            };
            assert_eq!(read, told);
            assert!(matches!(error, H3BodyError::Long | H3BodyError::Short { missing: 2 }), "{error}");
            assert!(body.frame().await.is_none());
        }
    }
}
