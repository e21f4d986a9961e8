//! The two halves of one exchange, counted in body bytes.

use std::collections::VecDeque;

use bytes::Bytes;
use http::HeaderMap;

use super::mux::Head;
use crate::{Time, wire::message::ResetCode};

/// One exchange as one end sees it.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
    /// When the finished answer may be forgotten (gateway only).
    pub(super) forget_at: Option<Time>,
}

/// How a body ends.
#[derive(Clone, Debug)]
pub(super) enum Fin {
    End(Option<HeaderMap>),
    Reset(ResetCode, String),
}

/// The half this end sends. Bytes stay after they were sent, as far as the session's budget allows, so that a new link can go on
/// where the old one broke.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) head: Option<Head>,
    pub(super) head_sent: bool,
    sent: VecDeque<Bytes>,
    unsent: VecDeque<Bytes>,
    /// Offset of the first byte kept.
    base: u64,
    /// Offset of the first byte not handed to the link.
    next: u64,
    /// Offset after the last byte.
    end: u64,
    /// Offset up to which the peer takes bytes.
    pub(super) limit: u64,
    pub(super) fin: Option<Fin>,
    pub(super) fin_sent: bool,
    /// Stands in the queue of channels that can send.
    pub(super) queued: bool,
    /// The edge wants to hear when there is room.
    pub(super) blocked: bool,
}

impl Sending {
    pub(super) const fn new(head: Option<Head>, limit: u64) -> Self {
        Self {
            head,
            head_sent: false,
            sent: VecDeque::new(),
            unsent: VecDeque::new(),
            base: 0,
            next: 0,
            end: 0,
            limit,
            fin: None,
            fin_sent: false,
            queued: false,
            blocked: false,
        }
    }

    pub(super) const fn kept_bytes(&self) -> u64 {
        self.next - self.base
    }

    pub(super) const fn unsent_bytes(&self) -> u64 {
        self.end - self.next
    }

    /// Bytes the peer still takes, beyond those waiting here.
    pub(super) const fn room(&self) -> u64 {
        self.limit.saturating_sub(self.end)
    }

    pub(super) fn push(&mut self, bytes: Bytes) {
        self.end += bytes.len() as u64;
        self.unsent.push_back(bytes);
    }

    /// Takes at most `bytes_max` bytes for one frame, within the peer's limit.
    pub(super) fn take(&mut self, bytes_max: u64) -> Option<Bytes> {
        let may = bytes_max.min(self.limit.saturating_sub(self.next)) as usize;
        if may == 0 {
            return None;
        }
        let front = self.unsent.front_mut()?;
        let piece = if front.len() > may { front.split_to(may) } else { self.unsent.pop_front()? };
        self.next += piece.len() as u64;
        self.sent.push_back(piece.clone());
        Some(piece)
    }

    pub(super) fn can_send(&self) -> bool {
        if self.fin_sent {
            return false;
        }
        let body = self.unsent_bytes() > 0 && self.limit > self.next;
        let fin = self.fin.is_some() && self.unsent_bytes() == 0;
        (self.head.is_some() && !self.head_sent) || body || fin
    }

    /// Says whether RESET is all that is left to send, after the head.
    pub(super) fn resets_now(&self) -> bool {
        self.unsent_bytes() == 0 && matches!(self.fin, Some(Fin::Reset(..)))
    }

    /// Says whether the frame that carries the last byte may carry END as well.
    pub(super) fn ends_here(&self) -> bool {
        self.unsent_bytes() == 0 && matches!(self.fin, Some(Fin::End(None)))
    }

    /// Forgets the bytes that were sent; returns how many.
    pub(super) fn forget_sent(&mut self) -> u64 {
        let kept = self.kept_bytes();
        self.base = self.next;
        self.sent = VecDeque::new();
        kept
    }

    /// Drops everything that is not sent yet; returns how many bytes.
    pub(super) fn discard_unsent(&mut self) -> u64 {
        let unsent = self.unsent_bytes();
        self.unsent = VecDeque::new();
        self.end = self.next;
        unsent
    }

    /// Says whether a link can go on at `offset`.
    pub(super) const fn can_rewind(&self, offset: u64) -> bool {
        self.base <= offset && offset <= self.next
    }

    /// Makes the bytes from `offset` on unsent again. The caller asked [`can_rewind`](Self::can_rewind).
    pub(super) fn rewind(&mut self, offset: u64) {
        while self.next > offset {
            let Some(mut piece) = self.sent.pop_back() else { break };
            let start = self.next - piece.len() as u64;
            if start < offset {
                let rest = piece.split_off((offset - start) as usize);
                self.sent.push_back(piece);
                piece = rest;
            }
            self.next -= piece.len() as u64;
            self.unsent.push_front(piece);
        }
        self.fin_sent = false;
    }
}

/// The half this end receives.
#[derive(Debug, Default)]
pub(super) struct Receiving {
    pub(super) head: bool,
    /// Bytes that arrived.
    pub(super) received: u64,
    /// Bytes the app or the service took.
    pub(super) consumed: u64,
    /// Offset up to which the peer may send.
    pub(super) limit: u64,
    pub(super) fin: bool,
}

impl Receiving {
    pub(super) const fn new(limit: u64) -> Self {
        Self { head: false, received: 0, consumed: 0, limit, fin: false }
    }

    /// Returns how many more bytes the peer may be granted, zero while a grant is not worth a frame.
    pub(super) const fn grant(&mut self, window: u64) -> u64 {
        if self.fin || self.consumed + window < self.limit + window / GRANT_SHARE {
            return 0;
        }
        self.grant_all(window)
    }

    /// Moves the limit as far as the window allows; returns by how much.
    pub(super) const fn grant_all(&mut self, window: u64) -> u64 {
        let grant = (self.consumed + window).saturating_sub(self.limit);
        self.limit += grant;
        grant
    }
}

/// A grant is sent once it is worth half the window: half the frames of granting each read, and the sender never waits on a
/// steady reader. The rule of thumb of TCP window updates (RFC 9293 section 3.8.6.2.2).
pub(super) const GRANT_SHARE: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn sending(pieces: &[&'static [u8]]) -> Sending {
        let mut sending = Sending::new(None, u64::MAX);
        for piece in pieces {
            sending.push(Bytes::from_static(piece));
        }
        sending
    }

    fn take_all(sending: &mut Sending, frame: u64) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(piece) = sending.take(frame) {
            all.extend_from_slice(&piece);
        }
        all
    }

    #[test]
    fn a_rewound_body_goes_on_at_any_offset() {
        for offset in 0..=10 {
            let mut sending = sending(&[b"abc", b"defgh", b"ij"]);
            assert_eq!(take_all(&mut sending, 2), b"abcdefghij");
            assert!(sending.can_rewind(offset));
            sending.rewind(offset);
            assert_eq!(take_all(&mut sending, 3), &b"abcdefghij"[offset as usize..]);
            assert_eq!(sending.kept_bytes(), 10);
        }
    }

    #[test]
    fn forgotten_bytes_cannot_be_sent_again() {
        let mut sending = sending(&[b"abc", b"def"]);
        assert_eq!(sending.take(3).as_deref(), Some(&b"abc"[..]));
        assert_eq!(sending.forget_sent(), 3);
        assert!(!sending.can_rewind(2));
        assert!(sending.can_rewind(3));
    }

    #[test]
    fn nothing_is_sent_beyond_the_limit_of_the_peer() {
        let mut sending = sending(&[b"abcdef"]);
        sending.limit = 4;
        assert_eq!(take_all(&mut sending, 100), b"abcd");
        assert!(!sending.can_send());
        sending.limit = 6;
        assert!(sending.can_send());
        assert_eq!(take_all(&mut sending, 100), b"ef");
    }

    #[test]
    fn grants_are_batched_and_keep_the_window_full() {
        let mut receiving = Receiving::new(100);
        receiving.received = 100;
        receiving.consumed = 49;
        assert_eq!(receiving.grant(100), 0);
        receiving.consumed = 50;
        assert_eq!(receiving.grant(100), 50);
        receiving.consumed = 100;
        assert_eq!(receiving.grant(100), 50);
        assert_eq!(receiving.limit, 200);
    }
}
