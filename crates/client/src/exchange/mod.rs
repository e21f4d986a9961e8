//! One request from the app to the head of its answer.

mod attempt;
mod climb;
mod held;
mod link;
mod plan;
mod rounds;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header, uri::Authority};
use http_body::Body as _;
use ropeway_core::{
    Time,
    request::{HEAD_BYTES_MAX, HEADERS_MAX, HeadSize, LadderConfig, Way, port_of},
};
use tokio::time::{Instant, timeout_at};
use tracing::{Instrument as _, debug, debug_span};

use self::{attempt::Handed, rounds::Outside};
pub(crate) use self::{attempt::Handover, link::LinkBody};
use crate::{
    Body, Error, Phase, Progress, Timeline,
    client::Handle,
    shared::{ANSWER_WITHIN, lock},
    timeline::Over,
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
        let ended = timeout_at(deadline, run.climb()).await;
        let timeline = run.timeline(match &ended {
            Ok(Ok(_)) => Over::Answered,
            Ok(Err(_)) => Over::Failed,
            Err(_) => Over::TimedOut,
        });
        let error = match ended {
            Ok(Ok(response)) => {
                let bounded = run.total();
                let response = response.map(|body| match bounded {
                    Some(total) => body.until(deadline, total),
                    None => body,
                });
                return Ok((response, timeline));
            }
            Ok(Err(error)) => with_timeline(run.told_of_list(error), timeline),
            Err(_) => {
                let list = run.list_missing().filter(|_| run.awaits_list).map(Box::new);
                Error::Timeout { phase: run.phase(), after: within, list, timeline: Box::new(timeline) }
            }
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
    /// Its body, until it is used up.
    body: Arc<Mutex<Option<Body>>>,
    /// Bytes of its body, where that is known.
    body_bytes: Option<u64>,
    /// Its body is at hand from its first byte on.
    is_replayable: bool,
    options: Options,
    host: String,
    port: u16,
    began: Time,
    steps: Timeline,
    /// It waits for the first access list, which is to name its ways.
    awaits_list: bool,
    /// It waited for a link, so that the attempts for one belong to its timeline.
    waited: bool,
    /// The tries outside the links.
    outside: Vec<Outside>,
    /// Addresses that were tried one at a time.
    tried: Vec<SocketAddr>,
    progress: Progress,
    /// The tries over links.
    handed: Vec<Handed>,
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
        let size = HeadSize::of(&parts.method, &parts.uri, &parts.headers);
        if !size.fits() {
            let HeadSize { bytes, headers } = size;
            return Err(Error::HeadTooLarge { bytes, headers, bytes_max: HEAD_BYTES_MAX, headers_max: HEADERS_MAX });
        }
        let began = handle.shared().clock.now();
        let progress = parts.extensions.get().cloned().unwrap_or_else(Progress::default);
        progress.handle_alone();
        let head = Request::from_parts(parts, ());
        Ok(Self {
            handle,
            head,
            body_bytes: length,
            is_replayable: body.again().is_some(),
            body: Arc::new(Mutex::new(Some(body))),
            options,
            host,
            port,
            began,
            steps: Timeline::default(),
            awaits_list: false,
            waited: false,
            outside: Vec::new(),
            tried: Vec::new(),
            progress,
            handed: Vec::new(),
        })
    }

    /// Returns the bound of the whole request, if the app set one.
    fn total(&self) -> Option<Duration> {
        self.options.timeout.or(self.handle.shared().config.timeout)
    }

    /// Returns how long an access list is waited for: as long as a link of a request without a time of its own.
    fn list_wait(&self) -> Duration {
        self.handle.shared().config.link_wait.unwrap_or(LadderConfig::default().link_wait)
    }

    /// Returns how long one is waited for that could not be had the first time.
    fn list_wait_again(&self) -> Duration {
        self.handle.shared().config.refused_wait.min(self.list_wait())
    }

    /// Returns what the request is at.
    fn phase(&self) -> Phase {
        self.progress.phase()
    }

    /// Notes that a try has not executed it.
    fn note_unexecuted(&mut self, step: usize) {
        self.progress.note_unexecuted(step);
    }

    /// Returns how long the head of the answer may take.
    fn within(&self) -> Duration {
        self.total().unwrap_or(ANSWER_WITHIN)
    }

    /// Says whether the URL says `https`.
    fn is_encrypted(&self) -> bool {
        self.head.uri().scheme_str() == Some("https")
    }

    /// Returns the request to send, unless its body is used up.
    fn take_request(&self) -> Option<Request<Body>> {
        let again = lock(&self.body).as_ref().map(Body::again)?;
        let body = again.unwrap_or_else(|| Body::lent(&self.body));
        Some(self.head.clone().map(|()| body))
    }

    /// Returns the tries to its host without a gateway, with which the attempts to connect there belong to its timeline.
    fn direct(&self) -> impl Iterator<Item = &Outside> {
        self.outside.iter().filter(|outside| outside.is_direct)
    }

    /// Returns what was tried, connections included.
    fn timeline(&self, over: Over) -> Timeline {
        let shared = self.handle.shared();
        let mut timeline = self.steps.clone();
        for step in self.progress.handed_over() {
            if timeline.steps().get(step).is_some_and(|step| step.ended.is_none()) {
                timeline.may_have_run(step);
            }
        }
        self.handed.iter().for_each(|handed| handed.tell(&mut timeline, self.began));
        if self.waited {
            timeline.extend(shared.log.steps(None, self.began));
        }
        self.outside.iter().for_each(|outside| outside.tell(&mut timeline, shared.clock, self.began));
        if self.direct().next().is_some() {
            timeline.extend(shared.log.steps(Some(&self.host), self.began));
        }
        timeline.finish(shared.clock.now().since(self.began), over);
        timeline
    }
}

/// Returns host and port of a URL that can be called.
fn target(uri: &Uri) -> Result<(String, u16), Error> {
    let invalid = |why: &str| Error::Invalid(format!("{uri}: {why}"));
    let scheme_port = match uri.scheme_str() {
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
    let port = port_of(authority.as_str()).map_err(|why| invalid(&why.to_string()))?;
    Ok((authority.host().to_ascii_lowercase(), port.unwrap_or(scheme_port)))
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

fn with_timeline(mut error: Error, known: Timeline) -> Error {
    match &mut error {
        Error::AnswerTooLarge { timeline, .. }
        | Error::BrokeOff { timeline, .. }
        | Error::NoList { timeline, .. }
        | Error::NoWay { timeline, .. }
        | Error::NotExecuted { timeline, .. }
        | Error::OutcomeUnknown { timeline }
        | Error::Redirect { timeline, .. }
        | Error::Refused { timeline, .. }
        | Error::Reset { timeline, .. }
        | Error::Setup { timeline, .. }
        | Error::Tampered { timeline, .. }
        | Error::Ticket { timeline, .. }
        | Error::Timeout { timeline, .. }
        | Error::Untrusted { timeline, .. } => **timeline = known,
        Error::Body(_)
        | Error::BodyCorrupt { .. }
        | Error::BodyCut { .. }
        | Error::BodyInflated { .. }
        | Error::BodyTooLarge { .. }
        | Error::Closed
        | Error::HeadTooLarge { .. }
        | Error::Invalid(_)
        | Error::Json(_)
        | Error::PlainHttp { .. }
        | Error::RouteBusy { .. }
        | Error::TooFrequent { .. }
        | Error::TooManyTopics { .. }
        | Error::TooManyWaiting { .. } => {}
    }
    error
}

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
            ("https://api.test:65535/", true),
            ("https://api.test:/", false),
            ("https://api.test:0/", false),
            ("https://api.test:99999/", false),
            ("https://[::1]:99999/", false),
        ] {
            assert_eq!(target(&Uri::from_static(url)).is_ok(), ok, "{url}");
        }
        assert_eq!(target(&Uri::from_static("https://API.test/")).unwrap(), ("api.test".into(), 443));
        let error = target(&Uri::from_static("https://user:secret@api.test/")).unwrap_err();
        assert!(!error.to_string().contains("secret"));
        let error = target(&Uri::from_static("https://api.test:99999/")).unwrap_err().to_string();
        assert!(error.contains("`99999` is no port: ports go from 1 to 65535"), "{error}");
    }
}
