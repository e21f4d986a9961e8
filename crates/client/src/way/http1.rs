//! One exchange over plain TCP, held whole.

use std::{future::poll_fn, net::SocketAddr, pin::pin, task::Poll, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use ropeway_core::request::spot;
use ropeway_net::of_hyper;
use tokio::{net::TcpStream, time::timeout};

use super::{Cause, Failed, Fate, Peer, Shape, Trace};
use crate::Phase;

/// Connects to an address, sends a request there and holds the answer, up to `bytes_max` of its body and without trailers.
///
/// The request has a `host` of its own; its length, and that no other follows, is said here.
pub(crate) async fn exchange(
    address: SocketAddr,
    mut request: Request<Bytes>,
    shape: Shape,
    bytes_max: usize,
    trace: &Trace,
) -> Result<Response<Bytes>, Failed> {
    let tcp = match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
        Ok(Ok(tcp)) => tcp,
        Ok(Err(error)) => return Err(Failed::before(address, Cause::Connect(error.to_string()))),
        Err(_) => return Err(Failed::before(address, Cause::Connect("no answer in time".to_owned()))),
    };
    // Only latency suffers if it fails.
    let _ = tcp.set_nodelay(true);
    *request.version_mut() = shape.version();
    let length = request.body().len();
    let headers = request.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    // A proxy waits for a body that may come, where nothing says that none does (RFC 9110 section 8.6).
    headers.insert(header::CONTENT_LENGTH, length.into());
    let request = request.map(Full::new);
    let handshake = http1::Builder::new().max_headers(HEADERS_MAX).handshake(TokioIo::new(tcp)).await;
    let (mut sender, connection) =
        handshake.map_err(|error| Failed::before(address, Cause::Connect(error.to_string())))?;
    let mut connection = pin!(connection);
    let mut exchanging = pin!(async move {
        trace.hand_off(Peer { candidate: spot(address), connection: None });
        let response = sender.send_request(request).await.map_err(|error| {
            let failed = lost(address, Phase::Answer, &error);
            if failed.fate == Fate::NothingSent {
                trace.take_back();
            }
            failed
        })?;
        held(address, response, bytes_max).await
    });
    let mut is_open = true;
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = exchanging.as_mut().poll(cx) {
            return Poll::Ready(outcome);
        }
        if is_open && connection.as_mut().poll(cx).is_ready() {
            is_open = false;
            return exchanging.as_mut().poll(cx);
        }
        // What the connection has just read may be what the exchange waits for: its waker says so.
        Poll::Pending
    })
    .await
}

async fn held(address: SocketAddr, response: Response<Incoming>, bytes_max: usize) -> Result<Response<Bytes>, Failed> {
    let (head, mut body) = response.into_parts();
    let mut data = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(piece) = frame.map_err(|error| lost(address, Phase::Body, &error))?.into_data() else { continue };
        if data.len().saturating_add(piece.len()) > bytes_max {
            return Err(Failed::after(address, Phase::Body, Cause::AnswerTooLarge { bytes_max }));
        }
        data.extend_from_slice(&piece);
    }
    Ok(Response::from_parts(head, data.freeze()))
}

fn lost(address: SocketAddr, phase: Phase, error: &hyper::Error) -> Failed {
    let cause = Cause::Exchange(of_hyper(error));
    // Canceled: the connection had ended before the request was written to it.
    if error.is_canceled() { Failed::before(address, cause) } else { Failed::after(address, phase, cause) }
}

/// How long a connection may take. 10 s; three retransmissions of a SYN (RFC 6298: 1, 2 and 4 s apart) and one round trip.
/// The ladder usually gives up earlier.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Headers of one answer. 128; hyper takes 100 by default, and a signed answer has some more.
const HEADERS_MAX: usize = 128;
