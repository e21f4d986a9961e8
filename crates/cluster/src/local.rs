//! The bus inside one process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, timeout_at},
};
use tracing::{debug, trace};

use self::statuses::Statuses;
use crate::{
    bus::{Accepted, Bus, InterestError, PublishError, Registry, ReportError, SubscribeError, Subscription},
    id::{GatewayId, MessageId},
    message::{Message, Status, TTL_MAX, Target},
};

mod statuses;

/// The bus of one process: cheap to copy, all copies being the same bus.
#[derive(Clone, Debug)]
pub struct LocalBus {
    shared: Arc<Shared>,
}

/// The limits of a [`LocalBus`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalBusConfig {
    /// Most gateways subscribed at once. Default 64: a process runs one, tests a few.
    pub gateways_max: usize,
    /// Most targets one gateway is interested in. Default 4,000,000: a user, a device and a few topics for each of the
    /// 700,000 devices that one machine is to hold.
    pub interests_max: usize,
    /// Most bytes of a payload. Default 60 KiB, which leaves 4 KiB of a frame for the envelope.
    pub payload_bytes_max: usize,
    /// How long a publisher waits for room in a gateway's queue. Default 1 s: longer than a gateway pauses, shorter than
    /// a backend waits for an answer.
    pub publish_wait_max: Duration,
    /// Most messages that wait for one gateway to take them. Default 1,024, at most 60 MiB.
    pub queue_messages_max: usize,
    /// Most messages whose status is remembered; the oldest is forgotten first. Default 100,000, some 15 MB.
    pub statuses_max: usize,
}

impl Default for LocalBusConfig {
    fn default() -> Self {
        Self {
            gateways_max: 64,
            interests_max: 4_000_000,
            payload_bytes_max: 60 * 1024,
            publish_wait_max: Duration::from_secs(1),
            queue_messages_max: 1_024,
            statuses_max: 100_000,
        }
    }
}

impl LocalBus {
    /// Makes a bus with nobody on it.
    ///
    /// # Panics
    ///
    /// When a limit of messages is zero: such a bus could carry nothing.
    #[must_use]
    pub fn new(config: LocalBusConfig) -> Self {
        assert!(config.queue_messages_max > 0 && config.statuses_max > 0, "a bus has room for a message");
        let state = State { gateways: HashMap::new(), statuses: Statuses::new(config.statuses_max), subscribed: 0 };
        Self { shared: Arc::new(Shared { config, state: Mutex::new(state), room: Notify::new() }) }
    }
}

impl Bus for LocalBus {
    async fn publish(&self, message: Message) -> Result<Accepted, PublishError> {
        let config = &self.shared.config;
        let (bytes, max) = (message.payload.len(), config.payload_bytes_max);
        if bytes > max {
            return Err(PublishError::TooLarge { bytes, max });
        }
        let patience = Instant::now() + config.publish_wait_max;
        loop {
            // Made before the attempt, so that room made after it is not missed.
            let room = self.shared.room.notified();
            let gateway = match self.shared.lock().publish(&message, Instant::now()) {
                Ok(accepted) => return Ok(accepted),
                Err(full) => full,
            };
            if timeout_at(patience, room).await.is_err() {
                debug!(%gateway, id = %message.id, "no room for a message");
                return Err(PublishError::NoRoom { gateway, waited: config.publish_wait_max });
            }
        }
    }

    async fn report(&self, id: &MessageId, status: Status) -> Result<(), ReportError> {
        let known = self.shared.lock().statuses.report(id, status);
        if known { Ok(()) } else { Err(ReportError::Unknown { id: id.clone() }) }
    }

    async fn status(&self, id: &MessageId) -> Option<Status> {
        self.shared.lock().statuses.status(id, Instant::now())
    }

    async fn subscribe(&self, gateway: GatewayId) -> Result<Subscription, SubscribeError> {
        let config = &self.shared.config;
        let mut state = self.shared.lock();
        if state.gateways.contains_key(&gateway) {
            return Err(SubscribeError::Taken { gateway });
        }
        if state.gateways.len() >= config.gateways_max {
            return Err(SubscribeError::TooMany { max: config.gateways_max });
        }
        let (queue, deliveries) = mpsc::channel(config.queue_messages_max);
        state.subscribed += 1;
        let number = state.subscribed;
        state.gateways.insert(gateway.clone(), Gateway { number, queue, interests: HashMap::new() });
        debug!(%gateway, "gateway on the bus");
        Ok(Subscription::new(deliveries, Arc::new(Place { shared: Arc::clone(&self.shared), gateway, number })))
    }
}

#[derive(Debug)]
struct Shared {
    config: LocalBusConfig,
    state: Mutex<State>,
    /// Told whenever a gateway's queue may have room again.
    room: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No change to the state can panic half way, so what a panicking holder left is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct State {
    gateways: HashMap<GatewayId, Gateway>,
    statuses: Statuses,
    /// Subscriptions made so far.
    subscribed: u64,
}

#[derive(Debug)]
struct Gateway {
    /// Tells this subscription from an earlier one of the same gateway.
    number: u64,
    queue: mpsc::Sender<Message>,
    /// The targets wanted, each with how many want it.
    interests: HashMap<Target, u32>,
}

impl State {
    /// Hands `message` to all gateways that want it, or to none if the queue of one, which is returned, is full.
    fn publish(&mut self, message: &Message, now: Instant) -> Result<Accepted, GatewayId> {
        let known = self.statuses.status(&message.id, now);
        if known == Some(Status::Acked) {
            return Ok(Accepted::new(message.id.clone(), true, Status::Acked));
        }
        let takers = || self.gateways.iter().filter(|(_, gateway)| gateway.interests.contains_key(&message.target));
        if let Some((full, _)) = takers().find(|(_, gateway)| gateway.queue.capacity() == 0) {
            return Err(full.clone());
        }
        for (name, gateway) in takers() {
            // Only publishers fill a queue, and they hold the lock; a queue that has ended wants nothing any more.
            let handed = gateway.queue.try_send(message.clone()).is_ok();
            trace!(gateway = %name, id = %message.id, handed, "message handed on");
        }
        let status = self.statuses.queue(&message.id, now + message.ttl.min(TTL_MAX), now);
        Ok(Accepted::new(message.id.clone(), known.is_some(), status))
    }
}

/// The place of one subscription on the bus.
struct Place {
    shared: Arc<Shared>,
    gateway: GatewayId,
    number: u64,
}

impl Place {
    /// Runs `change` on the gateway's entry, unless this subscription has ended.
    fn with<T>(&self, change: impl FnOnce(&mut Gateway) -> T) -> Option<T> {
        let mut state = self.shared.lock();
        state.gateways.get_mut(&self.gateway).filter(|gateway| gateway.number == self.number).map(change)
    }
}

impl Registry for Place {
    fn add(&self, target: &Target) -> Result<(), InterestError> {
        let max = self.shared.config.interests_max;
        let added = self.with(|gateway| {
            let full = gateway.interests.len() >= max;
            match gateway.interests.get_mut(target) {
                Some(count) => *count += 1,
                None if full => return Err(InterestError::TooMany { max }),
                None => drop(gateway.interests.insert(target.clone(), 1)),
            }
            Ok(())
        });
        added.unwrap_or(Err(InterestError::Closed))
    }

    fn close(&self) {
        let mut state = self.shared.lock();
        if state.gateways.get(&self.gateway).is_some_and(|gateway| gateway.number == self.number) {
            state.gateways.remove(&self.gateway);
            debug!(gateway = %self.gateway, "gateway off the bus");
        }
        drop(state);
        self.shared.room.notify_waiters();
    }

    fn remove(&self, target: &Target) {
        self.with(|gateway| {
            if let Some(count) = gateway.interests.get_mut(target) {
                *count -= 1;
                if *count == 0 {
                    gateway.interests.remove(target);
                }
            }
        });
    }

    fn taken(&self) {
        self.shared.room.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
