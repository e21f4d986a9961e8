//! The connection, and what opens streams on it.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
};

use bytes::Buf;
use h3::{
    error::Code,
    quic::{self, ConnectionErrorIncoming, StreamErrorIncoming},
};
use noq::{Connection, ConnectionError, RecvStream, SendStream, VarInt};

use super::{
    Rules, connection_error, lost,
    stream::{H3Recv, H3Send, H3Stream},
};

/// A QUIC connection as the `h3` crate takes it.
pub struct H3Connection {
    opener: H3Opener,
    accepting: Option<Opening<(SendStream, RecvStream)>>,
    accepting_one_way: Option<Opening<RecvStream>>,
    stops: Stops,
}

/// Opens streams on a connection.
pub struct H3Opener {
    connection: Connection,
    rules: Rules,
    opening: Option<Opening<(SendStream, RecvStream)>>,
    opening_one_way: Option<Opening<SendStream>>,
}

/// Tells a server when a client no longer wants an answer, which `h3` does not.
#[derive(Clone, Default)]
pub struct Stops(Arc<Mutex<VecDeque<(u64, noq::Stopped)>>>);

type Opening<S> = Pin<Box<dyn Future<Output = Result<S, ConnectionError>> + Send + Sync>>;

impl H3Connection {
    /// Takes the client's end of a connection; a frame of at most `frame_bytes_max` is held.
    #[must_use]
    pub fn client(connection: Connection, frame_bytes_max: u64) -> Self {
        Self::new(connection, Rules { frame_bytes_max, is_server: false })
    }

    /// Takes the server's end of a connection; a frame of at most `frame_bytes_max` is held.
    #[must_use]
    pub fn server(connection: Connection, frame_bytes_max: u64) -> Self {
        Self::new(connection, Rules { frame_bytes_max, is_server: true })
    }

    /// Returns what tells of answers that are no longer wanted.
    #[must_use]
    pub fn stops(&self) -> Stops {
        self.stops.clone()
    }

    fn new(connection: Connection, rules: Rules) -> Self {
        let opener = H3Opener { connection, rules, opening: None, opening_one_way: None };
        Self { opener, accepting: None, accepting_one_way: None, stops: Stops::default() }
    }
}

impl Stops {
    /// Takes the future that ends when the client stops the answer of a request, has all of it, or is gone.
    ///
    /// To be called once for each request, in the order in which they were accepted.
    pub fn take(&self, id: quic::StreamId) -> Option<noq::Stopped> {
        let mut stops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((number, stopped)) = stops.pop_front() {
            if number == id.into_inner() {
                return Some(stopped);
            }
        }
        None
    }

    fn push(&self, send: &SendStream) {
        let mut stops = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if stops.len() >= STOPS_MAX {
            stops.pop_front();
        }
        stops.push_back((send.id().into(), send.stopped()));
    }
}

impl<B: Buf> quic::Connection<B> for H3Connection {
    type RecvStream = H3Recv;
    type OpenStreams = H3Opener;

    fn poll_accept_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3Recv, ConnectionErrorIncoming>> {
        let connection = &self.opener.connection;
        let stream = ready!(poll_slot(&mut self.accepting_one_way, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_uni().await })
        }));
        Poll::Ready(stream.map(|stream| H3Recv::one_way(stream, self.opener.rules)).map_err(connection_error))
    }

    fn poll_accept_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3Stream<B>, ConnectionErrorIncoming>> {
        let connection = &self.opener.connection;
        let streams = ready!(poll_slot(&mut self.accepting, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.accept_bi().await })
        }));
        let streams = streams.map_err(connection_error)?;
        if self.opener.rules.is_server {
            self.stops.push(&streams.0);
        }
        Poll::Ready(Ok(H3Stream::new(streams, self.opener.rules)))
    }

    fn opener(&self) -> H3Opener {
        self.opener.clone()
    }
}

impl<B: Buf> quic::OpenStreams<B> for H3Connection {
    type BidiStream = H3Stream<B>;
    type SendStream = H3Send<B>;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3Stream<B>, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(cx)
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3Send<B>, StreamErrorIncoming>> {
        self.opener.poll_open_send(cx)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        quic::OpenStreams::<B>::close(&mut self.opener, code, reason);
    }
}

impl<B: Buf> quic::OpenStreams<B> for H3Opener {
    type BidiStream = H3Stream<B>;
    type SendStream = H3Send<B>;

    fn poll_open_bidi(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3Stream<B>, StreamErrorIncoming>> {
        let connection = &self.connection;
        let streams = ready!(poll_slot(&mut self.opening, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.open_bi().await })
        }));
        Poll::Ready(streams.map(|streams| H3Stream::new(streams, self.rules)).map_err(lost))
    }

    fn poll_open_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<H3Send<B>, StreamErrorIncoming>> {
        let connection = &self.connection;
        let stream = ready!(poll_slot(&mut self.opening_one_way, cx, || {
            let connection = connection.clone();
            Box::pin(async move { connection.open_uni().await })
        }));
        Poll::Ready(stream.map(|stream| H3Send::one_way(stream, self.rules)).map_err(lost))
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX), reason);
    }
}

impl Clone for H3Opener {
    fn clone(&self) -> Self {
        Self { connection: self.connection.clone(), rules: self.rules, opening: None, opening_one_way: None }
    }
}

/// Polls what is under way, or begins it.
fn poll_slot<S>(
    slot: &mut Option<Opening<S>>,
    cx: &mut Context<'_>,
    begin: impl FnOnce() -> Opening<S>,
) -> Poll<Result<S, ConnectionError>> {
    let opened = ready!(slot.get_or_insert_with(begin).as_mut().poll(cx));
    *slot = None;
    Poll::Ready(opened)
}

/// Accepted requests that nobody took yet. 16; the server takes each as it comes, and only those `h3` itself refused are left over.
const STOPS_MAX: usize = 16;
