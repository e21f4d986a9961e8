//! The sealed pipe from end to end.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use ropeway::{
    Phase,
    pipe::{Pipe, PipeConfig, PipeTarget},
    way::{Cause, Failed, Fate, Redate, Shape},
};
use ropeway_net::{
    pipe::{AnswerOpener, Content, OpenError, PipeKey},
    unix_ms,
};

use crate::support::{World, body, get, head, post, say, text};

/// Seals a request as it stands on the wire, and gives what opens its answer.
pub(crate) fn sealed(world: &World, method: Method, url: &str) -> (Vec<u8>, AnswerOpener) {
    let mut request = Request::new(());
    (*request.method_mut(), *request.uri_mut()) = (method, url.parse().unwrap());
    let (parts, ()) = request.into_parts();
    let content = Content::from(Bytes::from_static(b"one pear"));
    let (sealed, opener) = world.pipe().config.seal(parts, &content, unix_ms()).unwrap();
    (sealed.to_vec(), opener)
}

/// Writes the request that carries something sealed.
pub(crate) fn carried(version: &str, sealed: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /.ropeway/pipe HTTP/{version}\r\nhost: 192.0.2.1\r\nconnection: close\r\ncontent-type: message/ohttp-req\r\n\
         content-length: {}\r\n\r\n",
        sealed.len()
    );
    [head.as_bytes(), sealed].concat()
}

async fn send(world: &World, request: Request<ropeway::Body>) -> Result<http::Response<ropeway::Body>, Failed> {
    Pipe::default().send(request, &world.pipe(), Shape::Http11, 0).await
}

#[tokio::test]
async fn a_sealed_request_reaches_its_service_over_plain_http() {
    let world = World::new(|_| ()).await;
    for shape in [Shape::Http11, Shape::Http10] {
        let request = post("https://api.test/a?3", "two pears");
        let answer = Pipe::default().send(request, &world.pipe(), shape, 0).await.unwrap();
        assert_eq!((answer.status(), answer.headers()["x-kept"].to_str().unwrap()), (StatusCode::OK, "yes"));
        let said = text(answer).await;
        assert!(said.starts_with("POST /a?3 two pears\n") && said.ends_with("\nxxx"), "{said}");
        assert!(said.contains("x-forwarded-proto: https\n") && !said.contains("date:"), "{said}");
    }
    assert_eq!((world.service.executed(), world.pipe_requests("answered")), (2, 2));
    let metrics = world.gateway.metrics().render();
    assert!(metrics.contains("status_class=\"2xx\",via=\"pipe\"} 2\n"), "{metrics}");
}

#[tokio::test]
async fn a_clock_two_minutes_off_is_set_right_by_the_refusal() {
    let world = World::new(|_| ()).await;
    // Whoever keeps a copy of the one that is dated ahead could have it taken two minutes later.
    for (offset_ms, fate) in [(-120_000, Fate::NotExecuted), (120_000, Fate::MayHaveRun)] {
        let request = post("https://api.test/", "");
        let failed = Pipe::default().send(request, &world.pipe(), Shape::Http11, offset_ms).await.unwrap_err();
        assert_eq!((failed.fate, failed.phase), (fate, Phase::Answer));
        let Cause::Clock { offset_ms } = failed.cause else { panic!("{failed}") };
        assert!(offset_ms.abs() <= 2_000, "{offset_ms}");
        Pipe::default().send(post("https://api.test/", ""), &world.pipe(), Shape::Http11, offset_ms).await.unwrap();
    }
    assert_eq!((world.service.executed(), world.pipe_requests("clock_skew")), (2, 2));
}

#[tokio::test]
async fn no_connection_means_that_nothing_was_sent() {
    let mut target = World::new(|_| ()).await.pipe();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    target.address = closed.local_addr().unwrap();
    drop(closed);
    let failed = Pipe::default().send(get("https://api.test/"), &target, Shape::Http11, 0).await.unwrap_err();
    assert_eq!((failed.fate, failed.address, failed.phase), (Fate::NothingSent, target.address, Phase::Connect));
}

#[tokio::test]
async fn a_request_that_is_played_again_is_refused_and_the_first_answer_stands() {
    let world = World::new(|_| ()).await;
    let (sealed, opener) = sealed(&world, Method::POST, "https://api.test/");
    let first = say(world.address(), &carried("1.1", &sealed)).await;
    for version in ["1.1", "1.0"] {
        let again = say(world.address(), &carried(version, &sealed)).await;
        assert!(head(&again).contains("message/ohttp-res"), "{again:?}");
        assert_ne!(body(&again), body(&first));
    }
    assert_eq!((world.service.executed(), world.pipe_requests("replayed")), (1, 2));
    let answer = opener.open(body(&first)).unwrap();
    assert!(answer.body().data.starts_with(b"POST / one pear\n"));

    let (sealed, opener) = self::sealed(&world, Method::POST, "https://api.test/");
    say(world.address(), &carried("1.1", &sealed)).await;
    let again = say(world.address(), &carried("1.1", &sealed)).await;
    let answer = opener.open(body(&again)).unwrap();
    assert_eq!(
        (answer.status(), answer.headers()["ropeway-error"].to_str().unwrap()),
        (StatusCode::CONFLICT, "replayed")
    );
    assert!(!answer.headers().contains_key("ropeway-not-executed"), "the first copy was");
}

#[tokio::test]
async fn an_answer_to_http_1_0_has_its_length_no_chunks_and_ends_the_connection() {
    let world = World::new(|_| ()).await;
    let (sealed, opener) = sealed(&world, Method::POST, "https://api.test/?100000");
    // Without being asked to close.
    let request = String::from_utf8_lossy(&carried("1.0", b"")).replace("connection: close\r\n", "");
    let request = request.replace("content-length: 0", &format!("content-length: {}", sealed.len()));
    let answer = say(world.address(), &[request.as_bytes(), &sealed].concat()).await;
    let head = head(&answer);
    assert!(head.starts_with("http/1.0 200") && head.contains("connection: close\r\n"), "{head}");
    assert!(head.contains(&format!("content-length: {}\r\n", body(&answer).len())), "{head}");
    assert!(!head.contains("transfer-encoding"), "{head}");
    assert!(opener.open(body(&answer)).unwrap().body().data.ends_with(b"xxx"));
}

#[tokio::test]
async fn what_was_not_sealed_for_the_gateway_is_refused_and_disturbs_nobody() {
    let world = World::new(|_| ()).await;
    let (sealed, _) = sealed(&world, Method::POST, "https://api.test/");
    for place in 0..sealed.len() {
        let mut changed = sealed.clone();
        changed[place] ^= 0x80;
        let answer = say(world.address(), &carried("1.1", &changed)).await;
        assert!(head(&answer).starts_with("http/1.1 422"), "{place}: {}", head(&answer));
        assert!(head(&answer).contains("application/problem+json"));
    }
    assert_eq!(world.pipe_requests("unknown_key"), 1, "the first byte is the key's number");
    assert_eq!(world.pipe_requests("unopened"), sealed.len() as u64 - 1);
    for (request, status) in [
        (carried("1.1", b""), "422"),
        (carried("1.1", &[0; 2 << 20]), "413"),
        (b"GET /.ropeway/pipe HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".to_vec(), "405"),
        (b"POST /.ropeway/pipe HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n".to_vec(), "415"),
    ] {
        let answer = say(world.address(), &request).await;
        assert!(head(&answer).starts_with(&format!("http/1.1 {status}")), "{}", head(&answer));
    }
    assert_eq!(world.service.executed(), 0);
    send(&world, post("https://api.test/", "")).await.unwrap();
}

#[tokio::test]
async fn a_client_with_another_key_learns_that_it_needs_the_new_one() {
    let world = World::new(|_| ()).await;
    let used = world.pipe().config.id();
    for id in [used, used.wrapping_add(1)] {
        let key = PipeKey::from_seed(id, &[1; 32]).unwrap();
        let target = PipeTarget { address: world.address(), config: PipeConfig::parse(key.config()).unwrap() };
        let failed = Pipe::default().send(get("https://api.test/"), &target, Shape::Http10, 0).await.unwrap_err();
        assert!(matches!(failed.cause, Cause::KeyUnknown), "{failed}");
        assert_eq!(failed.fate, Fate::MayHaveRun, "anyone can have said so");
    }
}

#[tokio::test]
async fn keys_are_told_over_tls_alone_and_stay_over_a_restart() {
    let mut world = World::new(|_| ()).await;
    let ask = "GET /.ropeway/pipe-keys HTTP/1.1\r\nhost: gw.test\r\nconnection: close\r\n\r\n";
    let told = world.say_tls(ask).await;
    assert!(head(&told).contains("content-type: application/ohttp-keys\r\n"), "{}", head(&told));
    assert!(head(&told).contains("cache-control: private, max-age=172"), "two days: {}", head(&told));
    assert_eq!(PipeConfig::parse_list(body(&told)).unwrap(), world.pipe().config);
    let plain = say(world.address(), ask.as_bytes()).await;
    assert!(head(&plain).starts_with("http/1.1 403"), "{}", head(&plain));

    let config = world.pipe().config;
    world.restart().await;
    assert_eq!(world.pipe().config, config);
    send(&world, get("https://api.test/")).await.unwrap();
}

#[tokio::test]
async fn after_a_restart_nothing_runs_that_the_last_process_may_have_run() {
    let mut world = World::new(|_| ()).await;
    let (sealed, opener) = sealed(&world, Method::POST, "https://api.test/");
    say(world.address(), &carried("1.1", &sealed)).await;
    world.restart().await;
    let again = say(world.address(), &carried("1.1", &sealed)).await;
    let answer = opener.open(body(&again)).unwrap();
    assert_eq!(answer.status(), StatusCode::TOO_EARLY);
    assert!(answer.headers().contains_key("ropeway-up-ms"), "{answer:?}");
    assert_eq!(world.service.executed(), 1);
    send(&world, get("https://api.test/")).await.unwrap();
}

#[tokio::test]
async fn after_a_restart_a_new_post_is_known_not_to_have_run_and_is_taken_with_a_later_date() {
    let mut world = World::new(|_| ()).await;
    world.restart().await;
    // A request that is older than the process may have run in the one before, as far as anybody knows.
    let (again, told): (Redate, _) = loop {
        let failed = send(&world, post("https://api.test/", "")).await.unwrap_err();
        let told = failed.to_string();
        let Cause::Restarted { again: Some(again), .. } = failed.cause else { panic!("{failed}") };
        if failed.fate == Fate::NotExecuted {
            break (again, told);
        }
        assert_eq!(failed.fate, Fate::MayHaveRun);
    };
    assert!(told.contains("gateway was restarted 0 s ago"), "{told}");
    assert!(again.pause <= Duration::from_secs(2), "{again:?}");
    // Until the pause is over it has an earlier date, which may have been taken.
    while let Err(failed) =
        Pipe::default().send(post("https://api.test/", ""), &world.pipe(), Shape::Http11, again.offset_ms).await
    {
        assert!(matches!(failed.cause, Cause::Restarted { .. }), "{failed}");
    }
    assert_eq!((world.service.executed(), world.pipe_requests("answered")), (1, 1));
}

#[tokio::test]
async fn the_pipe_keeps_the_limits_of_routes_and_its_own() {
    let world = World::new(|config| config.pipe.answer_bytes_max = 2_000).await;
    let failed = send(&world, get("https://api.test/?2000")).await.unwrap_err();
    assert!(matches!(failed.cause, Cause::AnswerHeldBack), "{failed}");
    assert_eq!(failed.fate, Fate::Executed);
    let answer = send(&world, get("https://elsewhere.test/")).await.unwrap();
    assert_eq!(
        (answer.status(), answer.headers()["ropeway-error"].to_str().unwrap()),
        (StatusCode::NOT_FOUND, "no_route")
    );
    let pipe = Pipe { request_bytes_max: 3, ..Pipe::default() };
    let failed = pipe.send(post("https://api.test/", "long"), &world.pipe(), Shape::Http11, 0).await.unwrap_err();
    assert_eq!((failed.fate, failed.phase), (Fate::NothingSent, Phase::Connect));
    let closed = World::new(|config| config.pipe.enabled = false).await;
    assert!(closed.gateway.pipe_keys().is_empty());
    let answer = say(closed.address(), &carried("1.1", b"x")).await;
    assert!(head(&answer).starts_with("http/1.1 404"), "{}", head(&answer));
}

#[tokio::test]
async fn an_answer_that_is_not_the_gateways_is_no_answer() {
    let world = World::new(|_| ()).await;
    let (request, opener) = sealed(&world, Method::GET, "https://api.test/");
    let answer = say(world.address(), &carried("1.1", &request)).await;
    let mut changed = body(&answer).to_vec();
    *changed.last_mut().unwrap() ^= 1;
    assert_eq!(opener.open(&changed).unwrap_err(), OpenError::Changed);
}
