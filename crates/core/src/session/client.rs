//! The client's end of a session.

use std::{collections::VecDeque, time::Duration};

use bytes::Bytes;
use prost::Message as _;

use super::{
    Inbox, LinkError, Machine, Mux, MuxConfig, PeerLimits, PushMessage, Received, Role,
    accept::{HELLO_CONTEXT, PROOF_CONTEXT, signed_input},
    vigil::{Vigil, Watch},
};
use crate::{
    Time,
    heartbeat::{Due, Heartbeat},
    wire::{
        Frame, FrameRef, Kind, VARINT_MAX,
        message::{
            Ack, Document, Drain, Hello, NetworkKind, Proof, Push, Refuse, RefuseCode, SignedHello, Topics, Welcome,
        },
    },
};

/// Who the client is, the same for every link.
#[derive(Clone, Debug, Default)]
pub struct ClientConfig {
    /// Name of the app: the audience of the ticket.
    pub app: String,
    /// Id of the device.
    pub device: String,
    /// Version of the library.
    pub sdk: String,
    /// Operating system.
    pub platform: String,
    /// Bounds of the exchanges.
    pub mux: MuxConfig,
}

/// What a HELLO says that differs from link to link.
#[derive(Clone, Debug)]
pub struct HelloFacts {
    /// The ticket.
    pub ticket: String,
    /// Name of the gateway, as its certificate carries it.
    pub gateway: String,
    /// The network the link runs over.
    pub network: NetworkKind,
    /// The device's clock, milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// 16 random bytes.
    pub nonce: [u8; 16],
    /// W3C trace parent, or empty.
    pub trace_parent: String,
    /// Frames arrive in the order they are sent (`tls`, `ws`).
    pub ordered: bool,
    /// Time between two heartbeats on this carrier.
    pub heartbeat: Duration,
}

/// Where the link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientPhase {
    /// HELLO went out.
    Greeting,
    /// No link.
    Offline,
    /// WELCOME arrived.
    Open,
}

/// What the session tells the client.
#[derive(Debug)]
pub enum ClientEvent {
    /// The gateway wants this signed instead of the connection's exporter (`ws`); answer with [`Client::prove`].
    Challenge([u8; 32]),
    /// The gateway asks the client to move; the link closes after this time.
    Draining {
        /// Time until the gateway closes.
        close_after: Duration,
    },
    /// An answer is awaited and the link says nothing, not even when asked: another is to be sought beside it.
    Doubted {
        /// Whether another link could take over all that is under way. Where it could not, it is for a session of its own.
        can_move: bool,
    },
    /// Messages may have been lost.
    Gap,
    /// The link was asked whether it lives, and the reply takes longer than on a way that loses nothing.
    Late,
    /// An access list that the gateway sends, not verified; empty asks the client to fetch it.
    List(Bytes),
    /// A policy that the gateway sends, not read yet.
    Policy(Bytes),
    /// A message for the app.
    Push {
        /// The message.
        message: PushMessage,
        /// It was sent before; a crash may have hidden that it was shown.
        redelivered: bool,
    },
    /// The gateway refused the link.
    Refused {
        /// The reason.
        code: RefuseCode,
        /// The reason, in words.
        detail: String,
        /// When to come back; zero leaves it to the client.
        retry_after: Duration,
    },
    /// How long the answer to a PING took.
    RoundTrip(Duration),
    /// The link that was doubted speaks again.
    Trusted,
    /// The link is open.
    Welcome {
        /// The session goes on.
        resumed: bool,
        /// Authorities the gateway routes.
        hosts: Vec<String>,
        /// Gateway's clock, milliseconds since the Unix epoch.
        gateway_unix_ms: u64,
    },
}

/// The client's end of a session: exchanges, inbox, topics, heartbeat, and the cookie of the last WELCOME.
#[derive(Debug)]
pub struct Client {
    config: ClientConfig,
    mux: Mux,
    inbox: Inbox,
    topics: Vec<String>,
    /// The topics that HELLO named, until WELCOME comes.
    greeted: Vec<String>,
    resume: Bytes,
    list_epoch: u64,
    phase: ClientPhase,
    greeting: VecDeque<Frame>,
    link_credit: u32,
    ordered: bool,
    heartbeat: Heartbeat,
    vigil: Vigil,
    /// Counts the PINGs.
    pings: u8,
    /// The newest, while it is unanswered: its number, and when it was sent.
    pinged: Option<(u8, Time)>,
    /// When HELLO was made.
    greeted_at: Time,
    /// Answers that came before WELCOME, which is on a stream of its own where frames are not ordered.
    early: Vec<Frame>,
    events: VecDeque<ClientEvent>,
}

impl Client {
    /// Makes a session that has no link yet.
    #[must_use]
    pub fn new(config: ClientConfig, now: Time) -> Self {
        Self {
            mux: Mux::new(Role::Client, config.mux),
            config,
            inbox: Inbox::default(),
            topics: Vec::new(),
            greeted: Vec::new(),
            resume: Bytes::new(),
            list_epoch: 0,
            phase: ClientPhase::Offline,
            greeting: VecDeque::new(),
            link_credit: 0,
            ordered: true,
            heartbeat: Heartbeat::new(Duration::MAX, now),
            vigil: Vigil::new(now),
            pings: 0,
            pinged: None,
            greeted_at: now,
            early: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// Begins a link, and ends the one before: HELLO is the next output. `sign` signs with the device's key.
    pub fn connect(&mut self, facts: HelloFacts, sign: &dyn Fn(&[u8]) -> [u8; 64], now: Time) {
        self.handle_detached(now);
        self.link_credit = self.mux.link_credit();
        self.ordered = facts.ordered;
        self.heartbeat = Heartbeat::new(facts.heartbeat, now);
        self.vigil = Vigil::new(now);
        self.pinged = None;
        self.greeted_at = now;
        self.phase = ClientPhase::Greeting;
        self.greeted = self.topics.clone();
        let hello = Hello {
            ticket: facts.ticket,
            app: self.config.app.clone(),
            device: self.config.device.clone(),
            sdk: self.config.sdk.clone(),
            platform: self.config.platform.clone(),
            network: facts.network.into(),
            unit: String::new(),
            unit_epoch: 0,
            resume: self.resume.clone(),
            push_sequence: self.inbox.shown(),
            unanswered: self.mux.unanswered(),
            list_epoch: self.list_epoch,
            trace_parent: facts.trace_parent,
            time_ms: facts.unix_ms,
            nonce: Bytes::copy_from_slice(&facts.nonce),
            gateway: facts.gateway,
            channel_credit: self.config.mux.channel_credit,
            link_credit: self.link_credit,
            frame_bytes_max: self.config.mux.payload_bytes_max,
            topics: self.topics.clone(),
        }
        .encode_to_vec();
        let signature = sign(&signed_input(HELLO_CONTEXT, &hello));
        let signed = SignedHello { hello: hello.into(), signature: Bytes::copy_from_slice(&signature) };
        self.greeting = VecDeque::from([Frame::control(Kind::Hello, &signed)]);
    }

    /// Proves that HELLO belongs to this connection: `binding` is the TLS exporter, or the challenge on `ws`. Requests that may be executed
    /// twice and have no body go out behind it.
    pub fn prove(&mut self, binding: &[u8; 32], sign: &dyn Fn(&[u8]) -> [u8; 64]) {
        let signature = Bytes::copy_from_slice(&sign(&signed_input(PROOF_CONTEXT, binding)));
        self.greeting.push_back(Frame::control(Kind::Proof, &Proof { challenge: Bytes::new(), signature }));
        self.mux.attach_early(self.ordered);
    }

    /// Says which access list the client has: the gateways of later links send a newer one.
    pub const fn set_list_epoch(&mut self, epoch_ms: u64) {
        self.list_epoch = epoch_ms;
    }

    /// Returns where the link is.
    #[must_use]
    pub const fn phase(&self) -> ClientPhase {
        self.phase
    }

    /// Gives the session up: no link will take it over, and its exchanges end as never seen or, once handed off, as unknown.
    pub fn abandon(&mut self) {
        self.resume = Bytes::new();
        self.cut();
    }

    /// Ends what is under way, without a link, as never seen or, once handed off, as unknown; the session waits on for one.
    pub fn cut(&mut self) {
        self.mux.abandon();
    }

    /// Asks the gateway now whether the link still lives, as after a change of network.
    pub fn check(&mut self, now: Time) {
        if self.phase == ClientPhase::Open {
            self.heartbeat.hurry(now);
        }
    }

    /// Subscribes to a topic, now and on every later link; `false` if there are as many as HELLO may carry.
    pub fn subscribe(&mut self, topic: &str) -> bool {
        if self.topics.iter().any(|known| known == topic) {
            return true;
        }
        let has_room = self.topics.len() < TOPICS_MAX;
        if has_room {
            self.topics.push(topic.into());
            self.send_topics(Kind::Subscribe, topic);
        }
        has_room
    }

    /// Ends the subscription to a topic.
    pub fn unsubscribe(&mut self, topic: &str) {
        self.topics.retain(|known| known != topic);
        self.send_topics(Kind::Unsubscribe, topic);
    }

    /// Says that the app took a message.
    pub fn shown(&mut self, message_id: &str) {
        self.inbox.show(message_id);
        self.acknowledge();
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// Says what changed between HELLO and WELCOME.
    fn send_changed_topics(&mut self) {
        let greeted = std::mem::take(&mut self.greeted);
        let changes = |kind, now: &[String], before: &[String]| -> Vec<(Kind, String)> {
            now.iter().filter(|topic| !before.contains(topic)).map(|topic| (kind, topic.clone())).collect()
        };
        let added = changes(Kind::Subscribe, &self.topics, &greeted);
        let removed = changes(Kind::Unsubscribe, &greeted, &self.topics);
        for (kind, topic) in added.into_iter().chain(removed) {
            self.send_topics(kind, &topic);
        }
    }

    fn send_topics(&mut self, kind: Kind, topic: &str) {
        self.mux.send_control(Frame::control(kind, &Topics { topics: vec![topic.into()] }));
    }

    fn awaits_answer(&self) -> bool {
        self.mux.running() > 0
    }

    /// Asks the gateway for a PONG, which has the number of its PING: it may be that several are under way.
    fn ping(&mut self, now: Time) {
        self.pings = self.pings.wrapping_add(1);
        let number = self.pings;
        self.pinged = Some((number, now));
        let (flags, payload) = (crate::wire::Flags::NONE, Bytes::copy_from_slice(&[number]));
        self.mux.send_control(Frame { kind: Kind::Ping, flags, channel: 0, payload });
    }

    /// Takes in the answer to a PING; what the newest took is a round trip of the link.
    fn handle_pong(&mut self, payload: &[u8], now: Time) {
        let newest = self.pinged.take_if(|(number, _)| payload == [*number]);
        if let Some((_, asked)) = newest {
            let rtt = now.since(asked);
            self.vigil.handle_rtt(rtt);
            self.events.push_back(ClientEvent::RoundTrip(rtt));
        }
    }

    fn acknowledge(&mut self) {
        if self.mux.is_attached()
            && let Some(push_sequence) = self.inbox.poll_acknowledge()
        {
            self.mux.send_control(Frame::control(Kind::Ack, &Ack { push_sequence, fields: Vec::new() }));
        }
    }

    fn handle_welcome(&mut self, welcome: Welcome, now: Time) {
        let peer = PeerLimits {
            channel_credit: welcome.channel_credit,
            link_credit: welcome.link_credit,
            payload_bytes_max: welcome.frame_bytes_max,
        };
        self.resume = welcome.resume;
        self.phase = ClientPhase::Open;
        self.mux.attach_client(self.ordered, peer, self.link_credit, &welcome.settled);
        self.send_changed_topics();
        self.inbox.begin(welcome.push_sequence, welcome.resumed);
        if welcome.gap {
            self.events.push_back(ClientEvent::Gap);
        }
        let bounds = (millis(welcome.heartbeat_min_ms), millis(welcome.heartbeat_max_ms));
        if !bounds.1.is_zero() {
            self.heartbeat.set_interval(bounds.0, bounds.1);
        }
        self.heartbeat.handle_sent(now);
        self.vigil.handle_rtt(now.since(self.greeted_at));
        self.events.push_back(ClientEvent::Welcome {
            resumed: welcome.resumed,
            hosts: welcome.hosts,
            gateway_unix_ms: welcome.time_ms,
        });
    }

    fn handle_challenge(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        let proof: Proof = frame.message()?;
        let unexpected = |_| LinkError::Unexpected { kind: Kind::Proof };
        let challenge = proof.challenge.as_ref().try_into().map_err(unexpected)?;
        self.events.push_back(ClientEvent::Challenge(challenge));
        Ok(())
    }

    fn handle_push(&mut self, push: Push) {
        match self.inbox.receive(push.sequence, &push.message_id) {
            Received::Duplicate => self.acknowledge(),
            Received::Fresh { gap } => {
                if gap {
                    self.events.push_back(ClientEvent::Gap);
                }
                let message = PushMessage {
                    id: push.message_id,
                    topic: push.topic,
                    content_type: push.content_type,
                    payload: push.payload,
                    time_ms: push.time_ms,
                };
                self.events.push_back(ClientEvent::Push { message, redelivered: push.redelivered });
            }
        }
    }

    fn handle_drain(&mut self, drain: &Drain) {
        if drain.last_channel < VARINT_MAX {
            self.mux.handle_last_channel(drain.last_channel);
        }
        self.events.push_back(ClientEvent::Draining { close_after: millis(drain.close_after_ms) });
    }
}

impl Machine for Client {
    fn handle_frame(&mut self, frame: FrameRef<'_>, now: Time) -> Result<(), LinkError> {
        self.heartbeat.handle_received();
        if self.vigil.handle_received(frame.kind == Kind::Pong, now) {
            self.events.push_back(ClientEvent::Trusted);
        }
        self.mux.check_backlog()?;
        match (frame.kind, self.phase) {
            (Kind::Refuse, ClientPhase::Greeting | ClientPhase::Open) => {
                let refuse: Refuse = frame.message()?;
                self.mux.take_back_early();
                let (code, retry_after) = (refuse.code(), millis(refuse.retry_after_ms));
                self.events.push_back(ClientEvent::Refused { code, detail: refuse.detail, retry_after });
            }
            (Kind::Proof, ClientPhase::Greeting) => self.handle_challenge(frame)?,
            (Kind::Welcome, ClientPhase::Greeting) => {
                self.handle_welcome(frame.message()?, now);
                for early in std::mem::take(&mut self.early) {
                    self.mux.handle_frame(early.as_ref())?;
                }
            }
            (Kind::Response | Kind::Body | Kind::Trailers | Kind::Reset, ClientPhase::Greeting)
                if !self.ordered && self.early.len() < EARLY_FRAMES_MAX =>
            {
                self.early.push(frame.to_owned());
            }
            (Kind::Ping, ClientPhase::Open) => self.mux.send_control(Frame { kind: Kind::Pong, ..frame.to_owned() }),
            (Kind::Probe, ClientPhase::Open) => self.mux.send_control(frame.to_owned()),
            (Kind::Pong, ClientPhase::Open) => self.handle_pong(frame.payload, now),
            (Kind::Push, ClientPhase::Open) => self.handle_push(frame.message()?),
            (Kind::Drain, ClientPhase::Open) => self.handle_drain(&frame.message()?),
            (Kind::List, ClientPhase::Open) => {
                self.events.push_back(ClientEvent::List(frame.message::<Document>()?.document));
            }
            (Kind::Policy, ClientPhase::Open) => {
                self.events.push_back(ClientEvent::Policy(frame.message::<Document>()?.document));
            }
            // Later versions of the gateway may send this; this client has no use for it.
            (Kind::Redirect, ClientPhase::Open) => {}
            (
                Kind::Response | Kind::Body | Kind::Trailers | Kind::Reset | Kind::Credit | Kind::Ack,
                ClientPhase::Open,
            ) => self.mux.handle_frame(frame)?,
            (kind, _) => return Err(LinkError::Unexpected { kind }),
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        if self.phase != ClientPhase::Open {
            return Ok(());
        }
        match self.heartbeat.handle_timeout(now) {
            Due::Dead => return Err(LinkError::Silent),
            Due::Nothing => {}
            Due::Ping => self.ping(now),
        }
        if self.awaits_answer() {
            match self.vigil.handle_timeout(now) {
                Watch::Ask => self.ping(now),
                Watch::Dead => return Err(LinkError::Silent),
                Watch::Doubt if self.mux.can_move() || self.vigil.was_put_off() => {
                    self.vigil.handle_doubted();
                    self.events.push_back(ClientEvent::Doubted { can_move: self.mux.can_move() });
                }
                Watch::Late => self.events.push_back(ClientEvent::Late),
                // What is under way goes on where the link only stalls.
                Watch::Doubt => self.vigil.handle_put_off(now),
                Watch::Nothing => {}
            }
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        if self.phase != ClientPhase::Open {
            return None;
        }
        let vigil = self.vigil.poll_timeout().filter(|_| self.awaits_answer());
        let vigil = vigil.map(|at| (at, "an answer is late"));
        [Some(self.heartbeat.poll_timeout()), vigil].into_iter().flatten().min()
    }

    fn poll_output(&mut self, now: Time) -> Option<Frame> {
        let frame = self.greeting.pop_front().or_else(|| self.mux.poll_output(now))?;
        self.heartbeat.handle_sent(now);
        if matches!(frame.kind, Kind::Body | Kind::Request | Kind::Trailers) {
            self.vigil.handle_sent(frame.payload.len(), now);
        }
        Some(frame)
    }

    fn handle_detached(&mut self, _now: Time) {
        self.phase = ClientPhase::Offline;
        self.mux.take_back_early();
        self.early = Vec::new();
        self.greeting.clear();
        self.mux.detach();
    }

    fn mux(&mut self) -> &mut Mux {
        &mut self.mux
    }
}

fn millis(millis: u32) -> Duration {
    Duration::from_millis(u64::from(millis))
}

/// Frames of answers kept until WELCOME comes: of 16 requests the heads and what one flight of QUIC carries of their bodies.
const EARLY_FRAMES_MAX: usize = 64;

/// Topics a client may subscribe to, as many as HELLO may carry.
const TOPICS_MAX: usize = 100;
