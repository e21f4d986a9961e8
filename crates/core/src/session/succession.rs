//! Which of a client's sessions takes new requests, and what becomes of the others.

use std::time::Duration;

use crate::Time;

/// The sessions of one client: the current one, one that may take its place, and those that are being left.
///
/// A session outlives its links, but not its gateway: where the client moves to another, the next link begins a new session, and the
/// old one only finishes what it has under way.
#[derive(Clone, Debug, Default)]
pub struct Succession {
    made: u64,
    current: Option<Current>,
    /// A session at another gateway, which becomes the current one with its first link.
    next: Option<u64>,
    /// Oldest first.
    leaving: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    number: u64,
    open: bool,
    was_open: bool,
    /// Since when it has no link, while something may be under way on it.
    lost_at: Option<Time>,
}

impl Current {
    const fn new(number: u64, open: bool) -> Self {
        Self { number, open, was_open: open, lost_at: None }
    }
}

/// The session the next link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heir {
    /// Its number.
    pub number: u64,
    /// It is new: the owner makes it.
    pub fresh: bool,
}

/// What becomes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It waits for another link.
    Resume,
    /// It is over: its exchanges are settled now.
    Settle {
        /// Messages may have been lost with it.
        gap: bool,
    },
}

/// A session that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Its number.
    pub number: u64,
    /// Messages may have been lost with it.
    pub gap: bool,
}

impl Succession {
    /// Returns the session the next link is for. `apart` says that the link leads to another gateway than the current session's, which
    /// knows nothing of it: the link gets a session of its own.
    pub fn heir(&mut self, apart: bool) -> Heir {
        match (&self.current, self.next) {
            (Some(current), Some(next)) if apart && current.was_open => Heir { number: next, fresh: false },
            (Some(current), None) if apart && current.was_open => {
                self.made += 1;
                self.next = Some(self.made);
                Heir { number: self.made, fresh: true }
            }
            (Some(current), _) => Heir { number: current.number, fresh: false },
            (None, _) => {
                self.made += 1;
                self.current = Some(Current::new(self.made, false));
                Heir { number: self.made, fresh: true }
            }
        }
    }

    /// Returns the session that takes new requests, if one has a link.
    #[must_use]
    pub fn for_request(&self) -> Option<u64> {
        self.current.filter(|current| current.open).map(|current| current.number)
    }

    /// Returns the current session, with or without a link.
    #[must_use]
    pub fn current(&self) -> Option<u64> {
        self.current.map(|current| current.number)
    }

    /// Takes in that a session has a link. Returns the session that is over with that: one that was made to take the current one's place
    /// and is not needed, the one whose place is taken if it has no link any more, or one too many of those that are leaving.
    pub fn handle_open(&mut self, number: u64) -> Option<Over> {
        if self.next == Some(number) {
            self.next = None;
            let replaced = self.current.replace(Current::new(number, true))?;
            if !replaced.open {
                return Some(Over { number: replaced.number, gap: replaced.was_open });
            }
            return self.leave(replaced.number);
        }
        let current = self.current.as_mut().filter(|current| current.number == number)?;
        *current = Current::new(number, true);
        self.next.take().map(|number| Over { number, gap: false })
    }

    /// Takes in that a session is to be left, because its gateway asked for it or does not serve. Returns a session that is over with
    /// that, since too many are leaving.
    pub fn handle_draining(&mut self, number: u64) -> Option<Over> {
        if self.current.is_none_or(|current| current.number != number) {
            return None;
        }
        self.current = self.next.take().map(|number| Current::new(number, false));
        self.leave(number)
    }

    /// Takes in that a session lost its link; `orderly` says that either end closed it with everything said.
    pub fn handle_lost(&mut self, number: u64, orderly: bool, now: Time) -> Fate {
        match self.current.as_mut() {
            Some(current) if current.number == number => {
                *current = Current { open: false, lost_at: Some(now), ..*current };
                Fate::Resume
            }
            Some(_) | None if self.next == Some(number) => Fate::Resume,
            Some(_) | None => {
                self.leaving.retain(|leaving| *leaving != number);
                Fate::Settle { gap: !orderly || self.for_request().is_none() }
            }
        }
    }

    /// Takes in that a greeting for a session came to nothing: it waits for another, unless it is being left.
    pub fn handle_greet_failed(&mut self, number: u64) {
        self.leaving.retain(|leaving| *leaving != number);
    }

    /// Returns the session that has had no link for longer than gateways keep answers: what is under way on it ends, and the session itself
    /// still waits for a link.
    pub fn handle_timeout(&mut self, now: Time) -> Option<u64> {
        let due = self.poll_timeout().is_some_and(|at| at <= now);
        let current = self.current.as_mut().filter(|_| due)?;
        current.lost_at = None;
        Some(current.number)
    }

    /// Returns when that is.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        self.current.and_then(|current| current.lost_at).map(|lost_at| lost_at + ANSWERS_KEPT_FOR)
    }

    /// Takes in that a gateway does not take a session back.
    pub fn handle_disowned(&mut self, number: u64) -> Option<Over> {
        if let Some(current) = self.current.take_if(|current| current.number == number) {
            self.current = self.next.take().map(|number| Current::new(number, false));
            return Some(Over { number, gap: current.was_open });
        }
        self.next.take_if(|next| *next == number).map(|number| Over { number, gap: false })
    }

    /// Lists the sessions that are leaving and whose place another has taken: their links are closed once nothing runs on them.
    pub fn replaced(&self) -> impl Iterator<Item = u64> {
        let taken = self.for_request().is_some();
        self.leaving.iter().copied().filter(move |_| taken)
    }

    fn leave(&mut self, number: u64) -> Option<Over> {
        self.leaving.push(number);
        (self.leaving.len() > LEAVING_MAX).then(|| Over { number: self.leaving.remove(0), gap: true })
    }
}

/// Sessions that may be leaving at once. 4; our choice: a client that is sent on five times within one drain has other troubles.
const LEAVING_MAX: usize = 4;

/// How long what is under way waits for a link. 60 s; as long as a gateway keeps answers for one (DESIGN section 4).
const ANSWERS_KEPT_FOR: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::from_origin(Duration::from_secs(seconds))
    }

    fn open() -> Succession {
        let mut sessions = Succession::default();
        assert_eq!(sessions.heir(false), Heir { number: 1, fresh: true });
        assert_eq!(sessions.handle_open(1), None);
        sessions
    }

    fn replaced(sessions: &Succession) -> Vec<u64> {
        sessions.replaced().collect()
    }

    #[test]
    fn a_lost_link_leaves_the_session_to_the_next() {
        let mut sessions = open();
        assert_eq!(sessions.for_request(), Some(1));
        assert_eq!(sessions.handle_lost(1, false, Time::ZERO), Fate::Resume);
        assert_eq!(sessions.for_request(), None);
        assert_eq!(sessions.heir(false), Heir { number: 1, fresh: false });
    }

    #[test]
    fn what_is_under_way_on_a_session_waits_as_long_for_a_link_as_gateways_keep_answers() {
        let mut sessions = open();
        assert_eq!(sessions.poll_timeout(), None);
        sessions.handle_lost(1, false, at(10));
        sessions.heir(false);
        sessions.handle_greet_failed(1);
        assert_eq!(sessions.poll_timeout(), Some(at(70)), "a greeting in vain changes nothing");
        assert_eq!(sessions.handle_timeout(at(69)), None);
        assert_eq!(sessions.handle_timeout(at(70)), Some(1));
        assert_eq!((sessions.handle_timeout(at(200)), sessions.poll_timeout()), (None, None));
        assert_eq!(sessions.heir(false), Heir { number: 1, fresh: false }, "the session itself goes on");

        let mut sessions = open();
        sessions.handle_lost(1, false, at(10));
        sessions.handle_open(1);
        assert_eq!(sessions.poll_timeout(), None, "it has a link again");
    }

    #[test]
    fn a_session_on_a_draining_gateway_stays_until_a_new_one_is_open() {
        let mut sessions = open();
        assert_eq!(sessions.handle_draining(1), None);
        assert_eq!(sessions.for_request(), None);
        assert_eq!(sessions.heir(false), Heir { number: 2, fresh: true });
        assert!(replaced(&sessions).is_empty(), "pushes still come over it");
        sessions.handle_open(2);
        assert_eq!(replaced(&sessions), [1]);
        assert_eq!(sessions.handle_lost(1, true, Time::ZERO), Fate::Settle { gap: false });
        assert_eq!(sessions.for_request(), Some(2));
    }

    #[test]
    fn a_leaving_session_that_is_lost_too_early_is_a_gap() {
        let mut sessions = open();
        sessions.handle_draining(1);
        assert_eq!(sessions.handle_lost(1, true, Time::ZERO), Fate::Settle { gap: true }, "nothing took its place yet");
        let mut sessions = open();
        sessions.handle_draining(1);
        sessions.heir(false);
        sessions.handle_open(2);
        assert_eq!(sessions.handle_lost(1, false, Time::ZERO), Fate::Settle { gap: true }, "it broke");
    }

    #[test]
    fn a_disowned_session_is_over_and_a_gap_only_if_there_was_one() {
        let mut sessions = open();
        assert_eq!(sessions.handle_disowned(1), Some(Over { number: 1, gap: true }));
        assert_eq!(sessions.heir(false), Heir { number: 2, fresh: true });
        assert_eq!(sessions.handle_disowned(2), Some(Over { number: 2, gap: false }));
        assert_eq!(sessions.handle_disowned(2), None);
    }

    #[test]
    fn no_more_than_a_few_sessions_leave_at_once() {
        let mut sessions = Succession::default();
        for number in 1..=4 {
            sessions.heir(false);
            sessions.handle_open(number);
            assert_eq!(sessions.handle_draining(number), None);
        }
        sessions.heir(false);
        assert_eq!(sessions.handle_draining(5), Some(Over { number: 1, gap: true }));
        assert_eq!(sessions.handle_draining(5), None);
    }

    #[test]
    fn a_link_to_another_gateway_has_a_session_of_its_own_and_the_old_one_finishes() {
        let mut sessions = open();
        assert_eq!(sessions.heir(true), Heir { number: 2, fresh: true });
        assert_eq!(sessions.for_request(), Some(1), "the new one is not open yet");
        sessions.handle_greet_failed(2);
        assert_eq!(sessions.heir(true), Heir { number: 2, fresh: false });
        assert_eq!(sessions.handle_open(2), None);
        assert_eq!(sessions.for_request(), Some(2));
        assert_eq!(replaced(&sessions), [1]);
    }

    #[test]
    fn a_session_without_a_link_is_over_once_another_gateway_took_its_place() {
        let mut sessions = open();
        sessions.handle_lost(1, false, Time::ZERO);
        sessions.heir(true);
        assert_eq!(sessions.handle_open(2), Some(Over { number: 1, gap: true }));
        assert!(replaced(&sessions).is_empty());
    }

    #[test]
    fn a_session_that_was_made_for_another_gateway_and_is_not_needed_is_over() {
        let mut sessions = open();
        sessions.heir(true);
        sessions.handle_lost(1, false, Time::ZERO);
        assert_eq!(sessions.heir(false), Heir { number: 1, fresh: false });
        assert_eq!(sessions.handle_open(1), Some(Over { number: 2, gap: false }));
    }

    #[test]
    fn a_session_that_was_never_open_moves_to_whatever_gateway_answers() {
        let mut sessions = Succession::default();
        sessions.heir(false);
        assert_eq!(sessions.heir(true), Heir { number: 1, fresh: false });
    }
}
