//! The bus as roles see it, whatever carries it.

use std::{fmt, future::Future, sync::Arc, time::Duration};

use thiserror::Error;
use tokio::sync::mpsc;

use crate::{
    id::{GatewayId, MessageId},
    message::{Message, Status, Target},
};

/// Carries messages to the gateways that want them, and their statuses back.
pub trait Bus: Clone + Send + Sync + 'static {
    /// Hands a message to every gateway that has an interest in its target, or to none.
    ///
    /// Nobody being interested is no error: the message is taken, and its status stays [`Status::Queued`] until its time
    /// passes. An id that is still remembered is a duplicate: unless the message is acked already, it is handed on again,
    /// for a session that has not shown it, and the sessions leave it out that have. The caller answers for the duplicate
    /// being the same message; the bus keeps no payload to compare.
    ///
    /// # Errors
    ///
    /// When the message is too large, or when a gateway has had no room for it for the time that a publisher waits.
    fn publish(&self, message: Message) -> impl Future<Output = Result<Accepted, PublishError>> + Send;

    /// Notes how far a message got. A status earlier than the one known changes nothing.
    ///
    /// # Errors
    ///
    /// When the message is unknown: never published, or forgotten.
    fn report(&self, id: &MessageId, status: Status) -> impl Future<Output = Result<(), ReportError>> + Send;

    /// Tells how far a message got; `None` when it is unknown: never published, or forgotten.
    fn status(&self, id: &MessageId) -> impl Future<Output = Option<Status>> + Send;

    /// Starts to collect messages for a gateway. It gets those for targets it has registered an interest in.
    ///
    /// # Errors
    ///
    /// When the gateway has a subscription already, or the bus has as many gateways as it takes.
    fn subscribe(&self, gateway: GatewayId) -> impl Future<Output = Result<Subscription, SubscribeError>> + Send;
}

/// What the bus says of a message it has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Accepted {
    /// The message.
    pub id: MessageId,
    /// Whether the bus remembers an earlier message of this id.
    pub duplicate: bool,
    /// How far the message has got.
    pub status: Status,
}

impl Accepted {
    pub(crate) const fn new(id: MessageId, duplicate: bool, status: Status) -> Self {
        Self { id, duplicate, status }
    }
}

/// Why a message was not published.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum PublishError {
    /// A gateway did not take its messages fast enough; none has this one, and it can be published again later.
    #[error("gateway {gateway} had no room for a message within {waited:?}")]
    NoRoom {
        /// The gateway whose queue was full.
        gateway: GatewayId,
        /// How long the publisher waited.
        waited: Duration,
    },
    /// The payload is larger than the bus carries.
    #[error("a payload of {bytes} bytes, where {max} are the most")]
    TooLarge {
        /// The payload's size.
        bytes: usize,
        /// The most bytes of a payload.
        max: usize,
    },
}

/// Why a status was not noted.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportError {
    /// The message was never published here, or is forgotten.
    #[error("message {id} is unknown")]
    Unknown {
        /// The message.
        id: MessageId,
    },
}

/// Why a gateway got no subscription.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubscribeError {
    /// The gateway has one.
    #[error("gateway {gateway} is subscribed already")]
    Taken {
        /// The gateway.
        gateway: GatewayId,
    },
    /// The bus has as many gateways as it takes.
    #[error("{max} gateways are subscribed, which is the most")]
    TooMany {
        /// The most gateways.
        max: usize,
    },
}

/// Why an interest was not registered.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum InterestError {
    /// The subscription has ended.
    #[error("the subscription has ended")]
    Closed,
    /// The gateway has as many interests as the bus takes.
    #[error("{max} targets are registered for this gateway, which is the most")]
    TooMany {
        /// The most targets of one gateway.
        max: usize,
    },
}

/// One gateway's end of the bus. Dropping it takes the gateway off the bus, with all its interests.
#[derive(Debug)]
pub struct Subscription {
    deliveries: mpsc::Receiver<Message>,
    interests: Interests,
}

impl Subscription {
    pub(crate) fn new(deliveries: mpsc::Receiver<Message>, registry: Arc<dyn Registry>) -> Self {
        Self { deliveries, interests: Interests { registry } }
    }

    /// Returns the handle to register interests with; sessions may keep copies of it.
    #[must_use]
    pub fn interests(&self) -> Interests {
        self.interests.clone()
    }

    /// Waits for the next message, in the order they were published; `None` when the bus has ended.
    ///
    /// No message is lost when the future is dropped before it is done.
    pub async fn next(&mut self) -> Option<Message> {
        let message = self.deliveries.recv().await;
        self.interests.registry.taken();
        message
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.interests.registry.close();
    }
}

/// Registers what a gateway is interested in.
#[derive(Clone)]
pub struct Interests {
    registry: Arc<dyn Registry>,
}

impl Interests {
    /// Has the gateway handed the messages for `target`, as long as the answer is kept.
    ///
    /// Interests in the same target are counted: the last one to be dropped ends it.
    ///
    /// # Errors
    ///
    /// When the subscription has ended, or has as many targets as the bus takes.
    pub fn interest(&self, target: Target) -> Result<Interest, InterestError> {
        self.registry.add(&target)?;
        Ok(Interest { registry: Arc::clone(&self.registry), target })
    }
}

impl fmt::Debug for Interests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interests").finish_non_exhaustive()
    }
}

/// An interest of a gateway in one target; dropping it takes the interest back.
#[must_use = "dropping it takes the interest back"]
pub struct Interest {
    registry: Arc<dyn Registry>,
    target: Target,
}

impl Interest {
    /// Returns the target.
    #[must_use]
    pub const fn target(&self) -> &Target {
        &self.target
    }
}

impl Drop for Interest {
    fn drop(&mut self) {
        self.registry.remove(&self.target);
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Interest").field(&self.target).finish()
    }
}

/// What a bus does for one subscription.
pub(crate) trait Registry: Send + Sync {
    /// Counts an interest.
    fn add(&self, target: &Target) -> Result<(), InterestError>;

    /// Takes the gateway off the bus.
    fn close(&self);

    /// Takes one interest back.
    fn remove(&self, target: &Target);

    /// Notes that the gateway has taken a message from its queue.
    fn taken(&self);
}
