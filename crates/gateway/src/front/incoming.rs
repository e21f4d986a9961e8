//! Bodies of requests as clients send them, whichever version of HTTP they speak.

use std::fmt::Display;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use h3::server::RequestStream;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use ropeway_net::h3::{H3Body, H3Recv};

use crate::proxy::ProxyError;

/// The body of a client's request.
#[derive(Debug)]
pub(super) enum ClientBody {
    /// Over HTTP/3.
    H3(Box<H3Body<RequestStream<H3Recv, Bytes>>>),
    /// Over HTTP/1.1 or HTTP/2.
    Hyper(Incoming),
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        match self.get_mut() {
            Self::H3(body) => {
                Pin::new(body.as_mut()).poll_frame(cx).map(|frame| Some(frame?.map_err(|error| cut(&error))))
            }
            Self::Hyper(body) => Pin::new(body).poll_frame(cx).map(|frame| Some(frame?.map_err(|error| cut(&error)))),
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
fn cut(error: &dyn Display) -> ProxyError {
    tracing::debug!(%error, "client's body failed");
    ProxyError::RequestBodyCut
}
