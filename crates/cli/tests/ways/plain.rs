//! Plain HTTP with signed answers from end to end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use http::{Request, Response, StatusCode};
use ropeway::{
    Body, Phase,
    plain::{Plain, PlainTarget, VerifyingKey},
    way::{Cause, Failed, Fate, Shape},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::support::{World, body, get, head, post, read_answer, read_head, say, text};

async fn world() -> World {
    World::new(|config| config.routes[0].plain_http = true).await
}

fn target(world: &World) -> PlainTarget {
    let keys = world.gateway.signing_keys();
    let keys = keys.iter().map(|key| VerifyingKey::new(&key.id, &key.public).unwrap()).collect();
    PlainTarget { address: world.address(), keys }
}

async fn send(world: &World, request: Request<Body>) -> Result<Response<Body>, Failed> {
    Plain::default().send(request, &target(world), Shape::Http11).await
}

#[tokio::test]
async fn a_signed_answer_comes_over_plain_http_in_either_shape() {
    let world = world().await;
    for shape in [Shape::Http11, Shape::Http10] {
        let request = post("https://api.test/a?3", "two pears");
        let answer = Plain::default().send(request, &target(&world), shape).await.unwrap();
        assert_eq!((answer.status(), answer.headers()["x-kept"].to_str().unwrap()), (StatusCode::OK, "yes"));
        let said = text(answer).await;
        assert!(said.starts_with("POST /a?3 two pears\n") && said.contains("x-forwarded-proto: http\n"), "{said}");
    }
    assert_eq!(world.gateway.metrics().signed_answers("answered").value(), 2);
}

#[tokio::test]
async fn what_lets_others_act_for_the_user_stays_at_home_unless_the_app_says_otherwise() {
    let world = world().await;
    let request = || {
        let request = Request::get("https://api.test/").header("authorization", "Bearer t").header("cookie", "a=b");
        request.header("accept", "text/plain").body(Body::empty()).unwrap()
    };
    let said = text(send(&world, request()).await.unwrap()).await;
    assert!(
        said.contains("accept: text/plain\n") && !said.contains("authorization") && !said.contains("cookie"),
        "{said}"
    );
    let open = Plain { sends_credentials: true, ..Plain::default() };
    let said = text(open.send(request(), &target(&world), Shape::Http11).await.unwrap()).await;
    assert!(said.contains("authorization: Bearer t\n") && said.contains("cookie: a=b\n"), "{said}");
}

#[tokio::test]
async fn refusals_are_signed_as_well() {
    let world = World::new(|config| config.plain_http.answer_bytes_max = 2_000).await;
    let answer = send(&world, get("https://api.test/")).await.unwrap();
    let error = |answer: &Response<Body>| answer.headers()["ropeway-error"].to_str().unwrap().to_owned();
    assert_eq!((answer.status(), error(&answer)), (StatusCode::FORBIDDEN, "plain_http_refused".to_owned()));
    let world = World::new(|config| {
        config.plain_http.answer_bytes_max = 2_000;
        config.routes[0].plain_http = true;
    })
    .await;
    let failed = send(&world, get("https://api.test/?2000")).await.unwrap_err();
    assert!(matches!(failed.cause, Cause::AnswerHeldBack), "{failed}");
    assert_eq!((failed.fate, world.service.executed()), (Fate::Executed, 1));
}

#[tokio::test]
async fn a_signed_answer_to_http_1_0_has_its_length_no_chunks_and_ends_the_connection() {
    let world = world().await;
    let ask = "accept-signature: ropeway=();nonce=\"AA==\";tag=\"ropeway-answer\"";
    let request = format!("GET /?100000 HTTP/1.0\r\nhost: api.test\r\n{ask}\r\n\r\n");
    let answer = say(world.address(), request.as_bytes()).await;
    let head = head(&answer);
    assert!(head.starts_with("http/1.0 200") && head.contains("connection: close\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}\r\n", body(&answer).len())), "{head}");
    assert!(!head.contains("transfer-encoding") && head.contains("\r\nsignature: ropeway=:"), "{head}");
}

#[tokio::test]
async fn the_key_is_told_over_tls_alone_and_stays_over_a_restart() {
    let mut world = world().await;
    let ask = "GET /.ropeway/signing-keys HTTP/1.1\r\nhost: gw.test\r\nconnection: close\r\n\r\n";
    let told = world.say_tls(ask).await;
    let set: serde_json::Value = serde_json::from_slice(body(&told)).unwrap();
    let key = &world.gateway.signing_keys()[0];
    assert_eq!((&set["keys"][0]["kid"], &set["keys"][0]["crv"]), (&key.id.as_str().into(), &"Ed25519".into()));
    assert!(head(&say(world.address(), ask.as_bytes()).await).starts_with("http/1.1 403"));
    let key = key.clone();
    world.restart().await;
    assert_eq!(world.gateway.signing_keys(), [key]);
}

/// Stands between client and gateway, and changes what passes: requests with the first, answers with the second.
async fn between(
    gateway: SocketAddr,
    request: impl Fn(String) -> String + Send + Sync + 'static,
    answer: impl Fn(Vec<u8>) -> Vec<u8> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut client, _) = listener.accept().await.unwrap();
            let said = request(read_head(&mut client).await);
            let mut server = TcpStream::connect(gateway).await.unwrap();
            server.write_all(said.as_bytes()).await.unwrap();
            let changed = answer(read_answer(&mut server).await);
            client.write_all(&changed).await.unwrap();
            client.shutdown().await.unwrap();
            let _ = client.read_to_end(&mut Vec::new()).await;
        }
    });
    address
}

#[tokio::test]
async fn an_answer_that_was_changed_on_the_way_does_not_reach_the_app() {
    let world = world().await;
    let tampered = async |change: fn(String) -> String| {
        let mut target = target(&world);
        let answer = move |answer: Vec<u8>| change(String::from_utf8(answer).unwrap()).into_bytes();
        target.address = between(world.address(), |said| said, answer).await;
        Plain::default().send(get("https://api.test/"), &target, Shape::Http11).await
    };
    let changes: [fn(String) -> String; 5] = [
        |answer| answer.replacen("GET /", "GET !", 1),
        |answer| answer.replacen("200 OK", "404 Not Found", 1),
        |answer| answer.replacen("x-kept: yes", "x-kept: no", 1),
        |answer| answer.replacen("x-kept: yes\r\n", "", 1),
        |answer| answer.replacen("signature: ", "x-signature: ", 1),
    ];
    for change in changes {
        let failed = tampered(change).await.unwrap_err();
        assert!(failed.is_tampered(), "{failed}");
        assert_eq!((failed.fate, failed.phase), (Fate::MayHaveRun, Phase::Answer));
    }
    let answer =
        tampered(|answer| answer.replacen("x-kept", "refresh: 0; url=http://ads.test/\r\nx-kept", 1)).await.unwrap();
    assert!(!answer.headers().contains_key("refresh"), "what was put in is left out");
    let portal = tampered(|_| "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlogin".to_owned()).await.unwrap_err();
    assert!(matches!(portal.cause, Cause::Unsigned { status: 200 }), "{portal}");
}

#[tokio::test]
async fn a_request_that_was_changed_on_the_way_is_not_answered_as_if_it_were_not() {
    let world = world().await;
    let changed = async |change: fn(String) -> String| {
        let mut target = target(&world);
        target.address = between(world.address(), change, |answer| answer).await;
        Plain::default().send(get("https://api.test/a?1"), &target, Shape::Http11).await
    };
    for change in [
        (|said| said.replacen("/a?1", "/a?2", 1)) as fn(String) -> String,
        |said| said.replacen("GET", "DELETE", 1),
        |said| said.replacen("nonce=\"", "nonce=\"A", 1),
    ] {
        assert!(changed(change).await.unwrap_err().is_tampered());
    }
    let answer =
        changed(|said| said.replacen("connection: close", "connection: close\r\ncookie: a=b", 1)).await.unwrap();
    assert!(!text(answer).await.contains("cookie"), "what was put in is left out");
}

#[tokio::test]
async fn an_answer_that_was_recorded_is_not_taken_for_another_request() {
    let world = world().await;
    let mut target = target(&world);
    let recorded = std::sync::OnceLock::new();
    target.address = between(world.address(), |said| said, move |answer| recorded.get_or_init(|| answer).clone()).await;
    Plain::default().send(get("https://api.test/"), &target, Shape::Http11).await.unwrap();
    let failed = Plain::default().send(get("https://api.test/"), &target, Shape::Http11).await.unwrap_err();
    assert!(matches!(failed.cause, Cause::Tampered("it answers another request")), "{failed}");
}
