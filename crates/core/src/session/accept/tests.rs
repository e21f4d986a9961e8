use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};

use super::*;

const NOW_MS: u64 = 1_800_000_000_000;

fn key() -> SigningKey {
    SigningKey::from_bytes(&[9; 32])
}

fn hello() -> Hello {
    Hello {
        gateway: "gw.test".into(),
        time_ms: NOW_MS,
        nonce: vec![1; 16].into(),
        app: "dev".into(),
        ..Hello::default()
    }
}

fn signed(hello: &Hello, key: &SigningKey) -> Frame {
    let hello = hello.encode_to_vec();
    let signature = key.sign(&signed_input(HELLO_CONTEXT, &hello)).to_bytes();
    let signed = SignedHello { hello: hello.into(), signature: Bytes::copy_from_slice(&signature) };
    Frame::control(Kind::Hello, &signed)
}

fn proof(binding: &[u8; 32], key: &SigningKey) -> Frame {
    let signature = Bytes::copy_from_slice(&key.sign(&signed_input(PROOF_CONTEXT, binding)).to_bytes());
    Frame::control(Kind::Proof, &Proof { challenge: Bytes::new(), signature })
}

fn accept() -> Accept {
    Accept::new("gw.test".into(), Duration::from_secs(60))
}

fn refused(hello: &Hello) -> RefuseCode {
    accept().handle_hello(signed(hello, &key()).as_ref(), NOW_MS).unwrap_err().code
}

#[test]
fn a_signed_hello_and_its_proof_are_admitted() {
    let mut accept = accept();
    assert_eq!(accept.handle_hello(signed(&hello(), &key()).as_ref(), NOW_MS).unwrap().app, "dev");
    accept.handle_device_key(&key().verifying_key().to_bytes()).unwrap();
    let admitted = accept.handle_proof(proof(&[2; 32], &key()).as_ref(), &[2; 32]).unwrap();
    assert_eq!(admitted.device_key, key().verifying_key().to_bytes());
}

#[test]
fn a_hello_for_another_gateway_or_another_hour_is_refused() {
    assert_eq!(refused(&Hello { gateway: "evil.test".into(), ..hello() }), RefuseCode::WrongGateway);
    assert_eq!(refused(&Hello { time_ms: NOW_MS - 60_001, ..hello() }), RefuseCode::ClockSkew);
    assert_eq!(refused(&Hello { time_ms: NOW_MS + 60_001, ..hello() }), RefuseCode::ClockSkew);
    assert_eq!(refused(&Hello { nonce: Bytes::from_static(b"short"), ..hello() }), RefuseCode::Protocol);
}

#[test]
fn a_hello_that_another_device_signed_is_refused() {
    let mut accept = accept();
    let thief = SigningKey::from_bytes(&[8; 32]);
    accept.handle_hello(signed(&hello(), &thief).as_ref(), NOW_MS).unwrap();
    let refusal = accept.handle_device_key(&key().verifying_key().to_bytes()).unwrap_err();
    assert_eq!(refusal.code, RefuseCode::BadSignature);
}

#[test]
fn a_proof_made_for_another_connection_is_refused() {
    let mut accept = accept();
    accept.handle_hello(signed(&hello(), &key()).as_ref(), NOW_MS).unwrap();
    accept.handle_device_key(&key().verifying_key().to_bytes()).unwrap();
    let refusal = accept.handle_proof(proof(&[2; 32], &key()).as_ref(), &[3; 32]).unwrap_err();
    assert_eq!(refusal.code, RefuseCode::BadSignature);
}

#[test]
fn frames_out_of_order_are_refused() {
    let refusal = accept().handle_proof(proof(&[2; 32], &key()).as_ref(), &[2; 32]).unwrap_err();
    assert_eq!(refusal.code, RefuseCode::Protocol);
    let mut accept = accept();
    accept.handle_hello(signed(&hello(), &key()).as_ref(), NOW_MS).unwrap();
    let second = accept.handle_hello(signed(&hello(), &key()).as_ref(), NOW_MS).unwrap_err();
    assert_eq!(second.code, RefuseCode::Protocol);
}
