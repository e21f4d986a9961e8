//! `ropeway up`: all roles in one process, with what they need made on the first start.

mod announce;
mod overlay;

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ropeway_cluster::{LocalBus, LocalBusConfig};
use ropeway_gateway::config::{Config, LogFormat, Watcher};
use ropeway_gateway::tickets::TicketIssuer;
use ropeway_gateway::{Gateway, pipe};
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, interval_at};

use self::announce::{Announcement, reachable};
use self::overlay::Overlay;
use crate::args::{Global, UpArgs};
use crate::data_dir::{
    AccessPoint, ClientFile, DEVICE_KEY, DataDir, DataDirError, Lock, PinnedKey, PipeKeyEntry, TICKET,
};
use crate::error::CommandError;
use crate::limits;
use crate::logs;
use crate::output::Output;
use crate::stops::Stops;

/// Runs the command until a signal ends it.
pub(crate) async fn run(args: &UpArgs, global: &Global, output: Output) -> Result<(), CommandError> {
    let mut overlay = Overlay::new(args, global);
    let mut config = match &args.config {
        Some(file) => Config::load(file)?,
        None => Config::default(),
    };
    overlay.apply(&mut config);
    overlay.check(&config)?;
    logs::start(&config.log.filter, if output.is_json() { LogFormat::Json } else { config.log.format });
    let mut stops = Stops::new(args.config.is_none()).map_err(CommandError::Runtime)?;
    let open_files = limits::raise_open_files();
    tracing::debug!(open_files, "as many sockets may be open");

    let data = DataDir::new(Some(&config.gateway.data_dir));
    let lock = data.lock()?;
    let house = House { data, lock };
    house.furnish(&mut overlay, &mut config)?;
    let running = config.clone();
    let watcher = args.config.clone().map(|file| Watcher::start(file, running, move |config| overlay.apply(config)));

    let bus = LocalBus::new(bus_config(&config));
    let gateway = Gateway::start(Arc::new(config.clone()), bus).await?;
    house.leave_client(&config, &gateway)?;

    let program = std::env::args().next().unwrap_or_else(|| "ropeway".to_owned());
    let announcement =
        Announcement { config: &config, addresses: gateway.addresses(), data: &house.data, program: &program };
    output.result(&announcement.text(), &announcement.object())?;

    let signal = tokio::select! {
        signal = stops.next() => signal,
        never = house.follow(&gateway, config.clone(), watcher.as_ref().map(Watcher::subscribe)) => match never {},
    };
    drop(watcher);
    let patience = config.gateway.drain_timeout;
    drain(&gateway, signal, patience, &mut stops, output).await
}

/// Lets requests in flight finish and links move away, unless a second signal comes.
async fn drain(
    gateway: &Gateway<LocalBus>,
    signal: &str,
    patience: Duration,
    stops: &mut Stops,
    output: Output,
) -> Result<(), CommandError> {
    let patience_s = patience.as_secs_f64();
    let text = format!("{signal}: requests and links have {patience_s} s to finish; once more stops at once");
    output.result(&text, &json!({ "event": "draining", "signal": signal, "patience_s": patience_s }))?;
    tokio::select! {
        () = gateway.drain() => output.result("Ropeway is down.", &json!({ "event": "down" })),
        signal = stops.next() => Err(CommandError::Interrupted { signal }),
    }
}

/// The data folder while `up` holds it.
#[derive(Debug)]
struct House {
    data: DataDir,
    lock: Lock,
}

impl House {
    /// Makes what the configuration needs and does not name.
    fn furnish(&self, overlay: &mut Overlay, config: &mut Config) -> Result<(), DataDirError> {
        self.certify(config)?;
        self.data.admin_token(&self.lock, &config.admin_token_path())?;
        if config.tickets.keys.is_empty() {
            let issuer = self.data.make_issuer(&self.lock)?;
            self.data.development_ticket(&self.lock, &issuer, app(config), SystemTime::now())?;
            overlay.set_issuer(&issuer);
            overlay.apply(config);
        }
        Ok(())
    }

    /// Makes a certificate for the gateway and the hosts behind it, unless the configuration names one.
    fn certify(&self, config: &Config) -> Result<(), DataDirError> {
        if config.tls.cert.is_some() {
            return Ok(());
        }
        self.data.certificate(&self.lock, &certified_names(config), SystemTime::now())
    }

    /// Tells the other commands where the gateway is.
    fn leave_client(&self, config: &Config, gateway: &Gateway<LocalBus>) -> Result<(), DataDirError> {
        let list_key = gateway.list_key();
        let addresses = gateway.addresses();
        let access_points = addresses
            .access_points()
            .into_iter()
            .map(|(address, carriers)| AccessPoint { address: reachable(address), carriers })
            .collect();
        let client = ClientFile {
            gateway: config.gateway.name.clone(),
            access_points,
            ca: config.tls.cert.is_none().then(|| self.data.ca_path()),
            app: app(config).to_owned(),
            device_key: self.data.root().join(DEVICE_KEY),
            ticket: self.issuer_of(config).map(|_| self.data.root().join(TICKET)),
            admin: reachable(addresses.admin),
            admin_token: config.admin_token_path(),
            hosts: config.routes.iter().map(|route| route.host.clone()).collect(),
            list_keys: vec![pinned(list_key.id, list_key.public_key)],
            pipe_keys: gateway.pipe_keys().iter().map(pipe_key).collect(),
        };
        self.data.leave_client(&self.lock, &client)
    }

    /// Takes every new configuration, and once a day looks for what has to be renewed.
    async fn follow(
        &self,
        gateway: &Gateway<LocalBus>,
        running: Config,
        mut configs: Option<watch::Receiver<Arc<Config>>>,
    ) -> std::convert::Infallible {
        let mut config = Arc::new(running);
        let mut renewal = interval_at(Instant::now() + RENEWAL, RENEWAL);
        loop {
            let changed = async {
                let Some(configs) = &mut configs else { return pending().await };
                match configs.changed().await {
                    Ok(()) => Arc::clone(&configs.borrow_and_update()),
                    Err(_) => pending().await,
                }
            };
            tokio::select! {
                new = changed => config = new,
                _ = renewal.tick() => {}
            }
            self.take(gateway, &config);
        }
    }

    /// Renews certificate and ticket where they need it, then gives the gateway the routes and tickets.
    fn take(&self, gateway: &Gateway<LocalBus>, config: &Arc<Config>) {
        if let Err(error) = self.certify(config) {
            tracing::warn!(%error, "no certificate for the new hosts; web clients will refuse them");
        }
        if let Err(error) = gateway.reload(Arc::clone(config)) {
            tracing::warn!(%error, "configuration not taken; the old one stays");
            return;
        }
        if let Some(issuer) = self.issuer_of(config)
            && let Err(error) = self.data.development_ticket(&self.lock, &issuer, app(config), SystemTime::now())
        {
            tracing::warn!(%error, "development ticket is not renewed");
        }
        if let Err(error) = self.leave_client(config, gateway) {
            tracing::warn!(%error, "other commands do not learn of the new hosts");
        }
    }

    /// Gives the development issuer, where its tickets are the ones that are taken.
    fn issuer_of(&self, config: &Config) -> Option<TicketIssuer> {
        let [key] = &config.tickets.keys[..] else { return None };
        self.data.issuer().ok().filter(|issuer| issuer.kid() == key.kid)
    }
}

/// Returns the names that a certificate of the gateway's own is for.
pub(crate) fn certified_names(config: &Config) -> Vec<String> {
    let hosts = config.routes.iter().map(|route| route.host.clone());
    std::iter::once(config.gateway.name.clone()).chain(hosts).collect()
}

fn pipe_key(key: &pipe::PublicKey) -> PipeKeyEntry {
    PipeKeyEntry { config: STANDARD.encode(&key.config), expires_ms: key.expires_ms }
}

fn pinned(id: String, public_key: [u8; 32]) -> PinnedKey {
    PinnedKey { id, public_key: STANDARD.encode(public_key) }
}

fn app(config: &Config) -> &str {
    config.tickets.apps.first().map_or("dev", String::as_str)
}

fn bus_config(config: &Config) -> LocalBusConfig {
    LocalBusConfig {
        payload_bytes_max: config.push.payload_bytes_max,
        statuses_max: config.push.statuses_max,
        ..LocalBusConfig::default()
    }
}

/// Time between two looks for a certificate or ticket to renew: a day; both are renewed weeks before their end.
const RENEWAL: Duration = Duration::from_hours(24);
