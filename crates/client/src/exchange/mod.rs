//! One request from the app to the head of its answer: a way is chosen, taken, and judged when it fails.

mod link;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header, uri::Authority};
use http_body::Body as _;
use hyper_util::client::legacy::connect::CaptureConnection;
use ropeway_core::{
    Time,
    request::{Choice, Failure, NoChoice, Progress, RequestFacts, Target, Verdict, Way, choose, is_idempotent},
    session::Closed,
};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, debug, debug_span};

pub(crate) use self::link::LinkBody;
use crate::{
    Action, Body, Error, Phase, Step, Timeline,
    client::Handle,
    direct,
    shared::{ANSWER_WITHIN, Live, View},
};

/// What the app says about one request, beside the request itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) timeout: Option<Duration>,
    pub(crate) way: Option<Way>,
    pub(crate) idempotent: bool,
    pub(crate) plain_http: bool,
}

/// Sends a request and returns the head of its answer, with what was tried for it.
pub(crate) async fn run(
    handle: Handle,
    request: Request<Body>,
    options: Options,
) -> Result<(Response<Body>, Timeline), Error> {
    let mut run = Run::new(handle, request, options)?;
    let span = debug_span!("request", method = %run.head.method(), host = run.host);
    async move {
        let within = run.within();
        let deadline = Instant::now() + within;
        let ended = timeout_at(deadline, run.attempts()).await;
        let timeline = run.timeline();
        let error = match ended {
            Ok(Ok(response)) => {
                let bounded = run.total();
                let response = response.map(|body| match bounded {
                    Some(total) => body.until(deadline, total),
                    None => body,
                });
                return Ok((response, timeline));
            }
            Ok(Err(error)) => with_timeline(error, timeline),
            Err(_) => Error::Timeout { phase: run.phase(), after: within, timeline: Box::new(timeline) },
        };
        debug!(%error, "request failed");
        Err(error)
    }
    .instrument(span)
    .await
}

/// A request under way.
struct Run {
    handle: Handle,
    /// Method, URL and headers, without the body.
    head: Request<()>,
    body: Option<Body>,
    options: Options,
    host: String,
    port: u16,
    facts: RequestFacts,
    began: Time,
    phase: Phase,
    /// The request was handed to the link's carrier before it was given up.
    handed_off: AtomicBool,
    steps: Timeline,
    /// It waited for a link, so that the attempts for one belong to its timeline.
    waited: bool,
    /// The connection of a direct call, once there is one.
    connection: Option<CaptureConnection>,
    /// What a host said that was called directly and broke off.
    broken_off: Option<String>,
}

impl Run {
    fn new(handle: Handle, request: Request<Body>, options: Options) -> Result<Self, Error> {
        let (mut parts, body) = request.into_parts();
        let (host, port) = target(&parts.uri)?;
        if parts.method == Method::CONNECT {
            return Err(Error::Invalid("method CONNECT has no meaning here".into()));
        }
        check_headers(&parts.uri, &parts.headers)?;
        let length = body.size_hint().exact();
        let may_have_none =
            [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE, Method::DELETE].contains(&parts.method);
        if let Some(length) = length
            && !(length == 0 && may_have_none)
        {
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        let idempotent =
            options.idempotent || is_idempotent(&parts.method) || parts.headers.contains_key(IDEMPOTENCY_KEY);
        let facts = RequestFacts { idempotent, replayable: body.again().is_some() };
        let began = handle.shared().clock.now();
        let head = Request::from_parts(parts, ());
        Ok(Self {
            handle,
            head,
            body: Some(body),
            options,
            host,
            port,
            facts,
            began,
            phase: Phase::Connect,
            handed_off: AtomicBool::new(false),
            steps: Timeline::default(),
            waited: false,
            connection: None,
            broken_off: None,
        })
    }

    /// Returns the bound of the whole request, if the app set one.
    fn total(&self) -> Option<Duration> {
        self.options.timeout.or(self.handle.shared().config.timeout)
    }

    /// Returns what the request is at.
    fn phase(&self) -> Phase {
        let sent = match &self.connection {
            Some(connection) => connection.connection_metadata().is_some(),
            None => self.handed_off.load(Ordering::Relaxed),
        };
        if sent { self.phase } else { Phase::Connect }
    }

    /// Returns how long the head of the answer may take.
    fn within(&self) -> Duration {
        self.total().unwrap_or(ANSWER_WITHIN)
    }

    async fn attempts(&mut self) -> Result<Response<Body>, Error> {
        let mut progress = Progress::new(self.facts, self.began + self.within());
        loop {
            self.phase = Phase::Connect;
            let live = self.way().await?;
            let Some(request) = self.take_request() else { return Err(not_executed("its body is used up")) };
            progress.handle_send(&mut self.handle.shared().budget());
            let closed = match self.attempt(live, request).await {
                Ok(response) => return Ok(response),
                Err(link::Failed::Closed(closed)) => closed,
                Err(link::Failed::Error(error)) => return Err(error),
            };
            let now = self.handle.shared().clock.now();
            let verdict = progress.handle_closed(&closed, &mut self.handle.shared().budget(), now);
            match verdict {
                Verdict::Resend => debug!(?closed, "request is sent again"),
                Verdict::Fail(failure) => return Err(self.failed(failure, closed)),
            }
        }
    }

    /// Chooses a way: a link to send on, or `None` for the direct one.
    async fn way(&mut self) -> Result<Option<Live>, Error> {
        let shared = self.handle.shared().clone();
        let mut views = shared.view.subscribe();
        let began = shared.clock.now();
        let mut waiting = None;
        loop {
            let View { live, hosts, failure, trouble, alive_at, closed } = views.borrow_and_update().clone();
            if closed {
                return Err(Error::Closed);
            }
            let choice = choose(&self.target(), hosts.as_deref(), !shared.config.access_points.is_empty());
            match choice.map_err(|none| self.no_choice(none))? {
                Choice::Take(Way::Direct) => return Ok(None),
                Choice::Take(Way::Link) if live.is_some() => return Ok(live),
                Choice::Await | Choice::Take(Way::Link) => {}
            }
            if let Some(failure) = failure.filter(|failure| failure.concerns(self.began)) {
                return Err(failure.error());
            }
            if waiting.is_none() {
                waiting = Some(shared.wait()?);
                self.waited = true;
                self.handle.connect();
            }
            // What says why there is no link comes before the end of the request's own time.
            let until = (began.max(alive_at) + shared.config.link_wait).min(self.began + self.within());
            // The sender lives as long as `shared`.
            if timeout_at(shared.clock.instant(until), views.changed()).await.is_err() {
                let waited = shared.clock.now().since(began).as_millis();
                let last = trouble.map_or_else(String::new, |trouble| format!("; the last attempt: {trouble}"));
                let reason = format!("no link came up within {waited} ms{last}");
                return Err(Error::NoWay { host: self.host.clone(), reason, timeline: Box::default() });
            }
        }
    }

    fn target(&self) -> Target<'_> {
        Target {
            host: &self.host,
            port: self.port,
            encrypted: self.head.uri().scheme_str() == Some("https"),
            plain_http: self.options.plain_http || self.handle.shared().config.plain_http,
            forced: self.options.way,
        }
    }

    fn no_choice(&self, none: NoChoice) -> Error {
        match none {
            NoChoice::NoAccessPoint => Error::Invalid("the link is asked for, and there is no access point".into()),
            NoChoice::PlainHttp => Error::PlainHttp { host: self.host.clone() },
        }
    }

    fn take_request(&mut self) -> Option<Request<Body>> {
        let body = match &self.body {
            Some(body) => match body.again() {
                Some(again) => again,
                None => self.body.take()?,
            },
            None => return None,
        };
        Some(self.head.clone().map(|()| body))
    }

    async fn attempt(&mut self, live: Option<Live>, request: Request<Body>) -> Result<Response<Body>, link::Failed> {
        let now = self.handle.shared().clock.now();
        let step = self.steps.push(Step {
            action: Action::Exchange,
            way: if live.is_some() { Way::Link } else { Way::Direct },
            address: live.as_ref().map(|live| live.candidate.address),
            carrier: live.as_ref().map(|live| live.candidate.carrier),
            started: now.since(self.began),
            ended: None,
            error: None,
        });
        let sent = match live {
            Some(live) => {
                self.phase = Phase::Answer;
                link::send(&self.handle, live, request, &self.handed_off).await
            }
            None => {
                self.phase = Phase::Answer;
                self.send_directly(request).await
            }
        };
        let error = match &sent {
            Ok(_) => None,
            Err(link::Failed::Closed(closed)) => Some(told(closed)),
            Err(link::Failed::Error(error)) => Some(error.to_string()),
        };
        let ended = self.handle.shared().clock.now().since(self.began);
        self.steps.end(step, ended, error);
        if let Some(address) = self.connection.as_ref().and_then(direct::address) {
            self.steps.locate(step, address);
        }
        sent
    }

    async fn send_directly(&mut self, request: Request<Body>) -> Result<Response<Body>, link::Failed> {
        let shared = Arc::clone(self.handle.shared());
        match shared.direct.send(request, &mut self.connection).await {
            Ok(response) => Ok(response),
            Err(direct::Failed::Body(error)) => Err(link::Failed::Error(error)),
            Err(direct::Failed::Exchange(reason)) => {
                self.broken_off = Some(reason);
                Err(link::Failed::Closed(Closed::Unknown))
            }
            Err(direct::Failed::Connect(reason)) => {
                Err(link::Failed::Error(Error::NoWay { host: self.host.clone(), reason, timeline: Box::default() }))
            }
        }
    }

    /// Returns the error of a request that is not sent again.
    fn failed(&mut self, failure: Failure, closed: Closed) -> Error {
        match (failure, closed) {
            (Failure::NotExecuted, _) => not_executed("it could not be sent again"),
            (Failure::Reset, Closed::Reset { code, detail }) => Error::Reset { code, detail, timeline: Box::default() },
            (Failure::OutcomeUnknown | Failure::Reset, _) => match self.broken_off.take() {
                // Whether it ran does not matter to what may run twice; what went wrong does.
                Some(reason) if self.facts.idempotent => {
                    Error::Direct { host: self.host.clone(), reason, timeline: Box::default() }
                }
                Some(_) | None => Error::OutcomeUnknown { timeline: Box::default() },
            },
        }
    }

    /// Returns what was tried, connections included.
    fn timeline(&self) -> Timeline {
        let shared = self.handle.shared();
        let mut timeline = self.steps.clone();
        if self.waited {
            timeline.extend(shared.log.steps(None, self.began));
        }
        if self.connection.is_some() {
            timeline.extend(shared.log.steps(Some(&self.host), self.began));
        }
        timeline.finish(shared.clock.now().since(self.began));
        timeline
    }
}

/// Returns host and port of a URL that can be called.
fn target(uri: &Uri) -> Result<(String, u16), Error> {
    let invalid = |why: &str| Error::Invalid(format!("{uri}: {why}"));
    let port = match uri.scheme_str() {
        Some("http") => 80,
        Some("https") => 443,
        Some(_) => return Err(invalid("the scheme is neither https nor http")),
        None => return Err(invalid("the scheme is missing")),
    };
    let authority = uri.authority().ok_or_else(|| invalid("the host is missing"))?;
    if authority.as_str().contains('@') {
        return Err(Error::Invalid("user information has no place in a URL; use a header".into()));
    }
    if authority.host().is_empty() {
        return Err(invalid("the host is missing"));
    }
    Ok((authority.host().to_ascii_lowercase(), authority.port_u16().unwrap_or(port)))
}

/// Refuses what would be lost on the way or mean something else there.
fn check_headers(uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
    let authority = uri.authority().map_or("", Authority::as_str);
    let is_same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(authority.as_bytes());
    if !headers.get(header::HOST).is_none_or(is_same) {
        return Err(Error::Invalid(format!("the header `host` is another than {authority} of the URL")));
    }
    if headers.contains_key(header::UPGRADE) {
        return Err(Error::Invalid("an upgrade needs a connection of its own, which a request here has not".into()));
    }
    Ok(())
}

fn not_executed(reason: &str) -> Error {
    Error::NotExecuted { reason: reason.into(), timeline: Box::default() }
}

fn told(closed: &Closed) -> String {
    match closed {
        Closed::NeverSeen => "not executed".into(),
        Closed::Reset { code, detail } => format!("ended by the gateway ({code:?}): {detail}"),
        Closed::Unknown => "outcome unknown".into(),
    }
}

fn with_timeline(mut error: Error, known: Timeline) -> Error {
    match &mut error {
        Error::Direct { timeline, .. }
        | Error::NoWay { timeline, .. }
        | Error::NotExecuted { timeline, .. }
        | Error::OutcomeUnknown { timeline }
        | Error::Reset { timeline, .. }
        | Error::Timeout { timeline, .. }
        | Error::Untrusted { timeline, .. } => **timeline = known,
        Error::Body(_)
        | Error::BodyCut { .. }
        | Error::BodyTooLarge { .. }
        | Error::Closed
        | Error::Invalid(_)
        | Error::Json(_)
        | Error::PlainHttp { .. }
        | Error::Refused { .. }
        | Error::Setup { .. }
        | Error::Ticket { .. }
        | Error::TooManyTopics { .. }
        | Error::TooManyWaiting { .. } => {}
    }
    error
}

/// Header by which a client lets a request be executed twice (draft-ietf-httpapi-idempotency-key-header).
pub(crate) const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_without_host_or_with_secrets_are_refused() {
        for (url, ok) in [
            ("https://API.test/a?b", true),
            ("http://api.test:8080/", true),
            ("https://user:secret@api.test/", false),
            ("ftp://api.test/", false),
            ("/path", false),
        ] {
            assert_eq!(target(&Uri::from_static(url)).is_ok(), ok, "{url}");
        }
        assert_eq!(target(&Uri::from_static("https://API.test/")).unwrap(), ("api.test".into(), 443));
        let error = target(&Uri::from_static("https://user:secret@api.test/")).unwrap_err();
        assert!(!error.to_string().contains("secret"));
    }
}
