//! Serves HTTP/3 connections.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h3::error::{Code, ConnectionError, StreamError};
use h3::quic::{RecvStream as _, SendStream as _};
use h3::server::{RequestResolver, RequestStream};
use http::{HeaderMap, Method, Request, Response, header};
use http_body_util::BodyExt;
use ropeway_net::h3::{H3Body, H3Connection, H3Send, Stops};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::task::TaskTracker;

use super::incoming::ClientBody;
use super::service::Service;
use super::streams::{FrontBody, Streams, Verdict};
use super::{Connection, FAREWELL_TIMEOUT, Front, WINDOW_BYTES};

/// Serves one HTTP/3 connection, whose handshake is over, until it ends.
///
/// Every failure is counted and answered or reset here: there is nothing left for the caller to do. Dropping the future closes the
/// connection.
pub async fn serve_h3(quic: noq::Connection, front: Arc<Front>, connection: Connection) {
    front.counters.h3.inc();
    let _open = front.counters.h3_open.hold();
    let limits = &front.limits;
    quic.set_max_concurrent_bi_streams(limits.streams_max.into());
    quic.set_max_concurrent_uni_streams(ONE_WAY_STREAMS_MAX.into());
    quic.set_receive_window(WINDOW_BYTES.into());
    let streams = Arc::new(Streams::new(limits.streams_max as usize));
    let adapter = H3Connection::server(quic.clone(), u64::from(limits.head_bytes_max));
    let stops = adapter.stops();
    let mut builder = h3::server::builder();
    builder.max_field_section_size(u64::from(limits.head_bytes_max)).send_grease(false);
    let Ok(h3) = builder.build(adapter).await else { return };
    let service = Service::h3(Arc::clone(&front), connection, Arc::clone(&streams));
    let service = Arc::new(service);
    let door = Door { service, quic, stops, requests: TaskTracker::new(), next: FIRST, farewell: None };
    if let Err(error) = door.serve(h3, &streams).await {
        if is_fault(&error) {
            front.counters.malformed.inc();
        }
        tracing::debug!(%error, "front door connection ended");
    }
}

type H3 = h3::server::Connection<H3Connection, Bytes>;
type Resolver = RequestResolver<H3Connection, Bytes>;

/// One connection while it is served.
struct Door {
    service: Arc<Service>,
    quic: noq::Connection,
    stops: Stops,
    requests: TaskTracker,
    /// The first stream that no request was accepted on.
    next: u64,
    farewell: Option<Farewell>,
}

/// The client was told that no request from `first` on is executed.
#[derive(Clone, Copy)]
struct Farewell {
    first: u64,
    at: Instant,
}

impl Door {
    async fn serve(mut self, mut h3: H3, streams: &Streams) -> Result<(), ConnectionError> {
        let front = Arc::clone(&self.service.front);
        let limits = &front.limits;
        let mut watch = pin!(streams.watch(limits.idle_timeout, limits.stall_timeout));
        self.requests.close();
        loop {
            let parting = self.farewell.map(|farewell| farewell.at + FAREWELL_TIMEOUT);
            tokio::select! {
                accepted = h3.accept() => match accepted? {
                    Some(resolver) => self.take(resolver),
                    None => break,
                },
                () = front.drain.cancelled(), if self.farewell.is_none() => self.say_farewell(&mut h3).await?,
                // What is under way ends first, and the client hears the farewell before the connection is gone.
                () = async {
                    self.requests.wait().await;
                    sleep_until(parting.unwrap_or_else(Instant::now)).await;
                }, if self.farewell.is_some() => break,
                verdict = watch.as_mut(), if self.farewell.is_none() => match verdict {
                    Verdict::Idle => {
                        front.counters.idle.inc();
                        self.say_farewell(&mut h3).await?;
                    }
                    Verdict::Stalled => {
                        front.counters.stalled.inc();
                        return Ok(());
                    }
                },
            }
        }
        Ok(())
    }

    /// Says which requests are the last (RFC 9114 section 5.2).
    async fn say_farewell(&mut self, h3: &mut H3) -> Result<(), ConnectionError> {
        self.farewell = Some(Farewell { first: self.next, at: Instant::now() });
        h3.shutdown(1).await
    }

    fn take(&mut self, mut resolver: Resolver) {
        let id = resolver.frame_stream.id();
        let stopped = self.stops.take(id);
        if self.farewell.is_some_and(|farewell| id.into_inner() >= farewell.first) {
            // h3 lets one more pass than it has announced.
            resolver.frame_stream.stream.stop_sending(Code::H3_REQUEST_REJECTED.value());
            resolver.frame_stream.reset(Code::H3_REQUEST_REJECTED.value());
            return;
        }
        self.next = self.next.max(id.into_inner() + STREAM_STEP);
        let (service, quic) = (Arc::clone(&self.service), self.quic.clone());
        self.requests.spawn(async move {
            let Some(stopped) = stopped else { return };
            tokio::select! {
                // The client wants no answer any more. What is dropped with the request resets its stream.
                _ = stopped => {}
                failed = exchange(&service, &quic, resolver) => {
                    if let Err(error) = failed {
                        tracing::debug!(%error, %id, "http/3 request ended");
                    }
                }
            }
        });
    }
}

/// Reads a request, has it answered and writes the answer.
async fn exchange(service: &Service, quic: &noq::Connection, resolver: Resolver) -> Result<(), StreamError> {
    let front = &service.front;
    let head_by = Instant::now() + front.limits.head_timeout;
    let Ok(resolved) = timeout_at(head_by, resolver.resolve_request()).await else {
        front.counters.head_timeout.inc();
        return Ok(());
    };
    let (request, stream) = resolved?;
    let (mut send, mut recv) = stream.split();
    if !is_well_formed(&request) {
        front.counters.malformed.inc();
        recv.stop_sending(Code::H3_MESSAGE_ERROR);
        send.stop_stream(Code::H3_MESSAGE_ERROR);
        return Ok(());
    }
    let mut body = H3Body::new(recv, declared(request.headers()));
    if needs_no_body(request.method()) && !request.headers().contains_key(header::CONTENT_LENGTH) {
        match timeout_at(head_by, body.begin()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return Ok(()),
            Err(_) => {
                front.counters.head_timeout.inc();
                return Ok(());
            }
        }
    }
    let response = service.exchange(request.map(|()| ClientBody::H3(Box::new(body)))).await;
    write(&mut send, quic, response).await
}

/// Writes an answer; where its body fails the stream is reset, and nobody takes the part for the whole.
async fn write(
    send: &mut RequestStream<H3Send<Bytes>, Bytes>,
    quic: &noq::Connection,
    response: Response<FrontBody>,
) -> Result<(), StreamError> {
    let (parts, body) = response.into_parts();
    let mut body = pin!(body);
    send.send_response(Response::from_parts(parts, ())).await?;
    while let Some(frame) = body.as_mut().frame().await {
        let Ok(frame) = frame else {
            sleep(parting_time(quic.rtt(noq::PathId::ZERO).unwrap_or_default())).await;
            send.stop_stream(Code::H3_INTERNAL_ERROR);
            return Ok(());
        };
        match frame.into_data() {
            Ok(data) => send.send_data(data).await?,
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    send.send_trailers(trailers).await?;
                }
            }
        }
    }
    send.finish().await
}

/// Returns how long what was written of an answer that was cut may take to arrive. A stream that is reset takes along what is on its
/// way, and what its reader has not read yet (RFC 9000 sections 3.1 and 3.2); nothing tells how much has arrived.
fn parting_time(rtt: Duration) -> Duration {
    (PARTING_TIMEOUTS * (2 * rtt + ACK_DELAY_MAX)).min(PARTING_MAX)
}

/// Refuses what concerns one connection of HTTP/1 (RFC 9114 section 4.2): another parser might believe it.
fn is_well_formed(request: &Request<()>) -> bool {
    let headers = request.headers();
    let has_te = headers.get_all(header::TE).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"trailers"));
    !has_te && !CONNECTION_HEADERS.iter().any(|name| headers.contains_key(*name))
}

/// Returns the length a client tells. A malformed one is the proxy's to refuse.
fn declared(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Whether requests of this method hardly ever have a body, so that an upstream should not be told of one that may come.
fn needs_no_body(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE | Method::DELETE)
}

fn is_fault(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::Local { .. }) && !error.is_h3_no_error()
}

/// Headers that HTTP/3 forbids (RFC 9114 section 4.2, RFC 9110 section 7.6.1).
const CONNECTION_HEADERS: [&str; 5] = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

/// Probe timeouts between the last bytes of an answer that was cut and its RESET_STREAM: as many as a connection that closes waits (RFC
/// 9000 section 10.2), with twice the round trip for one, since its variance is not known.
const PARTING_TIMEOUTS: u32 = 3;

/// How long a client may delay an ACK: the default of RFC 9000 section 18.2.
const ACK_DELAY_MAX: Duration = Duration::from_millis(25);

/// Longest time between the two. 3 s; our choice: on a path of half a second.
const PARTING_MAX: Duration = Duration::from_secs(3);

/// One-way streams open at once: control, QPACK's two and as many that the gateway does not know.
const ONE_WAY_STREAMS_MAX: u32 = 6;

/// Numbers of a client's requests: RFC 9000 section 2.1.
const FIRST: u64 = 0;
const STREAM_STEP: u64 = 4;
