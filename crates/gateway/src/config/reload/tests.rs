use std::fs;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;
use crate::config::{RouteConfig, Upstream};

struct Stage {
    folder: TempDir,
    watcher: Watcher,
    configs: watch::Receiver<Arc<Config>>,
}

impl Stage {
    fn start(text: &str) -> Self {
        Self::start_with(text, |_| {})
    }

    fn start_with(text: &str, overlay: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("ropeway.toml");
        fs::write(&file, text).expect("written");
        let mut running = Config::load(&file).expect("good");
        overlay(&mut running);
        let watcher = Watcher::start(file, running, overlay);
        let configs = watcher.subscribe();
        Self { folder, watcher, configs }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("ropeway.toml")
    }

    /// Replaces the file at once, as careful editors and deployment tools do.
    fn replace(&self, text: &str) {
        let fresh = self.folder.path().join(".ropeway.toml.new");
        fs::write(&fresh, text).expect("written");
        fs::rename(&fresh, self.file()).expect("renamed");
    }

    async fn next(&mut self) -> Arc<Config> {
        timeout(PATIENCE, self.configs.changed()).await.expect("a reload in time").expect("the watcher lives");
        Arc::clone(&self.configs.borrow_and_update())
    }

    async fn until(&self, is_met: impl FnMut(&ReloadStatus) -> bool) -> ReloadStatus {
        let mut status = self.watcher.status.clone();
        timeout(PATIENCE, status.wait_for(is_met)).await.expect("in time").expect("the watcher lives").clone()
    }
}

#[tokio::test]
async fn a_file_replaced_by_rename_is_taken_every_time() {
    let mut stage = Stage::start("");
    for host in ["a", "b", "c"] {
        stage.replace(&route(host));
        assert_eq!(stage.next().await.routes[0].host, host);
    }
    assert_eq!(stage.watcher.status().reloads_total, 3);
}

#[tokio::test]
async fn a_file_written_in_place_is_taken() {
    let mut stage = Stage::start("");
    fs::write(stage.file(), route("a")).expect("written");
    assert_eq!(stage.next().await.routes[0].host, "a");
}

#[tokio::test]
async fn a_bad_file_keeps_the_old_configuration_and_says_why() {
    let mut stage = Stage::start(&route("a"));
    stage.replace("[[route]]\nupstrem = \"builtin:echo\"\n");
    let status = stage.until(|status| status.failures_total > 0).await;
    let reason = status.last_error.expect("the reason");
    assert!(
        reason.ends_with(
            "ropeway.toml:1:1: `[[route]]` without `upstream`; \
     say where its requests go, such as `upstream = \"http://127.0.0.1:8000\"`"
        ),
        "{reason}"
    );
    assert_eq!(stage.configs.borrow().routes[0].host, "a");
    assert!(!stage.configs.has_changed().expect("the watcher lives"));

    stage.replace(&route("b"));
    assert_eq!(stage.next().await.routes[0].host, "b");
    assert_eq!(stage.watcher.status().last_error, None);
}

#[tokio::test]
async fn a_removed_file_keeps_the_old_configuration() {
    let stage = Stage::start(&route("a"));
    fs::remove_file(stage.file()).expect("removed");
    let status = stage.until(|status| status.failures_total > 0).await;
    assert!(status.last_error.expect("the reason").contains("cannot be read"));
    assert_eq!(stage.configs.borrow().routes[0].host, "a");
}

#[tokio::test]
async fn keys_that_need_a_restart_are_named_until_they_are_changed_back() {
    let mut stage = Stage::start("");
    stage.replace(&format!("[gateway]\nlinks_max = 7\n{}", route("a")));
    stage.next().await;
    assert_eq!(stage.watcher.status().restart_needed, ["gateway.links_max"]);
    stage.replace(&route("a"));
    stage.next().await;
    assert_eq!(stage.watcher.status().restart_needed, Vec::<String>::new());
}

#[tokio::test]
async fn what_the_command_line_says_outlives_a_reload() {
    let upstream: Upstream = "http://127.0.0.1:9".parse().expect("an upstream");
    let mut stage = Stage::start_with("", move |config| config.set_route(RouteConfig::new("cli", upstream.clone())));
    stage.replace(&route("a"));
    let hosts: Vec<_> = stage.next().await.routes.iter().map(|route| route.host.clone()).collect();
    assert_eq!(hosts, ["a", "cli"]);
}

#[tokio::test]
async fn a_call_publishes_even_an_unchanged_file() {
    let mut stage = Stage::start(&route("a"));
    stage.watcher.reload();
    assert_eq!(stage.next().await.routes[0].host, "a");
}

#[tokio::test]
async fn a_file_that_reads_the_same_is_not_published() {
    let mut stage = Stage::start(&route("a"));
    stage.replace(&format!("# a comment\n{}", route("a")));
    stage.replace(&format!("# another\n{}", route("b")));
    assert_eq!(stage.next().await.routes[0].host, "b");
    assert_eq!(stage.watcher.status().reloads_total, 1);
}

#[tokio::test(start_paused = true)]
async fn requests_close_together_are_one_reload_and_never_put_off_for_ever() {
    let shared = Arc::new(Shared::default());
    let (sender, _configs) = watch::channel(Arc::new(Config::default()));
    let (status, _statuses) = watch::channel(ReloadStatus::default());
    let (file, running, overlay) = (PathBuf::new(), Config::default(), Arc::new(|_: &mut Config| {}));
    let reloader = Reloader { file, running, overlay, sender, status, shared: Arc::clone(&shared) };
    let start = Instant::now();
    let restless = async {
        loop {
            shared.ask(false);
            tokio::time::sleep(SETTLE / 2).await;
        }
    };
    tokio::select! {
        () = reloader.settle() => {}
        () = restless => {}
    }
    let waited = start.elapsed();
    assert!(waited >= SETTLE_MAX && waited < SETTLE_MAX + SETTLE, "{waited:?}");

    // The last request above may still be pending.
    let start = Instant::now();
    reloader.settle().await;
    assert!(start.elapsed() <= 2 * SETTLE);
}

#[test]
fn routes_and_tickets_are_live_and_their_neighbours_by_name_are_not() {
    assert!(is_live("route") && is_live("tickets.apps") && is_live("tickets"));
    assert!(!is_live("gateway.links_max") && !is_live("routes") && !is_live("ticket"));
}

fn route(host: &str) -> String {
    format!("[[route]]\nhost = \"{host}\"\nupstream = \"builtin:demo\"\n")
}

/// Far longer than the kernel takes to report a change.
const PATIENCE: Duration = Duration::from_secs(20);
