//! HTTP/2 requests through the front door to a real service, beside nginx on the same way.

use std::process::Command;
use std::time::Duration;

use ropeway_core::CarrierKind;

use crate::bench::figure::{Better, Figure, Peer};
use crate::bench::gateway::{Gateway, Setup, UPSTREAM_HOST};
use crate::bench::nginx::{Nginx, version};
use crate::bench::process::Process;
use crate::bench::{BenchError, Scale};

/// Measures the front door and nginx in turn.
pub(super) async fn run(scale: Scale) -> Result<Vec<Figure>, BenchError> {
    let (Some(service), Some(_)) = (Nginx::service().await?, version("h2load", "--version")) else {
        return Ok(Vec::new());
    };
    let Some(nginx) = Nginx::proxy(service.address()).await? else { return Ok(Vec::new()) };
    let setup = Setup { upstream: Some(format!("http://{}", service.address())), ..Setup::default() };
    let gateway = Gateway::start(&setup)?;
    let front = gateway.address(CarrierKind::Tls).port();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..=scale.runs {
        let our = measure(front, &gateway.process, scale).await?;
        let their = measure(nginx.address().port(), nginx.process(), scale).await?;
        if run > 0 || scale.quick {
            ours.push(our);
            theirs.push(their);
        }
    }
    let what = format!("HTTP/2 requests of h2load, {CLIENTS} connections of {STREAMS}, over TLS to {}", service.name());
    let peer = Peer { name: format!("{} as reverse proxy", nginx.name()), runs: theirs };
    Ok(vec![
        Figure::new("front_h2_requests_per_cpu_s", what, "requests/CPU-s", Better::Higher)
            .runs(ours)
            .beside(Some(peer)),
    ])
}

/// Sends requests and gives how many were answered for each second of the process's processor time.
async fn measure(port: u16, process: &Process, scale: Scale) -> Result<f64, BenchError> {
    let requests: u32 = scale.pick(100_000, 500);
    let mut command = Command::new("h2load");
    command.arg(format!("--requests={requests}"));
    command.arg(format!("--clients={CLIENTS}")).arg(format!("--max-concurrent-streams={STREAMS}"));
    command.arg(format!("--connect-to=127.0.0.1:{port}")).arg(format!("https://{UPSTREAM_HOST}/"));
    let before = process.cpu()?;
    let load = Process::start("h2load", &mut command)?;
    let text = tokio::task::spawn_blocking(|| load.output()).await;
    let text = text.map_err(|error| BenchError::WrongAnswer { what: error.to_string() })??;
    let cpu = process.cpu()?.saturating_sub(before).max(Duration::from_millis(1)).as_secs_f64();
    let good = format!("{requests} succeeded, 0 failed");
    if !text.contains(&good) || !text.contains(&format!("status codes: {requests} 2xx")) {
        return Err(BenchError::WrongAnswer { what: format!("h2load: {text}") });
    }
    Ok(f64::from(requests) / cpu)
}

/// Connections at once.
const CLIENTS: u32 = 16;

/// Requests in flight on each.
const STREAMS: u32 = 8;
