//! Several gateways of one operator: one list names the sealed pipes of all, and each takes what is meant for it alone.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Method, StatusCode};
use ropeway::{Client, Way, pipe::PipeTarget};
use ropeway_core::wire::list::{AccessList, LIST_PATH, Verifier};
use ropeway_gateway::config::{AccessPointConfig, Config, Speaks, UnitConfig};
use ropeway_net::unix_ms;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{
    ladder::{Between, Mood},
    pipe::{carried, sealed},
    support::{World, body, head, say},
};

/// Two gateways at two sites that share a secret, with somebody on the way to each.
pub(crate) struct Fleet {
    pub(crate) north: World,
    pub(crate) south: World,
    to_north: Between,
    to_south: Between,
    _folder: TempDir,
}

impl Fleet {
    pub(crate) async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let secret = folder.path().join("pipe.secret");
        std::fs::write(&secret, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n").unwrap();
        let ((to_north, north_listener), (to_south, south_listener)) = (Between::new().await, Between::new().await);
        let units = [("north", &to_north), ("south", &to_south)].map(|(name, between)| {
            let speaks = vec![Speaks::Tls, Speaks::Pipe];
            let pipe_name = Some(name.to_owned());
            let point = AccessPointConfig { address: between.address, speaks, pipe_name, ..Default::default() };
            UnitConfig { name: name.into(), access_points: vec![point], ..UnitConfig::default() }
        });
        let north = World::new(|config| configure(config, "north", &secret, &units)).await;
        let south = World::new(|config| configure(config, "south", &secret, &units)).await;
        to_north.stand(north_listener, north.address());
        to_south.stand(south_listener, south.address());
        Self { north, south, to_north, to_south, _folder: folder }
    }

    /// A client that believes the list of the north, and knows nobody else.
    pub(crate) fn client(&self) -> Client {
        let key = self.north.gateway.list_key();
        let builder = Client::builder().gateway("gw.test").app("dev").ticket("none").trust(self.north.pem.as_str());
        let builder = builder.list_key(key.id, key.public_key).dispatch("north", self.to_north.address);
        builder.served_host("api.test").way(Way::Address).way(Way::Pipe).build().unwrap()
    }
}

fn configure(config: &mut Config, name: &str, secret: &Path, units: &[UnitConfig]) {
    // HTTP/3, which the answers promise, would not pass here.
    config.gateway.udp_listen = "127.0.0.2:0".parse().unwrap();
    config.pipe.name = Some(name.into());
    config.pipe.secret_file = Some(secret.into());
    config.units = units.to_vec();
}

/// Fetches the list of a gateway.
async fn list(world: &World) -> AccessList {
    let asked = format!("GET {LIST_PATH} HTTP/1.1\r\nhost: gw.test\r\nconnection: close\r\n\r\n");
    let answer = world.say_tls(&asked).await;
    let document = Bytes::copy_from_slice(body(&answer));
    Verifier::new([world.gateway.list_key()]).verify(&document, unix_ms()).unwrap()
}

#[tokio::test]
async fn the_list_of_each_gateway_has_the_pipes_of_all_until_a_restart_says_otherwise() {
    let mut fleet = Fleet::new().await;
    let (of_north, of_south) = (list(&fleet.north).await, list(&fleet.south).await);
    assert_eq!(of_north.pipe_keys, of_south.pipe_keys);
    assert_eq!(of_north.units, of_south.units);
    for (unit, world) in of_north.units.iter().zip([&fleet.north, &fleet.south]) {
        let key = of_north.pipe_key(&unit.access_points[0], unix_ms()).unwrap();
        assert_eq!((&key.name, &key.config), (&unit.name, &world.gateway.pipe_keys()[0].config));
    }

    (fleet.north.config.pipe.secret_file, fleet.north.config.list.ttl) = (None, Duration::from_secs(60));
    fleet.north.gateway.reload(Arc::new(fleet.north.config.clone())).unwrap();
    let reloaded = list(&fleet.north).await;
    assert_eq!((reloaded.expires_ms - reloaded.epoch_ms, &reloaded.pipe_keys), (60_000, &of_north.pipe_keys));
    fleet.north.restart().await;
    let alone = list(&fleet.north).await;
    let pipes: Vec<_> = alone.units.iter().map(|unit| unit.access_points[0].serves_pipe).collect();
    assert_eq!((pipes, alone.pipe_keys.len()), (vec![true, false], 1));
    assert_ne!(alone.pipe_keys[0].config, of_north.pipe_keys[0].config, "it draws its own");
}

#[tokio::test]
async fn a_request_whose_first_pipe_is_dead_goes_through_that_of_the_other_gateway() {
    let fleet = Fleet::new().await;
    let client = fleet.client();
    client.get("https://api.test/first").send().await.unwrap();
    fleet.to_north.mood.send_replace(Mood::Nothing);
    fleet.to_south.mood.send_replace(Mood::Plain);
    let _ = client.get("https://api.test/after").send().await;
    let before = fleet.south.pipe_requests("answered");
    let sending = client.get("https://api.test/second").way(Way::Pipe).send();
    let answer = timeout(Duration::from_secs(60), sending).await.expect("it never ended").unwrap();
    let steps: Vec<_> = answer.timeline().steps().iter().map(|step| (step.way, step.address)).collect();
    assert_eq!(steps.last().unwrap(), &(Way::Pipe, Some(fleet.to_south.address)), "{steps:?}");
    assert!(answer.text().await.unwrap().starts_with("GET /second"));
    assert_eq!(fleet.south.pipe_requests("answered"), before + 1);
    assert_eq!(fleet.north.pipe_requests("answered"), 0);
}

#[tokio::test]
async fn what_one_gateway_could_not_pass_on_goes_by_the_pipe_of_the_other() {
    let mut fleet = Fleet::new().await;
    let client = fleet.client();
    client.get("https://api.test/first").send().await.unwrap();
    // Nobody listens at the port behind the gateway in the north.
    fleet.north.config.routes[0].upstream = "http://127.0.0.1:1".parse().unwrap();
    fleet.north.gateway.reload(Arc::new(fleet.north.config.clone())).unwrap();
    let mut met_the_north = 0;
    for number in 0..4 {
        let url = format!("https://api.test/{number}");
        // A GET: no POST is taken in the first moment of a gateway.
        let sending = client.get(url.as_str()).way(Way::Pipe).send();
        let answer = timeout(Duration::from_secs(60), sending).await.expect("it never ended").unwrap();
        assert_eq!(answer.status(), StatusCode::OK, "{}", answer.timeline());
        let causes = answer.timeline().steps().iter().filter_map(|step| step.error.as_deref());
        met_the_north += causes.filter(|cause| cause.contains("not executed")).count();
    }
    assert!(met_the_north > 0, "none came to the north, and nothing was shown");
}

#[tokio::test]
async fn a_sealed_request_that_was_recorded_for_one_gateway_is_refused_by_the_other() {
    let fleet = Fleet::new().await;
    let (request, opener) = sealed(&fleet.north, Method::GET, "https://api.test/");
    let elsewhere = say(fleet.south.address(), &carried("1.1", &request)).await;
    assert!(head(&elsewhere).starts_with("http/1.1 422"), "{}", head(&elsewhere));
    assert_eq!((fleet.south.pipe_requests("unopened"), fleet.south.service.executed()), (1, 0));
    let answer = say(fleet.north.address(), &carried("1.1", &request)).await;
    assert_eq!(opener.open(body(&answer)).unwrap().status(), StatusCode::OK);
    say(fleet.south.address(), &carried("1.1", &request)).await;
    say(fleet.north.address(), &carried("1.1", &request)).await;
    assert_eq!((fleet.north.service.executed(), fleet.south.service.executed()), (1, 0));
    assert_eq!(fleet.north.pipe_requests("replayed"), 1);
}

#[tokio::test]
async fn the_keys_of_a_gateway_are_the_same_after_a_restart_and_no_post_is_taken_that_could_run_twice() {
    let mut fleet = Fleet::new().await;
    let PipeTarget { config, .. } = fleet.north.pipe();
    // Already at the first start: the keys are older than the process, and so may be a request.
    for start in 0..2_u64 {
        let (request, opener) = sealed(&fleet.north, Method::POST, "https://api.test/");
        let answer = say(fleet.north.address(), &carried("1.1", &request)).await;
        let answer = opener.open(body(&answer)).unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_EARLY, "start {start}");
        assert_eq!(answer.headers()["ropeway-error"], "restarted");
        let (request, opener) = sealed(&fleet.north, Method::GET, "https://api.test/");
        let answer = say(fleet.north.address(), &carried("1.1", &request)).await;
        assert_eq!(opener.open(body(&answer)).unwrap().status(), StatusCode::OK, "start {start}");
        fleet.north.restart().await;
        assert_eq!(fleet.north.pipe().config, config);
    }
    assert_eq!(fleet.north.service.executed(), 2, "the two GETs");
}
