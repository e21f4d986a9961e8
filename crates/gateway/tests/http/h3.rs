//! HTTP/3 clients that do not behave, on QUIC streams written by hand.

use std::sync::Arc;
use std::time::Duration;

use noq::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use noq::{Endpoint, EndpointConfig, ReadError, RecvStream, SendStream, TokioRuntime, TransportConfig, VarInt};
use ropeway_gateway::front::{Connection, Front, FrontLimits, serve_h3};
use ropeway_gateway::metrics::Metrics;
use ropeway_gateway::proxy::Proxy;
use ropeway_gateway::route::{RouteSpec, Router};
use ropeway_net::dial::{Trust, client_config};
use ropeway_net::tls::{Alpn, CertSource, ServerTlsOptions, quic_server_config};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::door::eventually;
use crate::support::cutting;

/// A front door on UDP, and a QUIC connection to it whose client has sent its SETTINGS.
struct Knock {
    metrics: Arc<Metrics>,
    quic: noq::Connection,
    /// The control stream of the client, which must stay open.
    _control: SendStream,
    _endpoints: [Endpoint; 2],
}

impl Knock {
    async fn at(upstream: &str, limits: FrontLimits) -> Self {
        let metrics = Arc::new(Metrics::new());
        let router = Router::new(vec![RouteSpec::new("a.test", upstream)]).expect("valid route");
        let proxy = Arc::new(Proxy::new(router, Arc::clone(&metrics)));
        let front = Arc::new(Front::new(proxy, &metrics, limits, CancellationToken::new()));

        let signed = rcgen::generate_simple_self_signed(vec!["a.test".into()]).expect("a certificate");
        let certificate = signed.cert.der().clone();
        let key = rustls::pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).expect("a key");
        let certificates = Arc::new(CertSource::new(vec![certificate.clone()], key).expect("they fit"));
        let crypto = quic_server_config(ServerTlsOptions::new(certificates, vec![Alpn::H3]));
        let crypto = QuicServerConfig::try_from(crypto).expect("QUIC settings");
        let server = endpoint(Some(noq::ServerConfig::with_crypto(Arc::new(crypto))));

        let tls = client_config(&Trust::Roots(vec![certificate]), &[b"h3"]).expect("settings");
        let mut config = noq::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("QUIC settings")));
        let mut transport = TransportConfig::default();
        // An answer that nobody reads stops early.
        transport.stream_receive_window(VarInt::from_u32(16 << 10));
        config.transport_config(Arc::new(transport));
        let client = endpoint(None);
        let address = server.local_addr().expect("bound");
        let connecting = client.connect_with(config, address, "a.test").expect("an address");
        let accepting = async { server.accept().await.expect("a client").await.expect("a handshake") };
        let (accepted, quic) = tokio::join!(accepting, connecting);
        let connection = Connection::new(client.local_addr().expect("bound"));
        tokio::spawn(serve_h3(accepted, front, connection));
        let quic = quic.expect("a handshake");
        let mut control = quic.open_uni().await.expect("a stream");
        control.write_all(&[0, 4, 0]).await.expect("written");
        Self { metrics, quic, _control: control, _endpoints: [server, client] }
    }

    /// Opens a stream and writes these bytes.
    async fn say(&self, bytes: &[u8]) -> (SendStream, RecvStream) {
        let (mut send, recv) = self.quic.open_bi().await.expect("a stream");
        send.write_all(bytes).await.expect("written");
        (send, recv)
    }

    async fn is_well(&self) -> bool {
        let (mut send, mut recv) = self.say(&request(GET, "/")).await;
        send.finish().expect("open");
        in_time(recv.read_to_end(1 << 20)).await.is_ok_and(|answer| !answer.is_empty())
    }
}

#[tokio::test]
async fn a_head_of_endless_length_is_refused_by_its_length() {
    let knock = Knock::at("builtin:echo", FrontLimits::default()).await;
    for kind in [1, 0x21] {
        // 2^30 - 1 bytes are announced, and some of them come.
        let mut bytes = vec![kind, 0xbf, 0xff, 0xff, 0xff];
        bytes.extend([0; 1000]);
        let (send, _recv) = knock.say(&bytes).await;
        let stopped = in_time(send.stopped()).await.expect("the connection goes on");
        assert_eq!(stopped, Some(VarInt::from_u32(0x107)), "H3_EXCESSIVE_LOAD");
    }
    assert!(knock.is_well().await);
}

#[tokio::test]
async fn a_body_that_ends_inside_a_frame_is_cut() {
    let knock = Knock::at("builtin:echo", FrontLimits::default()).await;
    let mut bytes = request(POST, "/echo");
    bytes.extend([0, 10, 1, 2, 3, 4, 5]);
    let (mut send, mut recv) = knock.say(&bytes).await;
    // All of it has been read before the end comes.
    let mut echoed = vec![0; 8];
    in_time(recv.read_exact(&mut echoed)).await.expect("the answer begins");
    send.finish().expect("open");
    in_time(recv.read_to_end(1 << 20)).await.expect_err("the answer is reset");
    assert!(knock.is_well().await);
}

#[tokio::test]
async fn what_is_no_request_ends_the_connection_and_is_counted() {
    // DATA before the head, and a field section that refers to a table that does not exist.
    for bytes in [&[0, 1, 7][..], &[1, 3, 9, 0, 0x80]] {
        let knock = Knock::at("builtin:echo", FrontLimits::default()).await;
        let _streams = knock.say(bytes).await;
        let closed = in_time(knock.quic.closed()).await;
        assert!(matches!(closed, noq::ConnectionError::ApplicationClosed(_)), "{closed}");
        eventually(|| knock.metrics.refusal("http_malformed").value() == 1).await;
        assert_eq!(knock.metrics.http_connections_open("h3").value(), 0);
    }
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answer_is_cut() {
    let limits = FrontLimits { stall_timeout: SHORT, ..FrontLimits::default() };
    let knock = Knock::at("builtin:demo", limits).await;
    let (mut send, _recv) = knock.say(&request(GET, "/bytes?n=100000000")).await;
    send.finish().expect("open");
    in_time(knock.quic.closed()).await;
    eventually(|| knock.metrics.refusal("http_stalled").value() == 1).await;
    eventually(|| knock.metrics.route("a.test/").in_flight.value() == 0).await;
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_after_a_farewell() {
    let limits = FrontLimits { idle_timeout: SHORT, ..FrontLimits::default() };
    let knock = Knock::at("builtin:echo", limits).await;
    let mut control = in_time(knock.quic.accept_uni()).await.expect("a control stream");
    let closed = in_time(knock.quic.closed()).await;
    let noq::ConnectionError::ApplicationClosed(close) = &closed else { panic!("{closed}") };
    assert_eq!(close.error_code, VarInt::from_u32(0x100), "H3_NO_ERROR");
    let mut said = Vec::new();
    while let Ok(Some(chunk)) = control.read_chunk(1024).await {
        said.extend_from_slice(&chunk);
    }
    assert!(said.ends_with(&[7, 1, 0]), "GOAWAY, no request executed: {said:?}");
    assert_eq!(knock.metrics.refusal("http_idle").value(), 1);
}

#[tokio::test]
async fn a_head_that_does_not_come_is_not_awaited() {
    let limits = FrontLimits { head_timeout: SHORT, ..FrontLimits::default() };
    let knock = Knock::at("builtin:echo", limits).await;
    let head = request(GET, "/");
    // In the first the head stops midway, in the second it is not known whether a body follows.
    for bytes in [&head[..4], &head[..]] {
        let before = knock.metrics.refusal("http_head_timeout").value();
        let (_send, mut recv) = knock.say(bytes).await;
        in_time(recv.read_to_end(1024)).await.expect_err("the stream is reset");
        assert_eq!(knock.metrics.refusal("http_head_timeout").value(), before + 1);
    }
}

#[tokio::test]
async fn what_came_of_a_body_before_it_was_cut_arrives_before_the_reset() {
    for length in [4, 10_000] {
        let knock = Knock::at(&format!("http://{}", cutting(length).await), FrontLimits::default()).await;
        let (mut send, mut recv) = knock.say(&request(GET, "/")).await;
        send.finish().expect("open");
        let (mut answer, mut chunk) = (Vec::new(), [0; 4096]);
        let error = loop {
            match in_time(recv.read(&mut chunk)).await {
                Ok(Some(count)) => answer.extend_from_slice(&chunk[..count]),
                Ok(None) => panic!("the part is taken for the whole"),
                Err(error) => break error,
            }
        };
        assert_eq!(error, ReadError::Reset(VarInt::from_u32(0x102)), "H3_INTERNAL_ERROR");
        let came = answer.iter().filter(|byte| **byte == b'x').count();
        assert!(came >= length, "{came} of {length}");
        assert!(knock.quic.close_reason().is_none());
    }
}

/// Writes HEADERS with a method of QPACK's static table (RFC 9204 appendix A).
fn request(method: u8, path: &str) -> Vec<u8> {
    // No dynamic table; method; https; path and authority with their names from the table.
    let mut fields = vec![0, 0, 0xc0 | method, 0xc0 | 23];
    for (name, value) in [(1, path), (0, "a.test")] {
        fields.push(0x50 | name);
        fields.push(u8::try_from(value.len()).expect("short"));
        fields.extend(value.as_bytes());
    }
    let mut frame = vec![1, u8::try_from(fields.len()).expect("short")];
    frame.extend(fields);
    frame
}

fn endpoint(server: Option<noq::ServerConfig>) -> Endpoint {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback binds");
    Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime)).expect("an endpoint")
}

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future).await.expect("it never ended")
}

/// Places in the static table.
const GET: u8 = 17;
const POST: u8 = 20;

/// A limit that a test waits for.
const SHORT: Duration = Duration::from_millis(200);
