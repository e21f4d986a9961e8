//! What the app is shown of the pushes: each message once, over all sessions of a client, within bounds.

use std::collections::{BTreeSet, VecDeque};

use super::PushMessage;

/// Messages on their way to the app.
///
/// While a client moves from one gateway to another it has two sessions, and both may bring the same message. The feed sees to it
/// that the app is shown it once. Nothing is acknowledged before the app took it.
#[derive(Debug, Default)]
pub struct Feed {
    waiting: VecDeque<FeedItem>,
    waiting_messages: usize,
    waiting_bytes: usize,
    ids: BTreeSet<String>,
    order: VecDeque<String>,
}

/// What the app is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeedItem {
    /// Messages may have been lost here.
    Gap,
    /// A message.
    Message {
        /// The message.
        message: PushMessage,
        /// It was sent before; a crash may have hidden that it was shown.
        redelivered: bool,
    },
}

/// What became of a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// There is no room: it is lost, and the app will be told by a gap. Count it as shown.
    Full,
    /// The app was shown it already: acknowledge it.
    Shown,
    /// It waits for the app.
    Waiting,
}

impl Feed {
    /// Takes a message that arrived on any session.
    pub fn offer(&mut self, message: PushMessage, redelivered: bool) -> Offered {
        if self.ids.contains(&message.id) {
            let waits = self
                .waiting
                .iter()
                .any(|item| matches!(item, FeedItem::Message { message: waiting, .. } if waiting.id == message.id));
            return if waits { Offered::Waiting } else { Offered::Shown };
        }
        let bytes = message.payload.len();
        if self.waiting_messages >= MESSAGES_MAX || self.waiting_bytes + bytes > BYTES_MAX {
            self.gap();
            return Offered::Full;
        }
        self.ids.insert(message.id.clone());
        self.order.push_back(message.id.clone());
        if self.order.len() > IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        self.waiting_messages += 1;
        self.waiting_bytes += bytes;
        self.waiting.push_back(FeedItem::Message { message, redelivered });
        Offered::Waiting
    }

    /// Takes in that messages may have been lost. Losses between the same two messages are one gap.
    pub fn gap(&mut self) {
        if self.waiting.back() != Some(&FeedItem::Gap) {
            self.waiting.push_back(FeedItem::Gap);
        }
    }

    /// Returns what the app is shown next. A message is to be acknowledged on every session then.
    pub fn take(&mut self) -> Option<FeedItem> {
        let item = self.waiting.pop_front()?;
        if let FeedItem::Message { message, .. } = &item {
            self.waiting_messages -= 1;
            self.waiting_bytes -= message.payload.len();
        }
        Some(item)
    }

    /// Returns how many messages wait for the app.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.waiting_messages
    }
}

/// Messages that may wait for the app; as many as a gateway keeps for a session, and a few more.
const MESSAGES_MAX: usize = 1_024;

/// Payload bytes that may wait for the app: 4 MiB, four times what a gateway keeps for a session.
const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Ids remembered: four times the messages that may wait, as each session remembers.
const IDS_MAX: usize = 4 * MESSAGES_MAX;

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn message(id: usize, bytes: usize) -> PushMessage {
        PushMessage {
            id: id.to_string(),
            topic: String::new(),
            content_type: String::new(),
            payload: Bytes::from(vec![0; bytes]),
            time_ms: 0,
        }
    }

    fn taken(feed: &mut Feed) -> Vec<String> {
        std::iter::from_fn(|| feed.take())
            .map(|item| match item {
                FeedItem::Gap => "gap".into(),
                FeedItem::Message { message, .. } => message.id,
            })
            .collect()
    }

    #[test]
    fn a_message_that_two_sessions_bring_is_shown_once_and_acknowledged_only_after() {
        let mut feed = Feed::default();
        assert_eq!(feed.offer(message(1, 1), false), Offered::Waiting);
        assert_eq!(feed.offer(message(1, 1), true), Offered::Waiting);
        assert_eq!(taken(&mut feed), ["1"]);
        assert_eq!(feed.offer(message(1, 1), true), Offered::Shown);
        assert_eq!(feed.take(), None);
    }

    #[test]
    fn what_finds_no_room_is_told_as_one_gap_at_its_place() {
        let mut feed = Feed::default();
        for id in 0..MESSAGES_MAX {
            assert_eq!(feed.offer(message(id, 1), false), Offered::Waiting);
        }
        assert_eq!(feed.offer(message(MESSAGES_MAX, 1), false), Offered::Full);
        assert_eq!(feed.offer(message(MESSAGES_MAX + 1, 1), false), Offered::Full);
        assert!(feed.take().is_some());
        assert_eq!(feed.offer(message(MESSAGES_MAX + 2, 1), false), Offered::Waiting);
        let rest = taken(&mut feed);
        assert_eq!(rest[MESSAGES_MAX - 1..], ["gap".to_owned(), (MESSAGES_MAX + 2).to_string()]);
        assert_eq!((feed.waiting(), feed.waiting_bytes), (0, 0));
    }

    #[test]
    fn large_payloads_are_bounded_by_their_bytes() {
        let mut feed = Feed::default();
        assert_eq!(feed.offer(message(1, BYTES_MAX), false), Offered::Waiting);
        assert_eq!(feed.offer(message(2, 1), false), Offered::Full);
        assert_eq!(taken(&mut feed), ["1", "gap"]);
    }

    #[test]
    fn losses_with_nothing_between_them_are_one_gap() {
        let mut feed = Feed::default();
        feed.gap();
        feed.gap();
        feed.offer(message(1, 1), false);
        feed.gap();
        assert_eq!(taken(&mut feed), ["gap", "1", "gap"]);
    }

    #[test]
    fn the_memory_of_ids_is_bounded() {
        let mut feed = Feed::default();
        for id in 0..IDS_MAX + 10 {
            feed.offer(message(id, 1), false);
            feed.take();
        }
        assert_eq!((feed.ids.len(), feed.order.len()), (IDS_MAX, IDS_MAX));
    }
}
