//! The vectors in `docs/protocol/` say what the code does, and the code reads and writes what they say.
#![expect(clippy::unwrap_used, reason = "all of it is a test: a failure is a panic with its place")]

mod compose;
mod document;
mod json;
mod list;
mod session;

use std::{fmt::Write as _, fs, path::PathBuf, time::Duration};

use prost::Message;
use ropeway_core::{
    session::{Accept, Cookie},
    wire::{
        fields::Mode,
        frame::{self, PAYLOAD_BYTES_MAX},
        message::{Hello, SignedHello},
        varint,
    },
};
use serde_json::Value;

use crate::json::{Blocks, Part, hex, kind, unhex};

/// What to do when a change of the protocol is meant.
const REGENERATE: &str = "ROPEWAY_WRITE_VECTORS=1 cargo test --package ropeway-core --test vectors";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol/vectors.json")
}

fn committed() -> Value {
    let text = fs::read_to_string(path()).unwrap_or_else(|error| panic!("{error}; write the file with `{REGENERATE}`"));
    serde_json::from_str(&text).unwrap()
}

fn each<'a>(vectors: &'a Value, of: &str) -> &'a [Value] {
    vectors[of].as_array().unwrap()
}

fn text<'a>(vector: &'a Value, key: &str) -> &'a str {
    vector[key].as_str().unwrap_or_else(|| panic!("{key} of {vector}"))
}

fn bytes(vector: &Value, key: &str) -> Vec<u8> {
    unhex(text(vector, key))
}

/// Writes the document with one vector a line, so that a change shows what it changes.
fn printed(vectors: &Value) -> String {
    let mut out = String::from("{\n");
    let sections = vectors.as_object().unwrap();
    for (at, (name, section)) in sections.iter().enumerate() {
        let comma = if at + 1 < sections.len() { "," } else { "" };
        match section.as_array() {
            Some(lines) => {
                let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
                writeln!(out, "\"{name}\": [\n{}\n]{comma}", lines.join(",\n")).unwrap();
            }
            None => writeln!(out, "\"{name}\": {section}{comma}").unwrap(),
        }
    }
    out + "}\n"
}

#[test]
fn the_committed_vectors_are_what_the_code_writes() {
    let written = compose::vectors();
    if std::env::var_os("ROPEWAY_WRITE_VECTORS").is_some() {
        fs::write(path(), printed(&written)).unwrap();
    }
    let committed = committed();
    for (name, section) in written.as_object().unwrap() {
        assert!(committed[name] == *section, "`{name}` differs; if the change is meant: `{REGENERATE}`");
    }
    assert_eq!(committed.as_object().unwrap().len(), written.as_object().unwrap().len(), "`{REGENERATE}`");
}

#[test]
fn varints_are_read_and_the_shortest_form_is_written() {
    let vectors = committed();
    for vector in each(&vectors, "varints") {
        let (encoded, value) = (bytes(vector, "bytes"), vector["value"].as_u64().unwrap());
        assert_eq!(varint::read(&encoded), Some((value, encoded.len())), "{vector}");
        let mut written = Vec::new();
        varint::write(value, &mut written);
        assert_eq!(written == encoded, vector["shortest"].as_bool().unwrap(), "{vector}");
    }
    for truncated in each(&vectors, "varints_truncated") {
        assert_eq!(varint::read(&unhex(truncated.as_str().unwrap())), None, "{truncated}");
    }
}

#[test]
fn every_frame_is_read_as_it_is_described_and_written_from_its_description() {
    let vectors = committed();
    for vector in each(&vectors, "frames") {
        let encoded = bytes(vector, "bytes");
        let (decoded, length) = frame::decode(&encoded, PAYLOAD_BYTES_MAX).unwrap().unwrap();
        assert_eq!(length, encoded.len());
        assert_eq!(json::frame(decoded.unwrap(), &mut Blocks::new(Mode::Ordered)).unwrap(), *vector);
        let mut written = Vec::new();
        json::described(vector, &mut Blocks::new(Mode::Ordered)).encode(&mut written);
        assert_eq!(hex(&written), text(vector, "bytes"));
    }
    for kind in ropeway_core::wire::Kind::ALL {
        let name = json::name(kind);
        assert!(each(&vectors, "frames").iter().any(|vector| vector["kind"] == name), "no frame of kind {name}");
    }
}

#[test]
fn streams_hold_the_frames_they_are_said_to_hold() {
    let vectors = committed();
    for vector in each(&vectors, "streams") {
        let frames = compose::decode_all(&bytes(vector, "bytes"), PAYLOAD_BYTES_MAX).unwrap();
        assert_eq!(frames.len(), vector["frames"].as_array().unwrap().len(), "{vector}");
        for (frame, expected) in frames.iter().zip(each(vector, "frames")) {
            let mut described = json::frame(frame.as_ref(), &mut Blocks::new(Mode::Ordered)).unwrap();
            described.as_object_mut().unwrap().remove("bytes");
            assert_eq!(described, *expected, "{vector}");
        }
    }
}

#[test]
fn invalid_streams_end_in_the_error_of_their_name() {
    let vectors = committed();
    for vector in each(&vectors, "invalid") {
        let max = vector["payload_bytes_max"].as_u64().unwrap() as usize;
        let error = compose::read_to_error(&bytes(vector, "bytes"), max).unwrap_err();
        assert_eq!((error.name(), error.to_string().as_str()), (text(vector, "error"), text(vector, "detail")));
    }
}

#[test]
fn the_hello_is_admitted_with_each_of_its_proofs() {
    let vectors = committed();
    let vector = &vectors["hello"];
    let key: [u8; 32] = bytes(&vectors["keys"]["device"], "public").try_into().unwrap();
    let hello_frame = bytes(vector, "frame");
    let (hello_frame, _) = frame::decode(&hello_frame, PAYLOAD_BYTES_MAX).unwrap().unwrap();
    let signed: SignedHello = hello_frame.unwrap().message().unwrap();
    let hello = Hello::decode(signed.hello.clone()).unwrap();
    assert_eq!(hello.to_json(), vector["hello"]);
    assert_eq!(Hello::from_json(&vector["hello"]).encode_to_vec(), signed.hello);
    assert!(text(vector, "signed").ends_with(&hex(&signed.hello)));
    for proof in each(vector, "proofs") {
        let mut accept = Accept::new(hello.gateway.clone(), Duration::from_secs(60));
        accept.handle_hello(hello_frame.unwrap(), hello.time_ms).unwrap();
        accept.handle_device_key(&key).unwrap();
        let proof_frame = bytes(proof, "frame");
        let (proof_frame, _) = frame::decode(&proof_frame, PAYLOAD_BYTES_MAX).unwrap().unwrap();
        let binding: [u8; 32] = bytes(proof, "binding").try_into().unwrap();
        assert_eq!(accept.handle_proof(proof_frame.unwrap(), &binding).unwrap().device_key, key);
    }
}

#[test]
fn cookies_are_read_and_taken_as_their_generation_says() {
    let vectors = committed();
    let cookies = each(&vectors, "cookies");
    let current = Cookie::decode(&bytes(cookies.last().unwrap(), "bytes")).unwrap();
    for vector in cookies {
        let cookie = Cookie::decode(&bytes(vector, "bytes")).unwrap();
        assert_eq!(cookie.session().0, vector["session"].as_u64().unwrap());
        assert_eq!(hex(&cookie.encode()), text(vector, "bytes"));
        assert_eq!(current.accepts(&cookie), vector["accepted"].as_bool().unwrap());
    }
}

#[test]
fn field_blocks_are_read_in_the_order_given() {
    let vectors = committed();
    for direction in each(&vectors["blocks"], "ordered").iter().chain(each(&vectors["blocks"], "unordered")) {
        let mut blocks = Blocks::new(Mode::Ordered);
        for vector in each(direction, "blocks") {
            let read = blocks.read(kind(text(vector, "kind")), &bytes(vector, "block")).unwrap();
            assert_eq!(read, vector["fields"], "{vector}");
        }
    }
}

#[test]
fn every_frame_of_the_session_is_read_as_it_is_described_and_written_from_its_description() {
    let vectors = committed();
    for link in each(&vectors, "session") {
        let mut read = [Blocks::new(Mode::Ordered), Blocks::new(Mode::Ordered)];
        let mut write = [Blocks::new(Mode::Ordered), Blocks::new(Mode::Ordered)];
        for vector in each(link, "frames") {
            let direction = usize::from(vector["from"] == "gateway");
            let encoded = bytes(vector, "bytes");
            let (decoded, _) = frame::decode(&encoded, PAYLOAD_BYTES_MAX).unwrap().unwrap();
            let mut expected = vector.clone();
            expected.as_object_mut().unwrap().retain(|key, _| key != "from" && key != "hello");
            assert_eq!(json::frame(decoded.unwrap(), &mut read[direction]).unwrap(), expected);
            let mut written = Vec::new();
            json::described(vector, &mut write[direction]).encode(&mut written);
            assert_eq!(hex(&written), text(vector, "bytes"));
        }
    }
}
