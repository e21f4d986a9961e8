//! Which of a client's sessions takes new requests, and what becomes of the others.

/// The sessions of one client: the current one, and those whose gateway is draining.
///
/// A session outlives its links, but not its gateway: when the gateway asks the client to move, the next link begins a new session,
/// and the old one only finishes what it has under way.
#[derive(Clone, Debug, Default)]
pub struct Succession {
    made: u64,
    current: Option<Current>,
    /// Oldest first.
    leaving: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Current {
    number: u64,
    open: bool,
    was_open: bool,
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

impl Succession {
    /// Returns the session the next link is for.
    pub fn heir(&mut self) -> Heir {
        if let Some(current) = &self.current {
            return Heir { number: current.number, fresh: false };
        }
        self.made += 1;
        self.current = Some(Current { number: self.made, open: false, was_open: false });
        Heir { number: self.made, fresh: true }
    }

    /// Returns the session that takes new requests, if one has a link.
    #[must_use]
    pub fn for_request(&self) -> Option<u64> {
        self.current.filter(|current| current.open).map(|current| current.number)
    }

    /// Takes in that a session has a link.
    pub fn handle_open(&mut self, number: u64) {
        if let Some(current) = self.current.as_mut().filter(|current| current.number == number) {
            current.open = true;
            current.was_open = true;
        }
    }

    /// Takes in that the gateway of a session asked the client to move. Returns a session that is over with that, since too many are
    /// leaving.
    pub fn handle_draining(&mut self, number: u64) -> Option<u64> {
        if self.current.is_some_and(|current| current.number == number) {
            self.current = None;
            self.leaving.push(number);
        }
        (self.leaving.len() > LEAVING_MAX).then(|| self.leaving.remove(0))
    }

    /// Takes in that a session lost its link; `orderly` says that either end closed it with everything said.
    pub fn handle_lost(&mut self, number: u64, orderly: bool) -> Fate {
        match self.current.as_mut() {
            Some(current) if current.number == number => {
                current.open = false;
                Fate::Resume
            }
            Some(_) | None => {
                self.leaving.retain(|leaving| *leaving != number);
                Fate::Settle { gap: !orderly || self.for_request().is_none() }
            }
        }
    }

    /// Takes in that the gateway does not take the current session back.
    pub fn handle_disowned(&mut self) -> Option<(u64, Fate)> {
        self.current.take().map(|current| (current.number, Fate::Settle { gap: current.was_open }))
    }

    /// Says whether a session is leaving and another has taken its place: its link is closed once nothing runs on it.
    #[must_use]
    pub fn is_replaced(&self, number: u64) -> bool {
        self.for_request().is_some() && self.leaving.contains(&number)
    }
}

/// Sessions that may be leaving at once. 4; our choice: a client that is sent on five times within one drain has other troubles.
const LEAVING_MAX: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Succession {
        let mut sessions = Succession::default();
        assert_eq!(sessions.heir(), Heir { number: 1, fresh: true });
        sessions.handle_open(1);
        sessions
    }

    #[test]
    fn a_lost_link_leaves_the_session_to_the_next() {
        let mut sessions = open();
        assert_eq!(sessions.for_request(), Some(1));
        assert_eq!(sessions.handle_lost(1, false), Fate::Resume);
        assert_eq!(sessions.for_request(), None);
        assert_eq!(sessions.heir(), Heir { number: 1, fresh: false });
    }

    #[test]
    fn a_session_on_a_draining_gateway_stays_until_a_new_one_is_open() {
        let mut sessions = open();
        assert_eq!(sessions.handle_draining(1), None);
        assert_eq!(sessions.for_request(), None);
        assert_eq!(sessions.heir(), Heir { number: 2, fresh: true });
        assert!(!sessions.is_replaced(1), "pushes still come over it");
        sessions.handle_open(2);
        assert!(sessions.is_replaced(1));
        assert!(!sessions.is_replaced(2));
        assert_eq!(sessions.handle_lost(1, true), Fate::Settle { gap: false });
        assert_eq!(sessions.for_request(), Some(2));
    }

    #[test]
    fn a_leaving_session_that_is_lost_too_early_is_a_gap() {
        let mut sessions = open();
        sessions.handle_draining(1);
        assert_eq!(sessions.handle_lost(1, true), Fate::Settle { gap: true }, "nothing took its place yet");
        let mut sessions = open();
        sessions.handle_draining(1);
        sessions.heir();
        sessions.handle_open(2);
        assert_eq!(sessions.handle_lost(1, false), Fate::Settle { gap: true }, "it broke");
    }

    #[test]
    fn a_disowned_session_is_over_and_a_gap_only_if_there_was_one() {
        let mut sessions = open();
        assert_eq!(sessions.handle_disowned(), Some((1, Fate::Settle { gap: true })));
        assert_eq!(sessions.heir(), Heir { number: 2, fresh: true });
        assert_eq!(sessions.handle_disowned(), Some((2, Fate::Settle { gap: false })));
        assert_eq!(sessions.handle_disowned(), None);
    }

    #[test]
    fn no_more_than_a_few_sessions_leave_at_once() {
        let mut sessions = Succession::default();
        for number in 1..=4 {
            sessions.heir();
            sessions.handle_open(number);
            assert_eq!(sessions.handle_draining(number), None);
        }
        sessions.heir();
        assert_eq!(sessions.handle_draining(5), Some(1));
        assert_eq!(sessions.handle_draining(5), None);
    }
}
