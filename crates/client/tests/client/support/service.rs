//! The service behind the test gateway, told by the path what to do.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use ropeway_core::{
    session::{Machine as _, Server},
    wire::{fields::ResponseHead, message::ResetCode},
};
use ropeway_net::link::{NewRequest, Session};
use tokio::sync::watch;

use super::gateway::Shared;

/// Answers one request.
pub(super) async fn serve(shared: &Shared, session: Session<Server>, request: NewRequest) {
    let NewRequest { channel, head, end } = request;
    let path = head.uri.path().to_owned();
    shared.note(format!("{} {}", head.method, head.uri));
    let reader = session.reader(channel).keeping_exchange();
    let (name, argument) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    match name {
        "big" => answer(&session, channel, big(argument.parse().unwrap()), None).await,
        "cut" => {
            respond(&session, channel, HeaderMap::new(), false);
            let mut writer = session.writer(channel);
            writer.write(Bytes::from_static(b"half")).await.unwrap();
            released(shared.released()).await;
            writer.reset(ResetCode::UpstreamCut, "the service closed");
        }
        "echo" if end => answer(&session, channel, Bytes::new(), None).await,
        "echo" => echo(&session, channel, reader, head.headers.get("content-type").cloned()).await,
        "headers" => {
            let told = head.headers.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
            answer(&session, channel, told.collect::<String>().into(), None).await;
        }
        "hold" => {
            released(shared.released()).await;
            answer(&session, channel, Bytes::from_static(b"held"), None).await;
        }
        "never" => std::future::pending().await,
        "refused" => session.with(|server, _| server.mux().reset(channel, ResetCode::Refused, "not executed")),
        "trailers" => {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-checksum", HeaderValue::from_static("42"));
            answer(&session, channel, Bytes::from_static(b"with trailers"), Some(trailers)).await;
        }
        _ => answer(&session, channel, Bytes::from(format!("hello {path}")), None).await,
    }
}

pub(crate) fn big(length: usize) -> Bytes {
    (0..length).map(|at| (at % 251) as u8).collect()
}

async fn released(mut released: watch::Receiver<bool>) {
    let _ = released.wait_for(|released| *released).await;
}

fn respond(session: &Session<Server>, channel: u64, headers: HeaderMap, end: bool) {
    let head = ResponseHead { status: StatusCode::OK, headers };
    session.with(|server, _| server.mux().respond(channel, head, end));
}

async fn answer(session: &Session<Server>, channel: u64, body: Bytes, trailers: Option<HeaderMap>) {
    let end = body.is_empty() && trailers.is_none();
    respond(session, channel, HeaderMap::new(), end);
    let mut writer = session.writer(channel);
    if end {
        writer.completed();
    } else if writer.write(body).await.is_ok() {
        writer.finish(trailers);
    }
}

async fn echo(
    session: &Session<Server>,
    channel: u64,
    mut reader: ropeway_net::link::BodyReader<Server>,
    content_type: Option<HeaderValue>,
) {
    let mut headers = HeaderMap::new();
    content_type.into_iter().for_each(|value| drop(headers.insert("content-type", value)));
    respond(session, channel, headers, false);
    let mut writer = session.writer(channel);
    let mut trailers = None;
    while let Some(Ok(frame)) = reader.frame().await {
        match frame.into_data() {
            Ok(data) => {
                if writer.write(data).await.is_err() {
                    return;
                }
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    writer.finish(trailers);
}
