//! Identical GETs in flight, as futures: who follows waits for what the leader brings.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use ropeway_core::request::{Coalesce, CoalesceConfig, CoalesceOutput, MemberId, Role, SharedKey};
use tokio::{sync::oneshot, time::timeout_at};

use super::{Call, kept::Kept};
use crate::{Body, Error, Timeline, client::Handle, shared::lock};

/// Who shares with whom.
#[derive(Debug)]
pub(crate) struct Sharing(Mutex<State>);

#[derive(Debug)]
struct State {
    machine: Coalesce,
    following: BTreeMap<MemberId, oneshot::Sender<Said>>,
}

/// What is said to a follower.
#[derive(Debug)]
enum Said {
    Alone,
    Answer(Box<Whole>),
    Fail(Error),
    Lead,
}

/// An answer that has come as a whole.
#[derive(Clone, Debug)]
struct Whole {
    head: Response<()>,
    data: VecDeque<Bytes>,
    trailers: Option<HeaderMap>,
    timeline: Timeline,
}

/// What there is to say to those whose leader is through.
enum Outcome<'a> {
    Answer(&'a Whole),
    Error(&'a Error),
    Nothing,
}

impl Sharing {
    pub(super) fn new(config: CoalesceConfig) -> Self {
        Self(Mutex::new(State { machine: Coalesce::new(config), following: BTreeMap::new() }))
    }

    /// Ends the sharing of what was asked of an authority before it was changed.
    pub(super) fn changed(&self, authority: &str) {
        lock(&self.0).machine.handle_unsafe(authority);
    }
}

/// Sends a request or waits for the answer to the same one.
pub(super) async fn run(call: Call, key: SharedKey) -> Result<(Response<Body>, Timeline), Error> {
    let (member, said) = {
        let mut state = lock(&call.sharing().0);
        match state.machine.handle_request(key) {
            Role::Alone => (None, None),
            Role::Lead(id) => (Some(id), None),
            Role::Follow(id) => {
                let (sender, said) = oneshot::channel();
                state.following.insert(id, sender);
                (Some(id), Some(said))
            }
        }
    };
    let Some(id) = member else { return call.go().await };
    let member = Member { handle: call.handle.clone(), id };
    match said {
        None => lead(member, call).await,
        // The sender is dropped with the member alone.
        Some(said) => match call.patience.within(said).await?.unwrap_or(Said::Alone) {
            Said::Alone => call.go().await,
            Said::Answer(whole) => Ok(whole.into_parts()),
            Said::Fail(error) => Err(error),
            Said::Lead => lead(member, call).await,
        },
    }
}

/// Sends for those who follow as well.
async fn lead(member: Member, call: Call) -> Result<(Response<Body>, Timeline), Error> {
    let clock = call.handle.shared().clock;
    let (response, timeline) = match call.go().await {
        Ok(answer) => answer,
        Err(error) => {
            member.failed(&error);
            return Err(error);
        }
    };
    let bytes = response.body().size_hint().exact();
    let streams = response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(STREAM));
    let mut until = None;
    let followed = member.tell(Outcome::Nothing, |machine| {
        let followed = machine.handle_head(member.id, bytes, streams, clock.now());
        until = machine.poll_timeout().filter(|_| followed);
        followed
    });
    let Some(until) = until.filter(|_| followed).map(|until| clock.instant(until)) else {
        return Ok((response, timeline));
    };
    let (parts, mut body) = response.into_parts();
    let head = Response::from_parts(parts, ());
    let mut data = VecDeque::new();
    let mut trailers = None;
    let body = loop {
        let frame = match timeout_at(until, body.frame()).await {
            Ok(frame) => frame.transpose(),
            Err(_) => {
                member.tell(Outcome::Nothing, |machine| machine.handle_timeout(clock.now()));
                if member.tell(Outcome::Nothing, |machine| machine.leads(member.id)) {
                    continue;
                }
                break Kept::begun(data, body);
            }
        };
        match frame.map(|frame| frame.map(Frame::into_data)) {
            Ok(Some(Ok(more))) => {
                let bytes = more.len() as u64;
                data.push_back(more);
                if !member.tell(Outcome::Nothing, |machine| machine.handle_data(member.id, bytes)) {
                    break Kept::begun(data, body);
                }
            }
            Ok(Some(Err(frame))) => trailers = frame.into_trailers().ok(),
            Ok(None) => {
                let whole = Whole {
                    head: head.clone(),
                    data: data.clone(),
                    trailers: trailers.clone(),
                    timeline: timeline.clone(),
                };
                member.tell(Outcome::Answer(&whole), |machine| machine.handle_answered(member.id));
                break Kept::whole(data, trailers);
            }
            Err(error) => {
                member.failed(&error);
                break Kept::broken(data, error);
            }
        }
    };
    Ok((head.map(|()| Body::kept(body)), timeline))
}

type Frame = http_body::Frame<Bytes>;

/// One request that shares. Dropping it says that the app no longer wants it, unless it is through.
struct Member {
    handle: Handle,
    id: MemberId,
}

impl Member {
    /// Changes the machine, and says to the followers what comes of it.
    fn tell<R>(&self, outcome: Outcome<'_>, change: impl FnOnce(&mut Coalesce) -> R) -> R {
        let mut state = lock(&self.handle.shared().density.sharing.0);
        let result = change(&mut state.machine);
        while let Some(output) = state.machine.poll_output() {
            let Some(follower) = state.following.remove(&output.member()) else { continue };
            let said = match (output, &outcome) {
                (CoalesceOutput::Answer(_), Outcome::Answer(whole)) => Said::Answer(Box::new(Whole::clone(whole))),
                (CoalesceOutput::Fail(_), Outcome::Error(error)) => copied(error).map_or(Said::Alone, Said::Fail),
                (CoalesceOutput::Lead(_), _) => Said::Lead,
                (CoalesceOutput::Alone(_) | CoalesceOutput::Answer(_) | CoalesceOutput::Fail(_), _) => Said::Alone,
            };
            // Who no longer waits says so itself.
            let _ = follower.send(said);
        }
        result
    }

    fn failed(&self, error: &Error) {
        let theirs_too = copied(error).is_some();
        self.tell(Outcome::Error(error), |machine| machine.handle_failed(self.id, theirs_too));
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.tell(Outcome::Nothing, |machine| machine.handle_cancelled(self.id));
        lock(&self.handle.shared().density.sharing.0).following.remove(&self.id);
    }
}

impl Whole {
    fn into_parts(self) -> (Response<Body>, Timeline) {
        let body = Body::kept(Kept::whole(self.data, self.trailers));
        (self.head.map(|()| body), self.timeline)
    }
}

/// Returns the same error for another request; `None` where the other might fare better, since the failure came of the leader's own
/// time or body.
#[expect(clippy::wildcard_enum_match_arm, reason = "what is not named would not be a follower's failure too")]
fn copied(error: &Error) -> Option<Error> {
    Some(match error {
        Error::AnswerTooLarge { host, way, timeline } => {
            Error::AnswerTooLarge { host: host.clone(), way: *way, timeline: timeline.clone() }
        }
        Error::BrokeOff { host, way, reason, timeline } => {
            Error::BrokeOff { host: host.clone(), way: *way, reason: reason.clone(), timeline: timeline.clone() }
        }
        Error::Closed => Error::Closed,
        Error::NoList { host, reason, trouble, timeline } => Error::NoList {
            host: host.clone(),
            reason: reason.clone(),
            trouble: trouble.clone(),
            timeline: timeline.clone(),
        },
        Error::NoWay { host, reason, timeline } => {
            Error::NoWay { host: host.clone(), reason: reason.clone(), timeline: timeline.clone() }
        }
        Error::NotExecuted { reason, timeline } => {
            Error::NotExecuted { reason: reason.clone(), timeline: timeline.clone() }
        }
        Error::OutcomeUnknown { timeline } => Error::OutcomeUnknown { timeline: timeline.clone() },
        Error::PlainHttp { host } => Error::PlainHttp { host: host.clone() },
        Error::Refused { code, detail, timeline } => {
            Error::Refused { code: *code, detail: detail.clone(), timeline: timeline.clone() }
        }
        Error::Reset { code, detail, timeline } => {
            Error::Reset { code: *code, detail: detail.clone(), timeline: timeline.clone() }
        }
        Error::Setup { reason, timeline } => Error::Setup { reason: reason.clone(), timeline: timeline.clone() },
        Error::Tampered { host, reason, timeline } => {
            Error::Tampered { host: host.clone(), reason: reason.clone(), timeline: timeline.clone() }
        }
        Error::Ticket { reason, timeline } => Error::Ticket { reason: reason.clone(), timeline: timeline.clone() },
        Error::Untrusted { reason, timeline } => {
            Error::Untrusted { reason: reason.clone(), timeline: timeline.clone() }
        }
        _ => return None,
    })
}

/// What bodies without end are called (WHATWG HTML, server-sent events).
const STREAM: &[u8] = b"text/event-stream";
