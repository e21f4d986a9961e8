//! Opens HTTP/3 connections to hosts.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use noq::{Connection, Endpoint, EndpointConfig, TransportConfig, VarInt, crypto::rustls::QuicClientConfig};
use ropeway_core::{CarrierKind, connect::Candidate};
use rustls::ClientConfig;
use tokio::time::Instant;

use crate::dial::{DialError, tls_cause, udp_socket};

/// Opens QUIC connections that speak HTTP/3.
#[derive(Clone)]
pub struct H3Dialer {
    endpoint: Endpoint,
    config: noq::ClientConfig,
}

impl H3Dialer {
    /// Makes a dialer of TLS settings, which must allow TLS 1.3 and offer `h3` alone. Needs a tokio runtime, for its UDP socket.
    ///
    /// # Errors
    ///
    /// When no UDP socket can be bound, or the settings are none for QUIC.
    pub fn new(tls: ClientConfig) -> io::Result<Self> {
        let crypto = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
        let mut config = noq::ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport()));
        let endpoint = Endpoint::new(EndpointConfig::default(), None, udp_socket()?, Arc::new(noq::TokioRuntime))?;
        Ok(Self { endpoint, config })
    }

    /// Connects to an address, whose certificate must carry `name`, and gives the time of one round trip. `answered` is called once
    /// something comes back. There is no deadline in here.
    ///
    /// # Errors
    ///
    /// A [`DialError`] with the address and what failed.
    pub async fn dial(
        &self,
        address: SocketAddr,
        name: &str,
        answered: impl FnOnce(Duration) + Send,
    ) -> Result<(Connection, Duration), DialError> {
        let candidate = Candidate { address, carrier: CarrierKind::Quic };
        let begun = Instant::now();
        let mut connecting = self
            .endpoint
            .connect_with(self.config.clone(), address, name)
            .map_err(|error| DialError::of_handshake(candidate, &error, None))?;
        // What went wrong is told where the connection is awaited.
        if connecting.handshake_data().await.is_ok() {
            answered(begun.elapsed());
        }
        let connection =
            connecting.await.map_err(|error| DialError::of_handshake(candidate, &error, tls_cause(&error)))?;
        let rtt = connection.rtt(noq::PathId::ZERO).unwrap_or_else(|| begun.elapsed());
        Ok((connection, rtt))
    }

    /// Moves every connection to a new socket, as after a change of network.
    ///
    /// # Errors
    ///
    /// When no socket can be bound.
    pub fn rebind(&self) -> io::Result<()> {
        self.endpoint.rebind(udp_socket()?)
    }
}

fn transport() -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(VarInt::from_u32(0));
    transport.max_concurrent_uni_streams(VarInt::from_u32(ONE_WAY_STREAMS_MAX));
    transport.stream_receive_window(VarInt::from_u32(STREAM_RECEIVE_WINDOW));
    transport.receive_window(VarInt::from_u32(RECEIVE_WINDOW));
    transport.max_idle_timeout(Some(VarInt::from_u32(IDLE_TIMEOUT_MS).into()));
    // As for links.
    transport.mtu_discovery_config(None);
    transport
}

/// One-way streams that a server may have open: control, QPACK's two, and as many of its own invention.
const ONE_WAY_STREAMS_MAX: u32 = 6;

/// Bytes of one answer that wait for the app. 2 MiB; as hyper allows over HTTP/2.
const STREAM_RECEIVE_WINDOW: u32 = 2 << 20;

/// Bytes of all answers of a connection. 5 MiB; as hyper allows over HTTP/2.
const RECEIVE_WINDOW: u32 = 5 << 20;

/// Silence after which a connection is over, on both sides. 30 s; Chromium `quic_context.h`, and what UDP bindings live at least.
const IDLE_TIMEOUT_MS: u32 = 30_000;
