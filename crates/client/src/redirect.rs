//! Follows an answer that sends its request on to another URL.

use http::{Request, Uri};
use ropeway_core::request::Redirected;
use tokio::time::Instant;

use crate::{
    Body, Error, Response, Timeline,
    client::Handle,
    density::{self, Wishes},
    exchange::Options,
    progress::Progress,
};

/// Sends a request, and what it becomes by at most so many redirects; of no redirects each is an answer.
///
/// Each further request has the time that is left, and nothing for another origin that was meant for the first. A redirect whose body would go
/// along and cannot be sent again is the answer.
pub(crate) async fn send(
    handle: Handle,
    mut request: Request<Body>,
    mut options: Options,
    wishes: Wishes,
    redirects_max: u32,
) -> Result<Response, Error> {
    let began = Instant::now();
    let total = options.timeout.or(handle.shared().config.timeout);
    let progress: Option<Progress> = request.extensions().get().cloned();
    let mut followed = 0;
    loop {
        let (parts, body) = request.into_parts();
        let again = body.again();
        let sent = (redirects_max > 0).then(|| parts.clone());
        let uri = parts.uri.clone();
        let request_now = Request::from_parts(parts, body);
        let (answer, timeline) = density::run(handle.clone(), request_now, options, wishes).await?;
        let answered = |answer| {
            if let Some(progress) = &progress {
                progress.handle_answered();
            }
            Ok(Response::new(answer, timeline.clone(), uri.clone()))
        };
        let Some(mut parts) = sent else { return answered(answer) };
        let next = Redirected::of(&parts.method, &uri, answer.status(), answer.headers());
        let next = next.map_err(|error| redirect(&uri, error.to_string(), &timeline))?;
        let Some(next) = next else { return answered(answer) };
        let body = if next.keeps_body { again } else { Some(Body::empty()) };
        let Some(body) = body else { return answered(answer) };
        followed += 1;
        if followed > redirects_max {
            let reason = format!("the service redirects for longer than {redirects_max} times");
            return Err(redirect(&uri, reason, &timeline));
        }
        next.strip(&mut parts.headers);
        (parts.method, parts.uri) = (next.method, next.uri);
        options.timeout = total.map(|total| total.saturating_sub(began.elapsed()));
        request = Request::from_parts(parts, body);
    }
}

fn redirect(uri: &Uri, reason: String, timeline: &Timeline) -> Error {
    Error::Redirect { url: uri.to_string(), reason, timeline: Box::new(timeline.clone()) }
}
