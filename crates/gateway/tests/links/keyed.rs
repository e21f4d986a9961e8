//! Requests with an `Idempotency-Key` over links, and beside them.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use ropeway_core::{
    CarrierKind,
    session::{Client, Machine},
    wire::message::ResetCode,
};
use ropeway_net::dial::client_config;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    support::{Device, World, in_time},
    upstream::Gated,
};

const SECRET: &str = "0123456789abcdef";

fn keyed() -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert("idempotency-key", HeaderValue::from_static("\"k\""));
    headers.insert("ropeway-key-scope", HeaderValue::from_static(SECRET));
    headers
}

fn open(device: &Device) -> u64 {
    device.open_with(Method::POST, "https://up.test/pay", keyed(), true)
}

async fn answer(device: &Device, channel: u64) -> (StatusCode, bool, Bytes) {
    let head = device.head(channel).await.unwrap();
    (head.status, head.headers.contains_key("ropeway-replayed"), device.body(channel).await.unwrap())
}

/// Sends the same request to the front door over TLS; returns what came until the end.
async fn short_link(world: &World) -> String {
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client_config(&world.trust, &[b"http/1.1"]).unwrap()));
    let socket = TcpStream::connect(world.address(CarrierKind::Tls)).await.unwrap();
    let mut stream = connector.connect("gw.test".try_into().unwrap(), socket).await.unwrap();
    let request = format!(
        "POST /pay HTTP/1.1\r\nhost: up.test\r\nidempotency-key: k\r\nropeway-key-scope: {SECRET}\r\n\
         content-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

#[tokio::test]
async fn a_link_and_a_short_link_with_the_same_key_run_once() {
    let mut gated = Gated::new().await;
    let world = World::before(gated.address).await;
    let (device, _link) = world.connected(1, CarrierKind::Quic).await;
    let channel = open(&device);
    gated.arrived.recv().await.unwrap();
    let (from_link, from_door, ()) = tokio::join!(answer(&device, channel), in_time(short_link(&world)), async {
        gated.release.add_permits(1);
    });
    assert_eq!(from_link, (StatusCode::OK, false, "done".into()));
    assert!(from_door.starts_with("HTTP/1.1 200 OK\r\n") && from_door.ends_with("done"), "{from_door}");
    assert!(from_door.contains("ropeway-replayed: 1\r\n"), "{from_door}");
    assert!(gated.arrived.try_recv().is_err(), "it ran twice");
}

#[tokio::test]
async fn a_request_given_up_over_one_link_is_answered_over_another_of_the_same_user() {
    let mut gated = Gated::new().await;
    let world = World::before(gated.address).await;
    let (first, _link) = world.connected(1, CarrierKind::Tls).await;
    let channel = open(&first);
    gated.arrived.recv().await.unwrap();
    first.session.with(|client: &mut Client, _| client.mux().reset(channel, ResetCode::Cancelled, ""));
    let (second, _other) = world.connected(2, CarrierKind::Quic).await;
    let channel = open(&second);
    gated.release.add_permits(1);
    assert_eq!(answer(&second, channel).await, (StatusCode::OK, true, "done".into()));
    assert!(gated.cancelled.try_recv().is_err());

    let stranger = world.device_of("eve", 3);
    let _theirs = stranger.connect(world.dial(CarrierKind::Tls).await);
    stranger.welcome().await;
    let (status, replayed, _) = answer(&stranger, open(&stranger)).await;
    assert_eq!((status, replayed), (StatusCode::UNPROCESSABLE_ENTITY, false));
}

#[tokio::test]
async fn the_mark_of_an_unexecuted_request_comes_over_a_link_too() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let world = World::before(gone).await;
    let (device, _link) = world.connected(1, CarrierKind::Tls).await;
    for headers in [HeaderMap::new(), keyed()] {
        let head = device.head(device.open_with(Method::POST, "https://up.test/", headers, true)).await.unwrap();
        assert_eq!(
            (head.status, &head.headers["ropeway-not-executed"]),
            (StatusCode::BAD_GATEWAY, &HeaderValue::from_static("1"))
        );
    }
}
