//! Small uploads that wait for each other and go as one request, as futures.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use ropeway_core::{
    Retry, Side,
    request::{Batch, BatchConfig, BatchId, KEY_HEADER, RoutePattern, Way, is_idempotent},
    wire::{
        batch::{AnswerReader, BATCH_PATH, BATCH_TYPE, PartAnswer, PartWriter},
        list::INTERNAL_AUTHORITY,
    },
};
use tokio::sync::oneshot;
use tracing::debug;

use super::{Call, kept::Kept};
use crate::{
    Body, Error, Phase, Timeline,
    client::Handle,
    decode,
    exchange::{self, Options},
    shared::{ANSWER_WITHIN, lock},
};

/// What waits, and where it may.
#[derive(Debug)]
pub(crate) struct Batching {
    routes: Vec<RoutePattern>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    machine: Batch,
    waiting: BTreeMap<BatchId, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    part: Part,
    said: oneshot::Sender<Said>,
}

/// One request as it is written into a batch.
#[derive(Debug)]
struct Part {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
    idempotent: bool,
}

/// What becomes of a request of a batch.
#[derive(Debug)]
enum Said {
    /// It is sent by itself: it was not executed, or may be twice.
    Alone,
    Answer(Box<PartAnswer>, Timeline),
    /// It may have been executed.
    Unknown(Timeline),
}

impl Batching {
    pub(super) fn new(routes: Vec<RoutePattern>, config: BatchConfig) -> Self {
        Self { routes, state: Mutex::new(State { machine: Batch::new(config), waiting: BTreeMap::new() }) }
    }

    pub(super) fn set_weak(&self, weak: bool) {
        lock(&self.state).machine.handle_grade(weak);
    }

    /// Says whether a request may go with others, on a route of which the gateways may have said that `they_do`.
    pub(super) fn takes(&self, call: &Call, they_do: bool) -> bool {
        let (host, port) = super::place(call.request.uri());
        let path = call.request.uri().path();
        let special = [header::EXPECT, header::UPGRADE, header::RANGE];
        call.wishes.batchable
            && call.options.way.is_none_or(|way| way == Way::Link)
            && call.request.body().bytes().is_some()
            && !special.iter().any(|name| call.request.headers().contains_key(name))
            && (they_do || self.routes.iter().any(|route| route.matches(host, port, path)))
            && served(&call.handle, host, port)
    }
}

/// Only a gateway takes batches, and only for what it serves.
fn served(handle: &Handle, host: &str, port: u16) -> bool {
    let shared = handle.shared();
    let hosts = shared.view.borrow().hosts.clone();
    shared.config.seeks_links() && hosts.is_none_or(|hosts| hosts.serve(host, port))
}

/// Sends a request together with others that come soon, or by itself.
pub(super) async fn run(call: Call) -> Result<(Response<Body>, Timeline), Error> {
    let Some(part) = Part::of(&call) else { return call.go().await };
    let shared = Arc::clone(call.handle.shared());
    let batching = &shared.density.batching;
    // What may run twice does not wait for what may not: as one request they would be what the strictest is.
    let (host, port) = super::place(&part.uri);
    let lane = format!("{host}:{port} {}", part.idempotent);
    let Some((member, mut said)) = join(&call.handle, part, &lane) else { return call.go().await };
    let answered = call.patience.within(async {
        loop {
            let until = lock(&batching.state).machine.poll_timeout();
            let Some(until) = until else { break said.await };
            tokio::select! {
                said = &mut said => break said,
                () = tokio::time::sleep_until(shared.clock.instant(until)) => member.handle_timeout(),
            }
        }
    });
    let said = answered.await.map_err(|error| sent_already(batching, member.id, error))?;
    // The sender is dropped unused where the task of the batch was: with the runtime.
    match said.unwrap_or(Said::Unknown(Timeline::default())) {
        Said::Alone => call.go().await,
        Said::Answer(answer, timeline) => Ok((response(&call, *answer), timeline)),
        Said::Unknown(timeline) => Err(Error::OutcomeUnknown { timeline: Box::new(timeline) }),
    }
}

/// Lets a request wait for others; `None` if it goes by itself.
fn join(handle: &Handle, part: Part, lane: &str) -> Option<(Member, oneshot::Receiver<Said>)> {
    let shared = handle.shared();
    let mut state = lock(&shared.density.batching.state);
    let id = state.machine.handle_request(lane, part.body.len(), shared.clock.now())?;
    let (sender, said) = oneshot::channel();
    state.waiting.insert(id, Waiting { part, said: sender });
    state.drain(handle);
    Some((Member { handle: handle.clone(), id }, said))
}

/// Says what a request was at whose time is over: its batch may have been sent.
fn sent_already(batching: &Batching, id: BatchId, mut error: Error) -> Error {
    if let Error::Timeout { phase, .. } = &mut error
        && !lock(&batching.state).waiting.contains_key(&id)
    {
        *phase = Phase::Answer;
    }
    error
}

fn response(call: &Call, answer: PartAnswer) -> Response<Body> {
    let PartAnswer { head, body, whole, .. } = answer;
    let body = if whole {
        Body::from(body)
    } else {
        let reason = "what followed has no place in a batch, or was cut".to_owned();
        Body::kept(Kept::broken([body].into(), Error::BodyCut { side: Side::Service, reason }))
    };
    let mut response = Response::new(body);
    (*response.status_mut(), *response.headers_mut()) = (head.status, head.headers);
    let config = call.handle.shared().config.density.decode;
    if call.decodes { decode::answer(call.request.method(), response, config) } else { response }
}

/// A request that waits or whose batch is under way.
struct Member {
    handle: Handle,
    id: BatchId,
}

impl Member {
    fn handle_timeout(&self) {
        let shared = self.handle.shared();
        let mut state = lock(&shared.density.batching.state);
        state.machine.handle_timeout(shared.clock.now());
        state.drain(&self.handle);
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut state = lock(&self.handle.shared().density.batching.state);
        state.machine.handle_cancelled(self.id);
        state.waiting.remove(&self.id);
    }
}

impl State {
    /// Sends what goes.
    fn drain(&mut self, handle: &Handle) {
        while let Some(batch) = self.machine.poll_output() {
            let batch: Vec<_> = batch.iter().filter_map(|id| self.waiting.remove(id)).collect();
            if batch.len() > 1 {
                tokio::spawn(send(handle.clone(), batch));
            } else {
                batch.into_iter().for_each(|one| one.say(Said::Alone));
            }
        }
    }
}

impl Waiting {
    fn say(self, said: Said) {
        // Who no longer waits need not know.
        let _ = self.said.send(said);
    }
}

impl Part {
    fn of(call: &Call) -> Option<Self> {
        let (method, headers) = (call.request.method(), call.request.headers());
        let idempotent = call.options.idempotent || is_idempotent(method) || headers.contains_key(KEY_HEADER);
        let body = call.request.body().bytes()?.clone();
        let mut headers = headers.clone();
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        Some(Self { method: method.clone(), uri: call.request.uri().clone(), headers, body, idempotent })
    }
}

/// Sends a batch and says to each request what became of it.
async fn send(handle: Handle, batch: Vec<Waiting>) {
    let mut writer = PartWriter::new();
    let written = batch
        .iter()
        .all(|Waiting { part, .. }| writer.write(&part.method, &part.uri, &part.headers, &part.body).is_ok());
    let idempotent = batch.iter().all(|waiting| waiting.part.idempotent);
    let mut batch: Vec<Option<Waiting>> = batch.into_iter().map(Some).collect();
    let rest = if written {
        let left = exchange(&handle, writer.finish(), idempotent, &mut batch).await;
        // What may run twice is sent again, and whoever sends it learns what went wrong.
        if idempotent { Said::Alone } else { left }
    } else {
        Said::Alone
    };
    for waiting in batch.into_iter().flatten() {
        waiting.say(match &rest {
            Said::Alone | Said::Answer(..) => Said::Alone,
            Said::Unknown(timeline) => Said::Unknown(timeline.clone()),
        });
    }
}

/// Exchanges a batch for its answers, and returns what is to be said to those who got none.
async fn exchange(handle: &Handle, body: Bytes, idempotent: bool, batch: &mut [Option<Waiting>]) -> Said {
    let uri = Uri::builder().scheme("https").authority(INTERNAL_AUTHORITY).path_and_query(BATCH_PATH).build();
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri.expect("authority and path are valid");
    request.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(BATCH_TYPE));
    let timeout = handle.shared().config.timeout.unwrap_or(ANSWER_WITHIN);
    let options = Options { way: Some(Way::Link), idempotent, timeout: Some(timeout), ..Options::default() };
    let (response, timeline) = match exchange::run(handle.clone(), request, options).await {
        Ok(answer) => answer,
        Err(error) => {
            handle.shared().pace.handle_error(&error);
            return match error.retry() {
                Retry::Always | Retry::BeforeSend => Said::Alone,
                Retry::IdempotentOnly | Retry::Never => Said::Unknown(error.timeline().cloned().unwrap_or_default()),
            };
        }
    };
    // A gateway that does not take the batch has run none of it.
    if response.status() != StatusCode::OK {
        return Said::Alone;
    }
    let mut reader = AnswerReader::new(batch.len());
    let mut body = response.into_body();
    while let Some(Ok(frame)) = body.frame().await {
        reader.handle_data(frame.data_ref().map_or(&[], |data| data));
        loop {
            match reader.poll_answer() {
                Ok(Some(answer)) => {
                    if let Some(waiting) = batch.get_mut(answer.index).and_then(Option::take) {
                        waiting.say(Said::Answer(Box::new(answer), timeline.clone()));
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    debug!(%error, "answers of a batch cannot be read");
                    return Said::Unknown(timeline);
                }
            }
        }
    }
    Said::Unknown(timeline)
}
