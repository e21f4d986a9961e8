//! A client climbs from way to way by itself, as the network lets less and less through.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use ropeway::{Client, Error, Event, Way};
use ropeway_core::policy::LadderStep;
use ropeway_gateway::config::{AccessPointConfig, Config, RoutePolicyConfig, Speaks, UnitConfig};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    sync::watch,
    time::timeout,
};

use crate::support::{World, read_answer, read_head};

/// Somebody on the way to a gateway.
pub(crate) struct Between {
    pub(crate) address: SocketAddr,
    pub(crate) mood: watch::Sender<Mood>,
    /// Answers that are yet to be lost.
    pub(crate) losses: Arc<AtomicUsize>,
    /// Whoever waits for a lost answer is not told.
    pub(crate) is_silent: Arc<AtomicBool>,
}

/// What gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    All,
    Nothing,
    /// TLS is cut off; of plain HTTP what has the shape of HTTP/1.0 gets through, one request a connection.
    Old,
    /// TLS is cut off; plain HTTP gets through.
    Plain,
    /// TLS is cut off, and a bit of each plain answer is turned.
    Tampering,
}

impl Between {
    pub(crate) async fn new() -> (Self, TcpListener) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (
            Self { address, mood: watch::Sender::new(Mood::All), losses: Arc::default(), is_silent: Arc::default() },
            listener,
        )
    }

    pub(crate) fn stand(&self, listener: TcpListener, gateway: SocketAddr) {
        let mood = self.mood.subscribe();
        let lossy = (Arc::clone(&self.losses), Arc::clone(&self.is_silent));
        tokio::spawn(async move {
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (mut mood, lossy) = (mood.clone(), lossy.clone());
                tokio::spawn(async move {
                    let now = *mood.borrow_and_update();
                    tokio::select! {
                        _ = pass(client, gateway, now, &lossy) => {}
                        _ = mood.changed() => {}
                    }
                });
            }
        });
    }
}

async fn pass(
    mut client: TcpStream,
    gateway: SocketAddr,
    mood: Mood,
    (losses, is_silent): &(Arc<AtomicUsize>, Arc<AtomicBool>),
) -> Option<()> {
    let mut first = [0];
    client.peek(&mut first).await.ok()?;
    let is_tls = first[0] == 0x16;
    if mood == Mood::Nothing || (is_tls && mood != Mood::All) {
        return None;
    }
    let mut server = TcpStream::connect(gateway).await.ok()?;
    let one_less = |left: usize| left.checked_sub(1);
    let is_lost = !is_tls && losses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
    if !matches!(mood, Mood::Old | Mood::Tampering) && !is_lost {
        copy_bidirectional(&mut client, &mut server).await.ok()?;
        return Some(());
    }
    let asked = read_head(&mut client).await;
    if mood == Mood::Old && !asked.contains(" HTTP/1.0\r\n") {
        client.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await.ok()?;
        return None;
    }
    let length = asked.to_lowercase().split_once("content-length: ")?.1.split("\r\n").next()?.parse().ok()?;
    let mut content = vec![0; length];
    client.read_exact(&mut content).await.ok()?;
    server.write_all(&[asked.as_bytes(), &content].concat()).await.ok()?;
    let mut answer = read_answer(&mut server).await;
    if is_lost {
        if is_silent.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        return None;
    }
    if mood == Mood::Tampering {
        *answer.last_mut()? ^= 1;
    }
    client.write_all(&answer).await.ok()
}

/// A gateway behind somebody, its list, and a client that knows no more than the list.
pub(crate) struct Scene {
    pub(crate) world: World,
    pub(crate) between: Between,
    pub(crate) client: Client,
    events: Arc<Mutex<Vec<Event>>>,
}

impl Scene {
    pub(crate) async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let (between, listener) = Between::new().await;
        let address = between.address;
        let world = World::new(|config| {
            config.routes[0].plain_http = true;
            // HTTP/3, which the answers promise, would not pass here.
            config.gateway.udp_listen = "127.0.0.2:0".parse().unwrap();
            let speaks = vec![Speaks::Tls, Speaks::Pipe, Speaks::Plain];
            let point = AccessPointConfig { address, speaks, ..AccessPointConfig::default() };
            config.units = vec![UnitConfig { access_points: vec![point], ..UnitConfig::default() }];
            change(config);
        })
        .await;
        between.stand(listener, world.address());
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let told = Arc::clone(&events);
        let key = world.gateway.list_key();
        let client = Client::builder()
            .gateway("gw.test")
            .app("dev")
            .ticket("none")
            .trust(world.pem.as_str())
            .list_key(key.id, key.public_key)
            .dispatch("north", address)
            .served_host("api.test")
            // Nobody is to be asked for a name that only the test knows.
            .way(Way::Link)
            .way(Way::Address)
            .way(Way::Pipe)
            .way(Way::Plain)
            .on_event(move |event| told.lock().unwrap().push(event))
            .build()
            .unwrap();
        Self { world, between, client, events }
    }

    /// Lets something else through from now on, and has the client find its connections gone.
    pub(crate) async fn set(&self, mood: Mood) {
        self.between.mood.send_replace(mood);
        let _ = self.client.get("https://api.test/after").send().await;
    }

    /// Ends the gateway and starts another one in its place.
    pub(crate) async fn restart(&mut self) {
        self.world.config.gateway.tcp_listen = self.world.address();
        self.world.restart().await;
    }

    pub(crate) async fn post(&self, path: &str) -> Result<(Way, String), Error> {
        let sending = self.client.post(format!("https://api.test{path}")).body("one pear").send();
        let answer = timeout(Duration::from_secs(60), sending).await.expect("it never ended")?;
        let way = answer.timeline().answered().unwrap().way;
        Ok((way, answer.text().await.unwrap()))
    }
}

#[tokio::test]
async fn as_tls_is_cut_off_requests_go_by_sealed_pipe_and_each_is_executed_once() {
    let scene = Scene::new(|_| ()).await;
    // The gateway takes no such ticket, so that the link is out of question from here on.
    let (way, said) = scene.post("/first").await.unwrap();
    // On a busy machine a handshake may take longer than its way has.
    assert!(matches!(way, Way::Address | Way::Pipe) && said.starts_with("POST /first one pear\n"), "{way}: {said}");
    let by_pipe = scene.world.pipe_requests("answered");
    scene.set(Mood::Plain).await;
    let (way, said) = scene.post("/second").await.unwrap();
    assert_eq!((way, said.starts_with("POST /second one pear\n")), (Way::Pipe, true), "{said}");
    assert_eq!((scene.world.service.executed(), scene.world.pipe_requests("answered") - by_pipe), (3, 2));
    scene.set(Mood::All).await;
    assert_eq!(scene.post("/third").await.unwrap().0, Way::Pipe, "what failed just now is not tried first again");
    scene.client.network_changed();
    while scene.post("/fourth").await.unwrap().0 != Way::Address {}
}

#[tokio::test]
async fn answers_that_are_changed_on_the_way_are_told_counted_and_never_given_to_the_app() {
    let scene = Scene::new(|_| ()).await;
    scene.post("/first").await.unwrap();
    scene.between.mood.send_replace(Mood::Tampering);
    let error = scene.client.get("https://api.test/secret").send().await.unwrap_err();
    assert!(matches!(error, Error::Tampered { .. }), "{error:?}");
    let ways: Vec<Way> = error.timeline().unwrap().steps().iter().map(|step| step.way).collect();
    assert!(ways.contains(&Way::Pipe) && ways.contains(&Way::Plain), "{error}");
    let told = scene.events.lock().unwrap().iter().filter(|event| matches!(event, Event::Tampered { .. })).count();
    assert_eq!((told, scene.client.tampered_answers()), (3, 3), "the pipe twice, plain HTTP once");
    let executed = scene.world.service.executed();
    let error = scene.post("/pay").await.unwrap_err();
    assert!(matches!(error, Error::Tampered { .. }), "{error:?}");
    assert_eq!(scene.world.service.executed() - executed, 1, "it may have run, so it is not sent again");
}

#[tokio::test]
async fn the_last_try_of_pipe_and_of_plain_http_has_the_shape_that_passes_an_old_proxy() {
    for (has_pipe, expected) in [(true, (Way::Pipe, 2)), (false, (Way::Plain, 1))] {
        let scene = Scene::new(|config| config.pipe.enabled = has_pipe).await;
        scene.post("/first").await.unwrap();
        scene.between.mood.send_replace(Mood::Old);
        let answer = scene.client.get("https://api.test/9000").send().await.unwrap();
        let timeline = answer.timeline().clone();
        let way = timeline.answered().unwrap().way;
        let tries = timeline.steps().iter().filter(|step| step.way == way).count();
        assert_eq!((way, tries), expected, "{timeline}");
        assert!(answer.text().await.unwrap().starts_with("GET /9000 \n"));
    }
}

#[tokio::test]
async fn the_ways_of_a_route_are_those_of_the_gateways_policy_in_their_order_and_number() {
    let scene = Scene::new(|config| {
        let step = |way, tries| LadderStep { way, tries };
        let ladder = vec![step(Way::Plain, 1), step(Way::Pipe, 3), step(Way::Address, 0)];
        let route = RoutePolicyConfig { host: "api.test".to_owned(), ladder, ..RoutePolicyConfig::default() };
        config.policy.routes = vec![route];
    })
    .await;
    assert_eq!(scene.post("/first").await.unwrap().0, Way::Plain);
    scene.between.mood.send_replace(Mood::Nothing);
    let error = scene.client.get("https://api.test/").send().await.unwrap_err();
    let ways: Vec<Way> = error.timeline().unwrap().steps().iter().map(|step| step.way).collect();
    assert_eq!(ways, [Way::Plain, Way::Pipe, Way::Pipe, Way::Pipe], "{error}");
}

#[tokio::test]
async fn a_way_that_the_app_asks_for_is_taken_or_refused_with_a_reason() {
    let scene = Scene::new(|config| config.pipe.enabled = false).await;
    scene.post("/first").await.unwrap();
    let plain = scene.client.get("https://api.test/").way(Way::Plain).send().await.unwrap();
    assert_eq!(plain.timeline().answered().unwrap().way, Way::Plain);
    let error = scene.client.get("https://other.test/").way(Way::Plain).send().await.unwrap_err();
    assert!(matches!(error, Error::PlainHttp { .. }), "no route allows it: {error:?}");
    let error = scene.client.get("https://api.test/").way(Way::Pipe).send().await.unwrap_err();
    assert!(error.to_string().contains("no gateway is known that serves it"), "{error}");
}

#[tokio::test]
async fn where_nothing_gets_through_the_error_names_every_way_and_what_was_wrong_with_it() {
    let scene = Scene::new(|_| ()).await;
    scene.post("/first").await.unwrap();
    scene.between.mood.send_replace(Mood::Nothing);
    let error = scene.client.get("https://api.test/").send().await.unwrap_err();
    let timeline = error.timeline().map(ToString::to_string).unwrap_or_default();
    for way in ["address", "pipe", "plain"] {
        assert!(timeline.contains(&format!("{way} exchange")), "{way}: {error:?}");
    }
    assert_eq!(scene.world.service.executed(), 1);
}

#[tokio::test]
async fn a_key_that_the_app_uses_again_is_known_again_by_whichever_way_it_comes() {
    let scene = Scene::new(|_| ()).await;
    let pay = || scene.client.post("https://api.test/pay").idempotency_key("order-7").body("one pear");
    let first = pay().way(Way::Address).send().await.unwrap();
    let first = first.text().await.unwrap();
    assert!(!first.contains("key-scope"), "the gateway keeps the secret to itself: {first}");
    scene.set(Mood::Plain).await;
    let executed = scene.world.service.executed();
    let again = pay().send().await.unwrap();
    assert_eq!(again.timeline().answered().unwrap().way, Way::Pipe);
    assert_eq!((again.text().await.unwrap(), scene.world.service.executed()), (first, executed));
}
