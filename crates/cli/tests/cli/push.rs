//! `ropeway push`, as far as it needs no device.

use serde_json::{Value, json};

use crate::support::Place;

#[test]
fn a_push_prints_its_id_and_its_status_can_be_asked() {
    let place = Place::new();
    let _up = place.up(&[]);
    let id = place.run(&["push", "--to", "user:ada", "hello"]).good();
    assert_eq!(place.run(&["push", "--status", id.trim()]).good(), "queued\n");
    let given = place.run(&["--json", "push", "--to", "topic:news", "--id", "order-17", "hello"]).object();
    assert_eq!(given, json!({ "id": "order-17", "duplicate": false, "sessions": 0, "status": "queued" }));
    let again = place.run(&["push", "--to", "topic:news", "--id", "order-17", "hello"]);
    assert_eq!(again.stderr, "sent before; not sent again\n");
    assert_eq!(again.good(), "order-17\n");
    assert_eq!(place.run(&["push", "--status", "never-sent"]).good(), "unknown\n");
}

#[test]
fn a_message_comes_from_standard_input_also_when_it_is_no_text() {
    let place = Place::new();
    let _up = place.up(&[]);
    for payload in [&b"several\nlines\n"[..], b"\xff\x00\xfe", b""] {
        place.run_with_input(&["push", "--to", "all", "-"], payload).good();
    }
    let error = place.run_with_input(&["push", "--to", "all", "-"], &vec![b'x'; 70_000]).error(1);
    assert!(error.contains("(status 413)"), "{error}");
}

#[test]
fn a_wrong_token_and_a_stopped_gateway_are_named() {
    let place = Place::new();
    let mut up = place.up(&[]);
    let token = place.read("ropeway-data/admin.token");
    place.write("ropeway-data/admin.token", "wrong");
    let error = place.run(&["push", "--to", "all", "hello"]).error(1);
    assert!(error.contains("the admin API refused: ") && error.contains("(status 401)"), "{error}");
    place.write("ropeway-data/admin.token", &token);

    up.running.kill();
    let error: Value =
        serde_json::from_str(&place.run(&["--json", "push", "--to", "all", "hello"]).error(1)).expect("an object");
    assert_eq!((&error["error"], &error["side"]), (&json!("admin_unreachable"), &json!("peer")));
    assert!(error["message"].as_str().expect("a text").ends_with("is `ropeway up` running?"));
}
