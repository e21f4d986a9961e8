//! Lookup, defaults and ranges.

use std::time::Duration;

use prost::Message as _;

use super::*;
use crate::request::Way;

fn route(host: &str, path_prefix: &str, server_time_s: u64) -> RoutePolicy {
    RoutePolicy {
        host: host.into(),
        path_prefix: path_prefix.into(),
        server_time: Some(Duration::from_secs(server_time_s)),
        ..RoutePolicy::default()
    }
}

#[test]
fn the_closest_host_wins_then_the_longest_path() {
    let routes = vec![
        route("*", "/", 1),
        route("*.shop.test", "/", 2),
        route("*.eu.shop.test", "/", 3),
        route("api.eu.shop.test", "/", 4),
        route("api.eu.shop.test", "/v1", 5),
        route("api.eu.shop.test", "/v1/", 6),
        route("*.shop.test", "/v1/orders", 7),
    ];
    let policy = Policy { routes, ..Policy::default() };
    for (host, path, server_time_s) in [
        ("other.test", "/v1", 1),
        ("shop.test", "/", 1),
        ("x.shop.test", "/", 2),
        ("x.shop.test", "/v1/orders?page=2", 7),
        ("x.shop.test", "/v1/orders2", 2),
        ("x.eu.shop.test", "/v1/orders", 3),
        ("API.eu.shop.test.", "/v2", 4),
        ("api.eu.shop.test", "/v1", 5),
        ("api.eu.shop.test", "/v1/x", 5),
        ("api.eu.shop.test", "/v10", 4),
    ] {
        let rules = policy.route(host, path);
        assert_eq!(rules.server_time, Some(Duration::from_secs(server_time_s)), "{host}{path}");
    }
}

#[test]
fn without_a_route_the_defaults_hold_and_nothing_crosses_in_the_clear() {
    let rules = Policy::default().route("api.test", "/");
    assert_eq!(rules, RouteRules::default());
    assert!(rules.coalesce && !rules.batch && !rules.plain_http && !rules.idempotency_keys);
    let ways: Vec<_> = rules.ladder.iter().map(|rung| rung.way.as_str()).collect();
    assert_eq!(ways, ["link", "name", "address", "pipe", "original"]);
}

#[test]
fn a_ladder_names_plain_http_only_where_the_route_allows_it() {
    let plain = LadderStep { way: Way::Plain, tries: 3 };
    let never = LadderStep { way: Way::Name, tries: 0 };
    let mut route = RoutePolicy { ladder: vec![never, plain], ..route("*", "/", 0) };
    let rules = |route: &RoutePolicy| Policy { routes: vec![route.clone()], ..Policy::default() }.route("a", "/");
    assert_eq!(rules(&route).ladder, []);
    route.plain_http = Some(true);
    assert_eq!(rules(&route).ladder, [plain]);
}

#[test]
fn values_beyond_their_range_are_brought_into_it() {
    let message = message::Policy {
        first_byte_base_ms: Some(0),
        first_byte_cap_ms: Some(u32::MAX),
        rate_min_bytes_per_s: Some(0),
        gap_ms: Some(1),
        stagger_max_ms: Some(1),
        retry_budget_permille: Some(5_000),
        retry_budget_start: Some(5_000),
        routes: vec![message::RoutePolicy {
            host: "API.test".into(),
            server_time_ms: Some(u32::MAX),
            concurrency_max: Some(0),
            ladder: vec![
                message::Rung { way: message::Way::Pipe.into(), tries: Some(99) },
                message::Rung { way: message::Way::Pipe.into(), tries: Some(1) },
                message::Rung { way: 77, tries: Some(1) },
            ],
            ..message::RoutePolicy::default()
        }],
        ..message::Policy::default()
    };
    let policy = Policy::decode(&message.encode_to_vec()).unwrap();
    assert_eq!(policy.first_byte_base, Some(Duration::from_secs(1)));
    assert_eq!((policy.first_byte_cap, policy.gap), (Some(Duration::from_secs(120)), Some(Duration::from_secs(1))));
    assert_eq!((policy.rate_min_bytes_per_s, policy.stagger_max), (Some(256), Some(Duration::from_millis(100))));
    assert_eq!((policy.retry_budget_permille, policy.retry_budget_start), (Some(1_000), Some(100)));
    let rules = policy.route("api.test", "/x");
    assert_eq!((rules.server_time, rules.concurrency_max), (Some(Duration::from_secs(600)), Some(1)));
    assert_eq!(rules.ladder, [LadderStep { way: Way::Pipe, tries: 3 }]);
}

#[test]
fn a_policy_reads_back_as_it_was_written() {
    let policy = Policy {
        epoch_ms: 7,
        gap: Some(Duration::from_secs(8)),
        routes: vec![RoutePolicy {
            ladder: vec![LadderStep { way: Way::Link, tries: 0 }, LadderStep { way: Way::Original, tries: 2 }],
            coalesce: Some(false),
            plain_http: Some(true),
            ..route("*.test", "/a", 3)
        }],
        ..Policy::default()
    };
    assert_eq!(Policy::decode(&policy.encode()), Ok(policy));
}

#[test]
fn routes_beyond_the_bound_are_left_out_and_no_policy_is_an_error() {
    let routes = (0..ROUTES_MAX + 5).map(|number| route(&format!("h{number}.test"), "/", 1)).collect();
    let policy = Policy { routes, ..Policy::default() };
    assert_eq!(Policy::decode(&policy.encode()).unwrap().routes.len(), ROUTES_MAX);
    assert_eq!(Policy::decode(&[0xff; 8]), Err(PolicyError::Malformed));
    let oversized = vec![0; POLICY_BYTES_MAX + 1];
    assert_eq!(Policy::decode(&oversized), Err(PolicyError::Oversized { bytes: POLICY_BYTES_MAX + 1 }));
}
