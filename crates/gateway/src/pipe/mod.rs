//! The sealed pipe's end at the gateway: takes requests encrypted as Oblivious HTTP and answers them the same way.
//!
//! A sealed request may come over plain HTTP: what is inside was written by who has the gateway's key, and is read by the
//! gateway alone. It goes the way of every other request, with the same routes and limits. What cannot be opened is
//! refused in the open, and such a refusal proves nothing; all others go through the pipe.

mod keyring;
mod refusal;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, Version, header};
use http_body_util::{BodyExt, Full};
use ropeway_core::pipe::{Admission, AdmissionConfig, PipeRefusal};
use ropeway_net::{
    Clock,
    pipe::{ANSWER_TYPE, Content, KEYS_TYPE, OpenError, Opened, PIPE_KEYS_PATH, PIPE_PATH, REQUEST_TYPE, key_id},
    unix_ms,
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use self::{
    keyring::Keyring,
    refusal::{Inner, Outer, of_proxy},
};
use crate::{
    config::Config,
    front::Connection,
    gateway::StartError,
    held::{ANSWER_TIMEOUT, BODY_TIMEOUT, Collect, Places, collect, whole},
    lists,
    metrics::Metrics,
    proxy::{Peer, Proxy, ProxyBody},
};

pub(crate) use self::keyring::KEYS_FILE;
pub use self::keyring::PublicKey;

/// Takes and answers sealed requests.
#[derive(Debug)]
pub(crate) struct Pipe {
    keyring: ArcSwap<Keyring>,
    admission: Mutex<Admission>,
    places: Places,
    request_bytes_max: usize,
    answer_bytes_max: usize,
    clock: Clock,
    metrics: Arc<Metrics>,
}

/// Says whether the pipe answers at this path.
pub(crate) fn is_reserved(path: &str) -> bool {
    path == PIPE_PATH || path == PIPE_KEYS_PATH
}

impl Pipe {
    /// Opens the pipe with the keys of the shared secret or of the data folder; `None` where it is turned off.
    pub(crate) fn open(config: &Config, metrics: &Arc<Metrics>, clock: Clock) -> Result<Option<Arc<Self>>, StartError> {
        if !config.pipe.enabled {
            return Ok(None);
        }
        let (name, listed) = (config.pipe_name(), lists::pipe_names(config));
        if !listed.is_empty() && !listed.contains(&name) {
            warn!(
                name,
                "no access point of the list has the sealed pipe of this gateway; see `pipe.name` and `pipe_name`"
            );
        }
        let (keyring, is_older) = Keyring::open(config, unix_ms())?;
        let admission = match is_older {
            true => Admission::restarted(AdmissionConfig::default(), unix_ms(), clock.now()),
            false => Admission::new(AdmissionConfig::default(), clock.now()),
        };
        Ok(Some(Arc::new(Self {
            keyring: ArcSwap::from_pointee(keyring),
            admission: Mutex::new(admission),
            places: Places::new(config.pipe.in_flight_max),
            request_bytes_max: config.pipe.request_bytes_max,
            answer_bytes_max: config.pipe.answer_bytes_max,
            clock,
            metrics: Arc::clone(metrics),
        })))
    }

    /// Checks the secret that the configuration names, as [`open`](Self::open) does.
    pub(crate) fn check(config: &Config) -> Result<(), StartError> {
        if config.pipe.enabled { Keyring::check(config) } else { Ok(()) }
    }

    /// Returns the public keys that are accepted, the one to use first.
    pub(crate) fn keys(&self) -> Vec<PublicKey> {
        self.keyring.load().public()
    }

    /// Returns the public keys of the pipes of these names, as far as this gateway knows them: where it shares a secret, of all.
    pub(crate) fn keys_of(&self, names: &[&str]) -> Vec<PublicKey> {
        self.keyring.load().of_pipes(names, unix_ms())
    }

    /// Answers what came to one of the pipe's paths.
    pub(crate) async fn answer(
        &self,
        request: Request<ProxyBody>,
        proxy: &Proxy,
        connection: &Connection,
    ) -> Response<ProxyBody> {
        let is_http10 = request.version() == Version::HTTP_10;
        let answer = if request.uri().path() == PIPE_KEYS_PATH {
            self.configuration(request.method(), connection)
        } else {
            self.exchange(request, proxy, connection).await
        };
        let mut response = answer.unwrap_or_else(|refused| {
            self.metrics.pipe_requests(refused.name()).inc();
            refused.into_response()
        });
        if is_http10 {
            // Who speaks HTTP/1.0 asks once; what stands between may not know when the answer ends otherwise.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    fn configuration(&self, method: &Method, connection: &Connection) -> Result<Response<ProxyBody>, Outer> {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Err(Outer::Method);
        }
        if connection.plain {
            return Err(Outer::KeysOverPlain);
        }
        let (list, expires_ms) = self.keyring.load().current();
        let age_max = format!("private, max-age={}", expires_ms.saturating_sub(unix_ms()) / 1_000);
        let mut response = whole(KEYS_TYPE, list);
        let age_max = HeaderValue::try_from(age_max).expect("letters and digits");
        response.headers_mut().insert(header::CACHE_CONTROL, age_max);
        Ok(response)
    }

    async fn exchange(
        &self,
        request: Request<ProxyBody>,
        proxy: &Proxy,
        connection: &Connection,
    ) -> Result<Response<ProxyBody>, Outer> {
        if request.method() != Method::POST {
            return Err(Outer::Method);
        }
        if request.headers().get(header::CONTENT_TYPE).is_none_or(|kind| kind != REQUEST_TYPE) {
            return Err(Outer::Type);
        }
        let sealed = timeout(BODY_TIMEOUT, self.read(request.into_body())).await.map_err(|_| Outer::Slow)??;
        let _place = self.places.serve().ok_or(Outer::Busy)?;
        let Opened { enc, request, date_ms, answer } = self.unseal(&sealed)?;
        drop(sealed);
        let response = match request {
            Err(error) => {
                debug!(%error, "sealed message is no request");
                self.refused(Inner::Malformed)
            }
            Ok(request) => match self.admit(&enc, date_ms.unwrap_or(0), request.method()) {
                Err(refusal) => self.refused(Inner::Refused(refusal)),
                Ok(()) => {
                    self.metrics.pipe_requests("answered").inc();
                    self.serve(request, proxy, connection).await
                }
            },
        };
        let unsealable = |error| {
            warn!(%error, "answer cannot go through the sealed pipe");
            self.refused(Inner::AnswerUnsealable)
        };
        let sealed = answer.seal_or(response, unsealable).map_err(|error| {
            warn!(%error, "answer cannot be sealed");
            Outer::Cut
        })?;
        Ok(whole(ANSWER_TYPE, sealed))
    }

    async fn read(&self, body: ProxyBody) -> Result<Bytes, Outer> {
        let collected = self.places.collect(body, self.request_bytes_max).await;
        collected.map(|content| content.data).map_err(|error| match error {
            Collect::Busy => Outer::Busy,
            Collect::Failed(_) => Outer::Cut,
            Collect::TooLarge => Outer::Size,
        })
    }

    fn unseal(&self, sealed: &[u8]) -> Result<Opened, Outer> {
        let id = key_id(sealed).ok_or(Outer::Unopened(OpenError::Truncated))?;
        let keyring = self.keyring.load();
        let key = keyring.key(id).ok_or(Outer::UnknownKey)?;
        key.open(sealed).map_err(Outer::Unopened)
    }

    /// Takes a request once.
    fn admit(&self, enc: &[u8; 32], date_ms: u64, method: &Method) -> Result<(), PipeRefusal> {
        let mut admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        admission.handle_request(enc, date_ms, method.is_safe(), unix_ms(), self.clock.now())
    }

    /// Sends a request to its route and holds the answer until it is whole.
    async fn serve(&self, request: Request<Content>, proxy: &Proxy, connection: &Connection) -> Response<Content> {
        let peer = Peer { via_pipe: true, ..Peer::new(connection.address) };
        let serving = async {
            let response = proxy.forward(request.map(streamed), peer).await.map_err(Collect::Failed)?;
            let (head, body) = response.into_parts();
            let content = collect(body, self.answer_bytes_max).await?;
            Ok(Response::from_parts(head, content))
        };
        match timeout(ANSWER_TIMEOUT, serving).await {
            Ok(Ok(response)) => response,
            Ok(Err(Collect::Failed(error))) => of_proxy(error),
            Ok(Err(Collect::Busy | Collect::TooLarge)) => self.refused(Inner::AnswerTooLarge),
            Err(_) => self.refused(Inner::AnswerSlow),
        }
    }

    fn refused(&self, why: Inner) -> Response<Content> {
        self.metrics.pipe_requests(why.name()).inc();
        why.into_response(unix_ms())
    }
}

/// Makes and forgets keys as they are due, until the gateway is down; `turned` is called when another is the one to use.
pub(crate) async fn turn_keys(pipe: Arc<Pipe>, down: CancellationToken, turned: impl Fn()) {
    loop {
        let due = pipe.keyring.load().due_ms.saturating_sub(unix_ms());
        // The clock may be set meanwhile.
        let pause = Duration::from_millis(due).clamp(TURN_PAUSE_MIN, TURN_PAUSE_MAX);
        tokio::select! {
            () = sleep(pause) => {}
            () = down.cancelled() => return,
        }
        let before = pipe.keyring.load_full();
        match before.turn(unix_ms()) {
            Ok(ring) => {
                let is_new = ring.current() != before.current();
                pipe.keyring.store(Arc::new(ring));
                if is_new {
                    info!(id = pipe.keys().first().map(|key| key.id), "sealed pipe has another key");
                    turned();
                }
            }
            Err(error) => warn!(%error, "keys of the sealed pipe stay as they are"),
        }
    }
}

fn streamed(content: Content) -> ProxyBody {
    let trailers = content.trailers.map(Ok);
    Full::new(content.data).with_trailers(std::future::ready(trailers)).map_err(|never| match never {}).boxed_unsync()
}

/// Longest and shortest time between two looks at the keys. One hour, since the wall clock may be set; one second, where
/// they are due and could not be written.
const TURN_PAUSE_MAX: Duration = Duration::from_hours(1);
const TURN_PAUSE_MIN: Duration = Duration::from_secs(1);
