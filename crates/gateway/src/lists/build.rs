//! From the configuration to an access list.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use ropeway_core::{
    CarrierKind,
    policy::{DEFAULT_LADDER, Policy, RoutePolicy},
    wire::list::{
        AccessList, AccessPoint, Ban, HOST_ADDRESSES_MAX, HOSTS_MAX, Host, HostAddress, PIPE_KEYS_MAX, PipeKey,
        PlainKey, Unit, UnitMap, UnitRange, user_hash,
    },
};

use crate::{
    config::{AccessPointConfig, Config, RoutePolicyConfig, Speaks, UnitConfig},
    gateway::Addresses,
};

/// What each route's answers may be expected to take, in the order of the routes; `None` where that is not known.
pub(crate) type Times = Vec<Option<Duration>>;

/// Keys of other parts of the gateway that the list makes known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Keys {
    /// Of the sealed pipes that are known, of each the one to use first.
    pub(crate) pipe: Vec<PipeKey>,
    /// Of answers over plain HTTP.
    pub(crate) plain: Vec<PlainKey>,
}

/// Makes the list of a configuration, issued at `epoch_ms`; `times` are those of its routes, in their order.
pub(super) fn list(config: &Config, addresses: &Addresses, keys: &Keys, times: &Times, epoch_ms: u64) -> AccessList {
    let expires_ms = epoch_ms.saturating_add(millis(config.list.ttl));
    let pipes: BTreeSet<&str> = keys.pipe.iter().map(|key| key.name.as_str()).collect();
    let units = units(config, addresses, &pipes);
    let hosts = hosts(config, &units);
    AccessList {
        epoch_ms,
        expires_ms,
        unit_map: unit_map(&config.units, epoch_ms),
        bans: config.list.bans.iter().map(|address| Ban { address: *address, until_ms: expires_ms }).collect(),
        pipe_keys: keys.pipe.clone(),
        plain_keys: keys.plain.clone(),
        policy: policy(config, times, epoch_ms),
        units,
        hosts,
    }
}

/// Names the sealed pipes that the list is to have, in the order of their access points: as many as it has room for keys.
pub(crate) fn pipe_names(config: &Config) -> Vec<&str> {
    if config.units.is_empty() {
        return vec![config.pipe_name()];
    }
    let points = config.units.iter().flat_map(|unit| &unit.access_points);
    let names = points.filter(|point| point.speaks.contains(&Speaks::Pipe)).map(|point| config.pipe_name_at(point));
    let mut seen = BTreeSet::new();
    names.filter(|name| seen.insert(*name)).take(PIPE_KEYS_MAX).collect()
}

/// Makes the sites; `pipes` are the names of the sealed pipes that there are keys of.
fn units(config: &Config, addresses: &Addresses, pipes: &BTreeSet<&str>) -> Vec<Unit> {
    if config.units.is_empty() {
        return vec![own_unit(config, addresses, pipes)];
    }
    let unit = |unit: &UnitConfig| Unit {
        name: unit.name.clone(),
        access_points: unit.access_points.iter().map(|point| access_point(point, config, pipes)).collect(),
        dispatch: unit.dispatch.clone(),
    };
    config.units.iter().map(unit).collect()
}

/// The unit of a gateway that was told of none: where it listens, unless it listens on every address, for it does not know its own.
fn own_unit(config: &Config, addresses: &Addresses, pipes: &BTreeSet<&str>) -> Unit {
    let points = addresses.access_points().into_iter();
    let mut points: Vec<_> = points.map(|(address, carriers)| AccessPoint::new(address, carriers)).collect();
    points.retain(|point| !point.address.ip().is_unspecified());
    for point in &mut points {
        point.gateway.clone_from(&config.gateway.name);
        // One QUIC endpoint has both protocols.
        point.serves_h3 = point.carriers.contains(&CarrierKind::Quic);
        let is_tcp = point.carriers.contains(&CarrierKind::Tls);
        point.serves_pipe = is_tcp && pipes.contains(config.pipe_name());
        if point.serves_pipe {
            config.pipe_name().clone_into(&mut point.pipe_name);
        }
        point.serves_plain = is_tcp && config.routes.iter().any(|route| route.plain_http);
    }
    let dispatch = points.iter().filter(|point| is_web(point)).map(|point| point.address).collect();
    Unit { name: "main".into(), access_points: points, dispatch }
}

fn access_point(point: &AccessPointConfig, config: &Config, pipes: &BTreeSet<&str>) -> AccessPoint {
    let pipe =
        Some(config.pipe_name_at(point)).filter(|name| point.speaks.contains(&Speaks::Pipe) && pipes.contains(name));
    let speaks = |speaks: Speaks| point.speaks.contains(&speaks);
    let carriers = [(Speaks::Quic, CarrierKind::Quic), (Speaks::Tls, CarrierKind::Tls), (Speaks::Ws, CarrierKind::Ws)];
    AccessPoint {
        address: point.address,
        carriers: carriers.into_iter().filter(|(said, _)| speaks(*said)).map(|(_, carrier)| carrier).collect(),
        serves_h3: speaks(Speaks::H3),
        // Without the key of a pipe nobody can use it.
        serves_pipe: pipe.is_some(),
        serves_plain: speaks(Speaks::Plain),
        gateway: point.gateway.clone().unwrap_or_else(|| config.gateway.name.clone()),
        operator: point.operator.clone(),
        region: point.region.clone(),
        pipe_name: pipe.unwrap_or_default().to_owned(),
    }
}

/// The hosts of the configuration, and those of routes: the front door of every access point serves them.
fn hosts(config: &Config, units: &[Unit]) -> Vec<Host> {
    let mut hosts: BTreeMap<&str, Host> = BTreeMap::new();
    for host in &config.hosts {
        let made = Host {
            name: host.name.clone(),
            addresses: host.addresses.clone(),
            speaks_h3: host.speaks_h3,
            route_key: host.route_key.clone(),
            private: host.private,
        };
        hosts.entry(&host.name).or_insert(made);
    }
    let points = || units.iter().flat_map(|unit| &unit.access_points);
    let front: Vec<HostAddress> = spread(units).into_iter().take(HOST_ADDRESSES_MAX).collect();
    for route in config.routes.iter().filter(|route| route.host != "*" && !front.is_empty()) {
        hosts.entry(&route.host).or_insert_with(|| Host {
            name: route.host.clone(),
            addresses: front.clone(),
            speaks_h3: points().any(|point| point.serves_h3),
            route_key: String::new(),
            private: false,
        });
    }
    hosts.into_values().take(HOSTS_MAX).collect()
}

/// The front doors of all units, one of each in turn, so that two tries go to two sites.
fn spread(units: &[Unit]) -> Vec<HostAddress> {
    let mut doors: Vec<_> = units.iter().map(|unit| unit.access_points.iter().filter(|point| is_web(point))).collect();
    let mut spread = Vec::new();
    loop {
        let before = spread.len();
        spread.extend(doors.iter_mut().filter_map(Iterator::next).map(|point| HostAddress::from(point.address)));
        if spread.len() == before {
            return spread;
        }
    }
}

/// TLS ports are front doors as well (DESIGN section 4).
fn is_web(point: &AccessPoint) -> bool {
    point.carriers.iter().any(|carrier| matches!(carrier, CarrierKind::Tls | CarrierKind::Ws))
}

fn unit_map(units: &[UnitConfig], epoch_ms: u64) -> UnitMap {
    let mut map = UnitMap::default();
    for unit in units {
        let range =
            |slots: &crate::config::Slots| UnitRange { first: slots.first, last: slots.last, unit: unit.name.clone() };
        map.ranges.extend(unit.slots.iter().map(range));
        map.overrides.extend(unit.users.iter().map(|user| (user_hash(user), unit.name.clone())));
    }
    if map != UnitMap::default() {
        map.epoch_ms = epoch_ms;
    }
    map
}

/// The policy of the configuration: its routes, and what clients should know of those of the gateway.
pub(super) fn policy(config: &Config, times: &Times, epoch_ms: u64) -> Policy {
    let said = &config.policy;
    let mut routes: Vec<RoutePolicy> = said.routes.iter().map(route_policy).collect();
    for (index, route) in config.routes.iter().enumerate() {
        let is_here = |known: &RoutePolicy| known.host == route.host && known.path_prefix == route.path_prefix;
        let known = routes.iter().position(is_here).unwrap_or_else(|| {
            let place = RoutePolicyConfig {
                host: route.host.clone(),
                path_prefix: route.path_prefix.clone(),
                ..RoutePolicyConfig::default()
            };
            routes.push(route_policy(&place));
            routes.len() - 1
        });
        let known = &mut routes[known];
        known.plain_http = route.plain_http.then_some(true);
        known.idempotency_keys = route.upstream_honours_keys.then_some(true);
        known.server_time = times.get(index).copied().flatten();
    }
    // A route without anything to say still counts where it keeps a broader one from counting.
    let talking: Vec<RoutePolicy> = routes.iter().filter(|route| says_something(route)).cloned().collect();
    routes.retain(|route| says_something(route) || talking.iter().any(|broad| covers(broad, route)));
    Policy {
        epoch_ms,
        first_byte_base: said.first_byte_base,
        first_byte_cap: said.first_byte_cap,
        rate_min_bytes_per_s: said.rate_min_bytes_per_s,
        gap: said.gap,
        stagger_max: said.stagger_max,
        retry_budget_permille: said.retry_budget_permille,
        retry_budget_start: said.retry_budget_start,
        routes,
    }
}

fn says_something(route: &RoutePolicy) -> bool {
    let silent =
        RoutePolicy { host: route.host.clone(), path_prefix: route.path_prefix.clone(), ..RoutePolicy::default() };
    *route != silent
}

/// Says whether a route would count for requests of another, were that not there.
fn covers(broad: &RoutePolicy, narrow: &RoutePolicy) -> bool {
    let host = match broad.host.strip_prefix('*') {
        Some(suffix) => narrow.host.ends_with(suffix),
        None => broad.host == narrow.host,
    };
    host && narrow.path_prefix.starts_with(broad.path_prefix.trim_end_matches('/'))
}

fn route_policy(route: &RoutePolicyConfig) -> RoutePolicy {
    let usual = RoutePolicyConfig::default();
    RoutePolicy {
        host: route.host.clone(),
        path_prefix: route.path_prefix.clone(),
        ladder: if route.ladder == DEFAULT_LADDER { Vec::new() } else { route.ladder.clone() },
        concurrency_max: route.concurrency_max,
        coalesce: (route.coalesce != usual.coalesce).then_some(route.coalesce),
        batch: (route.batch != usual.batch).then_some(route.batch),
        ..RoutePolicy::default()
    }
}

/// Picks the address that clients of one operator are to try first.
pub(super) fn is_of(units: &[Unit], ip: IpAddr, operator: &str) -> bool {
    let mut points = units.iter().flat_map(|unit| &unit.access_points);
    points.any(|point| point.address.ip() == ip && point.operator == operator)
}

/// Finds the operator of a client: the one with the longest prefix that holds the address.
pub(super) fn operator(config: &Config, client: SocketAddr) -> Option<&str> {
    let client = client.ip().to_canonical();
    let fitting = config.operators.iter().flat_map(|operator| {
        let prefixes = operator.prefixes.iter().filter(move |prefix| prefix.0.contains(&client));
        prefixes.map(|prefix| (prefix.0.prefix_len(), operator.name.as_str()))
    });
    fitting.max_by_key(|(length, _)| *length).map(|(_, name)| name)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
