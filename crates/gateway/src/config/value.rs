//! The types of values that a key can have, and the tests of what they may hold.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ropeway_core::{request::port_of, wire::list::NAME_BYTES_MAX};
use toml::de::DeValue;

use super::model::LogFormat;
use super::read::{Node, Reader};
use super::section::{Setting, Shape};

impl Setting for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let found = node.get_ref().as_bool();
        found.or_else(|| reader.refuse::<Self>(node))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

macro_rules! integer {
    ($($integer:ty),+) => {$(
        impl Setting for $integer {
            const EXPECTED: &'static str = "a whole number";

            fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
                let found = node.get_ref().as_integer().and_then(|i| Self::from_str_radix(i.as_str(), i.radix()).ok());
                found.or_else(|| reader.refuse::<Self>(node))
            }

            fn write(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

integer!(u32, u64, usize);

impl Setting for String {
    const EXPECTED: &'static str = "a text in quotes";

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let found = node.get_ref().as_str().map(str::to_owned);
        found.or_else(|| reader.refuse::<Self>(node))
    }

    fn write(&self) -> String {
        quoted(self)
    }
}

impl Setting for PathBuf {
    const EXPECTED: &'static str = "a path in quotes";

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let found = node.get_ref().as_str().filter(|path| !path.is_empty()).map(Self::from);
        found.or_else(|| reader.refuse::<Self>(node))
    }

    fn write(&self) -> String {
        quoted(&self.to_string_lossy())
    }
}

impl Setting for SocketAddr {
    const EXPECTED: &'static str = "an IP address with a port in quotes";

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let text = node.get_ref().as_str().unwrap_or_default();
        if let Ok(found) = text.parse() {
            return Some(found);
        }
        match port_of(text) {
            // Without brackets there is nothing that parts an IPv6 address from a port.
            Err(reason) if text.parse::<IpAddr>().is_err() => {
                reader.refuse_because(node, &reason.to_string(), "write IP:PORT in quotes, such as \"127.0.0.1:7443\"");
                None
            }
            Err(_) | Ok(_) => reader.refuse::<Self>(node),
        }
    }

    fn write(&self) -> String {
        quoted(&self.to_string())
    }
}

impl Setting for Duration {
    const EXPECTED: &'static str = "a time with its unit (d, h, m, s, ms) in quotes";

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let found = node.get_ref().as_str().and_then(duration);
        found.or_else(|| reader.refuse::<Self>(node))
    }

    fn write(&self) -> String {
        let mut left_ms = u64::try_from(self.as_millis()).unwrap_or(u64::MAX);
        let mut text = String::new();
        for (unit, unit_ms) in DURATION_UNITS {
            if left_ms >= unit_ms {
                text.push_str(&format!("{}{unit}", left_ms / unit_ms));
                left_ms %= unit_ms;
            }
        }
        quoted(if text.is_empty() { "0s" } else { &text })
    }
}

impl Setting for LogFormat {
    const EXPECTED: &'static str = r#""json" or "text""#;

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        match node.get_ref().as_str() {
            Some("json") => Some(Self::Json),
            Some("text") => Some(Self::Text),
            Some(_) | None => reader.refuse::<Self>(node),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Json => quoted("json"),
            Self::Text => quoted("text"),
        }
    }
}

impl<T: Setting> Setting for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        T::read(node, reader).map(Some)
    }

    fn write(&self) -> String {
        self.as_ref().map(Setting::write).unwrap_or_default()
    }
}

impl<T: Setting> Setting for Vec<T> {
    const EXPECTED: &'static str = "a list";

    fn read(node: &Node<'_>, reader: &mut Reader) -> Option<Self> {
        let DeValue::Array(items) = node.get_ref() else { return reader.refuse::<Self>(node) };
        // Every item is read, so that the problems of all are known; one bad item loses the list.
        items.iter().map(|item| T::read(item, reader)).collect::<Vec<_>>().into_iter().collect()
    }

    fn write(&self) -> String {
        format!("[{}]", self.iter().map(Setting::write).collect::<Vec<_>>().join(", "))
    }

    fn shape() -> Shape {
        match T::shape() {
            Shape::Table(keys) => Shape::Tables(keys),
            Shape::Tables(_) | Shape::Value => Shape::Value,
        }
    }
}

/// Writes a text as a TOML basic string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// Says whether this is a lower-case host name or an IP address as it stands in a URL.
pub(super) fn is_host(host: &str) -> bool {
    let label = |label: &str| {
        (1..=DNS_LABEL_BYTES_MAX).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
    };
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match address {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => host.len() <= DNS_NAME_BYTES_MAX && host.split('.').all(label),
    }
}

/// Says whether this is a host, all names below one (`*.HOST`), or the sign for every host (`*`).
#[must_use]
pub fn is_host_pattern(host: &str) -> bool {
    match host.strip_prefix("*.") {
        Some(parent) => !parent.starts_with('[') && is_host(parent),
        None => host == "*" || is_host(host),
    }
}

/// Says whether requests can have a path that starts like this.
pub(super) fn is_path_prefix(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|b| b.is_ascii_graphic() && b != b'?' && b != b'#')
}

/// Says whether this can name a key or an app.
pub(super) fn is_word(word: &str) -> bool {
    !word.is_empty() && word.chars().all(|c| !c.is_whitespace() && !c.is_control())
}

/// Says whether this can name a sealed pipe, where it is given.
pub(super) fn is_pipe_name_given(name: &Option<String>) -> bool {
    name.as_deref().is_none_or(|name| is_word(name) && name.len() <= NAME_BYTES_MAX)
}

/// Says whether these are log levels, alone or as `module=level`, parted by commas.
#[must_use]
pub fn is_filter(filter: &str) -> bool {
    filter.split(',').map(str::trim).all(|directive| {
        let (module, level) = directive.split_once('=').unwrap_or(("", directive));
        LOG_LEVELS.contains(&level) && module.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
    })
}

/// Reads a time such as `30s`, `250ms` or `9m50s`: units from large to small, each at most once.
#[must_use]
pub fn duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total_ms = 0_u64;
    for (unit, unit_ms) in DURATION_UNITS {
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, tail) = rest.split_at(digits);
        let Some(tail) = tail.strip_prefix(unit) else { continue };
        // `5ms` must not be taken for five minutes.
        if tail.starts_with(|c: char| c.is_ascii_alphabetic()) {
            continue;
        }
        total_ms = total_ms.checked_add(number.parse::<u64>().ok()?.checked_mul(unit_ms)?)?;
        rest = tail;
    }
    (rest.is_empty() && !text.is_empty()).then(|| Duration::from_millis(total_ms))
}

/// The units of a time and their milliseconds, from large to small.
const DURATION_UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The names of sealed pipes, in words; an access list has no longer ones.
pub(super) const PIPE_NAME: &str = "a non-empty name of at most 253 bytes without spaces";

/// Bytes of one label of a DNS name; RFC 1035 section 2.3.4.
const DNS_LABEL_BYTES_MAX: usize = 63;

/// Bytes of a DNS name as text; 255 on the wire by RFC 1035 section 2.3.4, less its first length and its root.
const DNS_NAME_BYTES_MAX: usize = 253;

/// The levels of `tracing`, and `off`.
const LOG_LEVELS: [&str; 6] = ["debug", "error", "info", "off", "trace", "warn"];
