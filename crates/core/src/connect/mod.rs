//! How a client gets a link: which addresses it knows, which it tries first, and when it tries again.
//!
//! Data runs one way. [`candidate::merge`] puts the sources of addresses together, [`candidate::rank`] orders them by
//! what the [`Records`] of this network say, a [`Race`] opens them one after the other and reports a score for each,
//! [`Records::observe`] learns from the score. [`Establish`] greets the winners until one gives a link, [`remedy`] says
//! what to do about a refusal, and [`Reconnect`] when the next attempt is due. [`Keeper`] puts all of it together.
//!
//! ```
//! use std::time::Duration;
//! use ropeway_core::{
//!     CarrierKind, Time,
//!     connect::{Candidate, Race, RaceConfig, RaceOutput, Records, Source, candidate},
//! };
//!
//! let now = Time::ZERO;
//! let mut records = Records::new();
//! let address = "192.0.2.1:443".parse().unwrap();
//! let known = candidate::merge([(Candidate { address, carrier: CarrierKind::Tls }, Source::Config)]);
//! let mut race = Race::new(RaceConfig::default(), candidate::rank(&known, &records, 1, now), now);
//!
//! let Some(RaceOutput::Start { attempt, candidate }) = race.poll_output() else { panic!("the first starts at once") };
//! assert_eq!(candidate.address, address);
//!
//! let now = now + Duration::from_millis(60);
//! race.handle_connected(attempt, Duration::from_millis(20), now);
//! while let Some(output) = race.poll_output() {
//!     match output {
//!         RaceOutput::Scored { candidate, score } => records.observe(candidate, score, now),
//!         RaceOutput::Won { attempt: winner } => assert_eq!(winner, attempt),
//!         RaceOutput::Abandon { .. } | RaceOutput::KeepSpare { .. } => {}
//!         RaceOutput::Lost(_) | RaceOutput::Start { .. } => panic!("the race is won"),
//!     }
//! }
//! assert_eq!(records.learned_carrier(now), Some(CarrierKind::Tls));
//! ```

pub mod altsvc;
pub mod backoff;
pub mod candidate;
pub mod establish;
pub mod keeper;
pub mod networks;
pub mod race;
pub mod record;
pub mod refusal;
pub mod sources;

pub use altsvc::{AltSvc, Origin};
pub use backoff::{LostReason, Reconnect, ReconnectConfig, ReconnectOutput};
pub use candidate::{Candidate, KnownCandidate, RankedCandidate, Source};
pub use establish::{Establish, EstablishConfig, EstablishOutput, GreetFailure};
pub use keeper::{
    ConnectionId, DropReason, Ended, Keeper, KeeperConfig, KeeperFailure, KeeperOutput, OpenLink, Place, Prepared, Unit,
};
pub use networks::OtherNetworks;
pub use race::{
    AbandonReason, AttemptId, AttemptOutcome, AttemptReport, FailReason, Race, RaceConfig, RaceError, RaceOutput,
};
pub use record::{Record, Records, Score};
pub use refusal::{Means, Remedy, remedy};
