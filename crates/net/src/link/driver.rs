//! Drives one carrier until its link ends.

use std::{
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use ropeway_core::{
    Time,
    session::LinkError,
    wire::{Frame, FrameRef},
};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::{
    Clock,
    carrier::{Arrived, Carrier, CarrierError},
    scratch::{Scratch, with_scratch},
};

/// What a driver moves frames for.
pub trait LinkPeer: Send {
    /// Keeps the waker to call when there is something to send.
    fn register(&mut self, waker: &Waker);

    /// Says whether the link is still wanted; asked at every turn and after every deadline.
    fn is_current(&self) -> bool;

    /// Returns the time.
    fn now(&self) -> Time;

    /// Returns the clock that [`now`](Self::now) reads.
    fn clock(&self) -> Clock;

    /// Takes a frame.
    ///
    /// # Errors
    ///
    /// A [`LinkError`] ends the link.
    fn handle_frame(&mut self, frame: FrameRef<'_>, early: bool) -> Result<(), LinkError>;

    /// Says that a deadline has come.
    ///
    /// # Errors
    ///
    /// A [`LinkError`] ends the link.
    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError>;

    /// Returns the next deadline.
    fn poll_timeout(&mut self) -> Option<Time>;

    /// Returns the next frame to send.
    fn poll_output(&mut self) -> Option<Frame>;

    /// Called after frames were taken and before frames are sent, with the carrier at rest.
    fn handle_turn(&mut self, _carrier: &mut dyn Carrier) {}

    /// Says that the link is to be closed once everything is sent.
    fn is_closing(&self) -> bool {
        false
    }
}

/// Moves frames between a carrier and its peer until either ends the link. Everything the peer had to say is sent first.
///
/// # Errors
///
/// Why the link ended, where it was not by the other end's goodbye or because another link took over.
pub async fn drive(carrier: &mut dyn Carrier, peer: &mut dyn LinkPeer) -> Result<(), CarrierError> {
    let mut sleep: Option<Pin<Box<Sleep>>> = None;
    let ended = poll_fn(|cx| with_scratch(|scratch| poll_turn(carrier, peer, &mut sleep, cx, scratch))).await;
    // What the peer says at the end (REFUSE, DRAIN) should arrive if the connection still takes it.
    poll_fn(|cx| {
        with_scratch(|scratch| {
            let _ = carrier.poll_send(cx, scratch, &mut || peer.poll_output());
            Poll::Ready(())
        })
    })
    .await;
    ended
}

fn poll_turn(
    carrier: &mut dyn Carrier,
    peer: &mut dyn LinkPeer,
    sleep: &mut Option<Pin<Box<Sleep>>>,
    cx: &mut Context<'_>,
    scratch: &mut Scratch,
) -> Poll<Result<(), CarrierError>> {
    peer.register(cx.waker());
    if !peer.is_current() {
        return Poll::Ready(Ok(()));
    }
    let mut reads = 0;
    let closed = loop {
        match carrier.poll_recv(cx, scratch, &mut |frame, early| peer.handle_frame(frame, early)) {
            Poll::Pending => break false,
            Poll::Ready(Ok(Arrived::Closed)) => break true,
            Poll::Ready(Ok(Arrived::Some)) => peer.handle_turn(carrier),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        }
        reads += 1;
        if reads >= READS_MAX {
            cx.waker().wake_by_ref();
            break false;
        }
    };
    peer.handle_turn(carrier);
    let mut fired = None;
    loop {
        let sent = match carrier.poll_send(cx, scratch, &mut || peer.poll_output()) {
            // The other end has said goodbye and may take nothing any more.
            _ if closed => return Poll::Ready(Ok(())),
            Poll::Ready(Ok(())) => true,
            Poll::Ready(Err(error)) => {
                read_rest(carrier, peer, cx, scratch);
                return Poll::Ready(Err(error));
            }
            Poll::Pending => false,
        };
        if sent && peer.is_closing() {
            return Poll::Ready(Ok(()));
        }
        let Some(deadline) = peer.poll_timeout() else {
            *sleep = None;
            return Poll::Pending;
        };
        if fired == Some(deadline) {
            // A machine that names a past deadline again would spin; its next turn comes with the next frame.
            return Poll::Pending;
        }
        ready!(poll_deadline(sleep, peer.clock().instant(deadline), cx));
        peer.handle_timeout(peer.now())?;
        if !peer.is_current() {
            return Poll::Ready(Ok(()));
        }
        fired = Some(deadline);
    }
}

/// Takes what had arrived when sending failed: the connection may be gone at the next turn, and it with it.
fn read_rest(carrier: &mut dyn Carrier, peer: &mut dyn LinkPeer, cx: &mut Context<'_>, scratch: &mut Scratch) {
    for _ in 0..LAST_READS_MAX {
        match carrier.poll_recv(cx, scratch, &mut |frame, early| peer.handle_frame(frame, early)) {
            Poll::Ready(Ok(Arrived::Some)) => {}
            Poll::Pending | Poll::Ready(Ok(Arrived::Closed) | Err(_)) => return,
        }
    }
}

/// Waits for a deadline that may have moved since the last call.
///
/// With every frame it moves away. The timer then stays where it is and fires once in vain, which costs less than to move it
/// along with every frame.
fn poll_deadline(sleep: &mut Option<Pin<Box<Sleep>>>, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
    let timer = sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if deadline < timer.deadline() {
        timer.as_mut().reset(deadline);
    }
    loop {
        ready!(timer.as_mut().poll(cx));
        if timer.deadline() >= deadline {
            return Poll::Ready(());
        }
        timer.as_mut().reset(deadline);
    }
}

/// Reads of one connection before the others of the thread get their turn.
const READS_MAX: usize = 8;

/// Reads of a connection on which nothing can be sent any more. 128; our choice: the credit of a link (1 MiB) in reads of 16 KiB, with as
/// many again to spare.
const LAST_READS_MAX: usize = 128;
