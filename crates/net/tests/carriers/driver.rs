//! The driver: what it wakes for, and when it stops.

use std::{
    future::Future,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use ropeway_core::{
    CarrierKind, Time,
    session::LinkError,
    wire::{Frame, FrameRef, Kind},
};
use ropeway_net::{
    Clock,
    carrier::{Arrived, Carrier, CarrierError, Sink},
    link::{LinkPeer, drive},
    scratch::Scratch,
};

use crate::{
    rig::{ALL, End, Rig, frame, within},
    world::World,
};

/// A peer of few words.
struct Quiet {
    clock: Clock,
    deadline: Option<Time>,
    fired: Vec<Time>,
    output: Vec<Frame>,
    received: usize,
    /// The link closes once something was received.
    leaves: bool,
    /// A deadline that has come is named again.
    stubborn: bool,
}

impl Quiet {
    fn new() -> Self {
        Self {
            clock: Clock::new(),
            deadline: None,
            fired: Vec::new(),
            output: Vec::new(),
            received: 0,
            leaves: false,
            stubborn: false,
        }
    }
}

impl LinkPeer for Quiet {
    fn register(&mut self, _waker: &Waker) {}

    fn is_current(&self) -> bool {
        true
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn clock(&self) -> Clock {
        self.clock
    }

    fn handle_frame(&mut self, _frame: FrameRef<'_>, _early: bool) -> Result<(), LinkError> {
        self.received += 1;
        Ok(())
    }

    fn handle_timeout(&mut self, now: Time) -> Result<(), LinkError> {
        self.fired.push(now);
        if !self.stubborn {
            self.deadline = (self.fired.len() < 3).then(|| now + Duration::from_secs(10));
            self.output.push(frame(Kind::Ping, 0, vec![1], false));
        }
        Ok(())
    }

    fn poll_timeout(&mut self) -> Option<Time> {
        self.deadline
    }

    fn poll_output(&mut self) -> Option<Frame> {
        self.output.pop()
    }

    fn is_closing(&self) -> bool {
        self.leaves && self.received > 0
    }
}

/// Counts how often a future is polled.
struct Counted<F> {
    future: F,
    polls: Arc<AtomicUsize>,
}

impl<F: Future + Unpin> Future for Counted<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        Pin::new(&mut self.future).poll(cx)
    }
}

#[tokio::test]
async fn an_idle_link_is_not_polled() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let (client, mut server) = rig.connect(carrier).await;
        server.admit();
        let mut client = End::new(client, [frame(Kind::Ping, 0, vec![1], false)]);
        let polls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&polls);
        let driven = tokio::spawn(async move {
            let mut peer = Quiet { output: vec![frame(Kind::Ping, 0, vec![2], false)], ..Quiet::new() };
            let future = pin!(drive(server.as_mut(), &mut peer));
            Counted { future, polls: counted }.await.unwrap();
        });
        client.run_until(1).await;
        // Acknowledgements and tickets settle; a loop without an end would never.
        let mut quiet = 0;
        within(async {
            while quiet < 2_000 {
                let before = polls.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                quiet = if polls.load(Ordering::Relaxed) == before { quiet + 1 } else { 0 };
            }
        })
        .await;
        assert!(polls.load(Ordering::Relaxed) < 50, "{carrier}: {polls:?}");
        driven.abort();
    }
}

#[tokio::test]
async fn deadlines_fire_and_what_they_say_is_sent() {
    let rig = Rig::new().await;
    let (mut client, server) = rig.connect(CarrierKind::Tls).await;
    tokio::time::pause();
    let mut peer = Quiet::new();
    peer.deadline = Some(peer.now() + Duration::from_secs(10));
    let mut server = End::new(server, []);
    tokio::select! {
        ended = drive(client.as_mut(), &mut peer) => unreachable!("{ended:?}"),
        () = server.run_until(3) => {}
    }
    assert_eq!(peer.fired.len(), 3);
    assert!(
        peer.fired.windows(2).all(|pair| pair[1].since_origin() - pair[0].since_origin() >= Duration::from_secs(10))
    );
}

#[tokio::test]
async fn a_deadline_that_is_named_again_does_not_spin() {
    let rig = Rig::new().await;
    let (mut client, _server) = rig.connect(CarrierKind::Tls).await;
    let mut peer = Quiet { stubborn: true, ..Quiet::new() };
    peer.deadline = Some(Time::ZERO);
    {
        let mut driven = pin!(drive(client.as_mut(), &mut peer));
        for _ in 0..100 {
            assert!(futures_util::poll!(driven.as_mut()).is_pending());
        }
    }
    assert!(peer.fired.len() <= 100, "once a turn at most");
}

#[tokio::test]
async fn everything_said_is_sent_before_a_link_that_closes_is_done() {
    let rig = Rig::new().await;
    for carrier in ALL {
        let (client, mut server) = rig.connect(carrier).await;
        server.admit();
        let mut client = End::new(client, [frame(Kind::Ping, 0, vec![1], false)]);
        let leaving = tokio::spawn(async move {
            let output = (0..100).map(|_| frame(Kind::Ping, 0, vec![0; 10_000], false)).collect();
            let mut peer = Quiet { output, leaves: true, ..Quiet::new() };
            drive(server.as_mut(), &mut peer).await.unwrap();
            End::new(server, []).close().await;
        });
        client.run(|_| false).await;
        assert!(matches!(client.ended, Some(Ok(()))), "{carrier}: {:?}", client.ended);
        assert_eq!(client.input.len(), 100, "{carrier}");
        client.close().await;
        leaving.await.unwrap();
    }
}

/// A connection on which nothing can be sent any more, and on which a few frames had arrived before.
struct Broken {
    arrived: usize,
}

impl Carrier for Broken {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Quic
    }

    fn peer(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }

    fn poll_recv(
        &mut self,
        _cx: &mut Context<'_>,
        _scratch: &mut Scratch,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<Arrived, CarrierError>> {
        if self.arrived == 0 {
            return Poll::Pending;
        }
        self.arrived -= 1;
        sink(frame(Kind::Ping, 0, vec![1], false).as_ref(), false)?;
        Poll::Ready(Ok(Arrived::Some))
    }

    fn poll_send(
        &mut self,
        _cx: &mut Context<'_>,
        _scratch: &mut Scratch,
        _source: &mut dyn FnMut() -> Option<Frame>,
    ) -> Poll<Result<(), CarrierError>> {
        Poll::Ready(Err(CarrierError::Quic { peer: self.peer(), reason: "connection lost".into() }))
    }

    fn poll_close(&mut self, _cx: &mut Context<'_>, _scratch: &mut Scratch) -> Poll<()> {
        Poll::Ready(())
    }

    fn binding(&self) -> Option<[u8; 32]> {
        None
    }

    fn admit(&mut self) {}
}

#[tokio::test]
async fn what_had_arrived_is_taken_when_sending_fails() {
    let (mut carrier, mut peer) = (Broken { arrived: 50 }, Quiet::new());
    assert!(matches!(drive(&mut carrier, &mut peer).await, Err(CarrierError::Quic { .. })));
    assert_eq!(peer.received, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_is_replaced_stops_and_takes_nothing_from_the_new_one() {
    for carrier in ALL {
        let world = World::new().await;
        let mut old = world.link(carrier).await;
        for _ in 0..10 {
            let new = world.link(carrier).await;
            within(old.client).await.unwrap().unwrap();
            // The other end either saw it replaced as well, or the connection go.
            let _ = within(old.server).await.unwrap();
            assert_eq!(world.echo(vec![1; 100_000].into()).await.len(), 100_000, "{carrier}");
            old = new;
        }
        world.until_empty().await;
    }
}
