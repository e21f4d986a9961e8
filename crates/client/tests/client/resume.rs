//! Links that break under requests.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use http::StatusCode;
use ropeway::{Action, CarrierKind, Client, Error, Response, Retry, way::Fate};
use ropeway_core::policy::{Policy, RoutePolicy};

use crate::support::{Authority, Relay, TestGateway, builder, eventually, service::big, soon, world};

/// A gateway, what stands before it, and a client that knows the way through that alone.
async fn behind_a_relay() -> (TestGateway, Relay, Client) {
    let authority = Authority::new();
    let gateway = TestGateway::start(&authority).await;
    let relay = Relay::start(gateway.address()).await;
    let client = builder(&authority, &[], CarrierKind::Tls).access_point_on(relay.address(), [CarrierKind::Tls]);
    (gateway, relay, client.build().unwrap())
}

#[tokio::test]
async fn an_answer_that_was_under_way_when_the_link_broke_comes_once_over_the_next() {
    for carrier in CarrierKind::ALL {
        let (gateway, client) = world(carrier).await;
        let held = tokio::spawn(client.post("https://api.test/hold").body("pay").send());
        eventually("it is under way", || gateway.running() == 1).await;
        gateway.kill_links();
        eventually("the session is resumed", || gateway.hellos().len() == 2).await;
        assert_eq!(gateway.hellos()[1].unanswered.len(), 1);
        gateway.release();
        let answer = soon(held).await.unwrap().unwrap();
        let exchanges = answer.timeline().steps().iter().filter(|step| step.action == Action::Exchange);
        let [lost, answered] = exchanges.collect::<Vec<_>>()[..] else { panic!("{}", answer.timeline()) };
        assert!(lost.error.is_some() && lost.ended <= Some(answered.started), "{}", answer.timeline());
        assert_eq!((answered.status, answered.fate), (Some(StatusCode::OK), Fate::Executed), "{}", answer.timeline());
        assert_eq!(soon(answer.text()).await.unwrap(), "held", "{carrier}");
        assert_eq!(gateway.executed().len(), 1, "{carrier}");
    }
}

#[tokio::test]
async fn a_link_that_falls_silent_is_replaced_while_an_answer_is_awaited() {
    let (gateway, relay, client) = behind_a_relay().await;
    let held = tokio::spawn(client.post("https://api.test/hold").body("pay").send());
    eventually("it is under way", || gateway.running() == 1).await;
    relay.freeze();
    // One that is sent into the silence, and one whose answer is lost in it.
    let late = client.post("https://api.test/late").body("pay").send();
    gateway.release();
    assert_eq!(soon(soon(late).await.unwrap().text()).await.unwrap(), "hello /late");
    assert_eq!(soon(soon(held).await.unwrap().unwrap().text()).await.unwrap(), "held");
    assert_eq!(gateway.executed().len(), 2, "{:?}", gateway.executed());
    let hellos = gateway.hellos();
    assert_eq!((hellos.len(), hellos[1].unanswered.len()), (2, 2), "the session went on");
}

#[tokio::test]
async fn a_body_goes_on_where_it_broke() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let mut answer = soon(client.get("https://api.test/big/3000000").send()).await.unwrap();
    let mut whole = answer.chunk().await.unwrap().unwrap().to_vec();
    gateway.kill_links();
    while let Some(data) = soon(answer.chunk()).await.unwrap() {
        whole.extend_from_slice(&data);
    }
    assert!(whole == big(3_000_000));
    assert_eq!(gateway.executed().len(), 1);
}

#[tokio::test]
async fn a_body_over_a_link_that_falls_silent_for_good_goes_on_over_the_next_or_ends() {
    let (gateway, relay, client) = behind_a_relay().await;
    for is_gone in [false, true] {
        let mut answer = soon(client.get("https://api.test/big/3000000").send()).await.unwrap();
        let mut length = soon(answer.chunk()).await.unwrap().unwrap().len();
        relay.freeze();
        if is_gone {
            gateway.stay_silent();
        }
        // From here on the time of every wait is skipped.
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let ended = loop {
            match answer.chunk().await {
                Ok(Some(data)) => length += data.len(),
                Ok(None) => break Ok(length),
                Err(error) => break Err(error),
            }
        };
        let took = began.elapsed();
        tokio::time::resume();
        match ended {
            Ok(length) => assert!(!is_gone && length == 3_000_000, "{length}"),
            Err(error) => assert!(matches!(error, Error::BodyCut { .. }), "{error:?}"),
        }
        assert!(took < Duration::from_secs(120), "{took:?}");
    }
}

#[tokio::test]
async fn when_the_gateway_lost_its_memory_a_get_is_sent_again_and_a_post_is_not() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    soon(client.get("https://api.test/").send()).await.unwrap();
    let get = tokio::spawn(client.get("https://api.test/hold/get").send());
    let post = tokio::spawn(client.post("https://api.test/hold/post").body("pay").send());
    let keyed = |path| client.post(format!("https://api.test/hold/{path}")).idempotency_key("k").body("pay").send();
    let honoured = RoutePolicy {
        host: "api.test".into(),
        path_prefix: "/hold/honoured".into(),
        idempotency_keys: Some(true),
        ..RoutePolicy::default()
    };
    gateway.send_policy(&Policy { routes: vec![honoured], ..Policy::default() });
    // The policy comes before the answer to what is asked after it.
    soon(client.get("https://api.test/").send()).await.unwrap();
    let (forgotten, honoured) = (tokio::spawn(keyed("forgotten")), tokio::spawn(keyed("honoured")));
    eventually("they are under way", || gateway.running() == 4).await;
    gateway.forget();
    gateway.kill_links();
    let error = soon(post).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::IdempotentOnly);
    gateway.release();
    assert_eq!(soon(get).await.unwrap().unwrap().text().await.unwrap(), "held");
    assert_eq!(soon(honoured).await.unwrap().unwrap().text().await.unwrap(), "held");
    let error = soon(forgotten).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "the gateway that knew the key is gone: {error:?}");
    let count = |path: &str| gateway.executed().iter().filter(|executed| executed.ends_with(path)).count();
    assert_eq!((count("/get"), count("/post"), count("/forgotten"), count("/honoured")), (2, 1, 1, 2));
}

#[tokio::test]
async fn a_request_the_gateway_did_not_execute_is_sent_again_a_few_times_and_then_told() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let error = soon(client.post("https://api.test/refused").body("pay").send()).await.unwrap_err();
    assert!(matches!(error, Error::NotExecuted { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::BeforeSend);
    assert_eq!(gateway.executed().len(), 3);
}

#[tokio::test]
async fn a_body_that_the_service_cuts_is_never_taken_for_the_whole() {
    let (gateway, client) = world(CarrierKind::Tls).await;
    let mut answer = soon(client.get("https://api.test/cut").send()).await.unwrap();
    let mut read = soon(answer.chunk()).await.unwrap().unwrap().to_vec();
    gateway.release();
    read_to_the_cut(&mut answer, &mut read).await;
    assert_eq!(read, b"half");
}

/// Reads on until the body is cut by the service.
async fn read_to_the_cut(answer: &mut Response, read: &mut Vec<u8>) {
    let error = loop {
        match soon(answer.chunk()).await {
            Ok(Some(data)) => read.extend_from_slice(&data),
            Ok(None) => panic!("the part was taken for the whole"),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::BodyCut { side: ropeway::Side::Service, .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_of_a_body_before_the_service_cut_it_is_given_to_the_app_on_every_carrier() {
    for carrier in CarrierKind::ALL {
        let (gateway, client) = world(carrier).await;
        gateway.release();
        for length in [4, 20_000, 200_000].repeat(10) {
            let mut answer = soon(client.get(format!("https://api.test/cut/{length}")).send()).await.unwrap();
            let mut read = Vec::new();
            read_to_the_cut(&mut answer, &mut read).await;
            assert!(read == big(length), "{} of {length} bytes over {carrier}", read.len());
        }
    }
}
