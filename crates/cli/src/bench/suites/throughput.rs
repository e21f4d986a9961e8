//! Small requests through the whole pipeline, for each second of the gateway's processor time.

use std::time::Duration;

use http::Uri;
use ropeway_core::CarrierKind;
use tokio::time::sleep;

use crate::bench::figure::{Better, Figure};
use crate::bench::gateway::{ECHO_HOST, Gateway, Setup, UPSTREAM_HOST};
use crate::bench::link::{Device, Roads};
use crate::bench::load::{Load, Rate, open};
use crate::bench::nginx::Nginx;
use crate::bench::{BenchError, Scale};

/// Names of the figures of one way to load the gateway.
struct Names {
    frames: &'static str,
    requests: &'static str,
}

/// Measures requests that the built-in echo answers.
pub(super) async fn echo(scale: Scale) -> Result<Vec<Figure>, BenchError> {
    let gateway = Gateway::start(&Setup::default())?;
    let mut figures = Vec::new();
    for (depth, names) in [
        (1, Names { frames: "echo_frames_per_cpu_s", requests: "echo_requests_per_cpu_s" }),
        (8, Names { frames: "echo_deep_frames_per_cpu_s", requests: "echo_deep_requests_per_cpu_s" }),
    ] {
        let rates = measure(&gateway, scale, ECHO_HOST, depth).await?;
        figures.extend(figures_of(scale, "the built-in echo", depth, &names, &rates));
    }
    Ok(figures)
}

/// Measures requests that a real HTTP service behind the gateway answers.
pub(super) async fn upstream(scale: Scale) -> Result<Vec<Figure>, BenchError> {
    let Some(nginx) = Nginx::service().await? else { return Ok(Vec::new()) };
    let setup = Setup { upstream: Some(format!("http://{}", nginx.address())), ..Setup::default() };
    let gateway = Gateway::start(&setup)?;
    let mut figures = Vec::new();
    for (depth, names) in [
        (1, Names { frames: "upstream_frames_per_cpu_s", requests: "upstream_requests_per_cpu_s" }),
        (8, Names { frames: "upstream_deep_frames_per_cpu_s", requests: "upstream_deep_requests_per_cpu_s" }),
    ] {
        let rates = measure(&gateway, scale, UPSTREAM_HOST, depth).await?;
        figures.extend(figures_of(scale, &format!("{} as HTTP upstream", nginx.name()), depth, &names, &rates));
    }
    Ok(figures)
}

async fn measure(gateway: &Gateway, scale: Scale, host: &str, depth: usize) -> Result<Vec<Rate>, BenchError> {
    let uri: Uri = format!("https://{host}/").parse().expect("the hosts are names");
    let roads = Roads::new(gateway, false)?;
    let mut admin = gateway.admin().await?;
    let devices = Device::many(gateway, links(scale))?;
    let load = Load::start(open(&devices, &roads, CarrierKind::Tls).await?, depth, &uri);
    sleep(scale.pick(WARM_UP, Duration::ZERO)).await;
    let mut rates = Vec::new();
    for _ in 0..scale.runs {
        rates.push(load.measure(gateway, &mut admin, scale.pick(WINDOW, QUICK_WINDOW)).await?);
    }
    load.stop().await;
    Ok(rates)
}

fn figures_of(scale: Scale, answered_by: &str, depth: usize, names: &Names, rates: &[Rate]) -> [Figure; 2] {
    let load = format!("{} tls links with {depth} in flight each, 64 bytes, {answered_by}", links(scale));
    let frames = rates.iter().map(|rate| rate.frames).collect();
    let requests = rates.iter().map(|rate| rate.requests).collect();
    [
        Figure::new(names.frames, format!("Packets (frames in and out): {load}"), "packets/CPU-s", Better::Higher)
            .must(PACKETS_MUST)
            .goal(PACKETS_GOAL)
            .runs(frames),
        Figure::new(names.requests, format!("Requests: {load}"), "requests/CPU-s", Better::Higher).runs(requests),
    ]
}

fn links(scale: Scale) -> u32 {
    scale.pick(500, 20)
}

/// Packets for each second of processor time that must be reached.
const PACKETS_MUST: f64 = 30_000.0;

/// Packets for each second of processor time that are aimed at.
const PACKETS_GOAL: f64 = 120_000.0;

/// Time before the first measurement: connections to the upstream are made, buffers have grown.
const WARM_UP: Duration = Duration::from_secs(2);

/// Time of one measurement: 1 % is 30 ms of it, three ticks of the processor's clock.
const WINDOW: Duration = Duration::from_secs(3);

/// The same for a quick run.
const QUICK_WINDOW: Duration = Duration::from_millis(300);
