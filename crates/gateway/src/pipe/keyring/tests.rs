//! Keys over restarts, turns and midnights.

use std::{fs, path::Path};

use base64::{Engine, engine::general_purpose::STANDARD};
use tempfile::TempDir;

use super::*;

const DAY_MS: u64 = 86_400_000;
const HOUR_MS: u64 = 3_600_000;
const START_MS: u64 = 20_000 * DAY_MS;

/// The configuration of a gateway, and the file of its drawn keys.
fn gateway() -> (TempDir, Config) {
    let folder = TempDir::new().expect("a folder");
    let mut config = Config::default();
    config.gateway.data_dir = folder.path().into();
    config.gateway.name = "gw.test".into();
    (folder, config)
}

/// A gateway of this name that has the secret.
fn sharing(name: &str, secret: u8) -> (TempDir, Config) {
    let (folder, mut config) = gateway();
    let path = folder.path().join("pipe.secret");
    let text = STANDARD.encode([secret; 32]);
    fs::write(&path, text).expect("written");
    config.pipe.name = Some(name.into());
    config.pipe.secret_file = Some(path);
    (folder, config)
}

fn open(config: &Config, unix_ms: u64) -> (Keyring, bool) {
    Keyring::open(config, unix_ms).expect("keys")
}

fn ids(ring: &Keyring) -> Vec<u8> {
    ring.public().iter().map(|key| key.id).collect()
}

fn keys_file(folder: &Path) -> PathBuf {
    folder.join(KEYS_FILE)
}

#[test]
fn drawn_keys_stay_over_a_restart_and_the_previous_one_is_kept_for_a_day() {
    let (_folder, config) = gateway();
    let (first, is_older) = open(&config, START_MS);
    assert!(!is_older, "nobody had it before");
    let (again, is_older) = open(&config, START_MS + 1);
    assert!(is_older);
    assert_eq!(again.public(), first.public());

    let second = again.turn(START_MS + DAY_MS).expect("turned");
    let ids = ids(&second);
    assert_eq!(ids, [first.public()[0].id.wrapping_add(1), first.public()[0].id]);
    assert_eq!(open(&config, START_MS + DAY_MS).0.public(), second.public());
    let third = second.turn(START_MS + 2 * DAY_MS).expect("turned");
    assert!(third.key(ids[1]).is_none() && third.key(ids[0]).is_some());
    let (renewed, is_older) = open(&config, START_MS + 9 * DAY_MS);
    assert_eq!((renewed.public().len(), is_older), (1, false));
}

#[test]
fn a_damaged_file_is_named_and_not_replaced() {
    let (folder, config) = gateway();
    let file = keys_file(folder.path());
    for text in ["", "{}", "{\"keys\": [{\"id\": 1, \"made_ms\": 1728000000000, \"seed\": \"short\"}]}"] {
        fs::write(&file, text).expect("written");
        let refused = Keyring::open(&config, START_MS).expect_err("damaged");
        assert!(refused.to_string().contains("pipe-keys.json"), "{refused}");
        assert_eq!(fs::read_to_string(&file).expect("there"), text);
    }
}

#[test]
fn a_gateway_without_a_shared_secret_knows_its_own_pipe_and_no_other() {
    let (_folder, config) = gateway();
    let (ring, _) = open(&config, START_MS);
    assert_eq!(ring.of_pipes(&["gw.test", "other"], START_MS), ring.public());
    assert_eq!(ring.public()[0].name, "gw.test");
}

#[test]
fn gateways_that_share_a_secret_know_each_others_keys_and_have_their_own() {
    let ((_north_folder, north), (_south_folder, south)) = (sharing("north", 1), sharing("south", 1));
    let (north, south) = (open(&north, START_MS).0, open(&south, START_MS).0);
    assert_ne!(north.public()[0].config, south.public()[0].config, "a request for one is none for the other");
    let names = ["south", "north"];
    let told = north.of_pipes(&names, START_MS);
    assert_eq!(told, south.of_pipes(&names, START_MS));
    assert_eq!(told, [south.public()[0].clone(), north.public()[0].clone()]);
    let (_folder, stranger) = sharing("north", 2);
    assert_ne!(open(&stranger, START_MS).0.public()[0].config, north.public()[0].config);
}

#[test]
fn derived_keys_change_at_midnight_and_tomorrows_is_taken_an_hour_before() {
    let (_folder, config) = sharing("north", 1);
    let (day, _) = open(&config, START_MS);
    let today = day.public()[0].id;
    assert_eq!((ids(&day), day.due_ms), (vec![today, today - 1], START_MS + 23 * HOUR_MS));
    let evening = day.turn(day.due_ms).expect("turned");
    assert_eq!((ids(&evening), evening.due_ms), (vec![today, today - 1, today + 1], START_MS + DAY_MS));
    assert_eq!(evening.current(), day.current(), "and told to nobody yet");
    let next = evening.turn(evening.due_ms).expect("turned");
    assert_eq!(ids(&next), [today + 1, today]);
    assert_eq!(next.key(today).map(PipeKey::config), day.key(today).map(PipeKey::config));
    assert_eq!(next.current().1, START_MS + 3 * DAY_MS, "until the end of the day after");
}

#[test]
fn derived_keys_count_as_used_by_another_process_from_the_first_start_on() {
    let (_folder, config) = sharing("north", 1);
    let (first, is_older) = open(&config, START_MS);
    assert!(is_older, "no folder knows what ran elsewhere");
    let (again, is_older) = open(&config, START_MS + 1);
    assert_eq!((again.public(), is_older), (first.public(), true));
}

#[test]
fn drawn_keys_are_forgotten_once_there_is_a_secret_and_not_before() {
    let (folder, config) = gateway();
    open(&config, START_MS);
    let mut sharing = config;
    let path = folder.path().join("pipe.secret");
    sharing.pipe.secret_file = Some(path.clone());
    let refused = Keyring::open(&sharing, START_MS).expect_err("no secret there").to_string();
    assert!(refused.contains("pipe.secret") && refused.contains("openssl rand"), "{refused}");
    assert!(keys_file(folder.path()).exists());
    fs::write(&path, "BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=").expect("written");
    open(&sharing, START_MS);
    assert!(!keys_file(folder.path()).exists());
    sharing.pipe.secret_file = None;
    assert!(!open(&sharing, START_MS).1, "new keys are drawn, which nobody had");
}

#[test]
fn keys_do_not_print_themselves() {
    let (folder, config) = gateway();
    let printed = format!("{:?}", open(&config, START_MS).0);
    let text = fs::read_to_string(keys_file(folder.path())).expect("there");
    let seed = text.split('"').find(|part| part.len() == 44).expect("a seed");
    assert!(!printed.contains(seed), "{printed}");
    let (_folder, config) = sharing("north", 7);
    let printed = format!("{:?}", open(&config, START_MS).0);
    assert!(!printed.contains("BwcH") && !printed.contains("7, 7"), "{printed}");
}
