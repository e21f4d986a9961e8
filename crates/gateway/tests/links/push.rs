//! Messages, from the admin API to the app and back as statuses.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use bytes::Bytes;
use ropeway_core::{
    CarrierKind,
    session::ClientEvent,
    wire::{
        Kind,
        message::{Hello, Push},
    },
};
use serde_json::json;

use crate::{
    admin::{push, reached, status},
    stranger::{Stranger, hello, signed},
    support::{Device, World, key, until},
};

async fn patient() -> World {
    World::new(|config| config.gateway.session_ttl = Duration::from_secs(60)).await
}

/// Pushes a text under an id.
async fn send(world: &World, to: &str, id: &str) {
    let (status, answer) = push(world, &json!({ "to": to, "id": id, "text": format!("text of {id}") })).await;
    assert_eq!(status, 202, "{answer}");
}

/// Asserts that these messages are shown next, in this order.
async fn shows(device: &Device, ids: &[&str], redelivered: bool) {
    for id in ids {
        let (message, again) = device.shown().await;
        assert_eq!((message.id.as_str(), again), (*id, redelivered));
        assert_eq!(message.payload, format!("text of {id}"));
    }
}

#[tokio::test]
async fn a_message_reaches_user_device_topic_or_all_over_every_carrier() {
    for carrier in CarrierKind::ALL {
        let world = patient().await;
        let (device, _link) = world.connected(1, carrier).await;
        let bob = world.device_of("bob", 2);
        let _other = bob.connect(world.dial(carrier).await);
        bob.welcome().await;
        device.session.with(|client, _| client.subscribe("news"));
        device.work().await;

        let targets = [("user:ada", "1"), ("device:device-1", "2"), ("topic:news", "3"), ("all", "4")];
        for (target, id) in targets {
            send(&world, target, id).await;
            shows(&device, &[id], false).await;
            reached(&world, id, "acked").await;
        }
        shows(&bob, &["4"], false).await;
        device.session.with(|client, _| client.unsubscribe("news"));
        device.work().await;
        send(&world, "topic:news", "5").await;
        send(&world, "all", "6").await;
        shows(&device, &["6"], false).await;
        assert_eq!(status(&world, "5").await, "queued");
    }
}

#[tokio::test]
async fn a_message_carries_bytes_topic_and_media_type() {
    let world = patient().await;
    let device = world.device(1);
    device.session.with(|client, _| client.subscribe("news"));
    let _link = device.connect(world.dial(CarrierKind::Tls).await);
    device.welcome().await;
    let message = json!({ "to": "topic:news", "base64": "AAEC/w==", "content_type": "application/octet-stream" });
    assert_eq!(push(&world, &message).await.0, 202);
    let (message, _) = device.shown().await;
    assert_eq!(message.payload, Bytes::from_static(&[0, 1, 2, 255]));
    assert_eq!((message.topic.as_str(), message.content_type.as_str()), ("news", "application/octet-stream"));
    assert!(message.time_ms > 1_700_000_000_000);
}

#[tokio::test]
async fn a_status_goes_from_queued_over_written_to_acked() {
    let world = patient().await;
    let (device, link) = world.connected(1, CarrierKind::Tls).await;
    device.hang_up(link).await;
    until("the link ends", || world.links() == 0).await;
    send(&world, "user:ada", "m").await;
    assert_eq!(status(&world, "m").await, "queued");
    let _link = device.connect(world.dial(CarrierKind::Tls).await);
    device.welcome().await;
    let (message, _) = device.pushed().await;
    reached(&world, "m", "written").await;
    device.session.with(|client, _| client.shown(&message.id));
    reached(&world, "m", "acked").await;
    let pushes = |outcome| world.gateway.metrics().pushes(outcome).value();
    assert_eq!(["accepted", "written", "acked", "dropped", "unreported"].map(pushes), [1, 1, 1, 0, 0]);
    send(&world, "user:ada", "m").await;
    send(&world, "user:ada", "n").await;
    shows(&device, &["n"], false).await;
}

#[tokio::test]
async fn messages_stay_in_order_and_come_again_after_a_resume_until_they_are_acked() {
    let world = patient().await;
    let (device, link) = world.connected(1, CarrierKind::Tls).await;
    for id in ["1", "2", "3", "4"] {
        send(&world, "user:ada", id).await;
    }
    shows(&device, &["1", "2"], false).await;
    reached(&world, "2", "acked").await;
    // These two arrive and are not shown before the link is lost.
    for id in ["3", "4"] {
        assert_eq!(device.pushed().await.0.id, id);
        reached(&world, id, "written").await;
    }
    link.abort();
    until("the link ends", || world.links() == 0).await;
    send(&world, "user:ada", "5").await;
    let _link = device.connect(world.dial(CarrierKind::Quic).await);
    assert!(device.welcome().await.0);
    // What waits for the app already is not shown twice; what it shows now is acknowledged.
    shows(&device, &["5"], false).await;
    for id in ["3", "4"] {
        device.session.with(|client, _| client.shown(id));
    }
    for id in ["3", "4", "5"] {
        reached(&world, id, "acked").await;
    }
}

#[tokio::test]
async fn what_was_written_and_not_acked_is_sent_again_and_says_so() {
    let world = patient().await;
    let mut first = Stranger::connect(&world).await;
    first.send(&signed(&hello(&world, 1), &key(1))).await;
    first.prove(&key(1)).await;
    let resume = first.welcome().await.resume;
    for id in ["1", "2"] {
        send(&world, "device:device-1", id).await;
        assert_eq!(message(&mut first).await, (id.to_owned(), false));
    }
    drop(first);
    until("the link ends", || world.links() == 0).await;
    send(&world, "device:device-1", "3").await;
    let mut second = Stranger::connect(&world).await;
    second.send(&signed(&Hello { resume, push_sequence: 1, ..hello(&world, 1) }, &key(1))).await;
    second.prove(&key(1)).await;
    second.welcome().await;
    assert_eq!(message(&mut second).await, ("2".into(), true));
    assert_eq!(message(&mut second).await, ("3".into(), false));
    reached(&world, "1", "acked").await;
    assert_eq!(status(&world, "2").await, "written");
}

async fn message(stranger: &mut Stranger) -> (String, bool) {
    let push: Push = stranger.frame_of(Kind::Push).await.as_ref().message().unwrap();
    (push.message_id, push.redelivered)
}

#[tokio::test]
async fn messages_that_the_bound_pushed_out_are_one_gap() {
    let world = World::new(|config| {
        config.gateway.session_ttl = Duration::from_secs(60);
        config.push.session_messages_max = 3;
    })
    .await;
    let (device, link) = world.connected(1, CarrierKind::Tls).await;
    send(&world, "user:ada", "0").await;
    shows(&device, &["0"], false).await;
    reached(&world, "0", "acked").await;
    device.hang_up(link).await;
    until("the link ends", || world.links() == 0).await;
    for id in ["1", "2", "3", "4", "5"] {
        send(&world, "user:ada", id).await;
    }
    until("what was pushed out is counted", || world.gateway.metrics().pushes("dropped").value() == 2).await;
    let _link = device.connect(world.dial(CarrierKind::Tls).await);
    assert!(matches!(device.event().await, ClientEvent::Gap));
    assert!(device.welcome().await.0);
    shows(&device, &["3", "4", "5"], false).await;
    reached(&world, "5", "acked").await;
    assert_eq!(status(&world, "1").await, "queued");
}

#[tokio::test]
async fn both_devices_of_a_user_get_a_message_and_each_its_own() {
    let world = patient().await;
    let (phone, _first) = world.connected(1, CarrierKind::Tls).await;
    let (tablet, _second) = world.connected(2, CarrierKind::Quic).await;
    send(&world, "user:ada", "both").await;
    send(&world, "device:device-1", "phone").await;
    send(&world, "device:device-2", "tablet").await;
    shows(&phone, &["both", "phone"], false).await;
    shows(&tablet, &["both", "tablet"], false).await;
    for id in ["both", "phone", "tablet"] {
        reached(&world, id, "acked").await;
    }
}

#[tokio::test]
async fn a_message_sent_twice_before_it_is_acked_is_shown_once() {
    let world = patient().await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    send(&world, "user:ada", "once").await;
    send(&world, "user:ada", "once").await;
    send(&world, "user:ada", "last").await;
    shows(&device, &["once", "last"], false).await;
    reached(&world, "last", "acked").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_took_over_from_a_living_one_gets_the_messages() {
    let world = patient().await;
    let (device, _old) = world.connected(1, CarrierKind::Tls).await;
    let takeovers = [CarrierKind::Ws, CarrierKind::Quic, CarrierKind::Tls].into_iter().cycle().take(30);
    for (round, carrier) in takeovers.enumerate() {
        let _new = device.connect(world.dial(carrier).await);
        assert!(device.welcome().await.0, "round {round} over {carrier}");
        // Now the old driver may wake up at any moment.
        device.work().await;
        send(&world, "user:ada", &round.to_string()).await;
        shows(&device, &[&round.to_string()], false).await;
    }
    until("the old links end", || world.links() == 1).await;
}
