use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer, SigningKey};
use proptest::prelude::*;
use ropeway_core::session::device_id;
use serde_json::{Value, json};

use super::*;
use crate::config::TicketKey;

const NOW: u64 = 1_800_000_000;
const TTL: Duration = Duration::from_secs(600);
const DEVICE: [u8; 32] = [7; 32];

fn config(keys: &[(&str, [u8; 32])]) -> TicketsConfig {
    let key = |(kid, raw): &(&str, [u8; 32])| TicketKey { kid: (*kid).to_owned(), public_key: KeySource::Raw(*raw) };
    TicketsConfig {
        apps: vec!["shop".to_owned(), "mail".to_owned()],
        keys: keys.iter().map(key).collect(),
        ..TicketsConfig::default()
    }
}

/// A verifier that knows one key, and that key in another implementation, to sign what no issuer would.
fn stage() -> (TicketVerifier, SigningKey) {
    let key = SigningKey::from_bytes(&[42; 32]);
    (TicketVerifier::new(&config(&[("k1", key.verifying_key().to_bytes())])).expect("a good key"), key)
}

fn claims() -> Value {
    json!({
        "sub": "ada",
        "aud": "shop",
        "exp": NOW + 600,
        "cnf": { "jwk": { "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(DEVICE) } },
    })
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

fn token(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let message = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

fn signed(key: &SigningKey, claims: &Value) -> String {
    token(&json!({ "alg": "EdDSA", "kid": "k1" }), claims, |message| key.sign(message).to_vec())
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().expect("an object").remove(name);
    claims
}

#[test]
fn an_issued_ticket_is_good_and_says_who_and_which_device() {
    let issuer = TicketIssuer::generate("dev").expect("a key");
    let verifier = TicketVerifier::new(&config(&[("dev", issuer.public_key())])).expect("a good key");
    let token = issuer.issue("ada", "mail", &DEVICE, &DeviceRule::Key, TTL, NOW).expect("a ticket");
    let ticket = verifier.verify(&token, "mail", NOW).expect("a good ticket");
    assert_eq!((ticket.user.as_str(), ticket.app.as_str()), ("ada", "mail"));
    assert_eq!((ticket.device_key, ticket.expires_unix), (DEVICE, NOW + 600));
    let again = issuer.issue("ada", "mail", &DEVICE, &DeviceRule::Key, TTL, NOW).expect("a ticket");
    assert_ne!(ticket.ticket_id, verifier.verify(&again, "mail", NOW).expect("a good ticket").ticket_id);
}

#[test]
fn a_ticket_of_another_implementation_is_good() {
    let (verifier, key) = stage();
    let ticket = verifier.verify(&signed(&key, &claims()), "shop", NOW).expect("a good ticket");
    assert_eq!(ticket.ticket_id, None);
    let many = with("aud", json!(["web", "shop"]));
    assert_eq!(verifier.verify(&signed(&key, &many), "shop", NOW).expect("a good ticket").app, "shop");
    let fraction = with("exp", json!(NOW as f64 + 0.5));
    assert_eq!(verifier.verify(&signed(&key, &fraction), "shop", NOW).expect("a good ticket").expires_unix, NOW);
}

#[test]
fn the_signature_of_rfc_8037_appendix_a4_verifies() {
    provider::install();
    let key = DecodingKey::from_ed_components("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").expect("a key");
    let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let verify = |message: &[u8]| jsonwebtoken::crypto::verify(signature, message, &key, Algorithm::EdDSA);
    assert_eq!(verify(message), Ok(true));
    assert_eq!(verify(b"another message"), Ok(false));
}

#[test]
fn each_fault_has_its_name() {
    let (verifier, key) = stage();
    let foreign_curve = json!({ "jwk": { "kty": "OKP", "crv": "X25519", "x": URL_SAFE_NO_PAD.encode(DEVICE) } });
    let short_key = json!({ "jwk": { "kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode([7; 31]) } });
    for (claims, expected) in [
        (with("aud", json!("mail")), TicketError::ForeignApp),
        (with("aud", json!(["mail", "web"])), TicketError::ForeignApp),
        (with("aud", json!([])), TicketError::ForeignApp),
        (without("aud"), TicketError::ForeignApp),
        (with("aud", json!(7)), TicketError::Malformed),
        (without("cnf"), TicketError::NoDeviceKey),
        (with("cnf", json!({})), TicketError::NoDeviceKey),
        (with("cnf", json!({ "kid": "device" })), TicketError::NoDeviceKey),
        (with("cnf", foreign_curve), TicketError::NoDeviceKey),
        (with("cnf", short_key), TicketError::NoDeviceKey),
        (with("exp", json!(NOW - 60)), TicketError::Expired),
        (with("exp", json!(-1)), TicketError::Expired),
        (with("exp", json!("soon")), TicketError::Malformed),
        (without("exp"), TicketError::Malformed),
        (with("nbf", json!(NOW + 61)), TicketError::NotYetValid),
        (with("nbf", json!("now")), TicketError::Malformed),
        (without("sub"), TicketError::Malformed),
        (with("sub", json!("")), TicketError::Malformed),
        (with("sub", json!(7)), TicketError::Malformed),
        (json!([]), TicketError::Malformed),
        (with("pad", json!("x".repeat(4_096))), TicketError::Malformed),
    ] {
        assert_eq!(verifier.verify(&signed(&key, &claims), "shop", NOW), Err(expected), "{claims}");
    }
    for text in ["", "a", "a.b", "a.b.c", "..", "a.b.c.d", "é.é.é"] {
        assert_eq!(verifier.verify(text, "shop", NOW), Err(TicketError::Malformed), "{text}");
    }
}

#[test]
fn an_app_that_is_not_served_is_foreign_even_with_its_own_ticket() {
    let (verifier, key) = stage();
    let ticket = signed(&key, &with("aud", json!("web")));
    assert_eq!(verifier.verify(&ticket, "web", NOW), Err(TicketError::ForeignApp));
}

#[test]
fn clocks_may_differ_by_the_leeway() {
    let (verifier, key) = stage();
    let verify = |claims: &Value, now| verifier.verify(&signed(&key, claims), "shop", now).map(|_| ());
    assert_eq!(verify(&claims(), NOW + 659), Ok(()));
    assert_eq!(verify(&claims(), NOW + 660), Err(TicketError::Expired));
    let later = with("nbf", json!(NOW));
    assert_eq!(verify(&later, NOW - 60), Ok(()));
    assert_eq!(verify(&later, NOW - 61), Err(TicketError::NotYetValid));
    assert_eq!(verify(&with("exp", json!(1e300)), u64::MAX - 1), Ok(()));
}

#[test]
fn the_key_named_in_the_header_decides() {
    let (old, new) = (TicketIssuer::generate("old").expect("a key"), TicketIssuer::generate("new").expect("a key"));
    let both = config(&[("old", old.public_key()), ("new", new.public_key())]);
    let verifier = TicketVerifier::new(&both).expect("good keys");
    for issuer in [&old, &new] {
        let token = issuer.issue("ada", "shop", &DEVICE, &DeviceRule::Key, TTL, NOW).expect("a ticket");
        assert!(verifier.verify(&token, "shop", NOW).is_ok(), "{}", issuer.kid());
    }

    let swapped = TicketIssuer::from_pem("new", &old.private_pem()).expect("a key");
    let token = swapped.issue("ada", "shop", &DEVICE, &DeviceRule::Key, TTL, NOW).expect("a ticket");
    assert_eq!(verifier.verify(&token, "shop", NOW), Err(TicketError::BadSignature));

    let stranger = TicketIssuer::from_pem("other", &old.private_pem()).expect("a key");
    let token = stranger.issue("ada", "shop", &DEVICE, &DeviceRule::Key, TTL, NOW).expect("a ticket");
    assert_eq!(verifier.verify(&token, "shop", NOW), Err(TicketError::UnknownKey));
}

#[test]
fn a_ticket_without_a_key_name_is_of_an_unknown_key() {
    let (verifier, key) = stage();
    let token = token(&json!({ "alg": "EdDSA" }), &claims(), |message| key.sign(message).to_vec());
    assert_eq!(verifier.verify(&token, "shop", NOW), Err(TicketError::UnknownKey));
}

#[test]
fn the_public_key_is_never_taken_for_a_shared_secret() {
    let (verifier, key) = stage();
    let public_key = key.verifying_key().to_bytes();
    let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &public_key);
    let header = json!({ "alg": "HS256", "kid": "k1" });
    let token = token(&header, &claims(), |message| ring::hmac::sign(&secret, message).as_ref().to_vec());
    assert_eq!(verifier.verify(&token, "shop", NOW), Err(TicketError::BadSignature));
}

#[test]
fn an_unsigned_ticket_is_refused_however_it_is_written() {
    let (verifier, key) = stage();
    for algorithm in ["none", "None", "NONE", "", "ed25519"] {
        let header = json!({ "alg": algorithm, "kid": "k1" });
        for sign in
            [|_: &SigningKey, _: &[u8]| Vec::new(), |key: &SigningKey, message: &[u8]| key.sign(message).to_vec()]
        {
            let token = token(&header, &claims(), |message| sign(&key, message));
            assert_eq!(verifier.verify(&token, "shop", NOW), Err(TicketError::Malformed), "{algorithm}");
        }
    }
    let empty = token(&json!({ "alg": "EdDSA", "kid": "k1" }), &claims(), |_| Vec::new());
    assert_eq!(verifier.verify(&empty, "shop", NOW), Err(TicketError::BadSignature));
}

#[test]
fn a_header_that_brings_its_own_key_or_demands_is_of_no_use() {
    let (verifier, _) = stage();
    let own = SigningKey::from_bytes(&[1; 32]);
    let x = URL_SAFE_NO_PAD.encode(own.verifying_key().to_bytes());
    let header = json!({ "alg": "EdDSA", "kid": "k1", "jwk": { "kty": "OKP", "crv": "Ed25519", "x": x } });
    let brought = token(&header, &claims(), |message| own.sign(message).to_vec());
    assert_eq!(verifier.verify(&brought, "shop", NOW), Err(TicketError::BadSignature));

    let (verifier, key) = stage();
    let header = json!({ "alg": "EdDSA", "kid": "k1", "crit": ["x"], "x": 1 });
    let demanding = token(&header, &claims(), |message| key.sign(message).to_vec());
    assert_eq!(verifier.verify(&demanding, "shop", NOW), Err(TicketError::Malformed));
}

#[test]
fn a_changed_claim_breaks_the_signature() {
    let (verifier, key) = stage();
    let ticket = signed(&key, &claims());
    let [header, _, signature] = ticket.split('.').collect::<Vec<_>>()[..] else { panic!("three parts") };
    let changed = format!("{header}.{}.{signature}", part(&with("sub", json!("eve"))));
    assert_eq!(verifier.verify(&changed, "shop", NOW), Err(TicketError::BadSignature));
}

#[test]
fn keys_are_read_from_pem_files_of_other_tools() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("issuer.pem");
    let foreign = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
    std::fs::write(&file, foreign.public_key_pem()).expect("written");
    let mut config = config(&[("k", [0; 32])]);
    config.keys[0].public_key = KeySource::File(file.clone());
    let verifier = TicketVerifier::new(&config).expect("a good key");

    let issuer = TicketIssuer::from_pem("k", &foreign.serialize_pem()).expect("a key");
    let token = issuer.issue("ada", "shop", &DEVICE, &DeviceRule::Key, TTL, NOW).expect("a ticket");
    assert!(verifier.verify(&token, "shop", NOW).is_ok());

    std::fs::write(&file, issuer.public_pem()).expect("written");
    assert!(TicketVerifier::new(&config).expect("a good key").verify(&token, "shop", NOW).is_ok());

    // PKCS #8 of version 1, as `openssl genpkey` writes it: without the public key.
    let seed = [&STANDARD.decode("MC4CAQAwBQYDK2VwBCIEIA==").expect("Base64")[..], &[42; 32]].concat();
    let v1 = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(seed));
    let public_key = SigningKey::from_bytes(&[42; 32]).verifying_key().to_bytes();
    assert_eq!(TicketIssuer::from_pem("k", &v1).expect("a key").public_key(), public_key);
}

#[test]
fn a_key_that_cannot_be_used_names_its_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("issuer.pem");
    let mut config = config(&[("k", [0; 32])]);
    config.keys[0].public_key = KeySource::File(file.clone());
    let error = TicketVerifier::new(&config).expect_err("no file").to_string();
    assert!(error.starts_with("public key of issuer `k` in ") && error.contains("cannot be read: "), "{error}");

    let foreign = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
    std::fs::write(&file, foreign.public_key_pem()).expect("written");
    assert!(matches!(TicketVerifier::new(&config), Err(IssuerKeyError::NotEd25519 { .. })));
    assert!(matches!(TicketIssuer::from_pem("k", &foreign.serialize_pem()), Err(IssueError::NotEd25519)));
    assert!(matches!(TicketIssuer::from_pem("k", "nothing"), Err(IssueError::NotPem(_))));
}

#[test]
fn an_issuer_does_not_print_its_key() {
    let issuer = TicketIssuer::generate("dev").expect("a key");
    assert_eq!(format!("{issuer:?}"), "TicketIssuer { kid: \"dev\", .. }");
}

proptest! {
    #[test]
    fn arbitrary_text_is_no_ticket(text in "\\PC{0,200}") {
        prop_assert!(stage().0.verify(&text, "shop", NOW).is_err());
    }

    #[test]
    fn arbitrary_claims_under_a_good_signature_do_not_panic(
        text in "\\PC{0,100}",
        name in "[a-z]{3}",
        number in any::<f64>(),
    ) {
        let (verifier, key) = stage();
        let (named, timed, bound) = (json!(text), json!(number), json!({ "jwk": text }));
        for claims in [named.clone(), with(&name, named), with("exp", timed), with("cnf", bound)] {
            drop(verifier.verify(&signed(&key, &claims), "shop", NOW));
        }
    }

    #[test]
    fn a_ticket_with_one_changed_letter_is_refused(at in 0usize..10_000, letter in "[A-Za-z0-9_.=-]") {
        let (verifier, key) = stage();
        let ticket = signed(&key, &claims());
        let at = at % ticket.len();
        let changed = format!("{}{letter}{}", &ticket[..at], &ticket[at + 1..]);
        prop_assume!(changed != ticket);
        prop_assert!(verifier.verify(&changed, "shop", NOW).is_err());
    }
}

#[test]
fn a_ticket_says_what_its_device_may_call_itself() {
    let (verifier, key) = stage();
    let own = device_id(&DEVICE);
    for (claims, good, bad) in [
        (claims(), &*own, "phone"),
        (with("device", json!("phone")), "phone", &*own),
        (with("device", json!("")), "", "phone"),
    ] {
        let ticket = verifier.verify(&signed(&key, &claims), "shop", NOW).expect("a good ticket");
        assert_eq!(ticket.check_device(good), Ok(()), "{claims}");
        assert_eq!(ticket.check_device(bad), Err(TicketError::ForeignDevice), "{claims}");
    }
    let any = verifier.verify(&signed(&key, &with("device", json!("*"))), "shop", NOW).expect("a good ticket");
    assert_eq!((any.check_device("phone"), any.check_device(&own)), (Ok(()), Ok(())));
    assert_eq!(verifier.verify(&signed(&key, &with("device", json!(7))), "shop", NOW), Err(TicketError::Malformed));
}
