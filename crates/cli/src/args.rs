//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use http::uri::Authority;
use http::{HeaderName, HeaderValue, Method, Uri, header};
use ropeway::{CarrierKind, Way};
use ropeway_cluster::{CollapseKey, ContentType, DeviceId, MessageId, Target, Topic, UserId};
use ropeway_core::request::port_of;
use ropeway_core::wire::fields::is_forbidden;
use ropeway_gateway::config::{self, RouteConfig, Upstream};

use crate::bench::BenchArgs;

/// Carries an app's HTTP requests across bad networks, and messages back to it.
#[derive(Debug, Parser)]
#[command(name = "ropeway", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What every command understands.
    #[command(flatten)]
    pub(crate) global: Global,
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command understands.
#[derive(Args, Clone, Debug)]
pub(crate) struct Global {
    /// Folder where `up` keeps its keys and where the other commands find them [default: ./ropeway-data]
    #[arg(long, global = true, env = "ROPEWAY_DATA", value_name = "DIR", hide_env_values = true)]
    pub(crate) data_dir: Option<PathBuf>,
    /// Write JSON objects, one a line, in place of prose; errors too
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Write results and errors only
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Log to standard error, such as "info" or "info,ropeway_gateway=debug"
    #[arg(long, global = true, value_name = "FILTER", value_parser = log_filter)]
    pub(crate) log: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a gateway on this machine
    Bench(BenchArgs),
    /// Write or check a configuration
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the messages that are pushed to this device, one a line
    Listen(ListenArgs),
    /// Push a message to devices, or ask how far one got
    Push(PushArgs),
    /// Send an HTTP request through the gateway and print the answer
    Request(RequestArgs),
    /// Issue a ticket for a device, for development
    Ticket(TicketArgs),
    /// Start a gateway, with all it needs, in one process
    Up(UpArgs),
}

/// What to do with a configuration.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check a configuration file, and the files it names, and say what is wrong
    Check {
        /// The file
        file: PathBuf,
    },
    /// Write a configuration with every key, its meaning and its default
    Sample,
}

/// Who calls the gateway, and how.
#[derive(Args, Debug)]
pub(crate) struct DeviceArgs {
    /// Use this carrier and no other; may be repeated [possible values: quic, tls, ws]
    #[arg(long = "carrier", value_name = "CARRIER")]
    pub(crate) carriers: Vec<CarrierKind>,
    /// Name of this device, for pushes to it, if its ticket allows it [default: a new one for each run; with --ticket
    /// the one made from the key]
    #[arg(long, value_name = "ID")]
    pub(crate) device: Option<DeviceId>,
    /// PEM file of the private key that the ticket names
    #[arg(long, value_name = "FILE", requires = "ticket")]
    pub(crate) device_key: Option<PathBuf>,
    /// File of the ticket [default: the development ticket]
    #[arg(long, value_name = "FILE")]
    pub(crate) ticket: Option<PathBuf>,
}

/// What to listen to.
#[derive(Args, Debug)]
pub(crate) struct ListenArgs {
    /// Subscribe to a topic; may be repeated
    #[arg(long = "topic", value_name = "NAME")]
    pub(crate) topics: Vec<Topic>,
    /// End after so many messages
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Who listens.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// What to request.
#[derive(Args, Debug)]
pub(crate) struct RequestArgs {
    /// The URL; https:// where it names no scheme
    #[arg(value_parser = url)]
    pub(crate) url: String,
    /// Method [default: GET, with --data POST]
    #[arg(short = 'X', long = "request", value_name = "METHOD")]
    pub(crate) method: Option<Method>,
    /// Header, such as 'accept: text/html'; may be repeated
    ///
    /// With an 'idempotency-key: KEY' the gateway runs a request once, however often it is sent; see --way.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header_line)]
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
    /// Body; "@FILE" takes it from a file, "@-" from standard input, as it is
    #[arg(short, long, value_name = "DATA", allow_hyphen_values = true)]
    pub(crate) data: Option<String>,
    /// File to write the body of the answer to
    #[arg(short, long = "output", value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Take this way and no other; may be repeated [possible values: link, name, address, pipe, plain, original]
    ///
    /// A request with an `idempotency-key` runs once by whichever of link, pipe and encrypted address it comes. By plain the gateway does not
    /// know whose key it is: sent again that way, a request that has run by another runs again, unless the service itself honours keys.
    #[arg(long = "way", value_name = "WAY")]
    pub(crate) ways: Vec<Way>,
    /// Follow redirects, at most 10 in a row
    #[arg(short = 'L', long)]
    pub(crate) location: bool,
    /// Write status and headers before the body
    #[arg(short, long)]
    pub(crate) include: bool,
    /// Tell on standard error which ways were tried, and what came back
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Fail without writing the body where the status is 400 or more
    #[arg(short, long)]
    pub(crate) fail: bool,
    /// Longest time for the whole, seconds
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) max_time: Option<Duration>,
    /// Let http:// URLs of hosts that the gateway does not serve cross the network in the clear
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// Who calls.
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
}

/// How to push.
#[derive(Args, Debug)]
pub(crate) struct PushArgs {
    /// Who gets it: all, user:NAME, device:ID or topic:NAME
    #[arg(long, value_name = "TARGET", required_unless_present = "status")]
    pub(crate) to: Option<Target>,
    /// The message's own id; the same id twice is the same message
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<MessageId>,
    /// Media type of the message
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<ContentType>,
    /// How long it is worth delivering, such as 90s, 30m or 7d
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) ttl: Option<Duration>,
    /// An undelivered message with the same key is replaced by this one
    #[arg(long, value_name = "KEY")]
    pub(crate) collapse_key: Option<CollapseKey>,
    /// Say how far a message got, in place of pushing one
    #[arg(long, value_name = "ID", conflicts_with_all = ["to", "id", "content_type", "ttl", "collapse_key", "text"])]
    pub(crate) status: Option<MessageId>,
    /// The message; "-" takes it from standard input
    #[arg(required_unless_present = "status", allow_hyphen_values = true)]
    pub(crate) text: Option<String>,
}

/// Which ticket to issue.
#[derive(Args, Debug)]
pub(crate) struct TicketArgs {
    /// The user
    #[arg(long, value_name = "NAME", default_value = "dev")]
    pub(crate) user: UserId,
    /// The app [default: that of the gateway]
    #[arg(long, value_parser = word)]
    pub(crate) app: Option<String>,
    /// PEM file of the device's Ed25519 key, private or public; "generate" makes a new one [default: the development
    /// device's]
    #[arg(long, value_name = "FILE")]
    pub(crate) device_key: Option<PathBuf>,
    /// Name that the device is given, or "*" for any that it may choose [default: the one made from its key]
    #[arg(long, value_name = "ID")]
    pub(crate) device: Option<DeviceId>,
    /// How long it is good, such as 90s, 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30d")]
    pub(crate) ttl: Duration,
    /// File to write it to, in place of standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

/// What to start.
#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    /// Configuration file; see `ropeway config sample`
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Service behind the gateway, such as api.test=http://127.0.0.1:8000; may be repeated
    #[arg(long = "upstream", value_name = "HOST=URL", value_parser = upstream)]
    pub(crate) upstreams: Vec<RouteConfig>,
    /// TCP and UDP address for links and HTTP; port 0 takes any that is free [default: 127.0.0.1:7443]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// TCP address of the admin API [default: 127.0.0.1:7480]
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub(crate) admin: Option<SocketAddr>,
}

fn upstream(text: &str) -> Result<RouteConfig, String> {
    let Some((host, url)) = text.split_once('=') else {
        return Err("write HOST=URL, such as api.test=http://127.0.0.1:8000".to_owned());
    };
    let host = host.to_ascii_lowercase();
    if !config::is_host_pattern(&host) {
        return Err(format!("`{host}` is no host name; write it without a scheme and a port"));
    }
    let upstream: Upstream =
        url.parse().map_err(|error: config::UpstreamError| format!("{error}; {}", error.hint()))?;
    Ok(RouteConfig::new(&host, upstream))
}

/// Reads the address of a socket that listens: its port may be 0, for any that is free.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    const FORM: &str = "write IP:PORT, such as 127.0.0.1:7443; port 0 takes any that is free";
    text.parse().map_err(|_| match port_of(text) {
        Err(reason) if text.parse::<IpAddr>().is_err() => format!("{reason}; {FORM}"),
        Err(_) | Ok(_) => FORM.to_owned(),
    })
}

/// Completes a URL with the scheme that it leaves out, and refuses one that leads nowhere.
fn url(text: &str) -> Result<String, String> {
    const FORM: &str = "write one such as https://demo.test/time";
    if text.trim().is_empty() {
        return Err(format!("it is empty; {FORM}"));
    }
    let url = if text.contains("://") { text.to_owned() } else { format!("https://{text}") };
    let uri: Uri = url.parse().map_err(|error| format!("{error}; {FORM}"))?;
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| format!("the host is missing; {FORM}"))?;
    let authority = uri.authority().map_or(host, Authority::as_str);
    // What may be a password is for the library to refuse, which does not repeat it.
    if !authority.contains('@') {
        port_of(authority).map_err(|error| format!("{error}; {FORM}"))?;
    }
    Ok(url)
}

fn time(text: &str) -> Result<Duration, String> {
    match config::duration(text) {
        Some(time) if !time.is_zero() => Ok(time),
        Some(_) | None => Err("write a time with its unit, such as 90s, 30m, 12h or 7d".to_owned()),
    }
}

fn header_line(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let (name, value) = text.split_once(':').ok_or("write NAME: VALUE")?;
    let name = name.trim().parse::<HeaderName>().map_err(|error| error.to_string())?;
    let value = value.trim().parse::<HeaderValue>().map_err(|error| error.to_string())?;
    if name == header::HOST {
        return Err("the host is that of the URL; write it there".to_owned());
    }
    if name == header::CONTENT_LENGTH || is_forbidden(&name, &value) {
        return Err("it belongs to a connection, and the client writes it where it is needed; leave it out".to_owned());
    }
    Ok((name, value))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| !time.is_zero()).ok_or_else(|| "write a number of seconds, such as 10 or 2.5".to_owned())
}

fn log_filter(text: &str) -> Result<String, String> {
    if config::is_filter(text) {
        return Ok(text.to_owned());
    }
    Err("write a level (off, error, warn, info, debug, trace) or levels by module".to_owned())
}

fn word(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.chars().all(|c| !c.is_whitespace() && !c.is_control()) {
        return Ok(text.to_owned());
    }
    Err("write a name without spaces".to_owned())
}

const EXIT_CODES: &str = "\
Exit codes:
  0   done
  1   failed; the message says why
  2   the command line is wrong
  18  only a part of the answer came
  22  the answer's status is 400 or more, and --fail is given
  28  out of time (--max-time)
  130 Ctrl-C amid a request; the message says whether it may have been executed
  141 nobody reads the output any more";
