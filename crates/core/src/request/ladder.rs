//! How one request climbs: from one way to the next, and to another link where there is one.

mod config;
mod output;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

pub use self::{
    config::LadderConfig,
    output::{Denial, Denied, LadderOutput, LinkView, Rung, TryEnd, TryId},
};
use super::{Budget, Failure, RequestFacts, Way};
use crate::Time;

/// One request over all its ways.
///
/// A way that fails before the request was handed over is followed by the next at once and free of charge; so is the first whose
/// answer says that it was not executed. Where it may have been executed, an answer of 502, 503 or 504 included, only a request that may
/// be executed twice goes on, and pays from the client's [`Budget`]. A way that takes long to get the request handed over is left for the
/// next. One that takes its time to answer is not given up: the next one starts beside it, and the first answer counts. What may not be
/// executed twice waits for the one way it was handed to.
#[derive(Clone, Debug)]
pub struct Ladder {
    config: LadderConfig,
    facts: RequestFacts,
    /// The ways that are left, the next one first.
    rungs: VecDeque<Rung>,
    tries: BTreeMap<TryId, Try>,
    /// How many tries of each way have begun.
    begun: BTreeMap<Way, usize>,
    made: u32,
    /// How the link is, as told last.
    link: LinkView,
    /// Links that were tried.
    links: u32,
    /// The link's step, passed over because none could be expected.
    passed_over: Option<Rung>,
    /// An answer said that the request was not executed.
    was_unexecuted: bool,
    /// Tries at whose end a gateway said that the service broke off.
    broken_off: u32,
    /// The answer is too large for the ways that hold it whole.
    is_large: bool,
    /// It was counted as a request.
    is_counted: bool,
    /// How the last try ended.
    last: Option<TryEnd>,
    /// One of them may have run.
    may_have_run: bool,
    /// The owner has an answer for the app, that the service cannot be had, if nothing better comes.
    has_answer: bool,
    has_failed: bool,
    outputs: VecDeque<LadderOutput>,
}

impl Ladder {
    /// Begins with the ways in their order. The first starts at once, a link as soon as there is one.
    #[must_use]
    pub fn new(
        config: LadderConfig,
        facts: RequestFacts,
        rungs: impl IntoIterator<Item = Rung>,
        link: LinkView,
        budget: &mut Budget,
        now: Time,
    ) -> Self {
        let mut ladder = Self {
            config,
            facts,
            rungs: rungs.into_iter().take(RUNGS_MAX).collect(),
            tries: BTreeMap::new(),
            begun: BTreeMap::new(),
            made: 0,
            link,
            links: 0,
            passed_over: None,
            was_unexecuted: false,
            broken_off: 0,
            is_large: false,
            is_counted: false,
            last: None,
            may_have_run: false,
            has_answer: false,
            has_failed: false,
            outputs: VecDeque::new(),
        };
        ladder.settle(budget, now);
        ladder
    }

    /// Puts other ways in the place of those that have not started, and other facts, as when the gateways say what they serve. Of each
    /// new way as many tries are left out as have begun.
    pub fn replace(
        &mut self,
        facts: RequestFacts,
        rungs: impl IntoIterator<Item = Rung>,
        budget: &mut Budget,
        now: Time,
    ) {
        self.facts = facts;
        let rungs: Vec<Rung> = rungs.into_iter().take(RUNGS_MAX).collect();
        let is_wanted = rungs.iter().any(|rung| rung.way == Way::Link);
        self.tries.retain(|_, running| is_wanted || !running.is_waiting());
        let mut begun = self.begun.clone();
        let is_new = |rung: &Rung| match begun.get_mut(&rung.way) {
            Some(times) if *times > 0 => {
                *times -= 1;
                false
            }
            Some(_) | None => true,
        };
        self.rungs = rungs.into_iter().filter(is_new).collect();
        self.leave_held_ways();
        self.leave_broken_off();
        if self.tries.is_empty() {
            self.settle(budget, now);
        }
    }

    /// Says whether a try that an answer has ended, in this sense, would be followed by another, or is not alone. If not, the answer is
    /// the app's.
    #[must_use]
    pub fn may_climb(&self, number: TryId, end: TryEnd) -> bool {
        let Some(running) = self.tries.get(&number) else { return false };
        let is_left = !self.rungs.is_empty() || self.tries.len() > 1;
        let may_be_sent = match end {
            TryEnd::BrokenOff { .. }
                if self.tries.len() == 1 && self.broken_off >= self.config.broken_off_again_max =>
            {
                false
            }
            TryEnd::BrokenOff { may_have_run: true } | TryEnd::MayHaveRun | TryEnd::TooLarge | TryEnd::Unavailable => {
                self.may_be_doubled()
            }
            TryEnd::BrokenOff { may_have_run: false } | TryEnd::NotExecuted | TryEnd::NotSent => self.facts.replayable,
            TryEnd::Reset => false,
        };
        may_be_sent && (is_left || self.another_link_may_help(running, end))
    }

    /// Takes in how the link is.
    pub fn handle_link(&mut self, link: LinkView, budget: &mut Budget, now: Time) {
        self.link = link;
        let LinkView::Open { session, is_sure, .. } = link else {
            // What no carrier has yet waits for a link of any session.
            let on_links = self.tries.iter().filter(|(_, running)| running.session.is_some());
            self.outputs.extend(on_links.map(|(number, _)| LadderOutput::Recall(*number)));
            if link == LinkView::None
                && let Some(number) = self.waiting()
            {
                self.handle_ended(number, TryEnd::NotSent, budget, now);
            }
            return;
        };
        if let Some(number) = self.waiting() {
            if self.is_good_enough(is_sure) {
                self.send_when_alone(number, session, budget, now);
            }
            return;
        }
        let sent = self.tries.iter().filter(|(_, running)| running.session.is_some());
        let (elsewhere, here): (Vec<_>, Vec<_>) = sent.partition(|(_, running)| running.session != Some(session));
        let is_spent = self.links >= self.config.links_max || self.is_broken_off();
        if !is_sure || !here.is_empty() || elsewhere.is_empty() || is_spent {
            return;
        }
        let elsewhere: Vec<TryId> = elsewhere.into_iter().map(|(number, _)| *number).collect();
        if self.may_be_doubled() {
            // The old link may still answer: whichever is first counts.
            if budget.pay() {
                let number = self.add(self.tries[&elsewhere[0]].rung, now);
                self.send_on_link(number, session, budget, now);
            }
        } else {
            self.outputs.extend(elsewhere.into_iter().map(LadderOutput::Recall));
        }
    }

    /// Takes in until when further ways may become known; `None` if none can.
    pub fn handle_ways_until(&mut self, until: Option<Time>, budget: &mut Budget, now: Time) {
        if std::mem::replace(&mut self.config.ways_until, until) != until && self.tries.is_empty() {
            self.settle(budget, now);
        }
    }

    /// Gives a try that starts now as much time to the first byte of its answer as is right by what is known by now.
    pub fn set_first_byte(&mut self, number: TryId, first_byte: Duration) {
        if let Some(running) = self.tries.get_mut(&number) {
            running.rung.first_byte = first_byte;
        }
    }

    /// Takes in that a try ended without an answer for the app.
    pub fn handle_ended(&mut self, number: TryId, end: TryEnd, budget: &mut Budget, now: Time) {
        let Some(ended) = self.tries.remove(&number) else { return };
        self.last = Some(end);
        self.is_large |= end == TryEnd::TooLarge;
        self.may_have_run |= match end {
            TryEnd::BrokenOff { may_have_run } => may_have_run,
            TryEnd::MayHaveRun | TryEnd::TooLarge | TryEnd::Unavailable => true,
            TryEnd::NotExecuted | TryEnd::NotSent | TryEnd::Reset => false,
        };
        self.has_answer |= matches!(end, TryEnd::BrokenOff { .. } | TryEnd::Unavailable);
        self.broken_off += u32::from(matches!(end, TryEnd::BrokenOff { .. }));
        self.leave_held_ways();
        self.leave_broken_off();
        let again = self.facts.replayable;
        let goes_on = match end {
            TryEnd::BrokenOff { .. } if self.is_broken_off() => false,
            // One that is late does not answer for it: the next would start beside.
            TryEnd::BrokenOff { may_have_run: true } | TryEnd::MayHaveRun | TryEnd::TooLarge | TryEnd::Unavailable => {
                self.may_be_doubled() && (self.tries.values().any(|running| !running.is_late) || budget.pay())
            }
            // A gateway that is too busy must not be asked over and over by everyone.
            TryEnd::BrokenOff { may_have_run: false } | TryEnd::NotExecuted => {
                again && (!std::mem::replace(&mut self.was_unexecuted, true) || budget.pay())
            }
            TryEnd::NotSent => true,
            TryEnd::Reset => false,
        };
        if !goes_on {
            // What waits for a link would be a second one.
            self.tries.retain(|_, running| !running.is_waiting());
            return self.fail_unless_running();
        }
        if let (Some(waiting), LinkView::Open { session, is_sure, .. }) = (self.waiting(), self.link)
            && self.is_good_enough(is_sure)
        {
            return self.send_when_alone(waiting, session, budget, now);
        }
        // After one that was late it is another way's turn; where none is left, what nobody has received waits for another link.
        let is_links_turn = !ended.is_late || self.rungs.is_empty() && end == TryEnd::NotSent;
        if self.tries.is_empty() && is_links_turn && self.another_link_may_help(&ended, end) {
            let waiting = self.add(ended.rung, now);
            if let LinkView::Open { session, is_sure, .. } = self.link
                && (Some(session) != ended.session || end != TryEnd::NotExecuted)
                && self.is_good_enough(is_sure)
            {
                self.send_on_link(waiting, session, budget, now);
            }
            return;
        }
        self.settle(budget, now);
    }

    /// Takes in that time has passed.
    pub fn handle_timeout(&mut self, budget: &mut Budget, now: Time) {
        if self.answers_at().is_some_and(|at| at <= now) {
            self.rungs.clear();
            self.tries.clear();
            return self.fail_unless_running();
        }
        if self.ways_until().is_some_and(|at| at <= now) {
            return self.settle(budget, now);
        }
        let due: Vec<TryId> = self
            .tries
            .iter()
            .filter(|(_, running)| self.due(running) <= Some(now))
            .map(|(number, _)| *number)
            .collect();
        for number in due {
            let Some(running) = self.tries.get(&number).cloned() else { continue };
            if self.due(&running).is_none_or(|at| now < at) {
                continue;
            }
            let waits = running.is_waiting();
            if waits && self.waits_until(&running) <= now {
                if let LinkView::Open { session, .. } = self.link
                    && self.is_alone(number)
                {
                    // Nothing better came: the link may still be what it was.
                    self.send_on_link(number, session, budget, now);
                    continue;
                }
                self.tries.remove(&number);
                self.last.get_or_insert(TryEnd::NotSent);
                self.settle(budget, now);
                continue;
            }
            if self.is_connecting(&running) && now < running.began + running.rung.first_byte {
                if let Some(running) = self.tries.get_mut(&number) {
                    running.is_checked = true;
                }
                if !self.rungs.is_empty() {
                    self.outputs.push_back(LadderOutput::Recall(number));
                }
                continue;
            }
            if let Some(running) = self.tries.get_mut(&number) {
                running.is_late = true;
            }
            self.outputs.extend(running.session.map(|session| LadderOutput::Late { session }));
            // What may not run twice waits where it was handed over; the owner knows whether it was.
            if waits || self.may_be_doubled() {
                self.climb_beside(waits, budget, now);
            } else if !self.rungs.is_empty() {
                self.outputs.push_back(LadderOutput::Recall(number));
            }
        }
    }

    /// Returns the next deadline.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        let due = self.tries.values().filter_map(|running| self.due(running));
        due.chain(self.answers_at()).chain(self.ways_until()).min()
    }

    /// Returns the next thing the owner has to do.
    pub fn poll_output(&mut self) -> Option<LadderOutput> {
        self.outputs.pop_front()
    }

    /// Says whether a link is waited for.
    #[must_use]
    pub fn waits_for_link(&self) -> bool {
        self.waiting().is_some()
    }

    /// Returns when the app has the answer there is, in time to be read.
    fn answers_at(&self) -> Option<Time> {
        self.config.wait_until.filter(|_| self.has_answer && !self.has_failed)
    }

    /// Returns until when further ways are waited for, where nothing else is left and nothing was sent.
    fn ways_until(&self) -> Option<Time> {
        let is_answered = self.has_answer || self.may_have_run;
        let may_wait = self.tries.is_empty() && !self.has_failed && !is_answered;
        self.config.ways_until.filter(|_| may_wait)
    }

    fn waiting(&self) -> Option<TryId> {
        self.tries.iter().find(|(_, running)| running.is_waiting()).map(|(number, _)| *number)
    }

    /// Says whether a request whose try over a link has ended so may go on over another.
    fn another_link_may_help(&self, ended: &Try, end: TryEnd) -> bool {
        if ended.rung.way != Way::Link || self.links >= self.config.links_max {
            return false;
        }
        match self.link {
            LinkView::None => false,
            LinkView::Open { session, can_move, .. } => {
                Some(session) != ended.session
                    || match end {
                        TryEnd::NotExecuted => can_move,
                        // The service itself may have said so: that is no reason to wait for another gateway, or to ask this one again.
                        TryEnd::BrokenOff { .. } | TryEnd::Unavailable => false,
                        TryEnd::MayHaveRun | TryEnd::NotSent | TryEnd::Reset | TryEnd::TooLarge => true,
                    }
            }
            LinkView::Sought { .. } => !matches!(end, TryEnd::BrokenOff { .. } | TryEnd::Unavailable),
        }
    }

    /// Starts the next way, or fails where nothing is left and nothing under way.
    fn settle(&mut self, budget: &mut Budget, now: Time) {
        if self.tries.values().all(|running| running.is_late) && self.climb(budget, now) {
            return;
        }
        if self.ways_until().is_none_or(|at| at <= now) {
            self.fail_unless_running();
        }
    }

    /// Leaves out the ways that hold an answer whole, once it is known to be too large for them.
    fn leave_held_ways(&mut self) {
        if self.is_large {
            self.rungs.retain(|rung| !rung.way.is_held());
        }
    }

    /// Says whether the service has broken off as often as it may.
    const fn is_broken_off(&self) -> bool {
        self.broken_off > self.config.broken_off_again_max
    }

    /// Leaves out all ways that are left, once the service has broken off as often as it may.
    fn leave_broken_off(&mut self) {
        if self.is_broken_off() {
            self.rungs.clear();
            self.passed_over = None;
            self.tries.retain(|_, running| !running.is_waiting());
        }
    }

    fn fail_unless_running(&mut self) {
        if self.tries.is_empty() && !self.has_failed {
            self.has_failed = true;
            self.outputs.push_back(LadderOutput::Fail(match self.last {
                Some(TryEnd::Reset) => Failure::Reset,
                _ if self.may_have_run => Failure::OutcomeUnknown,
                Some(
                    TryEnd::BrokenOff { .. }
                    | TryEnd::MayHaveRun
                    | TryEnd::NotExecuted
                    | TryEnd::NotSent
                    | TryEnd::TooLarge
                    | TryEnd::Unavailable,
                )
                | None => Failure::NotExecuted,
            }));
        }
    }

    /// Starts the next way beside what is under way, if that may be.
    fn climb_beside(&mut self, is_free: bool, budget: &mut Budget, now: Time) {
        if self.tries.len() < BESIDE_MAX && !self.rungs.is_empty() && (is_free || budget.pay()) {
            self.climb(budget, now);
        }
    }

    /// Starts the next way; `false` if none is left.
    fn climb(&mut self, budget: &mut Budget, now: Time) -> bool {
        while let Some(rung) = self.rungs.pop_front() {
            if rung.way != Way::Link {
                let number = self.add(rung, now);
                self.send(number, None, budget);
                return true;
            }
            if self.tries.values().any(|running| running.rung.way == Way::Link) {
                continue;
            }
            match self.link {
                LinkView::Open { session, is_sure, .. } if self.is_good_enough(is_sure) => {
                    let number = self.add(rung, now);
                    self.send_on_link(number, session, budget, now);
                }
                LinkView::Open { .. } | LinkView::Sought { .. } => drop(self.add(rung, now)),
                LinkView::None => {
                    self.passed_over = Some(rung);
                    continue;
                }
            }
            return true;
        }
        // One has come meanwhile.
        let rung = self.passed_over.take_if(|_| matches!(self.link, LinkView::Open { .. }));
        let (Some(rung), LinkView::Open { session, .. }) = (rung, self.link) else { return false };
        let number = self.add(rung, now);
        self.send_when_alone(number, session, budget, now);
        true
    }

    /// Says whether a second try may start while one is under way.
    const fn may_be_doubled(&self) -> bool {
        self.facts.idempotent && self.facts.replayable
    }

    /// Says whether the request may go over the link that is open.
    const fn is_good_enough(&self, is_sure: bool) -> bool {
        is_sure || self.facts.idempotent
    }

    /// Says whether a try may be handed over: no other was, or running twice does no harm.
    fn is_alone(&self, number: TryId) -> bool {
        self.may_be_doubled() || self.tries.iter().all(|(other, running)| *other == number || running.is_waiting())
    }

    /// Sends a try on the link. What must not run twice is taken back from elsewhere first, where it still can be.
    fn send_when_alone(&mut self, number: TryId, session: u64, budget: &mut Budget, now: Time) {
        if self.is_alone(number) {
            return self.send_on_link(number, session, budget, now);
        }
        let sent = self.tries.iter().filter(|(_, running)| !running.is_waiting());
        self.outputs.extend(sent.map(|(number, _)| LadderOutput::Recall(*number)));
    }

    fn add(&mut self, rung: Rung, now: Time) -> TryId {
        self.made += 1;
        *self.begun.entry(rung.way).or_default() += 1;
        let number = TryId(self.made);
        self.tries
            .insert(number, Try { rung, session: None, is_sent: false, began: now, is_late: false, is_checked: false });
        number
    }

    fn send_on_link(&mut self, number: TryId, session: u64, budget: &mut Budget, now: Time) {
        self.links += 1;
        if let Some(running) = self.tries.get_mut(&number) {
            running.began = now;
            running.is_late = false;
        }
        self.send(number, Some(session), budget);
    }

    fn send(&mut self, number: TryId, session: Option<u64>, budget: &mut Budget) {
        if !std::mem::replace(&mut self.is_counted, true) {
            budget.handle_request();
        }
        if let Some(running) = self.tries.get_mut(&number) {
            running.session = session;
            running.is_sent = true;
            self.outputs.push_back(LadderOutput::Start { number, rung: running.rung, session });
        }
    }

    /// Returns when something is to be done about a try.
    fn due(&self, running: &Try) -> Option<Time> {
        if self.is_connecting(running) {
            return Some(running.began + running.rung.connect.min(running.rung.first_byte));
        }
        if !running.is_waiting() {
            return (!running.is_late).then(|| running.began + running.rung.first_byte);
        }
        let until = self.waits_until(running);
        let late = (!running.is_late && !self.rungs.is_empty()).then(|| self.patient_until(running));
        Some(late.map_or(until, |late| late.min(until)))
    }

    /// Says whether a try was sent outside a link and has not been asked yet whether it was handed over.
    const fn is_connecting(&self, running: &Try) -> bool {
        !running.is_waiting() && running.session.is_none() && !running.is_checked && !running.is_late
    }

    /// Returns until when a link is waited for alone.
    fn patient_until(&self, running: &Try) -> Time {
        let soonest = running.began + self.config.link_patience_min;
        let latest = running.began + self.config.link_patience;
        match self.link {
            LinkView::Sought { is_exhausted: true, .. } => soonest,
            // Handshakes beside the one that is on its way would only slow it down.
            LinkView::Sought { alive_at: Some(alive_at), .. } => latest.max(alive_at + self.config.link_patience_alive),
            LinkView::Sought { since: Some(since), .. } => (since + self.config.link_patience).clamp(soonest, latest),
            LinkView::None | LinkView::Open { .. } | LinkView::Sought { .. } => latest,
        }
    }

    /// Returns until when a link is waited for.
    fn waits_until(&self, running: &Try) -> Time {
        let until = match self.link {
            LinkView::None => running.began,
            LinkView::Open { .. } => running.began + self.config.link_patience,
            LinkView::Sought { alive_at, denied, .. } => {
                let hopes = alive_at.map_or(running.began, |alive_at| alive_at.max(running.began));
                let is_last = self.rungs.is_empty() && self.tries.len() == 1;
                let wait = match denied.filter(|denied| is_last && denied.at >= hopes) {
                    Some(Denied { why: Denial::Refused, .. }) => self.config.refused_wait.min(self.config.link_wait),
                    Some(Denied { why: Denial::Unreachable, .. }) => {
                        self.config.offline_wait.min(self.config.link_wait)
                    }
                    None => self.config.link_wait,
                };
                hopes + wait
            }
        };
        self.config.wait_until.map_or(until, |latest| until.min(latest))
    }
}

/// A try that is under way.
#[derive(Clone, Debug)]
struct Try {
    rung: Rung,
    /// The session of the link it was sent on.
    session: Option<u64>,
    is_sent: bool,
    began: Time,
    /// It had its time, and goes on beside the others.
    is_late: bool,
    /// It was asked back in case it had not been handed over yet.
    is_checked: bool,
}

impl Try {
    /// Says whether it waits for a link.
    const fn is_waiting(&self) -> bool {
        !self.is_sent
    }
}

/// Steps of one ladder: six ways of three tries each (DESIGN section 5).
const RUNGS_MAX: usize = 18;

/// Tries under way at once. 3; our choice: the late one, the next, and one on a link that comes meanwhile.
const BESIDE_MAX: usize = 3;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
