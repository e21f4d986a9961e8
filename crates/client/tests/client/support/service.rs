//! The service behind the test gateway, told by the path what to do.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use ropeway_core::{
    session::{Machine as _, Server},
    wire::{
        batch::{AnswerWriter, BATCH_PATH, PartAnswer, read_parts},
        fields::ResponseHead,
        message::ResetCode,
    },
};
use ropeway_net::link::{NewRequest, Session};
use tokio::sync::watch;

use super::gateway::Shared;

/// Answers one request.
pub(super) async fn serve(shared: &Shared, session: Session<Server>, request: NewRequest) {
    let NewRequest { channel, head, end } = request;
    let path = head.uri.path().to_owned();
    shared.note(format!("{} {}", head.method, head.uri));
    let _active = shared.active();
    let reader = session.reader(channel).keeping_exchange();
    if path == BATCH_PATH {
        return batch(shared, &session, channel, reader).await;
    }
    let (name, argument) = path.trim_start_matches('/').split_once('/').unwrap_or((path.trim_start_matches('/'), ""));
    match name {
        "big" => answer(&session, channel, big(argument.parse().unwrap()), None).await,
        "cut" => {
            respond(&session, channel, HeaderMap::new(), false);
            let mut writer = session.writer(channel);
            let half = argument.parse().map_or(Bytes::from_static(b"half"), big);
            writer.write(half).await.unwrap();
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
        // To where the argument says, with its status: `/redirect/307/echo`.
        "redirect" => {
            let (status, location) = argument.split_once('/').unwrap();
            let headers = HeaderMap::from_iter([(http::header::LOCATION, format!("/{location}").parse().unwrap())]);
            let head = ResponseHead { status: status.parse().unwrap(), headers };
            session.with(|server, _| server.mux().respond(channel, head, true));
            session.writer(channel).completed();
        }
        "never" => std::future::pending().await,
        "packed" => {
            let accepted = head.headers.get("accept-encoding").cloned().unwrap_or(HeaderValue::from_static(""));
            packed(&session, channel, accepted.to_str().unwrap(), argument.parse().unwrap()).await;
        }
        "refused" => session.with(|server, _| server.mux().reset(channel, ResetCode::Refused, "not executed")),
        "trailers" => {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-checksum", HeaderValue::from_static("42"));
            answer(&session, channel, Bytes::from_static(b"with trailers"), Some(trailers)).await;
        }
        _ => answer(&session, channel, Bytes::from(format!("hello {path}")), None).await,
    }
}

/// Runs a batch: parts under `/lost` get no answer, and those under `/half` half of one.
async fn batch(
    shared: &Shared,
    session: &Session<Server>,
    channel: u64,
    mut reader: ropeway_net::link::BodyReader<Server>,
) {
    let mut whole = BytesMut::new();
    while let Some(Ok(frame)) = reader.frame().await {
        whole.extend_from_slice(&frame.into_data().unwrap_or_default());
    }
    let (mut writer, mut out) = (AnswerWriter::new(), BytesMut::new());
    for (index, part) in read_parts(&whole.freeze()).unwrap().into_iter().enumerate().rev() {
        let body = String::from_utf8(part.body.to_vec()).unwrap();
        shared.note(format!("batched {} {} {body}", part.head.method, part.head.uri.path()));
        let head = ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() };
        let answer = PartAnswer { index, head, body: format!("took {body}").into(), whole: !body.contains("half") };
        if !body.contains("lost") {
            writer.write(&answer, &mut out).unwrap();
        }
    }
    answer(session, channel, out.freeze(), None).await;
}

/// Answers so many bytes, in gzip where that is accepted.
async fn packed(session: &Session<Server>, channel: u64, accepted: &str, length: usize) {
    let mut headers = HeaderMap::new();
    let mut body = big(length);
    if accepted.contains("gzip") {
        headers.insert("content-encoding", HeaderValue::from_static("gzip"));
        body = gzip(&body);
    }
    headers.insert("content-length", HeaderValue::from(body.len()));
    respond(session, channel, headers, false);
    let mut writer = session.writer(channel);
    if writer.write(body).await.is_ok() {
        writer.finish(None);
    }
}

pub(crate) fn gzip(data: &[u8]) -> Bytes {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, data).unwrap();
    encoder.finish().unwrap().into()
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
