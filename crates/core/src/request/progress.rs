//! Whether a request that failed is sent again.

use http::Method;

use super::Budget;
use crate::{Time, session::Closed, wire::message::ResetCode};

/// What of a request decides whether it may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// It may be executed twice: by its method ([`is_idempotent`]), or because it carries an `Idempotency-Key`.
    pub idempotent: bool,
    /// Its body is at hand from its first byte on.
    pub replayable: bool,
}

/// One request over all its sends.
#[derive(Clone, Debug)]
pub struct Progress {
    facts: RequestFacts,
    deadline: Time,
    sends: u32,
}

/// What to do after a send failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Tell the app.
    Fail(Failure),
    /// Send it again.
    Resend,
}

/// How a request ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was not executed, and cannot be sent again from here: its body is used up, or it was tried often enough.
    NotExecuted,
    /// It may have been executed.
    OutcomeUnknown,
    /// The peer ended it for a reason of its own.
    Reset,
}

impl Progress {
    /// Begins a request that must be answered by `deadline`.
    #[must_use]
    pub const fn new(facts: RequestFacts, deadline: Time) -> Self {
        Self { facts, deadline, sends: 0 }
    }

    /// Takes in that the request is being sent.
    pub fn handle_send(&mut self, budget: &mut Budget) {
        if self.sends == 0 {
            budget.handle_request();
        }
        self.sends += 1;
    }

    /// Returns how often the request was sent.
    #[must_use]
    pub const fn sends(&self) -> u32 {
        self.sends
    }

    /// Judges the end of a send that brought no answer's head. Once the app has the head, nothing is ever sent again.
    ///
    /// What was never executed may be sent again whatever its method, free of charge. What may have been executed is sent again
    /// only if it may run twice, and is paid from the budget.
    pub fn handle_closed(&self, closed: &Closed, budget: &mut Budget, now: Time) -> Verdict {
        let again = self.facts.replayable && self.sends < SENDS_MAX && now < self.deadline;
        match closed {
            Closed::NeverSeen if again => Verdict::Resend,
            Closed::NeverSeen => Verdict::Fail(Failure::NotExecuted),
            Closed::Unknown if again && self.facts.idempotent && budget.pay() => Verdict::Resend,
            Closed::Unknown => Verdict::Fail(Failure::OutcomeUnknown),
            // It ran, and its answer is no longer kept for the link that took over.
            Closed::Reset { code: ResetCode::Unreplayable, .. } if again && self.facts.idempotent && budget.pay() => {
                Verdict::Resend
            }
            Closed::Reset { .. } => Verdict::Fail(Failure::Reset),
        }
    }
}

/// Says whether a method may be executed twice to the same effect as once (RFC 9110 section 9.2.2).
#[must_use]
pub fn is_idempotent(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::PUT, Method::DELETE].contains(method)
}

/// Sends of one request. 4: the first and three more, the most tries DESIGN section 5 gives one way.
const SENDS_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const POST: RequestFacts = RequestFacts { idempotent: false, replayable: true };
    const GET: RequestFacts = RequestFacts { idempotent: true, replayable: true };
    const DEADLINE: Time = Time::from_origin(Duration::from_secs(40));

    fn sent(facts: RequestFacts, budget: &mut Budget) -> Progress {
        let mut progress = Progress::new(facts, DEADLINE);
        progress.handle_send(budget);
        progress
    }

    #[test]
    fn what_was_never_seen_is_sent_again_whatever_its_method() {
        let mut budget = Budget::new();
        let progress = sent(POST, &mut budget);
        assert_eq!(progress.handle_closed(&Closed::NeverSeen, &mut budget, Time::ZERO), Verdict::Resend);
        let streamed = sent(RequestFacts { replayable: false, ..POST }, &mut budget);
        let verdict = streamed.handle_closed(&Closed::NeverSeen, &mut budget, Time::ZERO);
        assert_eq!(verdict, Verdict::Fail(Failure::NotExecuted));
    }

    #[test]
    fn what_may_have_run_is_sent_again_only_if_it_may_run_twice() {
        let mut budget = Budget::new();
        let unknown = Verdict::Fail(Failure::OutcomeUnknown);
        for (facts, verdict) in [
            (GET, Verdict::Resend),
            (POST, unknown),
            (RequestFacts { replayable: false, ..GET }, unknown),
            (RequestFacts { replayable: false, ..POST }, unknown),
        ] {
            let progress = sent(facts, &mut budget);
            assert_eq!(progress.handle_closed(&Closed::Unknown, &mut budget, Time::ZERO), verdict, "{facts:?}");
        }
    }

    #[test]
    fn only_what_may_have_run_is_paid_for() {
        let mut budget = Budget::new();
        while budget.pay() {}
        let progress = Progress { sends: 1, ..Progress::new(GET, DEADLINE) };
        let verdict = progress.handle_closed(&Closed::Unknown, &mut budget, Time::ZERO);
        assert_eq!(verdict, Verdict::Fail(Failure::OutcomeUnknown));
        assert_eq!(progress.handle_closed(&Closed::NeverSeen, &mut budget, Time::ZERO), Verdict::Resend);
    }

    #[test]
    fn neither_after_the_deadline_nor_without_end() {
        let mut budget = Budget::new();
        let mut progress = sent(GET, &mut budget);
        let late = progress.handle_closed(&Closed::NeverSeen, &mut budget, DEADLINE);
        assert_eq!(late, Verdict::Fail(Failure::NotExecuted));
        let mut resends = 0;
        while progress.handle_closed(&Closed::NeverSeen, &mut budget, Time::ZERO) == Verdict::Resend {
            progress.handle_send(&mut budget);
            resends += 1;
        }
        assert_eq!(resends, 3);
    }

    #[test]
    fn a_reset_is_final() {
        let mut budget = Budget::new();
        let reset = Closed::Reset { code: ResetCode::UpstreamCut, detail: String::new() };
        let verdict = sent(GET, &mut budget).handle_closed(&reset, &mut budget, Time::ZERO);
        assert_eq!(verdict, Verdict::Fail(Failure::Reset));
    }

    #[test]
    fn an_answer_that_is_no_longer_kept_is_asked_for_again_where_it_may_be() {
        let mut budget = Budget::new();
        let lost = Closed::Reset { code: ResetCode::Unreplayable, detail: String::new() };
        assert_eq!(sent(GET, &mut budget).handle_closed(&lost, &mut budget, Time::ZERO), Verdict::Resend);
        let verdict = sent(POST, &mut budget).handle_closed(&lost, &mut budget, Time::ZERO);
        assert_eq!(verdict, Verdict::Fail(Failure::Reset));
    }

    #[test]
    fn idempotent_methods_are_those_of_the_rfc() {
        for (method, idempotent) in [
            (Method::GET, true),
            (Method::HEAD, true),
            (Method::OPTIONS, true),
            (Method::TRACE, true),
            (Method::PUT, true),
            (Method::DELETE, true),
            (Method::POST, false),
            (Method::PATCH, false),
            (Method::CONNECT, false),
        ] {
            assert_eq!(is_idempotent(&method), idempotent, "{method}");
        }
    }
}
