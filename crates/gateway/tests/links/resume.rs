//! Sessions that outlive their links.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use http::{Method, StatusCode};
use prost::Message as _;
use ropeway_core::{
    CarrierKind,
    session::{Closed, Machine},
    wire::{
        Flags,
        message::{Hello, RefuseCode, Settlement, Unanswered},
    },
};
use ropeway_gateway::config::{Config, RouteConfig};

use crate::{
    stranger::{Stranger, hello, signed},
    support::{World, key},
    upstream::Gated,
};

/// A gateway before `gated` that keeps sessions for as long as a test lasts.
async fn patient(gated: &Gated) -> World {
    World::new(|config| keep(config, gated)).await
}

fn keep(config: &mut Config, gated: &Gated) {
    config.gateway.session_ttl = Duration::from_secs(60);
    config.routes.push(RouteConfig::new("up.test", format!("http://{}", gated.address).parse().unwrap()));
}

#[tokio::test]
async fn a_request_goes_on_over_another_carrier_and_runs_once() {
    let mut gated = Gated::new().await;
    let world = patient(&gated).await;
    for (first, second) in [(CarrierKind::Quic, CarrierKind::Ws), (CarrierKind::Ws, CarrierKind::Tls)] {
        let (device, link) = world.connected(1, first).await;
        let channel = device.open(Method::POST, "https://up.test/once", true);
        gated.arrived.recv().await.unwrap();
        device.hang_up(link).await;
        crate::support::until("the link ends", || world.links() == 0).await;
        gated.release.add_permits(1);
        let link = device.connect(world.dial(second).await);
        assert!(device.welcome().await.0, "from {first} to {second}");
        assert_eq!(device.head(channel).await.unwrap().status, StatusCode::OK);
        assert_eq!(device.body(channel).await.unwrap(), "done");
        assert!(gated.arrived.try_recv().is_err(), "it ran once");
        device.hang_up(link).await;
    }
}

#[tokio::test]
async fn a_link_that_takes_over_while_the_old_one_lives_is_woken_by_what_comes_later() {
    let mut gated = Gated::new().await;
    let world = patient(&gated).await;
    let (device, old) = world.connected(1, CarrierKind::Tls).await;
    let channel = device.open(Method::POST, "https://up.test/", true);
    gated.arrived.recv().await.unwrap();
    let _new = device.connect(world.dial(CarrierKind::Ws).await);
    assert!(device.welcome().await.0);
    old.await.unwrap().unwrap();
    crate::support::until("the old link ends", || world.links() == 1).await;
    gated.release.add_permits(1);
    assert_eq!(device.head(channel).await.unwrap().status, StatusCode::OK);
    assert_eq!(device.body(channel).await.unwrap(), "done");
    assert!(gated.arrived.try_recv().is_err(), "it ran once");
}

#[tokio::test]
async fn a_running_request_that_is_not_asked_about_is_cancelled_at_the_upstream() {
    let mut gated = Gated::new().await;
    let world = patient(&gated).await;
    let mut first = Stranger::connect(&world).await;
    first.send(&signed(&hello(&world, 1), &key(1))).await;
    first.prove(&key(1)).await;
    let cookie = first.welcome().await.resume;
    first.request(1, "https://up.test/forgotten", Flags::END).await;
    assert_eq!(gated.arrived.recv().await.unwrap(), "/forgotten");
    drop(first);
    let resumed = resume(&world, cookie, Vec::new()).await;
    assert!(resumed.resumed);
    assert_eq!(gated.cancelled.recv().await.unwrap(), "/forgotten");
}

#[tokio::test]
async fn each_unanswered_request_is_settled_in_welcome() {
    let mut gated = Gated::new().await;
    let world = patient(&gated).await;
    let mut first = Stranger::connect(&world).await;
    first.send(&signed(&hello(&world, 1), &key(1))).await;
    first.prove(&key(1)).await;
    let cookie = first.welcome().await.resume;
    first.request(1, "https://up.test/running", Flags::END).await;
    gated.arrived.recv().await.unwrap();
    first.request(2, "https://api.test/done", Flags::END).await;
    first.frame_of(ropeway_core::wire::Kind::Response).await;
    drop(first);
    let asked = [1, 2, 3].map(|channel| Unanswered { channel, body_limit: 1_000, ..Unanswered::default() });
    let welcome = resume(&world, cookie, asked.to_vec()).await;
    let states: Vec<Settlement> = welcome.settled.iter().map(|settled| settled.state()).collect();
    assert_eq!(states, [Settlement::Running, Settlement::Done, Settlement::NeverSeen]);

    let stranger = resume(&world, bytes::Bytes::new(), asked.to_vec()).await;
    assert!(!stranger.resumed);
    assert!(stranger.settled.iter().all(|settled| settled.state() == Settlement::Unknown));
}

async fn resume(
    world: &World,
    cookie: bytes::Bytes,
    unanswered: Vec<Unanswered>,
) -> ropeway_core::wire::message::Welcome {
    let mut next = Stranger::connect(world).await;
    next.send(&signed(&Hello { resume: cookie, unanswered, ..hello(world, 1) }, &key(1))).await;
    next.prove(&key(1)).await;
    next.welcome().await
}

#[tokio::test]
async fn a_cookie_resumes_for_its_own_device_and_two_generations_only() {
    let gated = Gated::new().await;
    let world = patient(&gated).await;
    let mut first = Stranger::connect(&world).await;
    first.send(&signed(&hello(&world, 1), &key(1))).await;
    first.prove(&key(1)).await;
    let oldest = first.welcome().await.resume;
    let previous = resume(&world, oldest.clone(), Vec::new()).await.resume;
    let current = resume(&world, previous.clone(), Vec::new()).await.resume;
    assert_ne!(previous, current);

    // Another key, another user with the same key, and a generation that is too old.
    let thief = Hello { resume: current.clone(), ..hello(&world, 2) };
    refused(&world, &thief, 2).await;
    let other = Hello { resume: current.clone(), ticket: world.ticket("bob", "dev", &key(1)), ..hello(&world, 1) };
    refused(&world, &other, 1).await;
    let old = Hello { resume: oldest, ..hello(&world, 1) };
    refused(&world, &old, 1).await;
    assert_eq!(world.refused("resume_refused"), 3);

    assert!(resume(&world, previous, Vec::new()).await.resumed, "its WELCOME may have been lost");
}

async fn refused(world: &World, hello: &Hello, seed: u8) {
    assert!(hello.encoded_len() > 0);
    let mut stranger = Stranger::connect(world).await;
    stranger.send(&signed(hello, &key(seed))).await;
    stranger.prove(&key(seed)).await;
    let refuse = stranger.refusal().await;
    assert_eq!(refuse.code(), RefuseCode::ResumeRefused, "{}", refuse.detail);
}

#[tokio::test]
async fn a_session_whose_time_is_over_is_new_and_its_requests_are_cancelled() {
    let mut gated = Gated::new().await;
    let world = World::new(|config| {
        keep(config, &gated);
        config.gateway.session_ttl = Duration::from_millis(100);
    })
    .await;
    let (device, link) = world.connected(1, CarrierKind::Tls).await;
    let channel = device.open(Method::POST, "https://up.test/late", true);
    gated.arrived.recv().await.unwrap();
    device.hang_up(link).await;
    assert_eq!(gated.cancelled.recv().await.unwrap(), "/late");
    world.empty().await;
    let _link = device.connect(world.dial(CarrierKind::Tls).await);
    let mut events = vec![device.event().await];
    if !matches!(events[0], ropeway_core::session::ClientEvent::Welcome { .. }) {
        events.push(device.event().await);
    }
    assert_eq!(device.head(channel).await.map(drop), Err(Closed::Unknown));
    assert_eq!(device.session.peek(|client| client.mux().running()), 0);
    device.work().await;
}
