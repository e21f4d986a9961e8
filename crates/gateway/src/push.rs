//! Messages from the bus to the sessions they are for, and statuses back.

use std::sync::Arc;

use ropeway_cluster::{Bus, Message, MessageId, Status, Subscription, Target};
use ropeway_core::session::PushMessage;
use ropeway_net::unix_ms;
use tokio::sync::mpsc;
use tracing::trace;

use crate::{gateway::Shared, metrics::Counter};

/// Hands every message of the bus to the sessions it is for.
pub(crate) async fn deliver<B: Bus>(shared: Arc<Shared<B>>, mut subscription: Subscription) {
    while let Some(message) = subscription.next().await {
        shared.counters.pushes_accepted.inc();
        let sessions = shared.registry.sessions(&message.target);
        trace!(id = %message.id, sessions = sessions.len(), "push");
        let push = push_message(&message);
        for entry in sessions {
            entry.session().with(|server, _| server.push(push.clone()));
        }
    }
}

/// Notes at the bus how far messages got.
pub(crate) async fn report<B: Bus>(
    bus: B,
    [written, acked]: [Counter; 2],
    mut reports: mpsc::Receiver<(MessageId, Status)>,
) {
    while let Some((id, status)) = reports.recv().await {
        match status {
            Status::Acked => acked.inc(),
            Status::Written => written.inc(),
            Status::Expired | Status::Queued => {}
        }
        // A message the bus has forgotten needs no status.
        let _ = bus.report(&id, status).await;
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
