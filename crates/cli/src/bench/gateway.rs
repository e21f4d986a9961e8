//! The gateway under test: `ropeway up` in a process and a data folder of its own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use ropeway_core::CarrierKind;
use ropeway_gateway::tickets::{DeviceRule, TicketIssuer};
use ropeway_net::dial::Trust;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::BenchError;
use super::process::Process;
use crate::data_dir::{DataDir, TICKET_TTL, unix_seconds};

/// A gateway in a process of its own; dropping it ends it and removes its folder.
#[derive(Debug)]
pub(super) struct Gateway {
    pub(super) process: Process,
    tcp: SocketAddr,
    udp: SocketAddr,
    admin: SocketAddr,
    trust: Trust,
    ca_pem: String,
    issuer: TicketIssuer,
    token: String,
    _folder: Folder,
}

/// What differs between the gateways of benchmarks.
#[derive(Debug)]
pub(super) struct Setup {
    /// Where requests for [`UPSTREAM_HOST`] go, as in a configuration.
    pub(super) upstream: Option<String>,
    /// Time that answers are kept for clients that resume.
    pub(super) answers_ttl: Duration,
    /// Time that sessions outlive their links.
    pub(super) session_ttl: Duration,
}

impl Default for Setup {
    fn default() -> Self {
        Self { upstream: None, answers_ttl: Duration::from_secs(60), session_ttl: Duration::from_secs(300) }
    }
}

/// How many frames a gateway has moved.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Frames {
    pub(super) taken: u64,
    pub(super) sent: u64,
}

impl Gateway {
    /// Starts a gateway on free ports of this machine and waits until it is up.
    pub(super) fn start(setup: &Setup) -> Result<Self, BenchError> {
        let folder = Folder::new()?;
        let config = folder.write("ropeway.toml", &config(setup))?;
        let data = folder.path.join("data");
        let program = std::env::current_exe().map_err(|source| BenchError::Process { name: "ropeway", source })?;
        let mut command = Command::new(program);
        command.args(["--json", "up", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--config"]).arg(config);
        command.arg("--data-dir").arg(&data).env_remove("ROPEWAY_DATA");
        let mut process = Process::start("the gateway", &mut command)?;
        let said: Value = serde_json::from_str(&process.line()?).unwrap_or_default();
        let address = |name: &str| {
            let address = said[name].as_str().and_then(|text| text.parse().ok());
            address.ok_or_else(|| BenchError::WrongAnswer { what: format!("`up` does not name its {name} address") })
        };
        let (tcp, udp, admin) = (address("tcp")?, address("udp")?, address("admin")?);
        let data = DataDir::new(Some(&data));
        let ca_pem = read(&data.ca_path())?;
        let ca = CertificateDer::from_pem_slice(ca_pem.as_bytes())
            .map_err(|error| BenchError::Dial { reason: format!("certificate authority: {error}") })?;
        let token = read(&data.client()?.admin_token)?;
        let issuer = data.issuer()?;
        Ok(Self {
            process,
            tcp,
            udp,
            admin,
            trust: Trust::Roots(vec![ca]),
            ca_pem,
            issuer,
            token: token.trim().to_owned(),
            _folder: folder,
        })
    }

    /// Gives the address of a carrier.
    pub(super) fn address(&self, carrier: CarrierKind) -> SocketAddr {
        match carrier {
            CarrierKind::Quic => self.udp,
            CarrierKind::Tls | CarrierKind::Ws => self.tcp,
        }
    }

    /// Gives whom its clients trust.
    pub(super) fn trust(&self) -> &Trust {
        &self.trust
    }

    /// Gives the certificate of the authority that its clients trust, as PEM.
    pub(super) fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// Issues a ticket.
    pub(super) fn ticket(&self, user: &str, device_key: &[u8; 32]) -> Result<String, BenchError> {
        let now = unix_seconds(SystemTime::now());
        Ok(self.issuer.issue(user, APP, device_key, &DeviceRule::Any, TICKET_TTL, now)?)
    }

    /// Connects to its admin API.
    pub(super) async fn admin(&self) -> Result<Admin, BenchError> {
        let failed = |error: &dyn std::error::Error| BenchError::Admin { reason: error.to_string() };
        let tcp = TcpStream::connect(self.admin).await.map_err(|error| failed(&error))?;
        tcp.set_nodelay(true).map_err(|error| failed(&error))?;
        let (sender, connection) = http1::handshake(TokioIo::new(tcp)).await.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        Ok(Admin { sender, host: self.admin.to_string(), authorization: format!("Bearer {}", self.token) })
    }
}

/// A connection to the admin API, for one call at a time.
pub(super) struct Admin {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    authorization: String,
}

impl Admin {
    /// Reads how many frames the gateway has moved.
    pub(super) async fn frames(&mut self) -> Result<Frames, BenchError> {
        let text = self.call(Method::GET, "/metrics", String::new()).await?;
        let count = |direction: &str| {
            let series = format!("ropeway_frames_total{{direction=\"{direction}\"}} ");
            let line = text.lines().find_map(|line| line.strip_prefix(&series));
            line.and_then(|count| count.parse().ok())
                .ok_or_else(|| BenchError::Admin { reason: format!("/metrics has no {series}") })
        };
        Ok(Frames { taken: count("in")?, sent: count("out")? })
    }

    /// Pushes a message to a user.
    pub(super) async fn push(&mut self, user: &str, text: &str) -> Result<(), BenchError> {
        let body = json!({ "to": format!("user:{user}"), "text": text }).to_string();
        self.call(Method::POST, "/v1/push", body).await.map(drop)
    }

    async fn call(&mut self, method: Method, path: &str, body: String) -> Result<String, BenchError> {
        let failed = |error: &dyn std::error::Error| BenchError::Admin { reason: error.to_string() };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body.into()))
            .map_err(|error| failed(&error))?;
        self.sender.ready().await.map_err(|error| failed(&error))?;
        let answer = self.sender.send_request(request).await.map_err(|error| failed(&error))?;
        let status = answer.status();
        let body = answer.into_body().collect().await.map_err(|error| failed(&error))?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() { Ok(text) } else { Err(BenchError::Admin { reason: format!("{status}: {text}") }) }
    }
}

/// A folder below the system's one for temporary files; dropping it removes it.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) path: PathBuf,
}

impl Folder {
    /// Makes a folder that nobody else has.
    pub(super) fn new() -> Result<Self, BenchError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ropeway-bench-{}-{number}", std::process::id()));
        fs::create_dir(&path).map_err(|source| BenchError::File { path: path.clone(), source })?;
        Ok(Self { path })
    }

    /// Writes a file in it and gives its path.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<PathBuf, BenchError> {
        let path = self.path.join(name);
        fs::write(&path, text).map_err(|source| BenchError::File { path: path.clone(), source })?;
        Ok(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left there does no harm.
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn read(path: &Path) -> Result<String, BenchError> {
    fs::read_to_string(path).map_err(|source| BenchError::File { path: path.to_owned(), source })
}

/// Writes the configuration: defaults, except for bounds that a benchmark reaches on purpose.
fn config(setup: &Setup) -> String {
    let route = |host: &str, upstream: &str| {
        format!("[[route]]\nhost = \"{host}\"\nupstream = \"{upstream}\"\nin_flight_max = 1000000\n")
    };
    let upstream = setup.upstream.as_ref().map(|upstream| route(UPSTREAM_HOST, upstream)).unwrap_or_default();
    format!(
        "[gateway]\nname = \"{NAME}\"\nlinks_max = 1000000\nanswers_ttl = \"{}ms\"\nsession_ttl = \"{}ms\"\n\
         hello_timeout = \"60s\"\n[log]\nfilter = \"warn\"\n{}{}{upstream}",
        setup.answers_ttl.as_millis(),
        setup.session_ttl.as_millis(),
        route(ECHO_HOST, "builtin:echo"),
        route(DEMO_HOST, "builtin:demo"),
    )
}

/// Name of the gateway.
pub(super) const NAME: &str = "gateway.test";

/// App of the tickets: the one that a gateway serves by default.
pub(super) const APP: &str = "dev";

/// Host that the built-in echo answers.
pub(super) const ECHO_HOST: &str = "echo.test";

/// Host that the built-in demo answers.
pub(super) const DEMO_HOST: &str = "demo.test";

/// Host behind which there is a real service.
pub(super) const UPSTREAM_HOST: &str = "upstream.test";
