//! The client against a gateway that can be told what to do, over real connections on loopback.

mod density;
mod direct;
mod drain;
mod hostile;
mod link;
mod names;
mod push;
mod reach;
mod refusal;
mod resume;
mod sources;
mod storm;
mod support;
mod tries;
