//! One run: one peer, one work, one seed, in a lab of its own.

use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

use ropeway_core::sim::work::{DEADLINE, Task, Work};

use super::{
    adapter::{Adapter, Answer, Told},
    lab::{Lab, LabError, Place},
    peers::{Peer, START_MAX},
    service::{Programs, Servers, origin_of},
};
use crate::scoring::{Network, Outcome, RequestOutcome};

/// Lets a peer do a work in a lab. A peer that hangs or crashes has failed; only the lab itself gives an error.
///
/// # Errors
///
/// When the servers do not start, or the run is stopped.
pub(crate) fn run(
    programs: &Programs,
    lab: &mut dyn Lab,
    peer: &Peer,
    work: Work,
    network: &Network,
    stop: &AtomicBool,
) -> Result<Outcome, LabError> {
    let servers = Servers::start(programs, lab, peer)?;
    let requests = network.tasks(work);
    let (told, heard) = mpsc::channel();
    let count = if work.is_cold() { requests.len() } else { 1 };
    let mut adapters = Vec::new();
    for number in 0..count {
        let command = lab.command(Place::Client, peer.program().as_ref())?;
        let command = peer.configure(servers.introduce(command));
        adapters.push(Adapter::start(command, START_MAX, number, told.clone()).map_err(|error| error.to_string()));
    }
    let origin = origin_of(lab);
    let begin = lab.begin()?;
    if peer.through_gateway && !work.is_cold() {
        // An app that keeps a link opens it when it starts. One that has ended is scored as such.
        adapters.iter_mut().flatten().for_each(|adapter| drop(adapter.begin()));
    }
    let mut round = Round { begin, origin, adapters, tries: requests.iter().map(|_| Try::default()).collect() };
    round.go(&requests, &heard, stop)?;
    let traffic = lab.finish();
    let Round { adapters, tries, .. } = round;
    // A peer may still be at work when its time is over; what it does then is no longer looked at.
    drop(adapters);
    let executed = servers.executed()?;
    let judged = requests.iter().zip(tries).enumerate().map(|(number, (request, done))| {
        let executed = executed.iter().filter(|id| **id == number.to_string()).count();
        judge(request, done, executed, network)
    });
    Ok(Outcome { requests: judged.collect(), bytes: traffic.bytes, void: traffic.void })
}

/// The requests of a run while they are under way.
struct Round {
    begin: Instant,
    origin: String,
    adapters: Vec<Result<Adapter, String>>,
    tries: Vec<Try>,
}

/// What is known of a request.
#[derive(Debug, Default)]
struct Try {
    /// When it was asked for, from the start of the run.
    asked: Option<Duration>,
    /// When it was answered, and how.
    answered: Option<(Duration, Result<Answer, String>)>,
}

impl Round {
    /// Asks for each request at its time and listens, until all are answered or out of time.
    fn go(&mut self, requests: &[Task], heard: &Receiver<Told>, stop: &AtomicBool) -> Result<(), LabError> {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|number| requests[*number].start);
        let mut waiting = order.into_iter().peekable();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err(LabError("interrupted".to_owned()));
            }
            let now = Instant::now();
            while let Some(number) = waiting.next_if(|number| self.begin + requests[*number].start <= now) {
                self.ask(number, &requests[number]);
            }
            let next = waiting.peek().map(|number| self.begin + requests[*number].start);
            let Some(until) = next.or_else(|| self.last_deadline()) else { return Ok(()) };
            if next.is_none() && until <= now {
                return Ok(());
            }
            match heard.recv_timeout(until.min(now + STOP_LOOK).saturating_duration_since(now)) {
                Ok(told) => self.hear(told),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => unreachable!("this function's caller holds a sender"),
            }
        }
    }

    /// Gives when the last unanswered request is out of time.
    fn last_deadline(&self) -> Option<Instant> {
        let unanswered = self.tries.iter().filter(|tried| tried.answered.is_none());
        unanswered.filter_map(|tried| tried.asked).max().map(|asked| self.begin + asked + DEADLINE)
    }

    fn ask(&mut self, number: usize, task: &Task) {
        let at = self.begin.elapsed();
        let adapter = number.min(self.adapters.len() - 1);
        let asked = match &mut self.adapters[adapter] {
            // It can only be that nobody reads.
            Ok(adapter) => adapter.ask(&number.to_string(), task, &self.origin).map_err(|_| HAS_ENDED.to_owned()),
            Err(reason) => Err(reason.clone()),
        };
        let failed = asked.err().map(|reason| (at, Err(reason)));
        self.tries[number] = Try { asked: Some(at), answered: failed };
    }

    fn hear(&mut self, told: Told) {
        let at = told.at.saturating_duration_since(self.begin);
        let Some(answer) = told.answer else { return self.mourn(told.adapter, at) };
        let tried = answer.id.parse().ok().and_then(|number: usize| self.tries.get_mut(number));
        if let Some(tried) = tried.filter(|tried| tried.asked.is_some() && tried.answered.is_none()) {
            tried.answered = Some((at, Ok(answer)));
        }
    }

    /// Nothing more comes from an adapter: what it was asked for has failed.
    fn mourn(&mut self, adapter: usize, at: Duration) {
        let last = self.adapters.len() - 1;
        for (number, tried) in self.tries.iter_mut().enumerate() {
            if number.min(last) == adapter && tried.asked.is_some() && tried.answered.is_none() {
                tried.answered = Some((at, Err(HAS_ENDED.to_owned())));
            }
        }
    }
}

/// Says whether a request succeeded: by our clock, by the length of the body, and by the origin's log.
fn judge(task: &Task, done: Try, executed: usize, network: &Network) -> RequestOutcome {
    let start = done.asked.unwrap_or(task.start);
    let took = match done.answered {
        None => Err("deadline".to_owned()),
        Some((_, Err(reason))) => Err(reason),
        Some((at, Ok(answer))) => match fault(task, &answer, executed, at - start) {
            None => Ok(at - start),
            Some(reason) => Err(reason),
        },
    };
    RequestOutcome::new(task, start, took, executed, network)
}

/// Finds what is wrong with an answer.
fn fault(task: &Task, answer: &Answer, executed: usize, took: Duration) -> Option<String> {
    if let Some(error) = &answer.error {
        return Some(error.clone());
    }
    match answer.status {
        Some(200) if answer.bytes != task.answer_bytes => Some(format!("{} bytes came", answer.bytes)),
        Some(200) if executed == 0 => Some("the origin did not execute it".to_owned()),
        Some(200) if took > DEADLINE => Some("deadline".to_owned()),
        Some(200) => None,
        Some(status) => Some(format!("status {status}")),
        None => Some("no status".to_owned()),
    }
}

/// Why a request failed whose peer is gone.
const HAS_ENDED: &str = "the peer has ended";

/// Longest time until an interrupt is seen.
const STOP_LOOK: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests;
