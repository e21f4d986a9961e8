//! Who is not let in, and how they hear of it.

use std::time::Duration;

use prost::Message;
use ropeway_core::{
    CarrierKind,
    session::device_id,
    wire::{
        Frame, Kind,
        message::{Hello, RefuseCode, SignedHello},
    },
};
use ropeway_gateway::tickets::{DeviceRule, TicketIssuer};
use ropeway_net::unix_ms;

use crate::{
    stranger::{DAY, Stranger, hello, proof, signed, token},
    support::{World, key},
};

/// Sends a HELLO that the gateway refuses; returns when to come back.
async fn refused(world: &World, code: RefuseCode, reason: &'static str, hello: &Hello) -> u32 {
    refused_frame(world, code, reason, signed(hello, &key(1))).await
}

async fn refused_frame(world: &World, code: RefuseCode, reason: &'static str, frame: Frame) -> u32 {
    let attack = async {
        let mut stranger = Stranger::connect(world).await;
        stranger.send(&frame).await;
        stranger.prove(&key(1)).await;
        stranger.refusal().await
    };
    let refuse = world.attack(reason, attack).await;
    assert_eq!(refuse.code(), code, "{reason}: {}", refuse.detail);
    refuse.retry_after_ms
}

#[tokio::test]
async fn a_ticket_that_is_no_good_is_refused_by_name() {
    let world = World::new(|config| config.tickets.apps = vec!["dev".into(), "shop".into()]).await;
    let with = |ticket: String| Hello { ticket, ..hello(&world, 1) };
    let device = key(1).verifying_key().to_bytes();
    let (now, hour) = (unix_ms() / 1000, Duration::from_secs(3_600));

    refused(&world, RefuseCode::TicketInvalid, "ticket_invalid", &with("no ticket at all".into())).await;
    let other =
        TicketIssuer::generate("test").unwrap().issue("eve", "dev", &device, &DeviceRule::Any, DAY, now).unwrap();
    refused(&world, RefuseCode::TicketInvalid, "ticket_invalid", &with(other)).await;
    let expired = world.issuer.issue("eve", "dev", &device, &DeviceRule::Any, hour, now - 7_200).unwrap();
    refused(&world, RefuseCode::TicketExpired, "ticket_expired", &with(expired)).await;
    let foreign = world.issuer.issue("eve", "shop", &device, &DeviceRule::Any, DAY, now).unwrap();
    refused(&world, RefuseCode::TicketForeignApp, "ticket_foreign_app", &with(foreign)).await;
    let claims = serde_json::json!({ "sub": "eve", "aud": "dev", "exp": now + 3_600 });
    refused(&world, RefuseCode::TicketUnbound, "ticket_unbound", &with(token(&world, &claims))).await;
}

#[tokio::test]
async fn a_device_can_take_no_name_that_its_ticket_does_not_allow() {
    let world = World::new(|_| ()).await;
    let key_bytes = key(1).verifying_key().to_bytes();
    let named = |device: &str, rule: &DeviceRule| {
        let ticket = world.issuer.issue("eve", "dev", &key_bytes, rule, DAY, unix_ms() / 1000).unwrap();
        Hello { ticket, device: device.into(), ..hello(&world, 1) }
    };
    let given = DeviceRule::Named("eves-phone".into());
    for (device, rule) in
        [("adas-phone", &given), ("", &given), ("adas-phone", &DeviceRule::Key), ("*", &DeviceRule::Key)]
    {
        refused(&world, RefuseCode::TicketUnbound, "ticket_unbound", &named(device, rule)).await;
    }
    for (device, rule) in
        [("eves-phone", &given), (&device_id(&key_bytes), &DeviceRule::Key), ("tablet", &DeviceRule::Any)]
    {
        let mut stranger = Stranger::connect(&world).await;
        stranger.send(&signed(&named(device, rule), &key(1))).await;
        stranger.prove(&key(1)).await;
        assert_eq!(stranger.frame().await.map(|frame| frame.kind), Some(Kind::Welcome), "{device}");
    }
}

#[tokio::test]
async fn a_hello_that_the_device_did_not_sign_is_refused() {
    let world = World::new(|_| ()).await;
    let stolen = signed(&hello(&world, 1), &key(2));
    refused_frame(&world, RefuseCode::BadSignature, "bad_signature", stolen).await;
}

#[tokio::test]
async fn a_proof_for_another_connection_is_refused() {
    let world = World::new(|_| ()).await;
    let attack = async {
        let other = Stranger::connect(&world).await;
        let mut stranger = Stranger::connect(&world).await;
        stranger.send(&signed(&hello(&world, 1), &key(1))).await;
        stranger.send(&proof(&other.binding, &key(1))).await;
        stranger.refusal().await
    };
    let refuse = world.attack("bad_signature", attack).await;
    assert_eq!(refuse.code(), RefuseCode::BadSignature, "{}", refuse.detail);
}

#[tokio::test]
async fn a_hello_that_was_seen_before_is_refused_on_every_connection() {
    let world = World::new(|_| ()).await;
    let seen = signed(&hello(&world, 1), &key(1));
    let mut first = Stranger::connect(&world).await;
    first.send(&seen).await;
    first.prove(&key(1)).await;
    first.welcome().await;
    drop(first);
    world.empty().await;
    refused_frame(&world, RefuseCode::Replayed, "replayed_hello", seen).await;
}

#[tokio::test]
async fn a_hello_for_another_gateway_or_time_is_refused() {
    let world = World::new(|_| ()).await;
    let elsewhere = Hello { gateway: "other.test".into(), ..hello(&world, 1) };
    refused(&world, RefuseCode::WrongGateway, "wrong_gateway", &elsewhere).await;
    for time_ms in [unix_ms() - 90_000, unix_ms() + 90_000] {
        let skewed = Hello { time_ms, ..hello(&world, 1) };
        refused(&world, RefuseCode::ClockSkew, "clock_skew", &skewed).await;
    }
}

#[tokio::test]
async fn a_hello_that_makes_no_sense_is_refused() {
    let world = World::new(|_| ()).await;
    let short = Hello { nonce: vec![1; 15].into(), ..hello(&world, 1) };
    refused(&world, RefuseCode::Protocol, "protocol", &short).await;
    let nameless = Hello { device: "with a space".into(), ..hello(&world, 1) };
    refused(&world, RefuseCode::Protocol, "protocol", &nameless).await;
    let garbled = Frame { payload: vec![0xff; 40].into(), ..signed(&hello(&world, 1), &key(1)) };
    refused_frame(&world, RefuseCode::Protocol, "protocol", garbled).await;
    let inner = SignedHello { hello: vec![0xff; 40].into(), signature: vec![0; 64].into() };
    refused_frame(&world, RefuseCode::Protocol, "protocol", Frame::control(Kind::Hello, &inner)).await;
    assert!(inner.encoded_len() > 40);
    refused_frame(&world, RefuseCode::Protocol, "protocol", proof(&[0; 32], &key(1))).await;
}

#[tokio::test]
async fn frames_that_come_before_the_link_is_open_are_bounded() {
    let world = World::new(|_| ()).await;
    let attack = async {
        let mut stranger = Stranger::connect(&world).await;
        let mut bytes = Vec::new();
        for _ in 0..100 {
            proof(&[0; 32], &key(1)).encode(&mut bytes);
        }
        stranger.send_bytes(&bytes).await;
        stranger.broke("unexpected_frame").await;
    };
    world.attack("unexpected_frame", attack).await;
}

#[tokio::test]
async fn a_refusal_arrives_over_every_carrier() {
    for carrier in CarrierKind::ALL {
        let world = World::new(|_| ()).await;
        let mut device = world.device(1);
        device.ticket = "no ticket at all".into();
        let attack = async {
            let link = device.connect(world.dial(carrier).await);
            assert_eq!(device.refusal().await.0, RefuseCode::TicketInvalid, "over {carrier}");
            link.await.unwrap().unwrap();
        };
        world.attack("ticket_invalid", attack).await;
    }
}

#[tokio::test]
async fn more_links_than_the_gateway_holds_are_told_when_to_come_back() {
    let world = World::new(|config| config.gateway.links_max = 2).await;
    let (first, link) = world.connected(1, CarrierKind::Tls).await;
    let refuse = |seed| {
        let world = &world;
        async move {
            let mut stranger = Stranger::connect(world).await;
            stranger.send(&signed(&hello(world, seed), &key(seed))).await;
            stranger.prove(&key(seed)).await;
            stranger.refusal().await
        }
    };
    let (second, other) = world.connected(2, CarrierKind::Quic).await;
    let refuse = refuse(3).await;
    assert_eq!((refuse.code(), refuse.retry_after_ms), (RefuseCode::Overloaded, 2_000), "{}", refuse.detail);
    assert_eq!(world.refused("overloaded"), 1);
    first.work().await;
    second.work().await;
    first.hang_up(link).await;
    until_welcome(&world).await;
    second.hang_up(other).await;
    world.empty().await;
}

/// The place of a session without a link goes to the next device at once.
async fn until_welcome(world: &World) {
    let mut next = Stranger::connect(world).await;
    next.send(&signed(&hello(world, 4), &key(4))).await;
    next.prove(&key(4)).await;
    next.welcome().await;
}
