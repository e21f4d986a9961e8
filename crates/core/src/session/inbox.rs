//! The client's half of push: each message once, holes noticed, acknowledged when the app took it.

use std::collections::{BTreeSet, VecDeque};

/// Numbers and ids of the messages that arrived.
#[derive(Debug, Default)]
pub struct Inbox {
    /// Last number that arrived.
    received: u64,
    /// Last number of which the gateway knows that the app took it and all before.
    acknowledged: u64,
    /// Messages the app has not taken, in the order they arrived, under their numbers of this session (zero for an earlier one).
    waiting: VecDeque<(u64, String)>,
    ids: BTreeSet<String>,
    order: VecDeque<String>,
}

/// What to do with a message that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is waiting for the app, or the app has it.
    Duplicate,
    /// Show it.
    Fresh {
        /// Messages before it are missing.
        gap: bool,
    },
}

impl Inbox {
    /// Takes the number and id of a message that arrived.
    pub fn receive(&mut self, sequence: u64, id: &str) -> Received {
        if sequence <= self.received {
            return Received::Duplicate;
        }
        let gap = sequence > self.received + 1;
        self.received = sequence;
        if self.ids.contains(id) {
            if let Some(waiting) = self.waiting.iter_mut().find(|(_, waiting)| waiting == id) {
                waiting.0 = sequence;
            }
            return Received::Duplicate;
        }
        self.waiting.push_back((sequence, id.into()));
        self.ids.insert(id.into());
        self.order.push_back(id.into());
        if self.order.len() > IDS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ids.remove(&oldest);
        }
        Received::Fresh { gap }
    }

    /// Says that the app took the message `id`.
    pub fn show(&mut self, id: &str) {
        self.waiting.retain(|(_, waiting)| waiting != id);
    }

    /// Returns the number to acknowledge, if the gateway does not know it yet.
    pub fn poll_acknowledge(&mut self) -> Option<u64> {
        let shown = self.shown();
        (shown > self.acknowledged).then(|| {
            self.acknowledged = shown;
            shown
        })
    }

    /// Returns the last number up to which the app took everything.
    #[must_use]
    pub fn shown(&self) -> u64 {
        self.waiting
            .iter()
            .map(|(sequence, _)| *sequence)
            .filter(|sequence| *sequence > 0)
            .min()
            .map_or(self.received, |first| first - 1)
    }

    /// A link begins after `sequence`. On a new session the numbers start anew; the ids stay, so that a message sent again under
    /// another number is still shown once.
    pub fn begin(&mut self, sequence: u64, resumed: bool) {
        if !resumed {
            self.waiting.iter_mut().for_each(|waiting| waiting.0 = 0);
        }
        self.received = sequence;
        self.acknowledged = sequence;
    }

    /// Returns how many messages wait for the app.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

/// Ids remembered: four outboxes' worth, so that a gateway that lost its memory cannot show a recent message twice.
const IDS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_shown_once_whatever_number_it_comes_under() {
        let mut inbox = Inbox::default();
        assert_eq!(inbox.receive(1, "a"), Received::Fresh { gap: false });
        assert_eq!(inbox.receive(1, "a"), Received::Duplicate);
        assert_eq!(inbox.receive(2, "a"), Received::Duplicate);
        inbox.begin(0, false);
        assert_eq!(inbox.receive(1, "a"), Received::Duplicate);
        assert_eq!(inbox.receive(2, "b"), Received::Fresh { gap: false });
    }

    #[test]
    fn a_hole_in_the_numbers_is_a_gap() {
        let mut inbox = Inbox::default();
        inbox.begin(7, true);
        assert_eq!(inbox.receive(8, "a"), Received::Fresh { gap: false });
        assert_eq!(inbox.receive(10, "c"), Received::Fresh { gap: true });
    }

    #[test]
    fn only_what_the_app_took_is_acknowledged() {
        let mut inbox = Inbox::default();
        inbox.receive(1, "a");
        inbox.receive(2, "b");
        inbox.receive(3, "c");
        assert_eq!(inbox.poll_acknowledge(), None);
        inbox.show("b");
        assert_eq!(inbox.poll_acknowledge(), None, "a is still waiting");
        inbox.show("a");
        assert_eq!(inbox.poll_acknowledge(), Some(2));
        assert_eq!(inbox.poll_acknowledge(), None);
    }

    #[test]
    fn a_waiting_message_that_comes_again_in_a_new_session_is_not_acknowledged_before_it_is_shown() {
        let mut inbox = Inbox::default();
        inbox.receive(9, "a");
        inbox.begin(0, false);
        assert_eq!(inbox.receive(1, "a"), Received::Duplicate);
        assert_eq!(inbox.poll_acknowledge(), None);
        inbox.show("a");
        assert_eq!(inbox.poll_acknowledge(), Some(1));
    }

    #[test]
    fn the_memory_of_ids_is_bounded() {
        let mut inbox = Inbox::default();
        for number in 1..=IDS_MAX as u64 + 10 {
            inbox.receive(number, &number.to_string());
            inbox.show(&number.to_string());
        }
        assert_eq!((inbox.ids.len(), inbox.order.len(), inbox.waiting()), (IDS_MAX, IDS_MAX, 0));
    }
}
