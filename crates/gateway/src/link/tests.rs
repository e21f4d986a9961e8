use std::task::{Context, Poll};

use bytes::Bytes;
use ed25519_dalek::{Signer, SigningKey};
use prost::Message;
use ropeway_cluster::{GatewayId, LocalBus, LocalBusConfig, Subscription};
use ropeway_core::{
    session::{HELLO_CONTEXT, PROOF_CONTEXT, signed_input},
    wire::message::{Hello, Proof, SignedHello},
};
use ropeway_net::{
    Clock,
    carrier::{Arrived, Sink},
    scratch::Scratch,
    unix_ms,
};

use super::*;
use crate::{
    config::{Config, KeySource, TicketKey},
    gateway::{Addresses, Parts},
    lists::ListSigner,
    metrics::Metrics,
    push,
    tickets::{DeviceRule, TicketIssuer},
};

const BINDING: [u8; 32] = [9; 32];

/// A peer that has said all it will say, and reads what it is sent or does not.
struct Peer {
    frames: VecDeque<Frame>,
    reads: bool,
}

impl Carrier for Peer {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Quic
    }

    fn peer(&self) -> SocketAddr {
        ([192, 0, 2, 1], 1).into()
    }

    fn poll_recv(
        &mut self,
        _: &mut Context<'_>,
        _: &mut Scratch,
        sink: &mut Sink<'_>,
    ) -> Poll<Result<Arrived, CarrierError>> {
        let Some(frame) = self.frames.pop_front() else { return Poll::Pending };
        sink(frame.as_ref(), false)?;
        Poll::Ready(Ok(Arrived::Some))
    }

    fn poll_send(
        &mut self,
        _: &mut Context<'_>,
        _: &mut Scratch,
        source: &mut dyn FnMut() -> Option<Frame>,
    ) -> Poll<Result<(), CarrierError>> {
        if !self.reads {
            return Poll::Pending;
        }
        while source().is_some() {}
        Poll::Ready(Ok(()))
    }

    fn poll_close(&mut self, _: &mut Context<'_>, _: &mut Scratch) -> Poll<()> {
        if self.reads { Poll::Ready(()) } else { Poll::Pending }
    }

    fn binding(&self) -> Option<[u8; 32]> {
        Some(BINDING)
    }
}

struct Bench {
    shared: Arc<Shared<LocalBus>>,
    issuer: TicketIssuer,
    _subscription: Subscription,
}

impl Bench {
    async fn new() -> Self {
        let issuer = TicketIssuer::generate("test").expect("random bytes");
        let mut config = Config::default();
        config.tickets.keys = vec![TicketKey { kid: "test".into(), public_key: KeySource::Raw(issuer.public_key()) }];
        let bus = LocalBus::new(LocalBusConfig::default());
        let subscription = bus.subscribe(GatewayId::new("gw").expect("a name")).await.expect("the first");
        let (reports, _) = push::reports();
        let address = SocketAddr::from(([127, 0, 0, 1], 443));
        let (tcp_more, udp_more) = (Vec::new(), Vec::new());
        let addresses = Addresses { admin: address, tcp: address, tcp_more, udp: address, udp_more };
        let (clock, metrics, interests) = (Clock::new(), Arc::new(Metrics::new()), subscription.interests());
        let list_signer = ListSigner::generate().expect("random bytes");
        let parts = Parts { addresses, clock, metrics, pipe: None, signer: None, list_signer, interests, reports };
        let shared = Shared::new(Arc::new(config), bus, parts).expect("no routes");
        Self { shared, issuer, _subscription: subscription }
    }

    /// What a device says to be let in.
    fn greeting(&self) -> VecDeque<Frame> {
        let key = SigningKey::from_bytes(&[1; 32]);
        let sign =
            |context, message: &[u8]| Bytes::copy_from_slice(&key.sign(&signed_input(context, message)).to_bytes());
        let (device, hour) = (key.verifying_key().to_bytes(), Duration::from_secs(3_600));
        let hello = Hello {
            ticket: self
                .issuer
                .issue("ada", "dev", &device, &DeviceRule::Any, hour, unix_ms() / 1_000)
                .expect("signed"),
            app: "dev".into(),
            device: "one".into(),
            time_ms: unix_ms(),
            nonce: Bytes::from_static(&[0; 16]),
            gateway: "localhost".into(),
            ..Hello::default()
        }
        .encode_to_vec();
        let signature = sign(HELLO_CONTEXT, &hello);
        let proof = Proof { challenge: Bytes::new(), signature: sign(PROOF_CONTEXT, &BINDING) };
        let hello = Frame::control(Kind::Hello, &SignedHello { hello: hello.into(), signature });
        [hello, Frame::control(Kind::Proof, &proof)].into()
    }

    fn serve(&self, peer: Peer) -> impl Future<Output = ()> + Send + 'static {
        serve(Arc::clone(&self.shared), Box::new(peer), self.shared.hello_deadline())
    }

    fn refused(&self, reason: &'static str) -> u64 {
        self.shared.metrics.refusal(reason).value()
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_peer_that_does_not_read_is_cut_in_time() {
    let bench = Bench::new().await;
    let frames = [Frame::control(Kind::Proof, &Proof::default())].into();
    let begun = tokio::time::Instant::now();
    bench.serve(Peer { frames, reads: false }).await;
    assert!(begun.elapsed() <= GOODBYE_TIMEOUT * 2, "{:?}", begun.elapsed());
    // It counts once, for what it did.
    assert_eq!((bench.refused("protocol"), bench.refused("backlog")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_refused_peer_that_reads_is_gone_at_once() {
    let bench = Bench::new().await;
    let frames = [Frame::control(Kind::Proof, &Proof::default())].into();
    let begun = tokio::time::Instant::now();
    bench.serve(Peer { frames, reads: true }).await;
    assert_eq!(begun.elapsed(), Duration::ZERO);
    assert_eq!((bench.refused("protocol"), bench.refused("backlog")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_says_nothing_is_refused_when_its_time_is_over() {
    let bench = Bench::new().await;
    let begun = tokio::time::Instant::now();
    bench.serve(Peer { frames: VecDeque::new(), reads: true }).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(10));
    assert_eq!(bench.refused("hello_timeout"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_link_whose_task_is_dropped_gives_its_session_back() {
    let bench = Bench::new().await;
    let link = tokio::spawn(bench.serve(Peer { frames: bench.greeting(), reads: true }));
    while bench.shared.registry.attached_count() == 0 {
        tokio::task::yield_now().await;
    }
    link.abort();
    assert!(link.await.is_err_and(|error| error.is_cancelled()));
    assert_eq!((bench.shared.registry.attached_count(), bench.shared.registry.all().len()), (0, 1));
    bench.shared.registry.sweep(bench.shared.clock.now() + Duration::from_secs(300));
    assert_eq!(bench.shared.metrics.sessions().value(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_session_without_a_link_holds_its_bound_of_messages_and_nothing_more() {
    let bench = Bench::new().await;
    let link = tokio::spawn(bench.serve(Peer { frames: bench.greeting(), reads: true }));
    while bench.shared.registry.attached_count() == 0 {
        tokio::task::yield_now().await;
    }
    link.abort();
    let _ = link.await;
    let entry = bench.shared.registry.all().pop().expect("the session waits for its device");
    for number in 0..3_000_u32 {
        let message = ropeway_core::session::PushMessage {
            id: number.to_string(),
            topic: String::new(),
            content_type: String::new(),
            payload: Bytes::new(),
            time_ms: 0,
        };
        entry.session().with(|server, _| server.push(message));
        bench.shared.settle(&entry);
    }
    assert_eq!(bench.shared.counters.pushes_dropped.value(), 2_000);
    assert_eq!(entry.session().peek(|server| server.poll_event()), None, "nothing piles up");
}

#[tokio::test(start_paused = true)]
async fn a_link_from_which_nothing_comes_is_given_up_after_its_time() {
    let bench = Bench::new().await;
    let begun = tokio::time::Instant::now();
    bench.serve(Peer { frames: bench.greeting(), reads: true }).await;
    assert_eq!(begun.elapsed(), Duration::from_secs(20 * 60));
    assert_eq!(bench.refused("silent"), 1);
    assert_eq!(bench.shared.registry.attached_count(), 0);
}
