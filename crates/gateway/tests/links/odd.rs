//! Peers on the WebSocket and on the UDP port that do not know what they are for.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use futures_util::{SinkExt, StreamExt};
use http::{HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};
use ropeway_core::{
    CarrierKind,
    wire::{
        Decoder, Frame, FrameError, Kind, SUBPROTOCOL,
        frame::PAYLOAD_BYTES_MAX,
        message::{Refuse, RefuseCode},
    },
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpStream, UdpSocket},
};
use tokio_rustls::client::TlsStream;
use tokio_websockets::{ClientBuilder, Message, WebSocketStream};

use crate::{
    stranger::tls,
    support::{World, in_time},
};

type Socket = WebSocketStream<TlsStream<TcpStream>>;

async fn websocket(world: &World) -> Socket {
    let stream = tls(world, &[b"http/1.1"]).await.unwrap();
    let builder = ClientBuilder::new().uri("wss://gw.test/.ropeway/link").unwrap();
    let protocol = HeaderValue::from_static(SUBPROTOCOL);
    builder.add_header(SEC_WEBSOCKET_PROTOCOL, protocol).unwrap().connect_on(stream).await.unwrap().0
}

/// Reads the frames of whole messages until the gateway closes.
async fn frames(socket: &mut Socket) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some(Ok(message)) = in_time(socket.next()).await {
        if message.is_binary() {
            let fed: Result<(), FrameError> =
                Decoder::new(PAYLOAD_BYTES_MAX).feed(message.as_payload(), &mut |frame| {
                    frames.push(frame.to_owned());
                    Ok(())
                });
            fed.unwrap();
        }
    }
    frames
}

async fn breaks(world: &World, reason: &'static str, bytes: &'static [u8]) {
    let attack = async {
        let mut socket = websocket(world).await;
        socket.send(Message::binary(bytes)).await.unwrap();
        let frames = frames(&mut socket).await;
        let kinds: Vec<Kind> = frames.iter().map(|frame| frame.kind).collect();
        assert_eq!(kinds, [Kind::Proof, Kind::Refuse], "the gateway asks, and then refuses");
        let refuse: Refuse = frames[1].as_ref().message().unwrap();
        assert_eq!(refuse.code(), RefuseCode::Protocol);
        assert!(refuse.detail.starts_with(reason), "{}", refuse.detail);
    };
    world.attack(reason, attack).await;
}

#[tokio::test]
async fn bad_frames_over_a_websocket_are_named() {
    let world = World::new(|_| ()).await;
    breaks(&world, "unknown_kind", &[0xec; 30]).await;
    breaks(&world, "truncated_frame", &[Kind::Hello as u8, 0, 0, 20, 1, 2, 3]).await;
    breaks(&world, "oversized_frame", &[Kind::Hello as u8, 0, 0, 0x80, 0x01, 0x00, 0x01]).await;
}

#[tokio::test]
async fn text_over_a_websocket_ends_the_link() {
    let world = World::new(|_| ()).await;
    let attack = async {
        let mut socket = websocket(&world).await;
        socket.send(Message::text("hello?")).await.unwrap();
        assert_eq!(frames(&mut socket).await.len(), 1, "nothing but the challenge");
    };
    world.attack("websocket_broken", attack).await;
}

#[tokio::test]
async fn a_websocket_handshake_that_makes_no_sense_is_answered_and_counted() {
    let world = World::new(|_| ()).await;
    for (version, status) in [("8", 426), ("13", 400)] {
        let attack = async {
            let mut stream = tls(&world, &[b"http/1.1"]).await.unwrap();
            let request = format!(
                "GET /.ropeway/link HTTP/1.1\r\nhost: gw.test\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-version: {version}\r\nsec-websocket-key: short\r\n\
                 sec-websocket-protocol: {SUBPROTOCOL}\r\n\r\n"
            );
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = vec![0; 1_024];
            let read = in_time(stream.read(&mut answer)).await.unwrap();
            let answer = String::from_utf8_lossy(&answer[..read]);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        };
        world.attack("websocket_handshake", attack).await;
    }
}

#[tokio::test]
async fn garbage_datagrams_disturb_no_quic_link() {
    let world = World::new(|_| ()).await;
    let (device, link) = world.connected(1, CarrierKind::Quic).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for length in [1, 20, 1_200, 1_400] {
        for first in [0x00, 0x40, 0xc0, 0xff] {
            let mut datagram = vec![0xa5; length];
            datagram[0] = first;
            socket.send_to(&datagram, world.gateway.addresses().udp).await.unwrap();
        }
        device.work().await;
    }
    device.hang_up(link).await;
    world.empty().await;
}
