//! Small requests on the link of a large body that is read slowly.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::Uri;
use http_body::Body;
use ropeway_core::CarrierKind;
use tokio::time::{Instant, sleep_until};

use crate::bench::figure::{Better, Figure, percentile};
use crate::bench::gateway::{DEMO_HOST, ECHO_HOST, Gateway, Setup};
use crate::bench::link::{Device, Link, Roads};
use crate::bench::load::BODY;
use crate::bench::{BenchError, Scale};

/// Measures the small requests of 20 s.
pub(super) async fn run(scale: Scale) -> Result<Vec<Figure>, BenchError> {
    let gateway = Gateway::start(&Setup::default())?;
    let roads = Roads::new(&gateway, false)?;
    let (mut medians, mut tails) = (Vec::new(), Vec::new());
    for number in 0..scale.runs {
        let device = Device::new(&gateway, number)?;
        let link = device.connect(&roads, CarrierKind::Tls).await?;
        let mut times = measure(&link, scale.pick(Duration::from_secs(20), Duration::from_secs(1))).await?;
        medians.push(percentile(&mut times, 0.5));
        tails.push(percentile(&mut times, 0.99));
    }
    let what = "64-byte requests, 100 a second, on the tls link of a 100 MB body that is read at 1 Mbit/s";
    Ok(vec![
        Figure::new("slow_reader_request_p99_ms", format!("99th percentile of {what}"), "ms", Better::Lower)
            .must(P99_MUST_MS)
            .runs(tails),
        Figure::new("slow_reader_request_p50_ms", format!("Median of {what}"), "ms", Better::Lower).runs(medians),
    ])
}

async fn measure(link: &Link, length: Duration) -> Result<Vec<f64>, BenchError> {
    let large: Uri = format!("https://{DEMO_HOST}/bytes?n=100000000").parse().expect("the host is a name");
    let body = link.get(&large).await?;
    let until = Instant::now() + length;
    let (times, bytes) = tokio::join!(requests(link, until), read_slowly(body, until));
    let (times, bytes, expected) = (times?, bytes?, length.as_secs_f64() * READ_BYTES_PER_S);
    // A body that stood still would prove nothing.
    if (bytes as f64) < expected * 0.8 {
        return Err(BenchError::WrongAnswer { what: format!("only {bytes} bytes of the large body came") });
    }
    Ok(times)
}

async fn requests(link: &Link, until: Instant) -> Result<Vec<f64>, BenchError> {
    let uri: Uri = format!("https://{ECHO_HOST}/").parse().expect("the host is a name");
    let mut times = Vec::new();
    let mut next = Instant::now();
    while next < until {
        // The time counts from when the request was due, so that a slow answer does not hide those behind it.
        sleep_until(next).await;
        link.post(&uri, Bytes::from_static(&BODY)).await?;
        times.push(next.elapsed().as_secs_f64() * 1000.0);
        next += INTERVAL;
    }
    Ok(times)
}

/// Takes the body's bytes at 1 Mbit/s and gives how many came.
async fn read_slowly(mut body: impl Body<Data = Bytes> + Unpin, until: Instant) -> Result<u64, BenchError> {
    let cut = || BenchError::WrongAnswer { what: "the large body was cut".into() };
    let began = Instant::now();
    let mut bytes = 0;
    while Instant::now() < until {
        let frame = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await;
        let frame = frame.ok_or_else(cut)?.map_err(|_| cut())?;
        bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        sleep_until(began + Duration::from_secs_f64(bytes as f64 / READ_BYTES_PER_S)).await;
    }
    Ok(bytes)
}

/// Milliseconds that must not be exceeded.
const P99_MUST_MS: f64 = 20.0;

/// 1 Mbit/s.
const READ_BYTES_PER_S: f64 = 125_000.0;

/// Time between two small requests.
const INTERVAL: Duration = Duration::from_millis(10);
