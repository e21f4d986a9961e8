//! A host on loopback that speaks what it is told to, over TCP and QUIC on one port.

use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};

use ::h3::{error::Code, server};
use bytes::Buf as _;
use futures_util::stream;
use http_body_util::{Full, StreamBody};
use hyper::{body::Incoming, service::service_fn};
use noq::{
    Endpoint, EndpointConfig,
    crypto::rustls::{HandshakeData, QuicServerConfig},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ropeway_net::{
    h3::H3Connection,
    tls::{Alpn, CertSource, ServerTls, ServerTlsOptions, ServerTlsStream, quic_server_config, server_config},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::{net::TcpListener, sync::watch, task::AbortHandle};

use super::*;

/// Signs certificates of hosts.
pub(super) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

pub(super) struct Host {
    pub(super) address: SocketAddr,
    counts: Arc<Counts>,
    hang_up: watch::Sender<u64>,
    tcp: AbortHandle,
    quic: AbortHandle,
}

#[derive(Default)]
struct Counts {
    requests: AtomicUsize,
    tcp: AtomicUsize,
    tcp_open: AtomicUsize,
    quic: AtomicUsize,
    port: AtomicU16,
}

impl Authority {
    pub(super) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { certificate, issuer: Issuer::new(params, key) }
    }

    pub(super) fn certificate(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(super) fn issue(&self, name: &str) -> Arc<CertSource> {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        let leaf = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Arc::new(CertSource::new(vec![leaf.der().clone()], key).unwrap())
    }
}

impl Host {
    pub(super) async fn start(certificate: Arc<CertSource>, alpn: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        counts.port.store(address.port(), Ordering::SeqCst);
        let (hang_up, hung_up) = watch::channel(0);
        let over_tcp: Vec<Alpn> =
            alpn.iter().filter_map(|name| Alpn::from_bytes(name.as_bytes())).filter(|alpn| *alpn != Alpn::H3).collect();
        let tcp = match over_tcp.is_empty() {
            true => tokio::spawn(async move { drop(listener) }).abort_handle(),
            false => {
                let tls = server_config(ServerTlsOptions::new(Arc::clone(&certificate), over_tcp));
                tokio::spawn(serve_tcp(listener, tls, Arc::clone(&counts), hung_up)).abort_handle()
            }
        };
        let quic = match alpn.contains(&"h3") {
            false => tokio::spawn(async {}).abort_handle(),
            true => {
                let tls = quic_server_config(ServerTlsOptions::new(certificate, vec![Alpn::H3]));
                let tls = QuicServerConfig::try_from(tls).unwrap();
                let config = noq::ServerConfig::with_crypto(Arc::new(tls));
                let socket = std::net::UdpSocket::bind(address).unwrap();
                let runtime = Arc::new(noq::TokioRuntime);
                let endpoint = Endpoint::new(EndpointConfig::default(), Some(config), socket, runtime).unwrap();
                tokio::spawn(serve_quic(endpoint, Arc::clone(&counts))).abort_handle()
            }
        };
        Self { address, counts, hang_up, tcp, quic }
    }

    pub(super) fn requests(&self) -> usize {
        self.counts.requests.load(Ordering::SeqCst)
    }

    /// Connections so far.
    pub(super) fn connections(&self) -> usize {
        self.counts.tcp.load(Ordering::SeqCst) + self.quic_connections()
    }

    pub(super) fn quic_connections(&self) -> usize {
        self.counts.quic.load(Ordering::SeqCst)
    }

    pub(super) fn open_tcp(&self) -> usize {
        self.counts.tcp_open.load(Ordering::SeqCst)
    }

    /// Closes every TCP connection.
    pub(super) fn hang_up(&self) {
        self.hang_up.send_modify(|times| *times += 1);
    }

    /// Listens on TCP no more, and closes what is open there.
    pub(super) async fn close_tcp(&self) {
        self.tcp.abort();
        self.hang_up();
        until(|| self.tcp.is_finished()).await;
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.tcp.abort();
        self.quic.abort();
    }
}

async fn serve_tcp(
    listener: TcpListener,
    tls: Arc<rustls::ServerConfig>,
    counts: Arc<Counts>,
    hung_up: watch::Receiver<u64>,
) {
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (tls, counts, mut hung_up) = (Arc::clone(&tls), Arc::clone(&counts), hung_up.clone());
        hung_up.mark_unchanged();
        tokio::spawn(async move {
            let mut tls = ServerTls::new(tcp, tls).unwrap();
            let Ok(greeting) = tls.handshake().await else { return };
            if tls.confirm().await.is_err() {
                return;
            }
            counts.tcp.fetch_add(1, Ordering::SeqCst);
            counts.tcp_open.fetch_add(1, Ordering::SeqCst);
            let name = greeting.server_name.unwrap_or_default();
            let is_h2 = greeting.alpn == Some(Alpn::H2);
            let io = tls.into_stream();
            let serving = async {
                let counts = Arc::clone(&counts);
                if is_h2 { serve_h2(io, name, counts).await } else { serve_h1(io, name, counts).await }
            };
            tokio::select! {
                () = serving => {}
                _ = hung_up.changed() => {}
            }
            counts.tcp_open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

/// What a host does with a request.
enum Reply {
    Answer {
        headers: Vec<(&'static str, String)>,
        body: Bytes,
    },
    Break,
    /// A head whose body never ends.
    Hold,
    Refuse,
    /// Less than it says.
    Short,
}

fn reply(uri: &http::Uri, host: Option<&str>, name: &str, body: Bytes, counts: &Counts) -> Reply {
    counts.requests.fetch_add(1, Ordering::SeqCst);
    match uri.path() {
        "/alt-svc" => {
            let headers = vec![("alt-svc", format!("h3=\":{}\"; ma=60", counts.port.load(Ordering::SeqCst)))];
            Reply::Answer { headers, body: Bytes::new() }
        }
        "/break" => Reply::Break,
        "/echo" => Reply::Answer { headers: Vec::new(), body },
        "/hold" => Reply::Hold,
        "/refuse" => Reply::Refuse,
        "/short" => Reply::Short,
        _ => {
            let host = host.or_else(|| uri.authority().map(|authority| authority.as_str())).unwrap_or_default();
            Reply::Answer { headers: Vec::new(), body: format!("{name} {host}").into() }
        }
    }
}

fn head(version: &str, headers: Vec<(&'static str, String)>) -> Response<()> {
    let mut answer = Response::builder().header("x-version", version);
    for (name, value) in headers {
        answer = answer.header(name, value);
    }
    answer.body(()).unwrap()
}

async fn serve_h1(io: ServerTlsStream, name: String, counts: Arc<Counts>) {
    let service = service_fn(move |request: Request<Incoming>| {
        let (name, counts) = (name.clone(), Arc::clone(&counts));
        async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.map_err(std::io::Error::other)?.to_bytes();
            let host = parts.headers.get("host").map(|host| host.to_str().unwrap());
            let answer = match reply(&parts.uri, host, &name, body, &counts) {
                Reply::Answer { headers, body } => head("1.1", headers).map(|()| Full::new(body).boxed()),
                Reply::Break | Reply::Refuse | Reply::Short => return Err(std::io::Error::other("broken")),
                Reply::Hold => head("1.1", Vec::new()).map(|()| StreamBody::new(stream::pending()).boxed()),
            };
            Ok::<_, std::io::Error>(answer)
        }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
}

async fn serve_h2(io: ServerTlsStream, name: String, counts: Arc<Counts>) {
    let Ok(mut h2) = h2::server::handshake(io).await else { return };
    while let Some(Ok((request, mut respond))) = h2.accept().await {
        let (name, counts) = (name.clone(), Arc::clone(&counts));
        tokio::spawn(async move {
            let (parts, mut incoming) = request.into_parts();
            let mut body = Vec::new();
            while let Some(Ok(data)) = incoming.data().await {
                let _ = incoming.flow_control().release_capacity(data.len());
                body.extend_from_slice(&data);
            }
            match reply(&parts.uri, None, &name, body.into(), &counts) {
                Reply::Answer { headers, body } => {
                    let mut send = respond.send_response(head("2", headers), false).unwrap();
                    let _ = send.send_data(body, true);
                }
                Reply::Break | Reply::Short => respond.send_reset(h2::Reason::INTERNAL_ERROR),
                Reply::Hold => {
                    let _send = respond.send_response(head("2", Vec::new()), false).unwrap();
                    std::future::pending::<()>().await;
                }
                Reply::Refuse => respond.send_reset(h2::Reason::REFUSED_STREAM),
            }
        });
    }
}

async fn serve_quic(endpoint: Endpoint, counts: Arc<Counts>) {
    while let Some(incoming) = endpoint.accept().await {
        let counts = Arc::clone(&counts);
        tokio::spawn(async move {
            let Ok(connection) = incoming.await else { return };
            counts.quic.fetch_add(1, Ordering::SeqCst);
            let data = connection.handshake_data().unwrap().downcast::<HandshakeData>().unwrap();
            let name = data.server_name.unwrap_or_default();
            let adapter = H3Connection::server(connection, HEAD_BYTES_MAX);
            let mut h3: server::Connection<_, Bytes> = server::builder().build(adapter).await.unwrap();
            while let Ok(Some(resolver)) = h3.accept().await {
                tokio::spawn(serve_h3(resolver, name.clone(), Arc::clone(&counts)));
            }
        });
    }
}

async fn serve_h3(resolver: server::RequestResolver<H3Connection, Bytes>, name: String, counts: Arc<Counts>) {
    let Ok((request, mut stream)) = resolver.resolve_request().await else { return };
    let mut body = Vec::new();
    while let Ok(Some(mut data)) = stream.recv_data().await {
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    match reply(request.uri(), None, &name, body.into(), &counts) {
        Reply::Answer { headers, body } => {
            stream.send_response(head("3", headers)).await.unwrap();
            let _ = stream.send_data(body).await;
            let _ = stream.finish().await;
        }
        Reply::Break => stream.stop_stream(Code::H3_INTERNAL_ERROR),
        Reply::Hold => {
            stream.send_response(head("3", Vec::new())).await.unwrap();
            std::future::pending::<()>().await;
        }
        Reply::Refuse => stream.stop_stream(Code::H3_REQUEST_REJECTED),
        Reply::Short => {
            stream.send_response(head("3", vec![("content-length", "10".into())])).await.unwrap();
            let _ = stream.send_data(Bytes::from_static(b"half")).await;
            let _ = stream.finish().await;
        }
    }
}
