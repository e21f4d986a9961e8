//! The gateway as a whole: started from a configuration, drained, stopped.

mod error;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use ropeway_cluster::{Bus, GatewayId, Interests};
use ropeway_core::{
    CarrierKind, Time,
    request::idempotency::IdempotencyConfig,
    session::{MuxConfig, OutboxConfig, ReplayWindow, ServerConfig},
    wire::list::{ListKey, PipeKey, PlainKey},
};
use ropeway_net::{Clock, tls::CertSource};
use tokio::{sync::watch, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    admin,
    config::Config,
    front::{Connection, Front, FrontLimits},
    link::{self, CLOCK_SKEW_MAX, Registry},
    listen::{self, Listeners, TlsFiles},
    lists::{self, Keys, ListSigner, Lists, Times},
    metrics::{Counter, Metrics},
    pipe::{self, Pipe, PublicKey},
    proxy::{KeyedConfig, Proxy},
    push::{self, Reports},
    route::{RouteError, RouteId, RouteSpec, Router},
    secret,
    signing::{self, Signer},
    tickets::TicketVerifier,
};

pub use self::error::StartError;

/// A running gateway. Dropping it does not stop it; [`drain`](Self::drain) does.
pub struct Gateway<B: Bus> {
    shared: Arc<Shared<B>>,
    addresses: Addresses,
    certificates: Arc<CertSource>,
}

/// Where a gateway listens.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The admin API.
    pub admin: SocketAddr,
    /// TLS and WebSocket links, and the HTTP front door.
    pub tcp: SocketAddr,
    /// Further addresses for the same.
    pub tcp_more: Vec<SocketAddr>,
    /// QUIC links and HTTP/3.
    pub udp: SocketAddr,
    /// Further addresses for the same.
    pub udp_more: Vec<SocketAddr>,
}

impl Addresses {
    /// Returns every address with the carriers that are spoken there; those of QUIC alone come first.
    #[must_use]
    pub fn access_points(&self) -> Vec<(SocketAddr, Vec<CarrierKind>)> {
        let tcp: Vec<_> = self.all_tcp().collect();
        let alone =
            self.all_udp().filter(|address| !tcp.contains(address)).map(|address| (address, vec![CarrierKind::Quic]));
        let shared = tcp.iter().map(|address| {
            let is_shared = self.all_udp().any(|udp| udp == *address);
            (*address, if is_shared { CarrierKind::ALL.to_vec() } else { vec![CarrierKind::Tls, CarrierKind::Ws] })
        });
        alone.chain(shared).collect()
    }

    /// Returns every TCP address but the admin API's.
    pub fn all_tcp(&self) -> impl Iterator<Item = SocketAddr> {
        std::iter::once(&self.tcp).chain(&self.tcp_more).copied()
    }

    /// Returns every UDP address.
    pub fn all_udp(&self) -> impl Iterator<Item = SocketAddr> {
        std::iter::once(&self.udp).chain(&self.udp_more).copied()
    }
}

/// What every task of the gateway shares.
pub(crate) struct Shared<B: Bus> {
    pub(crate) bus: B,
    pub(crate) clock: Clock,
    pub(crate) counters: Counters,
    pub(crate) front: Arc<Front>,
    pub(crate) interests: Interests,
    pub(crate) lists: Arc<Lists>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pipe: Option<Arc<Pipe>>,
    pub(crate) signer: Option<Arc<Signer>>,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) registry: Registry,
    pub(crate) replay: Mutex<ReplayWindow>,
    pub(crate) tasks: TaskTracker,
    config: ArcSwap<Config>,
    /// Connections that speak HTTP, or nothing yet.
    connections: TaskTracker,
    links: TaskTracker,
    pub(crate) reports: Reports,
    server_config: ArcSwap<ServerConfig>,
    stopped: AtomicBool,
    verifier: ArcSwap<TicketVerifier>,
    down: CancellationToken,
    draining: CancellationToken,
    exchanges: TaskTracker,
}

/// What the access list of a configuration says of the keys of sealed pipes and of signed answers.
fn keys(config: &Config, pipe: Option<&Pipe>, signer: Option<&Signer>) -> Keys {
    let pipes = pipe.map(|pipe| pipe.keys_of(&lists::pipe_names(config))).unwrap_or_default().into_iter();
    let plain = signer.map(Signer::public).into_iter();
    let listed = |key: PublicKey| {
        let PublicKey { name, id, config, expires_ms } = key;
        PipeKey { key_id: id, config, expires_ms, name }
    };
    Keys {
        pipe: pipes.map(listed).collect(),
        // It is not turned: a list says so for as long as the list itself is good.
        plain: plain.map(|key| PlainKey { key_id: key.id, public_key: key.public, expires_ms: u64::MAX }).collect(),
    }
}

/// What is made before the tasks share it.
pub(crate) struct Parts {
    pub(crate) addresses: Addresses,
    pub(crate) clock: Clock,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) pipe: Option<Arc<Pipe>>,
    pub(crate) signer: Option<Arc<Signer>>,
    pub(crate) list_signer: ListSigner,
    pub(crate) interests: Interests,
    pub(crate) reports: Reports,
}

/// Counters of the hot path.
pub(crate) struct Counters {
    pub(crate) frames_in: Counter,
    pub(crate) frames_out: Counter,
    pub(crate) pushes_accepted: Counter,
    pub(crate) pushes_acked: Counter,
    pub(crate) pushes_dropped: Counter,
    pub(crate) pushes_duplicate: Counter,
    pub(crate) pushes_unreported: Counter,
    pub(crate) pushes_written: Counter,
}

/// Checks the files that a configuration names, as [`Gateway::start`] does, and makes none. Those that are made on first start may be
/// missing; the admin token is left out.
///
/// # Errors
///
/// The [`StartError`] with which a gateway would not start.
pub fn check_files(config: &Config) -> Result<(), StartError> {
    if config.tls.cert.is_some() {
        TlsFiles::load(config)?;
    }
    Pipe::check(config)?;
    signing::check_key(config)?;
    router(config)?;
    ListSigner::check(config)?;
    TicketVerifier::new(&config.tickets)?;
    Ok(())
}

/// Takes away everyone else's right to the secrets that a gateway reads.
fn close_secrets(config: &Config) {
    let shared = config.pipe.secret_file.clone();
    let own = [config.list_key_path(), config.signing_key_path(), config.gateway.data_dir.join(pipe::KEYS_FILE)];
    shared.into_iter().chain(own).for_each(|path| secret::close(&path));
}

impl<B: Bus> Gateway<B> {
    /// Starts a gateway: binds its addresses, takes its place on the bus and serves.
    ///
    /// # Errors
    ///
    /// A [`StartError`] that names the file, address or route; nothing keeps running then.
    pub async fn start(config: Arc<Config>, bus: B) -> Result<Self, StartError> {
        let tls = TlsFiles::load(&config)?;
        let token = admin::read_token(&config)?;
        let listeners = Listeners::bind(&config, &tls).await?;
        let addresses = listeners.addresses().clone();
        let clock = Clock::new();
        let metrics = Arc::new(Metrics::new());
        let pipe = Pipe::open(&config, &metrics, clock)?;
        let signer = Some(Signer::open(&config, &metrics)?);
        let list_signer = ListSigner::open(&config)?;
        close_secrets(&config);
        let name = GatewayId::new(format!("gateway-{:016x}", u64::from_be_bytes(crate::random_bytes())))
            .map_err(|error| StartError::Bus(error.to_string()))?;
        let subscription = bus.subscribe(name).await.map_err(|error| StartError::Bus(error.to_string()))?;
        let (reports, reported) = push::reports();
        let interests = subscription.interests();
        let parts =
            Parts { addresses: addresses.clone(), clock, metrics, pipe, signer, list_signer, interests, reports };
        let shared = Shared::new(config, bus, parts)?;
        shared.tasks.spawn(push::deliver(Arc::clone(&shared), subscription));
        shared.tasks.spawn(push::report(shared.bus.clone(), reported, shared.down.clone()));
        shared.tasks.spawn(listen::sweep(Arc::clone(&shared)));
        shared.tasks.spawn(renew_lists(Arc::clone(&shared)));
        if let Some(pipe) = shared.pipe.clone() {
            let (down, told) = (shared.down.clone(), Arc::clone(&shared));
            shared.tasks.spawn(pipe::turn_keys(pipe, down, move || told.issue_list(told.config())));
        }
        listeners.serve(&shared, &tls, token);
        info!(tcp = %addresses.tcp, udp = %addresses.udp, admin = %addresses.admin, "gateway is up");
        Ok(Self { shared, addresses, certificates: tls.certificates() })
    }

    /// Returns where the gateway listens.
    #[must_use]
    pub const fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Returns the public keys of the sealed pipe that are accepted, the one to use first; none where it is turned off.
    #[must_use]
    pub fn pipe_keys(&self) -> Vec<PublicKey> {
        self.shared.pipe.as_ref().map(|pipe| pipe.keys()).unwrap_or_default()
    }

    /// Returns the public keys by which signed answers are verified.
    #[must_use]
    pub fn signing_keys(&self) -> Vec<signing::PublicKey> {
        self.shared.signer.iter().map(|signer| signer.public()).collect()
    }

    /// Returns the gateway's metrics.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Returns the public key that signs the access list: what apps carry.
    #[must_use]
    pub fn list_key(&self) -> ListKey {
        self.shared.lists.signer().key()
    }

    /// Takes the live keys of a new configuration, those of routes, tickets, the access list and the policy, and reads the
    /// certificate again; the other keys stay as they were at the start. Links and requests in flight go on; they are sent the new
    /// list, and the next WELCOME of each session names the new hosts.
    ///
    /// # Errors
    ///
    /// A [`StartError`] that names the route, key or file; the old configuration then stays in force.
    pub fn reload(&self, config: Arc<Config>) -> Result<(), StartError> {
        let verifier = TicketVerifier::new(&config.tickets)?;
        let router = router(&config)?;
        let running = self.shared.config();
        let config = Arc::new(Config {
            gateway: running.gateway.clone(),
            tls: running.tls.clone(),
            admin: running.admin.clone(),
            idempotency: running.idempotency.clone(),
            pipe: running.pipe.clone(),
            plain_http: running.plain_http.clone(),
            push: running.push.clone(),
            log: running.log.clone(),
            ..(*config).clone()
        });
        let server_config = server_config(&config, &router);
        listen::renew_certificate(&config, &self.certificates)?;
        self.shared.proxy.replace(router);
        self.shared.verifier.store(Arc::new(verifier));
        self.shared.server_config.store(Arc::new(server_config));
        self.shared.config.store(Arc::clone(&config));
        if running.changed_keys(&config).iter().any(|key| !key.starts_with("tickets")) {
            self.shared.issue_list(config);
        }
        info!("configuration taken");
        Ok(())
    }

    /// Takes every configuration that comes, until the sender is gone.
    pub async fn follow(&self, mut configs: watch::Receiver<Arc<Config>>) {
        while configs.changed().await.is_ok() {
            let config = Arc::clone(&configs.borrow_and_update());
            if let Err(error) = self.reload(config) {
                warn!(%error, "configuration not taken, the old one stays in force");
            }
        }
    }

    /// Leaves in good order: asks clients to move, lets requests in flight finish for at most `drain_timeout`, closes.
    pub async fn drain(&self) {
        let shared = &self.shared;
        let patience = shared.config().gateway.drain_timeout;
        info!(links = shared.registry.attached_count(), ?patience, "gateway is draining");
        shared.draining.cancel();
        for entry in shared.registry.all() {
            entry.session().with(|server, _| server.drain(patience));
        }
        let tunnels = shared.front.tunnels();
        let runs = shared.proxy.runs();
        for tracker in [&shared.connections, &shared.exchanges, &shared.links, runs, tunnels] {
            tracker.close();
        }
        let finished = async {
            // A client keeps its link until it has another one. Where there is none to be had, waiting longer helps nobody.
            let _ = timeout(LEAVE_TIMEOUT, shared.links.wait()).await;
            tokio::join!(shared.connections.wait(), shared.exchanges.wait(), runs.wait(), tunnels.wait())
        };
        if timeout(patience, finished).await.is_err() {
            warn!(links = shared.registry.attached_count(), "drain time is over, closing connections");
        }
        self.stop().await;
        info!("gateway is down");
    }

    /// Says goodbye on every link that is left, forgets the sessions, and ends every task.
    async fn stop(&self) {
        let shared = &self.shared;
        shared.stopped.store(true, Ordering::Release);
        for entry in shared.registry.all() {
            entry.session().with(|server, _| server.stop());
        }
        let left = async { tokio::join!(shared.connections.wait(), shared.links.wait()) };
        let _ = timeout(STOP_TIMEOUT, left).await;
        shared.registry.clear();
        shared.down.cancel();
        shared.tasks.close();
        let _ = timeout(STOP_TIMEOUT, shared.tasks.wait()).await;
    }
}

impl<B: Bus> Shared<B> {
    /// Makes what the tasks of a gateway share; nothing runs yet.
    pub(crate) fn new(config: Arc<Config>, bus: B, parts: Parts) -> Result<Arc<Self>, StartError> {
        let Parts { addresses, clock, metrics, pipe, signer, list_signer, interests, reports } = parts;
        let udp_port = addresses.udp.port();
        let router = router(&config)?;
        let server_config = server_config(&config, &router);
        let keys = keys(&config, pipe.as_deref(), signer.as_deref());
        let lists = Arc::new(Lists::new(Arc::clone(&config), addresses, keys, list_signer, &metrics));
        let proxy = Arc::new(Proxy::remembering(keyed_config(&config), router, Arc::clone(&metrics)));
        let draining = CancellationToken::new();
        let verifier = TicketVerifier::new(&config.tickets)?;
        Ok(Arc::new_cyclic(|shared: &std::sync::Weak<Self>| {
            let shared = shared.clone();
            let on_link = move |upgraded, connection: Connection| {
                if let Some(shared) = shared.upgrade() {
                    listen::take_websocket(&shared, upgraded, connection.address);
                }
            };
            let front = Front::new(Arc::clone(&proxy), &metrics, FrontLimits::default(), draining.clone());
            let front = if config.gateway.alt_svc { front.with_h3_at(udp_port) } else { front };
            Self {
                bus,
                clock,
                counters: Counters::new(&metrics),
                front: Arc::new(
                    front
                        .with_links(Box::new(on_link))
                        .with_lists(Arc::clone(&lists))
                        .with_secrets(pipe.clone(), signer.clone()),
                ),
                interests,
                lists,
                proxy,
                registry: Registry::new(config.gateway.links_max, config.gateway.session_ttl, metrics.sessions()),
                replay: Mutex::new(ReplayWindow::new(CLOCK_SKEW_MAX, NONCES_MAX, clock.now())),
                metrics,
                pipe,
                signer,
                tasks: TaskTracker::new(),
                config: ArcSwap::new(config),
                connections: TaskTracker::new(),
                links: TaskTracker::new(),
                reports,
                server_config: ArcSwap::from_pointee(server_config),
                stopped: AtomicBool::new(false),
                verifier: ArcSwap::from_pointee(verifier),
                down: CancellationToken::new(),
                draining,
                exchanges: TaskTracker::new(),
            }
        }))
    }

    pub(crate) fn config(&self) -> Arc<Config> {
        self.config.load_full()
    }

    pub(crate) fn server_config(&self) -> Arc<ServerConfig> {
        self.server_config.load_full()
    }

    pub(crate) fn verifier(&self) -> Arc<TicketVerifier> {
        self.verifier.load_full()
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    pub(crate) const fn draining(&self) -> &CancellationToken {
        &self.draining
    }

    /// Returns what is cancelled once the drain is over and nothing may go on.
    pub(crate) const fn down(&self) -> &CancellationToken {
        &self.down
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Issues a list for a configuration, with the keys that are there now, and sends it over every link.
    fn issue_list(&self, config: Arc<Config>) {
        let keys = |config: &Config| keys(config, self.pipe.as_deref(), self.signer.as_deref());
        self.lists.issue(Arc::clone(&config), keys, &self.answer_times(&config));
        for entry in self.registry.all() {
            entry.session().with(|server, _| self.lists.tell(server));
        }
    }

    /// Sends the policy over every link, where what answers take is another than before.
    fn renew_policy(&self) {
        if self.lists.renew_policy(&self.answer_times(&self.config())) {
            for entry in self.registry.all() {
                entry.session().with(|server, _| self.lists.tell(server));
            }
        }
    }

    fn answer_times(&self, config: &Config) -> Times {
        let ids = (0..config.routes.len()).map(|index| u16::try_from(index).map(RouteId));
        ids.map(|id| self.proxy.server_time(id.ok()?)).collect()
    }

    /// Serves a connection as one of those that a drain waits for.
    pub(crate) fn spawn_connection(&self, serving: impl Future<Output = ()> + Send + 'static) {
        self.connections.spawn(serving);
    }

    /// Runs a link as one of those that a drain waits for. It must be admitted by `deadline`.
    pub(crate) fn spawn_link(self: &Arc<Self>, carrier: Box<dyn ropeway_net::carrier::Carrier>, deadline: Time) {
        self.links.spawn(link::serve(Arc::clone(self), carrier, deadline));
    }

    /// Runs a request of a link as one of those that a drain waits for.
    pub(crate) fn spawn_exchange(&self, serving: impl Future<Output = ()> + Send + 'static) {
        self.exchanges.spawn(serving);
    }

    /// Returns by when a connection that begins now must be admitted.
    pub(crate) fn hello_deadline(&self) -> Time {
        self.clock.now() + self.config().gateway.hello_timeout
    }
}

impl Counters {
    fn new(metrics: &Metrics) -> Self {
        Self {
            frames_in: metrics.frames("in"),
            frames_out: metrics.frames("out"),
            pushes_accepted: metrics.pushes("accepted"),
            pushes_acked: metrics.pushes("acked"),
            pushes_dropped: metrics.pushes("dropped"),
            pushes_duplicate: metrics.pushes("duplicate"),
            pushes_unreported: metrics.pushes("unreported"),
            pushes_written: metrics.pushes("written"),
        }
    }
}

/// Issues the access list anew before its permissions end, and tells clients of what answers take meanwhile.
async fn renew_lists<B: Bus>(shared: Arc<Shared<B>>) {
    loop {
        let renewal = shared.lists.renewal();
        let pause = renewal.clamp(RENEWAL_MIN, POLICY_EVERY);
        if shared.down.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return;
        }
        if renewal <= pause {
            shared.issue_list(shared.config());
        } else {
            shared.renew_policy();
        }
    }
}

fn router(config: &Config) -> Result<Router, RouteError> {
    Router::new(config.routes.iter().map(RouteSpec::from).collect())
}

fn server_config(config: &Config, router: &Router) -> ServerConfig {
    let gateway = &config.gateway;
    ServerConfig {
        gateway: gateway.name.clone(),
        hosts: router.hosts(),
        mux: MuxConfig {
            answers_ttl: gateway.answers_ttl,
            channel_credit: clamp(gateway.channel_credit_bytes),
            channels_max: clamp(gateway.channels_per_link_max.min(gateway.requests_per_link_max)),
            kept_bytes_max: gateway.answers_bytes_max as u64,
            link_credit: clamp(gateway.link_credit_bytes),
            payload_bytes_max: clamp(gateway.frame_bytes_max),
        },
        outbox: OutboxConfig {
            messages_max: config.push.session_messages_max,
            bytes_max: config.push.session_bytes_max,
        },
        heartbeat: (gateway.heartbeat_min, gateway.heartbeat_max),
        silence_timeout: gateway.silence_timeout,
        topics_max: TOPICS_MAX,
    }
}

fn keyed_config(config: &Config) -> KeyedConfig {
    let keyed = &config.idempotency;
    KeyedConfig {
        memory: IdempotencyConfig { ttl: keyed.ttl, keys_max: keyed.keys_max, bytes_max: keyed.answers_bytes_max },
        answer_bytes_max: keyed.answer_bytes_max,
        body_bytes_held_max: keyed.body_bytes_held_max,
        wait_timeout: keyed.wait_timeout,
        finish_timeout: keyed.finish_timeout,
        credentials: keyed.credentials.iter().filter_map(|name| name.parse().ok()).collect(),
    }
}

fn clamp(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Shortest time between two lists that are issued for their age. 1 s; a clock that jumped ahead must not make a busy loop.
const RENEWAL_MIN: Duration = Duration::from_secs(1);

/// Time between two looks at what answers take. 5 min, the shorter of the two windows they are measured in.
const POLICY_EVERY: Duration = Duration::from_secs(300);

/// HELLOs remembered against replay: two minutes of 4,000 handshakes a second, more than one machine makes (20 MB).
const NONCES_MAX: usize = 500_000;

/// Topics of one session, as many as HELLO may carry.
const TOPICS_MAX: usize = 100;

/// Time that clients get to open a link elsewhere while they still hear from this gateway: a race (one round trip and a few
/// staggers of 250 ms), and the handshake of the link.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for the goodbyes after the drain.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);
