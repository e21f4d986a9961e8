//! The behaviour of the bus, through its public face.

use std::future::Future;

use bytes::Bytes;
use tokio::task::JoinHandle;

use super::*;
use crate::bus::Interest;

fn bus_with(change: impl FnOnce(&mut LocalBusConfig)) -> LocalBus {
    let mut config = LocalBusConfig::default();
    change(&mut config);
    LocalBus::new(config)
}

fn message(id: &str, target: &str) -> Message {
    let id = id.parse().expect("a good id");
    Message::new(id, target.parse().expect("a good target"), Bytes::from_static(b"hello"))
}

fn id(text: &str) -> MessageId {
    text.parse().expect("a good id")
}

async fn subscribe(bus: &LocalBus, gateway: &str, targets: &[&str]) -> (Subscription, Vec<Interest>) {
    let subscription = bus.subscribe(gateway.parse().expect("a good id")).await.expect("a place on the bus");
    let interest = |target: &&str| subscription.interests().interest(target.parse().expect("a good target"));
    let interests = targets.iter().map(interest).collect::<Result<_, _>>().expect("room for the interests");
    (subscription, interests)
}

/// Takes what is in the queue now.
async fn waiting(subscription: &mut Subscription) -> Vec<String> {
    let mut ids = Vec::new();
    while let Some(Some(message)) = now(subscription.next()).await {
        ids.push(message.id.to_string());
    }
    ids
}

/// Returns what `future` gives without waiting, if anything.
async fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = std::future::ready(()) => None,
    }
}

fn start(bus: &LocalBus, message: Message) -> JoinHandle<Result<Accepted, PublishError>> {
    let bus = bus.clone();
    tokio::spawn(async move { bus.publish(message).await })
}

#[tokio::test]
async fn a_message_reaches_the_gateways_that_want_its_target_and_no_other() {
    let bus = LocalBus::new(LocalBusConfig::default());
    let (mut one, _held) = subscribe(&bus, "one", &["all", "user:ada", "device:d1", "topic:news"]).await;
    let (mut two, _also_held) = subscribe(&bus, "two", &["all", "user:bob", "topic:news"]).await;

    for (id, target) in [
        ("everyone", "all"),
        ("ada", "user:ada"),
        ("bob", "user:bob"),
        ("d1", "device:d1"),
        ("news", "topic:news"),
        ("nobody", "topic:old"),
        ("not-a-user", "device:ada"),
    ] {
        bus.publish(message(id, target)).await.expect("the bus has room");
    }

    assert_eq!(waiting(&mut one).await, ["everyone", "ada", "d1", "news"]);
    assert_eq!(waiting(&mut two).await, ["everyone", "bob", "news"]);
    assert_eq!(bus.status(&id("nobody")).await, Some(Status::Queued));
}

#[tokio::test]
async fn a_message_arrives_as_it_was_sent() {
    let bus = LocalBus::new(LocalBusConfig::default());
    let (mut gateway, _held) = subscribe(&bus, "one", &["user:ada"]).await;
    let mut sent = message("m", "user:ada");
    sent.content_type = Some("text/plain".parse().expect("a content type"));
    sent.collapse_key = Some("k".parse().expect("a collapse key"));
    sent.ttl = Duration::from_secs(5);

    bus.publish(sent.clone()).await.expect("the bus has room");

    assert_eq!(gateway.next().await, Some(sent));
}

#[tokio::test]
async fn an_interest_held_twice_lasts_until_both_are_dropped() {
    let bus = LocalBus::new(LocalBusConfig::default());
    let (mut gateway, mut held) = subscribe(&bus, "one", &["user:ada", "user:ada"]).await;

    held.pop();
    bus.publish(message("first", "user:ada")).await.expect("the bus has room");
    held.pop();
    bus.publish(message("second", "user:ada")).await.expect("the bus has room");

    assert_eq!(waiting(&mut gateway).await, ["first"]);
}

#[tokio::test]
async fn a_dropped_subscription_frees_its_name_and_takes_its_interests_along() {
    let bus = LocalBus::new(LocalBusConfig::default());
    let (first, held) = subscribe(&bus, "one", &["user:ada"]).await;
    let taken = bus.subscribe("one".parse().expect("a good id")).await.map(drop);
    assert_eq!(taken, Err(SubscribeError::Taken { gateway: "one".parse().expect("a good id") }));
    let late = first.interests();

    drop(first);

    assert_eq!(late.interest(Target::All).map(drop), Err(InterestError::Closed));
    let (mut second, _kept) = subscribe(&bus, "one", &["user:ada"]).await;
    drop(held);
    bus.publish(message("m", "user:ada")).await.expect("the bus has room");
    assert_eq!(
        waiting(&mut second).await,
        ["m"],
        "the old subscription's interests end without touching the new one's"
    );
}

#[tokio::test]
async fn a_duplicate_is_handed_on_again_until_it_is_acked() {
    let bus = LocalBus::new(LocalBusConfig::default());
    let (mut gateway, _held) = subscribe(&bus, "one", &["user:ada"]).await;
    let publish = || bus.publish(message("m", "user:ada"));

    assert_eq!(publish().await, Ok(Accepted::new(id("m"), false, Status::Queued)));
    assert_eq!(publish().await, Ok(Accepted::new(id("m"), true, Status::Queued)));
    bus.report(&id("m"), Status::Written).await.expect("the message is known");
    assert_eq!(publish().await, Ok(Accepted::new(id("m"), true, Status::Written)));
    assert_eq!(waiting(&mut gateway).await, ["m", "m", "m"]);

    bus.report(&id("m"), Status::Acked).await.expect("the message is known");
    assert_eq!(publish().await, Ok(Accepted::new(id("m"), true, Status::Acked)));
    assert_eq!(waiting(&mut gateway).await, [""; 0]);
}

#[tokio::test]
async fn a_status_only_goes_forward() {
    let bus = LocalBus::new(LocalBusConfig::default());
    bus.publish(message("m", "all")).await.expect("the bus has room");

    for (reported, known) in [
        (Status::Queued, Status::Queued),
        (Status::Written, Status::Written),
        (Status::Queued, Status::Written),
        (Status::Expired, Status::Expired),
        (Status::Acked, Status::Acked),
        (Status::Expired, Status::Acked),
    ] {
        bus.report(&id("m"), reported).await.expect("the message is known");
        assert_eq!(bus.status(&id("m")).await, Some(known));
    }
}

#[tokio::test]
async fn a_message_never_published_is_unknown() {
    let bus = LocalBus::new(LocalBusConfig::default());
    assert_eq!(bus.status(&id("m")).await, None);
    assert_eq!(bus.report(&id("m"), Status::Acked).await, Err(ReportError::Unknown { id: id("m") }));
    assert_eq!(bus.status(&id("m")).await, None, "a report alone makes no message known");
}

#[tokio::test]
async fn the_oldest_status_is_forgotten_first() {
    let bus = bus_with(|config| config.statuses_max = 2);
    for id in ["a", "b", "a", "c"] {
        bus.publish(message(id, "all")).await.expect("the bus has room");
    }
    assert_eq!(bus.status(&id("a")).await, None);
    assert_eq!(bus.status(&id("b")).await, Some(Status::Queued));
    assert_eq!(bus.status(&id("c")).await, Some(Status::Queued));
}

#[tokio::test(start_paused = true)]
async fn a_message_not_acked_in_its_time_expires() {
    let bus = LocalBus::new(LocalBusConfig::default());
    for name in ["kept", "acked-late"] {
        let mut short = message(name, "all");
        short.ttl = Duration::from_secs(10);
        bus.publish(short).await.expect("the bus has room");
    }

    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert_eq!(bus.status(&id("kept")).await, Some(Status::Queued));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(bus.status(&id("kept")).await, Some(Status::Expired));

    bus.report(&id("acked-late"), Status::Acked).await.expect("the message is known");
    assert_eq!(bus.status(&id("acked-late")).await, Some(Status::Acked));
}

#[tokio::test(start_paused = true)]
async fn an_expired_message_sent_again_starts_anew() {
    let bus = LocalBus::new(LocalBusConfig::default());
    let (mut gateway, _held) = subscribe(&bus, "one", &["all"]).await;
    let mut short = message("m", "all");
    short.ttl = Duration::from_secs(10);
    bus.publish(short.clone()).await.expect("the bus has room");
    tokio::time::advance(Duration::from_secs(10)).await;

    assert_eq!(bus.publish(short).await, Ok(Accepted::new(id("m"), true, Status::Queued)));
    assert_eq!(bus.status(&id("m")).await, Some(Status::Queued));
    assert_eq!(waiting(&mut gateway).await, ["m", "m"]);
}

#[tokio::test(start_paused = true)]
async fn the_longest_life_is_the_bus_s_own() {
    let bus = LocalBus::new(LocalBusConfig::default());
    let mut eternal = message("m", "all");
    eternal.ttl = Duration::MAX;
    bus.publish(eternal).await.expect("the bus has room");
    tokio::time::advance(TTL_MAX).await;
    assert_eq!(bus.status(&id("m")).await, Some(Status::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_publisher_gives_up_on_a_full_queue_and_leaves_nothing_behind() {
    let bus = bus_with(|config| config.queue_messages_max = 1);
    let (mut full, _held) = subscribe(&bus, "full", &["all", "user:ada"]).await;
    let (mut free, _also_held) = subscribe(&bus, "free", &["all"]).await;
    bus.publish(message("first", "user:ada")).await.expect("the bus has room");

    let refused = bus.publish(message("second", "all")).await;

    let (gateway, waited) = ("full".parse().expect("a good id"), Duration::from_secs(1));
    assert_eq!(refused, Err(PublishError::NoRoom { gateway, waited }));
    assert_eq!(bus.status(&id("second")).await, None);
    assert_eq!(waiting(&mut free).await, [""; 0]);
    assert_eq!(waiting(&mut full).await, ["first"]);
}

#[tokio::test(start_paused = true)]
async fn a_publisher_goes_on_as_soon_as_there_is_room() {
    let bus = bus_with(|config| config.queue_messages_max = 1);
    let (mut gateway, _held) = subscribe(&bus, "one", &["all"]).await;
    bus.publish(message("first", "all")).await.expect("the bus has room");
    let second = start(&bus, message("second", "all"));
    tokio::task::yield_now().await;
    assert!(!second.is_finished());

    assert_eq!(gateway.next().await.map(|message| message.id), Some(id("first")));

    assert!(second.await.expect("the publisher ran").is_ok());
    assert_eq!(waiting(&mut gateway).await, ["second"]);
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_leaves_with_a_full_queue_holds_nobody_up() {
    let bus = bus_with(|config| config.queue_messages_max = 1);
    let (gateway, _held) = subscribe(&bus, "one", &["all"]).await;
    bus.publish(message("first", "all")).await.expect("the bus has room");
    let second = start(&bus, message("second", "all"));
    tokio::task::yield_now().await;

    drop(gateway);

    assert!(second.await.expect("the publisher ran").is_ok());
}

#[tokio::test]
async fn every_limit_is_kept() {
    let bus = bus_with(|config| {
        config.gateways_max = 1;
        config.interests_max = 1;
        config.payload_bytes_max = 4;
    });
    let (gateway, _held) = subscribe(&bus, "one", &["all"]).await;

    let second = bus.subscribe("two".parse().expect("a good id")).await.map(drop);
    assert_eq!(second, Err(SubscribeError::TooMany { max: 1 }));
    let other = gateway.interests().interest("user:ada".parse().expect("a good target")).map(drop);
    assert_eq!(other, Err(InterestError::TooMany { max: 1 }));
    assert!(gateway.interests().interest(Target::All).is_ok(), "one more of the same target takes no room");
    let large = bus.publish(message("m", "all")).await;
    assert_eq!(large, Err(PublishError::TooLarge { bytes: 5, max: 4 }));
}

#[tokio::test]
async fn many_publishers_and_a_slow_gateway_lose_nothing() {
    let bus = bus_with(|config| {
        config.queue_messages_max = 2;
        config.publish_wait_max = Duration::from_secs(60);
    });
    let (mut gateway, _held) = subscribe(&bus, "one", &["all"]).await;
    let publishers: Vec<_> = (0..100).map(|number| start(&bus, message(&number.to_string(), "all"))).collect();

    let mut seen: Vec<u32> = Vec::new();
    while seen.len() < publishers.len() {
        let message = gateway.next().await.expect("the bus lives");
        seen.push(message.id.as_str().parse().expect("ids are numbers here"));
        tokio::task::yield_now().await;
    }

    for publisher in publishers {
        assert!(publisher.await.expect("the publisher ran").is_ok());
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..100).collect::<Vec<_>>());
}
