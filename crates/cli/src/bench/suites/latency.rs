//! Time of a request and of a push, with nothing else to do.

use std::time::Instant;

use http::Uri;
use ropeway_core::CarrierKind;

use crate::bench::figure::{Better, Figure, percentile};
use crate::bench::gateway::{Admin, ECHO_HOST, Gateway, Setup};
use crate::bench::link::{Device, Link, Roads};
use crate::bench::load::one_by_one;
use crate::bench::{BenchError, Scale};

/// Measures both over each carrier.
pub(super) async fn run(scale: Scale) -> Result<Vec<Figure>, BenchError> {
    let gateway = Gateway::start(&Setup::default())?;
    let roads = Roads::new(&gateway, false)?;
    let mut admin = gateway.admin().await?;
    let mut figures = Vec::new();
    for (number, (carrier, names)) in (0..).zip(NAMES) {
        let device = Device::new(&gateway, number)?;
        let mut link = device.connect(&roads, carrier).await?;
        let mut runs: [Vec<f64>; 4] = Default::default();
        for run in 0..=scale.runs {
            let mut requests = requests(&link, scale).await?;
            let mut pushes = pushes(&mut link, &mut admin, &device.user, scale).await?;
            // The first run warms up: buffers grow, frequencies rise.
            if run > 0 {
                runs[0].push(percentile(&mut requests, 0.5));
                runs[1].push(percentile(&mut requests, 0.99));
                runs[2].push(percentile(&mut pushes, 0.5));
                runs[3].push(percentile(&mut pushes, 0.99));
            }
        }
        let what = [
            format!("Median time of a 64-byte request over {carrier}, one by one, the built-in echo"),
            format!("99th percentile of the same over {carrier}"),
            format!("Median time from POST /v1/push to the device over {carrier}, one by one"),
            format!("99th percentile of the same over {carrier}"),
        ];
        for ((name, what), runs) in names.into_iter().zip(what).zip(runs) {
            figures.push(Figure::new(name, what, "ms", Better::Lower).runs(runs));
        }
    }
    Ok(figures)
}

async fn requests(link: &Link, scale: Scale) -> Result<Vec<f64>, BenchError> {
    let uri: Uri = format!("https://{ECHO_HOST}/").parse().expect("the host is a name");
    one_by_one(link, &uri, scale.pick(REQUESTS, 50)).await
}

/// Pushes one message after the other and gives the time until each arrived, in milliseconds.
async fn pushes(link: &mut Link, admin: &mut Admin, user: &str, scale: Scale) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::new();
    for number in 0..scale.pick(PUSHES, 20) {
        let text = number.to_string();
        let asked = Instant::now();
        let (pushed, came) = tokio::join!(admin.push(user, &text), async {
            let told = link.pushed().await;
            (told, asked.elapsed())
        });
        pushed?;
        if came.0? != text {
            return Err(BenchError::WrongAnswer { what: "another message came".into() });
        }
        times.push(came.1.as_secs_f64() * 1000.0);
    }
    Ok(times)
}

/// The four figures of each carrier.
const NAMES: [(CarrierKind, [&str; 4]); 3] = [
    (CarrierKind::Tls, ["request_tls_p50_ms", "request_tls_p99_ms", "push_tls_p50_ms", "push_tls_p99_ms"]),
    (CarrierKind::Quic, ["request_quic_p50_ms", "request_quic_p99_ms", "push_quic_p50_ms", "push_quic_p99_ms"]),
    (CarrierKind::Ws, ["request_ws_p50_ms", "request_ws_p99_ms", "push_ws_p50_ms", "push_ws_p99_ms"]),
];

/// Requests of one run: the 99th percentile is the 20th slowest.
const REQUESTS: usize = 2_000;

/// Pushes of one run.
const PUSHES: u32 = 1_000;
