//! Answers that pause, in paused time.

use std::convert::Infallible;

use http_body_util::BodyExt as _;
use ropeway_core::request::NetworkState;
use tokio::{sync::mpsc, time::sleep};

use super::*;

#[tokio::test(start_paused = true)]
async fn an_answer_that_pauses_too_long_ends_with_what_it_had_brought() {
    let pace = pace();
    let (bytes, mut body) = answer(&pace, Pauses::Network, "text/plain");
    for _ in 0..3 {
        bytes.send(Bytes::from("piece")).unwrap();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "piece");
        // What the app itself takes counts for nothing.
        sleep(Duration::from_secs(600)).await;
    }
    let began = Instant::now();
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(
        matches!(error, Error::Timeout { phase: Phase::Pause { received_bytes: 15 }, after: GAP, .. }),
        "{error:?}"
    );
    assert_eq!(error.to_string(), "timed out waiting for more of the answer than the first 15 bytes after 8000 ms");
    assert_eq!((began.elapsed(), error.side()), (GAP, Side::Network));
    assert!(body.frame().await.is_none());
    assert!(bytes.is_closed(), "nobody listens any more");
}

#[tokio::test(start_paused = true)]
async fn each_byte_begins_the_pause_anew() {
    let (bytes, mut body) = answer(&pace(), Pauses::Network, "text/plain");
    let sender = tokio::spawn(async move {
        for _ in 0..10 {
            sleep(GAP - Duration::from_millis(1)).await;
            bytes.send(Bytes::from("x")).unwrap();
        }
    });
    for _ in 0..10 {
        body.frame().await.unwrap().unwrap();
    }
    sender.await.unwrap();
    assert!(body.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn the_app_may_bound_the_pauses_of_one_request_or_let_them_be() {
    let within = Duration::from_secs(1);
    let (_open, mut body) = answer(&pace(), Pauses::App(within), "text/event-stream");
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { after, .. } if after == within), "{error:?}");
    for (pauses, kind) in [
        (Pauses::Free, "text/plain"),
        (Pauses::Network, "text/event-stream; charset=utf-8"),
        (Pauses::Network, "application/grpc+proto"),
    ] {
        let (_open, mut body) = answer(&pace(), pauses, kind);
        let waited = tokio::time::timeout(Duration::from_secs(86_400), body.frame()).await;
        assert!(waited.is_err(), "{pauses:?} {kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_and_the_network_bound_the_pauses() {
    let pace = pace();
    pace.set_network("operator", NetworkKind::Cellular4g);
    let (_open, mut body) = answer(&pace, Pauses::Network, "text/plain");
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { after, .. } if after == Duration::from_secs(12)), "{error:?}");
    pace.handle_policy(&Policy { gap: Some(Duration::from_secs(3)), ..Policy::default() });
    let (_open, mut body) = answer(&pace, Pauses::Network, "text/plain");
    let error = body.frame().await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Timeout { after, .. } if after == Duration::from_secs(3)), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn answers_make_the_next_tries_shorter_and_failures_longer() {
    let pace = pace();
    pace.set_network("home", NetworkKind::Wifi);
    let second_try = || pace.first_byte(0, 1, None, Duration::MAX);
    assert_eq!(second_try(), Duration::from_secs(12));
    pace.handle_rtt(Duration::from_millis(100));
    assert_eq!(second_try(), Duration::from_millis(8_400));
    for _ in 0..10 {
        let (bytes, body) = answer(&pace, Pauses::Network, "text/plain");
        bytes.send(Bytes::from(vec![0; 5_000])).unwrap();
        drop(bytes);
        body.collect().await.unwrap();
    }
    assert_eq!((state(&pace), second_try()), (NetworkState::Excellent, Duration::from_secs(7)));
    for _ in 0..4 {
        let (_open, mut body) = answer(&pace, Pauses::Network, "text/plain");
        body.frame().await.unwrap().unwrap_err();
    }
    assert_eq!(state(&pace), NetworkState::Bad);
    assert_eq!(second_try(), Duration::from_millis(12_600));
    pace.handle_changed();
    assert_eq!(state(&pace), NetworkState::Evaluating);
}

#[tokio::test(start_paused = true)]
async fn what_the_app_gives_up_or_a_service_does_wrong_says_nothing_about_the_network() {
    let pace = pace();
    for _ in 0..10 {
        drop(answer(&pace, Pauses::Network, "text/plain"));
        pace.handle_error(&Error::Closed);
        pace.handle_error(&Error::BodyCut { side: Side::Service, reason: String::new() });
    }
    assert_eq!(state(&pace), NetworkState::Evaluating);
    for _ in 0..4 {
        pace.handle_error(&Error::OutcomeUnknown { timeline: Box::default() });
    }
    assert_eq!(state(&pace), NetworkState::Bad);
}

#[tokio::test(start_paused = true)]
async fn exchanges_under_way_delay_a_try_until_their_bodies_are_over() {
    let pace = pace();
    let first_try = || pace.first_byte(0, 1, None, Duration::MAX).as_millis();
    let waiting = pace.begin(0);
    let (bytes, body) = answer(&pace, Pauses::Network, "text/plain");
    assert_eq!(first_try(), 12_000 + 2 * 1_500);
    drop(bytes);
    body.collect().await.unwrap();
    drop(waiting.answer(Response::new(Body::empty()), Pauses::Network));
    assert_eq!(first_try(), 12_000);
}

fn pace() -> Arc<Pace> {
    Arc::new(Pace::new(Clock::new()))
}

fn state(pace: &Pace) -> NetworkState {
    lock(&pace.state).timeouts.state(pace.clock.now())
}

/// Begins an exchange and returns what its body is fed by.
fn answer(pace: &Arc<Pace>, pauses: Pauses, kind: &str) -> (mpsc::UnboundedSender<Bytes>, Body) {
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let bytes =
        futures_util::stream::poll_fn(move |cx| receiver.poll_recv(cx).map(|data| data.map(Ok::<_, Infallible>)));
    let mut answer = Response::new(Body::stream(bytes));
    answer.headers_mut().insert(header::CONTENT_TYPE, kind.parse().unwrap());
    (sender, pace.begin(0).answer(answer, pauses).into_body())
}

/// What is not measured has 8 s.
const GAP: Duration = Duration::from_secs(8);
