//! Upgraded connections passed through to an upstream as opaque bytes.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Instant;

use super::body::{Exchange, RequestBody, Slot};
use super::exit::Way;
use super::{Peer, Proxy, ProxyBody, ProxyError, headers};
use crate::metrics::GaugeHold;

/// The upstream's side of an upgraded connection, until it is joined to a client.
#[derive(Debug)]
pub struct Tunnel {
    upstream: OnUpgrade,
    exchange: Arc<Exchange>,
    _slot: Slot,
    _open: GaugeHold,
}

impl Tunnel {
    /// Passes bytes both ways until one side fails, both have ended, or nothing moves for an
    /// hour.
    pub async fn join(self, client: impl AsyncRead + AsyncWrite + Unpin) {
        let upstream = match self.upstream.await {
            Ok(upstream) => TokioIo::new(upstream),
            Err(error) => {
                tracing::debug!(%error, "upstream did not complete its upgrade");
                return;
            }
        };
        let (mut client_read, mut client_write) = tokio::io::split(client);
        let (mut upstream_read, mut upstream_write) = tokio::io::split::<TokioIo<Upgraded>>(upstream);
        let exchange = &self.exchange;
        exchange.moved();
        let both = async {
            tokio::try_join!(
                copy(&mut client_read, &mut upstream_write, exchange),
                copy(&mut upstream_read, &mut client_write, exchange),
            )
        };
        tokio::select! {
            ended = both => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "tunnel ended");
                }
            }
            () = idle(exchange) => tracing::debug!("tunnel was idle for too long"),
        }
    }
}

impl Proxy {
    /// Sends an HTTP/1.1 upgrade request on; gives the tunnel to join once the upstream has
    /// switched protocols (status 101), or its plain answer.
    ///
    /// # Errors
    /// As [`Proxy::forward`]; routes to built-in services and HTTP/2 upstreams take no upgrades.
    pub async fn upgrade(
        &self,
        request: Request<ProxyBody>,
        peer: Peer,
    ) -> Result<(Response<ProxyBody>, Option<Tunnel>), ProxyError> {
        let (exit, authority) = self.admit(&request, &peer).map_err(|error| self.counted(error))?;
        let mut tunnel = None;
        let answer = async {
            let Way::Http(target, upstream) = &exit.way else {
                return Err(ProxyError::UpgradeUnsupported);
            };
            if target.is_h2() {
                return Err(ProxyError::UpgradeUnsupported);
            }
            let started = Instant::now();
            let slot = exit.slot(started)?;
            let exchange = Exchange::new(started);
            let mut request = request;
            let protocol = request.headers_mut().remove(header::UPGRADE);
            headers::to_upstream(&mut request, &exit.route, target, &authority, &peer)?;
            if !request.headers().contains_key(header::HOST) {
                let host = HeaderValue::from_str(request.uri().authority().map_or("", |host| host.as_str()));
                request.headers_mut().insert(header::HOST, host.map_err(|_| ProxyError::RequestMalformed)?);
            }
            set_upgrade(request.headers_mut(), protocol);
            let origin = request.uri().path_and_query().map(|path| path.as_str().parse());
            *request.uri_mut() = origin.and_then(Result::ok).ok_or(ProxyError::RequestMalformed)?;
            let io = upstream.connect().await.map_err(|error| {
                tracing::debug!(%error, "upstream not connected");
                ProxyError::from(&error)
            })?;
            let limit = exit.route.spec().first_byte_timeout;
            let request = request.map(|_| RequestBody::empty(Arc::clone(&exchange)));
            let mut response = match tokio::time::timeout(limit, exchange_once(io, request)).await {
                Ok(response) => response?,
                Err(_) => return Err(ProxyError::UpstreamFirstByteTimeout),
            };
            let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
            let protocol = response.headers_mut().remove(header::UPGRADE);
            headers::from_upstream(&mut response);
            if !switched {
                exchange.set_answered();
                return Ok(response.map(|body| exit.watched(body, exchange, slot, &self.errors)));
            }
            set_upgrade(response.headers_mut(), protocol);
            tunnel = Some(Tunnel {
                upstream: hyper::upgrade::on(&mut response),
                exchange,
                _slot: slot,
                _open: self.metrics.tunnels().hold(),
            });
            let empty = http_body_util::Empty::new().map_err(|never| match never {});
            Ok(response.map(|_| empty.boxed_unsync()))
        };
        let answer = answer.await;
        let response = self.account(&exit, &peer, answer)?;
        Ok((response, tunnel))
    }
}

/// Sends one request over a connection of its own.
async fn exchange_once(
    io: TokioIo<crate::upstream::UpstreamIo>,
    request: Request<RequestBody>,
) -> Result<Response<hyper::body::Incoming>, ProxyError> {
    let failed = |error: hyper::Error| {
        tracing::debug!(%error, "upstream failed an upgrade request");
        if error.is_parse() { ProxyError::UpstreamBadResponse } else { ProxyError::UpstreamReset }
    };
    let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(failed)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "upstream connection ended");
        }
    });
    sender.send_request(request).await.map_err(failed)
}

fn set_upgrade(headers: &mut HeaderMap, protocol: Option<HeaderValue>) {
    if let Some(protocol) = protocol {
        headers.insert(header::UPGRADE, protocol);
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// Copies until the end and passes the end on.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    exchange: &Exchange,
) -> std::io::Result<()> {
    let mut buffer = Vec::with_capacity(COPY_BYTES);
    loop {
        buffer.clear();
        if from.read_buf(&mut buffer).await? == 0 {
            return to.shutdown().await;
        }
        exchange.moved();
        to.write_all(&buffer).await?;
        to.flush().await?;
    }
}

async fn idle(exchange: &Exchange) {
    loop {
        let deadline = exchange.last_moved() + TUNNEL_IDLE_TIMEOUT;
        if deadline <= Instant::now() {
            return;
        }
        tokio::time::sleep_until(deadline).await;
    }
}

/// Bytes copied at once in each direction of a tunnel; what an idle tunnel holds is twice this.
const COPY_BYTES: usize = 4 << 10;

/// Silence after which a tunnel is given up: Envoy's default for TCP proxying
/// (`TcpProxy.idle_timeout`). A WebSocket is often quiet for minutes.
const TUNNEL_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
