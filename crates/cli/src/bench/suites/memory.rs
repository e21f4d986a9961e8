//! Memory of links that have nothing to do.

use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::Uri;
use ropeway_core::CarrierKind;
use tokio::time::sleep;

use crate::bench::figure::{Better, Figure, Peer};
use crate::bench::gateway::{ECHO_HOST, Gateway, Setup};
use crate::bench::link::{Device, Link, Roads};
use crate::bench::load::{BODY, OPENING_MAX, open};
use crate::bench::nginx::Nginx;
use crate::bench::process::{KernelMemory, Process};
use crate::bench::{BenchError, Scale};

/// Memory before and after, of the gateway and of the kernel.
#[derive(Clone, Copy)]
struct Level {
    user: u64,
    kernel: KernelMemory,
}

impl Level {
    fn now(process: &Process) -> Result<Self, BenchError> {
        Ok(Self { user: process.resident_bytes()?, kernel: KernelMemory::now()? })
    }
}

/// Kilobytes for each of many links, one value a run.
#[derive(Default)]
struct Found {
    fresh: Vec<f64>,
    used: Vec<f64>,
    slab: Vec<f64>,
    tcp: Vec<f64>,
}

/// Measures the memory of idle links, and of nginx's idle connections beside it.
pub(super) async fn run(scale: Scale) -> Result<Vec<Figure>, BenchError> {
    let count = scale.pick(LINKS, 200).min(u32::try_from(scale.open_files / 2).unwrap_or(LINKS));
    let mut found = Found::default();
    let mut peer = None;
    // Each run takes 10,000 links on each side, so three are enough.
    for _ in 0..scale.runs.min(RUNS_MAX) {
        measure(count, &mut found).await?;
        if let Some(nginx) = Nginx::https().await? {
            let kilobytes = beside(&nginx, scale.pick(5_000, 100)).await?;
            peer.get_or_insert_with(|| Peer { name: format!("{}, https keep-alive", nginx.name()), runs: Vec::new() })
                .runs
                .push(kilobytes);
        }
    }
    let of = |what: &str| format!("{what} of an idle, authenticated tls link, at {count} links");
    let kilobytes = |name, what: String| Figure::new(name, what, "KB/link", Better::Lower);
    Ok(vec![
        kilobytes("idle_link_user_kb", of("User memory")).must(USER_MUST).goal(USER_GOAL).runs(found.fresh),
        kilobytes("idle_used_link_user_kb", of("User memory, after one request and the time its answer is kept,"))
            .must(USER_MUST)
            .goal(USER_GOAL)
            .runs(found.used)
            .beside(peer),
        kilobytes("idle_link_kernel_slab_kb", of("Kernel objects of one end")).runs(found.slab),
        kilobytes("idle_link_kernel_tcp_kb", of("Kernel socket buffers of one end")).runs(found.tcp),
    ])
}

async fn measure(count: u32, found: &mut Found) -> Result<(), BenchError> {
    let gateway = Gateway::start(&Setup { answers_ttl: ANSWERS_TTL, ..Setup::default() })?;
    let roads = Roads::new(&gateway, false)?;
    let devices = Device::many(&gateway, WARM_LINKS + count)?;
    let (warm, many) = devices.split_at(WARM_LINKS as usize);
    let warm = open(warm, &roads, CarrierKind::Tls).await?;
    echo(&warm).await?;
    let before = Level::now(&gateway.process)?;
    let links = open(many, &roads, CarrierKind::Tls).await?;
    sleep(SETTLE).await;
    let fresh = Level::now(&gateway.process)?;
    echo(&links).await?;
    sleep(ANSWERS_TTL + SETTLE).await;
    let used = Level::now(&gateway.process)?;
    let share = |bytes: u64| bytes as f64 / 1000.0 / f64::from(count);
    found.fresh.push(share(fresh.user.saturating_sub(before.user)));
    found.used.push(share(used.user.saturating_sub(before.user)));
    // The other end of each connection is in the same kernel.
    found.slab.push(share(fresh.kernel.slab_bytes.saturating_sub(before.kernel.slab_bytes)) / 2.0);
    found.tcp.push(share(fresh.kernel.tcp_bytes.saturating_sub(before.kernel.tcp_bytes)) / 2.0);
    Ok(())
}

async fn echo(links: &[Link]) -> Result<(), BenchError> {
    let uri: Uri = format!("https://{ECHO_HOST}/").parse().expect("the host is a name");
    let answers = stream::iter(links).map(|link| link.post(&uri, Bytes::from_static(&BODY)));
    answers.buffer_unordered(OPENING_MAX).try_for_each(|_| async { Ok(()) }).await
}

async fn beside(nginx: &Nginx, count: u32) -> Result<f64, BenchError> {
    let warm = nginx.keep_alive(WARM_LINKS).await?;
    let before = nginx.process().resident_bytes()?;
    let connections = nginx.keep_alive(count).await?;
    sleep(SETTLE).await;
    let bytes = nginx.process().resident_bytes()?.saturating_sub(before);
    drop((warm, connections));
    Ok(bytes as f64 / 1000.0 / f64::from(count))
}

/// Links of one run; fewer where the system does not allow a process that many sockets.
const LINKS: u32 = 10_000;

/// Kilobytes a link that must not be exceeded.
const USER_MUST: f64 = 12.0;

/// Kilobytes a link that are aimed at.
const USER_GOAL: f64 = 4.0;

/// Runs at most: each takes half a minute.
const RUNS_MAX: u32 = 3;

/// Links that are open before the first look, so that what all links share is there already.
const WARM_LINKS: u32 = 100;

/// Time that answers are kept here: shorter than usual, so that the benchmark need not wait for a minute.
const ANSWERS_TTL: Duration = Duration::from_secs(1);

/// Time for what is freed in the background.
const SETTLE: Duration = Duration::from_secs(1);
