//! What must hold while a gateway is killed or replaced in the middle of the work.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use ropeway::{CarrierKind, Client, Event, PushEvent, PushStream, ReconnectConfig};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::support::{ClientFile, PATIENCE, Place, Up};

const REQUESTS: usize = 1_000;
const REQUESTS_AT_ONCE: usize = 50;
const PUSHES: usize = 1_000;

/// Time between two looks at a condition that a whole process brings about.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_posts_run_once_each_while_the_gateway_drains_and_restarts() {
    let service = Service::start().await;
    let place = Place::new();
    let upstream = format!("api.test=http://{}", service.address);
    let up = place.up(&["--upstream", &upstream]);
    let client = ClientFile::of(&place).client().timeout(PATIENCE).link_wait(PATIENCE).build().unwrap();

    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..REQUESTS_AT_ONCE)
        .map(|_| {
            let (client, next) = (client.clone(), Arc::clone(&next));
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= REQUESTS {
                        return;
                    }
                    let sent = client.post("https://api.test/pay").body(number.to_string()).send().await;
                    let answer = sent.unwrap_or_else(|error| panic!("request {number}: {error}"));
                    assert_eq!(answer.status(), StatusCode::OK, "request {number}");
                    assert_eq!(answer.text().await.unwrap(), format!("paid {number}"));
                }
            })
        })
        .collect();

    service.wait_for(REQUESTS / 3).await;
    let _second = tokio::task::spawn_blocking(move || restart(&place, up, "-TERM", &upstream)).await.unwrap();
    for worker in workers {
        timeout(PATIENCE, worker).await.expect("the requests end").unwrap();
    }

    let executed = service.executed.lock().unwrap();
    assert_eq!(executed.len(), REQUESTS);
    let doubled: Vec<_> = executed.iter().filter(|(_, times)| **times != 1).collect();
    assert!(doubled.is_empty(), "executed more than once: {doubled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_restarted_tells_a_quic_client_that_its_connection_is_gone() {
    let place = Place::new();
    let up = place.up(&[]);
    let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
    let builder = ClientFile::of(&place).client().carrier(CarrierKind::Quic).timeout(PATIENCE);
    let client = builder.on_event(move |event| drop(sender.send(event))).build().unwrap();
    let answer = client.get("https://demo.test/").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);

    let second = tokio::task::spawn_blocking(move || restart(&place, up, "-KILL", "")).await.unwrap();
    // What it sends meets a gateway that knows nothing of it.
    let answer = client.get("https://demo.test/").send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let lost = timeout(PATIENCE, async {
        loop {
            if let Some(Event::LinkLost { reason }) = events.recv().await {
                return reason;
            }
        }
    });
    let reason = lost.await.expect("the link was lost");
    assert!(reason.contains("reset"), "{reason}");
    drop(second);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_kill_acked_pushes_were_shown_once_and_others_are_unknown_and_can_be_sent_again() {
    let place = Place::new();
    let up = place.up(&[]);
    let soon = ReconnectConfig { spread: Duration::from_millis(100), ..ReconnectConfig::default() };
    let client = ClientFile::of(&place).client().reconnect(soon).build().unwrap();
    let mut pushes = client.pushes();
    let backend = Backend::of(&place, &up);
    backend.wait_for_link(&mut pushes).await;

    let shown = Arc::new(Mutex::new(Shown::default()));
    let reader = tokio::spawn(read(pushes, Arc::clone(&shown)));
    let mut acked = BTreeSet::new();
    for number in 0..PUSHES / 2 {
        backend.push(number).await;
    }
    while acked.len() < PUSHES / 10 {
        for number in 0..PUSHES / 2 {
            if backend.status(number).await == "acked" {
                acked.insert(number);
            }
        }
    }
    // The other half is on its way, unread by us, when the gateway dies.
    let rest = async {
        for number in PUSHES / 2..PUSHES {
            if backend.try_push(number).await.is_none() {
                return;
            }
        }
    };
    let killing = tokio::task::spawn_blocking(move || {
        let second = restart(&place, up, "-KILL", "");
        (place, second)
    });
    let ((), killed) = tokio::join!(rest, killing);
    let (place, second) = killed.unwrap();
    let backend = Backend::of(&place, &second);

    for number in &acked {
        let times = shown.lock().unwrap().times(*number);
        assert_eq!(times, 1, "push {number} was acked before the kill");
        assert_eq!(backend.status(*number).await, "unknown");
    }
    wait_until(&shown, |shown| shown.gaps > 0).await;
    for number in 0..PUSHES {
        backend.push(number).await;
    }
    wait_until(&shown, |shown| (0..PUSHES).all(|number| shown.times(number) > 0)).await;
    let shown = shown.lock().unwrap();
    assert_eq!(shown.gaps, 1, "one gap for one loss");
    let wrong: Vec<_> = shown.counts.iter().filter(|(_, times)| **times != 1).collect();
    assert!(wrong.is_empty(), "not shown exactly once: {wrong:?}");
    drop(shown);
    reader.abort();
}

/// Ends a gateway by a signal and starts another on the same addresses and data.
fn restart(place: &Place, mut up: Up, signal: &str, upstream: &str) -> Up {
    let (tcp, admin) = (up.address("tcp").to_string(), up.address("admin").to_string());
    up.running.signal(signal);
    up.running.wait();
    let arguments = ["--upstream", upstream];
    place.up_at(&tcp, &admin, if upstream.is_empty() { &[] } else { &arguments })
}

async fn read(mut pushes: PushStream, shown: Arc<Mutex<Shown>>) {
    while let Some(event) = pushes.next().await {
        let mut shown = shown.lock().unwrap();
        match event {
            PushEvent::Message(message) => *shown.counts.entry(message.id).or_insert(0) += 1,
            PushEvent::Gap | _ => shown.gaps += 1,
        }
    }
}

async fn wait_until(shown: &Mutex<Shown>, done: impl Fn(&Shown) -> bool) {
    let waiting = async {
        while !done(&shown.lock().unwrap()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("the client is shown it in time");
}

#[derive(Default)]
struct Shown {
    counts: BTreeMap<String, u32>,
    gaps: u32,
}

impl Shown {
    fn times(&self, number: usize) -> u32 {
        self.counts.get(&name(number)).copied().unwrap_or(0)
    }
}

fn name(number: usize) -> String {
    format!("push-{number}")
}

/// A backend that pushes through the admin API.
struct Backend {
    client: Client,
    url: String,
    token: String,
}

impl Backend {
    fn of(place: &Place, up: &Up) -> Self {
        let client = Client::builder().allow_plain_http(true).build().unwrap();
        let token = format!("Bearer {}", place.read("ropeway-data/admin.token").trim());
        Self { client, url: format!("http://{}/v1/push", up.address("admin")), token }
    }

    /// Pushes until the client shows that its link is up.
    async fn wait_for_link(&self, pushes: &mut PushStream) {
        let mut number = 0;
        let first = async {
            loop {
                self.post("all", &format!("hello-{number}")).await.unwrap();
                number += 1;
                if let Ok(event) = timeout(Duration::from_millis(100), pushes.next()).await {
                    return event;
                }
            }
        };
        assert!(matches!(timeout(PATIENCE, first).await, Ok(Some(PushEvent::Message(_)))));
    }

    async fn push(&self, number: usize) {
        self.try_push(number).await.expect("the gateway is up");
    }

    async fn try_push(&self, number: usize) -> Option<()> {
        self.post("user:dev", &name(number)).await
    }

    async fn post(&self, to: &str, id: &str) -> Option<()> {
        let push = json!({ "to": to, "id": id, "text": id });
        let request = self.client.post(&self.url).header("authorization", &self.token).json(&push);
        let answer = request.send().await.ok()?;
        assert_eq!(answer.status(), StatusCode::ACCEPTED);
        Some(())
    }

    async fn status(&self, number: usize) -> String {
        let url = format!("{}/{}", self.url, name(number));
        let answer = self.client.get(url).header("authorization", &self.token).send().await.unwrap();
        let said: Value = answer.json().await.unwrap();
        said["status"].as_str().unwrap().to_owned()
    }
}

/// A service that counts how often it did what.
struct Service {
    address: SocketAddr,
    executed: Arc<Mutex<BTreeMap<String, u32>>>,
    progress: Arc<Notify>,
}

impl Service {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (executed, progress) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(Notify::new()));
        let shared = (Arc::clone(&executed), Arc::clone(&progress));
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let shared = shared.clone();
                let service = service_fn(move |request| pay(request, shared.clone()));
                let serving =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service);
                tokio::spawn(serving);
            }
        });
        Self { address, executed, progress }
    }

    async fn wait_for(&self, executed: usize) {
        loop {
            let progress = self.progress.notified();
            if self.executed.lock().unwrap().len() >= executed {
                return;
            }
            timeout(PATIENCE, progress).await.expect("requests arrive");
        }
    }
}

type Ledger = (Arc<Mutex<BTreeMap<String, u32>>>, Arc<Notify>);

async fn pay(
    request: http::Request<Incoming>,
    (executed, progress): Ledger,
) -> Result<http::Response<Full<bytes::Bytes>>, Infallible> {
    let Ok(body) = request.into_body().collect().await else {
        return Ok(http::Response::new(Full::from("cut")));
    };
    let number = String::from_utf8_lossy(&body.to_bytes()).into_owned();
    *executed.lock().unwrap().entry(number.clone()).or_insert(0) += 1;
    progress.notify_waiters();
    Ok(http::Response::new(Full::from(format!("paid {number}"))))
}
