//! Messages from the bus to the sessions they are for, and statuses back.

use std::sync::Arc;

use ropeway_cluster::{Bus, Message, MessageId, Status, Subscription, Target};
use ropeway_core::session::{PushMessage, ServerEvent};
use ropeway_net::unix_ms;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{debug, trace};

use crate::{gateway::Shared, link::Entry};

/// Statuses on their way to the bus.
pub(crate) type Reports = mpsc::Sender<(MessageId, Status)>;

/// Makes the way of statuses to the bus.
pub(crate) fn reports() -> (Reports, mpsc::Receiver<(MessageId, Status)>) {
    mpsc::channel(REPORTS_MAX)
}

/// Hands every message of the bus to the sessions it is for.
pub(crate) async fn deliver<B: Bus>(shared: Arc<Shared<B>>, mut subscription: Subscription) {
    loop {
        let message = tokio::select! {
            message = subscription.next() => message,
            () = shared.down().cancelled() => return,
        };
        let Some(message) = message else { return };
        let sessions = shared.registry.sessions(&message.target);
        trace!(id = %message.id, sessions = sessions.len(), "push");
        let push = push_message(&message);
        for (index, entry) in sessions.into_iter().enumerate() {
            entry.session().with(|server, _| server.push(push.clone()));
            // A session without a link has nobody else to hear what its outbox dropped.
            shared.settle(&entry);
            if index % SESSIONS_PER_TURN == SESSIONS_PER_TURN - 1 {
                tokio::task::yield_now().await;
            }
        }
    }
}

/// Notes at the bus how far messages got. What waits when the gateway goes down is noted still.
pub(crate) async fn report<B: Bus>(bus: B, mut reports: mpsc::Receiver<(MessageId, Status)>, down: CancellationToken) {
    loop {
        let report = tokio::select! {
            biased;
            report = reports.recv() => report,
            () = down.cancelled() => None,
        };
        let Some((id, status)) = report else { return };
        // A message the bus has forgotten needs no status.
        let _ = bus.report(&id, status).await;
    }
}

impl<B: Bus> Shared<B> {
    /// Acts on what a session has to tell the rest of the gateway.
    pub(crate) fn settle(&self, entry: &Entry) {
        let _in_order = entry.settling();
        let counters = &self.counters;
        while let Some(event) = entry.session().peek(|server| server.poll_event()) {
            match event {
                ServerEvent::Acked(ids) => {
                    counters.pushes_acked.add(ids.len() as u64);
                    ids.into_iter().for_each(|id| self.report(id, Status::Acked));
                }
                ServerEvent::Dropped(ids) => counters.pushes_dropped.add(ids.len() as u64),
                ServerEvent::Refused(requests) => self.metrics.refusal("request_refused").add(requests),
                ServerEvent::Subscribed(topic) => {
                    if let Err(error) = self.registry.subscribe(entry, &topic, &self.interests) {
                        debug!(%error, "not subscribed");
                        self.metrics.refusal(error.name()).inc();
                    }
                }
                ServerEvent::Unsubscribed(topic) => self.registry.unsubscribe(entry, &topic),
                ServerEvent::Written(id) => {
                    counters.pushes_written.inc();
                    self.report(id, Status::Written);
                }
            }
        }
    }

    /// Notes how far a message got. When the notes come faster than they are taken, a message stays at its earlier status.
    fn report(&self, id: String, status: Status) {
        if let Ok(id) = MessageId::new(id)
            && self.reports.try_send((id, status)).is_err()
        {
            self.counters.pushes_unreported.inc();
        }
    }
}

fn push_message(message: &Message) -> PushMessage {
    let topic = match &message.target {
        Target::Topic(topic) => topic.to_string(),
        Target::All | Target::Device(_) | Target::User(_) => String::new(),
    };
    PushMessage {
        id: message.id.to_string(),
        topic,
        content_type: message.content_type.as_ref().map(ToString::to_string).unwrap_or_default(),
        payload: message.payload.clone(),
        time_ms: unix_ms(),
    }
}

/// Statuses of pushes that wait to be noted at the bus; some 10 MB. A mass push to 32,000 devices makes as many at once, its
/// acknowledgements as many again.
const REPORTS_MAX: usize = 65_536;

/// Sessions that get a message before others on the thread have their turn.
const SESSIONS_PER_TURN: usize = 64;
