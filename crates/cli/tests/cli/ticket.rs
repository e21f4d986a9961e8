//! `ropeway ticket`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::support::Place;

fn claims(ticket: &str) -> Value {
    let claims = ticket.trim().split('.').nth(1).expect("three parts");
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).expect("Base64")).expect("claims")
}

#[test]
fn a_ticket_is_for_the_user_app_and_time_asked_for() {
    let place = Place::new();
    let _up = place.up(&[]);
    let ticket = place.run(&["ticket", "--user", "ada", "--app", "shop", "--ttl", "90m", "-q"]);
    assert_eq!(ticket.stderr, "", "quiet is quiet");
    let claims = claims(&ticket.good());
    assert_eq!((&claims["sub"], &claims["aud"]), (&Value::from("ada"), &Value::from("shop")));
    let (from, until) = (claims["iat"].as_u64().expect("a time"), claims["exp"].as_u64().expect("a time"));
    assert_eq!(until - from, 90 * 60);
}

#[test]
fn a_ticket_is_bound_to_the_device_key() {
    let place = Place::new();
    let _up = place.up(&[]);
    let own = claims(&place.run(&["ticket"]).good());
    let development = claims(&place.read("ropeway-data/ticket"));
    assert_eq!(own["cnf"], development["cnf"], "the development device's by default");

    let made = place.run(&["ticket", "--json", "--device-key", "generate"]).object();
    let path = made["device_key"].as_str().expect("a path");
    assert!(path.starts_with("ropeway-data/devices/"), "{path}");
    assert_eq!(place.mode(path), 0o600);
    let made_claims = claims(made["ticket"].as_str().expect("a ticket"));
    assert_ne!(made_claims["cnf"], own["cnf"]);
    let again = claims(&place.run(&["ticket", "--device-key", path]).good());
    assert_eq!(again["cnf"], made_claims["cnf"]);
}

#[test]
fn a_ticket_goes_to_a_file_with_its_new_key_beside_it() {
    let place = Place::new();
    let _up = place.up(&[]);
    let object = place.run(&["ticket", "--json", "--device-key", "generate", "--out", "phone"]).object();
    assert_eq!((&object["file"], &object["device_key"]), (&Value::from("phone"), &Value::from("phone.key")));
    assert_eq!((place.mode("phone"), place.mode("phone.key")), (0o600, 0o600));
    assert!(object.get("ticket").is_none(), "a file was asked for");
    assert_eq!(claims(&place.read("phone"))["sub"], "dev");
}

#[test]
fn a_file_that_cannot_be_written_is_named() {
    let place = Place::new();
    let _up = place.up(&[]);
    let error = place.run(&["ticket", "--out", "nowhere/ticket"]).error(1);
    assert!(error.starts_with("ropeway: cannot write nowhere/ticket: "), "{error}");
    assert!(error.ends_with("choose another place\n"), "{error}");
}

#[test]
fn a_key_that_is_none_is_named() {
    let place = Place::new();
    let _up = place.up(&[]);
    place.write("bad.pem", "nothing");
    let error = place.run(&["ticket", "--device-key", "bad.pem"]).error(1);
    assert!(
        error.starts_with("ropeway: bad.pem: this is no Ed25519 key in PEM, it looks like other text; "),
        "{error}"
    );
    let error = place.run(&["ticket", "--device-key", "nowhere.pem"]).error(1);
    assert!(error.contains("nowhere.pem"), "{error}");
}

#[test]
fn with_other_issuers_configured_there_are_no_development_tickets() {
    let place = Place::new();
    let key = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";
    place.write("ropeway.toml", &format!("[[tickets.key]]\nkid = \"shop-1\"\npublic_key = \"{key}\"\n"));
    let _up = place.up(&["--config", "ropeway.toml"]);
    let error = place.run(&["ticket"]).error(2);
    assert!(error.contains("names other ticket issuers"), "{error}");
    assert!(!place.path("ropeway-data/issuer.key").exists());
}
