//! Client and gateway against each other, over links that are cut anywhere.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ed25519_dalek::{Signer, SigningKey};
use http::{HeaderMap, Method, StatusCode, Uri};
use proptest::prelude::*;
use rand_core::Rng;
use rand_pcg::Pcg32;

use super::*;
use crate::{
    session::{
        Accept, Client, ClientConfig, ClientEvent, Cookie, HelloFacts, LinkError, Machine, Server, ServerConfig,
        SessionId,
    },
    wire::{
        FrameRef,
        message::{NetworkKind, Proof},
    },
};

mod cut;
mod early;

const NOW: Time = Time::ZERO;
const BINDING: [u8; 32] = [5; 32];

struct Pair {
    client: Client,
    server: Server,
    key: SigningKey,
    ordered: bool,
    to_server: VecDeque<Frame>,
    to_client: VecDeque<Frame>,
    /// What the service saw: body by channel, and how often its head came.
    executed: BTreeMap<u64, (u32, Vec<u8>, bool)>,
    /// What the app saw.
    answers: BTreeMap<u64, Answer>,
    echo: bool,
    consume: bool,
    unconsumed: Vec<(u64, u64)>,
    /// Bodies that wait for room, the app's and the service's.
    uploads: BTreeMap<u64, Bytes>,
    downloads: BTreeMap<u64, Bytes>,
}

#[derive(Debug, Default)]
struct Answer {
    status: Option<StatusCode>,
    body: Vec<u8>,
    ended: bool,
    closed: Option<Closed>,
}

impl Pair {
    fn new(config: MuxConfig) -> Self {
        let key = SigningKey::from_bytes(&[7; 32]);
        let server_config = ServerConfig {
            gateway: "gw.test".into(),
            hosts: vec!["api.test".into()],
            mux: config,
            heartbeat: (Duration::from_secs(15), Duration::from_secs(600)),
            topics_max: 100,
            ..ServerConfig::default()
        };
        let device_key = key.verifying_key().to_bytes();
        let cookie = Cookie::new(SessionId(1), [1; 16]);
        Self {
            client: Client::new(ClientConfig { mux: config, ..ClientConfig::default() }, NOW),
            server: Server::new(Arc::new(server_config), cookie, device_key, NOW),
            key,
            ordered: true,
            to_server: VecDeque::new(),
            to_client: VecDeque::new(),
            executed: BTreeMap::new(),
            answers: BTreeMap::new(),
            echo: true,
            consume: true,
            unconsumed: Vec::new(),
            uploads: BTreeMap::new(),
            downloads: BTreeMap::new(),
        }
    }

    fn greet(&mut self) {
        let key = self.key.clone();
        let sign = move |message: &[u8]| key.sign(message).to_bytes();
        let facts = HelloFacts {
            ticket: "t".into(),
            gateway: "gw.test".into(),
            network: NetworkKind::Wired,
            unix_ms: 1_000,
            nonce: [3; 16],
            trace_parent: String::new(),
            ordered: self.ordered,
            heartbeat: Duration::from_secs(270),
        };
        self.client.connect(facts, &sign, NOW);
        self.client.prove(&BINDING, &sign);
    }

    fn connect(&mut self, resumed: bool) {
        self.greet();
        let mut accept = Accept::new("gw.test".into(), Duration::from_secs(60));
        let hello = self.client.poll_output(NOW).unwrap();
        accept.handle_hello(hello.as_ref(), 1_000).unwrap();
        accept.handle_device_key(&self.key.verifying_key().to_bytes()).unwrap();
        let proof = self.client.poll_output(NOW).unwrap();
        let admitted = accept.handle_proof(proof.as_ref(), &BINDING).unwrap();
        self.server.attach(&admitted.hello, self.ordered, resumed, 1_000, NOW);
    }

    fn cut(&mut self) {
        self.to_server.clear();
        self.to_client.clear();
        self.client.handle_detached(NOW);
        self.server.handle_detached(NOW);
    }

    fn send(&mut self, method: Method, body: &[u8]) -> u64 {
        let head = RequestHead { method, uri: Uri::from_static("https://api.test/echo"), headers: HeaderMap::new() };
        let channel = self.client.mux().request(head, body.is_empty()).unwrap();
        self.answers.insert(channel, Answer::default());
        if !body.is_empty() {
            self.uploads.insert(channel, Bytes::copy_from_slice(body));
        }
        channel
    }

    /// Moves at most `frames` frames each way.
    fn run(&mut self, frames: usize) -> Result<bool, LinkError> {
        let mut moved = false;
        for _ in 0..frames {
            write_what_fits(self.client.mux(), &mut self.uploads);
            write_what_fits(self.server.mux(), &mut self.downloads);
            if let Some(frame) = self.client.poll_output(NOW) {
                self.to_server.push_back(frame);
                moved = true;
            }
            if let Some(frame) = self.to_server.pop_front() {
                deliver(&frame, |frame| self.server.handle_frame(frame, NOW))?;
                moved = true;
            }
            self.serve();
            if let Some(frame) = self.server.poll_output(NOW) {
                self.to_client.push_back(frame);
                moved = true;
            }
            if let Some(frame) = self.to_client.pop_front() {
                deliver(&frame, |frame| self.client.handle_frame(frame, NOW))?;
                moved = true;
            }
            self.observe();
        }
        Ok(moved)
    }

    fn settle(&mut self) {
        while self.run(50).unwrap() {}
    }

    fn serve(&mut self) {
        while let Some(event) = self.server.mux().poll_event() {
            match event {
                MuxEvent::Request { channel, end, .. } => {
                    let seen = self.executed.entry(channel).or_default();
                    seen.0 += 1;
                    if end {
                        self.answer(channel);
                    }
                }
                MuxEvent::Body { channel, data } => {
                    self.executed.entry(channel).or_default().1.extend_from_slice(&data);
                    self.server.mux().consumed(channel, data.len() as u64);
                }
                MuxEvent::End { channel, .. } => self.answer(channel),
                MuxEvent::Closed { .. } | MuxEvent::Response { .. } | MuxEvent::Writable { .. } => {}
            }
        }
    }

    fn answer(&mut self, channel: u64) {
        let seen = self.executed.entry(channel).or_default();
        seen.2 = true;
        if self.echo {
            let body = Bytes::from(seen.1.clone());
            let head = ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() };
            self.server.mux().respond(channel, head, body.is_empty());
            if !body.is_empty() {
                self.downloads.insert(channel, body);
            }
        }
    }

    fn observe(&mut self) {
        while self.client.poll_event().is_some() {}
        while let Some(event) = self.client.mux().poll_event() {
            match event {
                MuxEvent::Response { channel, head, end } => {
                    let answer = self.answers.get_mut(&channel).unwrap();
                    assert_eq!(answer.status.replace(head.status), None, "one head an answer");
                    answer.ended |= end;
                }
                MuxEvent::Body { channel, data } => {
                    self.answers.get_mut(&channel).unwrap().body.extend_from_slice(&data);
                    if self.consume {
                        self.client.mux().consumed(channel, data.len() as u64);
                    } else {
                        self.unconsumed.push((channel, data.len() as u64));
                    }
                }
                MuxEvent::End { channel, .. } => self.answers.get_mut(&channel).unwrap().ended = true,
                MuxEvent::Closed { channel, why } => self.answers.get_mut(&channel).unwrap().closed = Some(why),
                MuxEvent::Request { .. } | MuxEvent::Writable { .. } => {}
            }
        }
    }
}

fn write_what_fits(mux: &mut Mux, bodies: &mut BTreeMap<u64, Bytes>) {
    bodies.retain(|channel, body| {
        if !mux.write(*channel, body) {
            return false;
        }
        if body.is_empty() {
            mux.finish(*channel, None);
        }
        !body.is_empty()
    });
}

fn deliver<E>(frame: &Frame, take: impl FnOnce(FrameRef<'_>) -> Result<(), E>) -> Result<(), E> {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    let (decoded, length) = crate::wire::frame::decode(&bytes, 1 << 20).unwrap().unwrap();
    assert_eq!(length, bytes.len());
    take(decoded.unwrap())
}

#[test]
fn a_request_crosses_and_its_answer_comes_back() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.connect(false);
    let channel = pair.send(Method::POST, b"hello");
    pair.settle();
    let answer = &pair.answers[&channel];
    assert_eq!((answer.status, answer.body.as_slice(), answer.ended), (Some(StatusCode::OK), &b"hello"[..], true));
    assert_eq!(pair.client.mux().running(), 0);
    assert_eq!(pair.server.mux().running(), 0);
}

#[test]
fn a_finished_answer_is_forgotten_after_its_time() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.connect(false);
    pair.send(Method::POST, b"hello");
    pair.settle();
    assert_eq!(pair.server.mux().held_bytes(), 5);
    pair.server.mux().handle_timeout(Time::from_origin(Duration::from_secs(60)));
    assert_eq!(pair.server.mux().held_bytes(), 0);
    assert_eq!(pair.server.mux().poll_timeout(), None);
}

#[test]
fn a_slow_reader_stops_its_own_body_and_nobody_elses() {
    let config = MuxConfig { channel_credit: 1000, link_credit: 4000, ..MuxConfig::default() };
    let mut pair = Pair::new(config);
    pair.consume = false;
    pair.connect(false);
    let slow = pair.send(Method::POST, &[1; 1000]);
    pair.settle();
    // The service has much more to say than the reader takes.
    assert_eq!(pair.answers[&slow].body.len(), 1000);
    pair.echo = false;
    let big = pair.send(Method::GET, b"");
    pair.settle();
    pair.server.mux().respond(big, ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() }, false);
    pair.downloads.insert(big, Bytes::from(vec![2; 100_000]));
    pair.settle();
    assert_eq!(pair.downloads[&big].len(), 99_000, "the gateway takes no more than the credit");
    assert_eq!(pair.answers[&big].body.len(), 1000);
    pair.echo = true;
    let small = pair.send(Method::POST, b"quick");
    pair.settle();
    assert_eq!(pair.answers[&small].body, b"quick");
    for (channel, bytes) in std::mem::take(&mut pair.unconsumed) {
        pair.client.mux().consumed(channel, bytes);
    }
    pair.settle();
    assert_eq!(pair.downloads[&big].len(), 98_000, "consumed bytes are granted again");
}

#[test]
fn bytes_beyond_the_credit_end_their_exchange_alone() {
    let mut pair = Pair::new(MuxConfig { channel_credit: 10, ..MuxConfig::default() });
    pair.echo = false;
    pair.connect(false);
    pair.settle();
    let head =
        RequestHead { method: Method::POST, uri: Uri::from_static("https://api.test/"), headers: HeaderMap::new() };
    let bad = pair.client.mux().request(head, false).unwrap();
    pair.answers.insert(bad, Answer::default());
    let good = pair.send(Method::POST, b"fine");
    pair.settle();
    let over = Frame { kind: Kind::Body, flags: Flags::NONE, channel: bad, payload: Bytes::from(vec![0; 11]) };
    pair.server.handle_frame(over.as_ref(), NOW).unwrap();
    pair.settle();
    let Some(Closed::Reset { code, .. }) = &pair.answers[&bad].closed else { panic!("the exchange goes on") };
    assert_eq!(*code, ResetCode::CreditExceeded);
    assert_eq!(pair.answers[&good].closed, None);
    assert_eq!(pair.server.mux().running(), 1);
}

#[test]
fn bytes_beyond_the_credit_of_the_link_close_it() {
    let mut pair = Pair::new(MuxConfig { channel_credit: 100, link_credit: 10, ..MuxConfig::default() });
    pair.echo = false;
    pair.connect(false);
    let channel = pair.send(Method::POST, b"a");
    pair.settle();
    let over = Frame { kind: Kind::Body, flags: Flags::NONE, channel, payload: Bytes::from(vec![0; 11]) };
    assert_eq!(
        pair.server.handle_frame(over.as_ref(), NOW),
        Err(LinkError::LinkCreditExceeded { excess: 2 }),
        "one byte is not granted again"
    );
}

#[test]
fn a_request_beyond_the_bound_is_refused_unexecuted() {
    let mut pair = Pair::new(MuxConfig { channels_max: 2, ..MuxConfig::default() });
    pair.echo = false;
    pair.connect(false);
    pair.send(Method::POST, b"a");
    pair.send(Method::POST, b"b");
    pair.settle();
    let head =
        RequestHead { method: Method::GET, uri: Uri::from_static("https://api.test/"), headers: HeaderMap::new() };
    assert_eq!(pair.client.mux().request(head.clone(), true), None, "the client keeps the bound itself");
    pair.server.mux().refuse_new();
    pair.client.mux().reset(1, ResetCode::Cancelled, "");
    pair.settle();
    let channel = pair.client.mux().request(head, true).unwrap();
    pair.answers.insert(channel, Answer::default());
    pair.settle();
    assert_eq!(pair.answers[&channel].closed, Some(Closed::NeverSeen));
    assert!(!pair.executed.contains_key(&channel));
}

#[test]
fn a_second_gateway_memory_makes_the_outcome_unknown() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.echo = false;
    pair.connect(false);
    let channel = pair.send(Method::POST, b"pay");
    pair.settle();
    pair.cut();
    let device_key = pair.key.verifying_key().to_bytes();
    let config =
        Arc::new(ServerConfig { heartbeat: (Duration::ZERO, Duration::from_secs(600)), ..ServerConfig::default() });
    pair.server = Server::new(config, Cookie::new(SessionId(9), [2; 16]), device_key, NOW);
    pair.executed.clear();
    pair.connect(false);
    // The new gateway never saw the number, but it cannot know what the old one did.
    pair.settle();
    assert_eq!(pair.answers[&channel].closed, Some(Closed::Unknown));
    assert!(pair.executed.is_empty());
}

#[test]
fn a_session_that_is_given_up_says_of_each_request_whether_it_may_have_run() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.echo = false;
    pair.connect(false);
    let sent = pair.send(Method::POST, b"pay");
    pair.settle();
    pair.cut();
    let waiting = pair.send(Method::POST, b"pay again");
    pair.client.abandon();
    pair.observe();
    assert_eq!(pair.answers[&sent].closed, Some(Closed::Unknown));
    assert_eq!(pair.answers[&waiting].closed, Some(Closed::NeverSeen));
    assert_eq!(pair.client.mux().running(), 0);
}

#[test]
fn a_challenge_reaches_the_signer_and_a_malformed_one_ends_the_link() {
    let mut pair = Pair::new(MuxConfig::default());
    let challenge = |bytes: &'static [u8]| {
        Frame::control(Kind::Proof, &Proof { challenge: Bytes::from_static(bytes), signature: Bytes::new() })
    };
    pair.greet();
    pair.client.handle_frame(challenge(&[8; 32]).as_ref(), NOW).unwrap();
    assert!(matches!(pair.client.poll_event(), Some(ClientEvent::Challenge(bytes)) if bytes == [8; 32]));
    assert!(pair.client.handle_frame(challenge(&[8; 31]).as_ref(), NOW).is_err());
}

#[test]
fn topics_that_change_between_hello_and_welcome_are_told_after_it() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.client.subscribe("kept");
    pair.client.subscribe("left");
    pair.connect(false);
    pair.client.subscribe("late");
    pair.client.unsubscribe("left");
    pair.settle();
    assert_eq!(pair.server.topics().collect::<Vec<_>>(), ["kept", "late"]);
}

#[test]
fn a_gap_is_told_when_the_session_is_lost() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.connect(false);
    pair.settle();
    pair.cut();
    pair.connect(false);
    let welcome = pair.server.poll_output(NOW).unwrap();
    pair.client.handle_frame(welcome.as_ref(), NOW).unwrap();
    assert!(std::iter::from_fn(|| pair.client.poll_event()).any(|event| matches!(event, ClientEvent::Gap)));
}

#[test]
fn nothing_of_the_old_link_goes_out_on_a_new_one_before_its_welcome() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.connect(false);
    pair.settle();
    pair.send(Method::POST, b"a body that waits for its turn");
    pair.client.subscribe("news");
    pair.connect(true);
    assert_eq!(pair.client.poll_output(NOW), None, "HELLO and PROOF are out, WELCOME is not in");
    pair.settle();
    assert!(pair.answers.values().all(|answer| answer.ended));
}

#[test]
fn a_peer_that_asks_and_never_reads_loses_its_link() {
    for length in [0, 1000] {
        let mut pair = Pair::new(MuxConfig::default());
        pair.connect(false);
        pair.settle();
        let ping = Frame { kind: Kind::Ping, flags: Flags::NONE, channel: 0, payload: vec![0; length].into() };
        let taken = (0..10_000)
            .find_map(|asked| pair.server.handle_frame(ping.as_ref(), NOW).err().map(|error| (asked, error)));
        let bound = CONTROL_BYTES_MAX.checked_div(length).unwrap_or(CONTROL_FRAMES_MAX);
        assert_eq!(taken, Some((bound + 1, LinkError::Backlog)));
        while pair.server.poll_output(NOW).is_some() {}
        assert_eq!(pair.server.handle_frame(ping.as_ref(), NOW), Ok(()), "what was read counts no more");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn over_links_cut_anywhere_every_request_runs_once_and_every_answer_is_whole(seed: u64, ordered: bool) {
        let mut random = Pcg32::new(seed, 1);
        let mut pair = Pair::new(MuxConfig { kept_bytes_max: 1 << 20, ..MuxConfig::default() });
        pair.ordered = ordered;
        pair.connect(false);
        let mut sent = BTreeMap::new();
        for _ in 0..12 {
            for _ in 0..random.next_u32() % 4 {
                let length = random.next_u32() as usize % 50_000;
                let body: Vec<u8> = (0..length).map(|_| random.next_u32() as u8).collect();
                sent.insert(pair.send(Method::POST, &body), body);
            }
            let frames = random.next_u32() as usize % 12;
            pair.run(frames).unwrap();
            if random.next_u32().is_multiple_of(2) {
                pair.cut();
                pair.connect(true);
            }
        }
        pair.settle();
        for (channel, body) in sent {
            let answer = &pair.answers[&channel];
            prop_assert_eq!(&answer.closed, &None, "channel {} of seed {}", channel, seed);
            prop_assert!(answer.ended && answer.body == body, "channel {} of seed {}", channel, seed);
            prop_assert_eq!(pair.executed[&channel].0, 1, "channel {} of seed {}", channel, seed);
        }
        prop_assert_eq!(pair.client.mux().running(), 0);
    }

    #[test]
    fn no_frames_a_peer_could_send_make_an_end_panic(seed: u64, gateway: bool) {
        let mut random = Pcg32::new(seed, 2);
        let mut pair = Pair::new(MuxConfig { channels_max: 4, ..MuxConfig::default() });
        pair.connect(false);
        pair.settle();
        for _ in 0..40 {
            let kind = Kind::ALL[random.next_u32() as usize % Kind::ALL.len()];
            let payload: Vec<u8> = (0..random.next_u32() % 12).map(|_| random.next_u32() as u8).collect();
            let channel = u64::from(random.next_u32() % 6);
            let frame = Frame { kind, flags: Flags(random.next_u32() as u8 & 3), channel, payload: payload.into() };
            let _ = if gateway { pair.server.handle_frame(frame.as_ref(), NOW) } else { pair.client.handle_frame(frame.as_ref(), NOW) };
            pair.serve();
            while pair.client.mux().poll_event().is_some() {}
        }
    }
}

#[test]
fn a_reset_overtakes_the_body_that_waits_before_it() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.echo = false;
    pair.connect(false);
    let channel = pair.send(Method::POST, b"first");
    pair.run(1).unwrap();
    assert!(pair.client.mux().write(channel, &mut Bytes::from_static(b"second")));
    pair.client.mux().reset(channel, ResetCode::Cancelled, "enough");
    pair.settle();
    assert_eq!(pair.client.mux().running(), 0);
    assert_eq!(pair.server.mux().running(), 0, "the gateway hears of it");
    assert_eq!(pair.client.mux().held_bytes(), 0);
}

#[test]
fn bytes_that_are_given_up_make_room_for_others() {
    let config = MuxConfig { channel_credit: 100, link_credit: 100, ..MuxConfig::default() };
    let mut pair = Pair::new(config);
    pair.echo = false;
    pair.connect(false);
    let first = pair.send(Method::POST, b"");
    let second = pair.send(Method::POST, b"");
    pair.settle();
    for channel in [first, second] {
        pair.server.mux().respond(channel, ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() }, false);
    }
    pair.settle();
    assert!(pair.server.mux().write(first, &mut Bytes::from(vec![1; 100])));
    let mut body = Bytes::from(vec![2; 100]);
    assert!(pair.server.mux().write(second, &mut body));
    assert_eq!(body.len(), 100, "the first has the whole credit of the link");
    pair.client.mux().reset(first, ResetCode::Cancelled, "enough");
    deliver(&pair.client.poll_output(NOW).unwrap(), |frame| pair.server.handle_frame(frame, NOW)).unwrap();
    let events = std::iter::from_fn(|| pair.server.mux().poll_event());
    assert!(events.into_iter().any(|event| matches!(event, MuxEvent::Writable { channel } if channel == second)));
}

#[test]
fn a_generous_peer_does_not_make_this_end_queue_more() {
    let mut pair = Pair::new(MuxConfig { channel_credit: u32::MAX, link_credit: u32::MAX, ..MuxConfig::default() });
    pair.server = Server::new(
        Arc::new(ServerConfig {
            gateway: "gw.test".into(),
            mux: MuxConfig { link_credit: 1000, ..MuxConfig::default() },
            ..ServerConfig::default()
        }),
        Cookie::new(SessionId(2), [2; 16]),
        pair.key.verifying_key().to_bytes(),
        NOW,
    );
    pair.echo = false;
    pair.connect(false);
    let channels = [pair.send(Method::GET, b""), pair.send(Method::GET, b"")];
    pair.settle();
    for channel in channels {
        pair.server.mux().respond(channel, ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() }, false);
        pair.downloads.insert(channel, Bytes::from(vec![3; 100_000]));
    }
    let mut most = 0;
    while pair.run(1).unwrap() {
        most = most.max(pair.server.mux().unsent_bytes);
        // Only who was woken writes.
        while pair.server.mux().poll_event().is_some() {}
    }
    assert_eq!(most, 1000);
    assert!(channels.iter().all(|channel| pair.answers[channel].ended), "neither starves the other");
}

#[test]
fn an_answer_that_is_reset_before_its_head_went_is_counted_once() {
    let mut pair = Pair::new(MuxConfig::default());
    pair.echo = false;
    pair.connect(false);
    let channel = pair.send(Method::GET, b"");
    pair.settle();
    pair.server.mux().respond(channel, ResponseHead { status: StatusCode::OK, headers: HeaderMap::new() }, false);
    pair.server.mux().reset(channel, ResetCode::UpstreamCut, "cut");
    pair.server.mux().reset(channel, ResetCode::UpstreamCut, "cut again");
    pair.settle();
    assert_eq!(pair.server.mux().running(), 0);
    assert!(matches!(pair.answers[&channel].closed, Some(Closed::Reset { code: ResetCode::UpstreamCut, .. })));
    assert_eq!(pair.answers[&channel].status, Some(StatusCode::OK), "the answer had begun");
}
