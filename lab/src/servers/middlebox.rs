//! Proxies of plain HTTP that nobody asked for: old ones that break connections or bodies, and one that alters what it
//! carries.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::{Bytes, BytesMut};
use http::{
    Request, Response, StatusCode, Uri,
    header::{CONTENT_LENGTH, CONTENT_TYPE, TRANSFER_ENCODING},
    uri::{Authority, Scheme},
};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Body as _, Frame, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};

use super::web::{self, Body, handler, text, whole};

/// What a middlebox does to plain HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Meddling {
    /// Refuses chunked requests, and cuts chunked answers off after the first piece.
    BreaksChunked,
    /// Swallows every request on a connection but the first.
    BreaksKeepAlive,
    /// Alters the bodies of answers.
    Tampers,
}

impl Meddling {
    /// Every kind.
    pub(crate) const ALL: [Self; 3] = [Self::BreaksChunked, Self::BreaksKeepAlive, Self::Tampers];

    /// Gives the port, at the provider, to which connections are redirected.
    pub(crate) fn port(self) -> u16 {
        match self {
            Self::BreaksChunked => 10_801,
            Self::BreaksKeepAlive => 10_802,
            Self::Tampers => 10_803,
        }
    }
}

/// Starts a middlebox in the namespace of the calling thread.
pub(crate) fn start(meddling: Meddling) -> io::Result<()> {
    let listener: TcpListener = web::bind_all(meddling.port())?;
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(HttpConnector::new());
    tokio::spawn(web::accept(listener, move |stream| meddle(stream, meddling, client.clone())));
    Ok(())
}

async fn meddle(stream: TcpStream, meddling: Meddling, client: Client<HttpConnector, Incoming>) {
    let Some(to) = original_destination(&stream) else { return };
    let requests = Arc::new(AtomicUsize::new(0));
    let answer = handler(move |request| {
        let is_first = requests.fetch_add(1, Ordering::Relaxed) == 0;
        pass_on(client.clone(), to, meddling, is_first, request)
    });
    web::serve(stream, answer).await;
}

/// Finds where the client meant to connect to, before the connection was redirected here.
fn original_destination(stream: &TcpStream) -> Option<SocketAddr> {
    let socket = SockRef::from(stream);
    let found = socket.original_dst_v4().or_else(|_| socket.original_dst_v6()).ok()?;
    found.as_socket()
}

async fn pass_on(
    client: Client<HttpConnector, Incoming>,
    to: SocketAddr,
    meddling: Meddling,
    is_first: bool,
    request: Request<Incoming>,
) -> io::Result<Response<Body>> {
    if meddling == Meddling::BreaksKeepAlive && !is_first {
        return std::future::pending().await;
    }
    if meddling == Meddling::BreaksChunked && request.headers().contains_key(TRANSFER_ENCODING) {
        return Ok(text(StatusCode::LENGTH_REQUIRED, "length required\n"));
    }
    let request = redirected(request, to).map_err(io::Error::other)?;
    let response = client.request(request).await.map_err(io::Error::other)?;
    match meddling {
        Meddling::BreaksChunked if response.body().size_hint().exact().is_none() => Ok(response.map(cut)),
        Meddling::Tampers => tampered(response).await,
        Meddling::BreaksChunked | Meddling::BreaksKeepAlive => {
            Ok(response.map(|body| body.map_err(io::Error::other).boxed()))
        }
    }
}

/// Turns a request for a path into one for a server.
fn redirected(request: Request<Incoming>, to: SocketAddr) -> Result<Request<Incoming>, http::Error> {
    let (mut head, body) = request.into_parts();
    let mut uri = std::mem::take(&mut head.uri).into_parts();
    (uri.scheme, uri.authority) = (Some(Scheme::HTTP), Some(Authority::try_from(to.to_string())?));
    uri.path_and_query.get_or_insert_with(|| http::uri::PathAndQuery::from_static("/"));
    head.uri = Uri::from_parts(uri)?;
    Ok(Request::from_parts(head, body))
}

/// Lets the first piece of a body through and then breaks off.
fn cut(body: Incoming) -> Body {
    let pieces = futures_util::stream::unfold(Some(body), |body| async {
        let mut body = body?;
        match body.frame().await {
            Some(Ok(frame)) => Some((Ok::<Frame<Bytes>, io::Error>(frame), None)),
            Some(Err(error)) => Some((Err(io::Error::other(error)), None)),
            None => None,
        }
    });
    let broken = futures_util::stream::once(async {
        // Else head and piece are given up with the rest.
        tokio::time::sleep(CUT_AFTER).await;
        Err(io::Error::other("cut"))
    });
    BoxBody::new(StreamBody::new(Box::pin(futures_util::StreamExt::chain(pieces, broken))))
}

/// Puts an advertisement into a page; overwrites the middle of anything else.
async fn tampered(response: Response<Incoming>) -> io::Result<Response<Body>> {
    let (mut head, body) = response.into_parts();
    let mut bytes = BytesMut::from(body.collect().await.map_err(io::Error::other)?.to_bytes());
    let is_page = head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
    if is_page {
        bytes.extend_from_slice(ADVERTISEMENT);
    } else {
        let middle = bytes.len() / 2;
        for (byte, altered) in bytes.iter_mut().skip(middle).zip(ADVERTISEMENT) {
            *byte = *altered;
        }
    }
    head.headers.remove(TRANSFER_ENCODING);
    head.headers.insert(CONTENT_LENGTH, bytes.len().into());
    Ok(Response::from_parts(head, whole(bytes.freeze())))
}

/// How long after the first piece of a body the connection is broken off.
const CUT_AFTER: std::time::Duration = std::time::Duration::from_millis(50);

/// What a tampering provider adds.
const ADVERTISEMENT: &[u8] = b"<script src=\"http://ads.example/a.js\"></script>";
