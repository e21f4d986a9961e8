//! `docs/protocol/list-vectors.json`: access lists, policies and unit maps, as the code writes and reads them.

use std::{fs, path::PathBuf};

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use prost::Message as _;
use ropeway_core::{
    policy::{Policy, RouteRules},
    wire::list::{
        AccessList, LIST_CONTEXT, ListError, ListKey, TRUSTED_KEYS_MAX, Validity, Verifier,
        message::{self, *},
        slot, user_hash,
    },
};
use serde_json::{Value, json};

use crate::{
    compose::NOW_MS,
    each,
    json::{Part, hex, messages},
    printed, text,
};

messages! {
    message::AccessList {
        epoch_ms, expires_ms, units, hosts, bans, unit_map, pipe_keys, plain_keys, policy
    }
    AccessPoint { address, protocols as [Protocol], gateway, operator, region, pipe_name }
    Ban { address, until_ms }
    Host { name, addresses, speaks_h3, route_key, private }
    PipeKey { key_id, config, expires_ms, name }
    message::Policy {
        epoch_ms, routes, first_byte_base_ms, first_byte_cap_ms, rate_min_bytes_per_s, gap_ms, stagger_max_ms,
        retry_budget_permille, retry_budget_start
    }
    RoutePolicy {
        host, path_prefix, ladder, server_time_ms, concurrency_max, coalesce, batch, plain_http, idempotency_keys
    }
    Rung { way as Way, tries }
    message::SigningKey { key_id, public_key, expires_ms }
    Unit { name, access_points, dispatch }
    UnitMap { epoch_ms, ranges, overrides }
    UnitOverride { user_hash, unit }
    UnitRange { first, last, unit }
}

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/list-vectors.json")
}

/// Test only: anyone can read them here.
fn key(name: &str) -> SigningKey {
    let mut seed = [0; 32];
    let text = format!("ropeway test vectors key {name}");
    seed[..text.len()].copy_from_slice(text.as_bytes());
    SigningKey::from_bytes(&seed)
}

fn verifier(newest_epoch_ms: u64) -> Verifier {
    let trusted = |id: &str| ListKey { id: id.into(), public_key: key(id).verifying_key().to_bytes() };
    let mut verifier = Verifier::new([trusted("2027-a"), trusted("2027-b")]);
    verifier.handle_seen(newest_epoch_ms);
    verifier
}

/// A list with everything in it.
fn whole() -> message::AccessList {
    message::AccessList::from_json(&json!({
        "epoch_ms": NOW_MS,
        "expires_ms": NOW_MS + 86_400_000,
        "units": [
            {
                "name": "north",
                "access_points": [
                    {
                        "address": "c000020101bb",
                        "protocols": [
                            "PROTOCOL_QUIC", "PROTOCOL_TLS", "PROTOCOL_WS", "PROTOCOL_H3", "PROTOCOL_PIPE", "PROTOCOL_PLAIN"
                        ],
                        "gateway": "north.gw.test", "operator": "one", "region": "n1", "pipe_name": "north-1"
                    },
                    { "address": "20010db800000000000000000000000101bb", "protocols": ["PROTOCOL_TLS"] }
                ],
                "dispatch": ["c000020201bb"]
            },
            {
                "name": "south",
                "access_points": [{ "address": "c63364010050", "protocols": ["PROTOCOL_PIPE"], "pipe_name": "south-1" }]
            }
        ],
        "hosts": [
            { "name": "api.test", "addresses": ["c0000201", "c6336401 20fb".replace(' ', "")], "speaks_h3": true, "route_key": "tenant" },
            { "name": "*.inside.test", "addresses": ["0a000001"], "private": true }
        ],
        "bans": [{ "address": "c0000203", "until_ms": NOW_MS + 3_600_000 }],
        "unit_map": {
            "epoch_ms": NOW_MS - 5_000,
            "ranges": [{ "last": 32_767, "unit": "north" }, { "first": 32_768, "last": 65_535, "unit": "south" }],
            "overrides": [{ "user_hash": user_hash("alice"), "unit": "south" }]
        },
        "pipe_keys": [
            { "key_id": 1, "config": "0100200102030400040001000100", "expires_ms": NOW_MS + 172_800_000, "name": "north-1" },
            { "key_id": 1, "config": "0100200506070800040001000100", "expires_ms": NOW_MS + 172_800_000, "name": "south-1" }
        ],
        "plain_keys": [{ "key_id": "plain-1", "public_key": hex(&[7; 32]), "expires_ms": NOW_MS + 172_800_000 }],
        "policy": policies()[1]["policy"]
    }))
}

fn policies() -> [Value; 2] {
    [
        json!({ "policy": {}, "lookups": [["api.test", "/"]] }),
        json!({
            "policy": {
                "epoch_ms": NOW_MS,
                "first_byte_base_ms": 12_000, "first_byte_cap_ms": 22_000, "rate_min_bytes_per_s": 12_288, "gap_ms": 8_000,
                "stagger_max_ms": 4_000, "retry_budget_permille": 200, "retry_budget_start": 10,
                "routes": [
                    { "host": "*", "server_time_ms": 900_000 },
                    { "host": "api.test", "path_prefix": "/v1", "coalesce": false, "batch": true, "plain_http": true,
                      "idempotency_keys": true, "concurrency_max": 6, "server_time_ms": 400,
                      "ladder": [
                        { "way": "WAY_PIPE", "tries": 9 }, { "way": "WAY_PLAIN" }, { "way": "WAY_PIPE" }, { "way": "WAY_LINK", "tries": 0 }
                      ] },
                    { "host": "*.test", "path_prefix": "/", "concurrency_max": 0 }
                ]
            },
            "lookups": [
                ["api.test", "/v1"], ["API.test.", "/v1/orders?page=2"], ["api.test", "/v10"], ["x.test", "/"], ["test", "/"]
            ]
        }),
    ]
}

fn described_policy(case: &Value) -> Value {
    let encoded = message::Policy::from_json(&case["policy"]).encode_to_vec();
    let policy = Policy::decode(&encoded).unwrap();
    let lookups = each(case, "lookups").iter().map(|lookup| {
        let (host, path) = (lookup[0].as_str().unwrap(), lookup[1].as_str().unwrap());
        json!({ "host": host, "path": path, "rules": rules(&policy.route(host, path)) })
    });
    json!({ "bytes": hex(&encoded), "policy": case["policy"], "lookups": lookups.collect::<Value>() })
}

fn rules(rules: &RouteRules) -> Value {
    let ladder = rules.ladder.iter().map(|rung| json!([rung.way.as_str(), rung.tries]));
    json!({
        "ladder": ladder.collect::<Value>(),
        "server_time_ms": rules.server_time.map(|time| u64::try_from(time.as_millis()).unwrap()),
        "concurrency_max": rules.concurrency_max,
        "coalesce": rules.coalesce,
        "batch": rules.batch,
        "plain_http": rules.plain_http,
        "idempotency_keys": rules.idempotency_keys,
    })
}

fn sealed(list: &[u8], key_id: &str, with: &str) -> Bytes {
    let signed = [LIST_CONTEXT.as_bytes(), &[0], list].concat();
    let signature = Bytes::copy_from_slice(&key(with).sign(&signed).to_bytes());
    SignedList { list: Bytes::copy_from_slice(list), signature, key_id: key_id.into() }.encode_to_vec().into()
}

/// Documents, with the time and the newest epoch that was seen before, and what is made of them.
fn documents() -> Vec<Value> {
    let list = whole().encode_to_vec();
    let small = |epoch_ms| {
        message::AccessList { epoch_ms, expires_ms: NOW_MS + 1, ..message::AccessList::default() }.encode_to_vec()
    };
    let later = [&small(NOW_MS)[..], &[0xc2, 0x3e, 3, 1, 2, 3]].concat();
    let mut torn = sealed(&list, "2027-a", "2027-a").to_vec();
    torn.truncate(torn.len() - 1);
    let day = 86_400_000;
    let cases: Vec<(&str, Bytes, u64, u64)> = vec![
        ("everything a list can hold", sealed(&list, "2027-a", "2027-a"), NOW_MS, 0),
        ("the other trusted key", sealed(&list, "2027-b", "2027-b"), NOW_MS, NOW_MS),
        ("a field of a later version", sealed(&later, "2027-a", "2027-a"), NOW_MS, 0),
        ("an hour older than the newest", sealed(&small(NOW_MS), "2027-a", "2027-a"), NOW_MS, NOW_MS + 3_600_000),
        ("more than an hour older", sealed(&small(NOW_MS), "2027-a", "2027-a"), NOW_MS, NOW_MS + 3_600_001),
        ("ten minutes in the future", sealed(&small(NOW_MS), "2027-a", "2027-a"), NOW_MS - 600_000, 0),
        ("more than ten minutes in the future", sealed(&small(NOW_MS), "2027-a", "2027-a"), NOW_MS - 600_001, 0),
        ("just expired", sealed(&small(NOW_MS), "2027-a", "2027-a"), NOW_MS + 2, 0),
        ("expired for 30 days", sealed(&small(NOW_MS), "2027-a", "2027-a"), NOW_MS + 1 + 30 * day, 0),
        ("expired for longer", sealed(&small(NOW_MS), "2027-a", "2027-a"), NOW_MS + 2 + 30 * day, 0),
        ("a key that is not trusted", sealed(&list, "2028", "2028"), NOW_MS, 0),
        ("signed by another key than it says", sealed(&list, "2027-a", "2028"), NOW_MS, 0),
        ("no epoch", sealed(&small(0), "2027-a", "2027-a"), NOW_MS, 0),
        ("expired before it was issued", sealed(&small(NOW_MS + 2), "2027-a", "2027-a"), NOW_MS + 2, 0),
        ("signed bytes that are no list", sealed(&[0xff], "2027-a", "2027-a"), NOW_MS, 0),
        ("a document cut short", torn.into(), NOW_MS, 0),
        ("nothing at all", Bytes::new(), NOW_MS, 0),
    ];
    cases.into_iter().map(|(why, document, wall_ms, newest)| described(why, &document, wall_ms, newest)).collect()
}

fn described(why: &str, document: &[u8], wall_ms: u64, newest_epoch_ms: u64) -> Value {
    let mut vector =
        json!({ "why": why, "bytes": hex(document), "wall_ms": wall_ms, "newest_epoch_ms": newest_epoch_ms });
    match verifier(newest_epoch_ms).verify(document, wall_ms) {
        Ok(list) => {
            let signed = SignedList::decode(document).unwrap();
            vector["key_id"] = signed.key_id.as_str().into();
            vector["list"] = message::AccessList::decode(signed.list.as_ref()).unwrap().to_json();
            vector["permissions"] = (list.validity(wall_ms) == Validity::Full).into();
        }
        Err(error) => vector["error"] = error.name().into(),
    }
    vector
}

fn slots() -> Value {
    ["", "a", "foobar", "alice", "user-1", "user-2", "用户"]
        .iter()
        .map(|user| json!({ "user": user, "hash": user_hash(user), "slot": slot(user_hash(user)) }))
        .collect()
}

fn vectors() -> Value {
    let published = |id: &str| {
        let public = hex(&key(id).verifying_key().to_bytes());
        json!({ "use": "tests only: the seed is published here", "id": id, "seed": hex(&key(id).to_bytes()), "public": public })
    };
    json!({
        "context": LIST_CONTEXT,
        "trusted_keys": [published("2027-a"), published("2027-b")],
        "lists": documents(),
        "policies": policies().iter().map(described_policy).collect::<Value>(),
        "slots": slots(),
    })
}

#[test]
fn the_committed_list_vectors_are_what_the_code_writes() {
    let written = vectors();
    if std::env::var_os("ROPEWAY_WRITE_VECTORS").is_some() {
        fs::write(path(), printed(&written)).unwrap();
    }
    let committed: Value = serde_json::from_str(&fs::read_to_string(path()).unwrap()).unwrap();
    assert!(committed == written, "the list vectors differ; if the change is meant: `{}`", crate::REGENERATE);
    assert_eq!(each(&committed, "trusted_keys").len(), TRUSTED_KEYS_MAX);
}

#[test]
fn the_whole_list_is_read_whole_and_written_as_it_was() {
    let encoded = whole().encode_to_vec();
    let list = AccessList::decode(&encoded).unwrap();
    assert_eq!((list.units.len(), list.hosts.len(), list.pipe_keys.len(), list.plain_keys.len()), (2, 2, 2, 1));
    assert_eq!(AccessList::decode(&list.encode()), Ok(list));
}

/// Every reason is told apart by an example, but the length that no example should have.
#[test]
fn every_error_of_a_list_has_an_example() {
    let vectors = vectors();
    let shown: Vec<&str> = each(&vectors, "lists").iter().filter_map(|vector| vector["error"].as_str()).collect();
    let key_id = || String::from("k");
    let time = std::time::Duration::ZERO;
    for error in [
        ListError::BadSignature { key_id: key_id() },
        ListError::Expired { since: time },
        ListError::Future { ahead: time },
        ListError::Malformed,
        ListError::Outdated { behind: time },
        ListError::UnknownKey { key_id: key_id() },
    ] {
        assert!(shown.contains(&error.name()), "{error}");
    }
    assert_eq!(text(&vectors, "context"), "ropeway list v1");
}
