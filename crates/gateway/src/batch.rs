//! Batches: several small requests in one, each run against its own route (`docs/protocol/batch.md`).

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::stream::{FuturesUnordered, StreamExt as _, unfold};
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use ropeway_core::wire::{
    batch::{AnswerWriter, BATCH_BYTES_MAX, BATCH_PATH, BATCH_TYPE, BODY_BYTES_MAX, Part, PartAnswer, read_parts},
    fields::ResponseHead,
};
use tokio::time::timeout;

use crate::proxy::{Peer, Proxy, ProxyBody, ProxyError};

/// Forwards a request to its route, or each of a batch to its own.
pub(crate) async fn forward(
    proxy: &Arc<Proxy>,
    request: Request<ProxyBody>,
    peer: Peer,
) -> Result<Response<ProxyBody>, ProxyError> {
    if !is_batch(&request) {
        return proxy.forward(request, peer).await;
    }
    answer(proxy, request, peer).await.map_err(|error| proxy.counted(error))
}

/// Says whether a request is a batch, whatever its authority.
pub(crate) fn is_batch<B>(request: &Request<B>) -> bool {
    request.uri().path() == BATCH_PATH
}

/// Runs every request of a batch at once, and answers each as soon as its answer is whole.
///
/// One that fails has an answer that says so, and the others are none the worse. Before all of the batch is there and well-formed none
/// of it is run.
async fn answer(
    proxy: &Arc<Proxy>,
    request: Request<ProxyBody>,
    peer: Peer,
) -> Result<Response<ProxyBody>, ProxyError> {
    if request.method() != Method::POST {
        return Err(ProxyError::MethodNotAllowed);
    }
    let is_typed = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == BATCH_TYPE);
    let batch = timeout(BODY_WITHIN, whole(request.into_body())).await.map_err(|_| ProxyError::RequestBodyIdle)??;
    let parts = read_parts(&batch).ok().filter(|_| is_typed).ok_or(ProxyError::RequestMalformed)?;
    let running: FuturesUnordered<_> =
        parts.into_iter().enumerate().map(|(index, part)| run(Arc::clone(proxy), index, part, peer.clone())).collect();
    let answers = unfold((running, AnswerWriter::new()), |(mut running, mut writer)| async {
        let answer = running.next().await?;
        let mut out = BytesMut::new();
        if writer.write(&answer, &mut out).is_err() {
            let (head, _) = ProxyError::UpstreamBadResponse.into_response().into_parts();
            let head = ResponseHead { status: head.status, headers: head.headers };
            let failed = PartAnswer { head, body: Bytes::new(), whole: true, ..answer };
            writer.write(&failed, &mut out).map_err(|_| ProxyError::UpstreamBadResponse).ok()?;
        }
        Some((Ok(Frame::data(out.freeze())), (running, writer)))
    });
    let mut response = Response::new(StreamBody::new(answers).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(BATCH_TYPE));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

async fn whole(body: ProxyBody) -> Result<Bytes, ProxyError> {
    match Limited::new(body, BATCH_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ProxyError::BodyTooLarge),
        Err(_) => Err(ProxyError::RequestBodyCut),
    }
}

async fn run(proxy: Arc<Proxy>, index: usize, part: Part, peer: Peer) -> PartAnswer {
    let is_head = part.head.method == Method::HEAD;
    let body = Full::new(part.body).map_err(|never| match never {}).boxed_unsync();
    let mut request = Request::new(body);
    *request.method_mut() = part.head.method;
    *request.uri_mut() = part.head.uri;
    *request.headers_mut() = part.head.headers;
    // A batch within a batch would be without end.
    let sent =
        if is_batch(&request) { Err(proxy.counted(ProxyError::NoRoute)) } else { proxy.forward(request, peer).await };
    let (parts, body) = sent.unwrap_or_else(ProxyError::into_response).into_parts();
    let bodyless = is_head || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let (body, whole) = if bodyless { (Bytes::new(), true) } else { gather(body).await };
    PartAnswer { index, head: ResponseHead { status: parts.status, headers: parts.headers }, body, whole }
}

/// Reads a body as far as it is kept, and says whether that was all of it.
async fn gather(mut body: ProxyBody) -> (Bytes, bool) {
    let mut gathered = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return (gathered.freeze(), false) };
        if let Ok(data) = frame.into_data() {
            let room = BODY_BYTES_MAX - gathered.len();
            gathered.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                return (gathered.freeze(), false);
            }
        }
    }
    (gathered.freeze(), true)
}

/// Time for the whole of a batch: 30 s, as for a head; it is as small as one.
const BODY_WITHIN: Duration = Duration::from_secs(30);
