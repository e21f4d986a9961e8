//! Places of requests on their routes, as futures.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use ropeway_core::request::{Limit, LimitConfig, LimitFull, LimitId, LimitRule, Priority};
use tokio::sync::oneshot;

use crate::shared::lock;

/// Lets requests go as [`Limit`] says.
#[derive(Clone, Debug)]
pub(crate) struct Limits(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    machine: Limit,
    waiting: BTreeMap<LimitId, oneshot::Sender<()>>,
}

/// The place of one request, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    limits: Limits,
    id: LimitId,
}

impl Limits {
    pub(crate) fn new(config: LimitConfig) -> Self {
        Self(Arc::new(Mutex::new(State { machine: Limit::new(config), waiting: BTreeMap::new() })))
    }

    /// Waits for a place; `None` if nothing limits the request. Dropping the future leaves the turn to the next.
    pub(crate) async fn acquire(
        &self,
        host: &str,
        port: u16,
        path: &str,
        priority: Priority,
    ) -> Result<Option<Slot>, LimitFull> {
        let (slot, turn) = {
            let mut state = lock(&self.0);
            let Some(id) = state.machine.handle_request(host, port, path, priority)? else { return Ok(None) };
            let (sender, turn) = oneshot::channel();
            state.waiting.insert(id, sender);
            state.drain();
            (Slot { limits: self.clone(), id }, turn)
        };
        // The sender is dropped with the slot alone.
        let _ = turn.await;
        Ok(Some(slot))
    }

    pub(crate) fn set_rules(&self, rules: Vec<LimitRule>) {
        let mut state = lock(&self.0);
        state.machine.handle_rules(rules);
        state.drain();
    }

    pub(crate) fn set_weak(&self, weak: bool) {
        lock(&self.0).machine.handle_grade(weak);
    }
}

impl State {
    fn drain(&mut self) {
        while let Some(id) = self.machine.poll_output() {
            if let Some(sender) = self.waiting.remove(&id) {
                // Who no longer waits gives its place back on its own.
                let _ = sender.send(());
            }
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = lock(&self.limits.0);
        state.waiting.remove(&self.id);
        state.machine.handle_end(self.id);
        state.drain();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ropeway_core::request::RoutePattern;
    use tokio::time::timeout;

    use super::*;

    fn limits() -> Limits {
        let rules = vec![LimitRule { route: RoutePattern::new("*", "/"), in_flight_max: 2 }];
        Limits::new(LimitConfig { rules, waiting_max: 2, ..LimitConfig::default() })
    }

    async fn slot(limits: &Limits) -> Result<Option<Slot>, LimitFull> {
        limits.acquire("api.test", 443, "/", Priority::Normal).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_waited_for_and_given_back_also_by_those_who_gave_up() {
        let limits = limits();
        let (one, two) = (slot(&limits).await.unwrap(), slot(&limits).await.unwrap());
        let second = Duration::from_secs(1);
        assert!(timeout(second, slot(&limits)).await.is_err(), "there are two places");
        let waiting = tokio::spawn({
            let limits = limits.clone();
            async move { slot(&limits).await }
        });
        tokio::task::yield_now().await;
        drop(one);
        let three = timeout(second, waiting).await.unwrap().unwrap().unwrap();
        assert!(three.is_some());
        drop((two, three));
        assert!(timeout(second, slot(&limits)).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_queue_is_bounded() {
        let limits = limits();
        let _held = (slot(&limits).await, slot(&limits).await);
        let mut waiting = [Box::pin(slot(&limits)), Box::pin(slot(&limits))];
        for waiter in &mut waiting {
            assert!(timeout(Duration::from_secs(1), waiter.as_mut()).await.is_err());
        }
        assert!(slot(&limits).await.is_err());
    }
}
