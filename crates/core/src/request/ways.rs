//! Which way a request takes.

use std::{collections::BTreeSet, fmt, str::FromStr};

use thiserror::Error;

use crate::policy::{LadderStep, RouteRules, TRIES_MAX};

/// One particular means of getting a request across.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Way {
    /// A short link to an address of the access list, with the name, the `Host` and the certificate of the URL.
    Address,
    /// An exchange on the link to a gateway.
    Link,
    /// A short link to the host of the URL by its name.
    Name,
    /// The URL once more as any client would call it: the system's name servers, TCP, a connection of its own.
    Original,
    /// A sealed pipe through a gateway.
    Pipe,
    /// Plain HTTP to a gateway, which signs its answer.
    Plain,
}

impl Way {
    /// Every way, in the order of the default ladder.
    pub const ALL: [Self; 6] = [Self::Link, Self::Name, Self::Address, Self::Pipe, Self::Plain, Self::Original];

    /// Returns the way's name as configuration, logs, metrics and timelines spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Link => "link",
            Self::Name => "name",
            Self::Original => "original",
            Self::Pipe => "pipe",
            Self::Plain => "plain",
        }
    }

    /// Says whether requests and answers go this way in one piece, and so only up to a size.
    #[must_use]
    pub const fn is_held(self) -> bool {
        match self {
            Self::Pipe | Self::Plain => true,
            Self::Address | Self::Link | Self::Name | Self::Original => false,
        }
    }

    /// Says whether a gateway serves what goes this way, under what it serves at all.
    #[must_use]
    pub const fn needs_gateway(self) -> bool {
        match self {
            Self::Link | Self::Pipe | Self::Plain => true,
            Self::Address | Self::Name | Self::Original => false,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Way {
    type Err = UnknownWay;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|way| way.as_str() == name).ok_or(UnknownWay)
    }
}

/// A name that is none of the ways'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("unknown way, expected one of link, name, address, pipe, plain, original")]
#[non_exhaustive]
pub struct UnknownWay;

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

/// What of a request decides which ways it may take.
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
    /// Bytes of its body, where that is known.
    pub body_bytes: Option<u64>,
}

/// What there is to take a request across.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtHand {
    /// There is an access point for a link, or there will be.
    pub access_point: bool,
    /// Addresses that the access list has for the host.
    pub addresses: usize,
    /// Gateways that serve the sealed pipe.
    pub pipes: usize,
    /// Gateways that serve plain HTTP.
    pub plains: usize,
}

/// The ways of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The ways in their order, each with at least one try.
    pub steps: Vec<LadderStep>,
    /// It is known whether the gateways serve the host. Until then nothing is sent on a link: only its WELCOME says.
    pub is_known: bool,
}

/// Why no way may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// This way is wanted and there is nowhere to take it to.
    NotAtHand(Way),
    /// The request would cross the network in the clear, and nobody allowed that (DESIGN section 8: plain HTTP is never silent).
    PlainHttp,
    /// The policy leaves no way to this host.
    Policy,
}

/// Chooses the ways of a request and their order. `hosts` is `None` until the first WELCOME.
///
/// Of the ways that the rules name stay those that there is anything for. The gateways are left out for a host that they do not
/// serve; where the name alone is left then, it has every try that a way may have.
///
/// # Errors
///
/// [`NoPlan`] if no way may be taken.
pub fn plan(target: &Target<'_>, hosts: Option<&Hosts>, rules: &RouteRules, at_hand: AtHand) -> Result<Plan, NoPlan> {
    let is_served = hosts.map(|hosts| hosts.serve(target.host, target.port));
    let is_clear = !target.encrypted && !target.plain_http;
    if let Some(way) = target.forced {
        if is_clear && !way.needs_gateway() || way == Way::Plain && !rules.plain_http {
            return Err(NoPlan::PlainHttp);
        }
        if !target.is_at_hand(way, at_hand) {
            return Err(NoPlan::NotAtHand(way));
        }
        let named = rules.ladder.iter().find(|step| step.way == way);
        return Ok(Plan { steps: vec![LadderStep { way, tries: named.map_or(1, |step| step.tries) }], is_known: true });
    }
    let may_be_taken = |step: &&LadderStep| {
        let is_open = if step.way.needs_gateway() { is_served != Some(false) } else { !is_clear };
        is_open && target.is_at_hand(step.way, at_hand)
    };
    let mut steps: Vec<LadderStep> = rules.ladder.iter().filter(may_be_taken).copied().collect();
    if steps.is_empty() {
        // Where the app's word would open no way either, it is not what is missing.
        let is_closed = |step: &LadderStep| !step.way.needs_gateway() && target.is_at_hand(step.way, at_hand);
        let is_forbidden = is_clear && rules.ladder.iter().any(is_closed);
        return Err(if is_forbidden { NoPlan::PlainHttp } else { NoPlan::Policy });
    }
    if steps.iter().all(|step| matches!(step.way, Way::Name | Way::Original)) {
        steps.iter_mut().filter(|step| step.way == Way::Name).for_each(|step| step.tries = TRIES_MAX);
    }
    let is_known = is_served.is_some() || !at_hand.access_point;
    Ok(Plan { steps, is_known })
}

impl Target<'_> {
    fn is_at_hand(&self, way: Way, at_hand: AtHand) -> bool {
        let is_held = self.body_bytes.is_some_and(|bytes| bytes <= HELD_BYTES_MAX);
        match way {
            Way::Address => at_hand.addresses > 0,
            Way::Link => at_hand.access_point,
            Way::Name | Way::Original => true,
            Way::Pipe => at_hand.pipes > 0 && is_held,
            Way::Plain => at_hand.plains > 0 && is_held,
        }
    }
}

/// Served authorities that are kept; as many as fit a WELCOME of one frame, 64 KiB, at 60 bytes each.
const HOSTS_MAX: usize = 1_000;

/// Bytes of a body that the sealed pipe and plain HTTP take, which send it whole: 1,000,000. With a head of up to 32 KiB it fits in
/// the 1 MiB that gateways take by default.
pub const HELD_BYTES_MAX: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: Target<'_> =
        Target { host: "api.test", port: 443, encrypted: true, plain_http: false, forced: None, body_bytes: Some(0) };

    const LINK: AtHand = AtHand { access_point: true, addresses: 0, pipes: 0, plains: 0 };
    const ALL: AtHand = AtHand { access_point: true, addresses: 2, pipes: 2, plains: 2 };

    fn rules_of(ladder: &[(Way, u8)]) -> RouteRules {
        let ladder = ladder.iter().map(|(way, tries)| LadderStep { way: *way, tries: *tries }).collect();
        RouteRules { ladder, ..RouteRules::default() }
    }

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

    fn steps(plan: Result<Plan, NoPlan>) -> String {
        let plan = plan.unwrap();
        let step = |step: &LadderStep| format!("{}:{}", step.way, step.tries);
        let steps: Vec<String> = plan.steps.iter().map(step).collect();
        format!("{}{}", steps.join(" "), if plan.is_known { "" } else { ", if it is served" })
    }

    #[test]
    fn served_hosts_have_every_way_that_there_is_anything_for() {
        let (hosts, rules) = (Hosts::new(["api.test"]), RouteRules::default());
        let planned = |at_hand| steps(plan(&TARGET, Some(&hosts), &rules, at_hand));
        assert_eq!(planned(LINK), "link:3 name:1 original:1");
        assert_eq!(planned(ALL), "link:3 name:1 address:2 pipe:2 original:1");
        let plain = RouteRules { plain_http: true, ..rules_of(&[(Way::Pipe, 1), (Way::Plain, 3), (Way::Link, 1)]) };
        assert_eq!(steps(plan(&TARGET, Some(&hosts), &plain, ALL)), "pipe:1 plain:3 link:1");
    }

    #[test]
    fn gateways_are_left_out_for_hosts_they_do_not_serve() {
        let (hosts, rules) = (Hosts::new(["api.test"]), RouteRules::default());
        let other = Target { host: "example.org", ..TARGET };
        assert_eq!(steps(plan(&other, Some(&hosts), &rules, LINK)), "name:3 original:1");
        assert_eq!(steps(plan(&other, Some(&hosts), &rules, ALL)), "name:1 address:2 original:1");
        assert_eq!(steps(plan(&other, None, &rules, LINK)), "link:3 name:1 original:1, if it is served");
        assert_eq!(steps(plan(&other, None, &rules, AtHand::default())), "name:3 original:1");
        assert_eq!(plan(&other, Some(&hosts), &rules_of(&[(Way::Link, 3)]), ALL), Err(NoPlan::Policy));
    }

    #[test]
    fn plain_http_needs_the_apps_word_unless_the_gateway_is_reached_encrypted() {
        let (hosts, rules) = (Hosts::new(["api.test"]), RouteRules::default());
        let plain = Target { encrypted: false, port: 80, ..TARGET };
        assert_eq!(steps(plan(&plain, Some(&hosts), &rules, ALL)), "link:3 pipe:2");
        let other = Target { host: "example.org", ..plain };
        assert_eq!(plan(&other, Some(&hosts), &rules, ALL), Err(NoPlan::PlainHttp));
        let pipe = rules_of(&[(Way::Pipe, 1)]);
        assert_eq!(plan(&other, Some(&hosts), &pipe, LINK), Err(NoPlan::Policy), "the app's word would not help");
        let allowed = Target { plain_http: true, ..other };
        assert_eq!(steps(plan(&allowed, Some(&hosts), &rules, LINK)), "name:3 original:1");
    }

    #[test]
    fn a_body_that_cannot_be_held_goes_where_it_may_stream() {
        let (hosts, rules) = (Hosts::new(["api.test"]), RouteRules::default());
        for body_bytes in [None, Some(HELD_BYTES_MAX + 1)] {
            let large = Target { body_bytes, ..TARGET };
            assert_eq!(steps(plan(&large, Some(&hosts), &rules, ALL)), "link:3 name:1 address:2 original:1");
        }
    }

    #[test]
    fn a_forced_way_is_taken_or_refused_and_never_replaced() {
        let rules = RouteRules::default();
        let forced = |way| Target { host: "example.org", forced: Some(way), ..TARGET };
        assert_eq!(steps(plan(&forced(Way::Link), None, &rules, LINK)), "link:3");
        assert_eq!(steps(plan(&forced(Way::Name), Some(&Hosts::new(["*"])), &rules, LINK)), "name:1");
        for way in [Way::Link, Way::Address, Way::Pipe] {
            assert_eq!(plan(&forced(way), None, &rules, AtHand::default()), Err(NoPlan::NotAtHand(way)));
        }
        assert_eq!(plan(&forced(Way::Plain), None, &rules, ALL), Err(NoPlan::PlainHttp));
        let clear = Target { encrypted: false, ..forced(Way::Original) };
        assert_eq!(plan(&clear, None, &rules, ALL), Err(NoPlan::PlainHttp));
    }

    #[test]
    fn every_way_is_known_by_its_name() {
        for way in Way::ALL {
            assert_eq!(way.as_str().parse(), Ok(way));
        }
        assert_eq!("direct".parse::<Way>(), Err(UnknownWay));
    }
}
