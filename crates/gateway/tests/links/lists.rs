//! The access list as clients get it: over HTTPS, DNS and links.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use hickory_proto::{
    op::{Message, Query, ResponseCode},
    rr::{Name, RecordType},
};
use http::{HeaderMap, Method, StatusCode};
use ropeway_core::{
    CarrierKind,
    policy::Policy,
    session::ClientEvent,
    wire::list::{AccessList, RESOLVE_CONTEXT, Verifier},
};
use ropeway_gateway::config::Config;
use ropeway_net::unix_ms;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    stranger::tls,
    support::{Device, World, in_time},
};

const CONFIG: &str = r#"
[[unit]]
name = "north"
[[unit.access_point]]
address = "192.0.2.1:443"
operator = "far"
[[unit.access_point]]
address = "192.0.2.2:443"
operator = "near"
[[operator]]
name = "near"
prefixes = ["127.0.0.0/8"]
[[host]]
name = "*.shop.test"
addresses = ["192.0.2.1", "192.0.2.2:8443", "2001:db8::1"]
speaks_h3 = true
"#;

async fn world() -> World {
    World::new(configure).await
}

fn configure(config: &mut Config) {
    let said = Config::parse(CONFIG, "ropeway.toml".as_ref()).unwrap();
    config.units = said.units;
    config.hosts = said.hosts;
    config.operators = said.operators;
}

/// One request over TLS and HTTP/1.1; returns status, headers and body.
async fn fetch(world: &World, head: &str, body: &[u8]) -> (u16, HeaderMap, Vec<u8>) {
    let mut stream = tls(world, &[b"http/1.1"]).await.unwrap();
    let head = format!("{head}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    in_time(stream.read_to_end(&mut answer)).await.unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let field = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.parse::<http::HeaderName>().unwrap(), value.parse().unwrap())
    };
    (status, lines.map(field).collect(), answer[end + 4..].to_vec())
}

fn verified(world: &World, document: &[u8]) -> AccessList {
    Verifier::new([world.gateway.list_key()]).verify(document, unix_ms()).unwrap()
}

fn question(name: &str, query_type: RecordType) -> Vec<u8> {
    let mut message = Message::query();
    message.add_query(Query::query(Name::from_ascii(name).unwrap(), query_type));
    message.to_vec().unwrap()
}

/// The texts of the records of an answer, and its code.
fn records(answer: &[u8]) -> (ResponseCode, Vec<String>) {
    let answer = Message::from_vec(answer).unwrap();
    (answer.metadata.response_code, answer.answers.iter().map(|record| record.data.to_string()).collect())
}

#[tokio::test]
async fn the_list_is_fetched_once_and_then_only_when_it_changed() {
    let world = world().await;
    let (status, headers, document) = fetch(&world, "GET /.ropeway/list HTTP/1.1\r\nhost: api.test", b"").await;
    assert_eq!((status, &headers["content-type"]), (200, &"application/vnd.ropeway.list".parse().unwrap()));
    let list = verified(&world, &document);
    assert_eq!((list.units[0].name.as_str(), list.hosts.len()), ("north", 2));
    let tag = headers["etag"].to_str().unwrap();
    assert_eq!(tag, format!("\"{}\"", list.epoch_ms));
    let again = format!("GET /.ropeway/list HTTP/1.1\r\nhost: gw.test\r\nif-none-match: \"1\", {tag}");
    let (status, _, body) = fetch(&world, &again, b"").await;
    assert_eq!((status, body.len()), (304, 0));
    let (status, _, _) = fetch(&world, "POST /.ropeway/list HTTP/1.1\r\nhost: gw.test", b"x").await;
    assert_eq!(status, 405);
    let metrics = world.gateway.metrics();
    assert_eq!((metrics.lists("fetched").value(), metrics.lists("not_modified").value()), (1, 1));
}

#[tokio::test]
async fn names_of_the_list_are_resolved_signed_and_those_of_the_clients_operator_come_first() {
    let world = world().await;
    let head = "GET /.ropeway/resolve?host=API.test.&host=x.shop.test&host=foreign.test HTTP/1.1\r\nhost: gw.test";
    let (status, headers, body) = fetch(&world, head, b"").await;
    assert_eq!(status, 200);
    let (key_id, signature) = headers["ropeway-signature"].to_str().unwrap().split_once(';').unwrap();
    let verifier = Verifier::new([world.gateway.list_key()]);
    assert!(verifier.is_signed(RESOLVE_CONTEXT, &body, key_id, &STANDARD.decode(signature).unwrap()));
    let answer: Value = serde_json::from_slice(&body).unwrap();
    assert!(answer["time_ms"].as_u64().unwrap().abs_diff(unix_ms()) < 60_000);
    let found = &answer["answers"];
    assert_eq!(found.as_array().unwrap().len(), 2);
    assert_eq!(found[0]["v4"], serde_json::json!(["192.0.2.2:443", "192.0.2.1:443"]));
    let shop = serde_json::json!({
        "host": "x.shop.test", "ttl_s": 60, "v4": ["192.0.2.2:8443", "192.0.2.1"], "v6": ["2001:db8::1"], "h3": true,
    });
    assert_eq!(found[1], shop);
    for query in ["", "?host=", "?name=a"] {
        let (status, _, _) =
            fetch(&world, &format!("GET /.ropeway/resolve{query} HTTP/1.1\r\nhost: gw.test"), b"").await;
        assert_eq!(status, if query == "?host=" { 200 } else { 400 }, "{query}");
    }
}

#[tokio::test]
async fn dns_over_https_answers_for_names_of_the_list_and_refuses_others() {
    let world = world().await;
    let post = "POST /dns-query HTTP/1.1\r\nhost: gw.test\r\ncontent-type: application/dns-message";
    let (status, headers, body) = fetch(&world, post, &question("x.shop.test.", RecordType::A)).await;
    assert_eq!((status, headers["cache-control"].to_str().unwrap()), (200, "max-age=60"));
    assert_eq!(records(&body), (ResponseCode::NoError, vec!["192.0.2.1".into()]));
    for (query_type, expected) in [
        (RecordType::AAAA, vec!["2001:db8::1"]),
        (RecordType::TXT, vec![]),
        (
            RecordType::HTTPS,
            vec![
                "1 . alpn=h3,h2,http/1.1, port=8443 ipv4hint=192.0.2.2,",
                "2 . alpn=h3,h2,http/1.1, ipv4hint=192.0.2.1, ipv6hint=2001:db8::1,",
            ],
        ),
    ] {
        let asked = URL_SAFE_NO_PAD.encode(question("x.shop.test.", query_type));
        let get = format!("GET /dns-query?dns={asked} HTTP/1.1\r\nhost: 127.0.0.1");
        let (status, _, body) = fetch(&world, &get, b"").await;
        assert_eq!(status, 200);
        let (code, found) = records(&body);
        let found: Vec<String> = found.iter().map(|text| text.trim().to_owned()).collect();
        assert_eq!((code, found), (ResponseCode::NoError, expected.into_iter().map(str::to_owned).collect()));
    }
    let (_, headers, body) = fetch(&world, post, &question("foreign.test.", RecordType::A)).await;
    assert_eq!(
        (records(&body), headers["cache-control"].to_str().unwrap()),
        ((ResponseCode::Refused, vec![]), "no-store")
    );
}

#[tokio::test]
async fn what_is_no_dns_is_refused_and_on_a_service_the_path_is_the_services() {
    let world = world().await;
    let post = "POST /dns-query HTTP/1.1\r\nhost: gw.test\r\ncontent-type: application/dns-message";
    for (head, body, expected) in [
        (post, vec![0; 4_096], 400),
        (post, vec![0; 4_097], 413),
        ("POST /dns-query HTTP/1.1\r\nhost: gw.test", vec![0; 12], 415),
        ("GET /dns-query?dns=%%% HTTP/1.1\r\nhost: gw.test", vec![], 400),
        ("PUT /dns-query HTTP/1.1\r\nhost: gw.test", vec![], 405),
        ("GET /dns-query HTTP/1.1\r\nhost: api.test", vec![], 200),
        ("GET /else HTTP/1.1\r\nhost: ropeway.internal", vec![], 404),
    ] {
        let (status, _, _) = fetch(&world, head, &body).await;
        assert_eq!(status, expected, "{head}");
    }
}

/// Connects a device that has a list of this epoch.
async fn connected(world: &World, epoch_ms: u64) -> Device {
    let device = world.device(1);
    device.session.with(|client, _| client.set_list_epoch(epoch_ms));
    device.connect(world.dial(CarrierKind::Tls).await);
    device.welcome().await;
    device
}

async fn told(device: &Device) -> (Policy, Bytes) {
    let event = device.event().await;
    let ClientEvent::Policy(policy) = event else { panic!("{event:?} instead of a policy") };
    let event = device.event().await;
    let ClientEvent::List(list) = event else { panic!("{event:?} instead of a list") };
    (Policy::decode(&policy).unwrap(), list)
}

#[tokio::test]
async fn a_link_brings_the_list_where_it_is_newer_and_again_when_the_configuration_changes() {
    let world = world().await;
    let device = connected(&world, 0).await;
    let (policy, document) = told(&device).await;
    let first = verified(&world, &document);
    assert_eq!(policy.epoch_ms, first.epoch_ms);

    let mut config = world.config.clone();
    config.units[0].access_points.truncate(1);
    config.routes[0].plain_http = true;
    world.gateway.reload(Arc::new(config.clone())).unwrap();
    let (policy, document) = told(&device).await;
    let second = verified(&world, &document);
    assert!(second.epoch_ms > first.epoch_ms && policy.route("api.test", "/").plain_http);
    assert_eq!(second.units[0].access_points.len(), 1);

    let current = connected(&world, second.epoch_ms).await;
    current.work().await;
    assert!(current.session.peek(ropeway_core::session::Client::poll_event).is_none());
    // Nothing that the list is made of has changed.
    config.tickets.keys.clear();
    world.gateway.reload(Arc::new(config)).unwrap();
    current.work().await;
    assert!(current.session.peek(ropeway_core::session::Client::poll_event).is_none());
}

#[tokio::test]
async fn list_and_names_are_had_over_a_link_as_well() {
    let world = world().await;
    let device = connected(&world, u64::MAX).await;
    let (status, _, document) = device.send(Method::GET, "https://ropeway.internal/.ropeway/list", b"").await;
    assert_eq!((status, verified(&world, &document).units.len()), (StatusCode::OK, 1));
    let (status, _, body) =
        device.send(Method::GET, "https://ropeway.internal/.ropeway/resolve?host=api.test", b"").await;
    assert_eq!(status, StatusCode::OK);
    assert!(String::from_utf8(body.to_vec()).unwrap().contains("192.0.2.2:443"));
    let (status, _, _) = device.send(Method::GET, "https://ropeway.internal/", b"").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_client_that_believes_no_list_is_sent_the_policy_where_it_says_anything() {
    let world = World::new(|config| config.routes[0].plain_http = true).await;
    let device = connected(&world, u64::MAX).await;
    let event = device.event().await;
    let ClientEvent::Policy(policy) = event else { panic!("{event:?} instead of a policy") };
    assert!(Policy::decode(&policy).unwrap().route("api.test", "/").plain_http);

    let mut config = world.config.clone();
    config.list.answer_ttl *= 2;
    world.gateway.reload(Arc::new(config.clone())).unwrap();
    config.routes[0].plain_http = false;
    world.gateway.reload(Arc::new(config)).unwrap();
    let event = device.event().await;
    let ClientEvent::Policy(policy) = event else { panic!("{event:?} instead of a policy") };
    assert!(Policy::decode(&policy).unwrap().says_nothing(), "what changed nothing of it was not sent");
}
