//! Spares requests the wait for an upstream that nobody can reach.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use ropeway_core::Time;
use ropeway_core::quality::{Attempt, Breaker, BreakerConfig};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::connect::{ConnectError, Connector, UpstreamIo};
use crate::metrics::{Counter, Gauge, GaugeHold};

/// Connects to its upstream, or says at once that it is beyond reach; one attempt at a time then goes on in the background.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    connector: Connector,
    shared: Arc<Shared>,
}

/// What is counted of upstreams beyond reach.
#[derive(Clone, Debug)]
pub struct DownMetrics {
    /// Upstreams beyond reach now.
    pub down: Gauge,
    /// Times that one was found to be.
    pub openings: Counter,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    origin: Instant,
    probed: Notify,
    metrics: DownMetrics,
}

#[derive(Debug)]
struct State {
    breaker: Breaker,
    probe_began: Option<Instant>,
    down: Option<GaugeHold>,
}

impl Gate {
    pub(super) fn new(connector: Connector, metrics: DownMetrics) -> Self {
        let state = State { breaker: Breaker::new(BreakerConfig::default()), probe_began: None, down: None };
        let shared = Shared { state: Mutex::new(state), origin: Instant::now(), probed: Notify::new(), metrics };
        Self { connector, shared: Arc::new(shared) }
    }

    /// Connects; `h1_only` keeps HTTP/2 out of what an encrypted upstream is offered.
    pub(super) async fn connect(&self, h1_only: bool) -> Result<TokioIo<UpstreamIo>, ConnectError> {
        let attempt = self.shared.with(|state, now| {
            let attempt = state.breaker.handle_wanted(now);
            if attempt == Attempt::Probe {
                state.probe_began = Some(Instant::now());
            }
            attempt
        });
        match attempt {
            Attempt::Normal => {}
            Attempt::Hopeless => self.await_probe().await?,
            Attempt::Probe => {
                let gate = self.clone();
                // In the background, so that the request that came upon it need not wait for it.
                tokio::spawn(async move { gate.attempt(Attempt::Probe, h1_only).await.map(drop) });
                self.await_probe().await?;
            }
        }
        self.attempt(Attempt::Normal, h1_only).await
    }

    /// Waits for a probe that has just begun: a healthy upstream takes the connection before that is over.
    async fn await_probe(&self) -> Result<(), ConnectError> {
        loop {
            let mut probed = std::pin::pin!(self.shared.probed.notified());
            probed.as_mut().enable();
            let (is_open, began) = self.shared.with(|state, _| (state.breaker.is_open(), state.probe_began));
            if !is_open {
                return Ok(());
            }
            let Some(began) = began else { return Err(ConnectError::Down) };
            timeout_at(began + PROBE_PATIENCE, probed).await.map_err(|_| ConnectError::Down)?;
        }
    }

    async fn attempt(&self, attempt: Attempt, h1_only: bool) -> Result<TokioIo<UpstreamIo>, ConnectError> {
        let began = Instant::now();
        let outcome = self.connector.connect(h1_only).await;
        let is_connected = outcome.is_ok();
        self.shared.with(|state, now| {
            if is_connected {
                state.breaker.handle_connected();
            } else {
                state.breaker.handle_failed(attempt, began.elapsed(), now);
            }
            if attempt == Attempt::Probe {
                state.probe_began = None;
            }
            let is_open = state.breaker.is_open();
            if is_open && state.down.is_none() {
                state.down = Some(self.shared.metrics.down.hold());
                self.shared.metrics.openings.inc();
            } else if !is_open {
                state.down = None;
            }
        });
        self.shared.probed.notify_waiters();
        outcome
    }
}

impl tower_service::Service<Uri> for Gate {
    type Response = TokioIo<UpstreamIo>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let gate = self.clone();
        Box::pin(async move { gate.connect(false).await })
    }
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut State, Time) -> T) -> T {
        let now = Time::from_origin(self.origin.elapsed());
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner), now)
    }
}

/// Time that a request gives to a probe: as long as a failure may take without being counted as a wait
/// ([`BreakerConfig::slow`]).
const PROBE_PATIENCE: Duration = Duration::from_millis(250);
