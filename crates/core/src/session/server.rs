//! The gateway's end of a session.

use std::{
    collections::{BTreeSet, VecDeque},
    time::Duration,
};

use bytes::Bytes;

use super::{
    Cookie, LinkError, Machine, Mux, MuxConfig, Outbox, OutboxConfig, Papers, PeerLimits, PushMessage, Refusal, Role,
    SessionId,
};
use crate::{
    Time,
    wire::{
        Frame, FrameRef, Kind, VARINT_MAX,
        message::{Ack, Drain, Hello, RefuseCode, Topics, Welcome},
    },
};

/// Bounds and constants of a session at the gateway.
#[derive(Clone, Debug, Default)]
pub struct ServerConfig {
    /// Name of the gateway, said in WELCOME.
    pub gateway: String,
    /// Authorities the gateway routes, said in WELCOME.
    pub hosts: Vec<String>,
    /// Bounds of the exchanges.
    pub mux: MuxConfig,
    /// Bounds of push.
    pub outbox: OutboxConfig,
    /// Heartbeats the client may choose between: shortest and longest.
    pub heartbeat: (Duration, Duration),
    /// A link from which nothing came for so long is dead; zero stands for the longest heartbeat and a margin.
    pub silence_timeout: Duration,
    /// Topics one session may subscribe to.
    pub topics_max: usize,
}

/// What a session tells the gateway.
#[derive(Debug, PartialEq, Eq)]
pub enum ServerEvent {
    /// The app was shown these messages.
    Acked(Vec<String>),
    /// The bound of the outbox pushed these messages out.
    Dropped(Vec<String>),
    /// So many requests were refused unexecuted: too many were open, or the gateway has stopped.
    Refused(u64),
    /// The session wants messages of this topic.
    Subscribed(String),
    /// It no longer wants them.
    Unsubscribed(String),
    /// This message was handed to the carrier.
    Written(String),
}

/// The gateway's end of a session: exchanges, outbox, topics, and the cookie that lets a new link take over.
#[derive(Debug)]
pub struct Server {
    config: std::sync::Arc<ServerConfig>,
    cookie: Cookie,
    device_key: [u8; 32],
    mux: Mux,
    outbox: Outbox,
    papers: Papers,
    /// The access list that the client had at the start of this link.
    list_epoch: u64,
    topics: BTreeSet<String>,
    events: VecDeque<ServerEvent>,
    /// When the peer was last heard.
    heard: Time,
    draining: bool,
    stopped: bool,
}

impl Server {
    /// Makes a session for the device with this key.
    #[must_use]
    pub fn new(config: std::sync::Arc<ServerConfig>, cookie: Cookie, device_key: [u8; 32], now: Time) -> Self {
        Self {
            mux: Mux::new(Role::Gateway, config.mux),
            outbox: Outbox::new(config.outbox),
            papers: Papers::default(),
            list_epoch: 0,
            config,
            cookie,
            device_key,
            topics: BTreeSet::new(),
            events: VecDeque::new(),
            heard: now,
            draining: false,
            stopped: false,
        }
    }

    /// Returns the number of the session.
    #[must_use]
    pub const fn id(&self) -> SessionId {
        self.cookie.session()
    }

    /// Says whether a HELLO with this cookie, signed by this key, may take the session over.
    ///
    /// # Errors
    ///
    /// A [`Refusal`] for a foreign device or an old generation.
    pub fn check_resume(&self, cookie: &Cookie, device_key: &[u8; 32]) -> Result<(), Refusal> {
        if self.device_key != *device_key || !self.cookie.accepts(cookie) {
            return Err(Refusal::new(RefuseCode::ResumeRefused, "the resume cookie is old or another device's"));
        }
        Ok(())
    }

    /// Attaches the link that HELLO came over; WELCOME goes out first.
    pub fn attach(&mut self, hello: &Hello, ordered: bool, resumed: bool, unix_ms: u64, now: Time) {
        self.heard = now;
        self.cookie.advance();
        let peer = PeerLimits {
            channel_credit: hello.channel_credit,
            link_credit: hello.link_credit,
            payload_bytes_max: hello.frame_bytes_max,
        };
        self.list_epoch = hello.list_epoch;
        let settled = self.mux.attach_gateway(ordered, peer, resumed, &hello.unanswered);
        let acked = self.outbox.resume(if resumed { hello.push_sequence } else { 0 });
        if !acked.is_empty() {
            self.events.push_back(ServerEvent::Acked(acked));
        }
        let push_sequence = self.outbox.sequence_before();
        let lost_before = if resumed { push_sequence > hello.push_sequence } else { !hello.resume.is_empty() };
        self.mux.send_control(Frame::control(
            Kind::Welcome,
            &Welcome {
                resume: Bytes::copy_from_slice(&self.cookie.encode()),
                resumed,
                gap: lost_before,
                push_sequence,
                settled,
                channel_credit: self.config.mux.channel_credit,
                link_credit: self.mux.link_credit(),
                frame_bytes_max: self.config.mux.payload_bytes_max,
                time_ms: unix_ms,
                heartbeat_min_ms: millis(self.config.heartbeat.0),
                heartbeat_max_ms: millis(self.config.heartbeat.1),
                hosts: self.config.hosts.clone(),
                gateway: self.config.gateway.clone(),
                channels_max: self.config.mux.channels_max,
            },
        ));
        for topic in &hello.topics {
            self.subscribe(topic);
        }
        if self.draining {
            self.send_drain(VARINT_MAX, Duration::ZERO);
        }
    }

    /// Queues a message, unless one of this id is on its way already.
    pub fn push(&mut self, message: PushMessage) {
        if self.outbox.holds(&message.id) {
            return;
        }
        let dropped = self.outbox.push(message);
        if !dropped.is_empty() {
            self.events.push_back(ServerEvent::Dropped(dropped));
        }
    }

    /// Returns the epoch of the access list that HELLO named.
    #[must_use]
    pub const fn list_epoch(&self) -> u64 {
        self.list_epoch
    }

    /// Sends an access list, in place of one that still waits. One longer than 16 KiB is sent empty, which asks the client to fetch
    /// it. Without a link nothing is sent.
    pub fn send_list(&mut self, document: &Bytes) {
        if self.mux.is_attached() {
            self.papers.set_list(document);
        }
    }

    /// Sends a policy, in place of one that still waits. Without a link, and of one longer than 16 KiB, nothing is sent: the list
    /// holds it as well.
    pub fn send_policy(&mut self, document: &Bytes) {
        if self.mux.is_attached() {
            self.papers.set_policy(document);
        }
    }

    /// Asks the client to move; requests still arrive until [`stop`](Self::stop).
    pub fn drain(&mut self, close_after: Duration) {
        self.draining = true;
        self.send_drain(VARINT_MAX, close_after);
    }

    /// Refuses requests from now on and names the last one that was taken.
    pub fn stop(&mut self) {
        self.draining = true;
        self.stopped = true;
        self.mux.refuse_new();
        self.send_drain(self.mux.highest_seen(), Duration::ZERO);
    }

    /// Says whether [`stop`](Self::stop) was called: once everything is sent, the link may be closed.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Takes another configuration for the links to come. The bounds must be those of the old one.
    pub fn reconfigure(&mut self, config: std::sync::Arc<ServerConfig>) {
        self.config = config;
    }

    /// Says whether a link is attached.
    #[must_use]
    pub fn is_attached(&self) -> bool {
        self.mux.is_attached()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        self.events.pop_front()
    }

    /// Returns the topics of the session.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.iter().map(String::as_str)
    }

    fn subscribe(&mut self, topic: &str) {
        let valid = !topic.is_empty() && topic.len() <= TOPIC_BYTES_MAX;
        if valid && self.topics.len() < self.config.topics_max && self.topics.insert(topic.into()) {
            self.events.push_back(ServerEvent::Subscribed(topic.into()));
        }
    }

    fn send_drain(&mut self, last_channel: u64, close_after: Duration) {
        let drain = Drain { last_channel, close_after_ms: millis(close_after) };
        self.mux.send_control(Frame::control(Kind::Drain, &drain));
    }
}

impl Machine for Server {
    fn handle_frame(&mut self, frame: FrameRef<'_>, now: Time) -> Result<(), LinkError> {
        self.heard = now;
        self.mux.check_backlog()?;
        match frame.kind {
            Kind::Ping => self.mux.send_control(Frame { kind: Kind::Pong, ..frame.to_owned() }),
            Kind::Pong | Kind::Probe => {}
            Kind::Ack => {
                let ack: Ack = frame.message()?;
                if ack.push_sequence > 0 {
                    let acked = self.outbox.acknowledge(ack.push_sequence);
                    if !acked.is_empty() {
                        self.events.push_back(ServerEvent::Acked(acked));
                    }
                }
                self.mux.handle_frame(frame)?;
            }
            Kind::Subscribe => {
                for topic in frame.message::<Topics>()?.topics {
                    self.subscribe(&topic);
                }
            }
            Kind::Unsubscribe => {
                for topic in frame.message::<Topics>()?.topics {
                    if self.topics.remove(&topic) {
                        self.events.push_back(ServerEvent::Unsubscribed(topic));
                    }
                }
            }
            Kind::Request | Kind::Stream => {
                self.mux.handle_frame(frame)?;
                let refused = self.mux.take_refused();
                if refused > 0 {
                    self.events.push_back(ServerEvent::Refused(refused));
                }
            }
            Kind::Body | Kind::Trailers | Kind::Reset | Kind::Credit => self.mux.handle_frame(frame)?,
            Kind::Hello
            | Kind::Proof
            | Kind::Welcome
            | Kind::Refuse
            | Kind::Response
            | Kind::Push
            | Kind::Sync
            | Kind::Redirect
            | Kind::List
            | Kind::Policy
            | Kind::Drain => return Err(LinkError::Unexpected { kind: frame.kind }),
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        self.mux.handle_timeout(now);
        if self.mux.is_attached() && now >= self.silent_at() {
            return Err(LinkError::Silent);
        }
        Ok(())
    }

    fn poll_timeout(&self) -> Option<(Time, &'static str)> {
        let answers = self.mux.poll_timeout().map(|at| (at, "forget an answer"));
        let silent = self.mux.is_attached().then(|| (self.silent_at(), "peer is silent"));
        [answers, silent].into_iter().flatten().min()
    }

    fn poll_output(&mut self, now: Time) -> Option<Frame> {
        if let Some(frame) = self.mux.poll_control().or_else(|| self.mux.poll_head(now)) {
            return Some(frame);
        }
        if let Some(frame) = self.papers.poll_output() {
            return Some(frame);
        }
        if self.mux.is_attached()
            && let Some((frame, id)) = self.outbox.poll_output()
        {
            self.events.push_back(ServerEvent::Written(id));
            return Some(frame);
        }
        self.mux.poll_body(now)
    }

    fn handle_detached(&mut self, _now: Time) {
        self.papers = Papers::default();
        self.mux.detach();
    }

    fn mux(&mut self) -> &mut Mux {
        &mut self.mux
    }
}

impl Server {
    fn silent_at(&self) -> Time {
        let silence_timeout = self.config.silence_timeout;
        let beat = self.config.heartbeat.1 + SILENCE_MARGIN;
        self.heard + if silence_timeout.is_zero() { beat } else { silence_timeout }
    }
}

fn millis(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Time beyond the longest heartbeat before a silent link is given up: Mars waits 8 s for a reply to a heartbeat (`longlink.cc`), and
/// a beat may come that late as well.
const SILENCE_MARGIN: Duration = Duration::from_secs(16);

/// Longest name of a topic.
const TOPIC_BYTES_MAX: usize = 256;
