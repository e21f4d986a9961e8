//! Which frame goes out next: the link's own, then heads, then bodies in turn.

use bytes::{Bytes, BytesMut};

use super::{Closed, Fin, Flags, Frame, Head, Kind, Mux, ResetCode, Role, Time};

impl Mux {
    /// Returns the next frame of an exchange, or of the link itself.
    pub(in crate::session) fn poll_output(&mut self, now: Time) -> Option<Frame> {
        self.poll_control().or_else(|| self.poll_head(now)).or_else(|| self.poll_body(now))
    }

    pub(in crate::session) fn poll_control(&mut self) -> Option<Frame> {
        let link = self.link.as_mut()?;
        let frame = link.control.pop_front();
        link.control_bytes -= frame.as_ref().map_or(0, |frame| frame.payload.len());
        if link.control.is_empty() && link.control.capacity() > IDLE_QUEUE_MAX {
            link.control = std::collections::VecDeque::new();
        }
        frame
    }

    pub(in crate::session) fn poll_head(&mut self, now: Time) -> Option<Frame> {
        loop {
            let channel = self.link.as_mut()?.heads.pop_front()?;
            let Some(exchange) = self.channels.get_mut(&channel) else { continue };
            exchange.sending.queued = false;
            if !self.link.as_ref()?.takes(&exchange.sending) {
                // It waits for WELCOME, which queues it again.
                continue;
            }
            if exchange.sending.fin_sent {
                // A RESET that found its head still waiting here stands twice in the queue.
                continue;
            }
            // A head that waits goes first: the peer learns that an answer began and was cut.
            let head_waits = exchange.sending.head.is_some() && !exchange.sending.head_sent;
            if let Some(Fin::Reset(code, detail)) = exchange.sending.fin.clone().filter(|_| !head_waits) {
                if !exchange.sending.resets_now() {
                    self.queue(channel);
                    continue;
                }
                exchange.sending.fin_sent = true;
                self.send_reset(channel, code, &detail);
                self.half_sent(channel, now);
                return self.poll_control();
            }
            if let Some(frame) = self.encode_head(channel, now) {
                self.queue(channel);
                return Some(frame);
            }
        }
    }

    pub(in crate::session) fn poll_body(&mut self, now: Time) -> Option<Frame> {
        for _ in 0..self.link.as_ref()?.bodies.len() {
            let link = self.link.as_mut()?;
            let channel = link.bodies.pop_front()?;
            let credit = link.send_credit;
            let bytes_max = credit.min(BODY_FRAME_BYTES_MAX.min(u64::from(link.peer.payload_bytes_max)));
            let Some(exchange) = self.channels.get_mut(&channel) else { continue };
            if exchange.sending.unsent_bytes() > 0 && credit == 0 {
                self.link.as_mut()?.bodies.push_back(channel);
                continue;
            }
            exchange.sending.queued = false;
            let was_full = self.unsent_bytes >= self.unsent_bytes_max();
            if let Some(frame) = self.encode_body(channel, bytes_max, now) {
                self.queue(channel);
                if was_full {
                    self.wake_blocked();
                } else {
                    self.wake(channel);
                }
                return Some(frame);
            }
        }
        None
    }

    fn encode_head(&mut self, channel: u64, now: Time) -> Option<Frame> {
        let (link, exchange) = (self.link.as_mut()?, self.channels.get_mut(&channel)?);
        let mut payload = BytesMut::new();
        let (kind, encoded) = match exchange.sending.head.as_ref()? {
            Head::Request(head) => {
                let encoded =
                    link.encoder.encode_request(channel, &head.method, &head.uri, &head.headers, &mut payload);
                (Kind::Request, encoded)
            }
            Head::Response(head) => {
                (Kind::Response, link.encoder.encode_response(channel, head.status, &head.headers, &mut payload))
            }
        };
        if let Err(error) = encoded {
            self.give_up(channel, &error.to_string());
            return self.poll_control();
        }
        exchange.sending.head_sent = true;
        if let Some(early) = &mut link.early {
            early.channels.insert(channel);
            early.bytes += payload.len();
        }
        let ends = exchange.sending.ends_here();
        if ends {
            exchange.sending.fin_sent = true;
            self.half_sent(channel, now);
        }
        Some(Frame { kind, flags: if ends { Flags::END } else { Flags::NONE }, channel, payload: payload.freeze() })
    }

    /// The head or the trailers cannot be sent: the exchange ends at both ends.
    fn give_up(&mut self, channel: u64, detail: &str) {
        let told = self.role == Role::Gateway || self.is_handed_off(channel);
        self.close(channel, Closed::Reset { code: ResetCode::Malformed, detail: detail.into() });
        if told {
            self.send_reset(channel, ResetCode::Malformed, detail);
        }
    }

    fn encode_body(&mut self, channel: u64, bytes_max: u64, now: Time) -> Option<Frame> {
        let (link, exchange) = (self.link.as_mut()?, self.channels.get_mut(&channel)?);
        if let Some(payload) = exchange.sending.take(bytes_max) {
            let length = payload.len() as u64;
            link.send_credit -= length;
            self.unsent_bytes -= length;
            self.kept_bytes += length;
            let ends = exchange.sending.ends_here();
            exchange.sending.fin_sent = ends;
            self.keep_within_budget(channel);
            if ends {
                self.half_sent(channel, now);
            }
            let flags = if ends { Flags::END } else { Flags::NONE };
            return Some(Frame { kind: Kind::Body, flags, channel, payload });
        }
        if exchange.sending.unsent_bytes() > 0 {
            return None;
        }
        let Some(Fin::End(trailers)) = exchange.sending.fin.clone() else { return None };
        exchange.sending.fin_sent = true;
        let (kind, payload) = match trailers {
            Some(trailers) => {
                let mut payload = BytesMut::new();
                if let Err(error) = link.encoder.encode_trailers(channel, &trailers, &mut payload) {
                    self.give_up(channel, &error.to_string());
                    return self.poll_control();
                }
                (Kind::Trailers, payload.freeze())
            }
            None => (Kind::Body, Bytes::new()),
        };
        self.half_sent(channel, now);
        Some(Frame { kind, flags: Flags::END, channel, payload })
    }

    /// Keeps what was sent within the session's budget: the oldest finished answers go first, then this exchange's own past.
    fn keep_within_budget(&mut self, channel: u64) {
        while self.kept_bytes > self.config.kept_bytes_max
            && let Some(oldest) = self.finished.front().copied()
        {
            self.remove(oldest);
        }
        if self.kept_bytes > self.config.kept_bytes_max
            && let Some(exchange) = self.channels.get_mut(&channel)
        {
            self.kept_bytes -= exchange.sending.forget_sent();
        }
    }

    /// This end's half is out: a gateway keeps the answer for a while, a client that was reset is done.
    fn half_sent(&mut self, channel: u64, now: Time) {
        let Some(exchange) = self.channels.get_mut(&channel) else { return };
        match self.role {
            Role::Client => {
                if exchange.receiving.fin || matches!(exchange.sending.fin, Some(Fin::Reset(..))) {
                    self.remove(channel);
                }
            }
            Role::Gateway => {
                if exchange.sending.can_rewind(0) {
                    exchange.forget_at = Some(now + self.config.answers_ttl);
                    self.finished.push_back(channel);
                    while self.finished.len() > ANSWERS_MAX
                        && let Some(oldest) = self.finished.front().copied()
                    {
                        self.remove(oldest);
                    }
                } else {
                    self.remove(channel);
                }
            }
        }
    }
}

/// Largest body piece in one frame, bytes: with its head it fills one TLS record (16 KiB, RFC 8446 section 5.1), and nothing urgent
/// waits behind more than that.
const BODY_FRAME_BYTES_MAX: u64 = 16 * 1024 - 32;

/// Finished answers kept for a resume, whatever their size. Their heads count too: 64 heads of the 1 KiB that is usual.
const ANSWERS_MAX: usize = 64;

/// Frames an empty queue may keep room for while a link is idle.
const IDLE_QUEUE_MAX: usize = 4;
