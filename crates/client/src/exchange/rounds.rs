//! The exchanges of one try that asks its gateway more than once.

use std::{
    future::Future,
    sync::{Arc, Mutex},
};

use http::Response;
use ropeway_core::{Time, request::NOT_EXECUTED_HEADER};
use ropeway_net::Clock;

use crate::{
    Body, Step, Timeline,
    shared::lock,
    way::{Failed, Trace},
};

/// What the timeline is told of each exchange of a try: at most four, two of them because of the date (`Held::dated`), and one that asks
/// again.
#[derive(Clone, Default)]
pub(super) struct Rounds(Arc<Mutex<Vec<Round>>>);

struct Round {
    started: Time,
    ended: Option<Time>,
    error: Option<String>,
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
            rounds.push(Round { started: clock.now(), ended: None, error: None });
            rounds.len() - 1
        };
        let sent = exchange.await;
        if let Some(round) = lock(&self.0).get_mut(number) {
            round.ended = Some(clock.now());
            round.error = match &sent {
                Ok(answer) if answer.headers().contains_key(NOT_EXECUTED_HEADER) => {
                    Some(format!("not executed: {}", answer.status()))
                }
                Ok(_) => None,
                Err(failed) => Some(failed.cause.to_string()),
            };
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
                None if line.ended.is_some() && line.error.is_none() => {
                    Some("given up: another copy had the answer".to_owned())
                }
                None => line.ended.map(|_| "given up".to_owned()),
            };
            let ended = round.ended.map(|ended| ended.since(began)).or(line.ended);
            let told = Step { started: round.started.since(began), ended, error, ..line.clone() };
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
    /// Tells where it went, or was to go if there is one place for it, and each of its exchanges.
    pub(super) fn tell(&self, timeline: &mut Timeline, began: Time) {
        if let [peer] = self.trace.gone_to()[..] {
            timeline.locate(self.step, peer);
        }
        self.rounds.tell(self.step, timeline, began);
    }
}
