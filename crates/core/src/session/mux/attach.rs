//! A new link takes over: both ends settle what the old one left.

use std::collections::BTreeSet;

use super::{Closed, Decoder, Early, Encoder, Fin, Link, Mode, Mux, PeerLimits, ResetCode, Role, VecDeque};
use crate::wire::{
    frame::PAYLOAD_BYTES_MAX,
    message::{Settled, Settlement, Unanswered},
};

impl Mux {
    /// Lists the requests that were handed to a carrier and have no complete answer, for HELLO (client only).
    #[must_use]
    pub fn unanswered(&mut self) -> Vec<Unanswered> {
        let window = u64::from(self.config.channel_credit);
        let handed_off = self.channels.iter_mut().filter(|(_, exchange)| exchange.sending.head_sent);
        handed_off
            .map(|(channel, exchange)| {
                exchange.receiving.grant_all(window);
                Unanswered {
                    channel: *channel,
                    head_received: exchange.receiving.head,
                    body_received: exchange.receiving.received,
                    body_limit: exchange.receiving.limit,
                }
            })
            .collect()
    }

    /// Returns the link credit to announce: what the peer may send while nothing that arrived before is taken.
    #[must_use]
    pub fn link_credit(&self) -> u32 {
        let held = u32::try_from(self.unconsumed_bytes).unwrap_or(u32::MAX);
        self.config.link_credit.saturating_sub(held)
    }

    /// Attaches a link at the gateway and answers for each request the client asks about. A session that is not resumed knows
    /// nothing of them.
    pub(in crate::session) fn attach_gateway(
        &mut self,
        ordered: bool,
        peer: PeerLimits,
        resumed: bool,
        unanswered: &[Unanswered],
    ) -> Vec<Settled> {
        self.attach(ordered, peer, self.link_credit());
        let unknown = |asked: &Unanswered| Settled { channel: asked.channel, ..Settled::default() };
        let settled: Vec<Settled> =
            unanswered.iter().map(|asked| if resumed { self.settle(asked) } else { unknown(asked) }).collect();
        let unasked: Vec<u64> = self
            .channels
            .keys()
            .filter(|channel| !settled.iter().any(|settled| settled.channel == **channel))
            .copied()
            .collect();
        for channel in unasked {
            let running = self.channels.get(&channel).is_some_and(|exchange| exchange.forget_at.is_none());
            if running {
                let detail = "the client no longer waits".into();
                self.close(channel, Closed::Reset { code: ResetCode::Cancelled, detail });
            } else {
                self.remove(channel);
            }
        }
        self.queue_all();
        settled
    }

    /// Attaches a link at the client and acts on what the gateway settled. `link_credit` is what HELLO announced.
    pub(in crate::session) fn attach_client(
        &mut self,
        ordered: bool,
        peer: PeerLimits,
        link_credit: u32,
        settled: &[Settled],
    ) {
        let early = match self.link.as_mut().and_then(|link| link.early.take()) {
            Some(early) => {
                self.welcome(peer, link_credit);
                early.channels
            }
            None => {
                self.attach(ordered, peer, link_credit);
                BTreeSet::new()
            }
        };
        let channels: Vec<u64> = self.channels.keys().copied().collect();
        for channel in channels {
            let Some(exchange) = self.channels.get_mut(&channel).filter(|_| !early.contains(&channel)) else {
                continue;
            };
            if !exchange.sending.head_sent {
                exchange.sending.limit = u64::from(peer.channel_credit);
                continue;
            }
            let answer = settled.iter().find(|settled| settled.channel == channel);
            match answer.map(|answer| (answer.state(), answer)) {
                Some((Settlement::NeverSeen, _)) if exchange.sending.can_rewind(0) => {
                    exchange.sending.head_sent = false;
                    exchange.sending.limit = u64::from(peer.channel_credit);
                    self.rewind(channel, 0);
                }
                Some((Settlement::NeverSeen, _)) => self.close(channel, Closed::NeverSeen),
                Some((Settlement::Running | Settlement::Done, answer)) => {
                    exchange.sending.limit = answer.body_limit;
                    if exchange.sending.can_rewind(answer.body_received) {
                        self.rewind(channel, answer.body_received);
                    } else {
                        self.close(channel, Closed::Unknown);
                        self.send_reset(channel, ResetCode::Unreplayable, "part of the request is no longer kept");
                    }
                }
                Some((Settlement::Unknown, _)) | None => self.close(channel, Closed::Unknown),
            }
        }
        self.queue_all();
    }

    /// Attaches a link at the client whose WELCOME is still to come: a few requests may go out before.
    pub(in crate::session) fn attach_early(&mut self, ordered: bool) {
        let unknown = PeerLimits { channel_credit: 0, link_credit: 0, payload_bytes_max: 0 };
        self.attach(ordered, unknown, self.link_credit());
        if let Some(link) = self.link.as_mut() {
            link.early = Some(Early::default());
        }
        self.queue_all();
    }

    /// The link did not come about: what was sent behind HELLO is sent again, since it may be executed twice.
    pub(in crate::session) fn take_back_early(&mut self) {
        let Some(early) = self.link.as_mut().and_then(|link| link.early.as_mut()) else { return };
        for channel in std::mem::take(early).channels {
            if let Some(exchange) = self.channels.get_mut(&channel) {
                exchange.sending.head_sent = false;
                exchange.sending.fin_sent = false;
            }
        }
    }

    /// The link is gone; exchanges wait for the next.
    pub fn detach(&mut self) {
        self.link = None;
        for exchange in self.channels.values_mut() {
            exchange.sending.queued = false;
        }
        self.wake_blocked();
    }

    /// No link will take over: exchanges end as never seen, or as unknown where their head was handed to a carrier (client only).
    pub(in crate::session) fn abandon(&mut self) {
        self.detach();
        let channels: Vec<u64> = self.channels.keys().copied().collect();
        for channel in channels {
            let why = if self.is_handed_off(channel) { Closed::Unknown } else { Closed::NeverSeen };
            self.close(channel, why);
        }
    }

    /// Goes on with a link on which requests went out before WELCOME: their field blocks are part of what the encoder knows.
    fn welcome(&mut self, peer: PeerLimits, link_credit: u32) {
        if let Some(link) = self.link.as_mut() {
            link.peer = within_reason(peer);
            link.send_credit = u64::from(peer.link_credit);
            link.receive_credit = u64::from(link_credit);
        }
    }

    fn attach(&mut self, ordered: bool, peer: PeerLimits, link_credit: u32) {
        let peer = within_reason(peer);
        let mode = if ordered { Mode::Ordered } else { Mode::Unordered };
        for exchange in self.channels.values_mut() {
            exchange.sending.queued = false;
        }
        self.link = Some(Box::new(Link {
            ordered,
            early: None,
            peer,
            send_credit: u64::from(peer.link_credit),
            receive_credit: u64::from(link_credit),
            encoder: Encoder::new(mode),
            decoder: Decoder::new(),
            control: VecDeque::new(),
            control_bytes: 0,
            heads: VecDeque::new(),
            bodies: VecDeque::new(),
        }));
    }

    fn settle(&mut self, asked: &Unanswered) -> Settled {
        let mut settled = Settled { channel: asked.channel, ..Settled::default() };
        let Some(exchange) = self.channels.get_mut(&asked.channel) else {
            if self.seen.is_new(asked.channel) {
                settled.set_state(Settlement::NeverSeen);
            }
            return settled;
        };
        let sending = &mut exchange.sending;
        if !sending.can_rewind(asked.body_received) || (asked.head_received && sending.head.is_none()) {
            let detail = "part of the answer is no longer kept".into();
            self.close(asked.channel, Closed::Reset { code: ResetCode::Unreplayable, detail });
            return settled;
        }
        sending.head_sent = asked.head_received;
        sending.limit = asked.body_limit;
        let done = matches!(sending.fin, Some(Fin::End(_)));
        settled.set_state(if done { Settlement::Done } else { Settlement::Running });
        settled.body_received = exchange.receiving.received;
        exchange.receiving.grant_all(u64::from(self.config.channel_credit));
        settled.body_limit = exchange.receiving.limit;
        self.rewind(asked.channel, asked.body_received);
        settled
    }

    fn rewind(&mut self, channel: u64, offset: u64) {
        let Some(exchange) = self.channels.get_mut(&channel) else { return };
        if self.role == Role::Client && matches!(exchange.sending.fin, Some(Fin::Reset(..))) {
            // Of a request that was given up nobody needs the rest.
            self.kept_bytes -= exchange.sending.forget_sent();
            return;
        }
        let before = exchange.sending.kept_bytes();
        exchange.sending.rewind(offset);
        let moved = before - exchange.sending.kept_bytes();
        self.kept_bytes -= moved;
        self.unsent_bytes += moved;
        if exchange.forget_at.take().is_some() {
            self.finished.retain(|finished| *finished != channel);
        }
    }

    fn queue_all(&mut self) {
        let channels: Vec<u64> = self.channels.keys().copied().collect();
        for channel in channels {
            self.queue(channel);
            self.grant(channel);
        }
        self.wake_blocked();
    }
}

/// Every end takes frames of 64 KiB: a field block cannot be split.
fn within_reason(peer: PeerLimits) -> PeerLimits {
    PeerLimits { payload_bytes_max: peer.payload_bytes_max.max(PAYLOAD_BYTES_MAX as u32), ..peer }
}
