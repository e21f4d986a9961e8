//! An answer as it is recorded: played to whoever waits for it, from its beginning, while it still comes and afterwards.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::super::{ProxyBody, ProxyError};

/// The answer of one keyed request, from nothing to its end.
///
/// Up to its limit all of it is held, so that a reader may come late. Beyond that it keeps what one reader has yet to take: the
/// fastest sets the pace, and one that falls behind by more than the limit is cut, for the two are tries of the same client.
#[derive(Debug)]
pub(super) struct Tape {
    bytes_max: usize,
    /// The user whose request is answered.
    pub(super) user: Option<String>,
    state: Mutex<State>,
    changed: Notify,
}

/// What has happened to a run, as a repeat sees it.
#[derive(Clone, Debug)]
pub(super) enum Progress {
    /// There is a head to answer with; the flag says whether the answer has ended.
    Answered(bool),
    /// There will be no answer; the flag says whether the request certainly did not run.
    Failed(ProxyError, bool),
    /// Nothing yet.
    Running,
}

/// Nobody is left to take the rest of an answer that is too long to be kept.
#[derive(Debug)]
pub(super) struct Abandoned;

#[derive(Debug, Default)]
struct State {
    head: Option<(StatusCode, HeaderMap)>,
    chunks: VecDeque<Bytes>,
    /// How far into the body the first chunk that is held begins.
    start: u64,
    /// What all that is held costs.
    bytes: usize,
    trailers: Option<HeaderMap>,
    end: Option<Result<(), ProxyError>>,
    failed: Option<(ProxyError, bool)>,
    is_overflown: bool,
    /// How far each reader has come; `None` where there is none.
    readers: Vec<Option<u64>>,
}

impl Tape {
    pub(super) fn new(bytes_max: usize, user: Option<String>) -> Arc<Self> {
        Arc::new(Self { bytes_max, user, state: Mutex::default(), changed: Notify::new() })
    }

    /// Makes a reader from the beginning, if there is still a beginning and room for one more.
    pub(super) fn reader(self: &Arc<Self>) -> Option<Reader> {
        let mut state = self.state();
        if state.is_overflown {
            return None;
        }
        let place = match state.readers.iter().position(Option::is_none) {
            Some(place) => place,
            None if state.readers.len() < READERS_MAX => {
                state.readers.push(None);
                state.readers.len() - 1
            }
            None => return None,
        };
        state.readers[place] = Some(0);
        drop(state);
        self.changed.notify_waiters();
        Some(Reader { tape: Arc::clone(self), place })
    }

    /// Records the head.
    pub(super) fn set_head(&self, status: StatusCode, headers: HeaderMap) {
        self.change(|state| {
            state.bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES).sum();
            state.head = Some((status, headers));
        });
    }

    /// Records a piece of the body; waits for the readers where it is longer than is kept. Says whether the whole of it is still
    /// held.
    pub(super) async fn push(&self, data: Bytes) -> Result<bool, Abandoned> {
        if data.is_empty() {
            return Ok(true);
        }
        let pushed = self.woken(|| self.state().push(&data, self.bytes_max)).await;
        self.changed.notify_waiters();
        pushed
    }

    /// Records how the body has ended.
    pub(super) fn end(&self, end: Result<Option<HeaderMap>, ProxyError>) {
        self.change(|state| {
            // Small pieces may share large buffers, and none of these is to be kept for a few bytes.
            if !state.is_overflown && !state.chunks.is_empty() {
                let mut whole = BytesMut::with_capacity(state.chunks.iter().map(Bytes::len).sum());
                for chunk in std::mem::take(&mut state.chunks) {
                    state.bytes -= cost(&chunk);
                    whole.extend_from_slice(&chunk);
                }
                state.bytes += whole.len() + CHUNK_BYTES;
                state.chunks.push_back(whole.freeze());
            }
            state.end = Some(end.map(|trailers| state.trailers = trailers));
        });
    }

    /// Records that there will be no answer, or no more of it.
    pub(super) fn fail(&self, error: ProxyError, not_executed: bool) {
        self.change(|state| state.failed = Some((error, not_executed)));
    }

    /// Wakes those who wait: something that is not recorded here has changed.
    pub(super) fn wake(&self) {
        self.changed.notify_waiters();
    }

    /// Bytes that it takes to keep the answer.
    pub(super) fn bytes(&self) -> usize {
        self.state().bytes
    }

    pub(super) fn progress(&self) -> Progress {
        let state = self.state();
        match (&state.head, state.failed) {
            (_, Some((error, not_executed))) => Progress::Failed(error, not_executed),
            (Some(_), None) => Progress::Answered(state.end.is_some()),
            (None, None) => Progress::Running,
        }
    }

    /// Ends once there has been no reader for so long.
    pub(super) async fn alone(&self, patience: Duration) {
        let has_readers = || self.state().readers.iter().any(Option::is_some);
        loop {
            self.woken(|| (!has_readers()).then_some(())).await;
            if timeout(patience, self.woken(|| has_readers().then_some(()))).await.is_err() {
                return;
            }
        }
    }

    /// Looks now and after each change until there is something.
    pub(super) async fn woken<T>(&self, mut look: impl FnMut() -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(found) = look() {
                return found;
            }
            changed.await;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Takes a piece, unless it has to wait for a reader.
    fn push(&mut self, data: &Bytes, bytes_max: usize) -> Option<Result<bool, Abandoned>> {
        self.is_overflown |= self.bytes + cost(data) > bytes_max;
        if self.is_overflown {
            let Some(taken) = self.readers.iter().flatten().copied().max() else { return Some(Err(Abandoned)) };
            while let Some(chunk) = self.chunks.front().filter(|chunk| self.start + chunk.len() as u64 <= taken) {
                self.bytes -= cost(chunk);
                self.start += chunk.len() as u64;
                self.chunks.pop_front();
            }
            if self.bytes + cost(data) > bytes_max && !self.chunks.is_empty() {
                return None;
            }
        }
        self.bytes += cost(data);
        self.chunks.push_back(data.clone());
        Some(Ok(!self.is_overflown))
    }

    /// Gives what a reader takes next, or the end; nothing while there is nothing.
    fn next(&mut self, place: usize) -> Option<Option<Result<Frame<Bytes>, ProxyError>>> {
        let at = self.readers[place]?;
        let Some(mut skipped) = at.checked_sub(self.start) else {
            return Some(Some(Err(ProxyError::UpstreamBodyCut)));
        };
        for chunk in &self.chunks {
            let length = chunk.len() as u64;
            if skipped < length {
                let skipped = usize::try_from(skipped).expect("less than a chunk");
                self.readers[place] = Some(at + length - skipped as u64);
                return Some(Some(Ok(Frame::data(chunk.slice(skipped..)))));
            }
            skipped -= length;
        }
        let end = match (&self.end, self.failed) {
            (Some(end), _) => *end,
            (None, Some((error, _))) => Err(error),
            (None, None) => return None,
        };
        match end {
            Ok(()) => Some(self.trailers.clone().map(|trailers| Ok(Frame::trailers(trailers)))),
            Err(error) => Some(Some(Err(error))),
        }
    }
}

/// One client that the answer goes to.
#[derive(Debug)]
pub(super) struct Reader {
    tape: Arc<Tape>,
    place: usize,
}

impl Reader {
    /// Waits for the head, or for the news that none will come.
    pub(super) async fn head(self) -> Result<Response<ProxyBody>, ProxyError> {
        let failed = self.tape.woken(|| match self.tape.progress() {
            Progress::Answered(_) => Some(None),
            Progress::Failed(error, _) => Some(Some(error)),
            Progress::Running => None,
        });
        match failed.await {
            Some(error) => Err(error),
            None => Ok(self.answer()),
        }
    }

    /// Makes the answer, of which there is the head.
    pub(super) fn answer(self) -> Response<ProxyBody> {
        let state = self.tape.state();
        let (status, headers) = state.head.clone().expect("the head is there");
        // Whole answers go with their length known.
        let whole = match (&state.end, state.is_overflown, &state.trailers) {
            (Some(Ok(())), false, None) => Some(state.chunks.front().cloned().unwrap_or_default()),
            _ => None,
        };
        drop(state);
        let body = match whole {
            Some(whole) => Full::new(whole).map_err(|never| match never {}).boxed_unsync(),
            None => {
                let frames = stream::unfold(Some(self), |reader| async move {
                    let reader = reader?;
                    let next = reader.tape.woken(|| reader.tape.state().next(reader.place)).await?;
                    reader.tape.wake();
                    let goes_on = next.as_ref().is_ok_and(Frame::is_data);
                    Some((next, goes_on.then_some(reader)))
                });
                StreamBody::new(frames).boxed_unsync()
            }
        };
        let mut response = Response::new(body);
        *response.status_mut() = status;
        *response.headers_mut() = headers;
        response
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.tape.change(|state| state.readers[self.place] = None);
    }
}

fn cost(chunk: &Bytes) -> usize {
    chunk.len() + CHUNK_BYTES
}

/// Clients that one answer goes to at once: the first and its repeats. A client has one try under way on each of six ways.
const READERS_MAX: usize = 8;

/// Bytes that a chunk costs beside its own: the handle, its place, and what the allocator adds.
const CHUNK_BYTES: usize = 64;

/// Bytes that a header field costs beside its own: RFC 9113 section 6.5.2 counts 32 as well.
const FIELD_BYTES: usize = 32;
