//! Many links that ask again as soon as they are answered, and what that costs the gateway.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::Uri;
use ropeway_core::CarrierKind;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::BenchError;
use super::gateway::{Admin, Gateway};
use super::link::{Device, Link, Roads};

/// Opens a link for each device.
pub(super) async fn open(devices: &[Device], roads: &Roads, carrier: CarrierKind) -> Result<Vec<Link>, BenchError> {
    stream::iter(devices).map(|device| device.connect(roads, carrier)).buffer_unordered(OPENING_MAX).try_collect().await
}

/// Links under a constant load.
pub(super) struct Load {
    state: Arc<State>,
    workers: JoinSet<()>,
}

#[derive(Default)]
struct State {
    requests: AtomicU64,
    stop: AtomicBool,
    failure: Mutex<Option<BenchError>>,
}

/// What a gateway did in some time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rate {
    /// Requests answered for each second of its processor time.
    pub(super) requests: f64,
    /// Frames taken and sent for each second of its processor time.
    pub(super) frames: f64,
}

impl Load {
    /// Keeps `depth` requests of 64 bytes in flight on each link.
    pub(super) fn start(links: Vec<Link>, depth: usize, uri: &Uri) -> Self {
        let state = Arc::new(State::default());
        let mut workers = JoinSet::new();
        for link in links {
            let link = Arc::new(link);
            for _ in 0..depth {
                workers.spawn(ask(Arc::clone(&link), uri.clone(), Arc::clone(&state)));
            }
        }
        Self { state, workers }
    }

    /// Measures the gateway for a while.
    pub(super) async fn measure(
        &self,
        gateway: &Gateway,
        admin: &mut Admin,
        window: Duration,
    ) -> Result<Rate, BenchError> {
        let (frames, requests) = (admin.frames().await?, self.state.requests.load(Ordering::Relaxed));
        let cpu = gateway.process.cpu()?;
        sleep(window).await;
        let cpu = (gateway.process.cpu()? - cpu).as_secs_f64();
        let requests = self.state.requests.load(Ordering::Relaxed) - requests;
        let now = admin.frames().await?;
        if let Some(failure) = self.state.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(failure);
        }
        let frames = now.taken - frames.taken + now.sent - frames.sent;
        Ok(Rate { requests: requests as f64 / cpu, frames: frames as f64 / cpu })
    }

    /// Ends the load and cuts the links.
    pub(super) async fn stop(mut self) {
        self.state.stop.store(true, Ordering::Relaxed);
        while self.workers.join_next().await.is_some() {}
    }
}

async fn ask(link: Arc<Link>, uri: Uri, state: Arc<State>) {
    while !state.stop.load(Ordering::Relaxed) {
        match link.post(&uri, Bytes::from_static(&BODY)).await {
            Ok(length) if length == BODY.len() => {
                state.requests.fetch_add(1, Ordering::Relaxed);
            }
            Ok(length) => return state.fail(BenchError::WrongAnswer { what: format!("{length} bytes came back") }),
            Err(error) => return state.fail(error),
        }
    }
}

impl State {
    fn fail(&self, error: BenchError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Asks one after the other and gives the time that each answer took, in milliseconds.
pub(super) async fn one_by_one(link: &Link, uri: &Uri, count: usize) -> Result<Vec<f64>, BenchError> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let asked = Instant::now();
        link.post(uri, Bytes::from_static(&BODY)).await?;
        times.push(asked.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}

/// What a request carries: 64 bytes.
pub(super) static BODY: [u8; 64] = [b'r'; 64];

/// Links that open at once: enough to keep two cores busy, few enough that no handshake waits for seconds.
pub(super) const OPENING_MAX: usize = 64;
