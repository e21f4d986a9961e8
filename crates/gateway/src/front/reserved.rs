//! Requests that the gateway's own secrets answer: the sealed pipe, signed answers, and the public keys of both.

use http::{Request, Response};
use ropeway_net::signed::{SIGNING_KEYS_PATH, is_asked};

use super::{Connection, Front};
use crate::pipe;
use crate::proxy::{Peer, ProxyBody};

/// Says whether a request is one of those.
pub(super) fn is_taken(front: &Front, connection: &Connection, request: &Request<ProxyBody>) -> bool {
    let path = request.uri().path();
    let is_signed = path == SIGNING_KEYS_PATH || (connection.plain && is_asked(request.headers()));
    (front.pipe.is_some() && pipe::is_reserved(path)) || (front.signer.is_some() && is_signed)
}

/// Answers it.
pub(super) async fn answer(front: &Front, connection: &Connection, request: Request<ProxyBody>) -> Response<ProxyBody> {
    if let Some(pipe) = front.pipe.as_ref().filter(|_| pipe::is_reserved(request.uri().path())) {
        return pipe.answer(request, &front.proxy, connection).await;
    }
    let signer = front.signer.as_ref().expect("it was asked for, so it is there");
    if request.uri().path() == SIGNING_KEYS_PATH {
        return signer.keys(request.method(), connection.plain);
    }
    let peer = Peer { early: connection.is_early(), plain: connection.plain, ..Peer::new(connection.address) };
    signer.answer(request, &front.proxy, peer).await
}
