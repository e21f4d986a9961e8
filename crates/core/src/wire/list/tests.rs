//! What is believed of a list, and what is left out.

use std::time::Duration;

use ed25519_dalek::{Signer, SigningKey};
use prost::Message as _;

use super::*;

const NOW_MS: u64 = 1_800_000_000_000;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

fn key(number: u8) -> SigningKey {
    SigningKey::from_bytes(&[number; 32])
}

fn verifier() -> Verifier {
    let trusted = |number: u8| ListKey { id: format!("k{number}"), public_key: key(number).verifying_key().to_bytes() };
    Verifier::new([trusted(1), trusted(2)])
}

fn list(epoch_ms: u64) -> AccessList {
    AccessList { epoch_ms, expires_ms: epoch_ms + DAY_MS, ..AccessList::default() }
}

fn sealed(list: &AccessList, number: u8) -> Bytes {
    list.seal(&format!("k{number}"), &|message| key(number).sign(message).to_bytes())
}

fn full() -> AccessList {
    let point = AccessPoint {
        serves_h3: true,
        serves_pipe: true,
        pipe_name: "gw-1".into(),
        gateway: "gw.test".into(),
        operator: "one".into(),
        region: "north".into(),
        ..AccessPoint::new("192.0.2.1:443".parse().unwrap(), CarrierKind::ALL)
    };
    let second = AccessPoint::new("[2001:db8::1]:8443".parse().unwrap(), [CarrierKind::Tls]);
    AccessList {
        units: vec![Unit {
            name: "north".into(),
            access_points: vec![point, second],
            dispatch: vec!["192.0.2.9:443".parse().unwrap()],
        }],
        hosts: vec![Host {
            name: "api.test".into(),
            addresses: vec![
                "192.0.2.1".parse::<IpAddr>().unwrap().into(),
                "192.0.2.2:8443".parse::<SocketAddr>().unwrap().into(),
            ],
            speaks_h3: true,
            route_key: "tenant".into(),
            private: false,
        }],
        bans: vec![Ban { address: "192.0.2.3".parse::<IpAddr>().unwrap().into(), until_ms: NOW_MS + HOUR_MS }],
        unit_map: UnitMap {
            epoch_ms: 3,
            ranges: vec![UnitRange { first: 0, last: u16::MAX, unit: "north".into() }],
            overrides: [(user_hash("alice"), "south".to_owned())].into(),
        },
        pipe_keys: vec![PipeKey {
            key_id: 7,
            config: Bytes::from_static(b"config"),
            expires_ms: NOW_MS,
            name: "gw-1".into(),
        }],
        plain_keys: vec![PlainKey { key_id: "p1".into(), public_key: [9; 32], expires_ms: NOW_MS }],
        policy: Policy { epoch_ms: NOW_MS, ..Policy::default() },
        ..list(NOW_MS)
    }
}

#[test]
fn a_list_reads_back_as_it_was_sealed_with_either_trusted_key() {
    for number in [1, 2] {
        assert_eq!(verifier().verify(&sealed(&full(), number), NOW_MS), Ok(full()));
    }
}

#[test]
fn a_changed_byte_another_key_or_a_foreign_context_is_refused() {
    let mut changed = sealed(&full(), 1).to_vec();
    changed[20] ^= 1;
    let bad = ListError::BadSignature { key_id: "k1".into() };
    assert_eq!(verifier().verify(&changed, NOW_MS), Err(bad.clone()));
    let borrowed = full().seal("k1", &|message| key(2).sign(message).to_bytes());
    assert_eq!(verifier().verify(&borrowed, NOW_MS), Err(bad.clone()));
    let unknown = verifier().verify(&sealed(&full(), 3), NOW_MS);
    assert_eq!(unknown, Err(ListError::UnknownKey { key_id: "k3".into() }));
    let foreign = full().seal("k1", &|message| {
        let other = [b"ropeway hello v1", &message[LIST_CONTEXT.len()..]].concat();
        key(1).sign(&other).to_bytes()
    });
    assert_eq!(verifier().verify(&foreign, NOW_MS), Err(bad));
}

#[test]
fn a_list_may_be_an_hour_older_than_the_newest_and_no_more() {
    let mut verifier = verifier();
    assert!(verifier.verify(&sealed(&list(NOW_MS), 1), NOW_MS).is_ok());
    assert!(verifier.verify(&sealed(&list(NOW_MS - HOUR_MS), 2), NOW_MS).is_ok());
    let old = verifier.verify(&sealed(&list(NOW_MS - HOUR_MS - 1), 1), NOW_MS);
    assert_eq!(old, Err(ListError::Outdated { behind: Duration::from_millis(HOUR_MS + 1) }));
    assert_eq!(verifier.newest_epoch_ms(), NOW_MS);
}

#[test]
fn what_the_last_process_saw_counts_as_seen() {
    let mut verifier = verifier();
    verifier.handle_seen(NOW_MS);
    verifier.handle_seen(NOW_MS - DAY_MS);
    assert!(matches!(verifier.verify(&sealed(&list(NOW_MS - DAY_MS), 1), NOW_MS), Err(ListError::Outdated { .. })));
}

#[test]
fn a_future_date_is_refused_and_does_not_count_as_seen() {
    let mut verifier = verifier();
    let ahead = Duration::from_millis(600_001);
    let document = sealed(&list(NOW_MS + 600_001), 1);
    assert_eq!(verifier.verify(&document, NOW_MS), Err(ListError::Future { ahead }));
    assert_eq!(verifier.newest_epoch_ms(), 0);
    assert!(verifier.verify(&document, NOW_MS + 1).is_ok());
}

#[test]
fn an_expired_list_has_addresses_for_thirty_days_and_then_nothing() {
    let list = list(NOW_MS);
    let end = NOW_MS + DAY_MS;
    assert_eq!(list.validity(end), Validity::Full);
    assert_eq!(list.validity(end + 1), Validity::Addresses);
    assert_eq!(list.validity(end + 30 * DAY_MS), Validity::Addresses);
    assert_eq!(list.validity(end + 30 * DAY_MS + 1), Validity::Gone);
    let late = verifier().verify(&sealed(&list, 1), end + 31 * DAY_MS);
    assert_eq!(late, Err(ListError::Expired { since: Duration::from_secs(31 * 86_400) }));
}

#[test]
fn what_is_no_list_is_malformed() {
    assert_eq!(verifier().verify(&[0xff; 9], NOW_MS), Err(ListError::Malformed));
    let nothing = message::AccessList::default().encode_to_vec();
    assert_eq!(AccessList::decode(&nothing), Err(ListError::Malformed));
    let backwards = AccessList { expires_ms: NOW_MS - 1, ..list(NOW_MS) };
    assert_eq!(verifier().verify(&sealed(&backwards, 1), NOW_MS), Err(ListError::Malformed));
    let oversized = vec![0; LIST_BYTES_MAX + 1];
    assert_eq!(verifier().verify(&oversized, NOW_MS), Err(ListError::Oversized { bytes: LIST_BYTES_MAX + 1 }));
}

#[test]
fn of_ten_thousand_addresses_of_one_name_the_first_are_kept() {
    let addresses = (0..10_000_u32).map(|number| IpAddr::from((0x0a00_0000 + number).to_be_bytes()).into()).collect();
    let many =
        AccessList { hosts: vec![Host { name: "api.test".into(), addresses, ..Host::default() }], ..list(NOW_MS) };
    let read = verifier().verify(&sealed(&many, 1), NOW_MS).unwrap();
    assert_eq!(read.hosts[0].addresses, many.hosts[0].addresses[..HOST_ADDRESSES_MAX]);
}

#[test]
fn every_count_has_its_bound() {
    let name = |number: usize| format!("n{number}");
    let address = |number: usize| SocketAddr::from(([192, 0, 2, 1], u16::try_from(1 + number).unwrap()));
    let unit = |number| Unit { name: name(number), ..Unit::default() };
    let point = |number| AccessPoint::new(address(number), []);
    let mut units: Vec<Unit> = (0..UNITS_MAX + 9).map(unit).collect();
    units[0].access_points = (0..ACCESS_POINTS_MAX + 9).map(point).collect();
    units[0].dispatch = (0..DISPATCH_MAX + 9).map(address).collect();
    let range = |_| UnitRange { first: 1, last: 2, unit: "n".into() };
    let many = AccessList {
        units,
        hosts: (0..HOSTS_MAX + 9).map(|number| Host { name: name(number), ..Host::default() }).collect(),
        bans: (0..BANS_MAX + 9).map(|number| Ban { address: address(number).into(), until_ms: 1 }).collect(),
        unit_map: UnitMap {
            ranges: (0..RANGES_MAX + 9).map(range).collect(),
            overrides: (0..OVERRIDES_MAX as u64 + 9).map(|hash| (hash, "n".to_owned())).collect(),
            ..UnitMap::default()
        },
        pipe_keys: (0..PIPE_KEYS_MAX + 9).map(|n| PipeKey { name: name(n), ..full().pipe_keys[0].clone() }).collect(),
        plain_keys: (0..20).map(|n| PlainKey { key_id: name(n), public_key: [1; 32], expires_ms: 1 }).collect(),
        ..list(NOW_MS)
    };
    let read = AccessList::decode(&many.encode()).unwrap();
    assert_eq!((read.units.len(), read.units[0].access_points.len()), (UNITS_MAX, ACCESS_POINTS_MAX));
    assert_eq!((read.units[0].dispatch.len(), read.hosts.len(), read.bans.len()), (DISPATCH_MAX, HOSTS_MAX, BANS_MAX));
    assert_eq!((read.unit_map.ranges.len(), read.unit_map.overrides.len()), (RANGES_MAX, OVERRIDES_MAX));
    assert_eq!((read.pipe_keys.len(), read.plain_keys.len()), (PIPE_KEYS_MAX, PLAIN_KEYS_MAX));
}

#[test]
fn entries_that_make_no_sense_are_left_out_and_the_others_stay() {
    let good: &'static [u8] = &[192, 0, 2, 1, 1, 187];
    let point = |address: &'static [u8]| message::AccessPoint {
        address: address.into(),
        protocols: vec![2, 99],
        ..message::AccessPoint::default()
    };
    let unit = message::Unit {
        name: "north".into(),
        access_points: vec![
            point(b""),
            point(&[1, 2, 3]),
            point(&[192, 0, 2, 1]),
            point(&[192, 0, 2, 1, 0, 0]),
            point(&[0, 0, 0, 0, 1, 187]),
            point(good),
        ],
        dispatch: vec![Bytes::from_static(&[1]), good.into()],
    };
    let message = message::AccessList {
        epoch_ms: NOW_MS,
        expires_ms: NOW_MS,
        units: vec![message::Unit::default(), unit],
        hosts: vec![
            message::Host { name: "x".repeat(254), ..message::Host::default() },
            message::Host { name: "API.test".into(), ..message::Host::default() },
        ],
        plain_keys: vec![message::SigningKey { key_id: "p".into(), public_key: good.into(), expires_ms: 1 }],
        pipe_keys: [(256, "gw-1".to_owned()), (1, String::new()), (1, "x".repeat(254))]
            .map(|(key_id, name)| message::PipeKey { key_id, config: good.into(), expires_ms: 1, name })
            .into(),
        unit_map: Some(message::UnitMap {
            ranges: vec![message::UnitRange { first: 0, last: 65_536, unit: "n".into() }],
            ..message::UnitMap::default()
        }),
        ..message::AccessList::default()
    };
    let read = AccessList::decode(&message.encode_to_vec()).unwrap();
    assert_eq!(read.units.len(), 1);
    assert_eq!(read.units[0].access_points, [AccessPoint::new("192.0.2.1:443".parse().unwrap(), [CarrierKind::Tls])]);
    assert_eq!(read.units[0].dispatch, ["192.0.2.1:443".parse().unwrap()]);
    assert_eq!(read.hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["api.test"]);
    assert!(read.plain_keys.is_empty() && read.pipe_keys.is_empty() && read.unit_map.ranges.is_empty());
}

#[test]
fn fields_of_a_later_version_are_passed_over() {
    let mut bytes = list(NOW_MS).encode();
    // Field 1000 with three bytes.
    bytes.extend([0xc2, 0x3e, 3, 1, 2, 3]);
    assert_eq!(AccessList::decode(&bytes).unwrap().epoch_ms, NOW_MS);
}

#[test]
fn hosts_are_found_by_their_closest_name_and_bans_by_address_and_time() {
    let host = |name: &str| Host { name: name.into(), ..Host::default() };
    let hosts = vec![host("*.test"), host("*.shop.test"), host("api.shop.test")];
    let list = AccessList { hosts, ..full() };
    for (name, found) in [
        ("API.shop.test.", Some("api.shop.test")),
        ("a.b.shop.test", Some("*.shop.test")),
        ("shop.test", Some("*.test")),
        ("test", None),
        ("eshop.test", Some("*.test")),
    ] {
        assert_eq!(list.host(name).map(|host| host.name.as_str()), found, "{name}");
    }
    let banned = "192.0.2.3:80".parse().unwrap();
    assert!(list.is_banned(banned, NOW_MS) && !list.is_banned(banned, NOW_MS + HOUR_MS));
    assert!(!list.is_banned("192.0.2.4:80".parse().unwrap(), NOW_MS));
}

#[test]
fn a_pipe_has_the_first_key_of_its_name_that_has_not_expired_and_no_other() {
    let key = |name: &str, key_id, expires_ms| PipeKey { key_id, config: "c".into(), expires_ms, name: name.into() };
    let keys = vec![key("a", 1, NOW_MS), key("b", 2, NOW_MS + 1), key("a", 3, NOW_MS + 1), key("a", 4, NOW_MS + 2)];
    let list = AccessList { pipe_keys: keys, ..full() };
    let point = |name: &str| AccessPoint { pipe_name: name.into(), ..full().units[0].access_points[0].clone() };
    let id = |name: &str, wall_ms| list.pipe_key(&point(name), wall_ms).map(|key| key.key_id);
    assert_eq!((id("a", NOW_MS - 1), id("a", NOW_MS), id("a", NOW_MS + 1)), (Some(1), Some(3), Some(4)));
    assert_eq!((id("b", NOW_MS), id("b", NOW_MS + 1), id("c", 0), id("", 0)), (Some(2), None, None, None));
    assert_eq!(list.pipe_key(&AccessPoint { serves_pipe: false, ..point("a") }, 0), None);
}

#[test]
fn an_address_of_a_host_reads_back_from_its_text() {
    for text in ["192.0.2.1", "192.0.2.1:443", "2001:db8::1", "[2001:db8::1]:443"] {
        assert_eq!(text.parse::<HostAddress>().unwrap().to_string(), text);
    }
    assert!("192.0.2".parse::<HostAddress>().is_err());
}
