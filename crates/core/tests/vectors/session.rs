//! A session over two links, told frame by frame: both machines speak to each other and everything they say is kept.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use ropeway_core::{
    Time,
    heartbeat::INTERVAL_TCP,
    session::{
        Accept, Client, ClientConfig, Cookie, HelloFacts, Machine, MuxConfig, MuxEvent, PushMessage, Server,
        ServerConfig, SessionId,
    },
    wire::{
        Kind,
        fields::{Mode, RequestHead, ResponseHead},
        message::{NetworkKind, ResetCode},
    },
};
use serde_json::{Value, json};

use crate::{
    compose::{APP, BINDING, GATEWAY, NONCE, NOW_MS, device, ticket},
    json::{Blocks, frame},
};

/// Bodies are small here, so that CREDIT shows.
const CONFIG: MuxConfig = MuxConfig {
    answers_ttl: Duration::from_secs(60),
    channel_credit: 32,
    channels_max: 256,
    kept_bytes_max: 64 * 1024,
    link_credit: 128,
    payload_bytes_max: 64 * 1024,
};

/// Two links of one session over `tls`: everything a client and a gateway say, in the order in which it arrives.
pub(crate) fn links() -> Vec<Value> {
    let mut stage = Stage::new();
    stage.link(false);
    stage.client.subscribe("news");
    stage.request(Method::GET, "/greeting", b"");
    stage.settle();
    stage.answer(1, &[], b"hello");
    stage.request(Method::POST, "/orders", b"forty bytes, eight more than the credit.");
    stage.settle();
    stage.answer(3 - 1, &[("content-type", "text/plain")], b"made");
    stage.push("m-1");
    stage.push("m-2");
    stage.settle();
    stage.client.shown("m-1");
    stage.settle();
    stage.client.handle_timeout(stage.now + INTERVAL_TCP).unwrap();
    stage.settle();
    let dropped = stage.request(Method::GET, "/slow", b"");
    stage.settle();
    stage.client.mux().reset(dropped, ResetCode::Cancelled, "the user left");
    stage.server.drain(Duration::from_secs(30));
    let cut = stage.request(Method::POST, "/pay", b"42");
    stage.settle();
    let first = stage.cut();

    stage.link(true);
    stage.answer(cut, &[], b"paid");
    stage.client.unsubscribe("news");
    stage.settle();
    stage.server.stop();
    stage.settle();
    stage.request(Method::GET, "/late", b"");
    stage.settle();
    let second = stage.cut();
    vec![first, second]
}

struct Stage {
    client: Client,
    server: Server,
    now: Time,
    said: Vec<Value>,
    nonce: [u8; 16],
    /// Blocks from the client and from the gateway.
    blocks: [Blocks; 2],
}

impl Stage {
    fn new() -> Self {
        let config = ServerConfig {
            gateway: GATEWAY.into(),
            hosts: vec!["api.test".into(), "*.shop.test".into()],
            mux: CONFIG,
            heartbeat: (Duration::from_secs(15), Duration::from_secs(590)),
            topics_max: 100,
            ..ServerConfig::default()
        };
        let cookie = Cookie::new(SessionId(0x0102_0304_0506_0708), *b"cookie of a test");
        let client = ClientConfig {
            app: APP.into(),
            device: "d-1".into(),
            sdk: "0.1.0".into(),
            platform: "linux".into(),
            mux: CONFIG,
        };
        Self {
            client: Client::new(client, Time::ZERO),
            server: Server::new(Arc::new(config), cookie, device().verifying_key().to_bytes(), Time::ZERO),
            now: Time::ZERO,
            said: Vec::new(),
            nonce: NONCE,
            blocks: [Blocks::new(Mode::Ordered), Blocks::new(Mode::Ordered)],
        }
    }

    fn link(&mut self, resumed: bool) {
        let sign = |message: &[u8]| ed25519_dalek::Signer::sign(&device(), message).to_bytes();
        self.nonce[0] += 1;
        let facts = HelloFacts {
            ticket: ticket(),
            gateway: GATEWAY.into(),
            network: NetworkKind::Wifi,
            unix_ms: NOW_MS,
            nonce: self.nonce,
            trace_parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            ordered: true,
            heartbeat: INTERVAL_TCP,
        };
        self.client.connect(facts, &sign, self.now);
        self.client.prove(&BINDING, &sign);
        let mut accept = Accept::new(GATEWAY.into(), Duration::from_secs(60));
        let hello = self.client.poll_output(self.now).unwrap();
        self.keep("client", &hello);
        accept.handle_hello(hello.as_ref(), NOW_MS).unwrap();
        accept.handle_device_key(&device().verifying_key().to_bytes()).unwrap();
        let proof = self.client.poll_output(self.now).unwrap();
        self.keep("client", &proof);
        let admitted = accept.handle_proof(proof.as_ref(), &BINDING).unwrap();
        self.server.attach(&admitted.hello, true, resumed, NOW_MS, self.now);
        self.settle();
    }

    fn request(&mut self, method: Method, path: &str, body: &'static [u8]) -> u64 {
        let uri: Uri = format!("https://api.test{path}").parse().unwrap();
        let mut headers = HeaderMap::new();
        headers.insert("x-app-version", "7.1".parse().unwrap());
        let head = RequestHead { method, uri, headers };
        let channel = self.client.mux().request(head, body.is_empty()).unwrap();
        let mut rest = Bytes::from_static(body);
        while !rest.is_empty() {
            self.client.mux().write(channel, &mut rest);
            self.settle();
        }
        if !body.is_empty() {
            self.client.mux().finish(channel, None);
        }
        channel
    }

    fn answer(&mut self, channel: u64, headers: &[(&'static str, &'static str)], body: &'static [u8]) {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect();
        let mux = self.server.mux();
        mux.respond(channel, ResponseHead { status: StatusCode::OK, headers }, false);
        mux.write(channel, &mut Bytes::from_static(body));
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", "00ff".parse().unwrap());
        mux.finish(channel, (channel == 2).then_some(trailers));
        self.settle();
    }

    fn push(&mut self, id: &str) {
        self.server.push(PushMessage {
            id: id.into(),
            topic: "news".into(),
            content_type: "text/plain".into(),
            payload: Bytes::from_static(b"snow"),
            time_ms: NOW_MS,
        });
    }

    /// Lets both ends speak until neither has anything to say. Bodies are taken as they come.
    fn settle(&mut self) {
        loop {
            if let Some(frame) = self.client.poll_output(self.now) {
                self.keep("client", &frame);
                self.server.handle_frame(frame.as_ref(), self.now).unwrap();
            } else if let Some(frame) = self.server.poll_output(self.now) {
                self.keep("gateway", &frame);
                self.client.handle_frame(frame.as_ref(), self.now).unwrap();
            } else {
                return;
            }
            while self.server.poll_event().is_some() || self.client.poll_event().is_some() {}
            take_bodies(self.server.mux());
            take_bodies(self.client.mux());
        }
    }

    fn keep(&mut self, from: &str, said: &ropeway_core::wire::Frame) {
        let blocks = &mut self.blocks[usize::from(from == "gateway")];
        let mut described = frame(said.as_ref(), blocks).unwrap();
        described["from"] = from.into();
        if said.kind == Kind::Hello {
            let signed: Bytes = crate::json::unhex(described["message"]["hello"].as_str().unwrap()).into();
            described["hello"] = crate::compose::hello_fields(&signed);
        }
        self.said.push(described);
    }

    fn cut(&mut self) -> Value {
        self.client.handle_detached(self.now);
        self.server.handle_detached(self.now);
        self.blocks = [Blocks::new(Mode::Ordered), Blocks::new(Mode::Ordered)];
        json!({ "binding": crate::json::hex(&BINDING), "frames": std::mem::take(&mut self.said) })
    }
}

fn take_bodies(mux: &mut ropeway_core::session::Mux) {
    while let Some(event) = mux.poll_event() {
        if let MuxEvent::Body { channel, data } = event {
            mux.consumed(channel, data.len() as u64);
        }
    }
}
