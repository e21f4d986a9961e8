//! A session: what one device and one gateway know of each other, over one link after another.
//!
//! [`Accept`] admits a link (HELLO and PROOF), [`Server`] and [`Client`] are the two ends of a session. Both hold a [`Mux`] that
//! carries exchanges (a request and its answer, both streaming), keeps credit, and settles unanswered requests when a new link
//! resumes the session. A client that is sent from one gateway to another has several sessions for a while: [`Succession`] says which
//! of them is for what, and [`Feed`] shows the app each message once.

mod accept;
mod channel;
mod client;
mod cookie;
mod error;
mod feed;
mod inbox;
mod mux;
mod outbox;
mod papers;
mod replay;
mod seen;
mod server;
mod succession;
mod vigil;

pub use accept::{Accept, Admitted, HELLO_CONTEXT, PROOF_CONTEXT, Refusal, device_id, signed_input};
pub use client::{Client, ClientConfig, ClientEvent, ClientPhase, HelloFacts};
pub use cookie::{Cookie, SessionId};
pub use error::LinkError;
pub use feed::{Feed, FeedItem, Offered};
pub use inbox::{Inbox, Received};
pub use mux::{Closed, Head, Mux, MuxConfig, MuxEvent, PeerLimits, Role};
pub use outbox::{Outbox, OutboxConfig, Outgoing, PushMessage};
pub use replay::{Rejected, ReplayWindow};
pub use server::{Server, ServerConfig, ServerEvent};
pub use succession::{Fate, Heir, Over, Succession};

use self::papers::Papers;
use crate::{
    Time,
    wire::{Frame, FrameRef},
};

/// What the driver of a link asks of either end of a session.
pub trait Machine: Send {
    /// Takes one frame.
    ///
    /// # Errors
    ///
    /// A [`LinkError`] closes the link; the session outlives it.
    fn handle_frame(&mut self, frame: FrameRef<'_>, now: Time) -> Result<(), LinkError>;

    /// Says that time has come; deadlines up to `now` fire.
    ///
    /// # Errors
    ///
    /// A [`LinkError`] closes the link, for instance when the peer fell silent.
    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError>;

    /// Returns the next deadline and what it is for.
    fn poll_timeout(&self) -> Option<(Time, &'static str)>;

    /// Returns the next frame to hand to the carrier.
    fn poll_output(&mut self, now: Time) -> Option<Frame>;

    /// Says that the link is gone.
    fn handle_detached(&mut self, now: Time);

    /// Gives access to the exchanges.
    fn mux(&mut self) -> &mut Mux;
}
