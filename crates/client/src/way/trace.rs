//! How far an exchange has come.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use ropeway_core::{connect::Candidate, request::spot};
use tokio::time::Instant;

use crate::shared::lock;

/// How far an exchange outside the link has come, for whoever gives it up.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    handed_off: AtomicBool,
    /// Where it went, and when.
    peer: Mutex<Option<(Peer, Instant)>>,
    aim: Aim,
}

/// Where a request was handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) candidate: Candidate,
    /// The number of the connection, if it is one that may be used again.
    pub(crate) connection: Option<u64>,
}

/// The addresses of which one is to get the request, once they are known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aim(Arc<Mutex<Vec<SocketAddr>>>);

impl Aim {
    pub(crate) fn set(&self, addresses: Vec<SocketAddr>) {
        *lock(&self.0) = addresses;
    }
}

impl Trace {
    /// Says whether the request was handed to a connection.
    pub(crate) fn is_handed_off(&self) -> bool {
        self.handed_off.load(Ordering::Relaxed)
    }

    /// Returns where the request was sent, if it was.
    pub(crate) fn peer(&self) -> Option<Candidate> {
        lock(&self.peer).map(|(peer, _)| peer.candidate)
    }

    /// Returns when the request was handed to a connection, if it was.
    pub(crate) fn handed_off_at(&self) -> Option<Instant> {
        lock(&self.peer).filter(|_| self.is_handed_off()).map(|(_, at)| at)
    }

    /// Returns the connection that the request was sent on, if it is one that may be used again.
    pub(crate) fn connection(&self) -> Option<u64> {
        lock(&self.peer).and_then(|(peer, _)| peer.connection)
    }

    /// Returns where the request was sent, or all places of which one was to get it.
    pub(crate) fn gone_to(&self) -> Vec<Candidate> {
        match self.peer() {
            Some(peer) => vec![peer],
            None => lock(&self.aim.0).iter().map(|address| spot(*address)).collect(),
        }
    }

    /// Returns what is told where the request is to go, before it is handed over.
    pub(crate) const fn aim(&self) -> &Aim {
        &self.aim
    }

    /// Notes that the request is handed to a connection now.
    pub(crate) fn hand_off(&self, peer: Peer) {
        *lock(&self.peer) = Some((peer, Instant::now()));
        self.handed_off.store(true, Ordering::Relaxed);
    }

    /// Notes that nothing was written after all.
    pub(crate) fn take_back(&self) {
        self.handed_off.store(false, Ordering::Relaxed);
    }
}
