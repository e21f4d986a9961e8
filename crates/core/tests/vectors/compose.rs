//! Writes the vectors from the code.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::{BufMut, Bytes};
use ed25519_dalek::{Signer, SigningKey};
use prost::Message;
use ropeway_core::{
    session::{Cookie, HELLO_CONTEXT, LinkError, PROOF_CONTEXT, SessionId, signed_input},
    wire::{
        Decoder, Frame, FrameError, Kind, VARINT_MAX,
        fields::Mode,
        frame::PAYLOAD_BYTES_MAX,
        message::{Hello, NetworkKind, Proof, SignedHello, Unanswered},
        varint,
    },
};
use serde_json::{Value, json};

use crate::json::{self, Blocks, Part, hex, kind, unhex};

pub(crate) const APP: &str = "shop";
pub(crate) const GATEWAY: &str = "gw.test";
pub(crate) const NOW_MS: u64 = 1_800_000_000_000;
pub(crate) const NONCE: [u8; 16] = *b"\0nonce of a test";
/// Stands for the TLS exporter of a connection.
pub(crate) const BINDING: [u8; 32] = *b"exporter of a made-up connection";
/// Stands for what a gateway draws at random on `ws`.
const CHALLENGE: [u8; 32] = *b"challenge of a made-up websocket";
/// Test only: anyone can read it here.
const DEVICE_SEED: [u8; 32] = *b"ropeway test vectors device key!";
/// Test only: anyone can read it here.
const ISSUER_SEED: [u8; 32] = *b"ropeway test vectors issuer key!";

pub(crate) fn device() -> SigningKey {
    SigningKey::from_bytes(&DEVICE_SEED)
}

/// The whole document.
pub(crate) fn vectors() -> Value {
    json!({
        "protocol": "ropeway/1",
        "keys": keys(),
        "varints": varints(),
        "varints_truncated": ["", "40", "8000", "c0000000000000"],
        "frames": frames(),
        "streams": streams(),
        "invalid": invalid(),
        "hello": hello(),
        "cookies": cookies(),
        "blocks": blocks(),
        "session": crate::session::links(),
    })
}

fn keys() -> Value {
    let key = |seed: [u8; 32]| {
        let public = SigningKey::from_bytes(&seed).verifying_key().to_bytes();
        json!({ "use": "tests only: the seed is published here", "seed": hex(&seed), "public": hex(&public) })
    };
    json!({ "device": key(DEVICE_SEED), "issuer": key(ISSUER_SEED) })
}

fn varints() -> Vec<Value> {
    let shortest = [0, 1, 37, 63, 64, 15_293, 16_383, 16_384, 494_878_333, (1 << 30) - 1, 1 << 30];
    let shortest = shortest.into_iter().chain([151_288_809_941_952_652, VARINT_MAX]).map(|value| {
        let mut bytes = Vec::new();
        varint::write(value, &mut bytes);
        json!({ "bytes": hex(&bytes), "value": value, "shortest": true })
    });
    let longer = ["4025", "80000025", "c000000000000025"];
    shortest.chain(longer.map(|bytes| json!({ "bytes": bytes, "value": 37, "shortest": false }))).collect()
}

/// One frame of every kind or more, each on its own: field blocks begin with an empty dictionary.
fn frames() -> Vec<Value> {
    let cases = json!([
        ["HELLO", 0, [], { "hello": "0102", "signature": "03" }],
        ["PROOF", 0, [], { "signature": hex(&[7; 64]) }],
        ["PROOF", 0, [], { "challenge": hex(&CHALLENGE) }],
        ["WELCOME", 0, [], {}],
        ["WELCOME", 0, [], {
            "resume": "aa", "resumed": true, "gap": true, "push_sequence": 41, "channel_credit": 262_144, "link_credit": 1_048_576,
            "settled": [
                { "channel": 1 },
                { "channel": 2, "state": "SETTLEMENT_NEVER_SEEN" },
                { "channel": 3, "state": "SETTLEMENT_RUNNING", "body_received": 10, "body_limit": 262_154 },
                { "channel": 4, "state": "SETTLEMENT_DONE", "body_received": 300 }
            ],
            "frame_bytes_max": 65_536, "time_ms": NOW_MS, "heartbeat_min_ms": 15_000, "heartbeat_max_ms": 590_000,
            "hosts": ["api.test", "*.shop.test"], "gateway": GATEWAY, "channels_max": 256
        }],
        ["REFUSE", 0, [], { "code": "REFUSE_CODE_OVERLOADED", "retry_after_ms": 1500, "detail": "too many links" }],
        ["REFUSE", 0, [], {}],
        ["PING", 0, [], ""],
        ["PING", 0, [], "0102030405060708"],
        ["PONG", 0, [], "0102030405060708"],
        ["CREDIT", 0, [], { "bytes": 524_288 }],
        ["CREDIT", 16_384, [], { "bytes": 131_072 }],
        ["REQUEST", 1, ["END"], [
            [":method", "GET"], [":scheme", "https"], [":authority", "api.test"], [":path", "/v1/orders?page=1"],
            ["accept", "application/json"], ["authorization", "Bearer abc", "sensitive"], ["x-app", "shop 7"]
        ]],
        ["REQUEST", 64, [], [[":method", "OPTIONS"], [":scheme", "http"], [":authority", "[::1]:8080"], [":path", "*"]]],
        ["RESPONSE", 1, [], [[":status", "200"], ["content-type", "application/json"], ["content-length", "2"]]],
        ["RESPONSE", 64, ["END"], [[":status", "499"]]],
        ["BODY", 1, ["END"], "7b7d"],
        ["BODY", VARINT_MAX, [], ""],
        ["TRAILERS", 1, ["END"], [["grpc-status", "0"], ["x-empty", ""]]],
        ["RESET", 1, ["END"], { "code": "RESET_CODE_UPSTREAM_CUT", "detail": "the service closed" }],
        ["STREAM", 5, [], "00"],
        ["SUBSCRIBE", 0, [], { "topics": ["news", "weather"] }],
        ["UNSUBSCRIBE", 0, [], { "topics": ["news"] }],
        ["PUSH", 0, [], {
            "sequence": 42, "message_id": "01J0", "topic": "news", "content_type": "text/plain", "payload": "736e6f77",
            "time_ms": NOW_MS, "redelivered": true
        }],
        ["ACK", 0, [], { "push_sequence": 42 }],
        ["ACK", 0, [], { "fields": [3, 1, 300] }],
        ["SYNC", 0, [], { "sequence": 41 }],
        ["PROBE", 0, [], "ff"],
        ["REDIRECT", 0, ["IGNORABLE"], { "unit": "north", "list": "00" }],
        ["LIST", 0, ["IGNORABLE"], { "document": "00" }],
        ["POLICY", 0, ["IGNORABLE"], { "document": "00" }],
        ["DRAIN", 0, [], { "last_channel": VARINT_MAX, "close_after_ms": 30_000 }],
        ["DRAIN", 0, [], { "last_channel": 17 }],
    ]);
    cases.as_array().unwrap().iter().map(described).collect()
}

fn described(case: &Value) -> Value {
    let of = kind(case[0].as_str().unwrap());
    let content = if json::is_block(of) {
        "block"
    } else if case[3].is_object() {
        "message"
    } else {
        "payload"
    };
    let said = json!({ "kind": case[0], "channel": case[1], "flags": case[2], content: case[3] });
    let frame = json::described(&said, &mut Blocks::new(Mode::Ordered));
    json::frame(frame.as_ref(), &mut Blocks::new(Mode::Ordered)).unwrap()
}

/// Streams that may hold what a receiver does not know.
fn streams() -> Vec<Value> {
    let cases = [
        ("an unknown kind with IGNORABLE is skipped", "7f02000301020305000000", 1),
        ("flags without a meaning are passed over", "05f0000405060708", 1),
        ("a field that a message does not have is passed over", "07000005081e80017b", 1),
        ("the last of two values of a field counts", "070001040801080a", 1),
        ("nothing at all is a stream of no frames", "", 0),
        ("lengths in longer forms are lengths", "0500400080000000", 1),
    ];
    cases
        .into_iter()
        .map(|(why, bytes, count)| {
            let frames = decode_all(&unhex(bytes), PAYLOAD_BYTES_MAX).unwrap();
            assert_eq!(frames.len(), count, "{why}");
            let mut blocks = Blocks::new(Mode::Ordered);
            let described = frames.iter().map(|frame| {
                let mut described = json::frame(frame.as_ref(), &mut blocks).unwrap();
                described.as_object_mut().unwrap().remove("bytes");
                described
            });
            json!({ "why": why, "bytes": bytes, "frames": described.collect::<Value>() })
        })
        .collect()
}

/// Streams that end in an error, with its name.
fn invalid() -> Vec<Value> {
    let mut request = vec![0x10, 0x01, 0x01];
    let mut with_block = |block: &str| {
        request.truncate(3);
        let block = unhex(block);
        varint::write(block.len() as u64, &mut request);
        request.put_slice(&block);
        hex(&request)
    };
    let good = "0082872f861d665d25427f";
    let cases = [
        ("a head that is cut short", "0500".into(), PAYLOAD_BYTES_MAX),
        ("a payload that is cut short", "1200010568656c6c".into(), PAYLOAD_BYTES_MAX),
        ("a length that is cut short", "120001c0".into(), PAYLOAD_BYTES_MAX),
        ("a payload longer than was negotiated", "12000111".into(), 16),
        ("a payload longer than 64 KiB", "12000180010001".into(), PAYLOAD_BYTES_MAX),
        ("the longest length there is", "120001ffffffffffffffff".into(), PAYLOAD_BYTES_MAX),
        ("an unknown kind", "7f000000".into(), PAYLOAD_BYTES_MAX),
        ("an unknown kind before its channel came", "0000".into(), PAYLOAD_BYTES_MAX),
        ("an unknown kind with IGNORABLE that is too long", "7f020011".into(), 16),
        ("a message cut inside a field", "070000020880".into(), PAYLOAD_BYTES_MAX),
        ("a string that is not UTF-8", "200000040a02fffe".into(), PAYLOAD_BYTES_MAX),
        ("a field in the wrong wire type", "070000020a00".into(), PAYLOAD_BYTES_MAX),
        ("a field with number zero", "070000020000".into(), PAYLOAD_BYTES_MAX),
        ("an empty field block", with_block(""), PAYLOAD_BYTES_MAX),
        ("a first slot beyond the dictionary", with_block("40"), PAYLOAD_BYTES_MAX),
        ("an empty slot", with_block(&format!("{good}8445")), PAYLOAD_BYTES_MAX),
        ("a static index beyond the table", with_block("00fffe7f"), PAYLOAD_BYTES_MAX),
        ("static index zero", with_block("0080"), PAYLOAD_BYTES_MAX),
        ("an integer without an end", with_block("00ffffffffff"), PAYLOAD_BYTES_MAX),
        ("a block that ends inside a field", with_block("0082872f861d66"), PAYLOAD_BYTES_MAX),
        ("a request without a path", with_block(good), PAYLOAD_BYTES_MAX),
        ("a request with two methods", with_block(&format!("{good}8483")), PAYLOAD_BYTES_MAX),
        ("a status in a request", with_block(&format!("{good}8488")), PAYLOAD_BYTES_MAX),
        ("a pseudo-field after a header", with_block("0082872f861d665d25427fce84"), PAYLOAD_BYTES_MAX),
        ("an unknown pseudo-field", with_block(&format!("{good}8410023a780161")), PAYLOAD_BYTES_MAX),
        ("a name in upper case", with_block(&format!("{good}841001580161")), PAYLOAD_BYTES_MAX),
        ("a header of one connection", with_block(&format!("{good}84100a636f6e6e656374696f6e0161")), PAYLOAD_BYTES_MAX),
        ("the method CONNECT", with_block("001f1007434f4e4e454354"), PAYLOAD_BYTES_MAX),
        ("user information in the authority", with_block("0082871f0003754062"), PAYLOAD_BYTES_MAX),
        (
            "the end-of-string symbol in the Huffman code",
            with_block(&format!("{good}84100161 84ffffffff").replace(' ', "")),
            PAYLOAD_BYTES_MAX,
        ),
        (
            "zeros behind a Huffman code",
            with_block(&format!("{good}84100161 8118").replace(' ', "")),
            PAYLOAD_BYTES_MAX,
        ),
    ];
    cases
        .into_iter()
        .map(|(why, bytes, max)| {
            let error = read_to_error(&unhex(&bytes), max).expect_err(why);
            json!({ "why": why, "bytes": bytes, "payload_bytes_max": max, "error": error.name(), "detail": error.to_string() })
        })
        .collect()
}

/// Reads a whole stream with everything in its frames.
pub(crate) fn read_to_error(bytes: &[u8], payload_bytes_max: usize) -> Result<(), LinkError> {
    let mut blocks = Blocks::new(Mode::Ordered);
    for frame in decode_all(bytes, payload_bytes_max)? {
        json::frame(frame.as_ref(), &mut blocks)?;
    }
    Ok(())
}

/// Cuts a whole stream into its frames.
pub(crate) fn decode_all(bytes: &[u8], payload_bytes_max: usize) -> Result<Vec<Frame>, FrameError> {
    let mut frames = Vec::new();
    let mut decoder = Decoder::new(payload_bytes_max);
    decoder.feed(bytes, &mut |frame| {
        frames.push(frame.to_owned());
        Ok::<_, FrameError>(())
    })?;
    decoder.finish()?;
    Ok(frames)
}

pub(crate) fn ticket() -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let jwk =
        json!({ "crv": "Ed25519", "kty": "OKP", "x": URL_SAFE_NO_PAD.encode(device().verifying_key().to_bytes()) });
    let head = part(&json!({ "alg": "EdDSA", "kid": "test" }));
    let seconds = NOW_MS / 1000;
    let claims =
        part(&json!({ "aud": APP, "cnf": { "jwk": jwk }, "exp": seconds + 3600, "iat": seconds, "sub": "ada" }));
    let message = format!("{head}.{claims}");
    let signature = SigningKey::from_bytes(&ISSUER_SEED).sign(message.as_bytes()).to_bytes();
    format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// A HELLO with every field set, and the two kinds of PROOF behind it.
fn hello() -> Value {
    let unanswered = Unanswered { channel: 7, head_received: true, body_received: 100, body_limit: 262_244 };
    let hello = Hello {
        ticket: ticket(),
        app: APP.into(),
        device: "d-1".into(),
        sdk: "0.1.0".into(),
        platform: "android 15".into(),
        network: NetworkKind::Cellular4g.into(),
        unit: "north".into(),
        unit_epoch: 3,
        resume: Bytes::copy_from_slice(&Cookie::new(SessionId(1), [9; 16]).encode()),
        push_sequence: 41,
        unanswered: vec![unanswered, Unanswered { channel: 9, ..Unanswered::default() }],
        list_epoch: NOW_MS / 1000,
        trace_parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        time_ms: NOW_MS,
        nonce: Bytes::from_static(&NONCE),
        gateway: GATEWAY.into(),
        channel_credit: 262_144,
        link_credit: 1_048_576,
        frame_bytes_max: 65_536,
        topics: vec!["news".into()],
    };
    let bytes = hello.encode_to_vec();
    let sign = |context: &str, message: &[u8]| {
        let input = signed_input(context, message);
        (hex(&input), Bytes::copy_from_slice(&device().sign(&input).to_bytes()))
    };
    let (signed, signature) = sign(HELLO_CONTEXT, &bytes);
    let frame = Frame::control(Kind::Hello, &SignedHello { hello: bytes.into(), signature: signature.clone() });
    let proofs = [("tls and quic: the TLS exporter", BINDING), ("ws: the challenge", CHALLENGE)].map(|(on, binding)| {
        let (signed, signature) = sign(PROOF_CONTEXT, &binding);
        let proof = Frame::control(Kind::Proof, &Proof { challenge: Bytes::new(), signature: signature.clone() });
        json!({ "on": on, "binding": hex(&binding), "signed": signed, "signature": hex(&signature), "frame": encoded(&proof) })
    });
    json!({
        "hello": hello.to_json(), "signed": signed, "signature": hex(&signature), "frame": encoded(&frame), "proofs": proofs,
        "ticket_issuer": hex(&SigningKey::from_bytes(&ISSUER_SEED).verifying_key().to_bytes()),
    })
}

/// The fields of the HELLO that a SignedHello carries.
pub(crate) fn hello_fields(bytes: &[u8]) -> Value {
    Hello::decode(bytes).unwrap().to_json()
}

fn encoded(frame: &Frame) -> String {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    hex(&bytes)
}

/// Cookies of one session, and which of them are taken when the third generation is the current one.
fn cookies() -> Vec<Value> {
    let mut cookie = Cookie::new(SessionId(0x0102_0304_0506_0708), *b"cookie of a test");
    let mut generations = Vec::new();
    for _ in 0..3 {
        generations.push(cookie.clone());
        cookie.advance();
    }
    let current = generations[2].clone();
    let ours = generations.iter().enumerate().map(|(generation, cookie)| (generation, cookie.clone(), cookie.encode()));
    ours.map(|(generation, cookie, bytes)| {
        json!({
            "bytes": hex(&bytes), "session": cookie.session().0, "generation": generation,
            "secret": hex(b"cookie of a test"), "accepted": current.accepts(&cookie),
        })
    })
    .collect()
}

/// Field blocks that follow each other in one direction of a link.
fn blocks() -> Value {
    let request = |path: &str, more: Value| {
        let mut fields = json!([[":method", "GET"], [":scheme", "https"], [":authority", "api.test"], [":path", path]]);
        fields.as_array_mut().unwrap().extend(more.as_array().unwrap().iter().cloned());
        ("REQUEST", fields)
    };
    let token = json!(["x-token", "2vK9"]);
    let requests = [
        request("/v1/orders", json!([["accept", "application/json"], token])),
        request("/v1/orders", json!([["accept", "application/json"], token])),
        request("/v1/orders", json!([["x-token", "other"], ["cookie", "a=1", "sensitive"]])),
        ("TRAILERS", json!([["x-checksum", "00ff"], token])),
        request("/v1/orders", json!([token, ["x-long", "~".repeat(300)]])),
    ];
    let answers = [
        ("RESPONSE", json!([[":status", "200"], ["server", "nginx"], ["x-cache", "HIT"]])),
        ("RESPONSE", json!([[":status", "404"], ["server", "nginx"], ["x-cache", "MISS"], ["x-cache", "stale"]])),
        ("RESPONSE", json!([[":status", "200"], ["x-cache", "HIT"], ["date", "Fri, 15 Jan 2027 08:00:00 GMT"]])),
    ];
    json!({
        "ordered": [
            { "from": "client", "blocks": encode_blocks(Mode::Ordered, &requests) },
            { "from": "gateway", "blocks": encode_blocks(Mode::Ordered, &answers) },
        ],
        "unordered": [
            { "from": "client", "blocks": encode_blocks(Mode::Unordered, &requests) },
            { "from": "gateway", "blocks": encode_blocks(Mode::Unordered, &answers) },
        ],
    })
}

/// Encodes blocks on channels 1, 2, …. On an unordered carrier the second is read before the first, and only the first two are
/// acknowledged before the rest is written.
fn encode_blocks(mode: Mode, messages: &[(&str, Value)]) -> Vec<Value> {
    let mut blocks = Blocks::new(mode);
    let mut written: Vec<Value> = Vec::new();
    for (at, (of, fields)) in messages.iter().enumerate() {
        let channel = at as u64 + 1;
        let block = blocks.write(kind(of), channel, fields);
        written.push(json!({ "kind": of, "channel": channel, "block": hex(&block), "fields": fields }));
        if mode == Mode::Unordered && channel == 2 {
            written.swap(0, 1);
            blocks.acknowledge(1);
            blocks.acknowledge(2);
        }
    }
    written
}
