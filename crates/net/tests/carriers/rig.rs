//! A gateway's sockets, clients for them, and tasks that move frames.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::HeaderValue;
use noq::{Endpoint, EndpointConfig, crypto::rustls::QuicServerConfig};
use ropeway_core::{
    CarrierKind,
    connect::Candidate,
    wire::{ALPN, Flags, Frame, Kind, SUBPROTOCOL},
};
use ropeway_net::{
    carrier::{Arrived, Carrier, CarrierError, QuicCarrier, TlsCarrier, WsCarrier, link_transport, ws_limits},
    dial::{Dialer, LINK_PATH, Trust, client_config},
    scratch::with_scratch,
    tls::{Alpn, CertSource, ServerTls, ServerTlsOptions, quic_server_config, server_config},
};
use rustls::pki_types::PrivateKeyDer;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_websockets::{ClientBuilder, Config, Message, ServerBuilder, WebSocketStream};

pub(crate) const ALL: [CarrierKind; 3] = [CarrierKind::Quic, CarrierKind::Tls, CarrierKind::Ws];

pub(crate) type BoxedCarrier = Box<dyn Carrier>;

/// The sockets of a gateway, and a dialer that trusts it.
pub(crate) struct Rig {
    pub(crate) dialer: Dialer,
    trust: Trust,
    tcp: TcpListener,
    udp: Endpoint,
    tls: Arc<rustls::ServerConfig>,
}

impl Rig {
    pub(crate) async fn new() -> Self {
        let made = rcgen::generate_simple_self_signed(vec![NAME.into()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let certificates = Arc::new(CertSource::new(vec![made.cert.der().clone()], key).unwrap());
        let trust = Trust::Roots(vec![made.cert.der().clone()]);
        let options = |alpn| ServerTlsOptions::new(Arc::clone(&certificates), alpn);
        let crypto = QuicServerConfig::try_from(quic_server_config(options(vec![Alpn::Link]))).unwrap();
        let mut quic = noq::ServerConfig::with_crypto(Arc::new(crypto));
        quic.transport_config(Arc::new(link_transport()));
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let runtime = Arc::new(noq::TokioRuntime);
        Self {
            dialer: Dialer::new(&trust).unwrap(),
            trust,
            tcp: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap(),
            udp: Endpoint::new(EndpointConfig::default(), Some(quic), socket, runtime).unwrap(),
            tls: server_config(options(vec![Alpn::Link, Alpn::Http11])),
        }
    }

    pub(crate) fn address(&self, carrier: CarrierKind) -> SocketAddr {
        match carrier {
            CarrierKind::Quic => self.udp.local_addr().unwrap(),
            CarrierKind::Tls | CarrierKind::Ws => self.tcp.local_addr().unwrap(),
        }
    }

    pub(crate) async fn dial(&self, carrier: CarrierKind) -> BoxedCarrier {
        let candidate = Candidate { address: self.address(carrier), carrier };
        self.dialer.dial(candidate, NAME).await.unwrap().carrier
    }

    /// Connects, and says how often something was said to have come back.
    pub(crate) async fn dial_watched(&self, carrier: CarrierKind) -> usize {
        let candidate = Candidate { address: self.address(carrier), carrier };
        let mut answers = 0;
        let dialed = self.dialer.dial_watched(candidate, NAME, |_rtt| answers += 1).await;
        drop(dialed.unwrap());
        answers
    }

    pub(crate) async fn accept(&self, carrier: CarrierKind) -> BoxedCarrier {
        match carrier {
            CarrierKind::Quic => Box::new(self.accept_quic().await),
            CarrierKind::Tls => {
                let (tls, peer) = self.accept_tls().await;
                Box::new(TlsCarrier::new(tls, peer))
            }
            CarrierKind::Ws => {
                let (tls, peer) = self.accept_tls().await;
                let protocol = HeaderValue::from_static(SUBPROTOCOL);
                let builder = ServerBuilder::new().limits(ws_limits());
                let builder = builder.add_header(http::header::SEC_WEBSOCKET_PROTOCOL, protocol).unwrap();
                let (_request, socket) = builder.accept(tls.into_stream()).await.unwrap();
                Box::new(WsCarrier::new(socket, peer))
            }
        }
    }

    async fn accept_tls(&self) -> (ServerTls, SocketAddr) {
        let (tcp, peer) = self.tcp.accept().await.unwrap();
        let mut tls = ServerTls::new(tcp, Arc::clone(&self.tls)).unwrap();
        tls.handshake().await.unwrap();
        tls.confirm().await.unwrap();
        (tls, peer)
    }

    pub(crate) async fn accept_quic(&self) -> QuicCarrier {
        let connecting = self.udp.accept().await.unwrap().accept().unwrap();
        let peer = connecting.remote_address();
        QuicCarrier::new(connecting.await.unwrap(), peer, false)
    }

    /// Connects both ends.
    pub(crate) async fn connect(&self, carrier: CarrierKind) -> (BoxedCarrier, BoxedCarrier) {
        tokio::join!(self.dial(carrier), self.accept(carrier))
    }

    /// Connects a client that writes bytes as it likes.
    pub(crate) async fn connect_raw(&self, carrier: CarrierKind) -> (Raw, BoxedCarrier) {
        tokio::join!(self.dial_raw(carrier), self.accept(carrier))
    }

    async fn dial_raw(&self, carrier: CarrierKind) -> Raw {
        match carrier {
            CarrierKind::Quic => {
                let connection = self.dial_noq().await;
                let (send, receive) = connection.open_bi().await.unwrap();
                Raw::Quic { connection, send, _receive: receive }
            }
            CarrierKind::Tls => Raw::Tls(Box::new(self.dial_tls(ALPN).await)),
            CarrierKind::Ws => {
                let builder = ClientBuilder::new().uri(&format!("wss://{NAME}{LINK_PATH}")).unwrap();
                // Every byte of a message is a WebSocket frame of its own.
                let builder = builder.config(Config::default().frame_size(1));
                let (socket, _) = builder.connect_on(self.dial_tls(b"http/1.1").await).await.unwrap();
                Raw::Ws(Box::new(socket))
            }
        }
    }

    async fn dial_tls(&self, alpn: &[u8]) -> TlsStream<TcpStream> {
        let socket = TcpSocket::new_v4().unwrap();
        // Little room for what is not read.
        socket.set_recv_buffer_size(8 * 1024).unwrap();
        let tcp = socket.connect(self.address(CarrierKind::Tls)).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let connector = TlsConnector::from(Arc::new(client_config(&self.trust, &[alpn]).unwrap()));
        connector.connect(NAME.try_into().unwrap(), tcp).await.unwrap()
    }

    pub(crate) async fn dial_noq(&self) -> noq::Connection {
        let crypto = noq::crypto::rustls::QuicClientConfig::try_from(client_config(&self.trust, &[ALPN]).unwrap());
        let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let config = noq::ClientConfig::new(Arc::new(crypto.unwrap()));
        endpoint.connect_with(config, self.address(CarrierKind::Quic), NAME).unwrap().await.unwrap()
    }
}

/// A client that writes bytes and not frames.
pub(crate) enum Raw {
    Quic { connection: noq::Connection, send: noq::SendStream, _receive: noq::RecvStream },
    Tls(Box<TlsStream<TcpStream>>),
    Ws(Box<WebSocketStream<TlsStream<TcpStream>>>),
}

impl Raw {
    /// Writes bytes; on `ws` as one message.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        match self {
            Self::Quic { send, .. } => send.write_all(bytes).await.unwrap(),
            Self::Tls(stream) => {
                stream.write_all(bytes).await.unwrap();
                stream.flush().await.unwrap();
            }
            Self::Ws(socket) => send(socket, Message::binary(Bytes::copy_from_slice(bytes))).await.unwrap(),
        }
    }

    /// Ends the connection in the way of the carrier.
    pub(crate) async fn close(&mut self) {
        match self {
            Self::Quic { connection, send, .. } => {
                // What was written is to arrive first.
                let _ = send.finish();
                let _ = send.stopped().await;
                connection.close(0_u32.into(), b"");
            }
            Self::Tls(stream) => stream.shutdown().await.unwrap(),
            Self::Ws(socket) => send(socket, Message::close(None, "")).await.unwrap(),
        }
    }
}

pub(crate) async fn send(
    socket: &mut WebSocketStream<TlsStream<TcpStream>>,
    message: Message,
) -> Result<(), tokio_websockets::Error> {
    futures_util::SinkExt::send(socket, message).await
}

/// One end of a connection: what it is to send and what arrived.
pub(crate) struct End<C = BoxedCarrier> {
    pub(crate) carrier: C,
    pub(crate) output: VecDeque<Frame>,
    pub(crate) input: Vec<Frame>,
    pub(crate) ended: Option<Result<(), CarrierError>>,
    pub(crate) flushed: bool,
}

impl<C: Driven> End<C> {
    pub(crate) fn new(carrier: C, output: impl IntoIterator<Item = Frame>) -> Self {
        let output = output.into_iter().collect();
        Self { carrier, output, input: Vec::new(), ended: None, flushed: false }
    }

    /// Moves frames until `done`, or the connection ends.
    pub(crate) async fn run(&mut self, mut done: impl FnMut(&mut Self) -> bool) {
        let moving = poll_fn(|cx| {
            // As many reads a turn as the driver makes.
            let dry = (0..8).any(|_| self.ended.is_some() || !self.poll_recv(cx));
            if !dry {
                cx.waker().wake_by_ref();
            }
            loop {
                self.poll_send(cx);
                let finished = done(self) && self.output.is_empty() && self.flushed;
                if finished || self.ended.is_some() {
                    return Poll::Ready(());
                }
                if self.output.is_empty() || !self.flushed {
                    return Poll::Pending;
                }
            }
        });
        within(moving).await;
    }

    /// Runs until this many frames arrived and all of the output went.
    pub(crate) async fn run_until(&mut self, frames: usize) {
        self.run(|end| end.input.len() >= frames && end.output.is_empty()).await;
    }

    pub(crate) async fn close(&mut self) {
        within(poll_fn(|cx| with_scratch(|scratch| self.carrier.carrier().poll_close(cx, scratch)))).await;
    }

    fn poll_recv(&mut self, cx: &mut Context<'_>) -> bool {
        let Self { carrier, input, .. } = self;
        let received = with_scratch(|scratch| {
            carrier.carrier().poll_recv(cx, scratch, &mut |frame, _early| {
                input.push(frame.to_owned());
                Ok(())
            })
        });
        match received {
            Poll::Pending => false,
            Poll::Ready(Ok(Arrived::Some)) => true,
            Poll::Ready(Ok(Arrived::Closed)) => {
                self.ended = Some(Ok(()));
                false
            }
            Poll::Ready(Err(error)) => {
                self.ended = Some(Err(error));
                false
            }
        }
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) {
        let Self { carrier, output, .. } = self;
        let sent = with_scratch(|scratch| carrier.carrier().poll_send(cx, scratch, &mut || output.pop_front()));
        match sent {
            Poll::Pending => self.flushed = false,
            Poll::Ready(Ok(())) => self.flushed = true,
            Poll::Ready(Err(error)) => {
                self.ended.get_or_insert(Err(error));
            }
        }
    }
}

/// A carrier, boxed or not.
pub(crate) trait Driven: Send {
    fn carrier(&mut self) -> &mut dyn Carrier;
}

impl Driven for BoxedCarrier {
    fn carrier(&mut self) -> &mut dyn Carrier {
        self.as_mut()
    }
}

impl Driven for QuicCarrier {
    fn carrier(&mut self) -> &mut dyn Carrier {
        self
    }
}

/// Fails a test that hangs.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), future).await.expect("the test hangs")
}

pub(crate) fn frame(kind: Kind, channel: u64, payload: impl Into<Bytes>, end: bool) -> Frame {
    Frame { kind, flags: if end { Flags::END } else { Flags::NONE }, channel, payload: payload.into() }
}

/// Bytes that do not repeat at any power of two.
pub(crate) fn pattern(seed: usize, count: usize) -> Bytes {
    let period: Vec<u8> = (0..251).map(|at| u8::try_from((seed + at) % 251).unwrap()).collect();
    let mut bytes = period.repeat(count / 251 + 1);
    bytes.truncate(count);
    bytes.into()
}

pub(crate) const NAME: &str = "gateway.test";
