//! nginx as a service behind the gateway, and as another program that does the gateway's work.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use ropeway_net::dial::{Trust, client_config};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_rustls::TlsConnector;

use super::BenchError;
use super::gateway::{Folder, NAME};
use super::load::OPENING_MAX;
use super::process::Process;

/// An nginx of one process; dropping it ends it.
#[derive(Debug)]
pub(super) struct Nginx {
    process: Process,
    version: String,
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    _folder: Folder,
}

/// A connection that stays open.
pub(super) type KeptAlive = SendRequest<Empty<Bytes>>;

impl Nginx {
    /// Starts a plain HTTP service that answers with 64 bytes; `None` where nginx is not installed.
    pub(super) async fn service() -> Result<Option<Self>, BenchError> {
        Self::start("", &answer()).await
    }

    /// Starts the same service over TLS.
    pub(super) async fn https() -> Result<Option<Self>, BenchError> {
        Self::start(" ssl", &answer()).await
    }

    /// Starts a reverse proxy over TLS and HTTP/2 to a plain HTTP service.
    pub(super) async fn proxy(service: SocketAddr) -> Result<Option<Self>, BenchError> {
        let location = format!(
            "location / {{ proxy_pass http://{service}; proxy_http_version 1.1; proxy_set_header Connection \"\"; \
             proxy_set_header Host $host; proxy_set_header X-Forwarded-For $remote_addr; }}"
        );
        Self::start(" ssl http2", &location).await
    }

    async fn start(listen: &str, location: &str) -> Result<Option<Self>, BenchError> {
        let Some(version) = version("nginx", "-v") else { return Ok(None) };
        let address = free_address().await?;
        let folder = Folder::new()?;
        let failed = |error: rcgen::Error| BenchError::Dial { reason: error.to_string() };
        let signed = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]).map_err(failed)?;
        folder.write("cert.pem", &signed.cert.pem())?;
        folder.write("key.pem", &signed.signing_key.serialize_pem())?;
        let config = folder.write("nginx.conf", &config(address, listen, location))?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(&folder.path).arg("-c").arg(config).args(["-e", "stderr"]);
        let process = Process::start("nginx", &mut command)?;
        let mut nginx = Self { process, version, address, certificate: signed.cert.der().clone(), _folder: folder };
        nginx.wait().await?;
        Ok(Some(nginx))
    }

    /// Waits until it takes connections.
    async fn wait(&mut self) -> Result<(), BenchError> {
        for _ in 0..START_TRIES {
            if TcpStream::connect(self.address).await.is_ok() {
                return Ok(());
            }
            if !self.process.is_running() {
                return Err(BenchError::Ended { name: "nginx" });
            }
            sleep(START_PAUSE).await;
        }
        Err(BenchError::TimedOut { what: "the start of nginx", seconds: 5 })
    }

    /// Gives its name and version.
    pub(super) fn name(&self) -> &str {
        &self.version
    }

    /// Gives the address that it listens on.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Gives its only process.
    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    /// Opens connections over TLS, asks once on each, and keeps them.
    pub(super) async fn keep_alive(&self, count: u32) -> Result<Vec<KeptAlive>, BenchError> {
        let failed = |error: &dyn std::error::Error| BenchError::Dial { reason: error.to_string() };
        let config = client_config(&Trust::Roots(vec![self.certificate.clone()]), &[b"http/1.1"]);
        let connector = TlsConnector::from(Arc::new(config.map_err(|error| failed(&error))?));
        let connect = async || {
            let tcp = TcpStream::connect(self.address).await.map_err(|error| failed(&error))?;
            let name = ServerName::try_from(NAME).map_err(|error| failed(&error))?;
            let tls = connector.connect(name, tcp).await.map_err(|error| failed(&error))?;
            let (mut sender, connection) = http1::handshake(TokioIo::new(tls)).await.map_err(|error| failed(&error))?;
            tokio::spawn(connection);
            let request = Request::get("/").header(header::HOST, NAME).body(Empty::new());
            let answer = sender.send_request(request.map_err(|error| failed(&error))?).await;
            answer.map_err(|error| failed(&error))?.into_body().collect().await.map_err(|error| failed(&error))?;
            Ok(sender)
        };
        stream::iter(0..count).map(|_| connect()).buffer_unordered(OPENING_MAX).try_collect().await
    }
}

/// Gives name and version of a program, if it is installed.
pub(super) fn version(program: &str, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let first = text.lines().next()?;
    // "nginx version: nginx/1.22.1", "h2load nghttp2/1.52.0"
    first.split_whitespace().last().map(|version| version.replace('/', " "))
}

async fn free_address() -> Result<SocketAddr, BenchError> {
    let failed = |source| BenchError::Process { name: "nginx", source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(failed)?;
    listener.local_addr().map_err(failed)
}

fn answer() -> String {
    format!("location / {{ return 200 \"{}\"; }}", "n".repeat(64))
}

/// Writes a configuration of one process that never ends a connection by itself and logs nothing but errors.
fn config(address: SocketAddr, listen: &str, location: &str) -> String {
    let tls = if listen.is_empty() {
        ""
    } else {
        "ssl_certificate cert.pem; ssl_certificate_key key.pem; ssl_protocols TLSv1.3; "
    };
    format!(
        "daemon off;\nmaster_process off;\npid nginx.pid;\nworker_rlimit_nofile 20000;\n\
         events {{ worker_connections 16384; }}\n\
         http {{\n  access_log off;\n  keepalive_timeout 1h;\n  keepalive_requests 1000000000;\n\
         client_body_temp_path body;\n  proxy_temp_path proxy;\n  fastcgi_temp_path fastcgi;\n\
         uwsgi_temp_path uwsgi;\n  scgi_temp_path scgi;\n\
         server {{ listen {address}{listen} backlog=4096; {tls}{location} }}\n}}\n"
    )
}

/// Tries to connect before nginx counts as broken.
const START_TRIES: u32 = 50;

/// Time between them.
const START_PAUSE: Duration = Duration::from_millis(100);
