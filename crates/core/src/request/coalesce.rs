//! Identical GETs in flight share one exchange: the first leads, those that come while it runs follow and get the same answer.
//!
//! A follower loses nothing by it. It sends a request of its own as soon as the answer turns out too long or too slow to be shared, or
//! the leader fails for a reason of its own. An answer is never older than what the app has done since: a request by an unsafe method
//! ends the sharing of what was asked before it (compare RFC 9111 section 4.4, which drops stored answers then).

mod key;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

pub use self::key::{SharedKey, UNCOMPARED_HEADERS};
use crate::Time;

/// Bounds of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoalesceConfig {
    /// Bytes of an answer that is shared; 256 KiB by default, our choice: the leader gets its answer when all of it has come.
    pub body_bytes_max: u64,
    /// How long the body may take behind its head; 2 s by default, our choice: a body without end must not hold the others up.
    pub body_within: Duration,
    /// Requests that share at once, over all exchanges; 1,000 by default, our choice: as many as may wait for a link.
    pub members_max: usize,
}

/// Names a request that shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(u64);

/// What a request does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends, and shares with nobody: as many share as may.
    Alone,
    /// Waits for what is said of it.
    Follow(MemberId),
    /// Sends, for itself and for those who follow.
    Lead(MemberId),
}

/// What is said of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoalesceOutput {
    /// It sends a request of its own, and is no longer a member.
    Alone(MemberId),
    /// It gets the leader's answer, and is no longer a member.
    Answer(MemberId),
    /// It fails as the leader did, and is no longer a member.
    Fail(MemberId),
    /// It leads now: it sends, for itself and for the others.
    Lead(MemberId),
}

/// Says who sends, who waits and who gets what.
#[derive(Debug)]
pub struct Coalesce {
    config: CoalesceConfig,
    next: u64,
    groups: BTreeMap<u64, Group>,
    /// The groups that may be followed.
    open: BTreeMap<SharedKey, u64>,
    members: BTreeMap<MemberId, u64>,
    output: VecDeque<CoalesceOutput>,
}

#[derive(Debug)]
struct Group {
    key: SharedKey,
    leader: MemberId,
    followers: VecDeque<MemberId>,
    /// The body is being read, for so long.
    reading: Option<Time>,
    read_bytes: u64,
    /// Leaders that failed for a reason of their own.
    failed: u32,
}

impl Coalesce {
    /// Makes a machine that nobody has asked anything.
    #[must_use]
    pub const fn new(config: CoalesceConfig) -> Self {
        Self {
            config,
            next: 0,
            groups: BTreeMap::new(),
            open: BTreeMap::new(),
            members: BTreeMap::new(),
            output: VecDeque::new(),
        }
    }

    /// Takes in a request that may be shared.
    pub fn handle_request(&mut self, key: SharedKey) -> Role {
        if self.members.len() >= self.config.members_max {
            return Role::Alone;
        }
        let id = MemberId(self.next);
        self.next += 1;
        let open = self.open.get(&key).copied();
        if let Some((number, group)) = open.and_then(|number| self.groups.get_mut(&number).map(|group| (number, group)))
        {
            group.followers.push_back(id);
            self.members.insert(id, number);
            return Role::Follow(id);
        }
        // The number of the first leader is that of the group.
        self.open.insert(key.clone(), id.0);
        let group = Group { key, leader: id, followers: VecDeque::new(), reading: None, read_bytes: 0, failed: 0 };
        self.groups.insert(id.0, group);
        self.members.insert(id, id.0);
        Role::Lead(id)
    }

    /// Takes in that the leader has the head of its answer, whose body has so many bytes if that is known, and is read to its end
    /// soon unless it `streams`. Says whether the leader is to read it whole, for others. If not, it is no longer a member.
    pub fn handle_head(&mut self, leader: MemberId, bytes: Option<u64>, streams: bool, now: Time) -> bool {
        let Some(group) = self.led(leader) else { return false };
        group.reading = Some(now);
        let followed = !group.followers.is_empty();
        let short = !streams && bytes.is_none_or(|bytes| bytes <= self.config.body_bytes_max);
        if !(followed && short) {
            self.dissolve(leader, CoalesceOutput::Alone);
        }
        followed && short
    }

    /// Takes in that the leader has read so many bytes more. Says whether it is to go on; if not, it is no longer a member.
    pub fn handle_data(&mut self, leader: MemberId, bytes: u64) -> bool {
        let bytes_max = self.config.body_bytes_max;
        let Some(group) = self.led(leader) else { return false };
        group.read_bytes = group.read_bytes.saturating_add(bytes);
        let short = group.read_bytes <= bytes_max;
        if !short {
            self.dissolve(leader, CoalesceOutput::Alone);
        }
        short
    }

    /// Takes in that the leader has the whole answer.
    pub fn handle_answered(&mut self, leader: MemberId) {
        self.dissolve(leader, CoalesceOutput::Answer);
    }

    /// Takes in that the leader failed, and whether the others would have failed likewise. If not, the first of them leads.
    pub fn handle_failed(&mut self, leader: MemberId, theirs_too: bool) {
        if theirs_too {
            return self.dissolve(leader, CoalesceOutput::Fail);
        }
        let Some(group) = self.led(leader) else { return };
        group.failed += 1;
        if group.failed >= FAILURES_MAX { self.dissolve(leader, CoalesceOutput::Alone) } else { self.succeed(leader) }
    }

    /// Takes in that the app no longer wants a request.
    pub fn handle_cancelled(&mut self, id: MemberId) {
        self.output.retain(|output| output.member() != id);
        let Some(number) = self.members.get(&id).copied() else { return };
        match self.groups.get_mut(&number) {
            Some(group) if group.leader != id => {
                group.followers.retain(|follower| *follower != id);
                self.members.remove(&id);
            }
            Some(_) | None => self.succeed(id),
        }
    }

    /// Takes in that a request by an unsafe method to this authority was answered or failed: nobody follows any more who asks after it.
    pub fn handle_unsafe(&mut self, authority: &str) {
        self.open.retain(|key, _| !key.is_for(authority));
    }

    /// Takes in the time.
    pub fn handle_timeout(&mut self, now: Time) {
        let within = self.config.body_within;
        let late = |group: &&Group| group.reading.is_some_and(|since| now >= since + within);
        let leaders: Vec<MemberId> = self.groups.values().filter(late).map(|group| group.leader).collect();
        leaders.into_iter().for_each(|leader| self.dissolve(leader, CoalesceOutput::Alone));
    }

    /// Returns when [`handle_timeout`](Self::handle_timeout) is wanted next.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.groups.values().filter_map(|group| group.reading).min().map(|since| since + self.config.body_within)
    }

    /// Returns what is to be said next.
    pub fn poll_output(&mut self) -> Option<CoalesceOutput> {
        self.output.pop_front()
    }

    /// Says whether a request still leads others, or may be followed.
    #[must_use]
    pub fn leads(&self, id: MemberId) -> bool {
        self.members.get(&id).and_then(|number| self.groups.get(number)).is_some_and(|group| group.leader == id)
    }

    fn led(&mut self, leader: MemberId) -> Option<&mut Group> {
        let number = self.members.get(&leader)?;
        self.groups.get_mut(number).filter(|group| group.leader == leader)
    }

    /// Ends a group and says the same to each who followed.
    fn dissolve(&mut self, leader: MemberId, say: impl Fn(MemberId) -> CoalesceOutput) {
        let Some(number) = self.led(leader).map(|_| ()).and_then(|()| self.members.get(&leader).copied()) else {
            return;
        };
        let Some(group) = self.groups.remove(&number) else { return };
        self.close(&group.key, number);
        self.members.remove(&leader);
        for follower in group.followers {
            self.members.remove(&follower);
            self.output.push_back(say(follower));
        }
    }

    /// Lets the first follower lead, or ends a group that has none.
    fn succeed(&mut self, leader: MemberId) {
        let Some(number) = self.members.remove(&leader) else { return };
        let Some(group) = self.groups.get_mut(&number) else { return };
        match group.followers.pop_front() {
            Some(next) => {
                group.leader = next;
                group.reading = None;
                group.read_bytes = 0;
                self.output.push_back(CoalesceOutput::Lead(next));
            }
            None => {
                if let Some(group) = self.groups.remove(&number) {
                    self.close(&group.key, number);
                }
            }
        }
    }

    fn close(&mut self, key: &SharedKey, number: u64) {
        if self.open.get(key) == Some(&number) {
            self.open.remove(key);
        }
    }
}

impl CoalesceOutput {
    /// Returns who is meant.
    #[must_use]
    pub const fn member(self) -> MemberId {
        match self {
            Self::Alone(id) | Self::Answer(id) | Self::Fail(id) | Self::Lead(id) => id,
        }
    }
}

impl Default for CoalesceConfig {
    fn default() -> Self {
        Self { body_bytes_max: BODY_BYTES_MAX, body_within: BODY_WITHIN, members_max: MEMBERS_MAX }
    }
}

/// 256 KiB; see [`CoalesceConfig::body_bytes_max`].
const BODY_BYTES_MAX: u64 = 256 * 1024;

/// 2 s; see [`CoalesceConfig::body_within`].
const BODY_WITHIN: Duration = Duration::from_secs(2);

/// 1,000 requests; see [`CoalesceConfig::members_max`].
const MEMBERS_MAX: usize = 1_000;

/// Leaders of a group that may fail for reasons of their own before the rest send for themselves: 2, our choice; one after the other
/// they would wait too long.
const FAILURES_MAX: u32 = 2;
