//! The gateway leaves, or takes another configuration.

use std::{sync::Arc, time::Duration};

use http::{Method, StatusCode};
use ropeway_core::{
    CarrierKind,
    session::{ClientEvent, Machine},
    wire::message::RefuseCode,
};
use ropeway_gateway::config::{Config, RouteConfig};
use tokio::net::TcpStream;

use crate::{
    admin::call,
    stranger::{Stranger, hello, signed},
    support::{Device, World, in_time, key, until},
    upstream::Gated,
};

async fn draining(device: &Device) -> Duration {
    let event = device.event().await;
    let ClientEvent::Draining { close_after } = event else { panic!("{event:?} instead of a drain") };
    close_after
}

#[tokio::test]
async fn a_drain_lets_requests_finish_and_ends_when_the_clients_have_left() {
    for carrier in CarrierKind::ALL {
        let mut gated = Gated::new().await;
        let world = World::before(gated.address).await;
        let (device, link) = world.connected(1, carrier).await;
        let channel = device.open(Method::POST, "https://up.test/", true);
        gated.arrived.recv().await.unwrap();
        let mut drain = std::pin::pin!(world.gateway.drain());
        let client = async {
            assert_eq!(draining(&device).await, Duration::from_secs(30));
            assert_eq!(call(&world, "GET", "/healthz", "", b"").await, (503, "draining\n".into()));
            gated.release.add_permits(1);
            assert_eq!(device.head(channel).await.unwrap().status, StatusCode::OK);
            assert_eq!(device.body(channel).await.unwrap(), "done");
            device.hang_up(link).await;
        };
        in_time(async { tokio::join!(&mut drain, client) }).await;
        world.empty().await;
        let refused = TcpStream::connect(world.gateway.addresses().tcp).await;
        assert!(refused.is_err(), "nobody listens any more");
        assert!(TcpStream::connect(world.gateway.addresses().admin).await.is_err(), "nor at the admin port");
    }
}

#[tokio::test]
async fn a_drain_ends_in_its_time_whatever_clients_and_services_do() {
    let mut gated = Gated::new().await;
    let world = World::new(|config| {
        config.gateway.drain_timeout = Duration::from_millis(200);
        config.routes.push(RouteConfig::new("up.test", format!("http://{}", gated.address).parse().unwrap()));
    })
    .await;
    let (device, link) = world.connected(1, CarrierKind::Tls).await;
    let channel = device.open(Method::POST, "https://up.test/hangs", true);
    gated.arrived.recv().await.unwrap();
    in_time(world.gateway.drain()).await;
    draining(&device).await;
    assert_eq!(draining(&device).await, Duration::ZERO, "the last word before the end");
    link.await.unwrap().unwrap();
    assert!(device.session.peek(|client| client.mux().is_handed_off(channel)), "it may have run");
    assert_eq!(gated.cancelled.recv().await.unwrap(), "/hangs");
    world.empty().await;
}

#[tokio::test]
async fn a_request_sent_after_the_last_word_was_never_seen() {
    let world = World::new(|config| config.gateway.drain_timeout = Duration::ZERO).await;
    let (device, link) = world.connected(1, CarrierKind::Tls).await;
    device.work().await;
    in_time(world.gateway.drain()).await;
    draining(&device).await;
    draining(&device).await;
    link.await.unwrap().unwrap();
    world.empty().await;
}

#[tokio::test]
async fn a_peer_that_is_just_connecting_is_sent_elsewhere() {
    let world = World::new(|config| config.gateway.drain_timeout = Duration::from_secs(5)).await;
    let mut late = Stranger::connect(&world).await;
    until("it speaks the protocol", || world.links() == 1).await;
    let client = async {
        until("the drain has begun", || std::net::TcpStream::connect(world.gateway.addresses().tcp).is_err()).await;
        late.send(&signed(&hello(&world, 1), &key(1))).await;
        late.prove(&key(1)).await;
        late.refusal().await
    };
    let ((), refuse) = in_time(async { tokio::join!(world.gateway.drain(), client) }).await;
    assert_eq!((refuse.code(), refuse.retry_after_ms), (RefuseCode::Draining, 2_000));
    assert_eq!(world.refused("draining"), 1);
}

#[tokio::test]
async fn a_reload_swaps_routes_under_open_links_and_later_welcomes_name_them() {
    let world = World::new(|config| config.gateway.session_ttl = Duration::from_secs(60)).await;
    let (device, link) = world.connected(1, CarrierKind::Tls).await;
    let route = RouteConfig::new("new.test", "builtin:echo".parse().unwrap());
    let config = Config { routes: vec![route], ..world.config.clone() };
    world.gateway.reload(Arc::new(config)).unwrap();

    let (status, ..) = device.send(Method::POST, "https://new.test/", b"x").await;
    assert_eq!(status, StatusCode::OK);
    let (status, headers, _) = device.send(Method::POST, "https://api.test/", b"").await;
    assert_eq!((status, headers["ropeway-error"].to_str().unwrap()), (StatusCode::NOT_FOUND, "no_route"));
    assert!(device.is_open());

    device.hang_up(link).await;
    let _link = device.connect(world.dial(CarrierKind::Tls).await);
    assert_eq!(device.welcome().await, (true, vec!["new.test".to_owned()]));
    let other = world.device(2);
    let _other = other.connect(world.dial(CarrierKind::Quic).await);
    assert_eq!(other.welcome().await, (false, vec!["new.test".to_owned()]));
}

#[tokio::test]
async fn a_reload_takes_the_live_keys_alone_and_a_bad_one_changes_nothing() {
    let world = World::new(|_| ()).await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    let mut config = world.config.clone();
    config.gateway.name = "other.test".into();
    world.gateway.reload(Arc::new(config)).unwrap();
    let (_second, _link) = world.connected(2, CarrierKind::Tls).await;

    let mut config = world.config.clone();
    let file = "/nonexistent/key.pem".into();
    config.tickets.keys[0].public_key = ropeway_gateway::config::KeySource::File(file);
    config.routes.clear();
    assert!(world.gateway.reload(Arc::new(config)).is_err());
    device.work().await;
    let (_third, _link) = world.connected(3, CarrierKind::Tls).await;
}
