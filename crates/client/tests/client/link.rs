//! Requests over the link, on each carrier.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use ropeway::{Action, Body, BoxError, CarrierKind, Error, LinkState, Phase, Progress, Way};
use tower::ServiceExt as _;

use crate::support::{Authority, Tarpit, TestGateway, builder, eventually, service::big, soon, world};

#[tokio::test]
async fn a_request_crosses_on_every_carrier() {
    for carrier in CarrierKind::ALL {
        let (gateway, client) = world(carrier).await;
        let answer = soon(client.get("https://api.test/greeting?a=b").send()).await.unwrap();
        assert_eq!(answer.status(), 200);
        let step = answer.timeline().answered().unwrap();
        assert_eq!((step.way, step.carrier, step.address), (Way::Link, Some(carrier), Some(gateway.address())));
        assert_eq!(answer.text().await.unwrap(), "hello /greeting");
        assert_eq!(gateway.executed(), ["GET https://api.test/greeting?a=b"]);
        let address = gateway.address();
        assert_eq!(*client.link_state().borrow(), LinkState::Open { address, carrier });
    }
}

#[tokio::test]
async fn the_timeline_of_the_first_request_tells_how_the_link_came_up() {
    let (_gateway, client) = world(CarrierKind::Tls).await;
    let answer = soon(client.get("https://api.test/").send()).await.unwrap();
    let actions: Vec<_> = answer.timeline().steps().iter().map(|step| step.action).collect();
    assert_eq!(actions, [Action::Connect, Action::Greet, Action::Exchange]);
    let second = soon(client.get("https://api.test/").send()).await.unwrap();
    assert_eq!(second.timeline().steps().len(), 1, "{}", second.timeline());
}

#[tokio::test]
async fn once_the_carrier_is_learned_a_link_costs_one_handshake() {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let client = builder(&authority, &[], CarrierKind::Quic).access_point(gateway.address().to_string());
    let client = client.build().unwrap();
    soon(client.get("https://api.test/").send()).await.unwrap();
    let (learned_after, links) = (gateway.connections(), 20_u32);
    for _ in 0..links {
        gateway.kill_links();
        soon(client.get("https://api.test/").send()).await.unwrap();
    }
    assert!(gateway.hellos().len() > links as usize, "each answer came over a link of its own");
    let handshakes = gateway.connections() - learned_after;
    // 1.05 for each.
    assert!(handshakes * 20 <= u64::from(links) * 21, "{handshakes} handshakes for {links} links");
}

#[tokio::test]
async fn five_megabytes_cross_both_ways_on_every_carrier() {
    let length = 5_000_000;
    for carrier in CarrierKind::ALL {
        let (_gateway, client) = world(carrier).await;
        let whole = big(length);
        let pieces = whole.chunks(70_000).map(|piece| Ok::<_, BoxError>(Bytes::copy_from_slice(piece)));
        let upload = Body::stream(futures_util::stream::iter(pieces.collect::<Vec<_>>()));
        let answer = soon(client.post("https://api.test/echo").body(upload).send()).await.unwrap();
        assert!(soon(answer.bytes()).await.unwrap() == big(length), "{carrier}");
        let answer = soon(client.get(format!("https://api.test/big/{length}")).send()).await.unwrap();
        assert!(soon(answer.bytes()).await.unwrap() == big(length), "{carrier}");
    }
}

#[tokio::test]
async fn trailers_cross_both_ways() {
    for carrier in CarrierKind::ALL {
        let (_gateway, client) = world(carrier).await;
        let mut answer = soon(client.get("https://api.test/trailers").send()).await.unwrap();
        assert_eq!(answer.chunk().await.unwrap().unwrap(), "with trailers");
        assert_eq!(answer.chunk().await.unwrap(), None);
        assert_eq!(answer.trailers().unwrap()["x-checksum"], "42");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-mine", HeaderValue::from_static("7"));
        let frames = [Ok::<_, BoxError>(Frame::data(Bytes::from("body"))), Ok(Frame::trailers(trailers))];
        let body = Body::wrap(StreamBody::new(futures_util::stream::iter(frames)));
        let mut answer = soon(client.post("https://api.test/echo").body(body).send()).await.unwrap();
        while answer.chunk().await.unwrap().is_some() {}
        assert_eq!(answer.trailers().unwrap()["x-mine"], "7", "{carrier}");
    }
}

#[tokio::test]
async fn it_is_a_tower_service_and_takes_and_gives_http_types() {
    let (_gateway, client) = world(CarrierKind::Tls).await;
    let request = Request::post("https://api.test/echo").header("content-type", "text/plain");
    let request = request.body(http_body_util::Full::new(Bytes::from("through tower"))).unwrap();
    let response = soon(client.oneshot(request)).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/plain");
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "through tower");
}

#[tokio::test]
async fn json_goes_out_and_comes_back() {
    let (_gateway, client) = world(CarrierKind::Quic).await;
    let sent = serde_json::json!({ "name": "ropeway", "numbers": [1, 2] });
    let answer = soon(client.put("https://api.test/echo").json(&sent).send()).await.unwrap();
    assert_eq!(answer.headers()["content-type"], "application/json");
    assert_eq!(answer.json::<serde_json::Value>().await.unwrap(), sent);
}

#[tokio::test]
async fn a_body_of_known_length_says_so_and_an_empty_get_does_not() {
    let (_gateway, client) = world(CarrierKind::Tls).await;
    let told = soon(client.post("https://api.test/headers").body("12345").send()).await.unwrap().text().await.unwrap();
    assert!(told.contains("content-length: 5"), "{told}");
    let told = soon(client.get("https://api.test/headers").send()).await.unwrap().text().await.unwrap();
    assert!(!told.contains("content-length"), "{told}");
}

#[tokio::test]
async fn requests_share_the_link_and_run_side_by_side() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let held: Vec<_> = (0..20).map(|_| tokio::spawn(client.get("https://api.test/hold").send())).collect();
    eventually("all are under way", || gateway.running() == 20).await;
    let quick = soon(client.get("https://api.test/quick").send()).await.unwrap();
    assert_eq!(quick.text().await.unwrap(), "hello /quick");
    gateway.release();
    for answer in held {
        assert_eq!(soon(answer).await.unwrap().unwrap().text().await.unwrap(), "held");
    }
    assert_eq!(gateway.hellos().len(), 1);
}

#[tokio::test]
async fn a_request_whose_future_is_dropped_frees_its_exchange() {
    for carrier in CarrierKind::ALL {
        let (gateway, client) = world(carrier).await;
        let given_up = tokio::spawn(client.get("https://api.test/never").send());
        eventually("it is under way", || gateway.running() == 1).await;
        given_up.abort();
        eventually("it is given up", || gateway.running() == 0).await;
        let unread = soon(client.get("https://api.test/big/5000000").send()).await.unwrap();
        eventually("it is under way", || gateway.running() == 1).await;
        drop(unread);
        eventually("it is given up", || gateway.running() == 0).await;
    }
}

#[tokio::test]
async fn how_far_a_request_has_come_can_be_asked_at_any_moment() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let progress = Progress::default();
    assert_eq!(progress.phase(), Phase::Connect);
    let post = tokio::spawn(client.post("https://api.test/hold").body("pay").progress(&progress).send());
    eventually("it is under way", || gateway.running() == 1).await;
    assert_eq!(progress.phase(), Phase::Answer);
    gateway.release();
    soon(post).await.unwrap().unwrap();
    assert_eq!(progress.phase(), Phase::Body);

    let tarpit = Tarpit::new();
    let nowhere =
        builder(&Authority::new(), &[], CarrierKind::Tls).access_point_on(tarpit.address(), [CarrierKind::Tls]);
    let client = nowhere.build().unwrap();
    let (state, progress) = (client.link_state(), Progress::default());
    let unsent = tokio::spawn(client.post("https://api.test/hold").body("pay").progress(&progress).send());
    eventually("a link is sought", || *state.borrow() == LinkState::Connecting).await;
    assert_eq!(progress.phase(), Phase::Connect);
    unsent.abort();
}

#[tokio::test]
async fn more_requests_than_a_link_has_room_for_can_be_given_up_one_after_the_other() {
    for carrier in CarrierKind::ALL {
        let (gateway, client) = world(carrier).await;
        for _ in 0..3 {
            let held: Vec<_> = (0..200).map(|_| tokio::spawn(client.get("https://api.test/never").send())).collect();
            eventually("all are under way", || gateway.running() == 200).await;
            held.iter().for_each(tokio::task::JoinHandle::abort);
            eventually("all are given up", || gateway.running() == 0).await;
        }
        let answer = soon(client.get("https://api.test/after").send()).await.unwrap();
        assert_eq!(answer.text().await.unwrap(), "hello /after", "{carrier}");
    }
}

#[tokio::test]
async fn the_link_is_closed_with_the_last_handle_and_by_close() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    soon(client.get("https://api.test/").send()).await.unwrap();
    assert_eq!(gateway.links(), 1);
    let clone = client.clone();
    drop(client);
    soon(clone.get("https://api.test/").send()).await.unwrap();
    drop(clone);
    eventually("the link is gone", || gateway.links() == 0).await;

    let (gateway, client) = world(CarrierKind::Quic).await;
    soon(client.get("https://api.test/").send()).await.unwrap();
    soon(client.close()).await;
    assert_eq!(*client.link_state().borrow(), LinkState::Closed);
    eventually("the link is gone", || gateway.links() == 0).await;
    let error = soon(client.get("https://api.test/").send()).await.unwrap_err();
    assert!(matches!(error, Error::Closed), "{error:?}");
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused_before_a_link_has_it_and_the_largest_that_is_not_goes() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let get = |length: usize| client.get("https://api.test/").header("x-large", "v".repeat(length)).send();
    soon(get(61 << 10)).await.unwrap();
    let executed = gateway.executed();
    let error = soon(get(64 << 10)).await.unwrap_err();
    assert!(matches!(error, Error::HeadTooLarge { bytes: 65_537.., bytes_max: 63_488, .. }), "{error:?}");
    assert!(error.to_string().contains("no way takes more than 63488"), "{error}");
    assert_eq!(gateway.executed(), executed);
}

#[tokio::test]
async fn redirects_are_followed_with_the_body_where_the_status_says_so() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let post = |path: &str| client.post(format!("https://api.test{path}")).header("cookie", "a=b").body("pear");
    let answer = soon(post("/redirect/307/redirect/308/echo").send()).await.unwrap();
    assert_eq!(answer.url(), "https://api.test/echo");
    assert_eq!(soon(answer.text()).await.unwrap(), "pear");
    let answer = soon(post("/redirect/303/headers").send()).await.unwrap();
    let told = soon(answer.text()).await.unwrap();
    assert!(told.contains("cookie: a=b\n") && !told.contains("content-length"), "{told}");
    let answer = soon(post("/redirect/303/headers").redirects(0).send()).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.url().path()), (303, "/redirect/303/headers"));
    let methods: Vec<_> = gateway.executed().iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    assert_eq!(methods, ["POST", "POST", "POST", "POST", "GET", "POST"]);
    // A body that cannot be sent again stays where it was sent.
    let once = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from("pear"))]);
    let sent = client.post("https://api.test/redirect/307/echo").body(Body::stream(once)).send();
    assert_eq!(soon(sent).await.unwrap().status().as_u16(), 307);
}
