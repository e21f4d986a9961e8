//! Many requests at once: identical ones share, routes have room for so many, loops are stopped, answers come packed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use ropeway::{CarrierKind, Client, Error, GuardConfig, NetworkKind, Phase, Priority, RequestBuilder, Response};
use ropeway_core::policy::{Policy, RoutePolicy};
use tokio::task::JoinHandle;

use crate::{
    sources::{key, list, sealed},
    support::{Authority, TestGateway, builder, eventually, service::big, soon},
};

type Sent = JoinHandle<Result<Response, Error>>;

async fn world(change: impl FnOnce(ropeway::Builder) -> ropeway::Builder) -> (TestGateway, Client) {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let client = change(builder(&authority, &[&gateway], CarrierKind::Tls)).build().unwrap();
    // The link is up before anything is counted.
    soon(client.get("https://api.test/first").send()).await.unwrap();
    (gateway, client)
}

/// Sends the same a number of times, and waits until each has got as far as it gets.
async fn at_once(number: usize, request: impl Fn() -> RequestBuilder) -> Vec<Sent> {
    let sent: Vec<_> = (0..number).map(|_| tokio::spawn(request().send())).collect();
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    sent
}

async fn texts(sent: Vec<Sent>) -> Vec<String> {
    // Side by side: an answer that is not read keeps its place.
    let texts = sent.into_iter().map(async |sent| sent.await.unwrap().unwrap().text().await.unwrap());
    soon(futures_util::future::join_all(texts)).await
}

fn executed(gateway: &TestGateway, what: &str) -> usize {
    gateway.executed().iter().filter(|executed| *executed == what).count()
}

const HOLD: &str = "https://api.test/hold";

#[tokio::test]
async fn a_hundred_identical_gets_are_one_exchange_and_a_hundred_answers() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let sent = at_once(100, || client.get(HOLD)).await;
    eventually("the leader is under way", || gateway.running() == 1).await;
    gateway.release();
    assert_eq!(texts(sent).await, vec!["held"; 100]);
    assert_eq!(executed(&gateway, "GET https://api.test/hold"), 1);
    // Later ones ask anew.
    assert_eq!(texts(at_once(1, || client.get(HOLD)).await).await, ["held"]);
    assert_eq!(executed(&gateway, "GET https://api.test/hold"), 2);
}

#[tokio::test]
async fn a_leader_that_is_given_up_leaves_its_followers_an_answer() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let mut sent = at_once(50, || client.get(HOLD)).await;
    eventually("the leader is under way", || gateway.running() == 1).await;
    sent.remove(0).abort();
    sent.remove(20).abort();
    eventually("another leads", || executed(&gateway, "GET https://api.test/hold") == 2).await;
    gateway.release();
    assert_eq!(texts(sent).await, vec!["held"; 48]);
    assert_eq!(executed(&gateway, "GET https://api.test/hold"), 2);
}

#[tokio::test]
async fn a_follower_keeps_its_own_time_and_a_leader_out_of_time_fails_alone() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let short = Duration::from_millis(100);
    let leader = at_once(1, || client.get(HOLD).timeout(short)).await.remove(0);
    let sent = at_once(2, || client.get(HOLD)).await;
    let follower = at_once(1, || client.get(HOLD).timeout(short)).await.remove(0);
    for timed in [leader, follower] {
        let error = soon(timed).await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Timeout { after, .. } if after == short), "{error:?}");
    }
    eventually("another leads", || executed(&gateway, "GET https://api.test/hold") == 2).await;
    gateway.release();
    assert_eq!(texts(sent).await, ["held", "held"]);
}

#[tokio::test]
async fn what_differs_or_opts_out_is_not_shared() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let mut sent = at_once(2, || client.get(HOLD).header("authorization", "Bearer one")).await;
    sent.extend(at_once(1, || client.get(HOLD).header("authorization", "Bearer two")).await);
    sent.extend(at_once(2, || client.get(HOLD).coalesce(false)).await);
    sent.extend(at_once(2, || client.get(HOLD).header("cache-control", "no-cache")).await);
    sent.extend(at_once(2, || client.get(HOLD).header("range", "bytes=0-1")).await);
    sent.extend(at_once(2, || client.post(HOLD)).await);
    eventually("each is under way", || gateway.running() == 10).await;
    gateway.release();
    assert_eq!(texts(sent).await.len(), 11);
}

#[tokio::test]
async fn a_get_after_a_post_sees_what_the_post_did() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let mut sent = at_once(1, || client.get(HOLD)).await;
    soon(client.post("https://api.test/echo").body("change").send()).await.unwrap();
    sent.extend(at_once(2, || client.get(HOLD)).await);
    eventually("it is asked anew, once", || gateway.running() == 2).await;
    gateway.release();
    assert_eq!(texts(sent).await.len(), 3);
    assert_eq!(executed(&gateway, "GET https://api.test/hold"), 2);
}

#[tokio::test]
async fn what_is_too_long_to_be_shared_each_gets_for_itself_and_whole() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let sent = at_once(3, || client.get("https://api.test/big/1000000")).await;
    for sent in sent {
        assert_eq!(soon(sent).await.unwrap().unwrap().bytes().await.unwrap(), big(1_000_000));
    }
    assert_eq!(executed(&gateway, "GET https://api.test/big/1000000"), 3);
}

#[tokio::test]
async fn a_body_that_breaks_off_is_a_whole_for_nobody() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let sent = at_once(3, || client.get("https://api.test/cut")).await;
    gateway.release();
    for sent in sent {
        let error = soon(sent).await.unwrap().unwrap().text().await.unwrap_err();
        assert!(matches!(error, Error::BodyCut { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn trailers_and_headers_are_shared_too() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let sent = at_once(3, || client.get("https://api.test/trailers")).await;
    for sent in sent {
        let mut answer = soon(sent).await.unwrap().unwrap();
        while answer.chunk().await.unwrap().is_some() {}
        assert_eq!(answer.trailers().unwrap()["x-checksum"], "42");
        assert!(answer.timeline().answered().is_some());
    }
    assert_eq!(executed(&gateway, "GET https://api.test/trailers"), 1);
}

#[tokio::test]
async fn a_burst_of_uploads_never_exceeds_its_routes_limit() {
    let (gateway, client) = world(|builder| builder.route_limit("api.test", "/hold", 4)).await;
    let upload = || client.post(HOLD).body("small");
    let sent = at_once(60, upload).await;
    eventually("as many as may are under way", || gateway.running() == 4).await;
    // Other routes are not held up.
    soon(client.get("https://api.test/other").send()).await.unwrap();
    gateway.release();
    assert_eq!(texts(sent).await.len(), 60);
    assert_eq!(executed(&gateway, "POST https://api.test/hold"), 60);
    // The four, and the one of the other route.
    assert_eq!(gateway.peak(), 5);
}

#[tokio::test]
async fn a_place_is_held_until_the_body_is_over_or_given_up() {
    let (gateway, client) = world(|builder| builder.route_limit("*", "/big", 1)).await;
    let unread = soon(client.get("https://api.test/big/5000000").send()).await.unwrap();
    let short = Duration::from_millis(50);
    let error = soon(client.get("https://api.test/big/9").timeout(short).send()).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::Connect, .. }), "{error:?}");
    let second = at_once(1, || client.get("https://api.test/big/10")).await;
    assert_eq!(gateway.executed().len(), 2);
    drop(unread);
    assert_eq!(texts(second).await[0].len(), big(10).len());
}

#[tokio::test]
async fn the_gateways_policy_limits_routes_and_says_what_is_shared_and_put_together() {
    let (gateway, client) = world(|builder| builder.coalesce(true)).await;
    let route =
        |path: &str| RoutePolicy { host: "api.test".into(), path_prefix: path.into(), ..RoutePolicy::default() };
    gateway.send_policy(&Policy {
        epoch_ms: 1,
        routes: vec![
            RoutePolicy { concurrency_max: Some(2), coalesce: Some(false), ..route("/hold") },
            RoutePolicy { batch: Some(true), ..route("/events") },
        ],
        ..Policy::default()
    });
    // The policy comes before the answer to what is asked after it.
    soon(client.get("https://api.test/after").send()).await.unwrap();
    let sent = at_once(5, || client.get(HOLD)).await;
    eventually("as many as may are under way", || gateway.running() == 2).await;
    gateway.release();
    assert_eq!(texts(sent).await, vec!["held"; 5]);
    assert_eq!(gateway.peak(), 2);
    let sent = at_once(2, || client.post("https://api.test/events").body("x").batchable(true)).await;
    assert_eq!(texts(sent).await, ["took x", "took x"]);
}

#[tokio::test]
async fn a_policy_that_an_access_list_brings_limits_routes_as_well() {
    let (gateway, client) = world(|builder| builder.list_key("k", key().verifying_key().to_bytes())).await;
    let mut list = list();
    let limit = RoutePolicy { host: "api.test".into(), concurrency_max: Some(2), ..RoutePolicy::default() };
    list.policy = Policy { epoch_ms: 1, routes: vec![limit], ..Policy::default() };
    gateway.send_list(&sealed(&list));
    soon(client.get("https://api.test/after").send()).await.unwrap();
    let sent = at_once(5, || client.get(HOLD)).await;
    eventually("as many as may are under way", || gateway.running() == 2).await;
    gateway.release();
    assert_eq!(texts(sent).await, vec!["held"; 5]);
    assert_eq!(gateway.peak(), 2);
}

#[tokio::test]
async fn on_a_weak_network_the_urgent_go_first_whoever_says_that_it_is_weak() {
    let by_app: fn(&Client) = |client| client.network_weak(true);
    for says in [by_app, |client| client.set_network(NetworkKind::Cellular2g, "")] {
        let (gateway, client) = world(|builder| builder.route_limit("*", "/hold", 1)).await;
        says(&client);
        let url = |name: &str| format!("https://api.test/hold/{name}");
        let mut sent = at_once(1, || client.post(url("first"))).await;
        sent.extend(at_once(1, || client.post(url("background")).priority(Priority::Background)).await);
        sent.extend(at_once(1, || client.post(url("normal"))).await);
        sent.extend(at_once(1, || client.post(url("core")).priority(Priority::Core)).await);
        eventually("the first is under way", || gateway.running() == 1).await;
        gateway.release();
        texts(sent).await;
        let order: Vec<_> = gateway.executed().into_iter().skip(1).collect();
        assert_eq!(order, ["first", "core", "normal", "background"].map(|name| format!("POST {}", url(name))));
    }
}

#[tokio::test]
async fn a_loop_in_the_app_is_stopped() {
    let within = Duration::from_secs(3600);
    let guard = GuardConfig { times_max: 5, within, ..GuardConfig::default() };
    let (gateway, client) = world(|builder| builder.frequency_guard(guard)).await;
    let post = |body: &str| client.post("https://api.test/echo").body(body.to_owned());
    for _ in 0..5 {
        soon(post("same").send()).await.unwrap();
    }
    let error = soon(post("same").send()).await.unwrap_err();
    assert!(matches!(error, Error::TooFrequent { times_max: 5, .. }), "{error:?}");
    assert!(error.to_string().contains("allow_frequent"), "{error}");
    // The loop runs on the thread that has the other request's work to do.
    let other = tokio::spawn(post("meanwhile").send());
    soon(async {
        while !other.is_finished() {
            assert!(matches!(post("same").send().await, Err(Error::TooFrequent { .. })));
        }
    })
    .await;
    other.await.unwrap().unwrap();
    soon(post("other").send()).await.unwrap();
    soon(post("same").allow_frequent(true).send()).await.unwrap();
    assert_eq!(executed(&gateway, "POST https://api.test/echo"), 8);
}

#[tokio::test]
async fn packed_answers_come_unpacked_unless_the_app_wants_them_packed() {
    let (_gateway, client) = world(|builder| builder).await;
    let get = || client.get("https://api.test/packed/100000");
    let answer = soon(get().send()).await.unwrap();
    assert!(answer.headers().is_empty(), "{:?}", answer.headers());
    assert_eq!(answer.bytes().await.unwrap(), big(100_000));
    let answer = soon(get().header("accept-encoding", "gzip").send()).await.unwrap();
    assert_eq!(answer.headers()["content-encoding"], "gzip");
    assert!(answer.bytes().await.unwrap().len() < 10_000);
    let (_gateway, client) = world(|builder| builder.codings(false)).await;
    let answer = soon(client.get("https://api.test/packed/1000").send()).await.unwrap();
    assert_eq!(answer.headers()["content-length"], "1000");
}

fn batched(gateway: &TestGateway) -> Vec<String> {
    let executed = gateway.executed();
    let mut batched: Vec<_> =
        executed.iter().filter_map(|what| what.strip_prefix("batched ")).map(str::to_owned).collect();
    batched.sort();
    batched
}

#[tokio::test]
async fn small_uploads_go_as_one_and_each_has_its_own_answer() {
    let (gateway, client) = world(|builder| builder.batch_route("api.test", "/events")).await;
    let event = |number: usize| client.post("https://api.test/events").body(number.to_string()).batchable(true);
    let mut sent = Vec::new();
    for number in 0..5 {
        sent.extend(at_once(1, || event(number)).await);
    }
    // Neither another route nor a large body nor one that did not ask.
    sent.extend(at_once(1, || client.post("https://api.test/other").body("5").batchable(true)).await);
    sent.extend(at_once(1, || client.post("https://api.test/events").body(vec![b'a'; 10_000]).batchable(true)).await);
    sent.extend(at_once(1, || client.post("https://api.test/events").body("7")).await);
    let texts = texts(sent).await;
    assert_eq!(texts[..5], ["took 0", "took 1", "took 2", "took 3", "took 4"]);
    assert_eq!(texts[5..], ["hello /other", "hello /events", "hello /events"]);
    assert_eq!(batched(&gateway), (0..5).map(|number| format!("POST /events {number}")).collect::<Vec<_>>());
    assert_eq!(executed(&gateway, "POST https://ropeway.internal/.ropeway/batch"), 1);
}

#[tokio::test]
async fn an_upload_that_waits_alone_goes_as_it_is() {
    let (gateway, client) = world(|builder| builder.batch_route("*", "/")).await;
    let answer = soon(client.post("https://api.test/alone").body("x").batchable(true).send()).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "hello /alone");
    assert!(batched(&gateway).is_empty());
}

#[tokio::test]
async fn what_fails_within_a_batch_fails_by_itself_and_runs_once() {
    let (gateway, client) = world(|builder| builder.batch_route("*", "/")).await;
    let post = |body: &'static str| client.post("https://api.test/events").body(body).batchable(true);
    let mut sent = at_once(1, || post("good")).await;
    sent.extend(at_once(1, || post("lost")).await);
    sent.extend(at_once(1, || post("half")).await);
    let mut sent = sent.into_iter();
    let mut next = async || soon(sent.next().unwrap()).await.unwrap();
    assert_eq!(next().await.unwrap().text().await.unwrap(), "took good");
    let lost = next().await.unwrap_err();
    assert!(matches!(lost, Error::OutcomeUnknown { .. }), "{lost:?}");
    let half = next().await.unwrap().text().await.unwrap_err();
    assert!(matches!(half, Error::BodyCut { .. }), "{half:?}");
    assert_eq!(batched(&gateway).len(), 3);
}

#[tokio::test]
async fn what_may_run_twice_is_sent_again_by_itself_when_its_answer_is_lost() {
    let (gateway, client) = world(|builder| builder.batch_route("*", "/")).await;
    let post = |key: &'static str, body: &'static str| {
        client.post("https://api.test/events").idempotency_key(key).body(body).batchable(true)
    };
    let mut sent = at_once(1, || post("1", "good")).await;
    sent.extend(at_once(1, || post("2", "lost")).await);
    assert_eq!(texts(sent).await, ["took good", "hello /events"]);
    assert_eq!(executed(&gateway, "POST https://api.test/events"), 1);
}

#[tokio::test]
async fn a_member_that_is_given_up_takes_nobody_with_it() {
    let (gateway, client) = world(|builder| builder.batch_route("*", "/")).await;
    let post = || client.post("https://api.test/events").body("x").batchable(true);
    let mut sent = at_once(3, post).await;
    sent.remove(0).abort();
    assert_eq!(texts(sent).await, ["took x", "took x"]);
    assert_eq!(batched(&gateway).len(), 2);
}

#[tokio::test]
async fn a_body_is_packed_where_the_app_wants_it_and_the_service_takes_it() {
    let (_gateway, client) = world(|builder| builder.takes_zstd("api.test", "/headers")).await;
    let post = || client.post("https://api.test/headers").body("again and again, ".repeat(100));
    let told = soon(post().compress(true).send()).await.unwrap().text().await.unwrap();
    assert!(told.contains("content-encoding: zstd"), "{told}");
    let length = told.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    assert!(length.parse::<usize>().unwrap() < 200, "{told}");
    for plain in [
        post(),
        post().compress(true).header("content-encoding", "br"),
        client.post("https://api.test/headers").compress(true).body("small"),
    ] {
        let told = soon(plain.send()).await.unwrap().text().await.unwrap();
        assert!(!told.contains("zstd,") && !told.contains("content-encoding: zstd"), "{told}");
    }
}
