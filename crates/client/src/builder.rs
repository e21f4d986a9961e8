//! How a client is made.

use std::{fmt, future::Future, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use ropeway_core::{
    CarrierKind,
    connect::{EstablishConfig, ReconnectConfig, Unit},
    request::{Hosts, LadderConfig, REDIRECTS_MAX, Way},
    session,
};
use ropeway_net::pem;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use thiserror::Error;

use crate::{
    BoxError, Client, Event, density,
    identity::{DeviceKey, Tickets},
    pipe::PipeConfig,
    short,
    sources::{DispatchSeed, ListKey, PipeKey, PipeTarget, SourcesSetup},
};

/// Makes a [`Client`].
#[derive(Debug, Default)]
#[must_use]
pub struct Builder {
    gateway: Option<String>,
    access_points: Vec<(String, Vec<CarrierKind>, Option<Unit>)>,
    carriers: Vec<CarrierKind>,
    trust: Option<Vec<u8>>,
    tickets: Option<Tickets>,
    app: Option<String>,
    device_id: Option<String>,
    device_key: Option<[u8; 32]>,
    topics: Vec<String>,
    hosts: Vec<String>,
    redirects: Option<u32>,
    timeout: Option<Duration>,
    link_wait: Option<Duration>,
    refused_wait: Option<Duration>,
    plain_http: bool,
    h3_hosts: Vec<String>,
    ways: Vec<Way>,
    short_limits: short::Limits,
    connect_now: bool,
    establish: EstablishConfig,
    reconnect: ReconnectConfig,
    sources: SourcesSetup,
    watcher: Watcher,
    pub(crate) density: density::Config,
}

/// Why a client cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An access point is neither `IP:PORT` nor `NAME:PORT`.
    #[error("access point {0:?} is not host:port")]
    AccessPoint(String),
    /// The certificates are not PEM, or there are none.
    #[error("trusted certificates: {0}")]
    Certificates(String),
    /// None of the access points speaks a carrier that is allowed.
    #[error("no access point speaks a carrier that is allowed")]
    NoCarrier,
    /// The gateway has no name, and the access points are bare addresses.
    #[error("name of the gateway is missing: its certificate is checked against it")]
    NoGateway,
    /// The operating system gave no random bytes.
    #[error("no random bytes from the operating system")]
    NoRandom,
    /// There are access points and no ticket to show there.
    #[error("ticket is missing")]
    NoTicket,
    /// The key of a sealed pipe cannot be used.
    #[error("key of the sealed pipe at {address}: {reason}")]
    PipeKey {
        /// The address.
        address: SocketAddr,
        /// What is wrong with it.
        reason: String,
    },
}

impl Builder {
    /// Names the gateway: its certificate must carry this name, unless the access list has another for it. By default the name of the
    /// first access point that has one.
    pub fn gateway(mut self, name: impl Into<String>) -> Self {
        self.gateway = Some(name.into());
        self
    }

    /// Adds an access point, an `IP:PORT` or `NAME:PORT`, which speaks every carrier. Several are raced. Without any, every request
    /// goes directly to its host.
    pub fn access_point(self, address: impl fmt::Display) -> Self {
        self.access_point_on(address, CarrierKind::ALL)
    }

    /// Adds an access point that speaks only these carriers.
    pub fn access_point_on(
        mut self,
        address: impl fmt::Display,
        carriers: impl IntoIterator<Item = CarrierKind>,
    ) -> Self {
        self.access_points.push((address.to_string(), carriers.into_iter().collect(), None));
        self
    }

    /// Adds an access point of a unit: a site whose gateways share what they know of sessions. Where one unit cannot be reached or does
    /// not serve, the client moves to another, and leaves what it has under way to the first.
    pub fn access_point_in(mut self, unit: impl AsRef<str>, address: impl fmt::Display) -> Self {
        self.access_points.push((address.to_string(), CarrierKind::ALL.to_vec(), Some(Unit::from(unit.as_ref()))));
        self
    }

    /// Allows this carrier, and no other that is not allowed as well. By default all are.
    pub fn carrier(mut self, carrier: CarrierKind) -> Self {
        self.carriers.push(carrier);
        self
    }

    /// Trusts these authorities, in PEM: for the gateways alone instead of the platform's, for direct calls beside the platform's.
    pub fn trust(mut self, ca_pem: impl Into<Vec<u8>>) -> Self {
        self.trust.get_or_insert_default().extend(ca_pem.into());
        self
    }

    /// Shows the gateways this ticket.
    pub fn ticket(mut self, ticket: impl Into<String>) -> Self {
        self.tickets = Some(Tickets::Fixed(ticket.into()));
        self
    }

    /// Asks for a ticket before the first link, and again whenever the gateway says that it has expired.
    pub fn ticket_source<F, A, E>(mut self, source: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<String, E>> + Send + 'static,
        E: Into<BoxError>,
    {
        self.tickets = Some(Tickets::Ask(Arc::new(move || {
            let ticket = source();
            Box::pin(async move { ticket.await.map_err(Into::into) })
        })));
        self
    }

    /// Names the app: the audience of the ticket. By default the audience that the ticket names.
    pub fn app(mut self, app: impl Into<String>) -> Self {
        self.app = Some(app.into());
        self
    }

    /// Names the device, for pushes to it. The ticket must allow the name in its `device` claim; the default, which is made from the
    /// device's public key, is what a ticket without that claim allows.
    pub fn device_id(mut self, id: impl Into<String>) -> Self {
        self.device_id = Some(id.into());
        self
    }

    /// Gives the seed of the device's Ed25519 key, which the ticket names. By default a new key is made, whose public half a ticket
    /// source can put into the tickets it asks for ([`Client::device_public_key`]).
    pub fn device_key(mut self, seed: [u8; 32]) -> Self {
        self.device_key = Some(seed);
        self
    }

    /// Subscribes to a topic from the first link on.
    pub fn topic(mut self, topic: impl Into<String>) -> Self {
        self.topics.push(topic.into());
        self
    }

    /// Says in advance that the gateways serve this authority, `*.` starting a wildcard. Requests to other hosts then need not wait
    /// for the first link to learn that they go directly; what the gateway says replaces it.
    pub fn served_host(mut self, authority: impl Into<String>) -> Self {
        self.hosts.push(authority.into());
        self
    }

    /// Believes access lists that are signed by this Ed25519 key, which `ropeway up` writes to `client.json`. At most two count, so that
    /// one can follow the other. With a key the client takes the lists that links bring and fetches them from dispatch addresses; their
    /// access points are raced beside those that were added here.
    pub fn list_key(mut self, id: impl Into<String>, public_key: [u8; 32]) -> Self {
        self.sources.list_keys.push(ListKey { id: id.into(), public_key });
        self
    }

    /// Adds an address that answers for the access list over HTTPS, any gateway for instance, and the unit it belongs to. They should
    /// span units: where one site is gone, another tells where to go.
    pub fn dispatch(mut self, unit: impl Into<String>, address: SocketAddr) -> Self {
        self.sources.dispatch.push(DispatchSeed { address, unit: Some(unit.into()) });
        self
    }

    /// Adds a sealed pipe at an address of a unit, with its key configuration (RFC 9458 section 3.1), good until `expires_ms` of Unix
    /// time: a request may be sealed for it before any access list has come. At most 16 count; once a list comes, its pipes are used
    /// in place of these. `ropeway up` writes both to `client.json`.
    pub fn pipe(
        mut self,
        unit: impl Into<String>,
        address: SocketAddr,
        key: impl Into<Bytes>,
        expires_ms: u64,
    ) -> Self {
        let config = key.into();
        let key =
            PipeKey { key_id: config.first().copied().unwrap_or_default(), config, expires_ms, name: String::new() };
        self.sources.pipes.push(PipeTarget { address, key, gateway: String::new(), unit: unit.into() });
        self
    }

    /// Adds a server of DNS over HTTPS, whose certificate must carry this name. It is asked where the system's name servers are silent,
    /// fail or lie. At most four count; by default there is none.
    pub fn doh(mut self, address: SocketAddr, name: impl Into<String>) -> Self {
        self.sources.doh.push((address, name.into()));
        self
    }

    /// Keeps the last good access list in this folder, so that the next start needs no network to know where to go. The folder is made
    /// where it is missing; a file in it that cannot be used is set aside and told as an [`Event`]. By default nothing is kept.
    pub fn state_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.sources.state_dir = Some(folder.into());
        self
    }

    /// Follows at most so many redirects (301, 302, 303, 307, 308) in a row; 10 by default, 0 for none, so that each is an answer.
    ///
    /// A POST becomes a GET by 301, 302 and 303. Another origin is not sent `authorization`, `cookie` and `idempotency-key`; a URL of `http`
    /// needs [`allow_plain_http`](Self::allow_plain_http). One more redirect is [`Error::Redirect`](crate::Error::Redirect). Requests through
    /// [`tower::Service`](tower_service::Service) follow none: that is for a layer.
    pub const fn redirects(mut self, max: u32) -> Self {
        self.redirects = Some(max);
        self
    }

    /// Bounds every request, from `send` to the last byte of its answer's body. By default the head of the answer must come within
    /// 40 s, and the body may take any time.
    pub fn timeout(mut self, total: Duration) -> Self {
        self.timeout = Some(total);
        self
    }

    /// Bounds how long a request without another way waits for a link where all access points refuse connections, again and again, and
    /// nothing else comes back; 3 s by default, or as long as [`link_wait`](Self::link_wait) where that is set.
    pub fn refused_wait(mut self, wait: Duration) -> Self {
        self.refused_wait = Some(wait);
        self
    }

    /// Bounds how long a request waits for a link while no attempt to get one comes further. By default that is as long as the app gave it
    /// ([`timeout`](Self::timeout)), so that a lift or a tunnel costs no request its life, and 10 s where the app gave it no time or
    /// the device has no route at all. After that it fails with [`crate::Error::NoWay`]. On a slow network, where an attempt is on its
    /// way, it waits longer.
    pub fn link_wait(mut self, wait: Duration) -> Self {
        self.link_wait = Some(wait);
        self
    }

    /// Sets the constants of racing and greeting.
    pub fn establish(mut self, config: EstablishConfig) -> Self {
        self.establish = config;
        self
    }

    /// Sets the constants of reconnecting.
    pub fn reconnect(mut self, config: ReconnectConfig) -> Self {
        self.reconnect = config;
        self
    }

    /// Lets `http://` URLs of hosts that no gateway serves cross the network in the clear. By default they are refused.
    pub fn allow_plain_http(mut self, allow: bool) -> Self {
        self.plain_http = allow;
        self
    }

    /// Takes this way too, and none of those that are not named like that; by default all of them are taken, in the order in which the
    /// gateways' policy has them.
    pub fn way(mut self, way: Way) -> Self {
        self.ways.push(way);
        self
    }

    /// Says that this host, `*.` starting a wildcard, speaks HTTP/3 on the port of its URLs, so that direct calls race it with TCP from
    /// the first on. By default HTTP/3 is tried where the host has said so in an answer (`Alt-Svc`) or has an HTTPS record that does.
    pub fn http3_host(mut self, authority: impl Into<String>) -> Self {
        self.h3_hosts.push(authority.into());
        self
    }

    /// Bounds the connections of direct calls to one host; 6 by default, at least 1.
    pub fn host_connections(mut self, max: usize) -> Self {
        self.short_limits.host_connections_max = max.max(1);
        self
    }

    /// Lets direct calls to a host of HTTP/2 or HTTP/3 use several connections at once, where one would do: on a network that loses
    /// packets one that stands still stops all of its requests. 1 by default; no more than [`host_connections`](Self::host_connections)
    /// are opened.
    pub fn host_multiplexed_connections(mut self, max: usize) -> Self {
        self.short_limits.host_multiplexed_max = max.max(1);
        self
    }

    /// Opens the link at once instead of with the first request or push stream. [`build`](Self::build) must then be called within a
    /// tokio runtime.
    pub fn connect_now(mut self, now: bool) -> Self {
        self.connect_now = now;
        self
    }

    /// Is told what happens to the link. The function is called from the task that keeps the link and must return soon.
    pub fn on_event(mut self, watcher: impl Fn(Event) + Send + Sync + 'static) -> Self {
        self.watcher = Watcher(Some(Arc::new(watcher)));
        self
    }

    /// Makes the client. Nothing is sent yet, unless [`connect_now`](Self::connect_now) was asked for.
    ///
    /// # Errors
    ///
    /// [`BuildError`] if something is missing or malformed.
    pub fn build(self) -> Result<Client, BuildError> {
        let connect_now = self.connect_now;
        let client = Client::new(self.config()?);
        if connect_now {
            client.connect();
        }
        Ok(client)
    }

    fn config(self) -> Result<Config, BuildError> {
        let allowed = |carrier: &CarrierKind| self.carriers.is_empty() || self.carriers.contains(carrier);
        let mut access_points = Vec::new();
        for (address, carriers, unit) in &self.access_points {
            let seat = Seat::parse(address).ok_or_else(|| BuildError::AccessPoint(address.clone()))?;
            let carriers: Vec<CarrierKind> = carriers.iter().copied().filter(allowed).collect();
            if !carriers.is_empty() {
                access_points.push(AccessPoint { seat, carriers, unit: unit.clone() });
            }
        }
        if access_points.is_empty() && !self.access_points.is_empty() {
            return Err(BuildError::NoCarrier);
        }
        let named = access_points.iter().find_map(|point| match &point.seat {
            Seat::Address(_) => None,
            Seat::Name(name, _) => Some(name.clone()),
        });
        let gateway = match self.gateway.or(named) {
            Some(gateway) => gateway,
            None if access_points.is_empty() => String::new(),
            None => return Err(BuildError::NoGateway),
        };
        let tickets = match self.tickets {
            Some(tickets) => tickets,
            None if access_points.is_empty() => Tickets::Fixed(String::new()),
            None => return Err(BuildError::NoTicket),
        };
        let device_key = match &self.device_key {
            Some(seed) => DeviceKey::from_seed(seed),
            None => DeviceKey::generate().map_err(|_| BuildError::NoRandom)?,
        };
        let device_id = self.device_id.unwrap_or_else(|| session::device_id(&device_key.public()));
        let trust = self.trust.as_deref().map(certificates).transpose()?;
        for PipeTarget { address, key, .. } in &self.sources.pipes {
            PipeConfig::parse(&key.config)
                .map_err(|error| BuildError::PipeKey { address: *address, reason: error.to_string() })?;
        }
        let sources = SourcesSetup {
            gateway: gateway.clone(),
            public_hosts: self.hosts.clone(),
            carriers: self.carriers.clone(),
            trust: trust.clone().unwrap_or_default(),
            ..self.sources
        };
        let waits = LadderConfig::default();
        Ok(Config {
            gateway,
            access_points,
            trust,
            sources,
            tickets,
            app: self.app,
            device_id,
            device_key,
            topics: self.topics,
            hosts: (!self.hosts.is_empty()).then(|| Arc::new(Hosts::new(&self.hosts))),
            redirects: self.redirects.unwrap_or(REDIRECTS_MAX),
            timeout: self.timeout,
            link_wait: self.link_wait,
            refused_wait: self.refused_wait.or(self.link_wait).unwrap_or(waits.refused_wait),
            plain_http: self.plain_http,
            h3_hosts: Hosts::new(&self.h3_hosts),
            ways: self.ways,
            short_limits: self.short_limits,
            watcher: self.watcher,
            establish: self.establish,
            reconnect: self.reconnect,
            density: self.density,
        })
    }
}

/// What a client is made of.
#[derive(Debug)]
pub(crate) struct Config {
    pub(crate) gateway: String,
    pub(crate) access_points: Vec<AccessPoint>,
    pub(crate) trust: Option<Vec<CertificateDer<'static>>>,
    pub(crate) tickets: Tickets,
    pub(crate) app: Option<String>,
    pub(crate) device_id: String,
    pub(crate) device_key: DeviceKey,
    pub(crate) topics: Vec<String>,
    pub(crate) hosts: Option<Arc<Hosts>>,
    /// Redirects that a request follows.
    pub(crate) redirects: u32,
    pub(crate) timeout: Option<Duration>,
    /// `None` for as long as the app gave the request.
    pub(crate) link_wait: Option<Duration>,
    pub(crate) refused_wait: Duration,
    pub(crate) plain_http: bool,
    pub(crate) h3_hosts: Hosts,
    /// The ways that the app wants; empty for all.
    pub(crate) ways: Vec<Way>,
    pub(crate) short_limits: short::Limits,
    pub(crate) watcher: Watcher,
    pub(crate) establish: EstablishConfig,
    pub(crate) reconnect: ReconnectConfig,
    pub(crate) density: density::Config,
    /// What the sources of addresses are made of; its access points are those of this configuration.
    pub(crate) sources: SourcesSetup,
}

impl Config {
    /// Says whether there is an access point to open a link to, or the sources may bring one.
    pub(crate) fn seeks_links(&self) -> bool {
        !self.access_points.is_empty() || self.sources.brings_access_points()
    }
}

/// Where a gateway can be reached, and how.
#[derive(Clone, Debug)]
pub(crate) struct AccessPoint {
    pub(crate) seat: Seat,
    pub(crate) carriers: Vec<CarrierKind>,
    /// The unit it belongs to, where the app said so.
    pub(crate) unit: Option<Unit>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    Address(SocketAddr),
    Name(String, u16),
}

impl Seat {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse() {
            return Some(Self::Address(address));
        }
        let (name, port) = text.rsplit_once(':')?;
        let valid = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte));
        valid.then_some(())?;
        Some(Self::Name(name.into(), port.parse().ok()?))
    }
}

/// Who is told of events.
#[derive(Clone, Default)]
pub(crate) struct Watcher(Option<Arc<dyn Fn(Event) + Send + Sync>>);

impl Watcher {
    pub(crate) fn tell(&self, event: Event) {
        if let Some(watcher) = &self.0 {
            watcher(event);
        }
    }
}

impl fmt::Debug for Watcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Some" } else { "None" })
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BuildError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match certificates {
        Ok(certificates) if certificates.is_empty() => Err(BuildError::Certificates("there are none".into())),
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(BuildError::Certificates(pem::reason("certificate", &error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Builder {
        Client::builder().ticket("t").gateway("gw.test")
    }

    #[test]
    fn what_is_missing_or_malformed_is_named() {
        for (builder, error) in [
            (base().access_point("nonsense"), BuildError::AccessPoint("nonsense".into())),
            (base().access_point("a b:1"), BuildError::AccessPoint("a b:1".into())),
            (base().trust("nothing"), BuildError::Certificates("there are none".into())),
            (Client::builder().ticket("t").access_point("192.0.2.1:443"), BuildError::NoGateway),
            (Client::builder().access_point("gw.test:443"), BuildError::NoTicket),
            (
                base().pipe("north", ([192, 0, 2, 1], 80).into(), &b"nonsense"[..], u64::MAX),
                BuildError::PipeKey {
                    address: ([192, 0, 2, 1], 80).into(),
                    reason: PipeConfig::parse(b"nonsense").unwrap_err().to_string(),
                },
            ),
            (
                base().access_point_on("192.0.2.1:443", [CarrierKind::Tls]).carrier(CarrierKind::Quic),
                BuildError::NoCarrier,
            ),
        ] {
            assert_eq!(builder.build().err(), Some(error));
        }
    }

    #[test]
    fn the_gateway_is_named_by_the_first_access_point_that_has_a_name() {
        let builder = Client::builder().ticket("t").access_point("192.0.2.1:443").access_point("gw.test:8443");
        let config = builder.config().unwrap();
        assert_eq!(config.gateway, "gw.test");
        assert_eq!(config.access_points[1].seat, Seat::Name("gw.test".into(), 8443));
        assert_eq!(config.access_points[0].carriers, CarrierKind::ALL);
    }

    #[test]
    fn without_access_points_nothing_else_is_needed() {
        assert!(Client::builder().build().is_ok());
    }
}
