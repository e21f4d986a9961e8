//! Where the client's addresses come from: drives [`ropeway_core::connect::sources`] over the network and the disk.
//!
//! A [`Sources`] knows gateways, hosts and policy at any moment, keeps the last good access list in a folder of the app, and says when
//! what it knows has changed. It asks name servers, dispatchers and servers of DNS over HTTPS by itself, as few as will do.

mod driver;
mod state;

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use bytes::Bytes;
use ropeway_core::{
    CarrierKind,
    connect::sources::{Sources as Machine, SourcesConfig},
    policy::Policy,
};
use ropeway_net::{
    Clock,
    dns::{Dispatch, Doh, web_config},
};
use rustls::pki_types::CertificateDer;
use thiserror::Error;
use tokio::sync::watch;

use self::{
    driver::{Clients, Inner, Names},
    state::StateFile,
};

pub use ropeway_core::{
    connect::sources::{
        DispatchSeed, ListOrigin, ListState, ListTrouble, NamedPoint, Origin, PipeTarget, PlainTarget, Seed,
        SourcesWarning, Target,
    },
    wire::list::{ListError, ListKey, PipeKey, Validity},
};

/// What a [`Sources`] is made of.
#[derive(Clone, Debug, Default)]
pub struct SourcesSetup {
    /// Keys whose signature under an access list is believed, at most two; without any, lists are neither taken nor fetched.
    pub list_keys: Vec<ListKey>,
    /// Name of the gateways: what the certificates of dispatch addresses must carry, where the list names no other.
    pub gateway: String,
    /// Access points that somebody chose.
    pub access_points: Vec<Seed>,
    /// Access points that are known by name.
    pub names: Vec<NamedPoint>,
    /// Access points built into the app, of more than one unit.
    pub seeds: Vec<Seed>,
    /// Dispatch addresses built into the app, of more than one unit.
    pub dispatch: Vec<DispatchSeed>,
    /// Sealed pipes built into the app, to be used until an access list comes, each as long as its key is good.
    pub pipes: Vec<PipeTarget>,
    /// Servers of DNS over HTTPS, each with the name its certificate must carry.
    pub doh: Vec<(SocketAddr, String)>,
    /// Name servers to ask instead of the system's; empty asks the system's.
    pub name_servers: Vec<SocketAddr>,
    /// Names that must not resolve to private addresses, `*.` starting a wildcard; the hosts of the list need not be named.
    pub public_hosts: Vec<String>,
    /// Carriers that are allowed; empty allows all.
    pub carriers: Vec<CarrierKind>,
    /// Authorities that are believed besides the platform's.
    pub trust: Vec<CertificateDer<'static>>,
    /// Folder in which the last good list is kept; it is made where it is missing. Without one, none is kept.
    pub state_dir: Option<PathBuf>,
    /// The user, where that is known.
    pub user: Option<String>,
    /// Seed of what is drawn at random.
    pub seed: u64,
}

impl SourcesSetup {
    /// Says whether access points may become known beyond those that the app itself named.
    #[must_use]
    pub const fn brings_access_points(&self) -> bool {
        !self.list_keys.is_empty() || !self.seeds.is_empty()
    }
}

/// Something the app may want to know of its network or its disk. None of it is a failure by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SourcesEvent {
    /// The state on disk could not be used, and was set aside.
    StateIgnored {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The state could not be written; the next process begins without it.
    StateNotKept {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A list or a policy was not believed, or a name server lied.
    Warning(SourcesWarning),
}

impl fmt::Display for SourcesEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StateIgnored { path, reason } => {
                write!(f, "the state in {} could not be used, and was set aside: {reason}", path.display())
            }
            Self::StateNotKept { path, reason } => {
                write!(f, "the state could not be written to {}: {reason}", path.display())
            }
            Self::Warning(warning) => warning.fmt(f),
        }
    }
}

/// Why the addresses of a host are not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResolveError {
    /// Nobody who was asked knows it.
    #[error("no source knows an address of {host:?}")]
    Unknown {
        /// The host.
        host: String,
    },
}

/// Knows gateways, hosts and policy. Clones are the same.
#[derive(Clone)]
pub struct Sources {
    inner: Arc<Inner>,
}

impl Sources {
    /// Starts to know: reads the state of the last process, and asks for what is missing. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// When TLS cannot be set up, for want of the platform's authorities.
    pub fn start(
        setup: SourcesSetup,
        clock: Clock,
        watcher: impl Fn(SourcesEvent) + Send + Sync + 'static,
    ) -> io::Result<Self> {
        // To read the platform's authorities takes a while, and is of use only where somebody is asked over HTTPS.
        let has_web = !setup.list_keys.is_empty() || !setup.doh.is_empty();
        let tls = has_web.then(|| web_config(&setup.trust)).transpose()?.map(Arc::new);
        let state = setup.state_dir.map(StateFile::new);
        let allowed = |carriers: &mut Vec<CarrierKind>| {
            carriers.retain(|carrier| setup.carriers.is_empty() || setup.carriers.contains(carrier));
        };
        let (mut access_points, mut names, mut seeds) = (setup.access_points, setup.names, setup.seeds);
        access_points.iter_mut().chain(&mut seeds).for_each(|seed| allowed(&mut seed.carriers));
        names.iter_mut().for_each(|point| allowed(&mut point.carriers));
        let config = SourcesConfig {
            list_keys: setup.list_keys,
            access_points,
            names,
            seeds,
            dispatch: setup.dispatch,
            pipes: setup.pipes,
            doh: setup.doh.iter().map(|(address, _)| *address).collect(),
            public_hosts: setup.public_hosts,
            user: setup.user,
        };
        let names = Names { gateway: setup.gateway, doh: setup.doh.into_iter().collect(), carriers: setup.carriers };
        let clients = Clients {
            web: tls.map(|tls| (Dispatch::new(Arc::clone(&tls)), Doh::new(tls))),
            name_servers: setup.name_servers,
        };
        let inner = Inner::new(config, setup.seed, clock, names, clients, state, Box::new(watcher));
        Ok(Self { inner: Inner::start(inner) })
    }

    /// Returns where a link could be opened, now and as it changes: the most trusted source first, at most 64.
    #[must_use]
    pub fn candidates(&self) -> watch::Receiver<Arc<Vec<Target>>> {
        self.inner.targets.subscribe()
    }

    /// Tells when anything that can be asked here may have another answer.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.inner.changes.subscribe()
    }

    /// Returns where a host is by its name, each address with who named it, the most trusted first. What is known is returned at once,
    /// though it be stale; otherwise the first answer that comes.
    ///
    /// # Errors
    ///
    /// [`ResolveError`] if everybody was asked in vain.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<(SocketAddr, Origin)>, ResolveError> {
        if let Ok(ip) = host.trim_matches(['[', ']']).parse::<IpAddr>() {
            return Ok(vec![(SocketAddr::new(ip, port), Origin::List)]);
        }
        let resolved = self.inner.resolve(host).await.ok_or_else(|| ResolveError::Unknown { host: host.into() })?;
        Ok(resolved.into_iter().map(|resolved| (resolved.address.at(port), resolved.origin)).collect())
    }

    /// Returns the addresses that the access list has for a host, for short links that do without its name.
    #[must_use]
    pub fn direct_addresses(&self, host: &str, port: u16) -> Vec<SocketAddr> {
        let addresses = self.inner.read(|machine, now, wall_ms| machine.direct_addresses(host, now, wall_ms));
        addresses.into_iter().map(|address| address.at(port)).collect()
    }

    /// Returns where a request for a host may go without a link, all of one list: addresses, pipes, and gateways that serve plain HTTP.
    pub(crate) fn places(&self, host: &str, port: u16) -> (Vec<SocketAddr>, Vec<PipeTarget>, Vec<PlainTarget>) {
        self.inner.read(|machine, now, wall_ms| {
            let addresses = machine.direct_addresses(host, now, wall_ms).into_iter().map(|address| address.at(port));
            (addresses.collect(), machine.pipe_targets(now, wall_ms), machine.plain_targets(now, wall_ms))
        })
    }

    /// Says whether the access list has a host as one that speaks HTTP/3.
    #[must_use]
    pub fn speaks_h3(&self, host: &str) -> bool {
        self.inner.read(|machine, now, wall_ms| machine.speaks_h3(host, now, wall_ms))
    }

    /// Returns the UDP port at which a host has HTTP/3 for URLs with this port, if its HTTPS record is known by now and says so; where it
    /// is not known or no longer fresh, it is asked for. Nothing where QUIC is not allowed.
    pub(crate) fn h3_port(&self, host: &str, port: u16) -> Option<u16> {
        self.inner.h3_port(host, port)
    }

    /// Returns where the sealed pipe may be used, one site after the other, the user's first.
    #[must_use]
    pub fn pipe_targets(&self) -> Vec<PipeTarget> {
        self.inner.read(|machine, now, wall_ms| machine.pipe_targets(now, wall_ms))
    }

    /// Returns where plain HTTP may be used, in the same order; nothing once the permissions of the list have ended.
    #[must_use]
    pub fn plain_targets(&self) -> Vec<PlainTarget> {
        self.inner.read(|machine, now, wall_ms| machine.plain_targets(now, wall_ms))
    }

    /// Returns the policy that holds.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.inner.read(|machine, now, wall_ms| machine.policy(now, wall_ms).cloned().unwrap_or_default())
    }

    /// Reads the policy that holds, without a copy of it.
    pub(crate) fn with_policy<R>(&self, read: impl FnOnce(&Policy) -> R) -> R {
        self.inner.read(|machine, now, wall_ms| match machine.policy(now, wall_ms) {
            Some(policy) => read(policy),
            None => read(&Policy::default()),
        })
    }

    /// Returns the unit of the user, where the list says so.
    #[must_use]
    pub fn unit(&self) -> Option<String> {
        self.inner.read(|machine, now, wall_ms| machine.unit(now, wall_ms).map(str::to_owned))
    }

    /// Returns what HELLO says as the epoch of the client's list.
    #[must_use]
    pub fn list_epoch_ms(&self) -> u64 {
        self.inner.read(|machine, _, _| machine.list_epoch_ms())
    }

    /// Says how it stands with the access list.
    #[must_use]
    pub fn list_state(&self) -> ListState {
        self.inner.read(|machine, now, wall_ms| machine.list_state(now, wall_ms))
    }

    /// Returns why the last attempt to have an access list brought none; `None` once one came, or before anybody was asked.
    #[must_use]
    pub fn list_trouble(&self) -> Option<ListTrouble> {
        self.inner.read(|machine, _, _| machine.list_trouble().cloned())
    }

    /// Returns the oldest question for a list that nobody has answered yet, as the trouble that it is to who cannot wait any longer.
    pub(crate) fn list_silence(&self) -> Option<ListTrouble> {
        self.inner.read(|machine, now, _| machine.list_silence(now))
    }

    /// Says that a request finds no way that works without an access list: where there is none one is fetched at once, if that was not
    /// tried a moment ago.
    pub fn handle_needed(&self) {
        // Asked first, for this is asked often and changes little.
        if self.list_state().is_awaited() {
            self.inner.change(Machine::handle_needed);
        }
    }

    /// Takes a list that a link brought.
    pub fn handle_list(&self, document: &Bytes) {
        self.inner.change(|machine, now, wall_ms| machine.handle_list(document, now, wall_ms));
    }

    /// Takes a policy that a link brought.
    pub fn handle_policy(&self, document: &Bytes) {
        self.inner.change(|machine, now, _| machine.handle_policy(document, now));
    }

    /// Says that no access point of the user's unit can be reached: two other units are asked for their list at once.
    pub fn handle_failed_unit(&self) {
        self.inner.change(|machine, now, _| machine.handle_failed_unit(now));
    }

    /// Returns a dispatcher's time less the device's, in ms, as it was told last over TLS.
    pub(crate) fn clock_offset_ms(&self) -> i64 {
        self.inner.clock_offset_ms.load(Ordering::Relaxed)
    }

    /// Says that whoever answered at a gateway's address claims not to know a key of the list: a newer list is fetched soon, if that was
    /// not done a moment ago.
    pub fn handle_key_unknown(&self) {
        self.inner.change(|machine, now, _| machine.handle_key_unknown(now));
    }

    /// Says that the certificate of this address was not the host's: it is not offered for the host for a while.
    pub fn handle_untrusted(&self, host: &str, address: IpAddr) {
        self.inner.change(|machine, now, _| machine.handle_untrusted(host, address, now));
    }

    /// Says that the network is another one.
    pub fn handle_network_changed(&self) {
        self.inner.renew_system();
        self.inner.change(|machine, now, _| machine.handle_network_changed(now));
    }

    /// Says which user the device has.
    pub fn set_user(&self, user: Option<String>) {
        self.inner.change(|machine, _, _| machine.set_user(user));
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}
