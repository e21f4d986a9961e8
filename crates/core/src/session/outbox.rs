//! Messages for one session, numbered, sent, and kept until the app was shown them.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::wire::{Frame, Kind, message::Push};

/// A message as a backend sent it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushMessage {
    /// Id of the message; the app sees each id once.
    pub id: String,
    /// Topic it was sent to, empty for none.
    pub topic: String,
    /// Media type of the payload.
    pub content_type: String,
    /// The payload.
    pub payload: Bytes,
    /// When the backend sent it, milliseconds since the Unix epoch.
    pub time_ms: u64,
}

/// Bounds of an outbox.
#[derive(Clone, Copy, Debug)]
pub struct OutboxConfig {
    /// Messages kept; 1,000 by default.
    pub messages_max: usize,
    /// Payload bytes kept; 1 MiB by default.
    pub bytes_max: usize,
}

impl Default for OutboxConfig {
    fn default() -> Self {
        Self { messages_max: 1_000, bytes_max: 1024 * 1024 }
    }
}

/// The gateway's half of push: in order, at least once, up to a bound.
///
/// A message pushed out by the bound leaves a hole in the numbers, which the client reports to the app as a gap.
#[derive(Debug)]
pub struct Outbox {
    config: OutboxConfig,
    next: u64,
    unsent_from: u64,
    kept: VecDeque<Outgoing>,
    kept_bytes: usize,
}

/// A message on its way.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Number within the session, from 1.
    pub sequence: u64,
    /// It was sent on an earlier link.
    pub redelivered: bool,
    /// The message.
    pub message: PushMessage,
}

impl Outbox {
    /// Makes an empty outbox.
    #[must_use]
    pub const fn new(config: OutboxConfig) -> Self {
        Self { config, next: 1, unsent_from: 1, kept: VecDeque::new(), kept_bytes: 0 }
    }

    /// Takes a message. Returns the ids that the bound pushed out.
    pub fn push(&mut self, message: PushMessage) -> Vec<String> {
        self.kept_bytes += message.payload.len();
        self.kept.push_back(Outgoing { sequence: self.next, redelivered: false, message });
        self.next += 1;
        let mut dropped = Vec::new();
        while self.kept.len() > self.config.messages_max
            || (self.kept_bytes > self.config.bytes_max && self.kept.len() > 1)
        {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.kept_bytes -= oldest.message.payload.len();
            dropped.push(oldest.message.id);
        }
        dropped
    }

    /// Says whether a message of this id is on its way.
    #[must_use]
    pub fn holds(&self, id: &str) -> bool {
        self.kept.iter().any(|kept| kept.message.id == id)
    }

    /// Returns the next message to hand to the link, and its frame.
    pub fn poll_output(&mut self) -> Option<(Frame, String)> {
        let first = self.kept.front()?.sequence;
        let index = usize::try_from(self.unsent_from.saturating_sub(first)).ok()?;
        let outgoing = self.kept.get_mut(index)?;
        self.unsent_from = outgoing.sequence + 1;
        let push = Push {
            sequence: outgoing.sequence,
            message_id: outgoing.message.id.clone(),
            topic: outgoing.message.topic.clone(),
            content_type: outgoing.message.content_type.clone(),
            payload: outgoing.message.payload.clone(),
            time_ms: outgoing.message.time_ms,
            redelivered: outgoing.redelivered,
        };
        outgoing.redelivered = true;
        Some((Frame::control(Kind::Push, &push), outgoing.message.id.clone()))
    }

    /// Takes an acknowledgement of everything up to `sequence`. Returns the ids it covers.
    pub fn acknowledge(&mut self, sequence: u64) -> Vec<String> {
        let mut acked = Vec::new();
        while self.kept.front().is_some_and(|kept| kept.sequence <= sequence && kept.sequence < self.unsent_from) {
            let Some(kept) = self.kept.pop_front() else { break };
            self.kept_bytes -= kept.message.payload.len();
            acked.push(kept.message.id);
        }
        if self.kept.is_empty() {
            self.kept = VecDeque::new();
        }
        acked
    }

    /// A new link resumes after `sequence`: what came later is sent again.
    pub fn resume(&mut self, sequence: u64) -> Vec<String> {
        let acked = self.acknowledge(sequence);
        self.unsent_from = self.kept.front().map_or(self.next, |kept| kept.sequence);
        acked
    }

    /// Returns the number before the next message to be sent.
    #[must_use]
    pub fn sequence_before(&self) -> u64 {
        self.kept.front().map_or(self.next, |kept| kept.sequence) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: u64) -> PushMessage {
        PushMessage {
            id: id.to_string(),
            topic: String::new(),
            content_type: "text/plain".into(),
            payload: Bytes::from_static(b"0123456789"),
            time_ms: 0,
        }
    }

    fn sent(outbox: &mut Outbox) -> Vec<(u64, bool)> {
        std::iter::from_fn(|| outbox.poll_output())
            .map(|(frame, _)| frame.as_ref().message::<Push>().unwrap())
            .map(|push| (push.sequence, push.redelivered))
            .collect()
    }

    #[test]
    fn what_was_not_acknowledged_is_sent_again_in_order() {
        let mut outbox = Outbox::new(OutboxConfig::default());
        for id in 1..=4 {
            outbox.push(message(id));
        }
        assert_eq!(sent(&mut outbox), [(1, false), (2, false), (3, false), (4, false)]);
        assert_eq!(outbox.acknowledge(2), ["1", "2"]);
        outbox.push(message(5));
        assert_eq!(outbox.resume(3), ["3"]);
        assert_eq!(outbox.sequence_before(), 3);
        assert_eq!(sent(&mut outbox), [(4, true), (5, false)]);
    }

    #[test]
    fn a_client_cannot_acknowledge_what_was_never_sent() {
        let mut outbox = Outbox::new(OutboxConfig::default());
        outbox.push(message(1));
        assert!(outbox.acknowledge(u64::MAX).is_empty());
        assert_eq!(sent(&mut outbox), [(1, false)]);
    }

    #[test]
    fn the_bound_pushes_out_the_oldest_and_leaves_a_hole() {
        let mut outbox = Outbox::new(OutboxConfig { messages_max: 2, bytes_max: 1000 });
        outbox.push(message(1));
        outbox.push(message(2));
        assert_eq!(outbox.push(message(3)), ["1"]);
        assert_eq!(sent(&mut outbox), [(2, false), (3, false)]);
        let mut outbox = Outbox::new(OutboxConfig { messages_max: 100, bytes_max: 15 });
        outbox.push(message(1));
        assert_eq!(outbox.push(message(2)), ["1"]);
    }
}
