//! A peer on a TLS connection that says whatever it likes.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use prost::Message;
use ropeway_core::{
    session::{HELLO_CONTEXT, PROOF_CONTEXT, signed_input},
    wire::{
        ALPN, Decoder, Flags, Frame, FrameError, Kind,
        fields::{Encoder, Mode},
        frame::PAYLOAD_BYTES_MAX,
        message::{Hello, Proof, Refuse, RefuseCode, SignedHello, Welcome},
    },
};
use ropeway_net::{carrier::EXPORTER_LABEL, dial::client_config, unix_ms};
use rustls::pki_types::{PrivatePkcs8KeyDer, ServerName, pem::PemObject};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::support::{World, in_time, key, nonce};

pub(crate) struct Stranger {
    pub(crate) stream: TlsStream<TcpStream>,
    pub(crate) binding: [u8; 32],
    decoder: Decoder,
    arrived: std::collections::VecDeque<Frame>,
    encoder: Encoder,
}

impl Stranger {
    pub(crate) async fn connect(world: &World) -> Self {
        let stream = tls(world, &[ALPN]).await.unwrap();
        let mut binding = [0; 32];
        stream.get_ref().1.export_keying_material(&mut binding, EXPORTER_LABEL, None).unwrap();
        Self {
            stream,
            binding,
            decoder: Decoder::new(PAYLOAD_BYTES_MAX),
            arrived: Default::default(),
            encoder: Encoder::new(Mode::Ordered),
        }
    }

    /// A peer that was admitted, and is free to misbehave from then on.
    pub(crate) async fn admitted(world: &World, seed: u8) -> Self {
        let mut stranger = Self::connect(world).await;
        stranger.send(&signed(&hello(world, seed), &key(seed))).await;
        stranger.prove(&key(seed)).await;
        stranger.welcome().await;
        stranger
    }

    pub(crate) async fn prove(&mut self, key: &SigningKey) {
        let proof = proof(&self.binding, key);
        self.send(&proof).await;
    }

    pub(crate) async fn send(&mut self, frame: &Frame) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.send_bytes(&bytes).await;
    }

    /// A gateway that has heard enough may close while it is being spoken to.
    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }

    pub(crate) async fn request(&mut self, channel: u64, uri: &str, flags: Flags) {
        let frame = self.request_frame(channel, uri, flags);
        self.send(&frame).await;
    }

    pub(crate) fn request_frame(&mut self, channel: u64, uri: &str, flags: Flags) -> Frame {
        let mut block = bytes::BytesMut::new();
        let (method, headers) = (http::Method::POST, http::HeaderMap::new());
        self.encoder.encode_request(channel, &method, &uri.parse().unwrap(), &headers, &mut block).unwrap();
        Frame { kind: Kind::Request, flags, channel, payload: block.freeze() }
    }

    /// Waits for the next frame; `None` once the gateway closed.
    pub(crate) async fn frame(&mut self) -> Option<Frame> {
        let mut buffer = vec![0; 65_536];
        while self.arrived.is_empty() {
            let read = in_time(self.stream.read(&mut buffer)).await.unwrap_or(0);
            if read == 0 {
                return None;
            }
            let arrived = &mut self.arrived;
            let fed: Result<(), FrameError> = self.decoder.feed(&buffer[..read], &mut |frame| {
                arrived.push_back(frame.to_owned());
                Ok(())
            });
            fed.unwrap();
        }
        self.arrived.pop_front()
    }

    /// Waits for a frame of one kind and passes the others over.
    pub(crate) async fn frame_of(&mut self, kind: Kind) -> Frame {
        loop {
            let frame = self.frame().await.expect("the gateway still speaks");
            if frame.kind == kind {
                return frame;
            }
            assert_ne!(frame.kind, Kind::Refuse, "{:?}", frame.as_ref().message::<Refuse>());
        }
    }

    pub(crate) async fn welcome(&mut self) -> Welcome {
        self.frame_of(Kind::Welcome).await.as_ref().message().unwrap()
    }

    /// Waits for REFUSE and the end of the connection.
    pub(crate) async fn refusal(&mut self) -> Refuse {
        loop {
            let frame = self.frame().await.expect("a refusal before the end");
            if frame.kind == Kind::Refuse {
                assert_eq!(self.frame().await, None, "nothing follows a refusal");
                return frame.as_ref().message().unwrap();
            }
        }
    }

    /// Waits for REFUSE with the code of a broken protocol, whose detail begins with the name of the error.
    pub(crate) async fn broke(&mut self, name: &str) {
        let refuse = self.refusal().await;
        assert_eq!(refuse.code(), RefuseCode::Protocol);
        assert!(refuse.detail.starts_with(&format!("{name}:")), "{}", refuse.detail);
    }
}

pub(crate) async fn tls(world: &World, alpn: &[&[u8]]) -> std::io::Result<TlsStream<TcpStream>> {
    let connector = TlsConnector::from(Arc::new(client_config(&world.trust, alpn)?));
    let tcp = TcpStream::connect(world.gateway.addresses().tcp).await?;
    connector.connect(ServerName::try_from("gw.test").unwrap(), tcp).await
}

/// A HELLO that every gateway takes.
pub(crate) fn hello(world: &World, seed: u8) -> Hello {
    Hello {
        ticket: world.ticket("eve", "dev", &key(seed)),
        app: "dev".into(),
        device: format!("device-{seed}"),
        time_ms: unix_ms(),
        nonce: Bytes::copy_from_slice(&nonce()),
        gateway: "gw.test".into(),
        channel_credit: 256 * 1024,
        link_credit: 1024 * 1024,
        ..Hello::default()
    }
}

pub(crate) fn signed(hello: &Hello, key: &SigningKey) -> Frame {
    let hello = hello.encode_to_vec();
    let signature = key.sign(&signed_input(HELLO_CONTEXT, &hello)).to_bytes();
    let signed = SignedHello { hello: hello.into(), signature: Bytes::copy_from_slice(&signature) };
    Frame::control(Kind::Hello, &signed)
}

pub(crate) fn proof(binding: &[u8; 32], key: &SigningKey) -> Frame {
    let signature = key.sign(&signed_input(PROOF_CONTEXT, binding)).to_bytes();
    let proof = Proof { challenge: Bytes::new(), signature: Bytes::copy_from_slice(&signature) };
    Frame::control(Kind::Proof, &proof)
}

/// Signs a JSON Web Token whose claims and header are all of the caller's choice.
pub(crate) fn token(world: &World, claims: &serde_json::Value) -> String {
    let pkcs8 = PrivatePkcs8KeyDer::from_pem_slice(world.issuer.private_pem().as_bytes()).unwrap();
    let key = jsonwebtoken::EncodingKey::from_ed_der(pkcs8.secret_pkcs8_der());
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::EdDSA);
    header.kid = Some(world.issuer.kid().to_owned());
    jsonwebtoken::encode(&header, claims, &key).unwrap()
}

pub(crate) const DAY: Duration = Duration::from_secs(86_400);
