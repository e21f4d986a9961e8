//! Inputs to begin with, out of the vectors of the link protocol.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use ropeway_core::wire::{Flags, Frame, Kind};
use serde_json::{Value, json};

static VECTORS: LazyLock<Value> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../docs/protocol/vectors.json")).expect("the vectors are JSON")
});

/// The key that signs tickets here; its seed is published in the vectors, for tests alone.
pub(crate) static ISSUER: LazyLock<SigningKey> = LazyLock::new(|| key("issuer"));

/// The key of the device that says HELLO in the vectors.
pub(crate) static DEVICE: LazyLock<SigningKey> = LazyLock::new(|| key("device"));

/// Tickets that are good: nobody can make others without the key.
pub(crate) static TICKETS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let text = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let cnf = json!({ "jwk": { "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(DEVICE.verifying_key().to_bytes()) } });
    let claims = [
        json!({ "sub": "ada", "aud": ["mail", "shop"], "exp": 2e9, "nbf": 1.5, "jti": "1", "cnf": cnf }),
        json!({ "sub": "ada", "aud": "shop", "exp": 1, "cnf": cnf }),
        json!({ "sub": "ada", "aud": "other", "exp": 2_000_000_000, "cnf": cnf }),
        json!({ "sub": "", "aud": "shop", "exp": 2_000_000_000, "cnf": { "jwk": {} } }),
        json!({ "aud": {}, "exp": "soon" }),
    ];
    let signed = claims.iter().map(|claims| {
        let message = format!("{}.{}", text(&json!({ "alg": "EdDSA", "kid": "test" })), text(claims));
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(ISSUER.sign(message.as_bytes()).to_bytes()))
    });
    signed.chain([string(&VECTORS["hello"]["hello"]["ticket"]).to_owned()]).collect()
});

pub(crate) fn varint() -> Vec<Vec<u8>> {
    hex_of(&VECTORS["varints"], "bytes")
}

pub(crate) fn cookie() -> Vec<Vec<u8>> {
    hex_of(&VECTORS["cookies"], "bytes")
}

pub(crate) fn frames() -> Vec<Vec<u8>> {
    let parts = ["frames", "streams", "invalid"].into_iter().flat_map(|part| hex_of(&VECTORS[part], "bytes"));
    parts.chain(client()).chain(server()).collect()
}

/// Blocks of one direction as frames, one input a direction.
pub(crate) fn fields() -> Vec<Vec<u8>> {
    let directions = ["ordered", "unordered"].into_iter().flat_map(|order| list(&VECTORS["blocks"][order]));
    directions
        .map(|direction| {
            let mut input = Vec::new();
            for block in list(&direction["blocks"]) {
                let kind =
                    Kind::ALL.into_iter().find(|kind| format!("{kind:?}").to_uppercase() == string(&block["kind"]));
                let payload = unhex(string(&block["block"])).into();
                Frame { kind: kind.expect("a kind"), flags: Flags::NONE, channel: 1, payload }.encode(&mut input);
            }
            input
        })
        .collect()
}

/// HELLO and PROOF, for both kinds of binding.
pub(crate) fn hello() -> Vec<Vec<u8>> {
    let hello = unhex(string(&VECTORS["hello"]["frame"]));
    list(&VECTORS["hello"]["proofs"]).map(|proof| [hello.clone(), unhex(string(&proof["frame"]))].concat()).collect()
}

/// What a gateway says on each link, and on one after the other; there a HELLO stands for the next link.
pub(crate) fn client() -> Vec<Vec<u8>> {
    let mut said = said("gateway");
    if let [first, second, both] = said.as_mut_slice() {
        let mut hello = Vec::new();
        Frame { kind: Kind::Hello, flags: Flags::NONE, channel: 0, payload: Bytes::new() }.encode(&mut hello);
        *both = [first.as_slice(), &hello, second].concat();
    }
    said
}

/// What a client says on each link, and on one after the other.
pub(crate) fn server() -> Vec<Vec<u8>> {
    said("client")
}

pub(crate) fn config() -> Vec<Vec<u8>> {
    let sample = ropeway_gateway::config::sample();
    let open: String = sample
        .lines()
        .map(|line| line.strip_prefix('#').unwrap_or(line))
        .fold(String::new(), |text, line| text + line + "\n");
    let small = [
        "",
        "[gateway]\nname = \"edge.test\"\n",
        "[[route]]\nhost = \"api.test\"\nupstream = \"http://127.0.0.1:8000\"\n",
        "[tickets]\napps = [\"shop\"]\n[[tickets.key]]\nkid = \"k\"\npublic_key = \"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"\n",
    ];
    [sample, open].into_iter().chain(small.map(str::to_owned)).map(String::into_bytes).collect()
}

pub(crate) fn ticket() -> Vec<Vec<u8>> {
    TICKETS.iter().map(|ticket| ticket.clone().into_bytes()).collect()
}

/// What goes through a sealed pipe, in the order of its protocol: the body's first byte says which.
pub(crate) fn pipe() -> Vec<Vec<u8>> {
    let [config, sealed] = pipe_vector();
    let list = [&[0, 45][..], &config].concat();
    let request = b"\0\x04POST\x05https\x08api.test\x02/a\x08\x03x-a\x011\x00\x00\x05pears";
    let parts: [&[u8]; 5] = [&sealed, &config, &list, request, b"\x01\x40\xc8\x04\x01a\x01b\x04done"];
    (0..).zip(parts).map(|(first, part)| [&[first][..], part].concat()).collect()
}

/// The key configuration and the sealed request that the document of the pipe has.
pub(crate) fn pipe_vector() -> [Vec<u8>; 2] {
    let document = include_str!("../../../docs/protocol/pipe.md");
    let vector = document.split_once("## Vector").expect("there is one").1;
    let block = |number: usize| vector.split("```").nth(number).expect("a block").lines().collect::<String>();
    [unhex(&block(1)), unhex(&block(3))]
}

/// Heads as they come to and from a gateway that signs; an empty line parts request and answer.
pub(crate) fn signed() -> Vec<Vec<u8>> {
    let document = include_str!("../../../docs/protocol/plain-http.md");
    let vector = document.split_once("## Vector").expect("there is one").1;
    let head = |number: usize| {
        let block = vector.split("```").nth(number).expect("a block");
        block.lines().skip(2).take_while(|line| !line.is_empty()).fold(String::new(), |head, line| head + line + "\n")
    };
    vec![head(1).into_bytes(), (head(1) + "\n" + &head(3)).into_bytes(), b"accept-signature: sig1=()\n".to_vec()]
}

/// The bytes that PROOF signs in the vectors of the handshake.
pub(crate) fn binding() -> [u8; 32] {
    unhex(string(&VECTORS["hello"]["proofs"][0]["binding"])).try_into().expect("a binding has 32 bytes")
}

fn said(by: &str) -> Vec<Vec<u8>> {
    let links: Vec<Vec<u8>> = list(&VECTORS["session"])
        .map(|link| {
            let frames = list(&link["frames"]).filter(|frame| string(&frame["from"]) == by);
            frames.flat_map(|frame| unhex(string(&frame["bytes"]))).collect()
        })
        .collect();
    let all = links.concat();
    links.into_iter().chain([all]).collect()
}

fn key(name: &str) -> SigningKey {
    let seed = unhex(string(&VECTORS["keys"][name]["seed"]));
    SigningKey::from_bytes(&seed.try_into().expect("a seed has 32 bytes"))
}

fn hex_of(vectors: &Value, key: &str) -> Vec<Vec<u8>> {
    list(vectors).map(|vector| unhex(string(&vector[key]))).collect()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().expect("the vectors hold a list here").iter()
}

fn string(value: &Value) -> &str {
    value.as_str().expect("the vectors hold a text here")
}

fn unhex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).expect("the vectors are hexadecimal");
    (0..text.len()).step_by(2).map(byte).collect()
}
