//! Whether no place that is tried for a link can be had, as far as that is known at once.

use std::{collections::BTreeMap, net::SocketAddr};

use crate::{
    Time,
    connect::FailReason,
    request::{Denial, Denied},
};

/// The places of the attempt that is under way, and which of them cannot be had: nobody listens there, or there is no route.
///
/// An address counts as one that refuses if it did on one carrier and was silent on the others: a port of UDP where nobody listens
/// says nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Denials {
    places: BTreeMap<SocketAddr, Option<Denial>>,
    at: Option<Time>,
    /// The places are those of an attempt before.
    is_over: bool,
}

impl Denials {
    /// Takes in that another attempt begins; what is known stands until the first of its places is tried.
    pub(super) const fn handle_attempt(&mut self) {
        self.is_over = true;
    }

    /// Takes in that a place is tried.
    pub(super) fn handle_dial(&mut self, place: SocketAddr) {
        if std::mem::take(&mut self.is_over) {
            self.handle_life();
        }
        self.places.entry(place).or_default();
    }

    /// Takes in that a place could not be reached.
    pub(super) fn handle_failed(&mut self, place: SocketAddr, reason: FailReason, now: Time) {
        let denial = match reason {
            FailReason::Refused => Denial::Refused,
            FailReason::Unreachable => Denial::Unreachable,
            FailReason::Closed
            | FailReason::Handshake
            | FailReason::Rejected
            | FailReason::TimedOut
            | FailReason::Untrusted => return,
        };
        if let Some(known) = self.places.get_mut(&place) {
            *known = Some(denial);
            self.at = Some(now);
        }
    }

    /// Takes in that something came back from one of them.
    pub(super) fn handle_life(&mut self) {
        self.places.clear();
        self.at = None;
    }

    /// Returns what all of them said, if they did.
    pub(super) fn denied(&self) -> Option<Denied> {
        let all: Option<Vec<Denial>> = self.places.values().copied().collect();
        Some(Denied { at: self.at?, why: all?.into_iter().max()? })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Time {
        Time::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn all_refuse_once_each_has_and_no_longer_when_another_attempt_or_sign_of_life_comes() {
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let mut denials = Denials::default();
        let at_of = |denials: &Denials| denials.denied().map(|denied| denied.at);
        assert_eq!(at_of(&denials), None);
        denials.handle_dial(one);
        denials.handle_dial(other);
        denials.handle_failed(one, FailReason::Refused, at(1));
        denials.handle_failed(other, FailReason::TimedOut, at(2));
        assert_eq!(at_of(&denials), None, "one was silent");
        denials.handle_failed(other, FailReason::Refused, at(3));
        assert_eq!(at_of(&denials), Some(at(3)));
        denials.handle_attempt();
        assert_eq!(at_of(&denials), Some(at(3)), "nothing new is known");
        denials.handle_dial(one);
        assert_eq!(at_of(&denials), None);
        denials.handle_failed(one, FailReason::Refused, at(500));
        assert_eq!(at_of(&denials), Some(at(500)));
        denials.handle_life();
        denials.handle_failed(one, FailReason::Refused, at(600));
        assert_eq!(at_of(&denials), None);
    }
    #[test]
    fn where_the_device_has_no_route_to_one_and_another_refuses_it_is_offline() {
        let [one, other] = [1, 2].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let mut denials = Denials::default();
        denials.handle_dial(one);
        denials.handle_failed(one, FailReason::Refused, at(1));
        assert_eq!(denials.denied(), Some(Denied { at: at(1), why: Denial::Refused }));
        denials.handle_dial(other);
        denials.handle_failed(other, FailReason::Unreachable, at(2));
        assert_eq!(denials.denied(), Some(Denied { at: at(2), why: Denial::Unreachable }));
    }
}
