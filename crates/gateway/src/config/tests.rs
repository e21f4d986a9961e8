use std::path::{Path, PathBuf};
use std::time::Duration;

use proptest::prelude::*;

use super::section::{Key, Shape};
use super::{Builtin, Config, ConfigError, KeySource, LogFormat, RouteConfig, Upstream, UpstreamScheme, sample};

fn parse(text: &str) -> Config {
    Config::parse(text, Path::new("ropeway.toml")).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str) -> String {
    Config::parse(text, Path::new("ropeway.toml")).expect_err("a mistake").to_string()
}

#[test]
fn an_empty_file_is_the_default() {
    assert_eq!(parse("").changed_keys(&Config::default()), Vec::<String>::new());
    assert_eq!(Config::default().gateway.tcp_listen, "127.0.0.1:7443".parse().unwrap());
    assert_eq!(Config::default().gateway.drain_timeout, Duration::from_secs(30));
}

#[test]
fn the_defaults_agree_with_each_other() {
    let written = uncommented(&sample());
    // The sample writes every default, so that a default outside its own rule would be refused here.
    let config = parse(&written);
    let mut expected = Config::default();
    expected.tls.cert = Some(PathBuf::from("./ropeway-data/gateway.pem"));
    expected.tls.key = Some(PathBuf::from("./ropeway-data/gateway.key"));
    expected.admin.token_file = Some(PathBuf::from("./ropeway-data/admin.token"));
    let server_time = Some(Duration::from_millis(200));
    expected.routes.push(RouteConfig { server_time, ..RouteConfig::default() });
    expected.tickets.keys.push(super::TicketKey::default());
    expected.list.key_file = Some(PathBuf::from("./ropeway-data/list.key"));
    expected.plain_http.key_file = Some(PathBuf::from("./ropeway-data/signing.key"));
    expected.pipe.secret_file = Some(PathBuf::from("./pipe.secret"));
    expected.pipe.name = Some("north-1".to_owned());
    let pipe_name = expected.pipe.name.clone();
    let gateway = Some("gw.example.com".to_owned());
    let access_points = vec![super::AccessPointConfig { gateway, pipe_name, ..Default::default() }];
    expected.units.push(super::UnitConfig { access_points, ..Default::default() });
    expected.hosts.push(super::HostConfig::default());
    expected.operators.push(super::OperatorConfig::default());
    assert_eq!((config.policy.gap, config.policy.routes.len()), (Some(Duration::from_secs(8)), 1));
    expected.policy = config.policy.clone();
    assert_eq!(config, expected);
    assert_eq!(config.list_key_path(), Config::default().list_key_path());
    assert_eq!(config.signing_key_path(), Config::default().signing_key_path());
    assert_eq!(config.cert_path(), Config::default().cert_path());
    assert_eq!(config.key_path(), Config::default().key_path());
    assert_eq!(config.admin_token_path(), Config::default().admin_token_path());
}

#[test]
fn the_sample_as_it_is_changes_nothing() {
    assert_eq!(parse(&sample()), Config::default());
}

#[test]
fn the_committed_sample_is_the_generated_one() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/ropeway.sample.toml");
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == sample(),
        "docs/ropeway.sample.toml is out of date; \
         write it with `cargo run -- config sample > docs/ropeway.sample.toml`"
    );
}

#[test]
fn every_key_is_documented_with_a_sentence_and_named_in_snake_case() {
    fn check(keys: &[Key], path: &str) {
        for key in keys {
            let place = format!("{path}.{}", key.name);
            let doc = key.doc.concat();
            assert!(doc.starts_with(' ') && doc.trim_end().ends_with('.'), "{place}: {doc}");
            assert!(key.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'), "{place}");
            match key.shape {
                Shape::Table(inner) | Shape::Tables(inner) => check(&inner(), &place),
                Shape::Value => assert!(!key.value.is_empty(), "{place} has no default and no example"),
            }
        }
    }
    check(&Config::keys(), "");
}

#[test]
fn reads_every_kind_of_value() {
    let config = parse(
        r#"
        [gateway]
        name = "edge.example.net"
        udp_listen = "[::]:443"
        drain_timeout = "1m30s"
        frame_bytes_max = 0x2_0000

        [tickets]
        apps = ["shop", "mail"]
        [[tickets.key]]
        kid = "a"
        public_key = "/etc/issuer.pem"
        [[tickets.key]]
        kid = "b"
        public_key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

        [[route]]
        host = "api.test"
        path_prefix = "/v1"
        upstream = "http://127.0.0.1:8000"
        connect_timeout = "250ms"
        strip_prefix = true
        [[route]]
        upstream = "builtin:echo"

        [log]
        format = "json"
        filter = "warn,ropeway_gateway::config=trace"
        "#,
    );
    assert_eq!(config.gateway.name, "edge.example.net");
    assert_eq!(config.gateway.udp_listen, "[::]:443".parse().unwrap());
    assert_eq!(config.gateway.drain_timeout, Duration::from_secs(90));
    assert_eq!(config.gateway.frame_bytes_max, 131_072);
    assert_eq!(config.tickets.apps, ["shop", "mail"]);
    assert_eq!(config.tickets.keys[0].public_key, KeySource::File("/etc/issuer.pem".into()));
    assert_eq!(config.tickets.keys[1].public_key, KeySource::Raw(std::array::from_fn(|i| i as u8)));
    let [first, second] = &config.routes[..] else { panic!("two routes") };
    assert_eq!((first.host.as_str(), first.path_prefix.as_str()), ("api.test", "/v1"));
    assert_eq!(first.connect_timeout, Duration::from_millis(250));
    assert!(first.strip_prefix && first.preserve_host);
    assert_eq!(first.upstream.to_string(), "http://127.0.0.1:8000");
    assert_eq!((second.host.as_str(), &second.upstream), ("*", &Upstream::Builtin(Builtin::Echo)));
    assert_eq!(config.log.format, LogFormat::Json);
}

#[test]
fn refuses_a_mistake_with_its_place_and_what_to_do() {
    for (text, expected) in [
        ("[[unit]]\nslots = [\"0-1\"]", "1:1: `[[unit]]` without `name`; give the site a name"),
        (
            "[[unit]]\nname = \"n\"\n[[unit.access_point]]\nspeaks = [\"tls\"]",
            "3:1: `[[unit.access_point]]` without `address`; give the IP and port where clients reach it",
        ),
        (
            "[[unit]]\nname = \"n\"\nslots = [\"5-1\"]",
            "3:10: `slots` must be \"FIRST-LAST\" within 0 and 65535, not \"5-1\"; for example `slots = []`",
        ),
        (
            "[[unit]]\nname = \"n\"\n[[unit]]\nname = \"n\"",
            "3:1: a second unit \"n\"; the first is in line 1; every unit needs its own name",
        ),
        ("gatway = 1", "1:1: unknown key `gatway`; did you mean `gateway`?"),
        ("[gateway]\n  nmae = 1", "2:3: unknown key `nmae` in `[gateway]`; did you mean `name`?"),
        (
            "[tls]\nheartbeat_max = 1",
            "2:1: unknown key `heartbeat_max` in `[tls]`; `heartbeat_max` belongs to `[gateway]`",
        ),
        ("[tls]\nkid = 1", "2:1: unknown key `kid` in `[tls]`; `kid` belongs to `[[tickets.key]]`"),
        ("[log]\ncolour = 1", "2:1: unknown key `colour` in `[log]`; known here: format, filter"),
        (
            "[[route]]\nupstream = \"builtin:demo\"\nidle_timout = \"1s\"",
            "3:1: unknown key `idle_timout` in `[[route]]`; did you mean `idle_timeout`?",
        ),
        (
            "[gateway]\ndrain_timeout = 30",
            "2:17: `drain_timeout` must be a time with its unit (d, h, m, s, ms) in quotes, not 30; \
             for example `drain_timeout = \"30s\"`",
        ),
        (
            "[gateway]\ntcp_listen = \"localhost\"",
            "2:14: `tcp_listen` must be an IP address with a port in quotes, not \"localhost\"; \
             for example `tcp_listen = \"127.0.0.1:7443\"`",
        ),
        (
            "[gateway]\nlinks_max = 0",
            "2:13: `links_max` must be from 1 to 10000000, not 0; for example `links_max = 100000`",
        ),
        (
            "[gateway]\nlinks_max = -1",
            "2:13: `links_max` must be a whole number, not -1; for example `links_max = 100000`",
        ),
        (
            "[gateway]\nname = \"Edge\"",
            "2:8: `name` must be a lower-case host name, not \"Edge\"; for example `name = \"localhost\"`",
        ),
        ("gateway = 3", "1:11: `gateway` must be a table, not 3; start it with `[gateway]`"),
        (
            "[route]\nhost = \"a\"",
            "1:1: `route` must be a list, not a table; start each of its tables with `[[route]]`",
        ),
        ("route = [1]", "1:10: `route` must be a table, not 1; start it with `[[route]]`"),
        (
            "[[route]]\nhost = \"a\"",
            "1:1: `[[route]]` without `upstream`; \
             say where its requests go, such as `upstream = \"http://127.0.0.1:8000\"`",
        ),
        (
            "[[route]]\nupstream = \"ftp://a\"",
            "2:12: `upstream`: unknown scheme `ftp`; start it with http://, https://, h2c:// or builtin:",
        ),
        (
            "[[route]]\nupstream = \"http://a\"\n\n[[route]]\nupstream = \"http://b\"",
            "4:1: a second route for `*/`; the first is in line 1; remove one",
        ),
        (
            "[tickets]\nkey = [{ kid = \"a\", public_key = \"x\" }, { kid = \"a\", public_key = \"y\" }]",
            "2:41: a second key with `kid` \"a\"; the first is in line 2; every key needs its own",
        ),
        (
            "[gateway]\n\nchannel_credit_bytes = 2_000_000",
            "3:24: `channel_credit_bytes` is more than `link_credit_bytes`; \
             one channel cannot have more credit than its link",
        ),
        (
            "[push]\npayload_bytes_max = 65536",
            "2:21: a message with its envelope of up to 4096 bytes does not fit in `gateway.frame_bytes_max`; \
             lower it or raise the other",
        ),
        (
            "[tls]\nkey = \"k.pem\"",
            "2:7: `cert` and `key` in `[tls]` belong together; give both, or none for those in `gateway.data_dir`",
        ),
        (
            "[admin]\nlisten = \"127.0.0.1:7443\"",
            "2:10: the admin API and the gateway have the same address; give the admin API a port of its own",
        ),
        (
            "[gateway]\ntcp_listen = \"127.0.0.1:99999\"",
            "2:14: `tcp_listen`: `99999` is no port: ports go from 1 to 65535; \
             write IP:PORT in quotes, such as \"127.0.0.1:7443\"",
        ),
        (
            "[admin]\nlisten = \"[::1]:\"",
            "2:10: `listen`: there is a colon and no port behind it; \
             write IP:PORT in quotes, such as \"127.0.0.1:7443\"",
        ),
        (
            "[[route]]\nupstream = \"http://a:99999\"",
            "2:12: `upstream`: `99999` is no port: ports go from 1 to 65535; \
             write SCHEME://HOST or SCHEME://HOST:PORT",
        ),
        (
            "[[route]]\nupstream = \"http://a:0\"",
            "2:12: `upstream`: port 0 is none that can be connected to: ports go from 1 to 65535; \
             write SCHEME://HOST or SCHEME://HOST:PORT",
        ),
        (
            "[[unit]]\nname = \"n\"\n[[unit.access_point]]\naddress = \"192.0.2.1:0\"",
            "4:11: port 0 is none that can be connected to: ports go from 1 to 65535; \
             write the port that clients reach",
        ),
        (
            "[[unit]]\nname = \"n\"\ndispatch = [\"192.0.2.1:443\", \"192.0.2.1:0\"]",
            "3:30: port 0 is none that can be connected to: ports go from 1 to 65535; \
             write the port that clients reach",
        ),
        (
            "[[host]]\nname = \"a\"\naddresses = [\"192.0.2.1:0\"]",
            "3:14: port 0 is none that can be connected to: ports go from 1 to 65535; \
             write the port that clients reach",
        ),
        (
            "[log]\nfilter = \"loud\"",
            "2:10: `filter` must be levels such as \"info,ropeway_gateway=debug\", not \"loud\"; \
             for example `filter = \"info\"`",
        ),
        (
            "[log]\nformat = \"xml\"",
            "2:10: `format` must be \"json\" or \"text\", not \"xml\"; for example `format = \"text\"`",
        ),
    ] {
        assert_eq!(refusal(text), format!("ropeway.toml:{expected}"), "{text}");
    }
}

#[test]
fn one_name_for_the_pipes_of_two_units_is_refused_unless_it_is_said_or_keys_are_not_shared() {
    let unit = |name: &str, rest: &str| {
        let point = "[[unit.access_point]]\naddress = \"192.0.2.1:443\"\nspeaks = [\"tls\", \"pipe\"]";
        format!("[[unit]]\nname = \"{name}\"\n{point}\n{rest}\n")
    };
    let shared = "[pipe]\nsecret_file = \"pipe.secret\"\n";
    let twice = [unit("north", ""), unit("south", "")].concat();
    assert_eq!(
        refusal(&(shared.to_owned() + &twice)),
        "ropeway.toml:11:1: the sealed pipes of two units are both called `localhost`: a request could run at both; \
         give the points of each gateway their own `pipe_name`"
    );
    parse(&twice);
    for (north, south) in [("", "pipe_name = \"s\""), ("", "gateway = \"s\""), ("", "pipe_name = \"localhost\"")] {
        parse(&[shared, &unit("north", north), &unit("south", south)].concat());
    }
    parse(&[shared, &unit("north", ""), &unit("south", "").replace(", \"pipe\"", "")].concat());
}

#[test]
fn the_name_of_a_pipe_is_one_word_that_a_list_can_hold() {
    parse(&format!("[pipe]\nname = \"{}\"", "x".repeat(253)));
    for name in ["", "two words", "zero\\u0000", &*"x".repeat(254)] {
        let refused = refusal(&format!("[pipe]\nname = \"{name}\""));
        assert!(refused.contains("`name` must be a non-empty name of at most 253 bytes without spaces"), "{refused}");
    }
}

#[test]
fn names_the_first_of_several_mistakes() {
    assert!(refusal("[log]\nfilter = 1\n[gateway]\nname = 1\n").starts_with("ropeway.toml:2:10: `filter`"));
}

#[test]
fn a_file_that_is_not_toml_is_refused_with_its_place() {
    let refused = refusal("[gateway]\nname = \"a\"\nb \n");
    assert_eq!(
        refused,
        "ropeway.toml:3:3: key with no value, expected `=`; see `ropeway config sample` for how a line is written"
    );
    assert!(refusal("[gateway]\nname = \"a\"\nname = \"b\"\n").starts_with("ropeway.toml:3:1: duplicate key"));
}

#[test]
fn columns_count_characters_not_bytes() {
    assert!(refusal("log = { \"größe\" = 1, formt = 2 }").starts_with("ropeway.toml:1:9: unknown key `größe`"));
    assert!(refusal("log = { filter = \"ä\", formt = 2 }").starts_with("ropeway.toml:1:18: `filter`"));
    assert!(refusal("tls = { cert = \"ä\", kex = 2 }").starts_with("ropeway.toml:1:21: unknown key `kex`"));
}

#[test]
fn times_have_units_from_large_to_small() {
    let read = |text: &str| {
        let file = format!("[gateway]\nsession_ttl = \"{text}\"");
        Config::parse(&file, Path::new("")).ok().map(|config| config.gateway.session_ttl)
    };
    for (text, ms) in
        [("0s", 0), ("250ms", 250), ("5m", 300_000), ("9m50s", 590_000), ("1h1ms", 3_600_001), ("1d", 86_400_000)]
    {
        assert_eq!(read(text), Some(Duration::from_millis(ms)), "{text}");
    }
    for text in [
        "",
        "5",
        "s",
        "5x",
        "1s1m",
        "1m1m",
        "-5s",
        "1.5s",
        "5 s",
        "99999999999999999999s",
        "2d",
        "+5s",
        "18446744073709551615d",
    ] {
        assert_eq!(read(text), None, "{text}");
    }
}

#[test]
fn paths_start_at_the_folder_of_the_file() {
    let text = "[tls]\ncert = \"c.pem\"\nkey = \"/abs/k.pem\"\n[[tickets.key]]\nkid = \"a\"\npublic_key = \"i.pem\"\n\
                [pipe]\nsecret_file = \"p.secret\"\n[plain_http]\nkey_file = \"s.key\"";
    let config = Config::parse(text, Path::new("/etc/ropeway/ropeway.toml")).unwrap();
    assert_eq!(config.pipe.secret_file.as_deref(), Some(Path::new("/etc/ropeway/p.secret")));
    assert_eq!(config.signing_key_path(), Path::new("/etc/ropeway/s.key"));
    assert_eq!(config.cert_path(), Path::new("/etc/ropeway/c.pem"));
    assert_eq!(config.key_path(), Path::new("/abs/k.pem"));
    assert_eq!(config.gateway.data_dir, Path::new("/etc/ropeway/./ropeway-data"));
    assert_eq!(config.admin_token_path(), Path::new("/etc/ropeway/ropeway-data/admin.token"));
    assert_eq!(config.tickets.keys[0].public_key, KeySource::File("/etc/ropeway/i.pem".into()));
}

#[test]
fn an_upstream_says_how_to_reach_a_service() {
    for (text, scheme, port) in [
        ("http://a.test", UpstreamScheme::Http, 80),
        ("http://a.test/", UpstreamScheme::Http, 80),
        ("https://a.test", UpstreamScheme::Https, 443),
        ("h2c://[::1]:50051", UpstreamScheme::H2c, 50_051),
    ] {
        let upstream: Upstream = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(matches!(&upstream, Upstream::Http { scheme: found, .. } if *found == scheme), "{text}");
        assert_eq!(upstream.port(), Some(port), "{text}");
        assert_eq!(upstream.to_string().parse(), Ok(upstream));
    }
    for text in [
        "",
        "a.test:80",
        "http://",
        "http://a:99999",
        "http://a:",
        "http://u:p@a",
        "http://a/x",
        "http://a?x",
        "builtin:x",
        "http://a b",
    ] {
        assert!(text.parse::<Upstream>().is_err(), "{text}");
    }
}

#[test]
fn a_route_takes_a_host_the_names_below_one_or_every_host() {
    let read = |host: &str| {
        let text = format!("[[route]]\nhost = \"{host}\"\nupstream = \"builtin:demo\"");
        Config::parse(&text, Path::new("")).is_ok()
    };
    for host in ["*", "*.test", "api.test", "localhost", "10.0.0.1", "[::1]", "_x.a-b.test"] {
        assert!(read(host), "{host}");
    }
    for host in
        ["", "*.", "*.*", "a.*", "**", "API.test", "a..b", ".a", "-a", "a:80", "::1", "*.[::1]", "http://a", "a b"]
    {
        assert!(!read(host), "{host}");
    }
}

#[test]
fn a_route_of_the_command_line_takes_the_place_of_one_in_the_file() {
    let mut config = parse("[[route]]\nhost = \"a\"\nupstream = \"http://old\"\n");
    config.set_route(RouteConfig::new("a", "http://new".parse().unwrap()));
    config.set_route(RouteConfig::new("b", "builtin:echo".parse().unwrap()));
    let routes: Vec<_> = config.routes.iter().map(|route| format!("{} {}", route.host, route.upstream)).collect();
    assert_eq!(routes, ["a http://new", "b builtin:echo"]);
}

#[test]
fn changed_keys_are_named() {
    let old = parse("");
    let new = parse("[gateway]\nname = \"b\"\nlinks_max = 7\n[[route]]\nupstream = \"builtin:demo\"");
    assert_eq!(old.changed_keys(&new), ["gateway.name", "gateway.links_max", "route"]);
}

#[test]
fn a_file_that_cannot_be_read_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ropeway.toml");
    assert!(matches!(Config::load(&file), Err(ConfigError::Read { .. })));
    std::fs::write(&file, b"[log]\nfilter = \"\xff\"").unwrap();
    let error = Config::load(&file).unwrap_err().to_string();
    assert!(error.ends_with("ropeway.toml:2:11: this is not UTF-8; save the file as UTF-8"), "{error}");
    std::fs::write(&file, vec![b'#'; (1 << 20) + 1]).unwrap();
    assert!(matches!(Config::load(&file), Err(ConfigError::TooLarge { .. })));
}

/// Takes away the `#` before keys and headers, as someone who edits the sample does.
fn uncommented(sample: &str) -> String {
    let line = |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned();
    sample.lines().map(line).collect::<Vec<_>>().join("\n")
}

proptest! {
    #[test]
    fn arbitrary_text_is_read_or_refused(text in "\\PC{0,200}") {
        drop(Config::parse(&text, Path::new("x")).map_err(|error| error.to_string()));
    }

    #[test]
    fn a_damaged_sample_is_read_or_refused(
        at in 0usize..10_000,
        cut in 0usize..40,
        put in "[\\x00-\\x7fä\"\\[\\]=]{0,8}",
    ) {
        let mut chars: Vec<char> = uncommented(&sample()).chars().collect();
        let at = at % chars.len();
        let end = (at + cut).min(chars.len());
        chars.splice(at..end, put.chars());
        let text: String = chars.into_iter().collect();
        match Config::parse(&text, Path::new("x")) {
            Ok(_) => {}
            Err(ConfigError::Invalid { line, column, message, hint, .. }) => {
                prop_assert!(line >= 1 && line <= text.matches('\n').count() + 1);
                prop_assert!(column >= 1);
                prop_assert!(!message.is_empty() && !message.contains('\n') && !hint.contains('\n'));
            }
            Err(other) => prop_assert!(false, "{other}"),
        }
    }

    #[test]
    fn any_value_of_any_key_is_read_or_refused(key in 0usize..60, value in prop::sample::select(ODD_VALUES.to_vec())) {
        let written = uncommented(&sample());
        let mut lines: Vec<String> = written.lines().map(str::to_owned).collect();
        let is_key = |line: &str| !line.starts_with('#') && line.contains(" = ");
        let keys: Vec<usize> = (0..lines.len()).filter(|number| is_key(&lines[*number])).collect();
        let line = keys[key % keys.len()];
        let name = lines[line].split_once(" = ").unwrap().0.to_owned();
        lines[line] = format!("{name} = {value}");
        drop(Config::parse(&lines.join("\n"), Path::new("x")).map_err(|error| error.to_string()));
    }
}

/// Values that are wrong for some keys and at the edge for others.
const ODD_VALUES: [&str; 17] = [
    "-1",
    "0",
    "1e9",
    "nan",
    "true",
    "\"\"",
    "\"*\"",
    "[]",
    "[[]]",
    "{}",
    "{ a = 1 }",
    "1979-05-27",
    "99999999999999999999",
    "\"http://\"",
    "\"18446744073709551615ms\"",
    "[\"a\", 1]",
    "'''\n'''",
];
