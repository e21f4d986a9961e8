//! The client's end of a session, fed any frames.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use ropeway_core::{
    Time,
    session::{Client, ClientConfig, ClientEvent, ClientPhase, HelloFacts, LinkError, Machine, MuxConfig, MuxEvent},
    wire::{
        Decoder, FrameError, FrameRef, Kind,
        fields::RequestHead,
        frame::PAYLOAD_BYTES_MAX,
        message::{Hello, NetworkKind, SignedHello},
    },
};

use crate::outcome::{Notes, Outcome};

/// Feeds a client's session what a gateway may say. Kinds that no gateway sends are what the app does: HELLO opens the next
/// link, REQUEST sends a request with a body as long as its payload, SUBSCRIBE subscribes, PROOF lets time pass.
pub fn client(input: &[u8]) -> Outcome {
    let mut stage = Stage::new(input.last().is_none_or(|last| last & 1 == 0));
    stage.connect();
    for length in [0, 0, 500, 3_000] {
        stage.request(length);
    }
    let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
    let ended = decoder.feed(input, &mut |frame| {
        stage.take(frame);
        Ok::<_, FrameError>(())
    });
    if let Err(error) = ended {
        stage.outcome.error(&error);
    }
    stage.outcome.finish()
}

struct Stage {
    client: Client,
    ordered: bool,
    now: Time,
    shown: BTreeMap<String, u32>,
    /// How many answers a request had.
    answers: BTreeMap<u64, u32>,
    outcome: Notes,
}

impl Stage {
    fn new(ordered: bool) -> Self {
        let mux = MuxConfig {
            channels_max: CHANNELS_MAX as u32,
            channel_credit: 1_000,
            kept_bytes_max: 4_096,
            link_credit: 4_000,
            ..MuxConfig::default()
        };
        Self {
            client: Client::new(ClientConfig { mux, ..ClientConfig::default() }, Time::ZERO),
            ordered,
            now: Time::ZERO,
            shown: BTreeMap::new(),
            answers: BTreeMap::new(),
            outcome: Notes::default(),
        }
    }

    fn connect(&mut self) {
        self.client.handle_detached(self.now);
        let facts = HelloFacts {
            ticket: "ticket".into(),
            gateway: "gw.test".into(),
            network: NetworkKind::Wifi,
            unix_ms: 0,
            nonce: [0; 16],
            trace_parent: String::new(),
            ordered: self.ordered,
            heartbeat: Duration::from_secs(60),
        };
        self.client.connect(facts, &|_| [0; 64], self.now);
        self.client.prove(&[0; 32], &|_| [0; 64]);
        let hello = self.client.poll_output(self.now).expect("HELLO comes first");
        let signed: SignedHello = hello.as_ref().message().expect("HELLO is one");
        let hello = <Hello as prost::Message>::decode(signed.hello).expect("HELLO is one");
        assert!(hello.unanswered.len() <= CHANNELS_MAX, "more is asked about than can be open");
        self.outcome.size(hello.unanswered.len());
    }

    fn take(&mut self, frame: FrameRef<'_>) {
        match frame.kind {
            Kind::Hello => self.connect(),
            Kind::Proof => {
                self.now += Duration::from_secs(frame.payload.len() as u64);
                if let Err(error) = self.client.handle_timeout(self.now) {
                    self.lose(&error);
                }
            }
            Kind::Request => self.request(frame.payload.len()),
            Kind::Subscribe => {
                self.client.subscribe(&String::from_utf8_lossy(frame.payload));
            }
            Kind::Welcome
            | Kind::Refuse
            | Kind::Ping
            | Kind::Pong
            | Kind::Credit
            | Kind::Response
            | Kind::Body
            | Kind::Trailers
            | Kind::Reset
            | Kind::Stream
            | Kind::Unsubscribe
            | Kind::Push
            | Kind::Ack
            | Kind::Sync
            | Kind::Probe
            | Kind::Redirect
            | Kind::List
            | Kind::Policy
            | Kind::Drain => self.hand(frame),
        }
        self.observe();
        for _ in 0..FRAMES_A_TURN {
            let Some(frame) = self.client.poll_output(self.now) else { break };
            assert!(frame.payload.len() <= PAYLOAD_BYTES_MAX, "a frame longer than anyone takes");
            self.outcome.note((frame.kind, frame.flags.0));
        }
        self.observe();
        assert!(self.client.mux().running() <= CHANNELS_MAX, "more exchanges than may be open");
    }

    fn hand(&mut self, frame: FrameRef<'_>) {
        if self.client.phase() != ClientPhase::Offline
            && let Err(error) = self.client.handle_frame(frame, self.now)
        {
            self.lose(&error);
        }
    }

    fn request(&mut self, length: usize) {
        let (method, uri) = (Method::POST, Uri::from_static("https://api.test/"));
        let head = RequestHead { method, uri, headers: HeaderMap::new() };
        let Some(channel) = self.client.mux().request(head, length == 0) else { return };
        self.client.mux().write(channel, &mut Bytes::from(vec![1; length]));
        if length > 0 {
            self.client.mux().finish(channel, None);
        }
        assert!(self.answers.insert(channel, 0).is_none(), "a number is used twice");
    }

    fn lose(&mut self, error: &LinkError) {
        self.outcome.note(error.name());
        self.client.handle_detached(self.now);
    }

    fn observe(&mut self) {
        while let Some(event) = self.client.mux().poll_event() {
            match event {
                MuxEvent::Body { channel, data } => {
                    self.outcome.note("body");
                    if channel % 4 != 3 {
                        self.client.mux().consumed(channel, data.len() as u64);
                    }
                }
                MuxEvent::Closed { channel, why } => {
                    self.answers.remove(&channel);
                    self.outcome.note(std::mem::discriminant(&why));
                }
                MuxEvent::End { trailers, .. } => self.outcome.note(trailers.is_some()),
                MuxEvent::Request { .. } => panic!("a client got a request"),
                MuxEvent::Response { channel, end, .. } => {
                    let answers = self.answers.get_mut(&channel).expect("an answer to a request that is open");
                    *answers += 1;
                    assert_eq!(*answers, 1, "a second answer to request {channel}");
                    self.outcome.note(end);
                }
                MuxEvent::Writable { channel } => {
                    self.client.mux().write(channel, &mut Bytes::from_static(&[8; 100]));
                }
            }
        }
        while let Some(event) = self.client.poll_event() {
            self.outcome.note(std::mem::discriminant(&event));
            if let ClientEvent::Push { message, .. } = event {
                let shown = self.shown.entry(message.id.clone()).or_default();
                *shown += 1;
                assert_eq!(*shown, 1, "message {:?} is shown twice", message.id);
                if message.payload.len() % 4 != 3 {
                    self.client.shown(&message.id);
                }
            }
        }
    }
}

const CHANNELS_MAX: usize = 8;

/// Frames the gateway reads after each it sends.
const FRAMES_A_TURN: usize = 8;
