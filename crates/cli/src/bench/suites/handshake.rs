//! Links opened and admitted for each second of the gateway's processor time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ropeway_core::CarrierKind;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::bench::figure::{Better, Figure};
use crate::bench::gateway::{Gateway, Setup};
use crate::bench::link::{Device, Roads};
use crate::bench::{BenchError, Scale};

/// Measures full handshakes, and such that resume a TLS session.
pub(super) async fn run(scale: Scale) -> Result<Vec<Figure>, BenchError> {
    let mut figures = Vec::new();
    for (resumption, name, what) in [
        (false, "handshakes_per_cpu_s", "Full TLS handshakes with HELLO and PROOF"),
        (true, "resumed_handshakes_per_cpu_s", "Resumed TLS handshakes with HELLO and PROOF"),
    ] {
        let runs = measure(scale, resumption).await?;
        let what = format!("{what}, link opened and cut");
        figures.push(Figure::new(name, what, "links/CPU-s", Better::Higher).goal(HANDSHAKES_GOAL).runs(runs));
    }
    Ok(figures)
}

async fn measure(scale: Scale, resumption: bool) -> Result<Vec<f64>, BenchError> {
    let gateway = Gateway::start(&Setup { session_ttl: SESSION_TTL, ..Setup::default() })?;
    let roads = Roads::new(&gateway, resumption)?;
    let opened = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let mut workers = JoinSet::new();
    for device in Device::many(&gateway, WORKERS)? {
        let roads = if resumption { roads.apart() } else { roads.clone() };
        workers.spawn(reconnect(device, roads, resumption, Arc::clone(&opened), Arc::clone(&stop)));
    }
    sleep(scale.pick(WARM_UP, Duration::ZERO)).await;
    let mut runs = Vec::new();
    for _ in 0..scale.runs {
        let (cpu, count) = (gateway.process.cpu()?, opened.load(Ordering::Relaxed));
        sleep(scale.pick(WINDOW, QUICK_WINDOW)).await;
        let cpu = (gateway.process.cpu()? - cpu).as_secs_f64();
        runs.push((opened.load(Ordering::Relaxed) - count) as f64 / cpu);
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = workers.join_next().await {
        ended.map_err(|error| BenchError::WrongAnswer { what: error.to_string() })??;
    }
    Ok(runs)
}

/// Opens one link after the other; only those count that began as they were meant to.
async fn reconnect(
    device: Device,
    roads: Roads,
    resumption: bool,
    opened: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Result<(), BenchError> {
    let mut is_first = true;
    while !stop.load(Ordering::Relaxed) {
        let link = device.connect(&roads, CarrierKind::Tls).await?;
        if link.is_resumed == resumption {
            opened.fetch_add(1, Ordering::Relaxed);
        } else if !is_first {
            return Err(BenchError::WrongAnswer { what: "a TLS session was not resumed".into() });
        }
        is_first = false;
    }
    Ok(())
}

/// Links a second of processor time that are aimed at.
const HANDSHAKES_GOAL: f64 = 3_000.0;

/// Devices that connect at once.
const WORKERS: u32 = 32;

/// Sessions are forgotten soon: they are thousands a second here.
const SESSION_TTL: Duration = Duration::from_secs(1);

const WARM_UP: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(3);
const QUICK_WINDOW: Duration = Duration::from_millis(300);
