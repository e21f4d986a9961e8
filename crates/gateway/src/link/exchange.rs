//! One request of a link, from its head to the end of its answer. It outlives the link it came over.

use std::{net::SocketAddr, pin::pin, sync::Arc};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::BodyExt;
use ropeway_cluster::Bus;
use ropeway_core::{
    session::{Closed, Machine as _, Server},
    wire::{fields::ResponseHead, message::ResetCode},
};
use ropeway_net::link::{BodyCut, BodyWriter, NewRequest};

use super::{Entry, measured::Measured};
use crate::{
    batch,
    gateway::Shared,
    lists::is_internal,
    proxy::{Peer, ProxyError},
};

/// Forwards a request to its upstream and streams the answer back, unless the client gives it up.
pub(crate) async fn serve<B: Bus>(shared: Arc<Shared<B>>, entry: Arc<Entry>, peer: SocketAddr, request: NewRequest) {
    let channel = request.channel;
    let session = entry.session();
    {
        let serving = pin!(forward(&shared, &entry, peer, request));
        tokio::select! {
            // First: a request that was given up before it had a task must not reach its upstream.
            biased;
            why = session.cancelled(channel) => {
                if matches!(why, Closed::Reset { code: ResetCode::CreditExceeded, .. }) {
                    shared.metrics.refusal("channel_credit_exceeded").inc();
                }
            }
            () = serving => {}
        }
    }
    session.forget(channel);
}

async fn forward<B: Bus>(shared: &Shared<B>, entry: &Entry, peer: SocketAddr, request: NewRequest) {
    let NewRequest { channel, head, .. } = request;
    let session = entry.session();
    let body = session.reader(channel).keeping_exchange().map_err(|_cut| ProxyError::RequestBodyCut).boxed_unsync();
    let body = Measured::request(body, &head.headers);
    let is_head = head.method == Method::HEAD;
    let mut forwarded = Request::new(body.boxed_unsync());
    *forwarded.method_mut() = head.method;
    *forwarded.uri_mut() = head.uri;
    *forwarded.headers_mut() = head.headers;
    let answer = if is_internal(&forwarded) && !batch::is_batch(&forwarded) {
        shared.lists.answer(forwarded, peer).await
    } else {
        let peer = Peer { user: Some(entry.identity().user.clone()), via_link: true, ..Peer::new(peer) };
        batch::forward(&shared.proxy, forwarded, peer).await.unwrap_or_else(ProxyError::into_response)
    };
    let (parts, body) = Response::into_parts(answer);
    // Whatever the service says, these have no content (RFC 9110 section 6.4.1).
    let bodyless = is_head || matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let body = (!bodyless).then(|| Measured::answer(body, &parts.headers));
    let ends = body.as_ref().is_none_or(|body| body.is_end_stream());
    let head = ResponseHead { status: parts.status, headers: parts.headers };
    let writer = session.writer(channel);
    session.with(|server, _| server.mux().respond(channel, head, ends));
    match body {
        Some(body) if !ends => pump(shared, body, writer).await,
        Some(_) | None => writer.completed(),
    }
}

async fn pump<B: Bus>(shared: &Shared<B>, mut body: Measured, mut writer: BodyWriter<Server>) {
    loop {
        match body.frame().await {
            None => return writer.finish(None),
            Some(Err(error)) => {
                let too_large = matches!(error, ProxyError::BodyTooLarge);
                let code = if too_large { ResetCode::BodyTooLarge } else { ResetCode::UpstreamCut };
                if body.is_wrong() {
                    shared.proxy.counted(error);
                }
                return writer.reset(code, error.name());
            }
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    if write(&mut writer, data).await.is_err() {
                        return;
                    }
                }
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return writer.finish(Some(trailers));
                    }
                }
            },
        }
    }
}

async fn write(writer: &mut BodyWriter<Server>, data: Bytes) -> Result<(), BodyCut> {
    if data.is_empty() { Ok(()) } else { writer.write(data).await }
}
