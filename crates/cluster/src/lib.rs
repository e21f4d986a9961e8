//! What the roles of Ropeway say to each other: the bus that carries pushes to the gateways and their statuses back.
//!
//! The bus knows which gateway wants which targets, and hands each message to those. It never talks to a device, never
//! decides whether a message may be sent, and keeps no payload after handing it on: a gateway's sessions hold what is
//! not acknowledged yet. [`LocalBus`] serves the roles of one process.
//!
//! ```
//! use bytes::Bytes;
//! use ropeway_cluster::{Bus, LocalBus, LocalBusConfig, Message, Status};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let bus = LocalBus::new(LocalBusConfig::default());
//!
//! // A gateway: while it holds the interest, it is handed what is sent to this user.
//! let mut subscription = bus.subscribe("gateway-1".parse()?).await?;
//! let interest = subscription.interests().interest("user:ada".parse()?)?;
//!
//! // A backend's push, at whichever gateway it was posted.
//! let message = Message::new("order-17".parse()?, "user:ada".parse()?, Bytes::from("shipped"));
//! let accepted = bus.publish(message).await?;
//! assert!(!accepted.duplicate);
//!
//! // The gateway again: it has the message, writes it to the link and tells how far it got.
//! let message = subscription.next().await.ok_or("the bus is gone")?;
//! bus.report(&message.id, Status::Acked).await?;
//! assert_eq!(bus.status(&message.id).await, Some(Status::Acked));
//! # drop(interest);
//! # Ok(())
//! # }
//! ```

pub mod bus;
pub mod id;
pub mod local;
pub mod message;

pub use bus::{
    Accepted, Bus, Interest, InterestError, Interests, PublishError, ReportError, SubscribeError, Subscription,
};
pub use id::{CollapseKey, ContentType, DeviceId, GatewayId, IdError, MessageId, Topic, UserId};
pub use local::{LocalBus, LocalBusConfig};
pub use message::{Message, Status, TTL_MAX, Target, TargetError};
