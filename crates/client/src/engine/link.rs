//! One link: its carrier driven, and what it says passed on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
    time::Duration,
};

use ropeway_core::{
    Time,
    connect::ConnectionId,
    session::{ClientEvent, LinkError, Machine as _, Offered},
    wire::{Frame, FrameRef, message::RefuseCode},
};
use ropeway_net::{
    Clock,
    carrier::{Carrier, CarrierError},
    link::{LinkPeer, drive},
    scratch::with_scratch,
};
use tokio::{sync::mpsc, time::timeout};

use crate::shared::{ClientSession, Shared};

/// What a link tells the engine.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) connection: ConnectionId,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// An answer is awaited and the link says nothing.
    Doubted {
        can_move: bool,
    },
    Draining {
        close_after: Duration,
    },
    /// The link is gone: with everything said, or because of an error.
    Ended(Result<(), CarrierError>),
    /// The link takes longer to reply than on a way that loses nothing.
    Late,
    Refused {
        code: RefuseCode,
        detail: String,
        retry_after: Duration,
    },
    /// How long the answer to a question took.
    RoundTrip(Duration),
    /// The link that was doubted speaks again.
    Trusted,
    Welcome {
        resumed: bool,
        hosts: Vec<String>,
    },
}

/// One link of one session.
pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) connection: ConnectionId,
    /// Its number among the links of its session.
    pub(super) number: u64,
    pub(super) session: ClientSession,
    pub(super) reports: mpsc::Sender<Report>,
    /// The link is closed once nothing runs on it.
    pub(super) leaving: Arc<AtomicBool>,
}

impl Link {
    /// Drives the link until it ends, then says goodbye.
    pub(super) async fn run(mut self, mut carrier: Box<dyn Carrier>) {
        let ended = drive(carrier.as_mut(), &mut self).await;
        self.session.end_link(self.number);
        self.pass_on();
        let goodbye = std::future::poll_fn(|cx| with_scratch(|scratch| carrier.poll_close(cx, scratch)));
        // A peer that does not take the goodbye is left without it.
        let goodbye = timeout(GOODBYE_WITHIN, goodbye);
        let broken = ended.is_err();
        let report = self.report(What::Ended(ended));
        // The engine is gone only when the client is.
        if broken {
            let _ = self.reports.send(report).await;
            let _ = goodbye.await;
        } else {
            // Who closes the client may end the process as soon as the link has ended.
            let _ = goodbye.await;
            let _ = self.reports.send(report).await;
        }
    }

    const fn report(&self, what: What) -> Report {
        Report { connection: self.connection, what }
    }

    fn pass_on(&self) {
        while let Some(event) = self.session.peek(ropeway_core::session::Client::poll_event) {
            let what = match event {
                ClientEvent::Challenge(challenge) => {
                    let key = &self.shared.config.device_key;
                    self.session.with(|client, _| client.prove(&challenge, &|message| key.sign(message)));
                    continue;
                }
                ClientEvent::Doubted { can_move } => What::Doubted { can_move },
                ClientEvent::Draining { close_after } => What::Draining { close_after },
                ClientEvent::Gap => {
                    self.shared.feed(ropeway_core::session::Feed::gap);
                    continue;
                }
                ClientEvent::Late => What::Late,
                ClientEvent::List(document) => {
                    if let Some(sources) = self.shared.sources() {
                        sources.handle_list(&document);
                    }
                    continue;
                }
                ClientEvent::Policy(document) => {
                    let shared = &self.shared;
                    shared.density.handle_policy(&document);
                    if let Some(sources) = shared.sources() {
                        sources.handle_policy(&document);
                    }
                    // Requests that wait for a place need not wait for another to come.
                    shared.with_policy(|policy| shared.density.obey(policy, &shared.config.density));
                    continue;
                }
                ClientEvent::Push { message, redelivered } => {
                    let id = message.id.clone();
                    match self.shared.feed(|feed| feed.offer(message, redelivered)) {
                        Offered::Full | Offered::Shown => self.session.with(|client, _| client.shown(&id)),
                        Offered::Waiting => {}
                    }
                    continue;
                }
                ClientEvent::Refused { code, detail, retry_after } => What::Refused { code, detail, retry_after },
                ClientEvent::RoundTrip(rtt) => {
                    self.shared.pace.handle_rtt(rtt);
                    What::RoundTrip(rtt)
                }
                ClientEvent::Trusted => What::Trusted,
                ClientEvent::Welcome { resumed, hosts, .. } => What::Welcome { resumed, hosts },
            };
            // A gateway that says these things faster than they are taken says them once too often.
            let _ = self.reports.try_send(self.report(what));
        }
    }
}

impl LinkPeer for Link {
    fn register(&mut self, waker: &Waker) {
        (&self.session, self.number).register(waker);
    }

    fn is_current(&self) -> bool {
        (&self.session, self.number).is_current()
    }

    fn now(&self) -> Time {
        self.shared.clock.now()
    }

    fn clock(&self) -> Clock {
        self.shared.clock
    }

    fn handle_frame(&mut self, frame: FrameRef<'_>, early: bool) -> Result<(), LinkError> {
        (&self.session, self.number).handle_frame(frame, early)?;
        self.pass_on();
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        (&self.session, self.number).handle_timeout(now)?;
        self.pass_on();
        Ok(())
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        (&self.session, self.number).poll_timeout()
    }

    fn poll_output(&mut self) -> Option<Frame> {
        (&self.session, self.number).poll_output()
    }

    fn is_closing(&self) -> bool {
        self.leaving.load(Ordering::Relaxed) && self.session.peek(|client| client.mux().running()) == 0
    }
}

/// How long a goodbye may take: 1 s; our choice, three round trips of a bad mobile network.
const GOODBYE_WITHIN: Duration = Duration::from_secs(1);
