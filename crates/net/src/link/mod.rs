//! The asynchronous face of a session: a handle many tasks share, bodies they read and write, and the driver of a carrier.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use atomic_waker::AtomicWaker;
use bytes::Bytes;
use http::HeaderMap;
use ropeway_core::{
    Time,
    session::{Closed, LinkError, Machine, MuxEvent},
    wire::{
        Frame, FrameRef, Kind,
        fields::{RequestHead, ResponseHead},
        message::ResetCode,
    },
};

mod body;
mod driver;
mod handover;

pub use body::{BodyCut, BodyReader, BodyWriter};
pub use driver::{LinkPeer, drive};
pub use handover::{HandedOver, Handovers};

use crate::Clock;

/// One end of a session, shared by the task that drives its link and the tasks of its exchanges.
///
/// A call locks the machine, changes it, hands out what came of it, and wakes whoever waited.
pub struct Session<M> {
    shared: Arc<Shared<M>>,
}

struct Shared<M> {
    clock: Clock,
    state: Mutex<State<M>>,
    driver: AtomicWaker,
}

struct State<M> {
    machine: M,
    /// Boxed, so that the map of a session at rest is small.
    exchanges: BTreeMap<u64, Box<Exchange>>,
    requests: Vec<NewRequest>,
    /// Counts links; the driver of an older one stops.
    link: u64,
}

/// A request that arrived and has no task yet.
#[derive(Debug)]
pub struct NewRequest {
    /// The exchange.
    pub channel: u64,
    /// Method, target and headers.
    pub head: RequestHead,
    /// No body follows.
    pub end: bool,
}

/// What arrived for one exchange and was not taken.
#[derive(Default)]
struct Exchange {
    head: Option<ResponseHead>,
    body: std::collections::VecDeque<Bytes>,
    end: Option<Result<Option<HeaderMap>, Closed>>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    cancelled: Option<Waker>,
    /// Where its hand-overs are noted, at the end that opened it.
    handovers: Option<Handovers>,
}

impl<M> Clone for Session<M> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<M: Machine> Session<M> {
    /// Shares a machine.
    #[must_use]
    pub fn new(machine: M, clock: Clock) -> Self {
        let state = State { machine, exchanges: BTreeMap::new(), requests: Vec::new(), link: 0 };
        Self { shared: Arc::new(Shared { clock, state: Mutex::new(state), driver: AtomicWaker::new() }) }
    }

    /// Returns the clock of the session.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// Changes the machine and wakes the driver, which sends what came of it.
    pub fn with<R>(&self, change: impl FnOnce(&mut M, Time) -> R) -> R {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        let result = change(&mut state.machine, now);
        state.dispatch();
        drop(state);
        self.shared.driver.wake();
        result
    }

    /// Looks at the machine without waking anyone.
    pub fn peek<R>(&self, look: impl FnOnce(&mut M) -> R) -> R {
        look(&mut self.lock().machine)
    }

    /// Begins a link and returns its number. The older one is over at once: its frames are dropped from here on, and its driver
    /// stops at its next turn.
    pub fn begin_link(&self) -> u64 {
        self.begin_link_with(|_, _| ()).0
    }

    /// Begins a link and changes the machine in one step, so that no other link can begin in between.
    pub fn begin_link_with<R>(&self, change: impl FnOnce(&mut M, Time) -> R) -> (u64, R) {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        state.link += 1;
        let link = state.link;
        state.machine.handle_detached(now);
        let result = change(&mut state.machine, now);
        state.dispatch();
        let driver = self.shared.driver.take();
        drop(state);
        wake(driver);
        (link, result)
    }

    /// Says whether `link` is the newest.
    #[must_use]
    pub fn is_current(&self, link: u64) -> bool {
        self.lock().link == link
    }

    /// Ends a link: exchanges wait for the next one. Does nothing, and returns `false`, for a link that another has replaced.
    pub fn end_link(&self, link: u64) -> bool {
        let now = self.shared.clock.now();
        let mut state = self.lock();
        let current = state.link == link;
        if current {
            state.machine.handle_detached(now);
            state.dispatch();
            // A waker keeps the memory of its task, which has nothing more to do here.
            let driver = self.shared.driver.take();
            drop(state);
            drop(driver);
        }
        current
    }

    /// Opens an exchange; `None` if as many are open as may be. It is held until its [`reader`](Self::reader) is dropped, its
    /// head has failed, or it is [abandoned](Self::abandon).
    #[must_use]
    pub fn request(&self, head: RequestHead, end: bool) -> Option<u64> {
        self.request_noting(head, end, Handovers::default())
    }

    /// Does as [`request`](Self::request), and notes in `handovers` each time that the request is handed to a carrier.
    #[must_use]
    pub fn request_noting(&self, head: RequestHead, end: bool, handovers: Handovers) -> Option<u64> {
        let mut state = self.lock();
        let channel = state.machine.mux().request(head, end)?;
        // Under the same lock: the answer may be quick.
        state.exchanges.insert(channel, Box::new(Exchange { handovers: Some(handovers), ..Exchange::default() }));
        state.dispatch();
        drop(state);
        self.shared.driver.wake();
        Some(channel)
    }

    /// Waits for the head of the answer.
    ///
    /// # Errors
    ///
    /// How the exchange ended instead; it is forgotten then.
    pub fn poll_head(&self, channel: u64, cx: &mut Context<'_>) -> Poll<Result<ResponseHead, Closed>> {
        let mut state = self.lock();
        let Some(exchange) = state.exchanges.get_mut(&channel) else { return Poll::Ready(Err(Closed::Unknown)) };
        if let Some(head) = exchange.head.take() {
            return Poll::Ready(Ok(head));
        }
        let closed = match &exchange.end {
            None => {
                exchange.reader = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Some(Ok(_)) => Closed::Unknown,
            Some(Err(closed)) => closed.clone(),
        };
        state.forget(channel);
        Poll::Ready(Err(closed))
    }

    /// Takes the requests that arrived.
    #[must_use]
    pub fn take_requests(&self) -> Vec<NewRequest> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Returns the body that arrives on an exchange. Dropping it unread ends the exchange.
    #[must_use]
    pub fn reader(&self, channel: u64) -> BodyReader<M> {
        BodyReader::new(self.clone(), channel)
    }

    /// Returns the body to send on an exchange. Dropping it unfinished resets the exchange.
    #[must_use]
    pub fn writer(&self, channel: u64) -> BodyWriter<M> {
        BodyWriter::new(self.clone(), channel)
    }

    /// Gives an exchange up and forgets what arrived for it.
    pub fn abandon(&self, channel: u64, code: ResetCode, detail: &str) {
        let mut state = self.lock();
        state.machine.mux().reset(channel, code, detail);
        state.forget(channel);
        state.dispatch();
        drop(state);
        self.shared.driver.wake();
    }

    /// Says RESET. What the other end has not completed by now will not come any more.
    fn reset(&self, channel: u64, code: ResetCode, detail: &str) {
        let mut state = self.lock();
        state.machine.mux().reset(channel, code, detail);
        if state.exchanges.get(&channel).is_some_and(|exchange| exchange.end.is_none()) {
            state.end(channel, Err(Closed::Reset { code, detail: detail.into() }));
        }
        state.dispatch();
        drop(state);
        self.shared.driver.wake();
    }

    /// Forgets what arrived for an exchange whose answer may still be wanted.
    fn discard(&self, channel: u64) {
        let mut state = self.lock();
        let Some(exchange) = state.exchanges.get_mut(&channel) else { return };
        let unread: usize = exchange.body.drain(..).map(|data| data.len()).sum();
        exchange.end.get_or_insert(Ok(None));
        state.machine.mux().consumed(channel, unread as u64);
        drop(state);
        self.shared.driver.wake();
    }

    /// Waits until the exchange is ended by the other end or by the loss of the session, and returns how; never for one that completes.
    pub async fn cancelled(&self, channel: u64) -> Closed {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            let Some(exchange) = state.exchanges.get_mut(&channel) else { return Poll::Ready(Closed::Unknown) };
            if let Some(Err(why)) = &exchange.end {
                return Poll::Ready(why.clone());
            }
            exchange.cancelled = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Ends every exchange: the session will not come back.
    pub fn dissolve(&self) {
        let mut state = self.lock();
        state.link += 1;
        let channels: Vec<u64> = state.exchanges.keys().copied().collect();
        for channel in channels {
            state.end(channel, Err(Closed::Unknown));
        }
        drop(state);
        self.shared.driver.wake();
    }

    /// Forgets an exchange that is complete at this end.
    pub fn forget(&self, channel: u64) {
        let mut state = self.lock();
        state.forget(channel);
        drop(state);
        self.shared.driver.wake();
    }

    /// Returns the number of exchanges that are held for their tasks.
    #[must_use]
    pub fn exchanges(&self) -> usize {
        self.lock().exchanges.len()
    }

    fn lock(&self) -> MutexGuard<'_, State<M>> {
        // A panic inside a machine is a bug of ours; the other exchanges go on all the same.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_current(&self, link: u64) -> Option<MutexGuard<'_, State<M>>> {
        Some(self.lock()).filter(|state| state.link == link)
    }
}

impl<M: Machine> State<M> {
    /// Hands what the machine has to say to the exchanges it is for.
    fn dispatch(&mut self) {
        while let Some(event) = self.machine.mux().poll_event() {
            match event {
                MuxEvent::Body { channel, data } => match self.exchanges.get_mut(&channel) {
                    Some(exchange) if exchange.end.is_none() => {
                        exchange.body.push_back(data);
                        exchange.wake_reader();
                    }
                    _ => self.machine.mux().consumed(channel, data.len() as u64),
                },
                MuxEvent::Closed { channel, why } => self.end(channel, Err(why)),
                MuxEvent::End { channel, trailers } => self.end(channel, Ok(trailers)),
                MuxEvent::Request { channel, head, end } => {
                    let exchange = Exchange { end: end.then_some(Ok(None)), ..Exchange::default() };
                    self.exchanges.insert(channel, Box::new(exchange));
                    self.requests.push(NewRequest { channel, head, end });
                }
                MuxEvent::Response { channel, head, end } => {
                    if let Some(exchange) = self.exchanges.get_mut(&channel) {
                        exchange.handovers.iter().for_each(|handovers| handovers.answer(self.link));
                        exchange.head = Some(head);
                        exchange.wake_reader();
                    }
                    if end {
                        self.end(channel, Ok(None));
                    }
                }
                MuxEvent::Writable { channel } => {
                    wake(self.exchanges.get_mut(&channel).and_then(|exchange| exchange.writer.take()));
                }
            }
        }
    }

    /// Lets go of an exchange: what it did not read counts as read, and who still waits learns that it is over.
    fn forget(&mut self, channel: u64) {
        let Some(exchange) = self.exchanges.remove(&channel) else { return };
        if self.exchanges.is_empty() {
            // An emptied map keeps its room.
            self.exchanges = BTreeMap::new();
        }
        let unread: usize = exchange.body.iter().map(Bytes::len).sum();
        if unread > 0 {
            self.machine.mux().consumed(channel, unread as u64);
        }
        [exchange.reader, exchange.writer, exchange.cancelled].into_iter().for_each(wake);
    }

    fn end(&mut self, channel: u64, how: Result<Option<HeaderMap>, Closed>) {
        let Some(exchange) = self.exchanges.get_mut(&channel) else { return };
        if exchange.end.is_none() || how.is_err() {
            exchange.end = Some(how);
        }
        exchange.wake_reader();
        wake(exchange.writer.take());
        wake(exchange.cancelled.take());
    }
}

impl Exchange {
    fn wake_reader(&mut self) {
        wake(self.reader.take());
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A link that another has replaced neither hears nor speaks.
impl<M: Machine> LinkPeer for (&Session<M>, u64) {
    fn register(&mut self, waker: &Waker) {
        // Under the lock, so that no replaced driver takes the place of the new one.
        if let Some(_state) = self.0.lock_current(self.1) {
            self.0.shared.driver.register(waker);
        }
    }

    fn is_current(&self) -> bool {
        self.0.is_current(self.1)
    }

    fn now(&self) -> Time {
        self.0.shared.clock.now()
    }

    fn clock(&self) -> Clock {
        self.0.shared.clock
    }

    fn handle_frame(&mut self, frame: FrameRef<'_>, _early: bool) -> Result<(), LinkError> {
        let now = self.now();
        let Some(mut state) = self.0.lock_current(self.1) else { return Ok(()) };
        state.machine.handle_frame(frame, now)?;
        state.dispatch();
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        let Some(mut state) = self.0.lock_current(self.1) else { return Ok(()) };
        state.machine.handle_timeout(now)?;
        state.dispatch();
        Ok(())
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.0.lock_current(self.1)?.machine.poll_timeout().map(|(at, _)| at)
    }

    fn poll_output(&mut self) -> Option<Frame> {
        let now = self.now();
        let mut state = self.0.lock_current(self.1)?;
        let frame = state.machine.poll_output(now);
        if let Some(channel) = frame.as_ref().filter(|frame| frame.kind == Kind::Request).map(|frame| frame.channel) {
            let is_early = !state.machine.mux().is_attached();
            if let Some(handovers) = state.exchanges.get(&channel).and_then(|exchange| exchange.handovers.as_ref()) {
                handovers.push(HandedOver { link: self.1, at: now, is_early });
            }
        }
        state.dispatch();
        frame
    }
}

#[cfg(test)]
mod tests;
