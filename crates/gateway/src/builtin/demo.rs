//! The site a gateway without routes shows, so that a first request has an answer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full};
use tokio::time::{Interval, interval};

use crate::proxy::{ProxyBody, ProxyError};

pub(super) async fn answer(request: &Request<()>) -> Response<ProxyBody> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = "the demo only answers GET and HEAD; try /\n";
        let mut response = text_answer(StatusCode::METHOD_NOT_ALLOWED, "text/plain", text.to_owned());
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match request.uri().path() {
        "/" => about(request),
        "/bytes" => bytes(request),
        "/slow" => slow(request).await,
        "/stream" => stream(),
        "/time" => text_answer(StatusCode::OK, "text/plain", format!("{}\n", unix_seconds())),
        _ => text_answer(StatusCode::NOT_FOUND, "text/plain", "nothing here; try /\n".to_owned()),
    }
}

/// Explains the site in the form the client prefers.
fn about(request: &Request<()>) -> Response<ProxyBody> {
    let accept = request.headers().get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let accept = accept.unwrap_or_default();
    if accept.contains("text/html") {
        let items: String =
            PAGES.iter().map(|(path, what)| format!("<li><a href=\"{path}\">{path}</a>: {what}</li>\n")).collect();
        let page = format!(
            "<!doctype html>\n<title>Ropeway demo</title>\n<h1>It works</h1>\n\
             <p>This page came through a Ropeway gateway.</p>\n<ul>\n{items}</ul>\n"
        );
        return text_answer(StatusCode::OK, "text/html; charset=utf-8", page);
    }
    if accept.contains("application/json") {
        let pages: serde_json::Map<String, serde_json::Value> =
            PAGES.iter().map(|(path, what)| ((*path).to_owned(), (*what).into())).collect();
        let page = serde_json::json!({ "service": "ropeway demo", "pages": pages });
        return text_answer(StatusCode::OK, "application/json", format!("{page}\n"));
    }
    let items: String = PAGES.iter().map(|(path, what)| format!("  {path:<14} {what}\n")).collect();
    let page = format!("It works: this came through a Ropeway gateway. Try also:\n{items}");
    text_answer(StatusCode::OK, "text/plain; charset=utf-8", page)
}

/// Answers with as many bytes as asked for, in a repeated pattern.
fn bytes(request: &Request<()>) -> Response<ProxyBody> {
    let left = number(request, "n").unwrap_or(1024).min(BYTES_MAX);
    let mut response = Response::new(Pattern { left }.boxed_unsync());
    let octets = HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, octets);
    response
}

async fn slow(request: &Request<()>) -> Response<ProxyBody> {
    let ms = number(request, "ms").unwrap_or(1000).min(SLOW_MS_MAX);
    tokio::time::sleep(Duration::from_millis(ms)).await;
    text_answer(StatusCode::OK, "text/plain", format!("waited {ms} ms\n"))
}

/// Ticks once a second, as server-sent events.
fn stream() -> Response<ProxyBody> {
    let ticks = Ticks { interval: interval(TICK), sent: 0 };
    let mut response = Response::new(ticks.boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn number(request: &Request<()>, name: &str) -> Option<u64> {
    let mut pairs = request.uri().query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name)?.1.parse().ok()
}

fn text_answer(status: StatusCode, content_type: &'static str, text: String) -> Response<ProxyBody> {
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

/// A body of a given length, in chunks of one static pattern.
#[derive(Debug)]
struct Pattern {
    left: u64,
}

impl Body for Pattern {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let chunk = usize::try_from(self.left).map_or(PATTERN.len(), |left| left.min(PATTERN.len()));
        self.left -= chunk as u64;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PATTERN[..chunk])))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A body of one event per tick.
#[derive(Debug)]
struct Ticks {
    interval: Interval,
    sent: u32,
}

impl Body for Ticks {
    type Data = Bytes;
    type Error = ProxyError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ProxyError>>> {
        if self.sent == TICKS {
            return Poll::Ready(None);
        }
        ready!(self.interval.poll_tick(cx));
        self.sent += 1;
        let event = format!("id: {}\ndata: tick {} of {TICKS}\n\n", self.sent, self.sent);
        Poll::Ready(Some(Ok(Frame::data(event.into()))))
    }
}

const PAGES: [(&str, &str); 5] = [
    ("/", "this page, as text, HTML or JSON"),
    ("/time", "the gateway's time in seconds since 1970"),
    ("/stream", "ten server-sent events, one a second"),
    ("/slow?ms=1000", "an answer after so many milliseconds"),
    ("/bytes?n=1024", "an answer of so many bytes"),
];

/// Letters and digits in lines of 64 bytes, 16 KiB: one TLS record's worth.
static PATTERN: [u8; 16 << 10] = pattern();

const fn pattern() -> [u8; 16 << 10] {
    let letters = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+\n";
    let mut bytes = [0; 16 << 10];
    let mut index = 0;
    while index < bytes.len() {
        bytes[index] = letters[index % letters.len()];
        index += 1;
    }
    bytes
}

/// Largest `/bytes`, bytes: enough to fill any test link for minutes.
const BYTES_MAX: u64 = 1 << 30;

/// Longest `/slow`, ms: below the route's default time-out on silence.
const SLOW_MS_MAX: u64 = 30_000;

/// Events of one `/stream`, and the pause between them.
const TICKS: u32 = 10;
const TICK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(uri: &str, accept: &str) -> (http::response::Parts, Bytes) {
        let request = Request::get(uri).header("accept", accept).body(()).expect("valid");
        let (parts, body) = answer(&request).await.into_parts();
        (parts, body.collect().await.expect("whole body").to_bytes())
    }

    #[tokio::test]
    async fn the_first_page_comes_in_the_form_asked_for() {
        let (_, text) = get("/", "*/*").await;
        assert!(text.starts_with(b"It works"));
        let (parts, html) = get("/", "text/html,*/*").await;
        assert_eq!(parts.headers["content-type"], "text/html; charset=utf-8");
        assert!(html.starts_with(b"<!doctype html>"));
        let (_, json) = get("/", "application/json").await;
        let json: serde_json::Value = serde_json::from_slice(&json).expect("json");
        assert!(json["pages"]["/time"].is_string());
    }

    #[tokio::test(start_paused = true)]
    async fn the_stream_ticks_ten_times_in_nine_seconds() {
        let started = tokio::time::Instant::now();
        let (parts, events) = get("/stream", "*/*").await;
        assert_eq!(parts.headers["content-type"], "text/event-stream");
        let text = String::from_utf8(events.to_vec()).expect("text");
        assert_eq!(text.matches("\n\n").count(), 10);
        assert!(text.ends_with("id: 10\ndata: tick 10 of 10\n\n"), "{text}");
        assert_eq!(started.elapsed(), Duration::from_secs(9));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_waits_and_bytes_counts_within_their_limits() {
        let started = tokio::time::Instant::now();
        let (_, text) = get("/slow?ms=99999999", "*/*").await;
        assert_eq!(text, "waited 30000 ms\n");
        assert_eq!(started.elapsed(), Duration::from_secs(30));
        assert_eq!(get("/bytes?n=40000", "*/*").await.1.len(), 40_000);
        assert_eq!(get("/bytes?n=x", "*/*").await.1.len(), 1024);
        assert_eq!(get("/nothing", "*/*").await.0.status, StatusCode::NOT_FOUND);
    }
}
