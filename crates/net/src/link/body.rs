//! Bodies of exchanges, read and written by their tasks.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use ropeway_core::{
    session::{Closed, Machine},
    wire::message::ResetCode,
};
use thiserror::Error;

use super::Session;

/// The body that arrives on an exchange.
///
/// It ends only where the peer said so: a body cut in the middle ends in an error. Each piece that is taken grants the peer as many
/// bytes again. Dropping it early gives the exchange up.
pub struct BodyReader<M: Machine> {
    session: Session<M>,
    channel: u64,
    done: bool,
    keep_exchange: bool,
}

/// Why a body did not arrive whole.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("body of exchange {channel} was cut: {why:?}")]
pub struct BodyCut {
    /// The exchange.
    pub channel: u64,
    /// How it ended.
    pub why: Closed,
}

impl<M: Machine> BodyReader<M> {
    pub(super) const fn new(session: Session<M>, channel: u64) -> Self {
        Self { session, channel, done: false, keep_exchange: false }
    }

    /// Leaves the exchange open when the body is dropped: a service that does not read a request to its end may still answer it.
    #[must_use]
    pub const fn keeping_exchange(mut self) -> Self {
        self.keep_exchange = true;
        self
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        let mut state = self.session.lock();
        let Some(exchange) = state.exchanges.get_mut(&self.channel) else {
            self.done = true;
            return Poll::Ready(Some(Err(BodyCut { channel: self.channel, why: Closed::Unknown })));
        };
        if let Some(data) = exchange.body.pop_front() {
            state.machine.mux().consumed(self.channel, data.len() as u64);
            state.dispatch();
            drop(state);
            self.session.shared.driver.wake();
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        match exchange.end.clone() {
            None => {
                exchange.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            Some(how) => {
                self.done = true;
                Poll::Ready(match how {
                    Ok(None) => None,
                    Ok(Some(trailers)) => Some(Ok(Frame::trailers(trailers))),
                    Err(why) => Some(Err(BodyCut { channel: self.channel, why })),
                })
            }
        }
    }
}

impl<M: Machine> Body for BodyReader<M> {
    type Data = Bytes;
    type Error = BodyCut;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyCut>>> {
        let reader = self.get_mut();
        if reader.done {
            return Poll::Ready(None);
        }
        reader.poll_piece(cx)
    }

    fn is_end_stream(&self) -> bool {
        let state = self.session.lock();
        self.done
            || state
                .exchanges
                .get(&self.channel)
                .is_some_and(|exchange| exchange.body.is_empty() && matches!(exchange.end, Some(Ok(None))))
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_end_stream() { SizeHint::with_exact(0) } else { SizeHint::default() }
    }
}

impl<M: Machine> Drop for BodyReader<M> {
    fn drop(&mut self) {
        if self.keep_exchange {
            self.session.discard(self.channel);
        } else {
            self.session.abandon(self.channel, ResetCode::Cancelled, "the body is no longer wanted");
        }
    }
}

/// The body to send on an exchange.
pub struct BodyWriter<M: Machine> {
    session: Session<M>,
    channel: u64,
    finished: bool,
}

impl<M: Machine> BodyWriter<M> {
    pub(super) const fn new(session: Session<M>, channel: u64) -> Self {
        Self { session, channel, finished: false }
    }

    /// Sends `data`, waiting for credit as often as needed.
    ///
    /// # Errors
    ///
    /// [`BodyCut`] if the exchange ended.
    pub async fn write(&mut self, mut data: Bytes) -> Result<(), BodyCut> {
        std::future::poll_fn(|cx| self.poll_write(cx, &mut data)).await
    }

    /// Sends as much of `data` as there is credit for; ready when all of it was taken.
    ///
    /// # Errors
    ///
    /// [`BodyCut`] if the exchange ended.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, data: &mut Bytes) -> Poll<Result<(), BodyCut>> {
        let mut state = self.session.lock();
        if let Some(exchange) = state.exchanges.get_mut(&self.channel) {
            exchange.writer = Some(cx.waker().clone());
        }
        let open = state.machine.mux().write(self.channel, data);
        state.dispatch();
        let why = state.exchanges.get(&self.channel).and_then(|exchange| match &exchange.end {
            Some(Err(why)) => Some(why.clone()),
            Some(Ok(_)) | None => None,
        });
        drop(state);
        self.session.shared.driver.wake();
        if !open {
            let why =
                why.unwrap_or(Closed::Reset { code: ResetCode::Cancelled, detail: "the exchange is over".into() });
            return Poll::Ready(Err(BodyCut { channel: self.channel, why }));
        }
        if data.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    }

    /// Completes the body.
    pub fn finish(mut self, trailers: Option<HeaderMap>) {
        self.finished = true;
        self.session.with(|machine, _| machine.mux().finish(self.channel, trailers));
    }

    /// Says that the head already ended the exchange: there is no body.
    pub fn completed(mut self) {
        self.finished = true;
    }

    /// Ends the exchange: the body will not be completed.
    pub fn reset(mut self, code: ResetCode, detail: &str) {
        self.finished = true;
        self.session.reset(self.channel, code, detail);
    }
}

impl<M: Machine> Drop for BodyWriter<M> {
    fn drop(&mut self) {
        if !self.finished {
            self.session.reset(self.channel, ResetCode::Cancelled, "the body was given up");
        }
    }
}
