use ropeway_cluster::{Bus, GatewayId, LocalBus, LocalBusConfig, Subscription};
use ropeway_core::wire::message::Hello;

use super::*;
use crate::metrics::Metrics;

const TTL: Duration = Duration::from_secs(60);
const KEY: [u8; 32] = [7; 32];

struct Bench {
    registry: Registry,
    subscription: Subscription,
    clock: Clock,
    metrics: Metrics,
}

impl Bench {
    async fn new(sessions_max: usize) -> Self {
        let bus = LocalBus::new(LocalBusConfig::default());
        let subscription = bus.subscribe(GatewayId::new("gw").expect("a name")).await.expect("the first");
        let metrics = Metrics::new();
        let registry = Registry::new(sessions_max, TTL, metrics.sessions());
        Self { registry, subscription, clock: Clock::new(), metrics }
    }

    fn create(&self, device: &str) -> Result<(Arc<Entry>, u64), Refusal> {
        let attach = |server: &mut Server, now| server.attach(&Hello::default(), true, false, 0, now);
        let config = Arc::new(ServerConfig::default());
        self.registry.create(identity(device), KEY, config, self.clock, &self.subscription.interests(), attach)
    }

    fn resume(&self, entry: &Entry, identity: &Identity, key: &[u8; 32]) -> Result<bool, Refusal> {
        // A session's number is its only public part: the cookie is read from WELCOME.
        let cookie = welcome_cookie(entry);
        let attach = |server: &mut Server, now| server.attach(&Hello::default(), true, true, 0, now);
        self.registry.resume(&cookie, identity, key, attach).map(|resumed| resumed.is_some())
    }
}

fn identity(device: &str) -> Identity {
    Identity { app: "dev".into(), device: device.into(), user: "ada".into() }
}

fn welcome_cookie(entry: &Entry) -> Cookie {
    let frame = entry.session.with(ropeway_core::session::Machine::poll_output);
    let welcome: ropeway_core::wire::message::Welcome =
        frame.expect("WELCOME waits").as_ref().message().expect("it is one");
    Cookie::decode(&welcome.resume).expect("a cookie")
}

fn target(text: &str) -> Target {
    text.parse().expect("a target")
}

#[tokio::test]
async fn a_session_is_forgotten_its_time_after_its_link_and_not_before() {
    let bench = Bench::new(10).await;
    let (entry, number) = bench.create("one").expect("there is room");
    let now = bench.clock.now();
    assert_eq!(bench.registry.sweep(now + TTL + TTL), None, "it has a link");
    bench.registry.detach(&entry, number, now);
    assert_eq!(bench.registry.attached_count(), 0);
    assert_eq!(bench.registry.sweep(now), Some(now + TTL));
    assert_eq!(bench.registry.sessions(&target("device:one")).len(), 1);
    assert_eq!(bench.registry.sweep(now + TTL), None);
    assert!(bench.registry.sessions(&target("device:one")).is_empty());
    assert!(bench.registry.lock().targets.is_empty());
    drop(entry);
    assert_eq!(bench.metrics.sessions().value(), 0);
}

#[tokio::test]
async fn a_resumed_session_is_not_swept_and_its_old_link_cannot_detach_it() {
    let bench = Bench::new(10).await;
    let (entry, old) = bench.create("one").expect("there is room");
    assert!(bench.resume(&entry, &identity("one"), &KEY).expect("it may"));
    let now = bench.clock.now();
    bench.registry.detach(&entry, old, now);
    assert_eq!(bench.registry.attached_count(), 1);
    assert_eq!(bench.registry.sweep(now + TTL + TTL), None);
    assert_eq!(bench.registry.all().len(), 1);
}

#[tokio::test]
async fn another_user_app_device_or_key_does_not_resume_a_session() {
    let bench = Bench::new(10).await;
    let (entry, _) = bench.create("one").expect("there is room");
    let cookie = welcome_cookie(&entry);
    let own = identity("one");
    for (stranger, key) in [
        (Identity { user: "bob".into(), ..own.clone() }, KEY),
        (Identity { app: "other".into(), ..own.clone() }, KEY),
        (Identity { device: "two".into(), ..own.clone() }, KEY),
        (own, [8; 32]),
    ] {
        let refused = bench.registry.resume(&cookie, &stranger, &key, |_, _| panic!("attached"));
        assert_eq!(refused.map(drop).unwrap_err().code, RefuseCode::ResumeRefused);
    }
}

#[tokio::test]
async fn a_full_registry_forgets_the_session_longest_without_a_link_and_never_one_with_a_link() {
    let bench = Bench::new(2).await;
    let (first, number) = bench.create("one").expect("there is room");
    let (_second, _) = bench.create("two").expect("there is room");
    let refused = bench.create("three").map(drop).unwrap_err();
    assert_eq!((refused.code, refused.retry_after.is_zero()), (RefuseCode::Overloaded, false));
    bench.registry.detach(&first, number, bench.clock.now());
    bench.create("three").expect("the first makes room");
    assert!(bench.registry.sessions(&target("device:one")).is_empty());
    assert_eq!(bench.registry.sessions(&target("user:ada")).len(), 2);
}

#[tokio::test]
async fn a_topic_ends_with_its_subscription_or_its_session() {
    let bench = Bench::new(10).await;
    let interests = bench.subscription.interests();
    let (entry, number) = bench.create("one").expect("there is room");
    assert!(bench.registry.subscribe(&entry, "news", &interests).is_ok());
    assert_eq!(bench.registry.subscribe(&entry, "a b", &interests).unwrap_err().name(), "bad_topic");
    assert_eq!(bench.registry.sessions(&target("topic:news")).len(), 1);
    bench.registry.unsubscribe(&entry, "news");
    assert!(bench.registry.sessions(&target("topic:news")).is_empty());
    assert!(bench.registry.subscribe(&entry, "news", &interests).is_ok());
    bench.registry.detach(&entry, number, bench.clock.now());
    bench.registry.sweep(bench.clock.now() + TTL);
    assert!(bench.registry.subscribe(&entry, "late", &interests).is_ok(), "a session that is gone takes no more");
    assert!(bench.registry.lock().targets.is_empty());
}
