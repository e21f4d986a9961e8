//! The connection as a byte stream, below HTTP and by itself.

use std::convert::Infallible;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ropeway_net::tls::Alpn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::rig::{Rig, pattern};

#[tokio::test]
async fn bytes_of_any_count_come_back_through_the_stream() {
    let rig = Rig::new();
    for count in [1, 1000, 16_385, 5_000_000] {
        let (client, server) = rig.connect(Alpn::Http11).await;
        let (mut reader, mut writer) = tokio::io::split(client);
        let (mut server_reader, mut server_writer) = tokio::io::split(server.into_stream());
        let sent = pattern(count);

        // The halves of the server live in one task each.
        let echo = tokio::spawn(async move {
            let (mut pipe_in, mut pipe_out) = tokio::io::duplex(64 * 1024);
            let inward = tokio::spawn(async move {
                tokio::io::copy(&mut server_reader, &mut pipe_in).await.unwrap();
                server_reader
            });
            let outward = tokio::spawn(async move {
                tokio::io::copy(&mut pipe_out, &mut server_writer).await.unwrap();
                server_writer.shutdown().await.unwrap();
                server_writer
            });
            inward.await.unwrap().unsplit(outward.await.unwrap())
        });
        let write = async {
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let mut back = Vec::new();
        let read = async { reader.read_to_end(&mut back).await.unwrap() };
        tokio::join!(write, read);

        assert!(back == sent, "{count} bytes differ");
        assert_eq!(echo.await.unwrap().buffered_bytes(), 0);
    }
}

#[tokio::test]
async fn a_reader_with_a_tiny_buffer_gets_every_byte() {
    let rig = Rig::new();
    let (mut client, server) = rig.connect(Alpn::Http11).await;
    let mut server = server.into_stream();
    client.write_all(&pattern(40_000)).await.unwrap();
    client.shutdown().await.unwrap();

    let mut received = Vec::new();
    let mut buf = [0; 3];
    loop {
        let count = server.read(&mut buf).await.unwrap();
        if count == 0 {
            break;
        }
        received.extend_from_slice(&buf[..count]);
        assert!(server.buffered_bytes() <= 64 * 1024);
    }

    assert!(received == pattern(40_000), "bytes differ");
    assert_eq!(server.buffered_bytes(), 0);
}

#[tokio::test]
async fn a_stream_that_is_cut_is_not_taken_for_complete() {
    let rig = Rig::new();
    let (mut client, server) = rig.connect(Alpn::Http11).await;
    let mut server = server.into_stream();
    client.write_all(b"half a bo").await.unwrap();
    client.into_inner().0.shutdown().await.unwrap();

    let mut received = Vec::new();
    let error = server.read_to_end(&mut received).await.unwrap_err();

    assert_eq!(received, b"half a bo");
    assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
}

#[tokio::test]
async fn slices_written_together_arrive_in_order() {
    let rig = Rig::new();
    let (mut client, server) = rig.connect(Alpn::Http11).await;
    let mut server = server.into_stream();
    let (head, body) = (b"head".to_vec(), pattern(200_000));

    let write = async {
        let mut rest = [head.clone(), body.clone()].concat();
        let slices = [std::io::IoSlice::new(&head), std::io::IoSlice::new(&[]), std::io::IoSlice::new(&body)];
        let count = server.write_vectored(&slices).await.unwrap();
        assert!(count > head.len());
        rest.drain(..count);
        server.write_all(&rest).await.unwrap();
        server.flush().await.unwrap();
    };
    let mut back = vec![0; 200_004];
    let ((), read) = tokio::join!(write, client.read_exact(&mut back));
    read.unwrap();

    assert!(back == [head, body].concat(), "bytes differ");
}

/// Answers with the size and the first bytes of the body that was sent.
async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.unwrap().to_bytes();
    Ok(Response::new(Full::new(Bytes::from(format!("{} {:?}", body.len(), &body[..3])))))
}

#[tokio::test]
async fn hyper_serves_http_1_over_it() {
    let rig = Rig::new();
    let (client, server) = rig.connect(Alpn::Http11).await;
    let serving = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(server.into_stream()), service_fn(answer));
    let serving = tokio::spawn(serving);

    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post("/").header("host", "gateway.test").body(Full::new(Bytes::from(pattern(300_000))));
    let response = sender.send_request(request.unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();

    assert_eq!(body, "300000 [0, 1, 2]");
    drop(sender);
    connection.await.unwrap().unwrap();
    serving.await.unwrap().unwrap();
}

#[tokio::test]
async fn hyper_serves_http_2_over_it() {
    let rig = Rig::new();
    let (client, server) = rig.connect(Alpn::H2).await;
    let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .serve_connection(TokioIo::new(server.into_stream()), service_fn(answer));
    tokio::spawn(serving);

    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(client)).await.unwrap();
    tokio::spawn(connection);
    let ask = |count: usize| {
        let mut sender = sender.clone();
        async move {
            let request = Request::post("https://gateway.test/").body(Full::new(Bytes::from(pattern(count))));
            let response = sender.send_request(request.unwrap()).await.unwrap();
            response.into_body().collect().await.unwrap().to_bytes()
        }
    };
    let (large, small) = tokio::join!(ask(300_000), ask(10));

    assert_eq!(large, "300000 [0, 1, 2]");
    assert_eq!(small, "10 [0, 1, 2]");
}
