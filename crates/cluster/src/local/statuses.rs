//! How far the latest messages got.

use std::collections::{HashMap, VecDeque};

use tokio::time::Instant;

use crate::{id::MessageId, message::Status};

/// The statuses of the messages published last, a bounded number of them.
#[derive(Debug)]
pub(super) struct Statuses {
    max: usize,
    records: HashMap<MessageId, Record>,
    /// The ids of `records`, the oldest first.
    ages: VecDeque<MessageId>,
}

#[derive(Debug)]
struct Record {
    status: Status,
    deadline: Instant,
}

impl Record {
    fn status(&self, now: Instant) -> Status {
        if now >= self.deadline { self.status.max(Status::Expired) } else { self.status }
    }
}

impl Statuses {
    /// Makes an empty memory of at most `max` messages.
    pub(super) fn new(max: usize) -> Self {
        Self { max, records: HashMap::new(), ages: VecDeque::new() }
    }

    /// Notes that a message was taken, to be delivered by `deadline`, and returns how far it has got.
    ///
    /// One that is known keeps its status and its age, but an expired one starts anew.
    pub(super) fn queue(&mut self, id: &MessageId, deadline: Instant, now: Instant) -> Status {
        if let Some(record) = self.records.get_mut(id) {
            if record.status(now) == Status::Expired {
                record.status = Status::Queued;
            }
            record.deadline = deadline;
            return record.status;
        }
        if self.records.len() >= self.max
            && let Some(oldest) = self.ages.pop_front()
        {
            self.records.remove(&oldest);
        }
        self.records.insert(id.clone(), Record { status: Status::Queued, deadline });
        self.ages.push_back(id.clone());
        Status::Queued
    }

    /// Notes how far a message got, if that is further than known; tells whether the message is known.
    pub(super) fn report(&mut self, id: &MessageId, status: Status) -> bool {
        let record = self.records.get_mut(id);
        record.map(|record| record.status = record.status.max(status)).is_some()
    }

    /// Tells how far a message got.
    pub(super) fn status(&self, id: &MessageId, now: Instant) -> Option<Status> {
        self.records.get(id).map(|record| record.status(now))
    }
}
