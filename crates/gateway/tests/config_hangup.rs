//! SIGHUP reloads the configuration. Alone in its process, which the signal reaches as a whole.

use std::time::Duration;

use ropeway_gateway::config::{Config, Watcher};
use tokio::process::Command;
use tokio::time::timeout;

#[tokio::test]
async fn a_hangup_signal_reads_the_file_again_even_if_it_is_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("ropeway.toml");
    std::fs::write(&file, "[[route]]\nhost = \"a.test\"\nupstream = \"builtin:echo\"\n").expect("written");
    let watcher = Watcher::start(file.clone(), Config::load(&file).expect("a good file"), |_| {});
    let mut configs = watcher.subscribe();

    let sent = Command::new("kill").args(["-HUP", &std::process::id().to_string()]).status().await.expect("kill runs");

    assert!(sent.success());
    timeout(Duration::from_secs(20), configs.changed()).await.expect("a reload in time").expect("the watcher lives");
    assert_eq!(configs.borrow().routes[0].host, "a.test");
    assert_eq!(watcher.status().reloads_total, 1);
}
