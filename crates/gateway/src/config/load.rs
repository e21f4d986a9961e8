//! Loads a configuration from a file and refuses what cannot work.

use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use ropeway_core::request::PortError;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::lists::Speaks;
use super::model::Config;
use super::read::{Node, Problem, Reader};
use super::section::Setting;
use super::upstream::KeySource;

/// Why a configuration was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file has a mistake.
    #[error("{}:{line}:{column}: {message}; {hint}", file.display())]
    Invalid {
        /// The file.
        file: PathBuf,
        /// Line of the mistake, from 1.
        line: usize,
        /// Character in that line, from 1.
        column: usize,
        /// What is wrong.
        message: String,
        /// What to do.
        hint: String,
    },
    /// The file could not be read.
    #[error("{}: cannot be read: {source}", file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The file is larger than a configuration can be.
    #[error("{}: larger than {FILE_BYTES_MAX} bytes; this is no configuration", file.display())]
    TooLarge {
        /// The file.
        file: PathBuf,
    },
}

impl Config {
    /// Loads a file; relative paths in it start at its folder.
    ///
    /// # Errors
    /// The file cannot be read, is larger than 1 MiB, or has a mistake.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let refuse = |source| ConfigError::Read { file: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = File::open(path).map_err(refuse)?;
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(refuse)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(ConfigError::TooLarge { file: path.to_owned() });
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => Self::parse(text, path),
            Err(error) => {
                let good = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
                let message = "this is not UTF-8".to_owned();
                let problem = Problem { offset: good.len(), message, hint: "save the file as UTF-8".to_owned() };
                Err(problem.in_file(&good, path))
            }
        }
    }

    /// Reads a configuration from a text; `path` names it in errors, and relative paths start at its folder.
    ///
    /// # Errors
    /// The text has a mistake: the first one is named.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        let root = DeTable::parse(text).map_err(|error| not_toml(&error).in_file(text, path))?;
        let root = Spanned::new(root.span(), DeValue::Table(root.into_inner()));
        let mut reader = Reader::default();
        let config = Self::read(&root, &mut reader).unwrap_or_default();
        let mut problems = reader.problems;
        problems.extend(missing(&root));
        if problems.is_empty() {
            problems.extend(conflicts(&config, &root, text));
        }
        match problems.into_iter().min_by_key(|problem| problem.offset) {
            Some(problem) => Err(problem.in_file(text, path)),
            None => Ok(config.at(path.parent().unwrap_or(Path::new("")))),
        }
    }

    /// Moves relative paths to the folder of the file.
    fn at(mut self, folder: &Path) -> Self {
        self.gateway.data_dir = folder.join(&self.gateway.data_dir);
        let own = [&mut self.tls.cert, &mut self.tls.key, &mut self.admin.token_file];
        let shared = [&mut self.list.key_file, &mut self.pipe.secret_file, &mut self.plain_http.key_file];
        for path in own.into_iter().chain(shared).flatten() {
            *path = folder.join(&path);
        }
        for key in &mut self.tickets.keys {
            match &mut key.public_key {
                KeySource::File(path) => *path = folder.join(&path),
                KeySource::Raw(_) => {}
            }
        }
        self
    }
}

impl Problem {
    fn in_file(self, text: &str, file: &Path) -> ConfigError {
        let (line, column) = position(text, self.offset);
        ConfigError::Invalid { file: file.to_owned(), line, column, message: self.message, hint: self.hint }
    }

    fn at(node: Option<&Node<'_>>, message: String, hint: impl Into<String>) -> Self {
        Self { offset: node.map_or(0, |node| node.span().start), message, hint: hint.into() }
    }
}

fn not_toml(error: &toml::de::Error) -> Problem {
    let offset = error.span().map_or(0, |span| span.start);
    let hint = "see `ropeway config sample` for how a line is written".to_owned();
    Problem { offset, message: error.message().lines().collect::<Vec<_>>().join(", "), hint }
}

/// Finds tables without a key that no default can stand for.
fn missing(root: &Node<'_>) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (list, key, hint) in REQUIRED {
        let mut tables = Vec::new();
        tables_of(root, list, &mut tables);
        for table in tables.into_iter().filter(|table| table.get_ref().get(key).is_none()) {
            problems.push(Problem::at(Some(table), format!("`[[{list}]]` without `{key}`"), hint));
        }
    }
    problems
}

/// Collects the tables of a list, which may stand in the tables of another list.
fn tables_of<'n, 'a>(node: &'n Node<'a>, path: &str, tables: &mut Vec<&'n Node<'a>>) {
    if let DeValue::Array(items) = node.get_ref() {
        items.iter().for_each(|item| tables_of(item, path, tables));
    } else if path.is_empty() {
        tables.extend(node.get_ref().is_table().then_some(node));
    } else {
        let (step, rest) = path.split_once('.').unwrap_or((path, ""));
        if let Some(inner) = node.get_ref().get(step) {
            tables_of(inner, rest, tables);
        }
    }
}

/// Finds values that are good alone and bad together.
fn conflicts(config: &Config, root: &Node<'_>, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    let gateway = &config.gateway;
    let mut check = |is_good: bool, path: &str, message: &str, hint: &str| {
        if !is_good {
            problems.push(Problem::at(find_or_parent(root, path), message.to_owned(), hint));
        }
    };
    check(
        gateway.heartbeat_min <= gateway.heartbeat_max,
        "gateway.heartbeat_min",
        "`heartbeat_min` is longer than `heartbeat_max`",
        "swap them, or set both",
    );
    check(
        gateway.heartbeat_max <= gateway.silence_timeout,
        "gateway.silence_timeout",
        "`silence_timeout` is shorter than `heartbeat_max`: links would be closed between two heartbeats",
        "make it at least as long, better twice",
    );
    check(
        gateway.channel_credit_bytes <= gateway.link_credit_bytes,
        "gateway.channel_credit_bytes",
        "`channel_credit_bytes` is more than `link_credit_bytes`",
        "one channel cannot have more credit than its link",
    );
    check(
        gateway.requests_per_link_max <= gateway.channels_per_link_max,
        "gateway.requests_per_link_max",
        "`requests_per_link_max` is more than `channels_per_link_max`",
        "each request takes a channel: raise the other as well",
    );
    check(
        config.push.payload_bytes_max + PUSH_ENVELOPE_BYTES_MAX <= gateway.frame_bytes_max,
        "push.payload_bytes_max",
        "a message with its envelope of up to 4096 bytes does not fit in `gateway.frame_bytes_max`",
        "lower it or raise the other",
    );
    let tcp_is_twice = twice(gateway.tcp_listen, &gateway.tcp_listen_more);
    let udp_is_twice = twice(gateway.udp_listen, &gateway.udp_listen_more);
    for (is_twice, path) in [(tcp_is_twice, "gateway.tcp_listen_more"), (udp_is_twice, "gateway.udp_listen_more")] {
        check(!is_twice, path, "the gateway would listen on one address twice", "name each address once");
    }
    check(
        config.admin.listen.port() == 0
            || (config.admin.listen != gateway.tcp_listen && !gateway.tcp_listen_more.contains(&config.admin.listen)),
        "admin.listen",
        "the admin API and the gateway have the same address",
        "give the admin API a port of its own",
    );
    check(
        config.tls.cert.is_some() == config.tls.key.is_some(),
        if config.tls.cert.is_some() { "tls.cert" } else { "tls.key" },
        "`cert` and `key` in `[tls]` belong together",
        "give both, or none for those in `gateway.data_dir`",
    );
    problems.extend(nowhere(config, root));
    problems.extend(duplicates(config, root, text));
    problems.extend(one_pipe_in_two_units(config, root));
    problems
}

/// Finds addresses for clients that none can connect to; a socket that listens may be given any port that is free.
fn nowhere(config: &Config, root: &Node<'_>) -> Vec<Problem> {
    let mut paths = Vec::new();
    for (number, unit) in config.units.iter().enumerate() {
        let points = unit.access_points.iter().enumerate().filter(|(_, point)| point.address.port() == 0);
        paths.extend(points.map(|(place, _)| format!("unit.{number}.access_point.{place}.address")));
        let dispatch = unit.dispatch.iter().enumerate().filter(|(_, address)| address.port() == 0);
        paths.extend(dispatch.map(|(place, _)| format!("unit.{number}.dispatch.{place}")));
    }
    for (number, host) in config.hosts.iter().enumerate() {
        let addresses = host.addresses.iter().enumerate().filter(|(_, address)| address.port == Some(0));
        paths.extend(addresses.map(|(place, _)| format!("host.{number}.addresses.{place}")));
    }
    let problem =
        |path: String| Problem::at(find(root, &path), PortError::Zero.to_string(), "write the port that clients reach");
    paths.into_iter().map(problem).collect()
}

/// Finds an access point whose pipe is, by default, called as one of another unit: two gateways with one secret and one name
/// have the same keys, and a request could run at both.
fn one_pipe_in_two_units(config: &Config, root: &Node<'_>) -> Option<Problem> {
    config.pipe.secret_file.as_ref()?;
    let points = config.units.iter().enumerate().flat_map(|(unit, of)| {
        let pipes = of.access_points.iter().enumerate().filter(|(_, point)| point.speaks.contains(&Speaks::Pipe));
        pipes.map(move |(place, point)| (unit, place, point))
    });
    let named: Vec<_> = points.map(|(unit, place, point)| (unit, place, point, config.pipe_name_at(point))).collect();
    let is_elsewhere =
        |unit: usize, name: &str| named.iter().any(|(other, _, _, known)| *other < unit && *known == name);
    let (unit, place, _, name) =
        named.iter().find(|(unit, _, point, name)| point.pipe_name.is_none() && is_elsewhere(*unit, name))?;
    let node = find(root, &format!("unit.{unit}.access_point.{place}"));
    let message = format!("the sealed pipes of two units are both called `{name}`: a request could run at both");
    Some(Problem::at(node, message, "give the points of each gateway their own `pipe_name`"))
}

/// Says whether an address is named twice; one that leaves the port to the system may be.
fn twice(first: SocketAddr, more: &[SocketAddr]) -> bool {
    let all: Vec<_> = std::iter::once(&first).chain(more).filter(|address| address.port() != 0).collect();
    (1..all.len()).any(|place| all[..place].contains(&all[place]))
}

/// Finds routes for the same requests and ticket keys of the same name.
fn duplicates(config: &Config, root: &Node<'_>, text: &str) -> Vec<Problem> {
    let line = |path: &str| find(root, path).map_or(0, |node| position(text, node.span().start).0);
    let mut problems = Vec::new();
    for (index, route) in config.routes.iter().enumerate() {
        let Some(first) = config.routes[..index].iter().position(|earlier| earlier.same_place(route)) else { continue };
        let message = format!("a second route for `{}{}`", route.host, route.path_prefix);
        let hint = format!("the first is in line {}; remove one", line(&format!("route.{first}")));
        problems.push(Problem::at(find(root, &format!("route.{index}")), message, hint));
    }
    for (index, unit) in config.units.iter().enumerate() {
        let Some(first) = config.units[..index].iter().position(|earlier| earlier.name == unit.name) else { continue };
        let message = format!("a second unit \"{}\"", unit.name);
        let hint = format!("the first is in line {}; every unit needs its own name", line(&format!("unit.{first}")));
        problems.push(Problem::at(find(root, &format!("unit.{index}")), message, hint));
    }
    for (index, key) in config.tickets.keys.iter().enumerate() {
        let Some(first) = config.tickets.keys[..index].iter().position(|earlier| earlier.kid == key.kid) else {
            continue;
        };
        let message = format!("a second key with `kid` \"{}\"", key.kid);
        let hint = format!("the first is in line {}; every key needs its own", line(&format!("tickets.key.{first}")));
        problems.push(Problem::at(find(root, &format!("tickets.key.{index}")), message, hint));
    }
    problems
}

/// Finds a value by the names and numbers on the way to it, parted by dots.
fn find<'n, 'a>(root: &'n Node<'a>, path: &str) -> Option<&'n Node<'a>> {
    path.split('.').try_fold(root, |node, step| match step.parse::<usize>() {
        Ok(index) => node.get_ref().get(index),
        Err(_) => node.get_ref().get(step),
    })
}

/// Finds a value, or where it has its default the table it would be in, or the file.
fn find_or_parent<'n, 'a>(root: &'n Node<'a>, path: &str) -> Option<&'n Node<'a>> {
    let parent = path.rsplit_once('.').map_or(path, |(parent, _)| parent);
    find(root, path).or_else(|| find(root, parent))
}

/// Gives line and character, both from 1, of a byte in a text.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// Keys that a table in a list must have.
const REQUIRED: [(&str, &str, &str); 7] = [
    ("host", "name", "say which host this is"),
    ("operator", "name", "say which operator this is"),
    ("route", "upstream", "say where its requests go, such as `upstream = \"http://127.0.0.1:8000\"`"),
    ("tickets.key", "kid", "give the `kid` of the tickets that it signed"),
    ("tickets.key", "public_key", "give a PEM file or the key in Base64"),
    ("unit", "name", "give the site a name"),
    ("unit.access_point", "address", "give the IP and port where clients reach it"),
];

/// Bytes of a configuration file; 1 MiB holds 3000 routes with every key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Bytes around the payload of a push: its id, topic, kind and sequence.
const PUSH_ENVELOPE_BYTES_MAX: usize = 4_096;
