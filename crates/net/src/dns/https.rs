//! One HTTPS exchange with an address, over a connection of its own.

use std::{io, net::SocketAddr, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, ServerName},
    version::{TLS12, TLS13},
};
use rustls_platform_verifier::Verifier;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::DnsError;
use crate::of_hyper;

/// Asks addresses over HTTPS; their certificates are checked against the name that is given.
#[derive(Clone)]
pub(super) struct Https {
    connector: TlsConnector,
}

impl Https {
    pub(super) fn new(config: Arc<ClientConfig>) -> Self {
        Self { connector: config.into() }
    }

    /// Sends a request and reads its answer whole, at most `bytes_max` of its body.
    pub(super) async fn exchange(
        &self,
        server: SocketAddr,
        name: &str,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<Response<Bytes>, DnsError> {
        let socket = |source: io::Error| DnsError::Socket { server, source };
        let server_name = ServerName::try_from(name.to_owned()).map_err(|_| DnsError::Name(name.into()))?;
        let tcp = TcpStream::connect(server).await.map_err(socket)?;
        // Only latency suffers if it fails.
        let _ = tcp.set_nodelay(true);
        let stream = self.connector.connect(server_name, tcp).await.map_err(socket)?;
        let is_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let io = TokioIo::new(stream);
        let broken = |error: hyper::Error| DnsError::Transfer { server, reason: of_hyper(&error) };
        if is_h2 {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), io).await.map_err(broken)?;
            with(connection, sender.send_request(request), server, bytes_max).await
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.map_err(broken)?;
            let request = in_origin_form(request);
            with(connection, sender.send_request(request), server, bytes_max).await
        }
    }
}

/// Makes the TLS settings of a client of the web: HTTP/2 and HTTP/1.1, TLS 1.2 and 1.3, the platform's authorities and these.
///
/// # Errors
///
/// When the platform's verifier cannot be used.
pub fn web_config(trust: &[CertificateDer<'static>]) -> io::Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier =
        Verifier::new_with_extra_roots(trust.iter().cloned(), Arc::clone(&provider)).map_err(io::Error::other)?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS12, &TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Leaves scheme and host out of the target, as a server of HTTP/1.1 that is no proxy expects it (RFC 9112 section 3.2.1).
fn in_origin_form(mut request: Request<Full<Bytes>>) -> Request<Full<Bytes>> {
    if let Some(target) = request.uri().path_and_query().cloned() {
        *request.uri_mut() = target.into();
    }
    request
}

/// Drives a connection for as long as its one exchange takes: where this future is dropped, nothing is left behind.
async fn with(
    connection: impl Future<Output = hyper::Result<()>>,
    sent: impl Future<Output = hyper::Result<Response<hyper::body::Incoming>>>,
    server: SocketAddr,
    bytes_max: usize,
) -> Result<Response<Bytes>, DnsError> {
    let broken = |error: hyper::Error| DnsError::Transfer { server, reason: of_hyper(&error) };
    let exchange = async {
        let (parts, mut body) = sent.await.map_err(broken)?.into_parts();
        let mut read = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                if read.len() + data.len() > bytes_max {
                    return Err(DnsError::Oversized { server, bytes_max });
                }
                read.extend_from_slice(&data);
            }
        }
        Ok(Response::from_parts(parts, read.freeze()))
    };
    let mut connection = std::pin::pin!(connection);
    let mut exchange = std::pin::pin!(exchange);
    let mut is_up = true;
    loop {
        tokio::select! {
            // An answer that is there counts, though the connection ended with it.
            biased;
            response = exchange.as_mut() => return response,
            _ = connection.as_mut(), if is_up => is_up = false,
        }
    }
}
