//! A request over the link, and the body of its answer.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt as _;
use ropeway_core::{
    request::{TryEnd, Way},
    session::{self, Closed},
    wire::{fields::RequestHead, message::ResetCode},
};
use ropeway_net::link::{BodyReader, BodyWriter};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinHandle,
};

use super::attempt::{Failed, Handover};
use crate::{
    Body, Error,
    client::Handle,
    pace::Pauses,
    shared::{ClientSession, InFlight, Live},
};

/// The body of an answer that comes over the link.
pub(crate) struct LinkBody {
    reader: BodyReader<session::Client>,
    /// The rest of the request, still on its way.
    upload: Option<Upload>,
    held: Held,
}

/// What an exchange holds until it is over.
struct Held {
    _permit: OwnedSemaphorePermit,
    _in_flight: InFlight,
    handle: Handle,
}

/// Sends a request on an open link and waits for the head of its answer.
pub(super) async fn send(
    handle: &Handle,
    live: Live,
    request: Request<Body>,
    handover: &Handover,
) -> Result<Response<Body>, Failed> {
    let in_flight = InFlight::new(handle.shared());
    let permit = room(handle, live.permits).await?;
    let held = Held { _permit: permit, _in_flight: in_flight, handle: handle.clone() };
    let session = live.session;
    let (parts, body) = request.into_parts();
    let (ends, bytes) = (body.is_end_stream(), body.size_hint().lower());
    let head = RequestHead { method: parts.method, uri: parts.uri, headers: parts.headers };
    let Some(channel) = session.request_noting(head, ends, handover.handovers()) else {
        return Err(closed(Closed::NeverSeen));
    };
    handover.place(&session, channel);
    let measured = handle.shared().pace.begin(bytes);
    let mut exchange = Exchange { session, channel, open: true, handover };
    let mut uploading = (!ends).then(|| Box::pin(upload(exchange.session.writer(channel), body)));
    let head = poll_fn(|cx| {
        if let Some(future) = &mut uploading
            && let Poll::Ready(done) = future.as_mut().poll(cx)
        {
            uploading = None;
            if let Err(error) = done {
                return Poll::Ready(Err(Failed::App(error)));
            }
        }
        exchange.session.poll_head(channel, cx).map_err(closed)
    })
    .await?;
    exchange.open = false;
    let reader = exchange.session.reader(channel);
    let upload = uploading.map(|uploading| Upload(tokio::spawn(uploading)));
    let mut response = Response::new(Body::link(LinkBody { reader, upload, held }));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    // A link that says nothing is asked, and doubted: to cut the answer would be no better.
    Ok(measured.answer(response, Pauses::Free))
}

/// Says in the words of the ladder why an exchange ended.
fn closed(closed: Closed) -> Failed {
    let (end, error, told) = match closed {
        Closed::NeverSeen => {
            (TryEnd::NotSent, super::not_executed("it could not be sent again"), "not executed".into())
        }
        Closed::Reset { code, detail } => {
            let told = format!("ended by the gateway ({code:?}): {detail}");
            // Unreplayable: it ran, and its answer is no longer kept for the link that took over.
            let end = if code == ResetCode::Unreplayable { TryEnd::MayHaveRun } else { TryEnd::Reset };
            (end, Error::Reset { code, detail, timeline: Box::default() }, told)
        }
        Closed::Unknown => {
            let told = "session ended before the answer".into();
            (TryEnd::MayHaveRun, Error::OutcomeUnknown { timeline: Box::default() }, told)
        }
    };
    Failed::Way { end, error: Box::new(error), told }
}

/// Waits until one more exchange may be open.
async fn room(handle: &Handle, permits: Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Failed> {
    if let Ok(permit) = Arc::clone(&permits).try_acquire_owned() {
        return Ok(permit);
    }
    let _waiting = handle.shared().wait().map_err(Failed::App)?;
    permits.acquire_owned().await.map_err(|_| closed(Closed::NeverSeen))
}

impl LinkBody {
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(upload) = &mut self.upload
            && let Poll::Ready(done) = Pin::new(&mut upload.0).poll(cx)
        {
            self.upload = None;
            if let Ok(Err(error)) = done {
                return Poll::Ready(Some(Err(error)));
            }
        }
        Pin::new(&mut self.reader)
            .poll_frame(cx)
            .map(|frame| frame.map(|frame| frame.map_err(|cut| Error::cut(Way::Link, &cut.why))))
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.reader.is_end_stream()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        self.reader.size_hint()
    }
}

impl Drop for LinkBody {
    fn drop(&mut self) {
        if !self.reader.is_end_stream() {
            self.held.handle.shared().was_cut.store(true, Ordering::Relaxed);
        }
    }
}

/// An exchange whose answer is awaited: given up when it is dropped.
struct Exchange<'a> {
    session: ClientSession,
    channel: u64,
    open: bool,
    handover: &'a Handover,
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if self.open {
            self.handover.leave();
            self.session.abandon(self.channel, ResetCode::Cancelled, "the request is no longer wanted");
        }
    }
}

/// The task of an upload, which ends with its owner.
struct Upload(JoinHandle<Result<(), Error>>);

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends a body. An exchange that is over needs none any more; only the body's own error is one.
async fn upload(mut writer: BodyWriter<session::Client>, mut body: Body) -> Result<(), Error> {
    loop {
        let Some(frame) = body.frame().await else {
            writer.finish(None);
            return Ok(());
        };
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                writer.reset(ResetCode::Cancelled, "the body of the request failed");
                return Err(error);
            }
        };
        match frame.into_data() {
            Ok(data) if data.is_empty() => {}
            Ok(data) => {
                if writer.write(data).await.is_err() {
                    return Ok(());
                }
            }
            Err(frame) => {
                if let Ok(trailers) = frame.into_trailers() {
                    writer.finish(Some(trailers));
                    return Ok(());
                }
            }
        }
    }
}
