//! What becomes of a configuration.

use ropeway_core::wire::list::Verifier;

use super::*;

const EPOCH_MS: u64 = 1_800_000_000_000;

fn addresses(tcp: &str, udp: &str) -> Addresses {
    let [admin, tcp, udp] = ["127.0.0.1:1", tcp, udp].map(|address| address.parse().unwrap());
    Addresses { admin, tcp, tcp_more: Vec::new(), udp, udp_more: Vec::new() }
}

fn made(text: &str) -> AccessList {
    made_at(text, addresses("192.0.2.9:443", "192.0.2.9:443"))
}

fn made_at(text: &str, addresses: Addresses) -> AccessList {
    let config = Config::parse(text, "ropeway.toml".as_ref()).unwrap();
    // What a gateway knows without a shared secret.
    made_with(&config, &addresses, &[config.pipe_name()])
}

/// Makes the list of a gateway that knows the keys of these pipes.
fn made_with(config: &Config, addresses: &Addresses, pipes: &[&str]) -> AccessList {
    let key = |name: &&str| PipeKey { key_id: 1, config: "key".into(), expires_ms: EPOCH_MS, name: (*name).to_owned() };
    let keys = Keys { pipe: pipes.iter().map(key).collect(), plain: Vec::new() };
    list(config, addresses, &keys, &vec![Some(Duration::from_millis(500))], EPOCH_MS)
}

/// The names of the pipes that clients may use, in the order of the access points.
fn pipes_of(list: &AccessList) -> Vec<&str> {
    let points = list.units.iter().flat_map(|unit| &unit.access_points);
    points.filter(|point| point.serves_pipe).map(|point| point.pipe_name.as_str()).collect()
}

const TWO_SITES: &str = r#"
[gateway]
name = "gw.test"
[[route]]
host = "api.test"
upstream = "builtin:echo"
plain_http = true
upstream_honours_keys = true
[[route]]
host = "own.test"
upstream = "builtin:echo"
[[route]]
host = "*"
upstream = "builtin:echo"
[[unit]]
name = "north"
slots = ["0-32767"]
dispatch = ["192.0.2.1:443"]
[[unit.access_point]]
address = "192.0.2.1:443"
speaks = ["quic", "tls", "ws", "h3", "pipe"]
operator = "one"
[[unit.access_point]]
address = "192.0.2.2:8443"
speaks = ["tls"]
operator = "two"
[[unit]]
name = "south"
slots = ["32768-65535"]
users = ["alice"]
[[unit.access_point]]
address = "[2001:db8::3]:443"
gateway = "south.test"
[[unit.access_point]]
address = "198.51.100.4:80"
speaks = ["pipe", "plain"]
[[host]]
name = "own.test"
addresses = ["10.0.0.1", "10.0.0.2:8443"]
private = true
route_key = "tenant"
[[operator]]
name = "one"
prefixes = ["203.0.113.0/24"]
[[operator]]
name = "two"
prefixes = ["203.0.0.0/16", "203.0.113.128/25"]
[list]
ttl = "1h"
bans = ["192.0.2.66"]
[policy]
gap = "8s"
[[policy.route]]
host = "api.test"
ladder = ["pipe:3", "link:1"]
"#;

#[test]
fn sites_hosts_and_users_are_told_as_they_were_configured() {
    let list = made(TWO_SITES);
    assert_eq!((list.epoch_ms, list.expires_ms), (EPOCH_MS, EPOCH_MS + 3_600_000));
    let [north, south] = &list.units[..] else { panic!("{:?}", list.units) };
    let point = &north.access_points[0];
    assert_eq!((point.carriers.len(), point.serves_h3, point.serves_pipe, point.serves_plain), (3, true, true, false));
    assert_eq!((point.gateway.as_str(), south.access_points[0].gateway.as_str()), ("gw.test", "south.test"));
    assert!(south.access_points[1].carriers.is_empty() && south.access_points[1].serves_plain);
    assert_eq!(list.unit_map.unit_of("alice"), Some("south"));
    assert!(list.unit_map.unit_of("bob").is_some());
    assert!(list.is_banned("192.0.2.66:1".parse().unwrap(), EPOCH_MS));
    assert_eq!(AccessList::decode(&list.encode()), Ok(list));
}

#[test]
fn hosts_of_routes_are_at_every_front_door_one_site_after_the_other() {
    let list = made(TWO_SITES);
    let names: Vec<_> = list.hosts.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(names, ["api.test", "own.test"]);
    let texts = |host: &Host| host.addresses.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(texts(&list.hosts[0]), ["192.0.2.1:443", "[2001:db8::3]:443", "192.0.2.2:8443"]);
    assert!(list.hosts[0].speaks_h3 && !list.hosts[0].private);
    assert_eq!(texts(&list.hosts[1]), ["10.0.0.1", "10.0.0.2:8443"]);
    assert_eq!((list.hosts[1].private, list.hosts[1].route_key.as_str()), (true, "tenant"));
}

#[test]
fn the_policy_says_what_its_section_and_the_routes_say() {
    let policy = made(TWO_SITES).policy;
    let rules = policy.route("api.test", "/x");
    assert_eq!((policy.epoch_ms, policy.gap), (EPOCH_MS, Some(Duration::from_secs(8))));
    assert_eq!(rules.server_time, Some(Duration::from_millis(500)));
    assert_eq!(
        rules.ladder.iter().map(|rung| (rung.way.as_str(), rung.tries)).collect::<Vec<_>>(),
        [("pipe", 3), ("link", 1)]
    );
    assert!(rules.plain_http && rules.idempotency_keys && !policy.route("own.test", "/").plain_http);
    let plain = "[[route]]\nhost = \"a.test\"\npath_prefix = \"/p\"\nupstream = \"builtin:echo\"\nplain_http = true\n";
    let policy = made(plain).policy;
    assert!(policy.route("a.test", "/p/1").plain_http && !policy.route("a.test", "/").plain_http);
    let broad = "[[route]]\nhost = \"*.test\"\nupstream = \"builtin:echo\"\nplain_http = true\n\
                 [[route]]\nhost = \"a.test\"\nupstream = \"builtin:echo\"\n[[route]]\nhost = \"b.example\"\nupstream = \"builtin:echo\"\n";
    let config = Config::parse(broad, "ropeway.toml".as_ref()).unwrap();
    let policy = super::policy(&config, &Times::new(), EPOCH_MS);
    assert!(policy.route("c.test", "/").plain_http && !policy.route("a.test", "/").plain_http);
    assert_eq!(policy.routes.len(), 2, "who says nothing and hides nothing is left out");
}

#[test]
fn a_gateway_that_was_told_of_no_site_tells_where_it_listens() {
    let route = "[[route]]\nhost = \"a.test\"\nupstream = \"builtin:echo\"\n";
    let list = made_at(route, addresses("127.0.0.1:1000", "127.0.0.1:2000"));
    let points: Vec<_> =
        list.units[0].access_points.iter().map(|point| (point.address.port(), point.carriers.clone())).collect();
    assert_eq!(points, [(2000, vec![CarrierKind::Quic]), (1000, vec![CarrierKind::Tls, CarrierKind::Ws])]);
    let pipes: Vec<_> = list.units[0].access_points.iter().map(|point| point.serves_pipe).collect();
    assert_eq!(pipes, [false, true], "sealed requests go over tcp");
    assert_eq!(list.units[0].dispatch, ["127.0.0.1:1000".parse().unwrap()]);
    let everywhere = made_at(route, addresses("0.0.0.0:1000", "0.0.0.0:1000"));
    assert!(everywhere.units[0].access_points.is_empty() && everywhere.hosts.is_empty());
}

#[test]
fn a_gateway_tells_of_its_own_pipe_alone_unless_it_knows_the_keys_of_all() {
    let text =
        TWO_SITES.replace("speaks = [\"pipe\", \"plain\"]", "speaks = [\"pipe\", \"plain\"]\npipe_name = \"s-1\"");
    let config = Config::parse(&text, "ropeway.toml".as_ref()).unwrap();
    let addresses = addresses("192.0.2.9:443", "192.0.2.9:443");
    assert_eq!(pipe_names(&config), ["gw.test", "s-1"]);
    assert_eq!(pipes_of(&made_with(&config, &addresses, &["gw.test", "s-1"])), ["gw.test", "s-1"]);
    let own = made_with(&config, &addresses, &["gw.test"]);
    assert_eq!(pipes_of(&own), ["gw.test"]);
    assert_eq!(own.units[1].access_points[1].pipe_name, "");
    assert!(own.units[1].access_points[1].serves_plain, "the rest is as it was");
    assert!(pipes_of(&made_with(&config, &addresses, &[])).is_empty(), "where the pipe is turned off");
}

#[test]
fn the_name_of_a_pipe_is_said_or_that_of_the_certificate() {
    let point =
        |rest: &str| format!("[[unit.access_point]]\naddress = \"192.0.2.1:443\"\nspeaks = [\"pipe\"]\n{rest}\n");
    let points = [point(""), point("gateway = \"other.test\""), point("gateway = \"other.test\"\npipe_name = \"p\"")];
    let text =
        format!("[gateway]\nname = \"gw.test\"\n[pipe]\nname = \"own\"\n[[unit]]\nname = \"u\"\n{}", points.concat());
    let config = Config::parse(&text, "ropeway.toml".as_ref()).unwrap();
    assert_eq!(pipe_names(&config), ["gw.test", "other.test", "p"]);
    assert_eq!(config.pipe_name(), "own");
    let alone = Config::parse("[pipe]\nname = \"own\"", "ropeway.toml".as_ref()).unwrap();
    assert_eq!(pipe_names(&alone), ["own"]);
    let list = made_with(&alone, &addresses("192.0.2.9:443", "192.0.2.9:443"), &["own"]);
    assert_eq!(pipes_of(&list), ["own"]);
}

#[test]
fn a_list_has_room_for_the_keys_of_so_many_pipes() {
    let mut text = String::from("[[unit]]\nname = \"u\"\n");
    for number in 0..PIPE_KEYS_MAX + 9 {
        text += "[[unit.access_point]]\naddress = \"192.0.2.1:443\"\nspeaks = [\"pipe\"]\n";
        text += &format!("pipe_name = \"p{number}\"\n");
    }
    let config = Config::parse(&text, "ropeway.toml".as_ref()).unwrap();
    assert_eq!(pipe_names(&config).len(), PIPE_KEYS_MAX);
}

#[test]
fn a_client_belongs_to_the_operator_of_its_longest_prefix() {
    let config = Config::parse(TWO_SITES, "ropeway.toml".as_ref()).unwrap();
    let of = |client: &str| operator(&config, client.parse().unwrap()).map(str::to_owned);
    assert_eq!(of("203.0.113.1:9"), Some("one".into()));
    assert_eq!(of("[::ffff:203.0.113.200]:9"), Some("two".into()));
    assert_eq!(of("203.0.1.1:9"), Some("two".into()));
    assert_eq!(of("198.51.100.1:9"), None);
}

#[test]
fn a_list_is_believed_by_those_who_carry_its_key() {
    let signer = super::super::ListSigner::generate().unwrap();
    let document = made(TWO_SITES).seal(signer.id(), &|message| signer.sign(message));
    assert!(Verifier::new([signer.key()]).verify(&document, EPOCH_MS).is_ok());
}
