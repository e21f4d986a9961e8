//! Bodies of requests as clients send them, whichever version of HTTP they speak.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use h3::server::RequestStream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use ropeway_net::h3::H3Recv;

use crate::proxy::ProxyError;

/// The body of a client's request.
#[derive(Debug)]
pub(super) enum ClientBody {
    /// Over HTTP/3.
    H3(Box<H3Body>),
    /// Over HTTP/1.1 or HTTP/2.
    Hyper(Incoming),
}

/// The body of an HTTP/3 request.
pub(super) struct H3Body {
    stream: RequestStream<H3Recv, Bytes>,
    /// What came before the body was asked for.
    first: Option<Bytes>,
    /// Bytes still to come, where the client told how many there are.
    left: Option<u64>,
    place: Place,
}

/// How far a body has been read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    Data,
    Trailers,
    Ended,
}

impl H3Body {
    /// Reads from a stream the body whose length is `declared`.
    pub(super) fn new(stream: RequestStream<H3Recv, Bytes>, declared: Option<u64>) -> Self {
        let place = if declared == Some(0) { Place::Ended } else { Place::Data };
        Self { stream, first: None, left: declared, place }
    }

    /// Waits until it is known whether there is a body at all. Trailers without one are nobody's.
    pub(super) async fn begin(&mut self) -> Result<(), ProxyError> {
        self.first = std::future::poll_fn(|cx| self.poll_data(cx)).await?;
        if self.first.is_none() {
            self.place = Place::Ended;
        }
        Ok(())
    }

    /// Gives the next bytes, or `None` where trailers may follow.
    fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, ProxyError>> {
        if self.place != Place::Data {
            return Poll::Ready(Ok(None));
        }
        let data = match ready!(self.stream.poll_recv_data(cx)) {
            Ok(data) => data.map(|mut data| data.copy_to_bytes(data.remaining())),
            Err(error) => return Poll::Ready(Err(self.fail(&error))),
        };
        let Some(data) = data else {
            if self.left.is_some_and(|left| left > 0) {
                return Poll::Ready(Err(self.fail(&"it is shorter than its content-length")));
            }
            self.place = Place::Trailers;
            return Poll::Ready(Ok(None));
        };
        match self.left.map(|left| left.checked_sub(data.len() as u64)) {
            Some(None) => Poll::Ready(Err(self.fail(&"it is longer than its content-length"))),
            Some(left) => {
                self.left = left;
                Poll::Ready(Ok(Some(data)))
            }
            None => Poll::Ready(Ok(Some(data))),
        }
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) -> ProxyError {
        tracing::debug!(%error, "client's body failed");
        self.place = Place::Ended;
        ProxyError::RequestBodyCut
    }
}

impl Body for H3Body {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
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
        match ready!(this.stream.poll_recv_trailers(cx)) {
            Ok(trailers) => {
                this.place = Place::Ended;
                Poll::Ready(trailers.map(|trailers| Ok(Frame::trailers(trailers))))
            }
            Err(error) => Poll::Ready(Some(Err(this.fail(&error)))),
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

impl std::fmt::Debug for H3Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("H3Body").field("left", &self.left).field("place", &self.place).finish_non_exhaustive()
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        match self.get_mut() {
            Self::H3(body) => Pin::new(body.as_mut()).poll_frame(cx),
            Self::Hyper(body) => Pin::new(body).poll_frame(cx).map(|frame| frame.map(|frame| frame.map_err(cut))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::H3(body) => body.is_end_stream(),
            Self::Hyper(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::H3(body) => body.size_hint(),
            Self::Hyper(body) => body.size_hint(),
        }
    }
}

/// Names the failure of a client's body.
fn cut(error: hyper::Error) -> ProxyError {
    tracing::debug!(%error, "client's body failed");
    ProxyError::RequestBodyCut
}
