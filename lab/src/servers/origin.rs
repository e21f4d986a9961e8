//! The origin that answers in a lab where nobody brings another: a front at the sites and a service behind it.
//!
//! The front ends TLS and passes requests on to the backend, as gateways and balancers do; so an island, where only the
//! way between the two is broken, is seen as such: `/health` answers, all else does not.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{
    Method, Request, Response, StatusCode, Uri,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
    uri::{Authority, Scheme},
};
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use hyper::body::{Frame, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::ServerConfig;
use serde_json::json;

use super::web::{self, Body, Handler, bind, bind_all, handler, text, whole};
use crate::topology::plan::SitePlan;

/// Starts a front at each site, in the namespace of the calling thread: plain HTTP on port 80, TLS on 443 and 8443.
pub(crate) fn start_fronts(sites: &[SitePlan], tls: &Arc<ServerConfig>) -> io::Result<()> {
    for site in sites {
        let pass = front(site.backend);
        for address in site.addresses() {
            web::start(bind(address, HTTP_PORT)?, None, pass.clone());
            for port in TLS_PORTS {
                web::start(bind(address, port)?, Some(tls.clone()), pass.clone());
            }
        }
    }
    Ok(())
}

/// Starts the service in the namespace of the calling thread.
pub(crate) fn start_service() -> io::Result<()> {
    web::start(bind_all(SERVICE_PORT)?, None, handler(|request| async { Ok(answer(request).await) }));
    Ok(())
}

fn front(backend: Ipv4Addr) -> Handler {
    let authority = Authority::try_from(format!("{backend}:{SERVICE_PORT}")).expect("an address and a port");
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(UPSTREAM_CONNECT_MAX));
    let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(connector);
    handler(move |request| pass_on(client.clone(), authority.clone(), request))
}

async fn pass_on(
    client: Client<HttpConnector, Incoming>,
    backend: Authority,
    request: Request<Incoming>,
) -> io::Result<Response<Body>> {
    if request.uri().path() == "/health" {
        return Ok(text(StatusCode::OK, "well\n"));
    }
    let (mut head, body) = request.into_parts();
    let mut uri = std::mem::take(&mut head.uri).into_parts();
    (uri.scheme, uri.authority) = (Some(Scheme::HTTP), Some(backend));
    uri.path_and_query.get_or_insert_with(|| http::uri::PathAndQuery::from_static("/"));
    let Ok(uri) = Uri::from_parts(uri) else { return Ok(text(StatusCode::BAD_REQUEST, "no such target\n")) };
    head.uri = uri;
    head.version = http::Version::HTTP_11;
    Ok(match client.request(Request::from_parts(head, body)).await {
        Ok(response) => response.map(|body| body.map_err(io::Error::other).boxed()),
        Err(error) => text(StatusCode::BAD_GATEWAY, format!("the backend does not answer: {error}\n")),
    })
}

/// Answers as the service: `/bytes/N` so many bytes, `/stream/N` so many chunks, `/status/N` that status, else what was
/// asked.
async fn answer(request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let mut path = head.uri.path().split('/').skip(1);
    let (kind, number) = (path.next().unwrap_or_default(), path.next().and_then(|number| number.parse().ok()));
    // A body that breaks off leaves nobody to answer to.
    let received = body.collect().await.map_or(0, |body| body.to_bytes().len());
    match (kind, number) {
        ("bytes", Some(number)) if number <= BYTES_MAX => {
            let mut response = Response::new(whole(vec![b'x'; number]));
            response.headers_mut().insert(CONTENT_LENGTH, number.into());
            response
        }
        ("stream", Some(number)) if number <= BYTES_MAX => Response::new(stream(number)),
        ("status", Some(number)) => {
            let status = u16::try_from(number).ok().and_then(|number| StatusCode::from_u16(number).ok());
            text(status.unwrap_or(StatusCode::BAD_REQUEST), "")
        }
        _ => {
            let told = json!({ "method": head.method.as_str(), "path": head.uri.path(), "received_bytes": received });
            let mut response = text(StatusCode::OK, format!("{told}\n"));
            response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
            if head.method == Method::HEAD {
                *response.body_mut() = whole(Bytes::new());
            }
            response
        }
    }
}

/// Makes a body of chunks, whose length is not said beforehand.
fn stream(chunks: usize) -> Body {
    let frames = (0..chunks).map(|at| Ok(Frame::data(Bytes::from(format!("chunk {at}\n")))));
    BoxBody::new(StreamBody::new(futures_util::stream::iter(frames)))
}

/// Port of the front for plain HTTP.
pub(crate) const HTTP_PORT: u16 = 80;

/// Ports of the front for TLS.
pub(crate) const TLS_PORTS: [u16; 2] = [443, 8443];

/// Port of the service behind the front.
pub(crate) const SERVICE_PORT: u16 = 8080;

/// Longest wait of the front for a connection to the backend.
const UPSTREAM_CONNECT_MAX: Duration = Duration::from_secs(10);

/// Most bytes or chunks that one answer may be asked to have.
const BYTES_MAX: usize = 100_000_000;
