//! Which way a request takes.

use std::{collections::BTreeSet, fmt};

/// One particular means of getting a request across.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// HTTPS to the host the URL names, without a gateway.
    Direct,
    /// An exchange on the link to a gateway.
    Link,
}

impl Way {
    /// Returns the way's name as logs and timelines spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Link => "link",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The authorities that the gateways serve, as WELCOME lists them.
///
/// `api.test` stands for every port, `api.test:8443` for that one, `*.example.com` for every name below it at any depth, and `*`
/// for everything. Case does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    exact: BTreeSet<String>,
    /// What follows the star, without its dot.
    below: BTreeSet<String>,
}

impl Hosts {
    /// Takes a list; what lies beyond 1,000 names is left out.
    #[must_use]
    pub fn new<H: AsRef<str>>(list: impl IntoIterator<Item = H>) -> Self {
        let mut hosts = Self::default();
        for host in list.into_iter().take(HOSTS_MAX) {
            let host = host.as_ref().to_ascii_lowercase();
            match host.strip_prefix('*') {
                Some(below) => hosts.below.insert(below.trim_start_matches('.').to_owned()),
                None => hosts.exact.insert(host),
            };
        }
        hosts
    }

    /// Says whether a host, without and with the port of the URL, is served.
    #[must_use]
    pub fn serve(&self, host: &str, port: u16) -> bool {
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        let with_port = format!("{host}:{port}");
        if self.exact.contains(&host) || self.exact.contains(&with_port) || self.below.contains("") {
            return true;
        }
        let mut rest = host.as_str();
        while let Some((_, parent)) = rest.split_once('.') {
            if self.below.contains(parent) || self.below.contains(&format!("{parent}:{port}")) {
                return true;
            }
            rest = parent;
        }
        false
    }
}

/// Where a request goes, and what the app said about the way.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The host of the URL.
    pub host: &'a str,
    /// Its port, that of the scheme where the URL has none.
    pub port: u16,
    /// The URL says `https`.
    pub encrypted: bool,
    /// The app allows this request to cross the network in the clear.
    pub plain_http: bool,
    /// The app wants this way and no other.
    pub forced: Option<Way>,
}

/// What to do with a request now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Wait for the link: only its WELCOME says whether the gateways serve the host.
    Await,
    /// Send it this way.
    Take(Way),
}

/// Why no way may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoChoice {
    /// The link is wanted and there is no access point to open one to.
    NoAccessPoint,
    /// The request would cross the network in the clear, and nobody allowed that (DESIGN section 8: plain HTTP is never silent).
    PlainHttp,
}

/// Chooses the way of a request. `hosts` is `None` until the first WELCOME, `has_access_point` says whether there will be one.
///
/// # Errors
///
/// [`NoChoice`] if no way may be taken.
pub fn choose(target: &Target<'_>, hosts: Option<&Hosts>, has_access_point: bool) -> Result<Choice, NoChoice> {
    let direct = || {
        if target.encrypted || target.plain_http { Ok(Choice::Take(Way::Direct)) } else { Err(NoChoice::PlainHttp) }
    };
    match (target.forced, hosts) {
        (Some(Way::Direct), _) => direct(),
        (Some(Way::Link), _) if !has_access_point => Err(NoChoice::NoAccessPoint),
        (Some(Way::Link), _) => Ok(Choice::Take(Way::Link)),
        (None, _) if !has_access_point => direct(),
        (None, None) => Ok(Choice::Await),
        (None, Some(hosts)) if hosts.serve(target.host, target.port) => Ok(Choice::Take(Way::Link)),
        (None, Some(_)) => direct(),
    }
}

/// Served authorities that are kept; as many as fit a WELCOME of one frame, 64 KiB, at 60 bytes each.
const HOSTS_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target<'_> = Target { host: "api.test", port: 443, encrypted: true, plain_http: false, forced: None };

    #[test]
    fn names_wildcards_and_ports_are_told_apart() {
        let hosts = Hosts::new(["api.test", "*.Example.com", "one.test:8443"]);
        for (host, port, served) in [
            ("api.test", 443, true),
            ("API.test.", 8443, true),
            ("other.test", 443, false),
            ("example.com", 443, false),
            ("a.example.com", 443, true),
            ("a.b.EXAMPLE.com", 80, true),
            ("notexample.com", 443, false),
            ("one.test", 443, false),
            ("one.test", 8443, true),
        ] {
            assert_eq!(hosts.serve(host, port), served, "{host}:{port}");
        }
        assert!(Hosts::new(["*"]).serve("anything.test", 1));
        assert!(!Hosts::default().serve("anything.test", 1));
    }

    #[test]
    fn served_hosts_go_over_the_link_and_others_directly() {
        let hosts = Hosts::new(["api.test"]);
        assert_eq!(choose(&TARGET, Some(&hosts), true), Ok(Choice::Take(Way::Link)));
        let other = Target { host: "example.org", ..TARGET };
        assert_eq!(choose(&other, Some(&hosts), true), Ok(Choice::Take(Way::Direct)));
        assert_eq!(choose(&TARGET, None, true), Ok(Choice::Await));
        assert_eq!(choose(&TARGET, None, false), Ok(Choice::Take(Way::Direct)));
    }

    #[test]
    fn plain_http_needs_the_apps_word_unless_the_link_encrypts_it() {
        let hosts = Hosts::new(["api.test"]);
        let plain = Target { encrypted: false, port: 80, ..TARGET };
        assert_eq!(choose(&plain, Some(&hosts), true), Ok(Choice::Take(Way::Link)));
        let other = Target { host: "example.org", ..plain };
        assert_eq!(choose(&other, Some(&hosts), true), Err(NoChoice::PlainHttp));
        let allowed = Target { plain_http: true, ..other };
        assert_eq!(choose(&allowed, Some(&hosts), true), Ok(Choice::Take(Way::Direct)));
    }

    #[test]
    fn a_forced_way_is_taken_or_refused_and_never_replaced() {
        let link = Target { host: "example.org", forced: Some(Way::Link), ..TARGET };
        assert_eq!(choose(&link, None, true), Ok(Choice::Take(Way::Link)));
        assert_eq!(choose(&link, None, false), Err(NoChoice::NoAccessPoint));
        let direct = Target { forced: Some(Way::Direct), ..TARGET };
        assert_eq!(choose(&direct, Some(&Hosts::new(["api.test"])), true), Ok(Choice::Take(Way::Direct)));
    }
}
