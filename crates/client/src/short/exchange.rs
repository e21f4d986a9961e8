//! One request on one connection.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use ropeway_core::Side;
use ropeway_net::{innermost, of_hyper};

use super::{
    Cause, Executed,
    h3::H3Answer,
    pool::{Lease, Sender},
    words,
};
use crate::{
    Body, Error,
    way::{Peer, Trace},
};

/// The body of an answer, which keeps its connection.
pub(crate) struct ShortBody {
    source: Source,
    /// The place on a connection that carries several requests.
    _lease: Option<Lease>,
}

enum Source {
    H3(Box<H3Answer>),
    Hyper(Incoming),
}

/// Why an exchange came to nothing.
pub(super) enum Fault {
    Failed(Executed, Cause),
    /// The connection was gone before the request was on it; here it is again.
    Unsent(Box<Request<Body>>, String),
}

/// Sends a request on a leased connection.
pub(super) async fn exchange(
    lease: Lease,
    sender: Sender,
    request: Request<Body>,
    trace: &Trace,
) -> Result<Response<ShortBody>, Fault> {
    trace.hand_off(Peer { candidate: lease.peer, connection: Some(lease.number) });
    let sent = match sender {
        Sender::H1(mut sender) => match sender.try_send_request(request).await {
            Ok(answer) => {
                tokio::spawn(async move {
                    // The body has been read to its end once the connection is ready.
                    if sender.ready().await.is_ok() {
                        lease.finish(sender);
                    }
                });
                Ok(answer.map(|body| ShortBody { source: Source::Hyper(body), _lease: None }))
            }
            Err(error) => Err(Fault::of(error)),
        },
        Sender::H2(mut sender) => match sender.try_send_request(request).await {
            Ok(answer) => Ok(answer.map(|body| ShortBody { source: Source::Hyper(body), _lease: Some(lease) })),
            Err(error) => {
                let fault = Fault::of(error);
                if sender.is_closed() || matches!(fault, Fault::Unsent(..)) {
                    lease.condemn();
                }
                Err(fault)
            }
        },
        Sender::H3(sender) => match sender.exchange(request).await {
            Ok(answer) => Ok(answer.map(|body| ShortBody { source: Source::H3(Box::new(body)), _lease: Some(lease) })),
            Err(fault) => {
                if matches!(fault, Fault::Unsent(..)) {
                    lease.condemn();
                }
                Err(fault)
            }
        },
    };
    if matches!(sent, Err(Fault::Unsent(..))) {
        trace.take_back();
    }
    sent
}

impl Fault {
    pub(super) const fn failed(executed: Executed, cause: Cause) -> Self {
        Self::Failed(executed, cause)
    }

    pub(super) fn unsent(request: Request<Body>, why: &str) -> Self {
        Self::Unsent(Box::new(request), why.into())
    }

    fn of(mut error: hyper::client::conn::TrySendError<Request<Body>>) -> Self {
        let request = error.take_message();
        let error = error.into_error();
        match request {
            Some(request) => Self::Unsent(Box::new(request), of_hyper(&error)),
            None if error.is_parse_too_large() => Self::Failed(Executed::Maybe, Cause::Head(innermost(&error))),
            None => Self::Failed(executed(&error), Cause::Exchange(of_hyper(&error))),
        }
    }
}

impl ShortBody {
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let cut = |reason: String| Error::BodyCut { side: Side::Service, reason };
        match &mut self.source {
            Source::H3(answer) => Pin::new(&mut answer.body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|error| cut(words::of_body(&error))))),
            Source::Hyper(body) => Pin::new(body)
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map_err(|error| cut(of_hyper(&error))))),
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::H3(answer) => answer.body.is_end_stream(),
            Source::Hyper(body) => body.is_end_stream(),
        }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::H3(answer) => answer.body.size_hint(),
            Source::Hyper(body) => body.size_hint(),
        }
    }
}

/// Says of an exchange that failed after it was handed over whether the host may have executed it.
fn executed(error: &hyper::Error) -> Executed {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(h2) = cause.downcast_ref::<h2::Error>() {
            // RFC 9113 section 8.7: refused streams, and those beyond the last one that GOAWAY names, were not processed.
            let refused = h2.is_reset() && h2.reason() == Some(h2::Reason::REFUSED_STREAM);
            return if h2.is_remote() && (refused || h2.is_go_away()) { Executed::No } else { Executed::Maybe };
        }
        source = cause.source();
    }
    Executed::Maybe
}
