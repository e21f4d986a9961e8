//! Peers that are slow, silent, or want something else than a link.

use std::time::Duration;

use ropeway_core::wire::{ALPN, Kind, message::RefuseCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    stranger::{Stranger, hello, signed, tls},
    support::{World, in_time, key},
};

/// A gateway that waits for HELLO as long as others wait between two bytes.
async fn impatient() -> World {
    World::new(|config| config.gateway.hello_timeout = Duration::from_millis(300)).await
}

/// Writes a byte and waits for more than the gateway's patience allows, again and again, until it is cut off.
async fn trickle(stream: &mut (impl AsyncReadExt + AsyncWriteExt + Unpin), bytes: &[u8]) {
    for byte in bytes {
        if stream.write_all(&[*byte]).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        let mut answer = [0; 4_096];
        match tokio::time::timeout(Duration::from_millis(60), stream.read(&mut answer)).await {
            Err(_) => {}
            Ok(Ok(0) | Err(_)) => return,
            Ok(Ok(_)) => break,
        }
    }
    let _ = in_time(stream.read_to_end(&mut Vec::new())).await;
}

#[tokio::test]
async fn a_peer_that_sends_nothing_is_cut_off() {
    let world = impatient().await;
    let attack = async {
        let mut tcp = TcpStream::connect(world.gateway.addresses().tcp).await.unwrap();
        let _ = in_time(tcp.read_to_end(&mut Vec::new())).await;
    };
    world.attack("first_byte_timeout", attack).await;
}

#[tokio::test]
async fn a_peer_that_sends_its_tls_handshake_byte_by_byte_is_cut_off() {
    let world = impatient().await;
    let attack = async {
        let mut tcp = TcpStream::connect(world.gateway.addresses().tcp).await.unwrap();
        trickle(&mut tcp, &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 1, 2, 3, 4, 5, 6, 7]).await;
    };
    world.attack("tls_handshake_timeout", attack).await;
}

#[tokio::test]
async fn a_peer_that_is_silent_or_slow_after_the_tls_handshake_is_refused_by_name() {
    let world = impatient().await;
    let mut frame = Vec::new();
    signed(&hello(&world, 1), &key(1)).encode(&mut frame);
    for sent in [0, 3, 100] {
        let attack = async {
            let mut stranger = Stranger::connect(&world).await;
            for byte in &frame[..sent] {
                stranger.send_bytes(&[*byte]).await;
            }
            stranger.refusal().await
        };
        assert_eq!(world.attack("hello_timeout", attack).await.code(), RefuseCode::HelloTimeout);
    }
    let attack = async {
        let mut stranger = Stranger::connect(&world).await;
        trickle(&mut stranger.stream, &frame).await;
    };
    world.attack("hello_timeout", attack).await;
}

#[tokio::test]
async fn a_peer_that_never_proves_its_hello_is_refused_by_name() {
    let world = impatient().await;
    let attack = async {
        let mut stranger = Stranger::connect(&world).await;
        stranger.send(&signed(&hello(&world, 1), &key(1))).await;
        stranger.refusal().await
    };
    assert_eq!(world.attack("hello_timeout", attack).await.code(), RefuseCode::HelloTimeout);
}

#[tokio::test]
async fn a_link_that_is_silent_in_the_middle_of_a_frame_is_given_up() {
    let silence = Duration::from_millis(400);
    let world = World::new(|config| config.gateway.silence_timeout = silence).await;
    let attack = async {
        let mut stranger = Stranger::admitted(&world, 1).await;
        let frame = [Kind::Ping as u8, 0, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];
        trickle(&mut stranger.stream, &frame).await;
    };
    world.attack("silent", attack).await;
}

#[tokio::test]
async fn tls_without_an_application_protocol_is_served_as_http() {
    let world = World::new(|_| ()).await;
    let mut stream = tls(&world, &[]).await.unwrap();
    stream.write_all(b"GET /x HTTP/1.1\r\nhost: api.test\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let _ = in_time(stream.read_to_string(&mut answer)).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert_eq!(world.links(), 0);
}

#[tokio::test]
async fn tls_with_foreign_application_protocols_only_is_refused_in_the_handshake() {
    let world = World::new(|_| ()).await;
    let attack = async { tls(&world, &[b"ropeway/0", b"smtp"]).await.map(drop) };
    let error = world.attack("no_common_protocol", attack).await.unwrap_err();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    assert!(tls(&world, &[b"smtp", ALPN]).await.is_ok(), "one in common is enough");
}

#[tokio::test]
async fn plain_http_is_answered_with_the_reason_why_not() {
    let world = World::new(|_| ()).await;
    let upgrade = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\nsec-websocket-protocol: ropeway.v1\r\n";
    for headers in ["connection: close\r\n", upgrade] {
        let mut tcp = TcpStream::connect(world.gateway.addresses().tcp).await.unwrap();
        let request = format!("GET /.ropeway/link HTTP/1.1\r\nhost: api.test\r\n{headers}\r\n");
        tcp.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; 4_096];
        let read = in_time(tcp.read(&mut answer)).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..read]);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("ropeway-error: plain_http_refused"), "{answer}");
    }
    assert_eq!(world.failed("plain_http_refused"), 2);
}

#[tokio::test]
async fn bytes_that_are_neither_tls_nor_http_are_answered_and_counted() {
    let world = World::new(|_| ()).await;
    let attack = async {
        let mut tcp = TcpStream::connect(world.gateway.addresses().tcp).await.unwrap();
        tcp.write_all(&[0, 1, 2, 3, b'\r', b'\n', b'\r', b'\n']).await.unwrap();
        let mut answer = Vec::new();
        let _ = in_time(tcp.read_to_end(&mut answer)).await;
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    };
    world.attack("http_malformed", attack).await;
}

#[tokio::test]
async fn a_tls_handshake_of_garbage_is_refused_and_counted() {
    let world = World::new(|_| ()).await;
    let attack = async {
        let mut tcp = TcpStream::connect(world.gateway.addresses().tcp).await.unwrap();
        tcp.write_all(&[0x16, 3, 1, 0, 4, 1, 0, 0, 0]).await.unwrap();
        let _ = in_time(tcp.read_to_end(&mut Vec::new())).await;
    };
    world.attack("handshake", attack).await;
}
