//! Which hosts speak HTTP/3, as they said themselves, and where it was tried in vain.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use crate::Time;

/// What is known of HTTP/3 at the hosts called so far: their `Alt-Svc` headers (RFC 7838), and marks of failure.
///
/// A mark outlives what the host says: a host may promise what a network on the way does not let through. The first failure
/// silences HTTP/3 for [`BROKEN_FIRST`], each further one for twice as long, up to [`BROKEN_MAX`], until it works again.
#[derive(Clone, Debug, Default)]
pub struct AltSvc {
    hosts: BTreeMap<Origin, Host>,
}

/// A host over HTTPS, as a URL names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    /// The host in lower case.
    pub host: String,
    /// The TCP port.
    pub port: u16,
}

#[derive(Clone, Debug, Default)]
struct Host {
    promise: Option<Promise>,
    broken: Option<Broken>,
    touched: Time,
}

#[derive(Clone, Copy, Debug)]
struct Promise {
    port: u16,
    until: Time,
}

#[derive(Clone, Copy, Debug)]
struct Broken {
    until: Time,
    failures: u32,
}

impl AltSvc {
    /// Makes a memory of nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { hosts: BTreeMap::new() }
    }

    /// Takes in the `Alt-Svc` header of an answer that came over HTTPS: all its lines, joined by commas.
    ///
    /// What it says replaces what the host said before. Only HTTP/3 at the same host is heeded; a malformed header changes nothing.
    pub fn handle_header(&mut self, origin: &Origin, value: &str, now: Time) {
        let Some(said) = parse(value, &origin.host) else { return };
        if said.is_none() && !self.hosts.contains_key(origin) {
            return;
        }
        self.host(origin, now).promise = said.map(|(port, fresh)| Promise { port, until: now + fresh.min(FRESH_MAX) });
    }

    /// Takes in that HTTP/3 did not work where TCP did.
    pub fn handle_broken(&mut self, origin: &Origin, now: Time) {
        let host = self.host(origin, now);
        let failures = host.broken.map_or(0, |broken| broken.failures);
        let pause = BROKEN_FIRST.saturating_mul(1 << failures.min(DOUBLINGS_MAX)).min(BROKEN_MAX);
        host.broken = Some(Broken { until: now + pause, failures: failures + 1 });
    }

    /// Takes in that HTTP/3 worked.
    pub fn handle_works(&mut self, origin: &Origin) {
        if let Some(host) = self.hosts.get_mut(origin) {
            host.broken = None;
        }
    }

    /// Returns the UDP port on which the host has promised HTTP/3, unless the promise is old or was tried in vain.
    #[must_use]
    pub fn port(&self, origin: &Origin, now: Time) -> Option<u16> {
        let promise = self.hosts.get(origin)?.promise.filter(|promise| now < promise.until)?;
        (!self.is_broken(origin, now)).then_some(promise.port)
    }

    /// Says whether HTTP/3 was tried in vain, and is not to be tried yet.
    #[must_use]
    pub fn is_broken(&self, origin: &Origin, now: Time) -> bool {
        self.hosts.get(origin).and_then(|host| host.broken).is_some_and(|broken| now < broken.until)
    }

    /// Returns how many hosts are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.hosts.len()
    }

    /// Says whether no host is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }

    fn host(&mut self, origin: &Origin, now: Time) -> &mut Host {
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(origin) {
            let oldest = self.hosts.iter().min_by_key(|(_, host)| host.touched).map(|(origin, _)| origin.clone());
            if let Some(oldest) = oldest {
                self.hosts.remove(&oldest);
            }
        }
        let host = self.hosts.entry(origin.clone()).or_default();
        host.touched = now;
        host
    }
}

/// Reads a header: the port of HTTP/3 and how long it may be relied upon, `Some(None)` if there is none, `None` if it is malformed.
fn parse(value: &str, host: &str) -> Option<Option<(u16, Duration)>> {
    let value = value.trim();
    if value == "clear" {
        return Some(None);
    }
    let mut found = None;
    for entry in split(value, ',').take(ENTRIES_MAX) {
        let mut parts = split(entry, ';');
        let (protocol, authority) = parts.next()?.split_once('=')?;
        let authority = authority.trim().strip_prefix('"')?.strip_suffix('"')?;
        let mut fresh = FRESH_DEFAULT;
        for parameter in parts {
            let (name, told) = parameter.split_once('=')?;
            if name.trim().eq_ignore_ascii_case("ma") {
                fresh = Duration::from_secs(told.trim().trim_matches('"').parse().ok()?);
            }
        }
        let (named, port) = authority.rsplit_once(':')?;
        let port: u16 = port.parse().ok()?;
        let is_here = named.is_empty() || named.eq_ignore_ascii_case(host);
        if protocol.trim() == "h3" && is_here && port > 0 && !fresh.is_zero() {
            found = found.or(Some((port, fresh)));
        }
    }
    Some(found)
}

/// Splits at a separator, except within quotes; a quoted pair is taken as it stands, since no authority has one.
fn split(text: &str, separator: char) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    text.split(move |letter| {
        quoted ^= letter == '"';
        letter == separator && !quoted
    })
    .map(str::trim)
}

/// How long a promise counts that does not say it. 24 h; RFC 7838 section 3.1.
const FRESH_DEFAULT: Duration = Duration::from_hours(24);

/// The longest a promise counts. 30 days; our choice: what a host's owner forgot is not believed for ever.
const FRESH_MAX: Duration = Duration::from_hours(30 * 24);

/// How long HTTP/3 is left alone after its first failure. 5 min; Chromium `broken_alternative_services.cc`.
pub const BROKEN_FIRST: Duration = Duration::from_mins(5);

/// The longest it is left alone. 48 h; Chromium `broken_alternative_services.cc`.
pub const BROKEN_MAX: Duration = Duration::from_hours(48);

/// Doublings of the pause that are counted: ten reach [`BROKEN_MAX`].
const DOUBLINGS_MAX: u32 = 10;

/// Returns the UDP port of HTTP/3 at an address of a host, one `among` those that are known. `promised` is the port that the host names;
/// `is_said` says that a list or the app has it at the ports of the addresses.
///
/// Where the promised port is that of an address, each has HTTP/3 at its own: they are gateways on one machine, of which one spoke.
#[must_use]
pub fn h3_port(promised: Option<u16>, is_said: bool, address: SocketAddr, among: &[SocketAddr]) -> Option<u16> {
    let is_own = promised.map_or(is_said, |port| among.iter().any(|known| known.port() == port));
    is_own.then_some(address.port()).or(promised)
}

/// Hosts remembered. 500; Chromium `http_server_properties.h` keeps as many.
const HOSTS_MAX: usize = 500;

/// Alternatives of one header that are looked at. 16; our choice: real ones have two or three.
const ENTRIES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        Origin { host: "api.test".into(), port: 443 }
    }

    fn after(time: Duration) -> Time {
        Time::ZERO + time
    }

    #[test]
    fn http3_is_at_the_promised_port_or_at_each_addresses_own() {
        let [one, other] = [8_443, 9_443].map(|port| SocketAddr::from(([192, 0, 2, 1], port)));
        let port = |promised, is_said| h3_port(promised, is_said, other, &[one, other]);
        assert_eq!(port(Some(443), true), Some(443));
        assert_eq!(port(Some(8_443), false), Some(9_443), "the other gateway spoke for itself");
        assert_eq!((port(None, true), port(None, false)), (Some(9_443), None));
    }

    fn said(value: &str) -> AltSvc {
        let mut known = AltSvc::new();
        known.handle_header(&origin(), value, Time::ZERO);
        known
    }

    #[test]
    fn the_port_of_http3_is_found_among_what_a_host_says() {
        for (value, port) in [
            ("h3=\":443\"", Some(443)),
            ("h3=\":8443\"; ma=60; persist=1", Some(8443)),
            ("h2=\":444\", h3-29=\":445\", h3=\"API.test:446\" ; ma=\"60\"", Some(446)),
            ("h3=\":447\", h3=\":448\"", Some(447)),
            ("h3=\"other.test:443\"", None),
            ("h3=\":443\"; ma=0", None),
            ("h2=\":443\"", None),
            ("h3=\":0\"", None),
        ] {
            assert_eq!(said(value).port(&origin(), Time::ZERO), port, "{value}");
        }
    }

    #[test]
    fn what_is_malformed_changes_nothing_and_never_panics() {
        for value in [
            "",
            "h3",
            "h3=443",
            "h3=\":x\"",
            "h3=\":443\"; ma=soon",
            "h3=\":443\"; ma",
            "\"",
            ";;;,,,",
            "h3=\":99999\"",
        ] {
            let mut known = said("h3=\":443\"");
            known.handle_header(&origin(), value, Time::ZERO);
            assert_eq!(known.port(&origin(), Time::ZERO), Some(443), "{value}");
            assert!(said(value).is_empty(), "{value}");
        }
    }

    #[test]
    fn a_promise_ends_with_its_time_or_when_it_is_taken_back() {
        let mut known = said("h3=\":443\"; ma=60");
        assert_eq!(known.port(&origin(), after(Duration::from_secs(59))), Some(443));
        assert_eq!(known.port(&origin(), after(Duration::from_secs(60))), None);
        known.handle_header(&origin(), "h3=\":443\"; ma=99999999999", Time::ZERO);
        assert_eq!(known.port(&origin(), after(FRESH_MAX)), None);
        assert_eq!(known.port(&origin(), after(FRESH_MAX / 2)), Some(443));
        for value in ["clear", "h2=\":443\""] {
            let mut known = said("h3=\":443\"");
            known.handle_header(&origin(), value, Time::ZERO);
            assert_eq!(known.port(&origin(), Time::ZERO), None, "{value}");
        }
    }

    #[test]
    fn broken_http3_is_left_alone_for_twice_as_long_each_time_up_to_two_days() {
        let mut known = said("h3=\":443\"; ma=9999999");
        let mut now = Time::ZERO;
        let mut pause = BROKEN_FIRST;
        for _ in 0..14 {
            known.handle_broken(&origin(), now);
            known.handle_header(&origin(), "h3=\":443\"; ma=9999999", now);
            assert_eq!(known.port(&origin(), now + pause - Duration::from_secs(1)), None, "after {pause:?}");
            now += pause;
            assert_eq!(known.port(&origin(), now), Some(443), "after {pause:?}");
            pause = (2 * pause).min(BROKEN_MAX);
        }
        assert_eq!(pause, BROKEN_MAX);
        known.handle_works(&origin());
        known.handle_broken(&origin(), now);
        assert!(known.is_broken(&origin(), now) && !known.is_broken(&origin(), now + BROKEN_FIRST));
    }

    #[test]
    fn a_crowd_of_hosts_pushes_the_oldest_out() {
        let mut known = AltSvc::new();
        for number in 0..=HOSTS_MAX {
            let crowd = Origin { host: format!("{number}.test"), port: 443 };
            known.handle_header(&crowd, "h3=\":443\"", after(Duration::from_secs(number as u64)));
        }
        assert_eq!(known.len(), HOSTS_MAX);
        let now = after(Duration::from_secs(HOSTS_MAX as u64));
        assert_eq!(known.port(&Origin { host: "0.test".into(), port: 443 }, now), None);
        assert_eq!(known.port(&Origin { host: "1.test".into(), port: 443 }, now), Some(443));
    }
}
