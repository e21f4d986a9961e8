//! Messages that gateways push.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_core::Stream;
use ropeway_core::session::FeedItem;

use crate::client::Handle;

/// The messages for this client, in the order they came. See [`crate::Client::pushes`].
///
/// It ends when the client is closed or another stream takes its place. A message is acknowledged when the app asks for the next one,
/// or by [`acknowledge`](Self::acknowledge): if the process dies before that, it comes again, `redelivered`.
#[must_use = "streams do nothing unless polled"]
pub struct PushStream {
    handle: Handle,
    number: u64,
    /// Id of the message that the app has and was not acknowledged yet.
    shown: Option<String>,
}

/// What a gateway pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushEvent {
    /// Messages may have been lost: the app fetches by itself what it must not miss.
    Gap,
    /// A message.
    Message(PushMessage),
}

/// A message that a backend sent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PushMessage {
    /// Its id; each id is shown once while the client lives.
    pub id: String,
    /// The topic it was sent to, empty for none.
    pub topic: String,
    /// Media type of the payload.
    pub content_type: String,
    /// The payload.
    pub payload: Bytes,
    /// When the backend sent it, milliseconds since the Unix epoch.
    pub time_ms: u64,
    /// It was sent before. An earlier process of this app may have shown it.
    pub redelivered: bool,
}

impl PushStream {
    pub(crate) fn new(handle: Handle) -> Self {
        let number = handle.shared().begin_stream();
        Self { handle, number, shown: None }
    }

    /// Says that the app is done with what it was given last, without asking for more.
    pub fn acknowledge(&mut self) {
        let Some(id) = self.shown.take() else { return };
        for (_, session) in &self.handle.shared().roster().sessions {
            session.with(|client, _| client.shown(&id));
        }
    }

    /// Returns the next event; `None` when the stream has ended.
    pub async fn next(&mut self) -> Option<PushEvent> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for PushStream {
    type Item = PushEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<PushEvent>> {
        self.acknowledge();
        let shared = self.handle.shared();
        match shared.next_push(self.number, cx.waker()) {
            None => Poll::Ready(None),
            Some(None) if shared.view.borrow().closed => Poll::Ready(None),
            Some(None) => Poll::Pending,
            Some(Some(FeedItem::Gap)) => Poll::Ready(Some(PushEvent::Gap)),
            Some(Some(FeedItem::Message { message, redelivered })) => {
                self.shown = Some(message.id.clone());
                Poll::Ready(Some(PushEvent::Message(PushMessage {
                    id: message.id,
                    topic: message.topic,
                    content_type: message.content_type,
                    payload: message.payload,
                    time_ms: message.time_ms,
                    redelivered,
                })))
            }
        }
    }
}

impl std::fmt::Debug for PushStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PushStream").field("number", &self.number).finish_non_exhaustive()
    }
}
