//! The exchanges of one try that asks its gateway more than once.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use http::{Response, StatusCode};
use ropeway_core::{Time, request::NOT_EXECUTED_HEADER};
use ropeway_net::Clock;

use crate::{
    Body, Step, Timeline,
    shared::lock,
    timeline::Over,
    way::{Failed, Fate, Trace},
};

/// What the timeline is told of each exchange of a try: at most four, two of them because of the date (`Held::dated`), and one that asks
/// again.
#[derive(Clone, Default)]
pub(super) struct Rounds(Arc<Mutex<Vec<Round>>>);

struct Round {
    started: Time,
    ended: Option<Time>,
    error: Option<String>,
    status: Option<StatusCode>,
    /// What became of the request, once it has ended.
    fate: Option<Fate>,
}

impl Rounds {
    /// Waits for the end of an exchange and notes it.
    pub(super) async fn follow(
        &self,
        clock: Clock,
        exchange: impl Future<Output = Result<Response<Body>, Failed>>,
    ) -> Result<Response<Body>, Failed> {
        let number = {
            let mut rounds = lock(&self.0);
            rounds.push(Round { started: clock.now(), ended: None, error: None, status: None, fate: None });
            rounds.len() - 1
        };
        let sent = exchange.await;
        if let Some(round) = lock(&self.0).get_mut(number) {
            round.ended = Some(clock.now());
            round.status = sent.as_ref().ok().map(Response::status);
            let (fate, error) = match &sent {
                Ok(answer) if answer.headers().contains_key(NOT_EXECUTED_HEADER) => {
                    (Fate::NotExecuted, Some(format!("not executed: {}", answer.status())))
                }
                Ok(_) => (Fate::Executed, None),
                Err(failed) => (failed.fate, Some(failed.cause.to_string())),
            };
            (round.fate, round.error) = (Some(fate), error);
        }
        sent
    }

    /// Tells of each exchange, where there was more than one, in the place of the line of the try.
    fn tell(&self, step: usize, timeline: &mut Timeline, began: Time) {
        let rounds = lock(&self.0);
        let Some(line) = timeline.steps().get(step).cloned().filter(|_| rounds.len() > 1) else { return };
        for (number, round) in rounds.iter().enumerate() {
            let error = match round.ended {
                // What became of the try is what its last answer was.
                Some(_) => round.error.clone().or_else(|| line.error.clone()),
                None => line.ended.map(|_| match &line.error {
                    None => Over::Answered.given_up().to_owned(),
                    Some(_) => Over::Failed.given_up().to_owned(),
                }),
            };
            let ended = round.ended.map(|ended| ended.since(began)).or(line.ended);
            let (started, status, fate) = (round.started.since(began), round.status, round.fate.unwrap_or(line.fate));
            let told = Step { started, ended, error, status, fate, ..line.clone() };
            if number == 0 {
                timeline.replace(step, told);
            } else {
                timeline.push(told);
            }
        }
    }
}

/// A try outside the links.
pub(super) struct Outside {
    /// Its line in the timeline.
    pub(super) step: usize,
    pub(super) trace: Arc<Trace>,
    /// It goes to the host without a gateway.
    pub(super) is_direct: bool,
    pub(super) rounds: Rounds,
}

impl Outside {
    /// Tells where it went, or was to go if there is one place for it, when it did, and each of its exchanges.
    pub(super) fn tell(&self, timeline: &mut Timeline, clock: Clock, began: Time) {
        // A way with a gateway connects as a part of its exchange.
        if let Some(at) = self.trace.handed_off_at().filter(|_| self.is_direct) {
            timeline.hand_over(self.step, clock.time(at).since(began));
        }
        if let [peer] = self.trace.gone_to()[..] {
            timeline.locate(self.step, peer);
        }
        self.rounds.tell(self.step, timeline, began);
    }
}
