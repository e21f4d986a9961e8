//! Reads the configuration again when its file changes or on SIGHUP.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, info, warn};

use super::model::Config;

/// Keeps a configuration up to date with its file.
///
/// A good file replaces the configuration at once, a bad one leaves it and is remembered as the last error. Reading
/// stops when the watcher is dropped.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    configs: watch::Receiver<Arc<Config>>,
    status: watch::Receiver<ReloadStatus>,
    task: JoinHandle<()>,
    /// Ends the file events when dropped.
    _folder: Option<RecommendedWatcher>,
}

/// What became of the reloads so far.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReloadStatus {
    /// Files that were taken.
    pub reloads_total: u64,
    /// Files that were refused.
    pub failures_total: u64,
    /// Why the latest file was refused; `None` once a good one followed.
    pub last_error: Option<String>,
    /// Keys changed since the start that only a restart will heed.
    pub restart_needed: Vec<String>,
}

impl Watcher {
    /// Starts to watch a file whose configuration is running.
    ///
    /// `overlay` is applied to every configuration read, as it was to the running one: it holds what the command line
    /// says. Where the folder cannot be watched a warning is logged, and SIGHUP still works. Needs a tokio runtime.
    #[must_use]
    pub fn start(file: PathBuf, running: Config, overlay: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        let shared = Arc::new(Shared::default());
        let folder = watch_folder(&file, &shared).map_err(|error| {
            warn!(file = %file.display(), %error, "configuration file cannot be watched; send SIGHUP after a change");
        });
        let hangups = signal(SignalKind::hangup()).map_err(|error| {
            warn!(%error, "SIGHUP cannot be received; only a change of the file reloads the configuration");
        });
        let (sender, configs) = watch::channel(Arc::new(running.clone()));
        let (status_sender, status) = watch::channel(ReloadStatus::default());
        let reloader = Reloader {
            file,
            running,
            overlay: Arc::new(overlay),
            sender,
            status: status_sender,
            shared: Arc::clone(&shared),
        };
        let task = tokio::spawn(reloader.run(hangups.ok()));
        Self { shared, configs, status, task, _folder: folder.ok() }
    }

    /// Gives the configuration now and as it changes.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<Config>> {
        self.configs.clone()
    }

    /// Reads the file again, as SIGHUP does.
    pub fn reload(&self) {
        self.shared.ask(true);
    }

    /// Gives what became of the reloads so far, for health and metrics.
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        self.status.borrow().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Says whether a change of this key or section takes effect without a restart.
pub(super) fn is_live(path: &str) -> bool {
    LIVE.iter().any(|live| path.strip_prefix(live).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))
}

/// What the tasks, the file events and the owner share.
#[derive(Debug, Default)]
struct Shared {
    asked: Notify,
    /// Someone asked, so the file counts as changed even if it reads the same: files that it names may have changed.
    forced: AtomicBool,
}

impl Shared {
    fn ask(&self, forced: bool) {
        if forced {
            self.forced.store(true, Ordering::Release);
        }
        self.asked.notify_one();
    }
}

struct Reloader {
    file: PathBuf,
    /// What the process started with.
    running: Config,
    overlay: Arc<dyn Fn(&mut Config) + Send + Sync>,
    sender: watch::Sender<Arc<Config>>,
    status: watch::Sender<ReloadStatus>,
    shared: Arc<Shared>,
}

impl Reloader {
    async fn run(self, mut hangups: Option<Signal>) {
        loop {
            self.next_request(&mut hangups).await;
            self.settle().await;
            self.reload().await;
        }
    }

    /// Waits for a change of the file, a signal or a call.
    async fn next_request(&self, hangups: &mut Option<Signal>) {
        let hangup = async {
            match hangups {
                Some(signal) => signal.recv().await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.shared.asked.notified() => {}
            _ = hangup => self.shared.ask(true),
        }
    }

    /// Waits until the file has been left alone for a while, but not for ever.
    async fn settle(&self) {
        let latest = Instant::now() + SETTLE_MAX;
        loop {
            let quiet = (Instant::now() + SETTLE).min(latest);
            tokio::select! {
                () = self.shared.asked.notified() => {}
                () = sleep_until(quiet) => return,
            }
            if Instant::now() >= latest {
                return;
            }
        }
    }

    async fn reload(&self) {
        let file = self.file.clone();
        let overlay = Arc::clone(&self.overlay);
        let read = tokio::task::spawn_blocking(move || {
            let mut config = Config::load(&file)?;
            overlay(&mut config);
            Ok(config)
        });
        let forced = self.shared.forced.swap(false, Ordering::AcqRel);
        match read.await {
            Ok(Ok(config)) => self.take(config, forced),
            Ok(Err(error)) => self.refuse(&error),
            // The runtime shuts down, or the overlay panicked: there is nothing to take.
            Err(_) => {}
        }
    }

    fn take(&self, config: Config, forced: bool) {
        let changed = self.sender.borrow().changed_keys(&config);
        let restart_needed: Vec<_> =
            self.running.changed_keys(&config).into_iter().filter(|path| !is_live(path)).collect();
        let is_same = changed.is_empty() && !forced;
        let newly_needed = self.status.borrow().restart_needed != restart_needed;
        if newly_needed && !restart_needed.is_empty() {
            warn!(keys = restart_needed.join(", "), "changed keys of the configuration need a restart");
        }
        if is_same {
            debug!(file = %self.file.display(), "configuration file says the same");
        } else {
            info!(file = %self.file.display(), changed = changed.join(", "), "configuration reloaded");
        }
        self.status.send_modify(|status| {
            status.last_error = None;
            status.reloads_total += u64::from(!is_same);
            status.restart_needed = restart_needed;
        });
        if !is_same {
            self.sender.send_replace(Arc::new(config));
        }
    }

    fn refuse(&self, error: &super::ConfigError) {
        warn!(%error, "configuration refused; the old one stays");
        self.status.send_modify(|status| {
            status.failures_total += 1;
            status.last_error = Some(error.to_string());
        });
    }
}

/// Watches the folder: a file that is replaced by renaming another one onto it is a new file, which a watch on the old
/// one would never see.
fn watch_folder(file: &Path, shared: &Arc<Shared>) -> notify::Result<RecommendedWatcher> {
    let name = file.file_name().map(ToOwned::to_owned);
    // Behind a link the file may change without its own name being touched.
    let is_link = file.is_symlink();
    let shared = Arc::clone(shared);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| match event {
        Ok(event) => {
            let is_ours = is_link || event.paths.iter().any(|path| path.file_name() == name.as_deref());
            if is_ours && is_change(&event.kind) {
                shared.ask(false);
            }
        }
        Err(error) => debug!(%error, "event of the configuration's folder lost"),
    })?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}

/// Says whether the event is more than someone reading the file, as this module does itself.
fn is_change(kind: &EventKind) -> bool {
    match kind {
        EventKind::Access(_) => false,
        EventKind::Any | EventKind::Create(_) | EventKind::Modify(_) | EventKind::Other | EventKind::Remove(_) => true,
    }
}

/// Sections that take effect without a restart.
const LIVE: [&str; 7] = ["host", "list", "operator", "policy", "route", "tickets", "unit"];

/// Quiet time after the last change before the file is read: editors write in several steps. 200 ms is not noticed.
const SETTLE: Duration = Duration::from_millis(200);

/// Longest wait for a file that never comes to rest.
const SETTLE_MAX: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests;
