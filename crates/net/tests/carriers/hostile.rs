//! Peers that send what they must not: each gets a named error.

use std::{
    future::poll_fn,
    task::{Poll, ready},
};

use futures_util::StreamExt;
use ropeway_core::{
    CarrierKind,
    session::LinkError,
    wire::{FrameError, FrameRef, Kind},
};
use ropeway_net::{carrier::CarrierError, scratch::with_scratch};
use tokio_websockets::Message;

use crate::rig::{ALL, BoxedCarrier, End, Raw, Rig, frame, pattern, send, within};

async fn error_of(rig: &Rig, carrier: CarrierKind, bytes: &[u8]) -> LinkError {
    let (mut raw, server) = rig.connect_raw(carrier).await;
    raw.write(bytes).await;
    let mut server = End::new(server, []);
    server.run(|_| false).await;
    let Some(Err(CarrierError::Link(error))) = server.ended else { panic!("{carrier}: {:?}", server.ended) };
    error
}

#[tokio::test]
async fn garbage_an_unknown_kind_and_an_oversized_frame_are_told_apart() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let garbage = error_of(&rig, carrier, b"GET / HTTP/1.1\r\n\r\n").await;
        assert_eq!(garbage, LinkError::Frame(FrameError::UnknownKind(b'G')), "{carrier}");
        let unknown = error_of(&rig, carrier, &[0x7f, 0, 0, 0]).await;
        assert_eq!(unknown, LinkError::Frame(FrameError::UnknownKind(0x7f)), "{carrier}");
        // The head alone: 64 KiB and one byte.
        let oversized = error_of(&rig, carrier, &[0x05, 0, 0, 0x80, 0x01, 0x00, 0x01]).await;
        assert_eq!(oversized, LinkError::Frame(FrameError::Oversized { length: 65_537, max: 65_536 }), "{carrier}");
    }
}

#[tokio::test]
async fn an_unknown_kind_that_may_be_ignored_is_skipped() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let (mut raw, server) = rig.connect_raw(carrier).await;
        let ping = frame(Kind::Ping, 0, vec![1, 2], false);
        let mut bytes = vec![0x7f, 0x02, 0, 3, 9, 9, 9];
        ping.encode(&mut bytes);
        raw.write(&bytes).await;
        let mut server = End::new(server, []);
        server.run_until(1).await;
        assert_eq!(server.input, [ping], "{carrier}");
    }
}

#[tokio::test]
async fn an_error_of_whoever_takes_the_frames_ends_the_connection() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let (mut raw, mut server) = rig.connect_raw(carrier).await;
        let mut bytes = Vec::new();
        frame(Kind::Ping, 0, vec![1], false).encode(&mut bytes);
        raw.write(&bytes).await;
        let refused = within(poll_fn(|cx| {
            with_scratch(|scratch| {
                let sink = &mut |_: FrameRef<'_>, _: bool| Err(LinkError::Silent);
                loop {
                    if let Err(error) = ready!(server.poll_recv(cx, scratch, sink)) {
                        return Poll::Ready(error);
                    }
                }
            })
        }))
        .await;
        assert!(matches!(refused, CarrierError::Link(LinkError::Silent)), "{carrier}");
    }
}

async fn websocket(rig: &Rig) -> (Raw, End<BoxedCarrier>) {
    let (raw, server) = rig.connect_raw(CarrierKind::Ws).await;
    (raw, End::new(server, []))
}

#[tokio::test]
async fn a_text_message_is_an_error_on_ws() {
    let rig = Rig::new().await;
    let (Raw::Ws(mut socket), mut server) = websocket(&rig).await else { unreachable!() };
    send(&mut socket, Message::text("HELLO")).await.unwrap();
    server.run(|_| false).await;
    assert!(matches!(server.ended, Some(Err(CarrierError::WebSocket { .. }))), "{:?}", server.ended);
}

#[tokio::test]
async fn a_ping_of_the_websocket_is_answered_while_nothing_else_is_said() {
    let rig = Rig::new().await;
    let (Raw::Ws(mut socket), mut server) = websocket(&rig).await else { unreachable!() };
    let driven = tokio::spawn(async move { server.run(|_| false).await });
    send(&mut socket, Message::ping("there?")).await.unwrap();
    let answer = within(socket.next()).await.unwrap().unwrap();
    assert!(answer.is_pong());
    assert_eq!(&answer.as_payload()[..], b"there?");
    driven.abort();
}

#[tokio::test]
async fn a_peer_that_pings_and_never_reads_is_given_up() {
    let rig = Rig::new().await;
    let (Raw::Ws(mut socket), mut server) = websocket(&rig).await else { unreachable!() };
    let flood = tokio::spawn(async move {
        while send(&mut socket, Message::ping(pattern(0, 125))).await.is_ok() {}
        socket
    });
    server.run(|_| false).await;
    // Where the socket's buffers take every answer in time the flood goes on, until they are full.
    assert!(matches!(server.ended, Some(Err(CarrierError::Link(LinkError::Backlog)))), "{:?}", server.ended);
    drop(server);
    drop(flood.await.unwrap());
}

#[tokio::test]
async fn a_message_beyond_its_bound_is_an_error_on_ws() {
    let rig = Rig::new().await;
    let (Raw::Ws(mut socket), mut server) = websocket(&rig).await else { unreachable!() };
    let sending = tokio::spawn(async move {
        // The server is gone before all of it went.
        let _ = send(&mut socket, Message::binary(pattern(0, 200_000))).await;
        socket
    });
    server.run(|_| false).await;
    assert!(matches!(server.ended, Some(Err(CarrierError::WebSocket { .. }))), "{:?}", server.ended);
    drop(server);
    drop(sending.await.unwrap());
}
