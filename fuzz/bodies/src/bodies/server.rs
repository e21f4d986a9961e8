//! The gateway's end: the handshake, and a session fed any frames.

use std::{
    collections::BTreeSet,
    sync::{Arc, LazyLock},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use prost::Message;
use ropeway_core::{
    Time,
    session::{Accept, Cookie, LinkError, Machine, MuxConfig, MuxEvent, PushMessage, Server, ServerConfig, SessionId},
    wire::{
        Decoder, FrameError, FrameRef, Kind,
        fields::ResponseHead,
        frame::PAYLOAD_BYTES_MAX,
        message::{Hello, SignedHello},
    },
};

use crate::{
    corpus::{self, DEVICE},
    mutate::split,
    outcome::{Notes, Outcome},
};

/// Takes two frames for HELLO and PROOF: nobody is admitted that the device did not sign for.
pub fn hello(input: &[u8]) -> Outcome {
    static SIGNED: LazyLock<Hello> = LazyLock::new(|| {
        let (frames, _) = split(&corpus::hello()[0]);
        let signed: SignedHello = frames[0].as_ref().message().expect("the vector is a HELLO");
        Hello::decode(signed.hello).expect("the vector is a HELLO")
    });
    let mut outcome = Notes::default();
    let (frames, _) = split(input);
    let mut accept = Accept::new("gw.test".into(), Duration::from_secs(60));
    let key = DEVICE.verifying_key().to_bytes();
    for (at, frame) in frames.iter().take(4).enumerate() {
        let refused = if at == 0 {
            let greeted = accept.handle_hello(frame.as_ref(), NOW_MS).map(drop);
            greeted.and_then(|()| accept.handle_device_key(&key)).err()
        } else {
            match accept.handle_proof(frame.as_ref(), &corpus::binding()) {
                Ok(admitted) => {
                    assert_eq!((&admitted.hello, admitted.device_key), (&*SIGNED, key), "a HELLO that nobody signed");
                    outcome.note("admitted");
                    None
                }
                Err(refusal) => Some(refusal),
            }
        };
        if let Some(refusal) = refused {
            let frame = refusal.frame();
            assert!(frame.payload.len() < REFUSE_BYTES_MAX, "a peer's words fill REFUSE");
            outcome.note(refusal.name());
            outcome.error(&refusal);
        }
    }
    outcome.finish()
}

/// Feeds a session what a client may say. The first byte chooses the carrier and whether the client reads; a HELLO is a
/// new link of the session, PROBE lets time pass, SYNC pushes a message.
pub fn server(input: &[u8]) -> Outcome {
    // The seeds begin with HELLO, whose number is odd: an ordered carrier and a client that reads.
    let options = input.first().copied().unwrap_or(0);
    let mut stage = Stage::new(options & 1 == 1, options & 2 == 0);
    let mut decoder = Decoder::new(PAYLOAD_BYTES_MAX);
    let ended = decoder.feed(input, &mut |frame| {
        stage.take(frame);
        Ok::<_, FrameError>(())
    });
    if let Err(error) = ended {
        stage.outcome.error(&error);
    }
    stage.now += Duration::from_secs(600);
    stage.wait();
    stage.outcome.finish()
}

struct Stage {
    server: Server,
    ordered: bool,
    reads: bool,
    now: Time,
    pushed: u64,
    /// Links that were attached.
    links: u32,
    /// The last frame was HELLO.
    greeted: bool,
    executed: BTreeSet<u64>,
    outcome: Notes,
}

impl Stage {
    fn new(ordered: bool, reads: bool) -> Self {
        static CONFIG: LazyLock<Arc<ServerConfig>> = LazyLock::new(|| {
            Arc::new(ServerConfig {
                mux: MuxConfig {
                    channels_max: CHANNELS_MAX as u32,
                    channel_credit: 1_000,
                    kept_bytes_max: KEPT_BYTES_MAX,
                    link_credit: LINK_CREDIT,
                    ..MuxConfig::default()
                },
                heartbeat: (Duration::from_secs(15), Duration::from_secs(590)),
                topics_max: TOPICS_MAX,
                ..ServerConfig::default()
            })
        });
        let cookie = Cookie::new(SessionId(1), [1; 16]);
        Self {
            server: Server::new(Arc::clone(&CONFIG), cookie, [0; 32], Time::ZERO),
            ordered,
            reads,
            now: Time::ZERO,
            pushed: 0,
            links: 0,
            greeted: false,
            executed: BTreeSet::new(),
            outcome: Notes::default(),
        }
    }

    fn take(&mut self, frame: FrameRef<'_>) {
        let greeted = std::mem::replace(&mut self.greeted, frame.kind == Kind::Hello);
        match frame.kind {
            Kind::Hello => self.attach(frame),
            // The handshake takes it before there is a session.
            Kind::Proof if greeted => {}
            Kind::Probe => {
                self.now += Duration::from_secs(frame.payload.len() as u64);
                self.wait();
            }
            Kind::Sync => self.push(frame.payload),
            Kind::Proof
            | Kind::Welcome
            | Kind::Refuse
            | Kind::Ping
            | Kind::Pong
            | Kind::Credit
            | Kind::Request
            | Kind::Response
            | Kind::Body
            | Kind::Trailers
            | Kind::Reset
            | Kind::Stream
            | Kind::Subscribe
            | Kind::Unsubscribe
            | Kind::Push
            | Kind::Ack
            | Kind::Redirect
            | Kind::List
            | Kind::Policy
            | Kind::Drain => self.hand(frame),
        }
        self.serve();
        if self.reads {
            self.read();
        }
        self.check();
    }

    fn hand(&mut self, frame: FrameRef<'_>) {
        if self.server.mux().is_attached()
            && let Err(error) = self.server.handle_frame(frame, self.now)
        {
            self.lose(&error);
        }
    }

    /// What `Accept` lets through of a HELLO, signed or not.
    fn attach(&mut self, frame: FrameRef<'_>) {
        let signed = frame.message::<SignedHello>().unwrap_or_default();
        let Ok(hello) = Hello::decode(signed.hello) else { return };
        if hello.unanswered.len() <= 256 && hello.topics.len() <= 100 {
            self.server.handle_detached(self.now);
            self.server.attach(&hello, self.ordered, self.links > 0, NOW_MS, self.now);
            self.links += 1;
        }
    }

    fn push(&mut self, payload: &[u8]) {
        self.pushed += 1;
        self.server.push(PushMessage {
            id: self.pushed.to_string(),
            topic: String::new(),
            content_type: String::new(),
            payload: Bytes::copy_from_slice(payload),
            time_ms: NOW_MS,
        });
    }

    fn wait(&mut self) {
        if let Err(error) = self.server.handle_timeout(self.now) {
            self.lose(&error);
        }
        assert!(self.server.poll_timeout().is_none_or(|(at, _)| at > self.now), "a deadline that has passed");
    }

    fn lose(&mut self, error: &LinkError) {
        self.outcome.note(error.name());
        self.server.handle_detached(self.now);
    }

    /// Answers requests with their number's worth of bytes, and takes most bodies.
    fn serve(&mut self) {
        while let Some(event) = self.server.mux().poll_event() {
            match event {
                MuxEvent::Body { channel, data } if channel % 4 != 3 => {
                    self.server.mux().consumed(channel, data.len() as u64);
                    self.outcome.note("body");
                }
                MuxEvent::Body { .. } => self.outcome.note("unread"),
                MuxEvent::Closed { why, .. } => self.outcome.note(std::mem::discriminant(&why)),
                MuxEvent::End { channel, trailers } => {
                    self.outcome.note(trailers.is_some());
                    self.server.mux().finish(channel, trailers);
                }
                MuxEvent::Request { channel, end, .. } => {
                    assert!(self.executed.insert(channel), "request {channel} runs twice");
                    self.outcome.note(end);
                    let head = ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() };
                    self.server.mux().respond(channel, head, false);
                    let mut body = Bytes::from(vec![7; (channel % 3_000) as usize]);
                    self.server.mux().write(channel, &mut body);
                    if end {
                        self.server.mux().finish(channel, None);
                    }
                }
                MuxEvent::Response { .. } => panic!("a gateway got an answer"),
                MuxEvent::Writable { channel } => {
                    self.server.mux().write(channel, &mut Bytes::from_static(&[8; 100]));
                    self.outcome.note("writable");
                }
            }
        }
        while let Some(event) = self.server.poll_event() {
            self.outcome.note(std::mem::discriminant(&event));
        }
    }

    fn read(&mut self) {
        for _ in 0..FRAMES_A_TURN {
            let Some(frame) = self.server.poll_output(self.now) else { return };
            assert!(frame.payload.len() <= PAYLOAD_BYTES_MAX, "a frame longer than anyone takes");
            self.outcome.note((frame.kind, frame.flags.0));
        }
    }

    fn check(&mut self) {
        assert!(self.server.mux().running() <= CHANNELS_MAX, "more exchanges than may be open");
        assert!(self.server.topics().count() <= TOPICS_MAX, "more topics than one session may have");
        let held = self.server.mux().held_bytes();
        let most = KEPT_BYTES_MAX + u64::from(LINK_CREDIT) + self.executed.len() as u64 * 3_000 + WRITTEN_BYTES_MAX;
        assert!(held <= most, "{held} bytes are held");
    }
}

const NOW_MS: u64 = 1_800_000_000_000;
const CHANNELS_MAX: usize = 8;
const KEPT_BYTES_MAX: u64 = 4_096;
const LINK_CREDIT: u32 = 4_000;
const TOPICS_MAX: usize = 10;

/// Bytes written to whoever says that there is room again: 100 for each frame of the longest input.
const WRITTEN_BYTES_MAX: u64 = 100 * 16 * 1024 / 4;

/// Frames a client reads after each it sends; less than can be waiting.
const FRAMES_A_TURN: usize = 8;

/// Bytes of a REFUSE: a sentence, with at most 64 characters of the peer's.
const REFUSE_BYTES_MAX: usize = 1_024;
