//! Batches: each request runs by itself, against its own route.

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use ropeway_core::wire::batch::{AnswerReader, BATCH_PATH, BATCH_TYPE, PARTS_MAX, PartAnswer, PartWriter};
use ropeway_gateway::proxy::ProxyError;
use ropeway_gateway::route::RouteSpec;

use crate::door::*;
use crate::support::*;

fn parts(list: &[(&str, &str)]) -> Bytes {
    let mut writer = PartWriter::new();
    for (url, body) in list {
        let uri: Uri = url.parse().expect("a URL");
        writer.write(&Method::POST, &uri, &HeaderMap::new(), body.as_bytes()).expect("it fits");
    }
    writer.finish()
}

fn request(body: impl Into<Bytes>) -> Request<ropeway_gateway::proxy::ProxyBody> {
    let mut request = post(&format!("https://any.test{BATCH_PATH}"), full(body));
    request.headers_mut().insert(header::CONTENT_TYPE, BATCH_TYPE.parse().expect("a header"));
    request
}

/// Sends a batch and returns its answers in the order of the parts.
async fn answers(door: &Door, body: Bytes, count: usize) -> Vec<PartAnswer> {
    let response = door.h2().await.send_request(request(body)).await.expect("answered");
    assert_eq!(
        (response.status(), response.headers()[header::CONTENT_TYPE].as_bytes()),
        (StatusCode::OK, BATCH_TYPE.as_bytes())
    );
    let mut reader = AnswerReader::new(count);
    reader.handle_data(&response.into_body().collect().await.expect("whole").to_bytes());
    let mut answers: Vec<_> = std::iter::from_fn(|| reader.poll_answer().expect("well-formed")).collect();
    answers.sort_by_key(|answer| answer.index);
    assert_eq!(answers.len(), count);
    answers
}

#[tokio::test]
async fn each_part_is_run_by_itself_and_one_that_fails_fails_alone() {
    let upstream = http_upstream(false, |request| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect().await.expect("whole").to_bytes();
        if path == "/teapot" {
            return Response::builder().status(StatusCode::IM_A_TEAPOT).body(full("short")).expect("valid");
        }
        Response::new(full(format!("{path} {}", String::from_utf8_lossy(&body))))
    })
    .await;
    let door = Door::to(&format!("http://{upstream}"));
    let list = [
        ("https://a.test/one", "1"),
        ("https://nowhere.test/", "2"),
        ("https://a.test/teapot", "3"),
        ("https://a.test/four", ""),
        (&format!("https://a.test{BATCH_PATH}"), "5"),
    ];
    let answers = answers(&door, parts(&list), 5).await;
    let statuses: Vec<_> = answers.iter().map(|answer| answer.head.status.as_u16()).collect();
    assert_eq!(statuses, [200, 404, 418, 200, 404]);
    assert!(answers.iter().all(|answer| answer.whole));
    assert_eq!(answers[0].body, "/one 1");
    assert_eq!(answers[2].body, "short");
    assert_eq!(answers[3].body, "/four ");
    assert_eq!(answers[1].head.headers["ropeway-error"], "no_route");
    assert_eq!(door.in_flight(), 0);
}

#[tokio::test]
async fn the_routes_own_limit_holds_for_the_parts_of_a_batch() {
    let (running, peak) = (std::sync::Arc::new(tokio::sync::Barrier::new(2)), 2);
    let upstream = http_upstream(false, move |_| {
        let running = std::sync::Arc::clone(&running);
        async move {
            running.wait().await;
            Response::new(full("ran"))
        }
    })
    .await;
    let mut spec = RouteSpec::new("a.test", format!("http://{upstream}"));
    spec.in_flight_max = peak;
    let door = Door::with(spec);
    let answers = answers(&door, parts(&[("https://a.test/", "x"); 5]), 5).await;
    let ran = answers.iter().filter(|answer| answer.head.status == StatusCode::OK).count();
    assert_eq!(ran, 2);
    assert_counted(&door.metrics, ProxyError::TooManyInFlight, 3);
}

#[tokio::test]
async fn an_answer_that_is_cut_or_too_long_is_said_to_be_a_part() {
    let cut = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf").await;
    let door = Door::to(&format!("http://{cut}"));
    let cut = &answers(&door, parts(&[("https://a.test/", "x")]), 1).await[0];
    assert_eq!((cut.body.as_ref(), cut.whole), (&b"half"[..], false));
    let long = http_upstream(false, |_| async { Response::new(full(vec![7; 70_000])) }).await;
    let door = Door::to(&format!("http://{long}"));
    let long = &answers(&door, parts(&[("https://a.test/", "x")]), 1).await[0];
    assert_eq!((long.body.len(), long.whole), (64 * 1024, false));
}

#[tokio::test]
async fn a_batch_that_is_no_batch_runs_nothing() {
    let upstream = http_upstream(false, |_| async { panic!("it must not run") }).await;
    let door = Door::to(&format!("http://{upstream}"));
    let whole = parts(&[("https://a.test/", "x"), ("https://a.test/", "y")]);
    let many = [parts(&[("https://a.test/", "x"); PARTS_MAX]), parts(&[("https://a.test/", "x")])].concat();
    let mut untyped = request(whole.clone());
    untyped.headers_mut().remove(header::CONTENT_TYPE);
    let mut got = request(whole.clone());
    *got.method_mut() = Method::GET;
    for (request, error) in [
        (request(whole.slice(..whole.len() - 1)), ProxyError::RequestMalformed),
        (request("nonsense"), ProxyError::RequestMalformed),
        (request(many), ProxyError::RequestMalformed),
        (request(vec![0; 300_000]), ProxyError::BodyTooLarge),
        (untyped, ProxyError::RequestMalformed),
        (got, ProxyError::MethodNotAllowed),
    ] {
        let response = door.h2().await.send_request(request).await.expect("answered");
        assert_eq!(response.headers()["ropeway-error"], error.name());
    }
    assert!(answers(&door, Bytes::new(), 0).await.is_empty());
}
