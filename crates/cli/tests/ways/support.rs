//! A gateway with a service behind it, and what to say to it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use http::{Request, Response, header::CONTENT_TYPE};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use ropeway::{
    Body,
    pipe::{PipeConfig, PipeTarget},
};
use ropeway_cluster::{LocalBus, LocalBusConfig};
use ropeway_gateway::{
    Gateway,
    config::{Config, RouteConfig},
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_rustls::TlsConnector;

/// A gateway in front of a service at `api.test`.
pub(crate) struct World {
    pub(crate) gateway: Gateway<LocalBus>,
    pub(crate) config: Config,
    pub(crate) service: Arc<Service>,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) pem: String,
    _folder: TempDir,
}

/// The service: it says what it was asked, and counts.
#[derive(Debug, Default)]
pub(crate) struct Service {
    executed: AtomicUsize,
}

impl World {
    pub(crate) async fn new(change: impl FnOnce(&mut Config)) -> Self {
        let folder = TempDir::new().unwrap();
        let signed = rcgen::generate_simple_self_signed(vec!["gw.test".into(), "api.test".into()]).unwrap();
        std::fs::write(folder.path().join("gateway.pem"), signed.cert.pem()).unwrap();
        std::fs::write(folder.path().join("gateway.key"), signed.signing_key.serialize_pem()).unwrap();
        std::fs::write(folder.path().join("admin.token"), "secret").unwrap();
        let list_key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        std::fs::write(folder.path().join("list.key"), list_key.serialize_pem()).unwrap();
        let service = Arc::new(Service::default());
        let upstream = Service::start(&service).await;
        let mut config = Config::default();
        config.gateway.name = "gw.test".into();
        config.gateway.data_dir = folder.path().into();
        let any = "127.0.0.1:0".parse().unwrap();
        (config.gateway.tcp_listen, config.gateway.udp_listen, config.admin.listen) = (any, any, any);
        config.routes = vec![RouteConfig::new("api.test", format!("http://{upstream}").parse().unwrap())];
        change(&mut config);
        let gateway = Self::start(&config).await;
        let (certificate, pem) = (signed.cert.der().clone(), signed.cert.pem());
        Self { gateway, config, service, certificate, pem, _folder: folder }
    }

    async fn start(config: &Config) -> Gateway<LocalBus> {
        Gateway::start(Arc::new(config.clone()), LocalBus::new(LocalBusConfig::default())).await.unwrap()
    }

    /// Ends the gateway and starts another one with the same data folder.
    pub(crate) async fn restart(&mut self) {
        self.config.gateway.drain_timeout = std::time::Duration::ZERO;
        self.gateway.drain().await;
        self.gateway = Self::start(&self.config).await;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.gateway.addresses().tcp
    }

    /// The pipe with the key to use.
    pub(crate) fn pipe(&self) -> PipeTarget {
        let config = PipeConfig::parse(&self.gateway.pipe_keys()[0].config).unwrap();
        PipeTarget { address: self.address(), config }
    }

    /// Says something over TLS, and reads until the gateway closes.
    pub(crate) async fn say_tls(&self, text: &str) -> Vec<u8> {
        self.say_tls_at(self.address(), text).await
    }

    /// Says something over TLS at one of the gateway's addresses.
    pub(crate) async fn say_tls_at(&self, address: SocketAddr, text: &str) -> Vec<u8> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let tcp = TcpStream::connect(address).await.unwrap();
        let name = ServerName::try_from("gw.test").unwrap();
        let mut tls = TlsConnector::from(config).connect(name, tcp).await.unwrap();
        tls.write_all(text.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        tls.read_to_end(&mut answer).await.unwrap();
        answer
    }

    /// How often something came to the pipe that ended like this.
    pub(crate) fn pipe_requests(&self, outcome: &'static str) -> u64 {
        self.gateway.metrics().pipe_requests(outcome).value()
    }
}

impl Service {
    async fn start(service: &Arc<Self>) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = Arc::clone(service);
        tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.unwrap();
                let service = Arc::clone(&service);
                let answer = service_fn(move |request| {
                    let service = Arc::clone(&service);
                    async move { Ok::<_, Infallible>(service.answer(request).await) }
                });
                let builder = hyper::server::conn::http1::Builder::new();
                tokio::spawn(builder.serve_connection(TokioIo::new(tcp), answer));
            }
        });
        address
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        self.executed.fetch_add(1, Ordering::Relaxed);
        let length = head.uri.query().and_then(|query| query.parse().ok()).unwrap_or(0);
        let mut said = format!("{} {} {}\n", head.method, head.uri, String::from_utf8_lossy(&body));
        for (name, value) in &head.headers {
            said += &format!("{name}: {}\n", value.to_str().unwrap());
        }
        said += &"x".repeat(length);
        Response::builder().header(CONTENT_TYPE, "text/plain").header("x-kept", "yes").body(said.into()).unwrap()
    }

    /// How many requests it has executed.
    pub(crate) fn executed(&self) -> usize {
        self.executed.load(Ordering::Relaxed)
    }
}

pub(crate) fn get(url: &str) -> Request<Body> {
    Request::get(url).body(Body::empty()).unwrap()
}

pub(crate) fn post(url: &str, body: &'static str) -> Request<Body> {
    Request::post(url).body(Body::from(body)).unwrap()
}

pub(crate) async fn text(response: Response<Body>) -> String {
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(bytes.into()).unwrap()
}

/// Sends bytes and reads until the other end closes.
pub(crate) async fn say(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut tcp = TcpStream::connect(address).await.unwrap();
    tcp.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    let _ = tcp.read_to_end(&mut answer).await;
    answer
}

/// Gives the body of an answer in bytes.
pub(crate) fn body(answer: &[u8]) -> &[u8] {
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
    &answer[end + 4..]
}

/// Gives the head of an answer in lower case.
pub(crate) fn head(answer: &[u8]) -> String {
    String::from_utf8_lossy(&answer[..answer.len() - body(answer).len()]).to_lowercase()
}

/// Reads a head, up to and with the empty line.
pub(crate) async fn read_head(tcp: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(tcp.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Reads an answer to its end.
pub(crate) async fn read_answer(tcp: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    tcp.read_to_end(&mut answer).await.unwrap();
    answer
}
