//! The HTTP client that gets through on bad mobile networks.
//!
//! A [`Client`] keeps one encrypted link to a gateway and sends requests over it; hosts that the gateways do not serve are called
//! directly over HTTPS, so it can stand in for the client an app uses now. It brings the messages that backends push, and resumes
//! after a break: a POST is never run twice behind the caller's back, and never lost in silence.
//!
//! It never skips a certificate check, never sends a request over plain HTTP that did not allow it, never repeats what may have run
//! unless that does no harm, and never presents a part of a body as the whole. It keeps no cookies, and follows
//! redirects as [`Builder::redirects`] says.
//!
//! ```no_run
//! # async fn example(ticket: String, address: std::net::SocketAddr) -> Result<(), Box<dyn std::error::Error>> {
//! let client = ropeway::Client::builder()
//!     .ticket(ticket)             // who the user is; `ropeway ticket` makes one for development
//!     .gateway("gw.test")         // the name on the gateways' certificates
//!     .access_point(address)      // a gateway; more than one are raced
//!     .build()?;
//!
//! let answer = client.get("https://api.test/greeting").send().await?;
//! println!("{}", answer.text().await?);
//! # Ok(())
//! # }
//! ```
//!
//! The link is opened by the first request that wants it, by [`Client::pushes`], or with [`Builder::connect_now`]. Everything runs on
//! tokio.

mod body;
mod builder;
mod client;
mod decode;
mod density;
mod engine;
mod error;
mod event;
mod exchange;
mod identity;
mod pace;
pub mod pipe;
mod places;
pub mod plain;
mod progress;
mod push;
mod redirect;
mod request;
mod response;
mod service;
mod shared;
mod short;
pub mod sources;
mod timeline;
pub mod way;

pub use body::Body;
pub use builder::{BuildError, Builder};
pub use client::Client;
pub use decode::DecodeConfig;
pub use error::{BoxError, Error, Phase};
pub use event::{Event, LinkState};
pub use progress::Progress;
pub use push::{PushEvent, PushMessage, PushStream};
pub use request::RequestBuilder;
pub use response::Response;
pub use ropeway_core::{
    CarrierKind, Retry, Side,
    connect::{EstablishConfig, RaceConfig, ReconnectConfig},
    request::{BatchConfig, CoalesceConfig, GuardConfig, Priority, Way},
    wire::message::{NetworkKind, RefuseCode, ResetCode},
};
pub use timeline::{Action, Step, Timeline};
