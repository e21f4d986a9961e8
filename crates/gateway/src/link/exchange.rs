//! One request of a link, from its head to the end of its answer. It outlives the link it came over.

use std::{net::SocketAddr, pin::pin, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use ropeway_cluster::Bus;
use ropeway_core::{
    session::Server,
    wire::{fields::ResponseHead, message::ResetCode},
};
use ropeway_net::link::{BodyWriter, NewRequest};

use super::Entry;
use crate::{
    gateway::Shared,
    proxy::{Peer, ProxyBody, ProxyError},
};

/// Forwards a request to its upstream and streams the answer back, unless the client gives it up.
pub(crate) async fn serve<B: Bus>(shared: Arc<Shared<B>>, entry: Arc<Entry>, peer: SocketAddr, request: NewRequest) {
    let channel = request.channel;
    let session = entry.session();
    {
        let serving = pin!(forward(&shared, &entry, peer, request));
        tokio::select! {
            () = serving => {}
            () = session.cancelled(channel) => {}
        }
    }
    session.forget(channel);
}

async fn forward<B: Bus>(shared: &Shared<B>, entry: &Entry, peer: SocketAddr, request: NewRequest) {
    let NewRequest { channel, head, .. } = request;
    let session = entry.session();
    let body = session.reader(channel).keeping_exchange().map_err(|_cut| ProxyError::RequestBodyCut);
    let mut forwarded = Request::new(ProxyBody::new(body));
    *forwarded.method_mut() = head.method;
    *forwarded.uri_mut() = head.uri;
    *forwarded.headers_mut() = head.headers;
    let peer = Peer { user: Some(entry.identity().user.clone()), via_link: true, ..Peer::new(peer) };
    let answer = shared.proxy.forward(forwarded, peer).await.unwrap_or_else(ProxyError::into_response);
    let (parts, body) = Response::into_parts(answer);
    let ends = http_body::Body::is_end_stream(&body);
    let head = ResponseHead { status: parts.status, headers: parts.headers };
    let writer = session.writer(channel);
    session.with(|server, _| ropeway_core::session::Machine::mux(server).respond(channel, head, ends));
    if ends {
        writer.completed();
    } else {
        pump(body, writer).await;
    }
}

async fn pump(mut body: ProxyBody, mut writer: BodyWriter<Server>) {
    loop {
        match body.frame().await {
            None => return writer.finish(None),
            Some(Err(error)) => {
                let too_large = matches!(error, ProxyError::BodyTooLarge);
                let code = if too_large { ResetCode::BodyTooLarge } else { ResetCode::UpstreamCut };
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

async fn write(writer: &mut BodyWriter<Server>, data: Bytes) -> Result<(), ropeway_net::link::BodyCut> {
    if data.is_empty() { Ok(()) } else { writer.write(data).await }
}
