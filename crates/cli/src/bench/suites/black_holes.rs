//! Time to the first answer where the first addresses swallow everything, or refuse.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use ropeway_core::CarrierKind;
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::bench::figure::{Better, Figure, median};
use crate::bench::gateway::{ECHO_HOST, Gateway, Setup};
use crate::bench::load::BODY;
use crate::bench::{BenchError, Scale};

/// Measures the first request of clients that know nothing yet.
pub(super) async fn run(scale: Scale) -> Result<Vec<Figure>, BenchError> {
    let gateway = Gateway::start(&Setup::default())?;
    let mut holes = Vec::new();
    for host in 2..=5 {
        holes.push(BlackHole::dig(host).await?);
    }
    let holes: Vec<SocketAddr> = holes.iter().map(|hole| hole.address).collect();
    let (mut medians, mut worst, mut four, mut costs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for run in 0..scale.runs {
        let numbers = (0..scale.pick(CLIENTS, 1)).map(|number| run * CLIENTS + number);
        let (mut of_two, mut of_four, mut of_refused, mut of_none) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for number in numbers {
            of_two.push(first_answer(&gateway, &holes[..2], number).await?.as_secs_f64());
            of_four.push(first_answer(&gateway, &holes, number).await?.as_secs_f64());
            of_refused.push(first_answer(&gateway, &[refused()?], number).await?.as_secs_f64());
            of_none.push(first_answer(&gateway, &[], number).await?.as_secs_f64());
        }
        medians.push(median(&of_two));
        worst.push(of_two.into_iter().fold(0.0, f64::max));
        four.push(median(&of_four));
        costs.push((median(&of_refused) - median(&of_none)) * 1e3);
    }
    let what =
        "Time from a new client to its first answer: two addresses that swallow SYNs and datagrams, then a good one";
    Ok(vec![
        Figure::new("black_holes_first_answer_s", what, "s", Better::Lower).must(MUST_S).runs(medians),
        Figure::new("black_holes_first_answer_worst_s", format!("Worst of {CLIENTS} of the same"), "s", Better::Lower)
            .must(MUST_S)
            .runs(worst),
        Figure::new(
            "four_black_holes_first_answer_s",
            "The same with four addresses that swallow everything",
            "s",
            Better::Lower,
        )
        .must(FOUR_MUST_S)
        .runs(four),
        Figure::new(
            "refused_address_cost_ms",
            "What an address that refuses at once adds to the time to a new client's first answer",
            "ms",
            Better::Lower,
        )
        .must(REFUSED_MUST_MS)
        .runs(costs),
    ])
}

/// Returns an address at which nobody listens.
fn refused() -> Result<SocketAddr, BenchError> {
    let failed = |source| BenchError::Process { name: "an address that refuses", source };
    std::net::TcpListener::bind((Ipv4Addr::new(127, 0, 0, 6), 0)).and_then(|bound| bound.local_addr()).map_err(failed)
}

/// Asks through a client of the library that has just been made.
async fn first_answer(gateway: &Gateway, before: &[SocketAddr], number: u32) -> Result<Duration, BenchError> {
    let failed = |error: &dyn std::error::Error| BenchError::Dial { reason: error.to_string() };
    let seed = [number.to_be_bytes()[3]; 32];
    let key = ed25519_dalek::SigningKey::from_bytes(&seed).verifying_key().to_bytes();
    let mut builder = ropeway::Client::builder()
        .gateway(crate::bench::gateway::NAME)
        .trust(gateway.ca_pem())
        .ticket(gateway.ticket("first", &key)?)
        .app(crate::bench::gateway::APP)
        .device_key(seed)
        .served_host(ECHO_HOST)
        // Its name is known to the gateway alone.
        .way(ropeway::Way::Link);
    for address in before {
        builder = builder.access_point_on(*address, CarrierKind::ALL);
    }
    let good = gateway.address(CarrierKind::Tls);
    let client = builder.access_point_on(good, CarrierKind::ALL).build().map_err(|error| failed(&error))?;
    let asked = Instant::now();
    let body = Bytes::from_static(&BODY);
    let answer =
        client.post(format!("https://{ECHO_HOST}/")).body(body).send().await.map_err(|error| failed(&error))?;
    let answer = answer.bytes().await.map_err(|error| failed(&error))?;
    let time = asked.elapsed();
    client.close().await;
    if answer != BODY[..] {
        return Err(BenchError::WrongAnswer { what: "the echo came back changed".into() });
    }
    Ok(time)
}

/// An address of this machine where every SYN and datagram is lost.
struct BlackHole {
    address: SocketAddr,
    _listener: TcpListener,
    _udp: UdpSocket,
    _waiting: Vec<TcpStream>,
}

impl BlackHole {
    /// Listens without accepting, with a queue that is full: Linux then drops SYNs (listen(2), `tcp_abort_on_overflow`).
    async fn dig(host: u8) -> Result<Self, BenchError> {
        let failed = |source| BenchError::Process { name: "a black hole", source };
        let socket = TcpSocket::new_v4().map_err(failed)?;
        socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, host), 0))).map_err(failed)?;
        let listener = socket.listen(1).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let udp = UdpSocket::bind(address).await.map_err(failed)?;
        let mut waiting = Vec::new();
        while let Ok(connected) = timeout(FULL_AFTER, TcpStream::connect(address)).await {
            waiting.push(connected.map_err(failed)?);
        }
        Ok(Self { address, _listener: listener, _udp: udp, _waiting: waiting })
    }
}

/// Seconds that must not be exceeded.
const MUST_S: f64 = 0.6;

/// The same for four addresses.
const FOUR_MUST_S: f64 = 1.3;

/// Milliseconds that an address which refuses may cost.
const REFUSED_MUST_MS: f64 = 20.0;

/// Clients of one run.
const CLIENTS: u32 = 5;

/// A connection over loopback that takes longer found the queue full.
const FULL_AFTER: Duration = Duration::from_millis(200);
