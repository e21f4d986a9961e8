//! Middleboxes that break what they do not know: what has the shape of HTTP/1.0 gets through.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use ropeway::{
    pipe::Pipe,
    plain::{Plain, PlainTarget, VerifyingKey},
    way::Shape,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{World, body, head, post, read_answer, read_head, text};

/// An old proxy: it speaks HTTP/1.0, answers one request a connection, refuses chunks, and cuts chunked answers off.
async fn old_proxy(gateway: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            tokio::spawn(pass(client, gateway));
        }
    });
    address
}

async fn pass(mut client: TcpStream, gateway: SocketAddr) {
    let raw = read_head(&mut client).await;
    let asked = raw.to_lowercase();
    if asked.contains("transfer-encoding") || !asked.contains(" http/1.0\r\n") {
        client.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n").await.unwrap();
        return;
    }
    let length = asked.split_once("content-length: ").and_then(|(_, rest)| rest.split("\r\n").next()?.parse().ok());
    let mut content = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut content).await.unwrap();
    let mut server = TcpStream::connect(gateway).await.unwrap();
    // One header of its own, and the others in another spelling.
    let passed = raw.replacen("\r\n\r\n", "\r\nVia: 1.0 box\r\n\r\n", 1).replacen("content-type: ", "Content-Type:", 1);
    server.write_all(&[passed.as_bytes(), &content].concat()).await.unwrap();
    let answer = read_answer(&mut server).await;
    let is_chunked = head(&answer).contains("transfer-encoding: chunked");
    let passed = if is_chunked { &answer[..answer.len() - body(&answer).len() + 1] } else { &answer[..] };
    client.write_all(passed).await.unwrap();
}

#[tokio::test]
async fn both_ways_pass_an_old_proxy_in_the_shape_of_http_1_0() {
    let world = World::new(|config| config.routes[0].plain_http = true).await;
    let address = old_proxy(world.address()).await;
    let mut pipe = world.pipe();
    pipe.address = address;
    let answer = Pipe::default().send(post("https://api.test/?9000", "pear"), &pipe, Shape::Http10, 0).await.unwrap();
    assert!(text(answer).await.starts_with("POST /?9000 pear\n"));
    Pipe::default().send(post("https://api.test/", "pear"), &pipe, Shape::Http11, 0).await.unwrap_err();
    let keys = world.gateway.signing_keys().into_iter().map(|key| VerifyingKey::new(&key.id, &key.public).unwrap());
    let target = PlainTarget { address, keys: keys.collect() };
    let answer = Plain::default().send(post("https://api.test/?9000", "pear"), &target, Shape::Http10).await.unwrap();
    assert!(text(answer).await.starts_with("POST /?9000 pear\n"));
}
