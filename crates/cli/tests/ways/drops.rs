//! Services that take a request, or its connection, and drop it: how often they see one.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use ropeway::Way;
use tokio::{io::AsyncReadExt as _, net::TcpListener, time::timeout};

use crate::{fleet::Fleet, ladder::Scene};

/// A service that answers nobody.
struct Dropping {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    /// Requests of which the whole head came.
    heads: Arc<AtomicUsize>,
}

impl Dropping {
    async fn start(reads: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, heads) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let (accepted, read) = (Arc::clone(&connections), Arc::clone(&heads));
        tokio::spawn(async move {
            loop {
                let (mut tcp, _) = listener.accept().await.unwrap();
                accepted.fetch_add(1, Ordering::SeqCst);
                let mut head = Vec::new();
                while reads && !head.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = tcp.read_u8().await else { break };
                    head.push(byte);
                }
                read.fetch_add(usize::from(!head.is_empty()), Ordering::SeqCst);
            }
        });
        Self { address, connections, heads }
    }

    fn seen(&self) -> (usize, usize) {
        (self.connections.load(Ordering::SeqCst), self.heads.load(Ordering::SeqCst))
    }
}

#[tokio::test]
async fn a_service_that_drops_what_it_gets_sees_a_get_twice_and_a_post_once() {
    for reads in [true, false] {
        let service = Dropping::start(reads).await;
        let scene = Scene::new(|config| {
            config.routes[0].upstream = format!("http://{}", service.address).parse().unwrap();
        })
        .await;
        let answer = timeout(Duration::from_secs(60), scene.client.get("https://api.test/").send()).await;
        let answer = answer.expect("it never ended").unwrap();
        let name = answer.headers()["ropeway-error"].to_str().unwrap();
        assert!(["upstream_reset", "upstream_closed"].contains(&name), "{name}");
        let (connections, heads) = service.seen();
        assert_eq!((connections, heads), (2, if reads { 2 } else { 0 }), "{}", answer.timeline());
        if reads {
            let _ = timeout(Duration::from_secs(60), scene.client.post("https://api.test/").body("pay").send()).await;
            assert_eq!(service.seen(), (3, 3));
        }
    }
}

#[tokio::test]
async fn what_the_service_of_one_site_drops_goes_to_another_site_and_runs_there_once() {
    let service = Dropping::start(true).await;
    let mut fleet = Fleet::new().await;
    let client = fleet.client();
    client.get("https://api.test/first").send().await.unwrap();
    fleet.north.config.routes[0].upstream = format!("http://{}", service.address).parse().unwrap();
    fleet.north.gateway.reload(Arc::new(fleet.north.config.clone())).unwrap();
    for number in 0..4 {
        let before = (service.seen().1, fleet.south.service.executed());
        let sending = client.get(format!("https://api.test/{number}")).way(Way::Pipe).send();
        let answer = timeout(Duration::from_secs(60), sending).await.expect("it never ended").unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.timeline());
        assert!(service.seen().1 - before.0 <= 1 && fleet.south.service.executed() == before.1 + 1);
    }
    assert!(service.seen().1 > 0, "none came to the north, and nothing was shown");
}
