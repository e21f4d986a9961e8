use super::*;

fn router(routes: &[(&str, &str)]) -> Router {
    let specs = routes
        .iter()
        .map(|(host, prefix)| RouteSpec { path_prefix: (*prefix).to_owned(), ..RouteSpec::new(*host, "builtin:echo") });
    Router::new(specs.collect()).expect("valid routes")
}

fn label(router: &Router, authority: &str, path: &str) -> Option<String> {
    router.route(authority, path).map(|route| route.label().to_owned())
}

fn found(label: &str) -> Option<String> {
    Some(label.to_owned())
}

#[test]
fn the_host_matches_in_any_case_on_any_port_and_with_a_root_dot() {
    let router = router(&[("API.test", "/")]);
    assert_eq!(label(&router, "api.TEST", "/x"), found("api.test/"));
    assert_eq!(label(&router, "api.test:8443", "/x"), found("api.test/"));
    assert_eq!(label(&router, "api.test.:8443", "/x"), found("api.test/"));
    assert_eq!(label(&router, "other.test", "/x"), None);
    assert_eq!(label(&router, "sub.api.test", "/x"), None);
}

#[test]
fn a_host_with_a_port_matches_that_port_only_and_wins() {
    let router = router(&[("a.test", "/"), ("a.test:81", "/"), ("b.test:81", "/")]);
    assert_eq!(label(&router, "a.test:81", "/"), found("a.test:81/"));
    assert_eq!(label(&router, "a.test:82", "/"), found("a.test/"));
    assert_eq!(label(&router, "b.test", "/"), None);
}

#[test]
fn addresses_are_hosts_too() {
    let router = router(&[("127.0.0.1", "/"), ("[::1]", "/"), ("[::1]:81", "/v6")]);
    assert_eq!(label(&router, "127.0.0.1:80", "/"), found("127.0.0.1/"));
    assert_eq!(label(&router, "[::1]:80", "/"), found("[::1]/"));
    assert_eq!(label(&router, "[::1]", "/"), found("[::1]/"));
    assert_eq!(label(&router, "[::1]:81", "/v6"), found("[::1]:81/v6"));
}

#[test]
fn a_wildcard_matches_below_its_name_and_gives_way_to_exact_hosts() {
    let router = router(&[
        ("*.example.com", "/"),
        ("*.deep.example.com", "/"),
        ("www.example.com", "/"),
        ("*.ports.test:81", "/"),
    ]);
    assert_eq!(label(&router, "a.example.com", "/"), found("*.example.com/"));
    assert_eq!(label(&router, "a.b.example.com:1", "/"), found("*.example.com/"));
    assert_eq!(label(&router, "x.deep.example.com", "/"), found("*.deep.example.com/"));
    assert_eq!(label(&router, "www.example.com", "/"), found("www.example.com/"));
    assert_eq!(label(&router, "example.com", "/"), None);
    assert_eq!(label(&router, "a.ports.test:81", "/"), found("*.ports.test:81/"));
    assert_eq!(label(&router, "a.ports.test", "/"), None);
}

#[test]
fn the_longest_prefix_wins_on_whole_segments() {
    let router = router(&[("a.test", "/"), ("a.test", "/api"), ("a.test", "/api/v2/")]);
    assert_eq!(label(&router, "a.test", "/api/v2/users"), found("a.test/api/v2"));
    assert_eq!(label(&router, "a.test", "/api/v2"), found("a.test/api/v2"));
    assert_eq!(label(&router, "a.test", "/api/v20"), found("a.test/api"));
    assert_eq!(label(&router, "a.test", "/apiary"), found("a.test/"));
    assert_eq!(label(&router, "a.test", "*"), None);
}

#[test]
fn a_path_with_dot_segments_belongs_to_no_route() {
    let router = router(&[("a.test", "/"), ("a.test", "/api")]);
    for path in
        ["/api/../admin", "/api/%2e%2E/admin", "/api/.%2e/admin", "/api/x/..", "/api/./x", "/api/..\\admin", "/.."]
    {
        assert_eq!(label(&router, "a.test", path), None, "{path}");
    }
    assert_eq!(label(&router, "a.test", "/api/...x/..y/z../.../.h"), found("a.test/api"));
}

#[test]
fn ids_count_up_and_hosts_are_listed_once() {
    let router = router(&[("b.test", "/"), ("A.test", "/"), ("b.test", "/x"), ("*.c.test", "/")]);
    assert_eq!(router.hosts(), ["*.c.test", "a.test", "b.test"]);
    for (index, route) in router.routes().iter().enumerate() {
        assert_eq!(route.id().index(), index);
    }
}

#[test]
fn malformed_routes_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut RouteSpec)| {
        let mut spec = RouteSpec::new("a.test", "builtin:echo");
        change(&mut spec);
        Router::new(vec![spec]).expect_err("must be refused").to_string()
    };
    for host in ["", "a b", "**", "*a", "*:80", "a.*.test", "user@a.test", "a.test:99999", "http://a.test", ":80"] {
        let text = refused(&|spec| spec.host = host.to_owned());
        assert!(text.starts_with("route host"), "{host}: {text}");
    }
    for prefix in ["", "api", "/a?b", "/a//b", "/a/../b", "/a b", "/%41"] {
        let text = refused(&|spec| spec.path_prefix = prefix.to_owned());
        assert!(text.contains("path prefix"), "{prefix}: {text}");
    }
    let text = refused(&|spec| spec.idle_timeout = Duration::ZERO);
    assert_eq!(text, "route a.test /: idle_timeout must not be zero");
    let text = refused(&|spec| spec.upstream = "ftp://x".to_owned());
    assert!(text.starts_with("route a.test: upstream \"ftp://x\""), "{text}");
}

#[test]
fn the_same_host_and_prefix_twice_is_refused() {
    let twice = vec![RouteSpec::new("a.test", "builtin:echo"), RouteSpec::new("A.TEST", "builtin:demo")];
    let error = Router::new(twice).expect_err("must be refused");
    assert!(matches!(error, RouteError::Doubled { .. }), "{error}");
}

#[test]
fn a_star_takes_every_host_that_no_other_route_names() {
    let router = router(&[("*", "/"), ("a.test", "/api"), ("*.b.test", "/")]);
    assert_eq!(label(&router, "x.test:81", "/"), found("*/"));
    assert_eq!(label(&router, "127.0.0.1", "/"), found("*/"));
    assert_eq!(label(&router, "a.test", "/api"), found("a.test/api"));
    assert_eq!(label(&router, "a.test", "/other"), None);
    assert_eq!(label(&router, "x.b.test", "/"), found("*.b.test/"));
}

#[test]
fn a_configured_route_has_the_same_defaults() {
    let config = RouteConfig { host: "a.test".to_owned(), ..RouteConfig::default() };
    assert_eq!(RouteSpec::from(&config), RouteSpec::new("a.test", "builtin:demo"));
}
