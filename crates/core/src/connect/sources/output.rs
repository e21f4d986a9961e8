//! What the machine is made of and what it says.

use std::{collections::VecDeque, fmt, net::SocketAddr};

use bytes::Bytes;

use super::{AskId, ListTrouble, Origin, PipeTarget, Question, Server};
use crate::{CarrierKind, policy::PolicyError, wire::list::ListKey};

/// What the app brings along.
#[derive(Clone, Debug, Default)]
pub struct SourcesConfig {
    /// Keys whose signature under a list is believed; without any, lists are neither taken nor fetched.
    pub list_keys: Vec<ListKey>,
    /// Access points that somebody chose: they go before those of the list. At most 64.
    pub access_points: Vec<Seed>,
    /// Access points built into the app. They should span units. At most 64.
    pub seeds: Vec<Seed>,
    /// Access points that are known by name. At most 8.
    pub names: Vec<NamedPoint>,
    /// Dispatch addresses built into the app. At most 16.
    pub dispatch: Vec<DispatchSeed>,
    /// Sealed pipes built into the app, to be used until a list comes, each as long as its key is good. At most 16.
    pub pipes: Vec<PipeTarget>,
    /// Servers of DNS over HTTPS. At most 4.
    pub doh: Vec<SocketAddr>,
    /// Names of the public internet, `*.` starting a wildcard: private addresses are never right for them. The hosts of the list need
    /// not be named. At most 1,000.
    pub public_hosts: Vec<String>,
    /// The user, for the unit.
    pub user: Option<String>,
}

/// An access point that is named beforehand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The address.
    pub address: SocketAddr,
    /// The carriers it speaks.
    pub carriers: Vec<CarrierKind>,
    /// Name on the gateway's certificate, where it is not the client's setting.
    pub gateway: Option<String>,
    /// The unit it belongs to, where that is known.
    pub unit: Option<String>,
}

/// An access point that is known by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPoint {
    /// The name.
    pub name: String,
    /// The port.
    pub port: u16,
    /// The carriers it speaks.
    pub carriers: Vec<CarrierKind>,
}

/// A dispatch address that is built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DispatchSeed {
    /// The address.
    pub address: SocketAddr,
    /// The unit it belongs to, where that is known.
    pub unit: Option<String>,
}

/// What to do, and what happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourcesOutput {
    /// Ask this server, and report the answer with [`Sources::handle_answer`](super::Sources::handle_answer).
    Ask {
        /// Number of the ask.
        ask: AskId,
        /// Whom to ask.
        server: Server,
        /// What to ask.
        question: Question,
    },
    /// Something that is read from the machine is another than before.
    Changed,
    /// Keep this list on disk, in place of the one before.
    Store(Bytes),
    /// Tell the app.
    Warn(SourcesWarning),
}

/// What the app should know of its network or its gateways.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourcesWarning {
    /// A name server answered a public name with addresses that cannot be right, all of them left out.
    Hijacked {
        /// The name.
        host: String,
        /// One of the addresses.
        address: std::net::IpAddr,
        /// Who said so.
        origin: Origin,
    },
    /// A list was not had, or not believed.
    List(ListTrouble),
    /// A policy was none.
    PolicyRefused {
        /// Why.
        error: PolicyError,
    },
}

impl fmt::Display for SourcesWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hijacked { host, address, origin } => {
                write!(f, "{origin} says that {host:?} is at {address}, which cannot be right; left out")
            }
            Self::List(trouble) => trouble.fmt(f),
            Self::PolicyRefused { error } => write!(f, "a policy was not understood: {error}"),
        }
    }
}

impl SourcesConfig {
    pub(super) fn bound(&mut self) {
        self.access_points.truncate(SEEDS_MAX);
        self.seeds.truncate(SEEDS_MAX);
        self.names.truncate(NAMES_MAX);
        self.dispatch.truncate(DISPATCH_MAX);
        self.pipes.truncate(PIPES_MAX);
        self.doh.truncate(DOH_MAX);
        self.public_hosts.truncate(PUBLIC_HOSTS_MAX);
    }

    /// Says whether the app named this host as one of the public internet.
    pub(super) fn is_public_host(&self, name: &str) -> bool {
        self.public_hosts.iter().any(|host| match host.strip_prefix('*') {
            Some(suffix) => name.ends_with(suffix),
            None => host == name,
        })
    }
}

/// Outputs that wait to be polled. Whoever owns the machine drains it after each call, so the bound guards against its mistakes only.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<SourcesOutput>);

impl Queue {
    pub(super) fn push(&mut self, output: SourcesOutput) {
        if output == SourcesOutput::Changed && self.0.contains(&output) {
            return;
        }
        if self.0.len() < OUTPUTS_MAX {
            self.0.push_back(output);
        }
    }

    pub(super) fn warn(&mut self, warning: SourcesWarning) {
        self.push(SourcesOutput::Warn(warning));
    }

    pub(super) fn pop(&mut self) -> Option<SourcesOutput> {
        self.0.pop_front()
    }
}

/// Access points that are built in: as many candidates as are kept of all sources.
const SEEDS_MAX: usize = 64;

/// Access points known by name. 8; our choice.
const NAMES_MAX: usize = 8;

/// Dispatch addresses that are built in. 16; two for each of eight units.
const DISPATCH_MAX: usize = 16;

/// Sealed pipes that are built in. 16, as many as are read of a list.
const PIPES_MAX: usize = 16;

/// Servers of DNS over HTTPS. 4; our choice.
const DOH_MAX: usize = 4;

/// Hosts the app names. 1,000, as in the list.
const PUBLIC_HOSTS_MAX: usize = 1_000;

/// Outputs that wait: as many asks as may be under way, and the rest.
const OUTPUTS_MAX: usize = 128;
