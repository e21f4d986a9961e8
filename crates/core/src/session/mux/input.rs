//! What the frames of exchanges do.

use bytes::Bytes;

use super::{
    Ack, Channel, Closed, Credit, Flags, Kind, Mux, MuxEvent, Receiving, Reset, ResetCode, Role, Sending, VARINT_MAX,
};
use crate::{session::LinkError, wire::FrameRef};

impl Mux {
    /// Takes a frame of an exchange, a CREDIT or the field part of an ACK.
    ///
    /// # Errors
    ///
    /// A [`LinkError`] that closes the link.
    pub(in crate::session) fn handle_frame(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        match (frame.kind, self.role) {
            (Kind::Request, Role::Gateway) => self.handle_request(frame),
            (Kind::Response, Role::Client) => self.handle_response(frame),
            (Kind::Stream, Role::Gateway) => self.handle_stream(frame),
            (Kind::Body, _) => self.handle_body(frame),
            (Kind::Trailers, _) => self.handle_trailers(frame),
            (Kind::Reset, _) => self.handle_reset(frame),
            (Kind::Credit, _) => self.handle_credit(frame),
            (Kind::Ack, _) => self.handle_fields_ack(&frame.message()?),
            (kind, _) => Err(LinkError::Unexpected { kind }),
        }
    }

    fn handle_request(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        let link = self.link.as_mut().ok_or(LinkError::Unexpected { kind: frame.kind })?;
        if frame.channel == 0 {
            return Err(LinkError::UnknownChannel(0));
        }
        let head = link.decoder.decode_request(frame.payload)?;
        let limit = u64::from(link.peer.channel_credit);
        if !self.seen.mark(frame.channel) {
            return Err(LinkError::DuplicateChannel(frame.channel));
        }
        if self.refusing || self.running() >= self.config.channels_max as usize {
            self.refused += 1;
            self.send_reset(frame.channel, ResetCode::Refused, "not executed: no more requests on this link");
            return Ok(());
        }
        let end = frame.flags.contains(Flags::END);
        let mut receiving = Receiving::new(u64::from(self.config.channel_credit));
        receiving.head = true;
        receiving.fin = end;
        let exchange = Box::new(Channel { sending: Sending::new(None, limit), receiving, forget_at: None });
        self.channels.insert(frame.channel, exchange);
        self.events.push_back(MuxEvent::Request { channel: frame.channel, head, end });
        Ok(())
    }

    /// Turns a stream down without hurting the other exchanges: this version knows the frame, and carries no streams yet.
    fn handle_stream(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        if self.link.is_none() || frame.channel == 0 {
            return Err(LinkError::Unexpected { kind: frame.kind });
        }
        // What follows the first frame was on its way.
        if self.seen.mark(frame.channel) {
            self.refused += 1;
            self.send_reset(frame.channel, ResetCode::Unsupported, "not executed: streams are not supported");
        }
        Ok(())
    }

    fn handle_response(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        let link = self.link.as_mut().ok_or(LinkError::Unexpected { kind: frame.kind })?;
        let head = link.decoder.decode_response(frame.payload)?;
        link.encoder.acknowledge(frame.channel);
        if !link.ordered {
            self.acknowledge_fields(frame.channel);
        }
        if !self.expects(frame)? {
            return Ok(());
        }
        let Some(exchange) = self.channels.get_mut(&frame.channel) else { return Ok(()) };
        if exchange.receiving.head {
            return Err(LinkError::Unexpected { kind: frame.kind });
        }
        exchange.receiving.head = true;
        let end = frame.flags.contains(Flags::END);
        self.events.push_back(MuxEvent::Response { channel: frame.channel, head, end });
        if end {
            self.half_received(frame.channel);
        }
        Ok(())
    }

    fn handle_body(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        let length = frame.payload.len() as u64;
        let link = self.link.as_mut().ok_or(LinkError::Unexpected { kind: frame.kind })?;
        let excess = length.saturating_sub(link.receive_credit);
        if excess > 0 {
            return Err(LinkError::LinkCreditExceeded { excess });
        }
        link.receive_credit -= length;
        self.unconsumed_bytes += length;
        if !self.expects(frame)? {
            self.consumed(frame.channel, length);
            return Ok(());
        }
        let Some(exchange) = self.channels.get_mut(&frame.channel) else { return Ok(()) };
        let receiving = &mut exchange.receiving;
        if receiving.fin {
            // After a resume the peer may repeat an END that did arrive.
            self.consumed(0, length);
            return if length == 0 { Ok(()) } else { Err(LinkError::Unexpected { kind: frame.kind }) };
        }
        if !receiving.head {
            return Err(LinkError::Unexpected { kind: frame.kind });
        }
        if receiving.received + length > receiving.limit {
            self.consumed(0, length);
            self.exceed(frame.channel);
            return Ok(());
        }
        receiving.received += length;
        if length > 0 {
            let data = Bytes::copy_from_slice(frame.payload);
            self.events.push_back(MuxEvent::Body { channel: frame.channel, data });
        }
        if frame.flags.contains(Flags::END) {
            self.events.push_back(MuxEvent::End { channel: frame.channel, trailers: None });
            self.half_received(frame.channel);
        }
        Ok(())
    }

    fn handle_trailers(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        let link = self.link.as_mut().ok_or(LinkError::Unexpected { kind: frame.kind })?;
        let trailers = link.decoder.decode_trailers(frame.payload)?;
        if !self.expects(frame)? {
            return Ok(());
        }
        let Some(exchange) = self.channels.get_mut(&frame.channel) else { return Ok(()) };
        if exchange.receiving.fin {
            return Ok(());
        }
        if !exchange.receiving.head {
            return Err(LinkError::Unexpected { kind: frame.kind });
        }
        self.events.push_back(MuxEvent::End { channel: frame.channel, trailers: Some(trailers) });
        self.half_received(frame.channel);
        Ok(())
    }

    fn handle_reset(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        let reset: Reset = frame.message()?;
        // A gateway resets what it decoded. A client's reset says nothing of the answer's head, which it acknowledges by itself.
        if self.role == Role::Client
            && let Some(link) = self.link.as_mut()
        {
            link.encoder.acknowledge(frame.channel);
        }
        if self.expects(frame)? {
            let code = reset.code();
            let why = match (self.role, code) {
                (Role::Client, ResetCode::Refused) => Closed::NeverSeen,
                _ => Closed::Reset { code, detail: reset.detail },
            };
            self.close(frame.channel, why);
        }
        Ok(())
    }

    fn handle_credit(&mut self, frame: FrameRef<'_>) -> Result<(), LinkError> {
        let Credit { bytes } = frame.message()?;
        if frame.channel == 0 {
            let link = self.link.as_mut().ok_or(LinkError::Unexpected { kind: frame.kind })?;
            link.send_credit = link.send_credit.saturating_add(bytes).min(VARINT_MAX);
            self.wake_blocked();
        } else if self.expects(frame)?
            && let Some(exchange) = self.channels.get_mut(&frame.channel)
        {
            exchange.sending.limit = exchange.sending.limit.saturating_add(bytes).min(VARINT_MAX);
            self.queue(frame.channel);
            self.wake(frame.channel);
        }
        Ok(())
    }

    fn handle_fields_ack(&mut self, ack: &Ack) -> Result<(), LinkError> {
        if let Some(link) = self.link.as_mut() {
            for channel in &ack.fields {
                link.encoder.acknowledge(*channel);
            }
        }
        Ok(())
    }

    /// Says whether the exchange is open; `false` for one that ended here, which the peer may not know yet.
    fn expects(&self, frame: FrameRef<'_>) -> Result<bool, LinkError> {
        if self.channels.contains_key(&frame.channel) {
            return Ok(true);
        }
        let was_open = match self.role {
            Role::Client => frame.channel <= self.opened && frame.channel > 0,
            Role::Gateway => !self.seen.is_new(frame.channel),
        };
        if was_open { Ok(false) } else { Err(LinkError::UnknownChannel(frame.channel)) }
    }

    fn exceed(&mut self, channel: u64) {
        let detail = "body bytes beyond the credit of the channel";
        self.close(channel, Closed::Reset { code: ResetCode::CreditExceeded, detail: detail.into() });
        self.send_reset(channel, ResetCode::CreditExceeded, detail);
    }

    /// The peer's half is in. A client is done with the exchange then: an answer that ends before the request does is final.
    fn half_received(&mut self, channel: u64) {
        let Some(exchange) = self.channels.get_mut(&channel) else { return };
        exchange.receiving.fin = true;
        if self.role == Role::Client {
            let unfinished = !exchange.sending.fin_sent;
            self.remove(channel);
            if unfinished {
                self.send_reset(channel, ResetCode::Cancelled, "the answer is complete");
            }
        }
    }
}
