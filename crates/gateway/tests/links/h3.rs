//! HTTP/3 on the port of the QUIC links.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{future::poll_fn, sync::Arc, time::Duration};

use bytes::{Buf, Bytes};
use futures_util::FutureExt as _;
use h3::{
    client::{RequestStream, SendRequest},
    error::{Code, StreamError},
    quic::BidiStream,
};
use http::{HeaderMap, Request, Response, StatusCode, header};
use noq::{Endpoint, EndpointConfig, crypto::rustls::QuicClientConfig};
use ropeway_core::CarrierKind;
use ropeway_net::{
    dial::client_config,
    h3::{H3Connection, H3Opener, H3Stream},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    task::JoinHandle,
};

use crate::support::{World, in_time, until};

/// A client whose connection is open.
struct Browser {
    requests: SendRequest<H3Opener, Bytes>,
    quic: noq::Connection,
    _endpoint: Endpoint,
    driver: JoinHandle<h3::error::ConnectionError>,
}

type Stream = RequestStream<H3Stream<Bytes>, Bytes>;

impl Browser {
    async fn connect(world: &World) -> Self {
        let tls = client_config(&world.trust, &[b"h3"]).unwrap();
        let mut config = noq::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).unwrap()));
        let mut transport = noq::TransportConfig::default();
        transport.max_idle_timeout(Some(Duration::from_secs(60).try_into().unwrap()));
        config.transport_config(Arc::new(transport));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, Arc::new(noq::TokioRuntime)).unwrap();
        let address = world.address(CarrierKind::Quic);
        let quic = in_time(endpoint.connect_with(config, address, "gw.test").unwrap()).await.unwrap();
        let adapter = H3Connection::client(quic.clone(), 64 * 1024);
        let (mut connection, requests) =
            h3::client::builder().max_field_section_size(64 * 1024).build(adapter).await.unwrap();
        let driver = tokio::spawn(async move { poll_fn(|cx| connection.poll_close(cx)).await });
        Self { requests, quic, _endpoint: endpoint, driver }
    }

    async fn send(&mut self, request: Request<()>) -> Stream {
        in_time(self.requests.send_request(request)).await.unwrap()
    }

    async fn get(&mut self, url: &str) -> (Response<()>, Vec<u8>) {
        let mut stream = self.send(Request::get(url).body(()).unwrap()).await;
        stream.finish().await.unwrap();
        let response = in_time(stream.recv_response()).await.unwrap();
        let body = in_time(read(&mut stream)).await.unwrap();
        (response, body)
    }
}

async fn read<S: BidiStream<Bytes>>(stream: &mut RequestStream<S, Bytes>) -> Result<Vec<u8>, StreamError> {
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await? {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(body)
}

fn post(url: &str) -> Request<()> {
    Request::post(url).body(()).unwrap()
}

#[tokio::test]
async fn one_port_serves_links_and_http3() {
    let world = World::new(|_| ()).await;
    let (device, link) = world.connected(1, CarrierKind::Quic).await;
    let mut browser = Browser::connect(&world).await;
    let (response, _) = browser.get("https://api.test/hello").await;
    assert_eq!((response.status(), response.headers().get(header::ALT_SVC)), (StatusCode::OK, None));
    device.work().await;
    let metrics = world.gateway.metrics();
    assert_eq!((metrics.http_connections("h3").value(), metrics.http_connections_open("h3").value()), (1, 1));
    browser.quic.close(0x100u32.into(), b"");
    until("the connection is gone", || metrics.http_connections_open("h3").value() == 0).await;
    device.hang_up(link).await;
    world.empty().await;
}

#[tokio::test]
async fn bodies_stream_both_ways_at_once() {
    let world = World::new(|_| ()).await;
    let mut browser = Browser::connect(&world).await;
    let stream = browser.send(post("https://api.test/echo")).await;
    let (mut send, mut recv) = stream.split();
    let sent: Vec<u8> = (0..3_000_000u32).map(|number| number.to_le_bytes()[0]).collect();
    let upload = async {
        for piece in sent.chunks(50_000) {
            send.send_data(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        send.finish().await.unwrap();
    };
    let download = async {
        let response = recv.recv_response().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let mut body = Vec::new();
        while let Some(mut data) = recv.recv_data().await.unwrap() {
            body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
        }
        body
    };
    let ((), echoed) = in_time(async { tokio::join!(upload, download) }).await;
    assert!(echoed == sent, "{} bytes came back", echoed.len());
}

#[tokio::test]
async fn answers_over_tcp_say_where_http3_is_served_and_can_be_told_not_to() {
    for (told, change) in
        [(true, (|_| ()) as fn(&mut ropeway_gateway::config::Config)), (false, |config| config.gateway.alt_svc = false)]
    {
        let world = World::new(change).await;
        let head = over_tls(&world, "GET /a HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n\r\n").await;
        let port = world.address(CarrierKind::Quic).port();
        assert_eq!(head.contains(&format!("alt-svc: h3=\":{port}\"; ma=86400\r\n")), told, "{head}");
    }
}

/// Sends bytes over TLS and reads the answer to its end.
async fn over_tls(world: &World, request: &str) -> String {
    let config = client_config(&world.trust, &[b"http/1.1"]).unwrap();
    let tcp = tokio::net::TcpStream::connect(world.address(CarrierKind::Tls)).await.unwrap();
    let name = "gw.test".try_into().unwrap();
    let mut tls = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, tcp).await.unwrap();
    tls.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    in_time(tls.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn trailers_pass_both_ways_and_a_get_is_told_to_have_no_body() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = World::before(listener.local_addr().unwrap()).await;
    let upstream = tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut seen = String::new();
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n2\r\nhi\r\n0\r\nx-sum: 7\r\n\r\n",
        ] {
            let from = seen.len();
            while !(seen[from..].ends_with("\r\n\r\n")
                && (!seen[from..].contains("chunked") || seen[from..].contains("\r\n0\r\n")))
            {
                seen.push(char::from(tcp.read_u8().await.unwrap()));
            }
            tcp.write_all(answer.as_bytes()).await.unwrap();
        }
        seen
    });
    let mut browser = Browser::connect(&world).await;
    let (_, body) = browser.get("https://up.test/a").await;
    assert_eq!(body, b"ok");
    let mut request = post("https://up.test/b");
    request.headers_mut().insert(header::TE, "trailers".parse().unwrap());
    request.headers_mut().insert(header::TRAILER, "x-check".parse().unwrap());
    let mut stream = browser.send(request).await;
    stream.send_data(Bytes::from_static(b"body")).await.unwrap();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-check", "9".parse().unwrap());
    stream.send_trailers(trailers).await.unwrap();
    stream.finish().await.unwrap();
    assert_eq!(in_time(stream.recv_response()).await.unwrap().status(), StatusCode::OK);
    assert_eq!(in_time(read(&mut stream)).await.unwrap(), b"hi");
    let trailers = in_time(stream.recv_trailers()).await.unwrap().unwrap();
    assert_eq!(trailers.get("x-sum").unwrap(), "7");
    let seen = in_time(upstream).await.unwrap();
    let get = seen.split("\r\n\r\n").next().unwrap();
    assert!(!get.contains("chunked") && !get.contains("content-length"), "{get}");
    assert!(seen.contains("x-check: 9"), "{seen}");
}

#[tokio::test]
async fn a_body_that_is_not_as_long_as_it_says_fails_and_never_passes_for_whole() {
    for (declared, sent) in [("5", &b"123"[..]), ("2", b"123")] {
        let world = World::new(|_| ()).await;
        let mut browser = Browser::connect(&world).await;
        let mut request = post("https://api.test/echo");
        request.headers_mut().insert(header::CONTENT_LENGTH, declared.parse().unwrap());
        let mut stream = browser.send(request).await;
        stream.send_data(Bytes::from_static(sent)).await.unwrap();
        stream.finish().await.unwrap();
        let whole = async {
            let response = stream.recv_response().await?;
            read(&mut stream).await.map(|body| (response.status(), body))
        };
        match in_time(whole).await {
            Ok((status, body)) => assert!(status.is_client_error(), "{status} {body:?}"),
            Err(error) => assert!(!error.is_h3_no_error(), "{error}"),
        }
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_reset() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = World::before(listener.local_addr().unwrap()).await;
    tokio::spawn(async move {
        let (mut tcp, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        let _ = tcp.read(&mut request).await.unwrap();
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\npart").await.unwrap();
    });
    let mut browser = Browser::connect(&world).await;
    let mut stream = browser.send(Request::get("https://up.test/").body(()).unwrap()).await;
    stream.finish().await.unwrap();
    // The reset may overtake the head.
    let whole = async {
        stream.recv_response().await?;
        read(&mut stream).await
    };
    let error = in_time(whole).await.unwrap_err();
    assert!(matches!(error, StreamError::RemoteTerminate { code: Code::H3_INTERNAL_ERROR, .. }), "{error}");
}

#[tokio::test]
async fn a_client_that_cancels_frees_its_upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = World::before(listener.local_addr().unwrap()).await;
    let mut browser = Browser::connect(&world).await;
    let mut stream = browser.send(Request::get("https://up.test/slow").body(()).unwrap()).await;
    stream.finish().await.unwrap();
    let (mut tcp, _) = in_time(listener.accept()).await.unwrap();
    let mut request = vec![0; 1024];
    let _ = in_time(tcp.read(&mut request)).await.unwrap();
    drop(stream);
    // The gateway gives the request up, and with it the connection that waits for its answer.
    while in_time(tcp.read(&mut request)).await.is_ok_and(|read| read > 0) {}
    let (_, body) = browser.get("https://api.test/next").await;
    drop(body);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_before_it_is_held() {
    let world = World::new(|_| ()).await;
    let mut browser = Browser::connect(&world).await;
    let mut request = Request::get("https://api.test/").body(()).unwrap();
    for number in 0..4 {
        let name: http::HeaderName = format!("x-{number}").parse().unwrap();
        request.headers_mut().insert(name, "v".repeat(20_000).parse().unwrap());
    }
    // Whether the client knows the gateway's bound already or the gateway refuses: no answer, and the connection goes on.
    let refused = match in_time(browser.requests.send_request(request)).await {
        Ok(mut stream) => {
            let _ = stream.finish().await;
            in_time(stream.recv_response()).await.err()
        }
        Err(error) => Some(error),
    };
    assert!(refused.is_some());
    assert_eq!(browser.get("https://api.test/").await.0.status(), StatusCode::OK);
}

#[tokio::test]
async fn connection_headers_of_http1_are_refused() {
    let world = World::new(|_| ()).await;
    let mut browser = Browser::connect(&world).await;
    for (name, value) in [("transfer-encoding", "chunked"), ("connection", "x"), ("te", "gzip")] {
        let request = Request::get("https://api.test/").header(name, value).body(()).unwrap();
        let mut stream = browser.send(request).await;
        let _ = stream.finish().await;
        let error = in_time(stream.recv_response()).await.unwrap_err();
        assert!(matches!(error, StreamError::RemoteTerminate { code: Code::H3_MESSAGE_ERROR, .. }), "{error}");
    }
    assert_eq!(world.refused("http_malformed"), 3);
}

#[tokio::test]
async fn a_draining_gateway_finishes_what_it_accepted_and_executes_nothing_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = World::before(listener.local_addr().unwrap()).await;
    let mut browser = Browser::connect(&world).await;
    let mut spare = browser.requests.clone();
    let mut stream = browser.send(Request::get("https://up.test/slow").body(()).unwrap()).await;
    stream.finish().await.unwrap();
    let (mut tcp, _) = in_time(listener.accept()).await.unwrap();
    let mut request = [0; 1024];
    let _ = in_time(tcp.read(&mut request)).await.unwrap();
    let answering = async {
        // Refused: the client knows already, or the gateway says so of this request.
        let refused = loop {
            let sent = match spare.send_request(post("https://up.test/late")).await {
                Ok(sent) => sent,
                Err(error) => break error,
            };
            let mut sent = sent;
            let _ = sent.finish().await;
            if let Err(error) = sent.recv_response().await {
                break error;
            }
        };
        let rejected = matches!(refused, StreamError::RemoteTerminate { code: Code::H3_REQUEST_REJECTED, .. });
        assert!(rejected || matches!(refused, StreamError::RemoteClosing { .. }), "{refused}");
        tcp.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nslow").await.unwrap();
        let response = stream.recv_response().await.unwrap();
        (response.status(), read(&mut stream).await.unwrap())
    };
    let ((), answered) = in_time(async { tokio::join!(world.gateway.drain(), answering) }).await;
    assert_eq!(answered, (StatusCode::OK, b"slow".to_vec()));
    let ended = in_time(browser.driver).await.unwrap();
    assert!(ended.is_h3_no_error(), "{ended}");
    assert!(listener.accept().now_or_never().is_none());
}
