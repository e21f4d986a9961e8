//! Exchanges over HTTP/3.

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use h3::{
    client::{RequestStream, SendRequest},
    error::{Code, StreamError},
};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use ropeway_net::h3::{H3Body, H3Connection, H3Opener, H3Recv, H3Send};
use tokio::task::JoinHandle;

use super::{Cause, Executed, HEAD_BYTES_MAX, exchange::Fault, words};
use crate::Body;

/// Sends requests on a connection, which is open as long as there is one of these.
#[derive(Clone)]
pub(super) struct H3Sender {
    requests: SendRequest<H3Opener, Bytes>,
    quic: noq::Connection,
    /// The host takes no more requests on it.
    is_leaving: Arc<AtomicBool>,
}

/// The body of an answer, and what must last as long.
pub(super) struct H3Answer {
    pub(super) body: H3Body<RequestStream<H3Recv, Bytes>>,
    _upload: Option<Upload>,
    _connection: H3Sender,
}

/// The sending of a request's body, which ends with whoever waits for the answer.
struct Upload(JoinHandle<Result<(), Unwritten>>);

/// Why a request's body was not written.
enum Unwritten {
    /// The app's own error, which is told elsewhere.
    Body,
    Stream(StreamError),
}

type Stream = RequestStream<H3Recv, Bytes>;

impl H3Sender {
    /// Begins HTTP/3 on a connection.
    pub(super) async fn open(quic: noq::Connection) -> Result<Self, String> {
        let adapter = H3Connection::client(quic.clone(), HEAD_BYTES_MAX);
        let mut builder = h3::client::builder();
        builder.max_field_section_size(HEAD_BYTES_MAX).send_grease(false);
        let (mut connection, requests) = builder.build(adapter).await.map_err(|error| error.to_string())?;
        tokio::spawn(async move { poll_fn(|cx| connection.poll_close(cx)).await });
        Ok(Self { requests, quic, is_leaving: Arc::default() })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed) || self.quic.close_reason().is_some()
    }

    /// Sends a request and waits for the head of its answer.
    pub(super) async fn exchange(mut self, request: Request<Body>) -> Result<Response<H3Answer>, Fault> {
        if self.is_closed() {
            return Err(Fault::unsent(request, "the connection is closed"));
        }
        let (parts, body) = request.into_parts();
        let head = Request::from_parts(parts, ());
        let stream = match self.requests.send_request(head.clone()).await {
            Ok(stream) => stream,
            Err(StreamError::RemoteClosing { .. }) => {
                self.is_leaving.store(true, Ordering::Relaxed);
                return Err(Fault::unsent(head.map(|()| body), "the host takes no more requests on the connection"));
            }
            Err(error @ StreamError::HeaderTooBig { .. }) => {
                return Err(Fault::failed(Executed::NotSent, Cause::Exchange(error.to_string())));
            }
            Err(error) => return Err(fault(&error)),
        };
        let (mut send, mut recv) = stream.split();
        let mut upload = None;
        if body.is_end_stream() {
            send.finish().await.map_err(|error| fault(&error))?;
        } else {
            upload = Some(Upload(tokio::spawn(write(send, body))));
        }
        let answer = answer_head(&mut recv, &mut upload).await?;
        let has_body = head.method() != Method::HEAD && answer.status() != StatusCode::NOT_MODIFIED;
        let declared = declared(answer.headers())?.filter(|_| has_body);
        Ok(answer.map(|()| H3Answer {
            body: H3Body::new(recv, declared).showing_part(),
            _upload: upload,
            _connection: self,
        }))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Waits for the head, past heads that only inform. A request whose body fails has no answer to wait for.
async fn answer_head(recv: &mut Stream, upload: &mut Option<Upload>) -> Result<Response<()>, Fault> {
    for _ in 0..=INFORMING_MAX {
        let answer = loop {
            let written = async {
                match upload.as_mut() {
                    Some(Upload(writing)) => writing.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = recv.recv_response() => break answer.map_err(|error| fault(&error))?,
                written = written => match written {
                    Ok(Ok(())) | Err(_) => *upload = None,
                    Ok(Err(Unwritten::Body)) => {
                        return Err(Fault::failed(Executed::Maybe, Cause::Exchange("body of the request failed".into())));
                    }
                    Ok(Err(Unwritten::Stream(error))) => return Err(fault(&error)),
                },
            }
        };
        if !answer.status().is_informational() {
            return Ok(answer);
        }
    }
    Err(Fault::failed(Executed::Maybe, Cause::Head("more informing heads than any answer has".into())))
}

/// Writes a body. One that fails takes its stream with it.
async fn write(mut send: RequestStream<H3Send<Bytes>, Bytes>, mut body: Body) -> Result<(), Unwritten> {
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            send.stop_stream(Code::H3_REQUEST_CANCELLED);
            return Err(Unwritten::Body);
        };
        let written = match frame.into_data() {
            Ok(data) => send.send_data(data).await,
            Err(frame) => match frame.into_trailers() {
                Ok(trailers) => send.send_trailers(trailers).await,
                Err(_) => Ok(()),
            },
        };
        match written {
            Ok(()) => {}
            // The host has answered and does not care for the rest (RFC 9114 section 4.1).
            Err(StreamError::RemoteTerminate { code: Code::H3_NO_ERROR, .. }) => return Ok(()),
            Err(error) => return Err(Unwritten::Stream(error)),
        }
    }
    send.finish().await.map_err(Unwritten::Stream)
}

/// Returns the length an answer tells; one that cannot be a length makes the answer malformed.
fn declared(headers: &HeaderMap) -> Result<Option<u64>, Fault> {
    let mut values = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = values.next() else { return Ok(None) };
    let length = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    match length.and_then(|text| text.parse().ok()) {
        Some(length) if values.all(|value| value == first) => Ok(Some(length)),
        Some(_) | None => Err(Fault::failed(Executed::Maybe, Cause::Head("content-length is no length".into()))),
    }
}

/// Says of an exchange that failed whether the host may have executed it.
#[expect(clippy::wildcard_enum_match_arm, reason = "the enum is not ours and open")]
fn fault(error: &StreamError) -> Fault {
    let (executed, cause) = match error {
        // RFC 9114 section 4.1.1: not processed in any way.
        StreamError::RemoteTerminate { code: Code::H3_REQUEST_REJECTED, .. } => {
            (Executed::No, Cause::Exchange(words::of_stream(error)))
        }
        StreamError::HeaderTooBig { .. } => (Executed::Maybe, Cause::Head(error.to_string())),
        _ => (Executed::Maybe, Cause::Exchange(words::of_stream(error))),
    };
    Fault::failed(executed, cause)
}

/// Heads that only inform (1xx), before an answer. 16; our choice: real hosts send one or two.
const INFORMING_MAX: usize = 16;
