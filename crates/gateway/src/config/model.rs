//! The sections and keys of the configuration.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::lists::{AccessPointConfig, HostConfig, ListConfig, OperatorConfig, PolicyConfig, UnitConfig};
use super::read::{Node, Reader};
use super::section::{Key, Rule, Setting, Shape, any, between, joined, section, such};
use super::upstream::{Builtin, KeySource, Upstream};
use super::value::{PIPE_NAME, is_filter, is_host, is_host_pattern, is_path_prefix, is_pipe_name_given, is_word};

section! {
    /// The whole configuration of a Ropeway process.
    pub struct Config {
        /// The gateway's name, addresses and limits.
        pub gateway: GatewayConfig = GatewayConfig::default();
        /// The certificate and TLS sessions.
        pub tls: TlsConfig = TlsConfig::default();
        /// Whose tickets are accepted. A ticket is an EdDSA JWT that says who the user is.
        pub tickets: TicketsConfig = TicketsConfig::default();
        /// The admin API: push, health and metrics.
        pub admin: AdminConfig = AdminConfig::default();
        /// The services behind the gateway, one `[[route]]` each. A host named in full wins over "*.HOST", the longest
        /// of those over "*"; among the routes of one host the longest matching `path_prefix` wins. Without any,
        /// `ropeway up` serves a demo as demo.test.
        pub routes("route"): Vec<RouteConfig> = Vec::new();
        /// Requests with an `Idempotency-Key`: each runs once, and its repeats get the answer of the first.
        pub idempotency: IdempotencyConfig = IdempotencyConfig::default();
        /// The access list: what the gateway tells clients of gateways and hosts, signed.
        pub list: ListConfig = ListConfig::default();
        /// The sites, one `[[unit]]` each, in the order in which they stand in for each other. Without any there is one,
        /// `main`, with the addresses that this gateway listens on.
        pub units("unit"): Vec<UnitConfig> = Vec::new();
        /// Where short links to hosts may go besides their names, one `[[host]]` each.
        pub hosts("host"): Vec<HostConfig> = Vec::new();
        /// Network operators, one `[[operator]]` each: their clients get the addresses first that belong to them.
        pub operators("operator"): Vec<OperatorConfig> = Vec::new();
        /// What the gateway asks of clients.
        pub policy: PolicyConfig = PolicyConfig::default();
        /// Sealed requests, which need no handshake and no name.
        pub pipe: PipeConfig = PipeConfig::default();
        /// Answers over plain HTTP that clients ask to be signed.
        pub plain_http: PlainHttpConfig = PlainHttpConfig::default();
        /// Messages pushed to devices.
        pub push: PushConfig = PushConfig::default();
        /// What the process writes to its standard error.
        pub log: LogConfig = LogConfig::default();
    }
}

section! {
    /// The gateway's name, addresses and limits.
    pub struct GatewayConfig {
        /// Name of the gateway: the TLS server name, and the name that a device signs in its HELLO.
        pub name: String [such("a lower-case host name", is_host)] = "localhost".to_owned();
        /// TCP address for TLS links, WebSocket links and the HTTP front door. Port 0 takes any that is free.
        pub tcp_listen: SocketAddr = loopback(7443);
        /// Further TCP addresses for the same, such as ["0.0.0.0:80", "0.0.0.0:8443"]: some networks let nothing through but
        /// port 443, or port 80. Every port tells TLS from plain HTTP by the first byte.
        pub tcp_listen_more: Vec<SocketAddr> = Vec::new();
        /// UDP address for QUIC links and HTTP/3. Port 0 takes that of `tcp_listen`.
        pub udp_listen: SocketAddr = loopback(7443);
        /// Further UDP addresses for the same.
        pub udp_listen_more: Vec<SocketAddr> = Vec::new();
        /// Answers over HTTP/1.1 and HTTP/2 tell clients that HTTP/3 is served on the port of `udp_listen` (Alt-Svc).
        pub alt_svc: bool = true;
        /// Folder for what the process makes and keeps itself: its keys, the admin token, the access list.
        pub data_dir: PathBuf = PathBuf::from("./ropeway-data");
        /// Time that requests in flight get to finish after SIGTERM.
        pub drain_timeout: Duration [between(Duration::ZERO, HOUR)] = secs(30);
        /// Time from the accepted connection to a verified HELLO; a slower peer is refused.
        pub hello_timeout: Duration [between(secs(1), MINUTE)] = secs(10);
        /// Shortest heartbeat that devices may use. 15 s keeps UDP bindings open, which live 30 to 65 s.
        pub heartbeat_min: Duration [between(secs(1), HOUR)] = secs(15);
        /// Longest heartbeat that devices may use. WeChat's Mars stops at 9 min 50 s.
        pub heartbeat_max: Duration [between(secs(1), HOUR)] = secs(590);
        /// A link from which nothing came for so long is closed. At least `heartbeat_max`, with room for one lost beat.
        pub silence_timeout: Duration [between(secs(1), DAY)] = secs(20 * 60);
        /// Time that a session outlives its lost link, so that the device can resume it.
        pub session_ttl: Duration [between(Duration::ZERO, DAY)] = secs(5 * 60);
        /// Time that an answer is kept for a device that lost its link before it arrived.
        pub answers_ttl: Duration [between(Duration::ZERO, HOUR)] = secs(60);
        /// Bytes of such answers kept for one session.
        pub answers_bytes_max: usize [between(0, 64 * MIB)] = 64 * KIB;
        /// Payload of the largest frame that is accepted, in bytes. Devices learn it in WELCOME.
        pub frame_bytes_max: usize [between(4 * KIB, 16 * MIB)] = 64 * KIB;
        /// Bytes that a device may send on one channel before the service has read them.
        pub channel_credit_bytes: usize [between(4 * KIB, 64 * MIB)] = 256 * KIB;
        /// The same over all channels of a link: what one link can make the gateway hold.
        pub link_credit_bytes: usize [between(4 * KIB, 256 * MIB)] = MIB;
        /// Links held at once; further connections are refused with a time to come back.
        pub links_max: usize [between(1, 10_000_000)] = 100_000;
        /// Channels open at once on one link: requests, streams and uploads.
        pub channels_per_link_max: usize [between(1, 65_536)] = 256;
        /// Requests in flight at once on one link. RFC 9113 section 6.5.2 advises 100 or more for HTTP/2.
        pub requests_per_link_max: usize [between(1, 65_536)] = 128;
    }
}

section! {
    /// The certificate and TLS sessions.
    pub struct TlsConfig {
        /// Certificate chain, PEM. `gateway.pem` in `gateway.data_dir` when not given.
        pub cert: Option<PathBuf> = None, "./ropeway-data/gateway.pem";
        /// Its private key, PEM. `gateway.key` in `gateway.data_dir` when not given.
        pub key: Option<PathBuf> = None, "./ropeway-data/gateway.key";
        /// Early data accepted on TCP before the handshake ends, in bytes; 0 turns it off.
        pub early_data_bytes: u32 [between(0, 65_536)] = 16_384;
        /// TLS sessions kept for resumption, TCP and QUIC each; a handshake makes two.
        pub sessions_max: usize [between(1, 10_000_000)] = 65_536;
    }
}

section! {
    /// Whose tickets are accepted.
    pub struct TicketsConfig {
        /// Apps served. A ticket's audience must be the app that the device names, and be in this list.
        pub apps: Vec<String> [such("a list of non-empty names without spaces", are_words)] = vec!["dev".to_owned()];
        /// Difference of clocks allowed when the ticket's `exp` and `nbf` are checked.
        pub leeway: Duration [between(Duration::ZERO, HOUR)] = secs(60);
        /// The keys of the ticket issuers. Keep the old one beside the new one while its tickets last. Without any,
        /// `ropeway up` makes a development key.
        pub keys("key"): Vec<TicketKey> = Vec::new();
    }
}

section! {
    /// One key of a ticket issuer.
    pub struct TicketKey {
        /// The `kid` in the header of the tickets that this key signed. Must be given.
        pub kid: String [such("a non-empty name without spaces", is_word)] = "issuer-1".to_owned();
        /// The Ed25519 public key: a PEM file, or the 32 bytes in Base64. Must be given.
        pub public_key: KeySource = KeySource::File(PathBuf::from("issuer-1.pem"));
    }
}

section! {
    /// The admin API.
    pub struct AdminConfig {
        /// TCP address of the admin API. It speaks plain HTTP: keep it on loopback or on a network of your own.
        pub listen: SocketAddr = loopback(7480);
        /// File that holds the bearer token. `admin.token` in `gateway.data_dir` when not given; made on first start.
        pub token_file: Option<PathBuf> = None, "./ropeway-data/admin.token";
    }
}

section! {
    /// One service behind the gateway.
    pub struct RouteConfig {
        /// Host of the requests, without a port; "*.HOST" for all names below one, "*" for every host.
        pub host: String [such(r#"a lower-case host name, "*.HOST" or "*""#, is_host_pattern)] = "*".to_owned();
        /// Start of the path of the requests. "/api" takes "/api" and "/api/x", not "/apix".
        pub path_prefix: String [such(r#"a path that starts with "/""#, is_path_prefix)] = "/".to_owned();
        /// Where the requests go: http://HOST:PORT, https://HOST:PORT, h2c://HOST:PORT (HTTP/2 without TLS),
        /// builtin:demo or builtin:echo. Must be given.
        pub upstream: Upstream = Upstream::Builtin(Builtin::Demo);
        /// Time for the connection to the upstream.
        pub connect_timeout: Duration [between(MILLISECOND, HOUR)] = secs(3);
        /// Time from the sent request to the head of its answer.
        pub first_byte_timeout: Duration [between(MILLISECOND, HOUR)] = secs(30);
        /// Time without a byte of the body, in either direction.
        pub idle_timeout: Duration [between(MILLISECOND, DAY)] = secs(60);
        /// Largest body of a request, in bytes. Bodies are passed on as they come, never held whole.
        pub body_bytes_max: u64 [between(1, 1 << 50)] = 1 << 30;
        /// Requests in flight at once on this route; further ones are refused with 503.
        pub in_flight_max: usize [between(1, 1_000_000)] = 1_024;
        /// Also served over plain HTTP, readable and changeable by everyone on the way.
        pub plain_http: bool = false;
        /// The upstream sees the Host of the request, not its own.
        pub preserve_host: bool = true;
        /// The upstream sees the path without `path_prefix`.
        pub strip_prefix: bool = false;
        /// Requests that are not idempotent by their method (POST, PATCH) are refused without an `Idempotency-Key`.
        pub key_required: bool = false;
        /// The upstream itself runs requests with the same `Idempotency-Key` once, whichever gateway they come by. This
        /// gateway then remembers none for the route, and clients may repeat such requests at any gateway.
        pub upstream_honours_keys: bool = false;
        /// Time from a request's last byte to the head of its answer that clients reckon with. When not given, the time within
        /// which 99 of 100 answers came in the last 5 to 10 minutes, once there were 100.
        pub server_time: Option<Duration> [between(Some(MILLISECOND), Some(HOUR))] = None, "200ms";
    }
}

section! {
    /// Requests with an `Idempotency-Key`.
    pub struct IdempotencyConfig {
        /// Time that a finished request is remembered, at least as long as a sealed request may be repeated. The memory is lost when the
        /// process ends.
        pub ttl: Duration [between(secs(2 * 60), DAY)] = secs(10 * 60);
        /// Keys remembered at once, about 300 bytes each; requests with further ones are refused with 503, unexecuted.
        pub keys_max: usize [between(1, 100_000_000)] = 262_144;
        /// Bytes of the answers kept, all together. Beyond that the oldest go first; a repeat then gets 409 `key_answer_gone`.
        pub answers_bytes_max: usize [between(0, 1_024 * 1_024 * MIB)] = 64 * MIB;
        /// Bytes of one answer up to which it is kept.
        pub answer_bytes_max: usize [between(KIB, 64 * MIB)] = 64 * KIB;
        /// Bytes of a request's body up to which it is held until it is whole: cut before that, it has certainly not run.
        pub body_bytes_held_max: usize [between(0, 64 * MIB)] = 64 * KIB;
        /// Time that a repeat waits for the answer of the first; then it gets 409 `key_in_progress`.
        pub wait_timeout: Duration [between(Duration::ZERO, HOUR)] = secs(30);
        /// Time that a request goes on after its last client has left, so that a repeat finds its answer.
        pub finish_timeout: Duration [between(Duration::ZERO, HOUR)] = secs(60);
        /// Request headers that tell one client without a ticket from another: a key is known again only with the same values.
        pub credentials: Vec<String> [such("a list of names of HTTP headers", are_headers)] =
            vec!["authorization".to_owned(), "cookie".to_owned()];
    }
}

section! {
    /// Sealed requests, which need no handshake and no name: one POST to an address, encrypted as Oblivious HTTP.
    pub struct PipeConfig {
        /// Sealed requests are taken, also over plain HTTP. Nobody on the way can read or change them, but who learns the
        /// gateway's key within two days can read those that were recorded: they have no forward secrecy.
        pub enabled: bool = true;
        /// File of a secret that all gateways of one operator share: 32 random bytes in Base64 (`openssl rand -base64 32`). The
        /// keys of each pipe then follow from it, the pipe's name and the day, so that every gateway's access list has the
        /// keys of all. Who learns the secret can read everything that was ever recorded. When not given, the gateway draws
        /// keys of its own, and its list has no pipe but its own.
        pub secret_file: Option<PathBuf> = None, "./pipe.secret";
        /// Name of this gateway's pipe, the `pipe_name` of its access points. `gateway.name` when not given. No two gateways that
        /// share a secret may have one name: each would run what the other has run.
        pub name: Option<String> [such(PIPE_NAME, is_pipe_name_given)] = None, "north-1";
        /// Largest sealed request, in bytes. It is held whole.
        pub request_bytes_max: usize [between(KIB, 64 * MIB)] = MIB;
        /// Largest body of an answer through the pipe, in bytes. It is held whole.
        pub answer_bytes_max: usize [between(KIB, 64 * MIB)] = 8 * MIB;
        /// Sealed requests served at once; further ones are refused with 503.
        pub in_flight_max: usize [between(1, 65_536)] = 128;
    }
}

section! {
    /// Answers over plain HTTP that clients ask to be signed, on routes with `plain_http`.
    pub struct PlainHttpConfig {
        /// File of the Ed25519 key that signs answers: 32 random bytes in Base64 (`openssl rand -base64 32`). `signing.key` in
        /// `gateway.data_dir` when not given, made on first start. Gateways of one operator share a key, so that a client
        /// that has the list of any can verify the answers of all.
        pub key_file: Option<PathBuf> = None, "./ropeway-data/signing.key";
        /// Largest body of a request whose answer is signed, in bytes. It is held whole.
        pub request_bytes_max: usize [between(KIB, 64 * MIB)] = MIB;
        /// Largest body of an answer that is signed, in bytes. It is held whole.
        pub answer_bytes_max: usize [between(KIB, 64 * MIB)] = 8 * MIB;
        /// Such requests served at once; further ones are refused with 503.
        pub in_flight_max: usize [between(1, 65_536)] = 128;
    }
}

section! {
    /// Messages pushed to devices.
    pub struct PushConfig {
        /// Messages kept for one session until the device acknowledges them.
        pub session_messages_max: usize [between(1, 1_000_000)] = 1_000;
        /// Bytes of such messages; whichever limit comes first, the oldest go and the device is told of the gap.
        pub session_bytes_max: usize [between(KIB, 256 * MIB)] = MIB;
        /// Largest payload of one message, in bytes. With 4096 bytes for its envelope it must fit in one frame.
        pub payload_bytes_max: usize [between(1, 16 * MIB)] = 60 * KIB;
        /// Messages whose state `GET /v1/push/ID` still knows.
        pub statuses_max: usize [between(1, 10_000_000)] = 100_000;
    }
}

section! {
    /// What the process writes to its standard error.
    pub struct LogConfig {
        /// `text` for people, `json` for programs.
        pub format: LogFormat = LogFormat::Text;
        /// A level (off, error, warn, info, debug, trace), or several by module: "info,ropeway_gateway=debug".
        /// Addresses of devices appear from debug on.
        pub filter: String [such(r#"levels such as "info,ropeway_gateway=debug""#, is_filter)] = "info".to_owned();
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// One readable line.
    #[default]
    Text,
}

impl Config {
    /// Gives the file of the certificate chain.
    #[must_use]
    pub fn cert_path(&self) -> PathBuf {
        self.tls.cert.clone().unwrap_or_else(|| self.gateway.data_dir.join("gateway.pem"))
    }

    /// Gives the file of the certificate's private key.
    #[must_use]
    pub fn key_path(&self) -> PathBuf {
        self.tls.key.clone().unwrap_or_else(|| self.gateway.data_dir.join("gateway.key"))
    }

    /// Gives the file of the admin API's bearer token.
    #[must_use]
    pub fn admin_token_path(&self) -> PathBuf {
        self.admin.token_file.clone().unwrap_or_else(|| self.gateway.data_dir.join("admin.token"))
    }

    /// Gives the file of the key that signs the access list.
    #[must_use]
    pub fn list_key_path(&self) -> PathBuf {
        self.list.key_file.clone().unwrap_or_else(|| self.gateway.data_dir.join("list.key"))
    }

    /// Gives the file of the key that signs answers over plain HTTP.
    #[must_use]
    pub fn signing_key_path(&self) -> PathBuf {
        self.plain_http.key_file.clone().unwrap_or_else(|| self.gateway.data_dir.join("signing.key"))
    }

    /// Gives the name of this gateway's sealed pipe.
    #[must_use]
    pub fn pipe_name(&self) -> &str {
        self.pipe.name.as_deref().unwrap_or(&self.gateway.name)
    }

    /// Gives the name of the sealed pipe at an access point.
    #[must_use]
    pub fn pipe_name_at<'a>(&'a self, point: &'a AccessPointConfig) -> &'a str {
        point.pipe_name.as_ref().or(point.gateway.as_ref()).unwrap_or(&self.gateway.name)
    }

    /// Adds a route, in place of one for the same host and path prefix.
    pub fn set_route(&mut self, route: RouteConfig) {
        match self.routes.iter_mut().find(|known| known.same_place(&route)) {
            Some(known) => *known = route,
            None => self.routes.push(route),
        }
    }

    /// Names the keys whose values differ, as `section.key`.
    #[must_use]
    pub fn changed_keys(&self, other: &Self) -> Vec<String> {
        let mut changed = Vec::new();
        self.changes(other, "", &mut changed);
        changed
    }
}

impl RouteConfig {
    /// Creates the route of a whole host, with defaults for the rest.
    #[must_use]
    pub fn new(host: &str, upstream: Upstream) -> Self {
        Self { host: host.to_owned(), upstream, ..Self::default() }
    }

    /// Says whether both routes claim the same requests.
    #[must_use]
    pub fn same_place(&self, other: &Self) -> bool {
        self.host == other.host && self.path_prefix == other.path_prefix
    }
}

fn are_words(words: &[String]) -> bool {
    !words.is_empty() && words.iter().all(|word| is_word(word))
}

fn are_headers(names: &[String]) -> bool {
    names.iter().all(|name| HeaderName::try_from(name.as_str()).is_ok())
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const MILLISECOND: Duration = Duration::from_millis(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

const KIB: usize = 1_024;
const MIB: usize = 1_024 * KIB;
