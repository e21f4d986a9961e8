//! `docs/protocol/fields.md` says what the code does.

use super::*;

const DOCUMENT: &str = include_str!("../../../../../../docs/protocol/fields.md");

/// The text of every fenced block with this label.
fn blocks(label: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    let mut parts = DOCUMENT.split("```");
    while let (Some(_), Some(block)) = (parts.next(), parts.next()) {
        if let Some(text) = block.strip_prefix(label).and_then(|text| text.strip_prefix('\n')) {
            found.push(text);
        }
    }
    found
}

/// The bytes of a fenced block whose lines are `hex bytes | meaning`.
fn bytes(block: &str) -> Vec<u8> {
    let hex = block.lines().flat_map(|line| line.split('|').next().unwrap_or("").split_whitespace());
    hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
}

#[test]
fn the_documented_tables_are_those_of_the_code() {
    let names: Vec<String> =
        table::NAMES.iter().enumerate().map(|(at, (name, _))| format!("{:>3} {name}", at + 1)).collect();
    assert_eq!(blocks("names")[0].lines().collect::<Vec<_>>(), names);
    let fields: Vec<String> = table::ENTRIES
        .iter()
        .enumerate()
        .map(|(at, (name, value))| format!("{:>3} {name}: {value}", at + 1).trim_end().to_owned())
        .collect();
    assert_eq!(blocks("fields")[0].lines().collect::<Vec<_>>(), fields);
}

#[test]
fn the_first_static_fields_are_those_of_hpack() {
    for (at, (name, value)) in table::ENTRIES[..61].iter().enumerate() {
        let pairs = fluke_hpack::Decoder::new().decode(&[0x80 | (at + 1) as u8]).unwrap();
        assert_eq!(pairs, [(name.as_bytes().to_vec(), value.as_bytes().to_vec())]);
    }
}

#[test]
fn the_documented_example_is_what_travels() {
    let examples = blocks("block");
    let (mut requests, mut responses) = (Encoder::new(Mode::Ordered), Encoder::new(Mode::Ordered));
    let (mut out, mut written) = (BytesMut::new(), Vec::new());
    let uri = Uri::from_static("https://api.test/v1/orders?page=1");
    let sent = headers(&[("accept", "application/json"), ("x-app", "shop 7")]);
    for _ in 0..2 {
        requests.encode_request(0, &Method::GET, &uri, &sent, &mut out).unwrap();
        written.push(out.split().to_vec());
    }
    let sent = headers(&[("content-type", "application/json"), ("content-length", "1234"), ("x-cache", "HIT")]);
    responses.encode_response(0, StatusCode::OK, &sent, &mut out).unwrap();
    written.push(out.split().to_vec());
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x} ")).collect::<String>();
    for (example, written) in examples.iter().zip(&written) {
        assert_eq!(hex(&bytes(example)), hex(written));
    }
    assert_eq!(examples.len(), written.len());
}

#[test]
fn the_documented_example_is_understood() {
    let examples = blocks("block");
    let (mut requests, mut responses) = (Decoder::new(), Decoder::new());
    for example in &examples[..2] {
        let head = requests.decode_request(&bytes(example)).unwrap();
        assert_eq!(head.method, Method::GET);
        assert_eq!(head.uri, "https://api.test/v1/orders?page=1");
        assert_eq!(head.headers, headers(&[("accept", "application/json"), ("x-app", "shop 7")]));
    }
    let head = responses.decode_response(&bytes(examples[2])).unwrap();
    assert_eq!(head.status, StatusCode::OK);
    let expected = [("content-type", "application/json"), ("content-length", "1234"), ("x-cache", "HIT")];
    assert_eq!(head.headers, headers(&expected));
}
