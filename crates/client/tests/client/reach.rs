//! Gateways that are hard to reach, and the bounds of waiting for them.

use std::{
    net::TcpListener,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use ropeway::{CarrierKind, Client, Error, EstablishConfig, Event, LinkState, Phase, RefuseCode, Retry};
use ropeway_core::{policy::Policy, session::Refusal};

use crate::support::{Authority, Tarpit, TestGateway, builder, eventually, lock, soon, world};

#[tokio::test]
async fn two_addresses_that_swallow_everything_do_not_keep_the_third_from_answering() {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let (one, two) = (Tarpit::new(), Tarpit::new());
    let client = builder(&authority, &[], CarrierKind::Tls)
        .access_point_on(one.address(), [CarrierKind::Tls])
        .access_point_on(two.address(), [CarrierKind::Tls])
        .access_point_on(gateway.address(), [CarrierKind::Tls])
        .build()
        .unwrap();
    let began = Instant::now();
    let answer = soon(client.get("https://api.test/").send()).await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}: {}", began.elapsed(), answer.timeline());
    assert_eq!(answer.timeline().answered().unwrap().address, Some(gateway.address()));
}

#[tokio::test]
async fn a_gateway_that_finishes_its_handshake_and_stays_silent_is_passed_over() {
    let authority = Authority::new();
    let (silent, good) = (TestGateway::start(&authority).await, TestGateway::start(&authority).await);
    silent.stay_silent();
    let patience = EstablishConfig { greet_within: Duration::from_millis(200), ..EstablishConfig::default() };
    let client = builder(&authority, &[&silent, &good], CarrierKind::Tls).establish(patience).build().unwrap();
    let answer = soon(client.get("https://api.test/").send()).await.unwrap();
    assert_eq!(answer.timeline().answered().unwrap().address, Some(good.address()));
    assert!(answer.timeline().to_string().contains("no WELCOME in time"), "{}", answer.timeline());
}

#[tokio::test]
async fn a_gateway_behind_which_nothing_answers_is_left_for_another_unit() {
    let authority = Authority::new();
    let (island, good) =
        (TestGateway::start(&authority).await, TestGateway::start_on(&authority, [127, 0, 0, 2]).await);
    let client = builder(&authority, &[], CarrierKind::Tls)
        .carrier(CarrierKind::Tls)
        .access_point_in("north", island.address().to_string())
        .access_point_in("south", good.address().to_string())
        .build()
        .unwrap();
    soon(client.get("https://api.test/").send()).await.unwrap();
    let (island, good) = if island.links() > 0 { (island, good) } else { (good, island) };
    let second = Some(Duration::from_secs(1));
    let policy = Policy { first_byte_base: second, first_byte_cap: second, ..Policy::default() };
    island.send_policy(&policy);
    soon(client.get("https://api.test/").send()).await.unwrap();
    let held = ["a", "b", "c"].map(|path| tokio::spawn(client.get(format!("https://api.test/hold/{path}")).send()));
    eventually("the other unit is asked", || good.running() == 3).await;
    good.release();
    for request in held {
        assert_eq!(soon(request).await.unwrap().unwrap().text().await.unwrap(), "held");
    }
    assert_eq!(
        client.link_state().borrow().clone(),
        LinkState::Open { address: good.address(), carrier: CarrierKind::Tls }
    );
}

#[tokio::test]
async fn the_name_of_an_access_point_is_resolved() {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let point = format!("localhost:{}", gateway.address().port());
    let client = builder(&authority, &[], CarrierKind::Tls).access_point(point).build().unwrap();
    soon(client.get("https://api.test/").send()).await.unwrap();
}

#[tokio::test]
async fn a_name_that_cannot_be_resolved_is_told() {
    // A label of more than 63 bytes is no question for a name server (RFC 1035 section 2.3.4).
    let client = builder(&Authority::new(), &[], CarrierKind::Tls)
        .access_point(format!("{}:443", "a".repeat(64)))
        .link_wait(Duration::from_secs(1))
        .build()
        .unwrap();
    let error = soon(client.get("https://api.test/").send()).await.unwrap_err();
    assert!(error.to_string().contains("no name of an access point was resolved"), "{error}");
}

#[tokio::test]
async fn without_a_link_in_time_a_request_fails_before_it_is_sent() {
    let authority = Authority::new();
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = builder(&authority, &[], CarrierKind::Tls)
        .access_point_on(refused, [CarrierKind::Tls])
        .link_wait(Duration::from_millis(300))
        .build()
        .unwrap();
    let error = soon(client.post("https://api.test/").body("pay").send()).await.unwrap_err();
    assert!(matches!(error, Error::NoWay { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::BeforeSend);
    assert_eq!(error.timeline().unwrap().steps()[0].address, Some(refused), "{error}");
}

#[tokio::test]
async fn where_all_access_points_refuse_a_request_is_told_so_soon_unless_one_starts_again() {
    let authority = Authority::new();
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    // On UDP the port is silent.
    for carriers in [&[CarrierKind::Tls][..], &CarrierKind::ALL] {
        let client = builder(&authority, &[], CarrierKind::Tls).access_point_on(refused, carriers.iter().copied());
        let client = client.refused_wait(Duration::from_millis(700)).build().unwrap();
        let began = Instant::now();
        let error = soon(client.get("https://api.test/").send()).await.unwrap_err();
        let took = began.elapsed();
        assert!(matches!(error, Error::NoWay { .. }), "{error:?}");
        assert!(error.to_string().contains("refused"), "{error}");
        assert!((700..5_000).contains(&took.as_millis()), "{carriers:?}: {took:?}");
    }
    let client = builder(&authority, &[], CarrierKind::Tls).access_point_on(refused, [CarrierKind::Tls]);
    let client = client.build().unwrap();
    let waiting = tokio::spawn(client.get("https://api.test/").send());
    let mut state = client.link_state();
    soon(state.wait_for(|state| *state == LinkState::Connecting)).await.unwrap();
    soon(state.wait_for(|state| *state == LinkState::Offline)).await.unwrap();
    let _gateway = TestGateway::start_at(&authority, refused).await;
    soon(waiting).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_untrusted_gateway_gets_no_hello() {
    let (authority, other) = (Authority::new(), Authority::new());
    let gateway = TestGateway::start(&other).await;
    for carrier in CarrierKind::ALL {
        let client = builder(&authority, &[&gateway], carrier).link_wait(Duration::from_secs(3_600)).build().unwrap();
        // Each is told at once, instead of waiting for a link.
        for _ in 0..2 {
            let error = soon(client.get("https://api.test/").send()).await.unwrap_err();
            assert!(matches!(error, Error::Untrusted { .. }), "{error:?}");
            assert!(error.to_string().contains("invalid peer certificate"), "{error}");
            assert_eq!(error.retry(), Retry::BeforeSend);
        }
    }
    assert!(gateway.hellos().is_empty());
}

#[tokio::test]
async fn a_stranger_at_one_access_point_does_not_end_the_wait_for_another() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (stranger, gateway) = (TestGateway::start(&other).await, TestGateway::start(&authority).await);
    let client = builder(&authority, &[&stranger, &gateway], CarrierKind::Tls).build().unwrap();
    let answer = soon(client.get("https://api.test/").send()).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "hello /");
    assert!(stranger.hellos().is_empty());
}

#[tokio::test]
async fn a_header_that_would_be_lost_on_the_way_is_refused() {
    let client = Client::builder().build().unwrap();
    for (name, value) in [("host", "other.test"), ("upgrade", "websocket")] {
        let error = soon(client.get("https://api.test/").header(name, value).send()).await.unwrap_err();
        assert!(matches!(&error, Error::Invalid(why) if why.contains(name)), "{error:?}");
    }
}

#[tokio::test]
async fn a_timeout_says_what_the_request_was_at() {
    let (_gateway, client) = world(CarrierKind::Tls).await;
    let limit = Duration::from_millis(200);
    let error = soon(client.get("https://api.test/never").timeout(limit).send()).await.unwrap_err();
    assert!(matches!(&error, Error::Timeout { phase: Phase::Answer, after, .. } if *after == limit), "{error:?}");
    assert_eq!(error.retry(), Retry::IdempotentOnly);
    let answer = soon(client.get("https://api.test/cut").timeout(limit).send()).await.unwrap();
    let error = soon(answer.bytes()).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { phase: Phase::Body, .. }), "{error:?}");
    let tarpit = Tarpit::new();
    let nowhere =
        builder(&Authority::new(), &[], CarrierKind::Tls).access_point_on(tarpit.address(), [CarrierKind::Tls]);
    let error = soon(nowhere.build().unwrap().get("https://api.test/").timeout(limit).send()).await.unwrap_err();
    assert_eq!(error.retry(), Retry::BeforeSend, "{error:?}");
}

#[tokio::test]
async fn a_request_for_which_no_link_came_back_may_be_sent_again() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    soon(client.get("https://api.test/").send()).await.unwrap();
    gateway.refuse(Some(Refusal::new(RefuseCode::Overloaded, "not now")));
    gateway.kill_links();
    let mut state = client.link_state();
    soon(state.wait_for(|state| !matches!(state, LinkState::Open { .. }))).await.unwrap();
    let limit = Duration::from_millis(300);
    let error = soon(client.post("https://api.test/late").body("pay").timeout(limit).send()).await.unwrap_err();
    assert_eq!(error.retry(), Retry::BeforeSend, "{error:?}");
    assert_eq!(gateway.executed(), ["GET https://api.test/"]);
}

#[tokio::test]
async fn quic_moves_to_another_socket_and_keeps_its_link() {
    let (gateway, client) = world(CarrierKind::Quic).await;
    let held = tokio::spawn(client.get("https://api.test/hold").send());
    eventually("it is under way", || gateway.running() == 1).await;
    client.network_changed();
    let answer = soon(client.get("https://api.test/after").send()).await.unwrap();
    assert_eq!(answer.text().await.unwrap(), "hello /after");
    gateway.release();
    soon(held).await.unwrap().unwrap();
    assert_eq!(gateway.hellos().len(), 1, "no new link");
}

#[tokio::test]
async fn whoever_watches_is_told_what_happens_to_the_link() {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let refused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let events = Arc::new(Mutex::new(Vec::new()));
    let watcher = Arc::clone(&events);
    let client = builder(&authority, &[], CarrierKind::Tls)
        .access_point_on(refused, [CarrierKind::Tls])
        .access_point_on(gateway.address(), [CarrierKind::Tls])
        .on_event(move |event| lock(&watcher).push(event))
        .build()
        .unwrap();
    soon(client.get("https://api.test/").send()).await.unwrap();
    gateway.kill_links();
    eventually("the loss is told", || lock(&events).len() == 3).await;
    let events = lock(&events);
    assert!(matches!(events[0], Event::AttemptFailed { address, .. } if address == refused), "{events:?}");
    assert!(matches!(events[1], Event::LinkUp { resumed: false, .. }), "{events:?}");
    assert!(matches!(events[2], Event::LinkLost { .. }), "{events:?}");
}

#[tokio::test]
async fn a_request_whose_timeout_passed_frees_its_exchange() {
    let (gateway, client) = world(CarrierKind::Quic).await;
    let request = client.get("https://api.test/never").timeout(Duration::from_millis(100));
    soon(request.send()).await.unwrap_err();
    eventually("it is given up", || gateway.running() == 0).await;
}

#[tokio::test]
async fn no_more_requests_wait_for_a_link_than_may() {
    let tarpit = Tarpit::new();
    let client = builder(&Authority::new(), &[], CarrierKind::Tls)
        .access_point_on(tarpit.address(), [CarrierKind::Tls])
        .build()
        .unwrap();
    let waiting: Vec<_> = (0..1_000).map(|_| tokio::spawn(client.get("https://api.test/").send())).collect();
    let mut error = None;
    eventually("one is too many", || {
        let mut request = std::pin::pin!(client.get("https://api.test/").send());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        if let std::task::Poll::Ready(Err(told)) = Future::poll(request.as_mut(), &mut context) {
            error = Some(told);
        }
        error.is_some()
    })
    .await;
    assert!(matches!(error, Some(Error::TooManyWaiting { max: 1_000 })), "{error:?}");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn requests_that_make_no_sense_are_told_when_they_are_sent() {
    let client = Client::builder().build().unwrap();
    for request in [
        client.get("no url at all"),
        client.get("/path"),
        client.get("ftp://api.test/"),
        client.get("https://user:secret@api.test/"),
        client.get("https://api.test/").header("bad name", "x"),
        client.get("https://api.test/").header("name", "bad\nvalue"),
        client.request(http::Method::CONNECT, "https://api.test/"),
    ] {
        let error = soon(request.send()).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(!error.to_string().contains("secret"));
    }
}
