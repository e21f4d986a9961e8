//! Small uploads that wait a moment for each other and go as one request.
//!
//! Each exchange on a weak network costs a round trip and a chance to fail, and small bodies succeed more often than many of them at
//! once (iQIYI's article on the success rate of mobile requests). What waits together is decided here; `docs/protocol/batch.md` says
//! how it is written.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use crate::Time;

/// When requests that wait for each other go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// How long the first one waits. By default 50 ms, our choice: half of what a user takes for at once.
    pub wait: Duration,
    /// The same on a weak network. By default 200 ms, our choice: less than a round trip there (1,420 ms and more at the two weakest
    /// grades).
    pub wait_weak: Duration,
    /// Requests that go as one. By default 16, our choice.
    pub count_max: usize,
    /// Bytes of the bodies that go as one. By default 64 KiB: what one frame of a link holds.
    pub bytes_max: usize,
    /// Bytes of a body that waits for others at all. By default 8 KiB, our choice: larger ones gain little.
    pub part_bytes_max: usize,
    /// Requests that wait at once. By default 256, our choice.
    pub waiting_max: usize,
}

/// Names a request that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId(u64);

/// Says which requests go together, and when.
#[derive(Debug)]
pub struct Batch {
    config: BatchConfig,
    weak: bool,
    next: u64,
    lanes: BTreeMap<String, Lane>,
    output: VecDeque<Vec<BatchId>>,
}

/// What waits to go together.
#[derive(Debug)]
struct Lane {
    since: Time,
    bytes: usize,
    waiting: Vec<(BatchId, usize)>,
}

impl Batch {
    /// Makes a machine in which nothing waits.
    #[must_use]
    pub const fn new(config: BatchConfig) -> Self {
        Self { config, weak: false, next: 0, lanes: BTreeMap::new(), output: VecDeque::new() }
    }

    /// Takes in a request with a body of so many bytes that may go with others of its `lane`. `None` if it goes alone and at once:
    /// it is too large, or as many wait as may.
    pub fn handle_request(&mut self, lane: &str, bytes: usize, now: Time) -> Option<BatchId> {
        let waiting: usize = self.lanes.values().map(|lane| lane.waiting.len()).sum();
        if bytes > self.config.part_bytes_max || waiting >= self.config.waiting_max {
            return None;
        }
        if self.lanes.get(lane).is_some_and(|lane| lane.bytes + bytes > self.config.bytes_max) {
            self.send(lane);
        }
        let id = BatchId(self.next);
        self.next += 1;
        let found = self.lanes.entry(lane.to_owned());
        let entry = found.or_insert_with(|| Lane { since: now, bytes: 0, waiting: Vec::new() });
        entry.bytes += bytes;
        entry.waiting.push((id, bytes));
        if entry.waiting.len() >= self.config.count_max {
            self.send(lane);
        }
        Some(id)
    }

    /// Takes in that the app no longer wants a request. Without effect once it has gone.
    pub fn handle_cancelled(&mut self, id: BatchId) {
        for lane in self.lanes.values_mut() {
            if let Some(at) = lane.waiting.iter().position(|(waiting, _)| *waiting == id) {
                lane.bytes -= lane.waiting.remove(at).1;
            }
        }
        self.lanes.retain(|_, lane| !lane.waiting.is_empty());
    }

    /// Takes in whether the network is weak.
    pub const fn handle_grade(&mut self, weak: bool) {
        self.weak = weak;
    }

    /// Takes in the time.
    pub fn handle_timeout(&mut self, now: Time) {
        let wait = self.wait();
        let late = |(name, lane): (&String, &Lane)| (now >= lane.since + wait).then(|| name.clone());
        let late: Vec<String> = self.lanes.iter().filter_map(late).collect();
        late.iter().for_each(|lane| self.send(lane));
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is wanted next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.lanes.values().map(|lane| lane.since).min().map(|since| since + self.wait())
    }

    /// Returns what goes next, as one; a single one goes as it is.
    pub fn poll_output(&mut self) -> Option<Vec<BatchId>> {
        self.output.pop_front()
    }

    const fn wait(&self) -> Duration {
        if self.weak { self.config.wait_weak } else { self.config.wait }
    }

    fn send(&mut self, lane: &str) {
        if let Some(lane) = self.lanes.remove(lane) {
            self.output.push_back(lane.waiting.into_iter().map(|(id, _)| id).collect());
        }
    }
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self {
            wait: WAIT,
            wait_weak: WAIT_WEAK,
            count_max: COUNT_MAX,
            bytes_max: BYTES_MAX,
            part_bytes_max: PART_BYTES_MAX,
            waiting_max: WAITING_MAX,
        }
    }
}

/// 50 ms; see [`BatchConfig::wait`].
const WAIT: Duration = Duration::from_millis(50);

/// 200 ms; see [`BatchConfig::wait_weak`].
const WAIT_WEAK: Duration = Duration::from_millis(200);

/// 16 requests; see [`BatchConfig::count_max`].
const COUNT_MAX: usize = 16;

/// 64 KiB; see [`BatchConfig::bytes_max`].
const BYTES_MAX: usize = 64 * 1024;

/// 8 KiB; see [`BatchConfig::part_bytes_max`].
const PART_BYTES_MAX: usize = 8 * 1024;

/// 256 requests; see [`BatchConfig::waiting_max`].
const WAITING_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    fn gone(batch: &mut Batch) -> Vec<Vec<BatchId>> {
        std::iter::from_fn(|| batch.poll_output()).collect()
    }

    #[test]
    fn what_comes_within_50_ms_of_the_first_goes_with_it() {
        let mut batch = Batch::new(BatchConfig::default());
        let ids: Vec<_> = [0, 20, 49].map(|ms| batch.handle_request("a", 100, at(ms)).unwrap()).into();
        assert_eq!(batch.poll_timeout(), Some(at(50)));
        batch.handle_timeout(at(49));
        assert!(gone(&mut batch).is_empty());
        batch.handle_timeout(at(50));
        assert_eq!(gone(&mut batch), [ids]);
        assert_eq!(batch.poll_timeout(), None);
    }

    #[test]
    fn a_weak_network_is_waited_for_longer() {
        let mut batch = Batch::new(BatchConfig::default());
        batch.handle_request("a", 1, at(0));
        batch.handle_grade(true);
        assert_eq!(batch.poll_timeout(), Some(at(200)));
        batch.handle_grade(false);
        batch.handle_timeout(at(60));
        assert_eq!(gone(&mut batch).len(), 1);
    }

    #[test]
    fn count_and_bytes_of_a_batch_are_bounded() {
        let mut batch = Batch::new(BatchConfig::default());
        for _ in 0..60 {
            batch.handle_request("a", 10, at(0)).unwrap();
        }
        assert_eq!(gone(&mut batch).iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 16]);
        batch.handle_timeout(at(50));
        assert_eq!(gone(&mut batch)[0].len(), 12);
        for _ in 0..9 {
            batch.handle_request("a", 8 * 1024, at(50)).unwrap();
        }
        assert_eq!(gone(&mut batch)[0].len(), 8);
        assert_eq!(batch.handle_request("a", 8 * 1024 + 1, at(50)), None);
    }

    #[test]
    fn lanes_do_not_wait_for_each_other() {
        let mut batch = Batch::new(BatchConfig::default());
        let one = batch.handle_request("a", 1, at(0)).unwrap();
        let other = batch.handle_request("b", 1, at(30)).unwrap();
        batch.handle_timeout(at(50));
        assert_eq!(gone(&mut batch), [[one]]);
        batch.handle_timeout(at(80));
        assert_eq!(gone(&mut batch), [[other]]);
    }

    #[test]
    fn what_is_given_up_does_not_go_and_leaves_nothing_behind() {
        let mut batch = Batch::new(BatchConfig { waiting_max: 2, ..BatchConfig::default() });
        let one = batch.handle_request("a", 1, at(0)).unwrap();
        let two = batch.handle_request("a", 1, at(0)).unwrap();
        assert_eq!(batch.handle_request("a", 1, at(0)), None, "two wait");
        batch.handle_cancelled(one);
        let three = batch.handle_request("a", 1, at(0)).unwrap();
        batch.handle_timeout(at(50));
        assert_eq!(gone(&mut batch), [[two, three]]);
        let last = batch.handle_request("a", 1, at(60)).unwrap();
        batch.handle_cancelled(last);
        assert!(batch.lanes.is_empty() && batch.poll_timeout().is_none());
    }
}
