//! Direct calls: hosts that no gateway serves, over HTTPS with HTTP/2 or HTTP/1.1.

mod connect;
mod io;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock},
};

use http::{Request, Response};
use hyper_util::{
    client::legacy::{
        self,
        connect::{CaptureConnection, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use ropeway_net::Clock;
use rustls::pki_types::CertificateDer;

use self::{connect::Connector, io::PeerAddress};
use crate::{
    Body, Error,
    shared::{AttemptLog, lock},
};

/// Calls hosts without a gateway, from a pool of connections.
pub(crate) struct Direct {
    trust: Vec<CertificateDer<'static>>,
    log: Arc<AttemptLog>,
    clock: Clock,
    /// Made with the first call: the platform's certificates take a while to read.
    client: OnceLock<Result<legacy::Client<Connector, Body>, String>>,
}

/// How a direct call failed.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The body of the request did.
    Body(Error),
    /// There is no connection, so nothing was sent.
    Connect(String),
    /// The host may have executed the request.
    Exchange(String),
}

impl Direct {
    pub(crate) fn new(trust: Option<Vec<CertificateDer<'static>>>, log: Arc<AttemptLog>, clock: Clock) -> Self {
        Self { trust: trust.unwrap_or_default(), log, clock, client: OnceLock::new() }
    }

    /// Sends a request and waits for the head of its answer. `connection` is given what tells of its connection once there is one.
    pub(crate) async fn send(
        &self,
        request: Request<Body>,
        connection: impl FnOnce(CaptureConnection),
    ) -> Result<Response<Body>, Failed> {
        let client = match self.client.get_or_init(|| self.make()) {
            Ok(client) => client.clone(),
            Err(reason) => return Err(Failed::Connect(reason.clone())),
        };
        let broken = Arc::new(Mutex::new(None));
        let mut request = request.map(|body| body.noting(&broken));
        connection(capture_connection(&mut request));
        match client.request(request).await {
            Ok(response) => Ok(response.map(Body::direct)),
            Err(error) if error.is_connect() => Err(Failed::Connect(told(&error))),
            Err(error) => Err(match lock(&broken).take() {
                Some(reason) => Failed::Body(Error::Body(reason)),
                None => Failed::Exchange(told(&error)),
            }),
        }
    }

    fn make(&self) -> Result<legacy::Client<Connector, Body>, String> {
        let connector = Connector::new(&self.trust, Arc::clone(&self.log), self.clock)?;
        Ok(legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(IDLE_PER_HOST_MAX)
            .build(connector))
    }
}

/// Returns where a connection leads, once there is one.
pub(crate) fn address(connection: &CaptureConnection) -> Option<SocketAddr> {
    let mut extras = http::Extensions::new();
    connection.connection_metadata().as_ref()?.get_extras(&mut extras);
    extras.get::<PeerAddress>().map(|PeerAddress(address)| *address)
}

/// Returns the innermost words of an error, which say most.
fn told(error: &legacy::Error) -> String {
    let mut innermost: &dyn std::error::Error = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}

/// Idle connections kept for one host. 6; what browsers open to one over HTTP/1.1.
const IDLE_PER_HOST_MAX: usize = 6;
