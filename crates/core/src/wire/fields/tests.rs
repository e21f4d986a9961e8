//! Round trips, orders of delivery, limits and refusals.

use std::collections::BTreeMap;

use bytes::BytesMut;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use proptest::{collection::vec, prelude::*, sample};

use super::*;

mod document;
mod size;

/// Encodes a request for `https://api.test/` with these headers on an ordered carrier.
fn encode(encoder: &mut Encoder, headers: &HeaderMap) -> BytesMut {
    let mut block = BytesMut::new();
    let uri = Uri::from_static("https://api.test/");
    encoder.encode_request(0, &Method::GET, &uri, headers, &mut block).unwrap();
    block
}

fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let pairs = fields.iter();
    pairs.map(|&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value))).collect()
}

/// A block whose insertions begin at slot 0, from its fields in hex.
fn block(fields: &str) -> Vec<u8> {
    let digits: Vec<u8> = fields.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    std::iter::once(0).chain(digits.chunks(2).map(byte)).collect()
}

#[test]
fn a_request_survives() {
    let (mut encoder, mut decoder) = (Encoder::new(Mode::Ordered), Decoder::new());
    let uri = Uri::from_static("http://user:pass@api.test:8080?since=4");
    let mut sent = headers(&[("accept", "*/*"), ("x-own", "1"), ("te", "trailers"), ("cookie", "")]);
    sent.append("x-own", HeaderValue::from_bytes(b"\xf0\xff").unwrap());
    let mut token = HeaderValue::from_static("Bearer abc");
    token.set_sensitive(true);
    sent.insert("authorization", token);
    for _ in 0..3 {
        let mut out = BytesMut::new();
        encoder.encode_request(0, &Method::PATCH, &uri, &sent, &mut out).unwrap();
        let head = decoder.decode_request(&out).unwrap();
        assert_eq!(head.method, Method::PATCH);
        assert_eq!(head.uri, "http://api.test:8080/?since=4");
        assert_eq!(head.headers, sent);
        assert!(head.headers["authorization"].is_sensitive());
        assert!(!head.headers["accept"].is_sensitive());
    }
}

#[test]
fn host_stands_in_for_a_missing_authority() {
    let mut out = BytesMut::new();
    let sent = headers(&[("host", "api.test")]);
    Encoder::new(Mode::Ordered).encode_request(0, &Method::OPTIONS, &Uri::from_static("*"), &sent, &mut out).unwrap();
    let head = Decoder::new().decode_request(&out).unwrap();
    assert_eq!(head.uri.authority().unwrap(), "api.test");
    assert_eq!(head.uri.path(), "*");
    assert!(head.headers.is_empty());
}

#[test]
fn headers_of_one_connection_are_left_out() {
    let sent = headers(&[
        ("connection", "close"),
        ("keep-alive", "5"),
        ("proxy-connection", "close"),
        ("te", "gzip"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "websocket"),
        ("x-own", "1"),
    ]);
    let block = encode(&mut Encoder::new(Mode::Ordered), &sent);
    assert_eq!(Decoder::new().decode_request(&block).unwrap().headers, headers(&[("x-own", "1")]));
}

#[test]
fn a_repeated_header_takes_one_byte() {
    let mut encoder = Encoder::new(Mode::Ordered);
    let empty = encode(&mut encoder, &HeaderMap::new()).len();
    encode(&mut encoder, &headers(&[("authorization", "Bearer abc"), ("x-own", "1")]));
    let bare = encode(&mut encoder, &HeaderMap::new()).len();
    assert!(bare < empty, "the authority repeats");
    assert_eq!(encode(&mut encoder, &headers(&[("authorization", "Bearer abc"), ("x-own", "1")])).len(), bare + 2);
}

#[test]
fn a_path_enters_the_dictionary_when_it_repeats() {
    let mut encoder = Encoder::new(Mode::Ordered);
    let mut len = |path: &str| {
        let mut out = BytesMut::new();
        let uri: Uri = format!("https://api.test{path}").parse().unwrap();
        encoder.encode_request(0, &Method::GET, &uri, &HeaderMap::new(), &mut out).unwrap();
        out.len()
    };
    len("/");
    let first = len("/v1/orders?page=1");
    assert_eq!(len("/v1/orders?page=2"), first);
    assert_eq!(len("/v1/orders?page=1"), first);
    assert_eq!(len("/v1/orders?page=1"), 5);
}

#[test]
fn a_slot_in_use_outlives_a_thousand_others() {
    let (mut encoder, mut decoder) = (Encoder::new(Mode::Ordered), Decoder::new());
    let mut sent = headers(&[("authorization", "Bearer abc")]);
    for number in 0..1000 {
        sent.insert("x-own", HeaderValue::from(number));
        let block = encode(&mut encoder, &sent);
        assert_eq!(decoder.decode_request(&block).unwrap().headers, sent);
        assert!(number == 0 || block.len() <= 12, "message {number} took {} bytes", block.len());
    }
}

#[test]
fn a_sensitive_value_stays_out_of_the_dictionary() {
    let mut encoder = Encoder::new(Mode::Ordered);
    let mut token = HeaderValue::from_static("Bearer abc");
    token.set_sensitive(true);
    let sent = HeaderMap::from_iter([(http::header::AUTHORIZATION, token)]);
    encode(&mut encoder, &sent);
    assert_eq!(encode(&mut encoder, &sent), encode(&mut encoder, &sent));
    assert!(encode(&mut encoder, &sent).len() > 10);
}

#[test]
fn links_that_carried_no_request_stay_small() {
    assert!(size_of::<Encoder>() < 64);
    assert!(size_of::<Decoder>() < 64);
}

#[test]
fn an_unordered_slot_is_used_after_its_acknowledgement() {
    let mut encoder = Encoder::new(Mode::Unordered);
    let len = |encoder: &mut Encoder, block| {
        let mut out = BytesMut::new();
        let uri = Uri::from_static("https://api.test/");
        let sent = headers(&[("x-own", "a value to know again")]);
        encoder.encode_request(block, &Method::GET, &uri, &sent, &mut out).unwrap();
        out.len()
    };
    assert!(len(&mut encoder, 1) > 30);
    assert!(len(&mut encoder, 2) > 30);
    encoder.acknowledge(2);
    assert!(len(&mut encoder, 3) > 30, "block 2 inserted nothing: block 1 had");
    encoder.acknowledge(1);
    assert_eq!(len(&mut encoder, 4), 6);
}

#[test]
fn a_forgotten_insertion_is_made_again_elsewhere() {
    let (mut encoder, mut decoder) = (Encoder::new(Mode::Unordered), Decoder::new());
    let sent = headers(&[("x-own", "a value to know again")]);
    let uri = Uri::from_static("https://api.test/");
    let blocks: Vec<BytesMut> = (0..3)
        .map(|number| {
            let mut out = BytesMut::new();
            encoder.encode_request(number, &Method::GET, &uri, &sent, &mut out).unwrap();
            if number == 0 {
                encoder.forget(number)
            } else {
                encoder.acknowledge(number)
            }
            out
        })
        .collect();
    assert_eq!((blocks[0][0], blocks[1][0]), (0, 2));
    assert_eq!(blocks[2].len(), 6);
    for number in [1, 0, 2] {
        assert_eq!(decoder.decode_request(&blocks[number]).unwrap().headers, sent);
    }
}

#[test]
fn too_many_unacknowledged_blocks_do_without_the_dictionary() {
    let mut encoder = Encoder::new(Mode::Unordered);
    let uri = Uri::from_static("https://api.test/");
    let mut insertions = 0;
    for number in 0..2 * UNACKNOWLEDGED_BLOCKS_MAX {
        let mut sent = HeaderMap::new();
        sent.insert("x-own", HeaderValue::from(number));
        let mut out = BytesMut::new();
        encoder.encode_request(number as u64, &Method::GET, &uri, &sent, &mut out).unwrap();
        Decoder::new().decode_request(&out).unwrap();
        insertions += usize::from(out[0] != 0);
    }
    assert_eq!(insertions, SLOTS_COUNT - 2, "one block for each slot but the first, which has two");
}

#[test]
fn the_dictionary_stays_within_its_bytes() {
    for mode in [Mode::Ordered, Mode::Unordered] {
        let (mut encoder, mut decoder) = (Encoder::new(mode), Decoder::new());
        let uri = Uri::from_static("https://api.test/");
        for number in 0..300_usize {
            let mut sent = HeaderMap::new();
            let value = "v".repeat(number * 977 % 4500) + &number.to_string();
            sent.insert("x-own", HeaderValue::from_str(&value).unwrap());
            let mut out = BytesMut::new();
            encoder.encode_request(number as u64, &Method::GET, &uri, &sent, &mut out).unwrap();
            assert_eq!(decoder.decode_request(&out).unwrap().headers, sent);
            encoder.acknowledge(number as u64);
        }
    }
}

#[test]
fn a_message_over_a_limit_is_not_encoded() {
    let mut encoder = Encoder::new(Mode::Ordered);
    let mut out = BytesMut::new();
    let mut many = HeaderMap::new();
    (0..FIELDS_COUNT_MAX).for_each(|_| assert!(many.append("x-own", HeaderValue::from_static("1")) || many.len() == 1));
    assert_eq!(encoder.encode_response(0, StatusCode::OK, &many, &mut out), Err(FieldError::TooManyFields));
    let mut large = HeaderMap::new();
    large.insert("x-own", HeaderValue::from_str(&"v".repeat(FIELDS_BYTES_MAX)).unwrap());
    assert_eq!(encoder.encode_trailers(0, &large, &mut out), Err(FieldError::TooLarge));
    let uri = Uri::from_static("api.test:443");
    let none = HeaderMap::new();
    assert_eq!(encoder.encode_request(0, &Method::CONNECT, &uri, &none, &mut out), Err(FieldError::ConnectUnsupported));
    assert_eq!(
        encoder.encode_request(0, &Method::GET, &Uri::from_static("/"), &none, &mut out),
        Err(FieldError::MissingPseudo { name: ":authority" })
    );
    assert!(out.is_empty());
}

#[test]
fn a_block_over_a_limit_is_refused() {
    let mut decoder = Decoder::new();
    // accept-charset without a value, 257 times.
    let many = block(&"8f".repeat(FIELDS_COUNT_MAX + 1));
    assert_eq!(decoder.decode_trailers(&many).unwrap_err(), FieldError::TooManyFields);
    assert_eq!(decoder.decode_trailers(&many[..many.len() - 1]).unwrap().len(), FIELDS_COUNT_MAX);
    // One entry of 4,096 bytes, then seventeen references to it.
    let value = 4096 - 32 - 1;
    let mut bomb = block("20 01 61");
    let mut len = BytesMut::new();
    literal::write_integer(value, 7, 0, &mut len);
    bomb.extend_from_slice(&len);
    bomb.extend(std::iter::repeat_n(b'v', value));
    bomb.extend([0x40; 15]);
    assert_eq!(decoder.decode_trailers(&bomb).unwrap().len(), 16);
    bomb.push(0x40);
    assert_eq!(decoder.decode_trailers(&bomb).unwrap_err(), FieldError::TooLarge);
}

#[test]
fn a_dictionary_over_its_bytes_is_refused() {
    let mut decoder = Decoder::new();
    let insert = |slot: u8, len: usize| {
        let mut block = BytesMut::from(&[slot, 0x20, 1, b'a'][..]);
        literal::write_integer(len - 33, 7, 0, &mut block);
        block.resize(block.len() + len - 33, b'v');
        block
    };
    assert_eq!(decoder.decode_trailers(&insert(0, 4097)).unwrap_err(), FieldError::DictionaryFull { slot: 0 });
    for slot in 0..8 {
        decoder.decode_trailers(&insert(slot, 4096)).unwrap();
    }
    decoder.decode_trailers(&insert(7, 4096)).unwrap();
    assert_eq!(decoder.decode_trailers(&insert(8, 34)).unwrap_err(), FieldError::DictionaryFull { slot: 8 });
}

#[test]
fn every_kind_of_broken_block_has_its_own_error() {
    // 82 GET, 87 https, 84 /, 88 status 200, a6 host: as in RFC 7541 appendix A; 2f 01 61: the authority "a".
    let request = "82 87 2f 01 61 84";
    let cases = [
        (String::new(), FieldError::MissingPseudo { name: ":method" }),
        ("82 87 84".into(), FieldError::MissingPseudo { name: ":authority" }),
        (format!("{request} 82"), FieldError::RepeatedPseudo { name: ":method" }),
        (format!("{request} 88"), FieldError::MisplacedPseudo { name: ":status" }),
        (format!("8f {request}"), FieldError::MisplacedPseudo { name: ":method" }),
        (format!("{request} a6"), FieldError::Forbidden { name: http::header::HOST }),
        (format!("{request} 10 02 74 65 04 67 7a 69 70"), FieldError::Forbidden { name: http::header::TE }),
        (format!("{request} 10 01 41 00"), FieldError::InvalidName),
        (format!("{request} 10 00 00"), FieldError::InvalidName),
        (format!("{request} 10 01 61 01 0a"), FieldError::InvalidHeader),
        (format!("{request} 10 02 3a 61 00"), FieldError::UnknownPseudo),
        ("1f 10 07 43 4f 4e 4e 45 43 54".into(), FieldError::ConnectUnsupported),
        ("81".into(), FieldError::InvalidValue { name: ":authority" }),
        ("2f 03 75 40 61".into(), FieldError::InvalidValue { name: ":authority" }),
        ("11 01 61".into(), FieldError::InvalidValue { name: ":path" }),
        ("11 03 2f 23 61".into(), FieldError::InvalidValue { name: ":path" }),
        ("82 87 2f 01 61 11 01 2a".into(), FieldError::InvalidValue { name: ":path" }),
        (format!("{request} 41"), FieldError::UnknownSlot { slot: 1 }),
        (format!("{request} 80"), FieldError::UnknownStatic { index: 0 }),
        (format!("{request} ff 7f"), FieldError::UnknownStatic { index: 254 }),
        (format!("{request} ff ff ff ff 7f"), FieldError::IntegerTooLarge),
        (format!("{request} ff"), FieldError::Truncated),
        (format!("{request} 10 01 61 02 61"), FieldError::Truncated),
        (format!("{request} 10 01 61 81 18"), FieldError::BadHuffman),
    ];
    for (fields, error) in cases {
        assert_eq!(Decoder::new().decode_request(&block(&fields)).unwrap_err(), error, "{fields}");
    }
    assert_eq!(Decoder::new().decode_request(&[]).unwrap_err(), FieldError::Truncated);
    assert_eq!(Decoder::new().decode_request(&[64]).unwrap_err(), FieldError::UnknownSlot { slot: 64 });
    assert_eq!(
        Decoder::new().decode_response(&block("88 82")).unwrap_err(),
        FieldError::MisplacedPseudo { name: ":method" }
    );
    assert_eq!(
        Decoder::new().decode_trailers(&block("88")).unwrap_err(),
        FieldError::MisplacedPseudo { name: ":status" }
    );
}

/// One message of a conversation: its headers, whether its block is acknowledged or forgotten at once, and two keys
/// that shuffle deliveries and acknowledgements.
#[derive(Clone, Debug)]
struct Step {
    headers: HeaderMap,
    path: String,
    forgotten: bool,
    delivered: u8,
    acknowledged: u8,
}

fn a_value() -> impl Strategy<Value = HeaderValue> {
    let common = sample::select(vec!["", "0", "1", "gzip", "application/json", "Bearer abc", "a", "b", "c"]);
    let any = vec(prop_oneof![Just(9), 32_u8..127, 128_u8..], 0..700);
    let bytes = prop_oneof![4 => common.prop_map(|text| text.as_bytes().to_vec()), 1 => any];
    (bytes, prop::bool::weighted(0.1)).prop_map(|(bytes, sensitive)| {
        let mut value = HeaderValue::from_bytes(&bytes).unwrap();
        value.set_sensitive(sensitive);
        value
    })
}

fn a_name() -> impl Strategy<Value = HeaderName> {
    let known: Vec<HeaderName> =
        (1..=table::NAMES_COUNT).filter_map(|number| table::NameId::new(number)?.header().cloned()).collect();
    let own = "[a-z0-9!#$%&'*+.^_`|~-]{1,20}".prop_map(|name| HeaderName::from_bytes(name.as_bytes()).unwrap());
    let few = sample::select(vec!["x-a", "x-b"]).prop_map(HeaderName::from_static);
    let sent = |name: &HeaderName| !is_forbidden(name, &HeaderValue::from_static("trailers"));
    prop_oneof![3 => sample::select(known).boxed(), 1 => own.boxed(), 2 => few.boxed()].prop_filter("hop by hop", sent)
}

fn a_conversation() -> impl Strategy<Value = Vec<Step>> {
    let fields = vec((a_name(), a_value()), 0..12).prop_map(|fields| {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let value = if name == "te" { HeaderValue::from_static("trailers") } else { value };
            headers.append(name, value);
        }
        headers
    });
    let path = sample::select(vec!["/", "/a", "/a?b=1", "/c/d"]);
    let step = (fields, path, prop::bool::weighted(0.1), any::<u8>(), any::<u8>()).prop_map(
        |(headers, path, forgotten, delivered, acknowledged)| Step {
            headers,
            path: path.to_owned(),
            forgotten,
            delivered,
            acknowledged,
        },
    );
    vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_conversation_survives_in_order(steps in a_conversation()) {
        let (mut encoder, mut decoder) = (Encoder::new(Mode::Ordered), Decoder::new());
        let (mut answers, mut answered) = (Encoder::new(Mode::Ordered), Decoder::new());
        for step in steps {
            let uri: Uri = format!("https://api.test{}", step.path).parse().unwrap();
            let mut out = BytesMut::new();
            encoder.encode_request(0, &Method::GET, &uri, &step.headers, &mut out).unwrap();
            let head = decoder.decode_request(&out).unwrap();
            prop_assert_eq!(&head.uri, &uri);
            prop_assert!(same(&head.headers, &step.headers));
            out.clear();
            let status = StatusCode::from_u16(200 + u16::from(step.delivered)).unwrap();
            answers.encode_response(0, status, &step.headers, &mut out).unwrap();
            let head = answered.decode_response(&out).unwrap();
            prop_assert_eq!(head.status, status);
            prop_assert!(same(&head.headers, &step.headers));
            out.clear();
            answers.encode_trailers(0, &step.headers, &mut out).unwrap();
            prop_assert!(same(&answered.decode_trailers(&out).unwrap(), &step.headers));
        }
    }

    #[test]
    fn any_conversation_survives_any_order(steps in a_conversation()) {
        let (mut encoder, mut decoder) = (Encoder::new(Mode::Unordered), Decoder::new());
        // What is on its way to the decoder and what is on its way back, by the time of arrival.
        let mut deliveries = BTreeMap::<(usize, u64), BytesMut>::new();
        let mut acknowledgements = BTreeMap::<(usize, u64), ()>::new();
        for now in 0..steps.len() + 48 {
            while let Some(entry) = acknowledgements.first_entry().filter(|entry| entry.key().0 <= now) {
                encoder.acknowledge(entry.remove_entry().0.1);
            }
            if let Some(step) = steps.get(now) {
                let mut out = BytesMut::new();
                let uri: Uri = format!("https://api.test{}", step.path).parse().unwrap();
                encoder.encode_request(now as u64, &Method::GET, &uri, &step.headers, &mut out).unwrap();
                if step.forgotten {
                    encoder.forget(now as u64);
                }
                deliveries.insert((now + usize::from(step.delivered % 24), now as u64), out);
            }
            while let Some(entry) = deliveries.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, number), block) = entry.remove_entry();
                let step = &steps[number as usize];
                let head = decoder.decode_request(&block).unwrap();
                prop_assert_eq!(head.uri.path_and_query().unwrap().as_str(), &step.path);
                prop_assert!(same(&head.headers, &step.headers));
                acknowledgements.insert((now + usize::from(step.acknowledged % 24), number), ());
            }
        }
        prop_assert!(deliveries.is_empty());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(blocks in vec(vec(any::<u8>(), 0..300), 1..8)) {
        let mut decoder = Decoder::new();
        for block in blocks {
            drop(decoder.decode_request(&block));
            drop(decoder.decode_response(&block));
            drop(decoder.decode_trailers(&block));
        }
    }

    #[test]
    fn a_damaged_block_is_decoded_or_refused(steps in a_conversation(), at: sample::Index, flip in 1_u8..) {
        let (mut encoder, mut decoder) = (Encoder::new(Mode::Ordered), Decoder::new());
        for step in steps {
            let mut out = encode(&mut encoder, &step.headers);
            let at = at.index(out.len());
            drop(decoder.decode_request(&out[..at]));
            out[at] ^= flip;
            drop(decoder.decode_request(&out));
        }
    }
}

/// Compares two header maps with the order of each name's values and their sensitivity.
fn same(left: &HeaderMap, right: &HeaderMap) -> bool {
    left == right
        && left.keys().all(|name| {
            let sensitive =
                |map: &HeaderMap| -> Vec<bool> { map.get_all(name).iter().map(HeaderValue::is_sensitive).collect() };
            sensitive(left) == sensitive(right)
        })
}
