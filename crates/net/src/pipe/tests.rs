use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use proptest::prelude::*;

use super::*;

const NOW_MS: u64 = 1_790_000_000_000;

fn key() -> PipeKey {
    PipeKey::from_seed(5, &[7; 32]).expect("a key")
}

fn config() -> PipeConfig {
    PipeConfig::parse(key().config()).expect("a configuration")
}

fn post() -> (http::request::Parts, Content) {
    let request = Request::post("https://api.test/orders?id=1").header("x-a", "1").header("x-a", "2");
    let (head, ()) = request.body(()).expect("a request").into_parts();
    let trailers = HeaderMap::from_iter([("x-sum".parse().expect("a name"), HeaderValue::from_static("9"))]);
    (head, Content { data: Bytes::from_static(b"two pears"), trailers: Some(trailers) })
}

fn sealed() -> (Bytes, AnswerOpener) {
    let (head, content) = post();
    config().seal(head, &content, NOW_MS).expect("sealed")
}

fn created() -> Response<Content> {
    let response = Response::builder().status(StatusCode::CREATED).header("location", "/orders/1");
    response.body(Content::from(Bytes::from_static(b"done"))).expect("a response")
}

#[test]
fn a_request_and_its_answer_come_out_as_they_went_in() {
    let (sealed, opener) = sealed();
    let opened = key().open(&sealed).expect("opened");
    assert_eq!((key_id(&sealed), opened.date_ms), (Some(5), Some(NOW_MS)));
    assert_eq!(opened.enc[..], sealed[7..39]);
    let request = opened.request.expect("a request");
    assert_eq!((request.method(), request.uri().to_string().as_str()), (&Method::POST, "https://api.test/orders?id=1"));
    assert_eq!(request.headers().get_all("x-a").iter().collect::<Vec<_>>(), ["1", "2"]);
    assert_eq!(request.headers().len(), 2, "the date is the pipe's own");
    assert_eq!(request.body(), &post().1);

    let answer = opened.answer.seal(created()).expect("sealed");
    let response = opener.open(&answer).expect("opened");
    assert_eq!((response.status(), response.body()), (StatusCode::CREATED, created().body()));
    assert_eq!(response.headers(), created().headers());
}

#[test]
fn a_request_that_was_changed_anywhere_is_not_opened() {
    let (sealed, _) = sealed();
    for place in 0..sealed.len() {
        for bit in 0..8 {
            let mut changed = sealed.to_vec();
            changed[place] ^= 1 << bit;
            let error = key().open(&changed).expect_err("it was changed");
            assert!(matches!(error, OpenError::Changed | OpenError::Unsupported), "{place}.{bit}: {error:?}");
        }
    }
    for length in 0..sealed.len() {
        key().open(&sealed[..length]).expect_err("it was cut");
    }
}

#[test]
fn an_answer_that_was_changed_anywhere_is_not_opened() {
    let (request, _) = sealed();
    let length = key().open(&request).expect("opened").answer.seal(created()).expect("sealed").len();
    for place in 0..length {
        let (request, opener) = sealed();
        let mut answer = key().open(&request).expect("opened").answer.seal(created()).expect("sealed").to_vec();
        answer[place] ^= 1;
        assert_eq!(opener.open(&answer).expect_err("it was changed"), OpenError::Changed, "{place}");
    }
}

#[test]
fn an_answer_to_another_request_is_not_opened() {
    let (first, _) = sealed();
    let (_, opener) = sealed();
    let answer = key().open(&first).expect("opened").answer.seal(created()).expect("sealed");
    assert_eq!(opener.open(&answer).expect_err("another's"), OpenError::Changed);
}

#[test]
fn a_request_sealed_for_another_key_is_not_opened() {
    let (sealed, _) = sealed();
    let other = PipeKey::from_seed(5, &[8; 32]).expect("a key");
    assert_eq!(other.open(&sealed).expect_err("another's"), OpenError::Changed);
}

#[test]
fn a_list_gives_the_first_configuration_that_can_be_used() {
    let foreign = Bytes::from([&[9, 0, 0x10][..], &[1; 65], &[0, 4, 0, 1, 0, 1]].concat());
    let list = encode_configs([&foreign, key().config()]);
    assert_eq!(PipeConfig::parse_list(&list).expect("usable").id(), 5);
    assert_eq!(PipeConfig::parse_list(&encode_configs([&foreign])), Err(PipeConfigError::Unsupported));
    assert_eq!(PipeConfig::parse_list(&list[..list.len() - 1]), Err(PipeConfigError::Malformed));
    assert_eq!(PipeConfig::parse_list(b"\0"), Err(PipeConfigError::Malformed));
    let again = PipeConfig::parse(config().encoded()).expect("its own encoding");
    assert_eq!(again, config());
}

#[test]
fn a_configuration_with_unknown_ciphers_beside_a_known_one_is_used() {
    let mut encoded = key().config()[..35].to_vec();
    encoded.extend_from_slice(&[0, 12, 0, 9, 0, 9, 0, 1, 0, 2, 0, 1, 0, 3]);
    let config = PipeConfig::parse(&encoded).expect("ChaCha20Poly1305 is among them");
    let (head, content) = post();
    let (sealed, _) = config.seal(head, &content, NOW_MS).expect("sealed");
    assert_eq!(sealed[..7], [5, 0, 0x20, 0, 1, 0, 3]);
    assert!(key().open(&sealed).expect("opened").request.is_ok());

    let mut none = key().config()[..35].to_vec();
    none.extend_from_slice(&[0, 4, 0, 1, 0, 2]);
    assert_eq!(PipeConfig::parse(&none), Err(PipeConfigError::Unsupported));
}

#[test]
fn what_concerns_one_connection_does_not_go_through() {
    let request = Request::get("https://api.test/").header("connection", "close").header("te", "trailers");
    let (head, ()) = request.body(()).expect("a request").into_parts();
    let (sealed, _) = config().seal(head, &Content::default(), NOW_MS).expect("sealed");
    let opened = key().open(&sealed).expect("opened");
    assert!(opened.request.expect("a request").headers().is_empty());
}

#[test]
fn what_is_no_request_is_named() {
    let message = |uri: &str, method| {
        let (mut head, ()) = Request::get(uri).body(()).expect("a request").into_parts();
        head.method = method;
        config().seal(head, &Content::default(), NOW_MS).map(drop)
    };
    assert_eq!(message("/only/a/path", Method::GET), Err(SealError::Message(MessageError::Target)));
    assert_eq!(message("https://api.test/", Method::CONNECT), Err(SealError::Message(MessageError::Target)));

    let decoded = |bytes: &[u8]| decode_request(bytes).map(drop);
    assert_eq!(decoded(b"\x01\x40\xc8"), Err(MessageError::Kind));
    assert_eq!(decoded(b""), Err(MessageError::Encoding));
    assert_eq!(decoded(b"\0\x03GET\x05https\0\x01/"), Err(MessageError::Target));
    assert_eq!(decoded(b"\0\x03GET\x03ftp\x01a\x01/"), Err(MessageError::Target));
    assert_eq!(decoded(b"\0\x03GET\x05https\x01a\x01/\x04\x01A\x01b"), Err(MessageError::Field));
    assert_eq!(decoded(b"\0\x03GET\x05https\x01a\x01/\x04\x01a\x01\n"), Err(MessageError::Field));
    assert_eq!(decoded(b"\0\x03GET\x05https\x01a\x01/"), Ok(()), "empty parts may be left out");
    let many = b"\x01a\x01b".repeat(FIELDS_MAX + 1);
    let length = u16::try_from(many.len()).expect("short") | 0x4000;
    let many = [&b"\0\x03GET\x05https\x01a\x01/"[..], &length.to_be_bytes(), &many].concat();
    assert_eq!(decoded(&many), Err(MessageError::TooManyFields));
}

#[test]
fn the_documented_vectors_hold() {
    let document = include_str!("../../../../docs/protocol/pipe.md");
    let vector = document.split_once("## Vectors").expect("there is one").1;
    let bytes = |block: usize| -> Vec<u8> {
        let hex: Vec<u8> =
            vector.split("```").nth(2 * block + 1).expect("a block").bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |hex: u8| char::from(hex).to_digit(16).and_then(|digit| u8::try_from(digit).ok()).expect("a digit");
        hex.chunks(2).map(|two| digit(two[0]) << 4 | digit(two[1])).collect()
    };
    assert_eq!(bytes(0), key().config()[..]);
    let opened = key().open(&bytes(1)).expect("opened");
    let request = opened.request.expect("a request");
    assert_eq!((request.uri().to_string().as_str(), opened.date_ms), ("https://api.test/orders?id=1", Some(NOW_MS)));
    assert_eq!((request.headers()["x-a"].as_bytes(), &request.body().data[..]), (&b"1"[..], &b"two pears"[..]));
    let seed = bytes(2).try_into().expect("32 bytes");
    assert_eq!(bytes(3), PipeKey::from_seed(220, &seed).expect("a key").config()[..]);
}

#[test]
fn dates_read_back_to_the_second() {
    assert_eq!(http_date(NOW_MS + 999), "Mon, 21 Sep 2026 14:13:20 GMT");
    assert_eq!(parse_http_date(&http_date(NOW_MS + 999)), Some(NOW_MS));
    assert_eq!(parse_http_date(&HeaderValue::from_static("today")), None);
    assert_eq!(http_date(u64::MAX), "Fri, 31 Dec 9999 23:59:59 GMT");
}

proptest! {
    #[test]
    fn no_bytes_make_the_openers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = key().open(&bytes);
        let _ = PipeConfig::parse(&bytes);
        let _ = PipeConfig::parse_list(&bytes);
        let _ = decode_request(&bytes);
        let _ = decode_response(&bytes);
        let _ = sealed().1.open(&bytes);
    }

    #[test]
    fn any_body_and_fields_come_out_as_they_went_in(
        data in prop::collection::vec(any::<u8>(), 0..2_000),
        values in prop::collection::vec("[ -~]{0,30}", 0..20),
    ) {
        let mut request = Request::put("https://a.test:8443/x");
        for value in &values {
            request = request.header("x-v", value);
        }
        let (head, ()) = request.body(()).expect("a request").into_parts();
        let content = Content::from(Bytes::from(data));
        let (sealed, _) = config().seal(head.clone(), &content, NOW_MS).expect("sealed");
        let request = key().open(&sealed).expect("opened").request.expect("a request");
        prop_assert_eq!(request.headers(), &head.headers);
        prop_assert_eq!(request.body(), &content);
    }
}
