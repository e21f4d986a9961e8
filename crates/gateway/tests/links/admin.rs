//! The admin API as a backend sees it.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::support::{World, in_time};

/// A request to the admin API; returns status and body.
pub(crate) async fn call(world: &World, method: &str, path: &str, token: &str, body: &[u8]) -> (u16, String) {
    let mut tcp = TcpStream::connect(world.gateway.addresses().admin).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\nauthorization: Bearer {token}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    tcp.write_all(head.as_bytes()).await.unwrap();
    // A request that is refused by its head is not read to its end.
    let _ = tcp.write_all(body).await;
    let mut answer = Vec::new();
    let _ = in_time(tcp.read_to_end(&mut answer)).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// Pushes a message; returns status and answer.
pub(crate) async fn push(world: &World, message: &Value) -> (u16, Value) {
    let (status, body) = call(world, "POST", "/v1/push", "secret", message.to_string().as_bytes()).await;
    (status, serde_json::from_str(&body).unwrap())
}

/// How far a message got.
pub(crate) async fn status(world: &World, id: &str) -> String {
    let (_, body) = call(world, "GET", &format!("/v1/push/{id}"), "secret", b"").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    body["status"].as_str().unwrap().to_owned()
}

/// Waits until a message got so far.
pub(crate) async fn reached(world: &World, id: &str, wanted: &str) {
    in_time(async {
        while status(world, id).await != wanted {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn only_the_token_opens_push_and_everyone_sees_health_and_metrics() {
    let world = World::new(|_| ()).await;
    for token in ["", "wrong!", "secre", "secrets"] {
        for (method, path) in [("POST", "/v1/push"), ("GET", "/v1/push/a")] {
            let (status, body) = call(&world, method, path, token, b"{}").await;
            assert_eq!(status, 401, "{body}");
            assert!(body.contains("Authorization: Bearer TOKEN"), "{body}");
        }
    }
    assert_eq!(call(&world, "GET", "/healthz", "", b"").await, (200, "ok\n".into()));
    let (status, metrics) = call(&world, "GET", "/metrics", "", b"").await;
    assert_eq!(status, 200);
    assert!(metrics.contains("# TYPE ropeway_frames_total counter"), "{metrics}");
    assert_eq!(call(&world, "GET", "/nothing", "", b"").await.0, 404);
}

#[tokio::test]
async fn a_push_that_makes_no_sense_is_refused_with_what_would() {
    let world = World::new(|_| ()).await;
    for (body, error, hint) in [
        (&b"{"[..], "bad_push", "EOF"),
        (b"not json", "bad_push", "a push is a JSON object"),
        (br#"["all", "a", null, "x"]"#, "bad_push", "a push is a JSON object"),
        (br#"{"text": "x"}"#, "bad_push", "missing field `to`"),
        (br#"{"to": "group:a", "text": "x"}"#, "bad_push", "all, user:NAME, device:ID or topic:NAME"),
        (br#"{"to": "user:", "text": "x"}"#, "bad_push", "a user id without any character"),
        (br#"{"to": "all", "txet": "x"}"#, "bad_push", "unknown field `txet`, expected one of"),
        (br#"{"to": "all", "text": "x", "base64": "eA=="}"#, "bad_push", "text or base64, not both"),
        (br#"{"to": "all", "base64": "?"}"#, "bad_base64", ""),
        (br#"{"to": "all", "text": "x", "id": "a/b"}"#, "bad_id", "letters, digits"),
        (br#"{"to": "all", "text": "x", "content_type": "a\nb"}"#, "bad_content_type", "ASCII"),
        (br#"{"to": "all", "text": "x", "collapse_key": ""}"#, "bad_collapse_key", "without any character"),
    ] {
        let (status, answer) = call(&world, "POST", "/v1/push", "secret", body).await;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((status, answer["error"].as_str()), (400, Some(error)), "{answer}");
        assert!(answer["message"].as_str().unwrap().contains(hint), "{answer}");
    }
}

#[tokio::test]
async fn a_payload_that_no_frame_carries_is_refused() {
    let world = World::new(|_| ()).await;
    let (status, answer) = push(&world, &json!({ "to": "all", "text": "x".repeat(61_441) })).await;
    assert_eq!((status, answer["error"].as_str()), (413, Some("payload_too_large")), "{answer}");
    assert_eq!(push(&world, &json!({ "to": "all", "text": "x".repeat(61_440) })).await.0, 202);
    let huge = vec![b' '; 25 * 1024 * 1024];
    let (status, answer) = call(&world, "POST", "/v1/push", "secret", &huge).await;
    assert_eq!(status, 413, "{answer}");
}

#[tokio::test]
async fn a_message_has_an_id_and_is_unknown_before_it_was_sent() {
    let world = World::new(|_| ()).await;
    let (code, body) = call(&world, "GET", "/v1/push/never-sent", "secret", b"").await;
    assert_eq!((code, body.contains(r#""status":"unknown""#)), (404, true), "{body}");
    assert_eq!(call(&world, "GET", "/v1/push/a%20b", "secret", b"").await.0, 400);
    let (code, made) = push(&world, &json!({ "to": "user:nobody", "text": "x" })).await;
    assert_eq!((code, made["duplicate"].as_bool()), (202, Some(false)));
    assert_eq!(status(&world, made["id"].as_str().unwrap()).await, "queued");
    let (_, own) = push(&world, &json!({ "to": "user:nobody", "id": "order:17" })).await;
    assert_eq!(own["id"], "order:17");
    let (_, again) = push(&world, &json!({ "to": "user:nobody", "id": "order:17" })).await;
    assert_eq!((again["duplicate"].as_bool(), again["status"].as_str()), (Some(true), Some("queued")));
    assert_eq!(world.gateway.metrics().pushes("accepted").value(), 2);
    assert_eq!(world.gateway.metrics().pushes("duplicate").value(), 1);
}
