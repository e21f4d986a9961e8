//! What becomes of a request whose gateway ran it, or did not take it, and whose answer does not come by a way that holds it whole.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::atomic::Ordering, time::Duration};

use ropeway::{Action, Error, Retry, Side, Timeline, Way};
use tokio::time::timeout;

use crate::ladder::{Mood, Scene};

fn ways(error: &Error) -> Vec<Way> {
    error.timeline().unwrap().steps().iter().map(|step| step.way).collect()
}

/// Says of each exchange by the pipe how it failed; nothing where it did not.
fn pipe_errors(timeline: &Timeline) -> Vec<&str> {
    let exchanges = timeline.steps().iter().filter(|step| (step.way, step.action) == (Way::Pipe, Action::Exchange));
    exchanges.map(|step| step.error.as_deref().unwrap_or_default()).collect()
}

#[tokio::test]
async fn after_a_restart_a_post_by_the_pipe_runs_once_or_its_error_says_why_nobody_knows() {
    let mut scene = Scene::new(|_| ()).await;
    scene.post("/first").await.unwrap();
    scene.set(Mood::Plain).await;
    scene.restart().await;
    let executed = scene.world.service.executed();
    let pay = || scene.client.post("https://api.test/pay").way(Way::Pipe).body("one pear").allow_frequent(true);
    let answer = loop {
        match timeout(Duration::from_secs(60), pay().send()).await.expect("it never ended") {
            Ok(answer) => break answer,
            // It was sealed as the process began.
            Err(error @ Error::OutcomeUnknown { .. }) => {
                assert!(error.to_string().contains("gateway was restarted 0 s ago"), "{error}");
            }
            Err(error) => panic!("{error:?}"),
        }
    };
    assert_eq!(answer.timeline().answered().unwrap().way, Way::Pipe);
    assert_eq!(scene.world.service.executed() - executed, 1);
    pay().send().await.unwrap();
    assert_eq!(scene.world.service.executed() - executed, 2);
}

#[tokio::test]
async fn an_answer_too_large_for_the_pipe_is_not_asked_for_twice_the_same_way() {
    let scene =
        Scene::new(|config| (config.pipe.answer_bytes_max, config.plain_http.answer_bytes_max) = (2_000, 2_000)).await;
    scene.post("/first").await.unwrap();
    scene.set(Mood::Plain).await;
    let executed = scene.world.service.executed();
    let error = scene.client.get("https://api.test/large?3000").send().await.unwrap_err();
    assert!(matches!(error, Error::AnswerTooLarge { way: Way::Pipe, .. }), "{error:?}");
    assert_eq!((error.side(), error.retry()), (Side::Service, Retry::IdempotentOnly));
    let held = ways(&error).into_iter().filter(|way| way.is_held()).count();
    assert_eq!((held, scene.world.service.executed() - executed), (1, 1), "{error}");
    let error = scene.post("/pay?3000").await.unwrap_err();
    assert!(matches!(error, Error::AnswerTooLarge { .. }), "{error:?}");
    let error = scene.client.post("https://api.test/pay?3000").way(Way::Plain).send().await.unwrap_err();
    assert!(matches!(error, Error::AnswerTooLarge { way: Way::Plain, .. }), "{error:?}");
    assert_eq!(scene.world.service.executed() - executed, 3);

    scene.between.mood.send_replace(Mood::All);
    let answer = scene.client.get("https://api.test/large?3000").send().await.unwrap();
    let taken: Vec<Way> = answer.timeline().steps().iter().map(|step| step.way).filter(|way| way.is_held()).collect();
    assert_eq!(taken, [Way::Pipe], "the pipe is first while TLS is remembered as cut off: {}", answer.timeline());
    assert_eq!(answer.timeline().answered().unwrap().way, Way::Address);
}

#[tokio::test]
async fn a_keyed_post_whose_answer_is_lost_is_asked_for_again_at_its_gateway_and_runs_once() {
    let scene = Scene::new(|_| ()).await;
    scene.post("/first").await.unwrap();
    scene.set(Mood::Plain).await;
    let executed = scene.world.service.executed();
    scene.between.losses.store(1, Ordering::Relaxed);
    let error = scene.client.post("https://api.test/pay").way(Way::Pipe).body("one pear").send().await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "without a key nobody knows: {error:?}");
    scene.between.losses.store(1, Ordering::Relaxed);
    let pay = scene.client.post("https://api.test/pay").idempotency_key("order-8").way(Way::Pipe).body("one pear");
    let answer = pay.send().await.unwrap();
    assert_eq!(answer.headers()["ropeway-replayed"], "1");
    assert_eq!(pipe_errors(answer.timeline()).len(), 2, "{}", answer.timeline());
    assert!(pipe_errors(answer.timeline())[0].contains("exchange broke off"), "{}", answer.timeline());
    assert!(answer.text().await.unwrap().starts_with("POST /pay one pear\n"));
    assert_eq!((scene.world.service.executed() - executed, scene.world.pipe_requests("answered")), (2, 4));

    scene.between.losses.store(1, Ordering::Relaxed);
    scene.between.is_silent.store(true, Ordering::Relaxed);
    let pay = scene.client.post("https://api.test/pay").idempotency_key("order-9").way(Way::Pipe).body("one pear");
    let answer = timeout(Duration::from_secs(30), pay.send()).await.expect("it waits for what never comes").unwrap();
    assert_eq!(answer.headers()["ropeway-replayed"], "1");
    let told = pipe_errors(answer.timeline());
    assert_eq!(told, ["given up: another copy had the answer", ""], "{}", answer.timeline());
    assert!(answer.timeline().steps().iter().all(|step| step.address == Some(scene.between.address)));
    assert_eq!(scene.world.service.executed() - executed, 3);
}

#[tokio::test]
async fn a_gateway_that_does_not_know_the_key_makes_the_client_fetch_the_list_with_the_new_one() {
    let mut scene = Scene::new(|_| ()).await;
    scene.post("/first").await.unwrap();
    std::fs::remove_file(scene.world.config.gateway.data_dir.join("pipe-keys.json")).unwrap();
    scene.restart().await;
    let executed = scene.world.service.executed();
    let pay = || scene.client.post("https://api.test/pay").way(Way::Pipe).body("one pear").allow_frequent(true).send();
    let error = pay().await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }), "anyone could have said so: {error:?}");
    assert!(error.to_string().contains("key is not known there"), "{error}");
    let works = async { while pay().await.is_err() {} };
    timeout(Duration::from_secs(10), works).await.expect("no other list was fetched");
    assert_eq!(scene.world.service.executed() - executed, 1);
}
