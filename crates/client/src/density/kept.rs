//! A body whose first bytes were read already, and which keeps something until it is over.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as _, Frame, SizeHint};

use super::limits::Slot;
use crate::{Body, Error};

/// What was read, and what is to come.
#[derive(Debug)]
pub(crate) struct Kept {
    read: VecDeque<Bytes>,
    rest: Rest,
    /// Given back when the body is over.
    slot: Option<Slot>,
}

#[derive(Debug)]
enum Rest {
    Body(Body),
    Error(Error),
    Nothing,
    Trailers(HeaderMap),
}

impl Kept {
    pub(super) fn holding(body: Body, slot: Slot) -> Self {
        let slot = (!body.is_end_stream()).then_some(slot);
        Self { read: VecDeque::new(), rest: Rest::Body(body), slot }
    }

    pub(super) const fn begun(read: VecDeque<Bytes>, rest: Body) -> Self {
        Self { read, rest: Rest::Body(rest), slot: None }
    }

    pub(super) const fn broken(read: VecDeque<Bytes>, error: Error) -> Self {
        Self { read, rest: Rest::Error(error), slot: None }
    }

    pub(super) fn whole(read: VecDeque<Bytes>, trailers: Option<HeaderMap>) -> Self {
        Self { read, rest: trailers.map_or(Rest::Nothing, Rest::Trailers), slot: None }
    }

    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(data) = self.read.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let frame = match &mut self.rest {
            Rest::Body(body) => ready!(Pin::new(body).poll_frame(cx)),
            Rest::Error(_) | Rest::Nothing | Rest::Trailers(_) => {
                match std::mem::replace(&mut self.rest, Rest::Nothing) {
                    Rest::Error(error) => Some(Err(error)),
                    Rest::Trailers(trailers) => Some(Ok(Frame::trailers(trailers))),
                    Rest::Body(_) | Rest::Nothing => None,
                }
            }
        };
        let more = matches!(&frame, Some(Ok(frame)) if frame.is_data()) && !self.is_end_stream();
        if !more {
            self.slot = None;
        }
        Poll::Ready(frame)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.read.is_empty()
            && match &self.rest {
                Rest::Body(body) => body.is_end_stream(),
                Rest::Error(_) | Rest::Trailers(_) => false,
                Rest::Nothing => true,
            }
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let read: u64 = self.read.iter().map(|data| data.len() as u64).sum();
        let rest = match &self.rest {
            Rest::Body(body) => body.size_hint(),
            Rest::Error(_) => SizeHint::new(),
            Rest::Nothing | Rest::Trailers(_) => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read)) {
            hint.set_upper(upper);
        }
        hint
    }
}
