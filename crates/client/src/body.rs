//! Bodies of requests and answers.

use std::{
    fmt,
    future::Future as _,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Buf, Bytes};
use futures_core::Stream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt as _, BodyStream, StreamBody, combinators::UnsyncBoxBody};
use tokio::time::{Sleep, sleep_until};

use crate::{
    BoxError, Error, Phase, decode::Decoded, density::Kept, exchange::LinkBody, pace::Watch, shared::lock,
    short::ShortBody,
};

/// The body of a request or of an answer: bytes, or a stream of them with trailers.
///
/// A body of bytes can be sent again if a way fails; a stream is sent once.
#[must_use]
pub struct Body {
    kind: Kind,
    deadline: Option<Deadline>,
    /// Measures what comes over the network, and bounds its pauses.
    watch: Option<Box<Watch>>,
}

enum Kind {
    Bytes(Bytes),
    Decoded(Box<Decoded>),
    Kept(Box<Kept>),
    Lent(Box<Lent>),
    Link(Box<LinkBody>),
    Short(Box<ShortBody>),
    Stream(UnsyncBoxBody<Bytes, BoxError>),
}

/// A body that stays with its owner until somebody reads from it.
struct Lent {
    /// Where it lies, and stays until then.
    slot: Arc<Mutex<Option<Body>>>,
    taken: Option<Body>,
    /// Where its error is kept, beside being told.
    broken: Option<Arc<Mutex<Option<BoxError>>>>,
}

/// When the whole of an answer must have come.
struct Deadline {
    sleep: Pin<Box<Sleep>>,
    after: Duration,
}

impl Body {
    /// Makes a body without a byte.
    pub const fn empty() -> Self {
        Self::of(Kind::Bytes(Bytes::new()))
    }

    /// Makes a body of the bytes a stream brings.
    pub fn stream<S, E>(stream: S) -> Self
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: Into<BoxError> + 'static,
    {
        let frames = stream.map_ok(Frame::data).map_err(Into::into);
        Self::of(Kind::Stream(UnsyncBoxBody::new(StreamBody::new(frames))))
    }

    /// Makes a body of any other, its trailers included.
    pub fn wrap<B>(body: B) -> Self
    where
        B: http_body::Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        let body = body.map_frame(whole);
        Self::of(Kind::Stream(UnsyncBoxBody::new(body.map_err(Into::into))))
    }

    /// Makes a body of any other, and one of bytes if all of it is at hand, so that it can be sent again.
    pub(crate) fn wrap_known<B>(mut body: B) -> Self
    where
        B: http_body::Body + Send + Unpin + 'static,
        B::Data: Send,
        B::Error: Into<BoxError>,
    {
        if body.is_end_stream() {
            return Self::empty();
        }
        let mut nobody = Context::from_waker(Waker::noop());
        let first = match Pin::new(&mut body).poll_frame(&mut nobody) {
            Poll::Pending => return Self::wrap(body),
            Poll::Ready(None) => return Self::empty(),
            Poll::Ready(Some(first)) => first.map(whole).map_err(Into::into),
        };
        match first {
            Ok(frame) if body.is_end_stream() && frame.is_data() => Self::from(frame.into_data().unwrap_or_default()),
            first => {
                let rest = body.map_frame(whole).map_err(Into::into);
                let frames = futures_util::stream::iter([first]).chain(BodyStream::new(rest));
                Self::of(Kind::Stream(UnsyncBoxBody::new(StreamBody::new(frames))))
            }
        }
    }

    pub(crate) fn decoded(body: Decoded) -> Self {
        Self::of(Kind::Decoded(Box::new(body)))
    }

    pub(crate) fn kept(body: Kept) -> Self {
        Self::of(Kind::Kept(Box::new(body)))
    }

    pub(crate) fn link(body: LinkBody) -> Self {
        Self::of(Kind::Link(Box::new(body)))
    }

    pub(crate) fn short(body: ShortBody) -> Self {
        Self::of(Kind::Short(Box::new(body)))
    }

    /// Keeps the error of a stream in `broken`, since HTTP/2 tells only that there was one.
    pub(crate) fn noting(self, broken: &Arc<Mutex<Option<BoxError>>>) -> Self {
        let Self { kind, deadline, watch } = self;
        let kind = match kind {
            Kind::Stream(body) => {
                let broken = Arc::clone(broken);
                let noted = body.map_err(move |error| {
                    let told = error.to_string();
                    *lock(&broken) = Some(error);
                    BoxError::from(told)
                });
                Kind::Stream(UnsyncBoxBody::new(noted))
            }
            Kind::Lent(lent) => Kind::Lent(Box::new(Lent { broken: Some(Arc::clone(broken)), ..*lent })),
            kind @ (Kind::Bytes(_) | Kind::Decoded(_) | Kind::Kept(_) | Kind::Link(_) | Kind::Short(_)) => kind,
        };
        Self { kind, deadline, watch }
    }

    /// Makes a body that reads the one in `slot`, and takes it from there with its first byte.
    pub(crate) fn lent(slot: &Arc<Mutex<Option<Self>>>) -> Self {
        Self::of(Kind::Lent(Box::new(Lent { slot: Arc::clone(slot), taken: None, broken: None })))
    }

    /// Bounds the time until the last byte.
    pub(crate) fn until(mut self, deadline: tokio::time::Instant, after: Duration) -> Self {
        self.deadline = Some(Deadline { sleep: Box::pin(sleep_until(deadline)), after });
        self
    }

    /// Has what is read followed.
    pub(crate) fn watched(mut self, watch: Watch) -> Self {
        self.watch = Some(Box::new(watch));
        self
    }

    /// Returns the same body once more, if it can be had from its first byte on.
    pub(crate) fn again(&self) -> Option<Self> {
        match &self.kind {
            Kind::Bytes(bytes) => Some(Self::of(Kind::Bytes(bytes.clone()))),
            Kind::Decoded(_) | Kind::Kept(_) | Kind::Lent(_) | Kind::Link(_) | Kind::Short(_) | Kind::Stream(_) => None,
        }
    }

    /// Returns the bytes, if all of them are at hand.
    pub(crate) const fn bytes(&self) -> Option<&Bytes> {
        match &self.kind {
            Kind::Bytes(bytes) => Some(bytes),
            Kind::Decoded(_) | Kind::Kept(_) | Kind::Lent(_) | Kind::Link(_) | Kind::Short(_) | Kind::Stream(_) => None,
        }
    }

    const fn of(kind: Kind) -> Self {
        Self { kind, deadline: None, watch: None }
    }

    /// Ends the body for good.
    fn fail(&mut self, error: Error) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        if let Some(watch) = self.watch.take() {
            watch.handle_error(&error);
        }
        self.kind = Kind::Bytes(Bytes::new());
        self.deadline = None;
        Poll::Ready(Some(Err(error)))
    }

    fn poll_kind(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match &mut self.kind {
            Kind::Bytes(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Kind::Decoded(body) => body.poll_frame(cx),
            Kind::Kept(body) => body.poll_frame(cx),
            Kind::Lent(lent) => lent.poll_frame(cx),
            Kind::Link(body) => body.poll_frame(cx),
            Kind::Short(body) => body.poll_frame(cx),
            Kind::Stream(body) => Poll::Ready(
                ready!(http_body::Body::poll_frame(Pin::new(body), cx)).map(|frame| frame.map_err(Error::Body)),
            ),
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let body = self.get_mut();
        if let Poll::Ready(frame) = body.poll_kind(cx) {
            let is_last = body.is_end_stream();
            if body.watch.as_mut().is_some_and(|watch| !watch.handle_frame(frame.as_ref(), is_last)) {
                body.watch = None;
            }
            return Poll::Ready(frame);
        }
        if let Some(deadline) = &mut body.deadline
            && deadline.sleep.as_mut().poll(cx).is_ready()
        {
            let after = deadline.after;
            return body.fail(Error::Timeout { phase: Phase::Body, after, list: None, timeline: Box::default() });
        }
        if let Some(watch) = &mut body.watch
            && let Poll::Ready(error) = watch.poll_pause(cx)
        {
            return body.fail(error);
        }
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Bytes(bytes) => bytes.is_empty(),
            Kind::Decoded(body) => body.is_over(),
            Kind::Kept(body) => body.is_end_stream(),
            Kind::Lent(lent) => lent.look(true, http_body::Body::is_end_stream),
            Kind::Link(body) => body.is_end_stream(),
            Kind::Short(body) => body.is_end_stream(),
            Kind::Stream(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Decoded(_) => SizeHint::default(),
            Kind::Kept(body) => body.size_hint(),
            Kind::Lent(lent) => lent.look(SizeHint::default(), http_body::Body::size_hint),
            Kind::Link(body) => body.size_hint(),
            Kind::Short(body) => body.size_hint(),
            Kind::Stream(body) => body.size_hint(),
        }
    }
}

impl Lent {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let body = match &mut self.taken {
            Some(body) => body,
            none => match lock(&self.slot).take() {
                Some(body) => none.insert(body),
                None => return Poll::Ready(Some(Err(Error::Body("another try has read it".into())))),
            },
        };
        let frame = ready!(http_body::Body::poll_frame(Pin::new(body), cx));
        Poll::Ready(frame.map(|frame| {
            frame.map_err(|error| match (error, &self.broken) {
                (Error::Body(error), Some(broken)) => {
                    let told = error.to_string();
                    *lock(broken) = Some(error);
                    Error::Body(told.into())
                }
                (error, _) => error,
            })
        }))
    }

    fn look<R>(&self, gone: R, look: impl FnOnce(&Body) -> R) -> R {
        match &self.taken {
            Some(body) => look(body),
            None => lock(&self.slot).as_ref().map_or(gone, look),
        }
    }
}

/// Puts the data of a frame into one piece.
fn whole<D: Buf>(frame: Frame<D>) -> Frame<Bytes> {
    frame.map_data(|mut data| {
        let length = data.remaining();
        data.copy_to_bytes(length)
    })
}

impl Default for Body {
    fn default() -> Self {
        Self::empty()
    }
}

impl From<()> for Body {
    fn from((): ()) -> Self {
        Self::empty()
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::of(Kind::Bytes(bytes))
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl From<&'static [u8]> for Body {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from_static(bytes).into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Bytes(bytes) => write!(f, "Body({} bytes)", bytes.len()),
            Kind::Decoded(_) | Kind::Kept(_) | Kind::Lent(_) | Kind::Link(_) | Kind::Short(_) | Kind::Stream(_) => {
                f.write_str("Body(stream)")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ropeway_core::Side;

    use super::*;

    #[tokio::test]
    async fn bytes_can_be_had_again_and_streams_cannot() {
        let body = Body::from("once");
        let again = body.again().unwrap();
        assert_eq!(body.collect().await.unwrap().to_bytes(), "once");
        assert_eq!(again.collect().await.unwrap().to_bytes(), "once");
        let stream = futures_util::stream::iter([Ok::<_, BoxError>(Bytes::from("a")), Ok(Bytes::from("b"))]);
        let body = Body::stream(stream);
        assert!(body.again().is_none());
        assert_eq!(body.collect().await.unwrap().to_bytes(), "ab");
    }

    #[tokio::test]
    async fn a_foreign_body_is_taken_as_bytes_where_all_of_it_is_at_hand() {
        let full = Body::wrap_known(http_body_util::Full::new(Bytes::from("full")));
        assert_eq!(full.again().unwrap().collect().await.unwrap().to_bytes(), "full");
        assert!(Body::wrap_known(http_body_util::Empty::<Bytes>::new()).again().is_some());
        let frames = ["a", "b"].map(|piece| Ok::<_, BoxError>(Frame::data(Bytes::from(piece))));
        let stream = Body::wrap_known(StreamBody::new(futures_util::stream::iter(frames)));
        assert!(stream.again().is_none());
        assert_eq!(stream.collect().await.unwrap().to_bytes(), "ab");
        let broken = Body::wrap_known(StreamBody::new(futures_util::stream::iter([Err::<Frame<Bytes>, _>("disk")])));
        assert!(matches!(broken.collect().await, Err(Error::Body(_))));
    }

    #[tokio::test]
    async fn a_lent_body_stays_with_its_owner_until_it_is_read() {
        let slot =
            Arc::new(Mutex::new(Some(Body::stream(futures_util::stream::iter([Ok::<_, BoxError>("a".into())])))));
        drop(Body::lent(&slot));
        assert!(lock(&slot).is_some());
        let lent = Body::lent(&slot);
        let other = Body::lent(&slot);
        assert_eq!(lent.collect().await.unwrap().to_bytes(), "a");
        assert!(lock(&slot).is_none());
        assert!(matches!(other.collect().await, Err(Error::Body(_))), "it is not passed off as an empty one");
        let broken = Arc::default();
        let failing = Body::stream(futures_util::stream::iter([Err::<Bytes, BoxError>("disk".into())]));
        let lent = Body::lent(&Arc::new(Mutex::new(Some(failing)))).noting(&broken);
        assert!(lent.collect().await.is_err());
        assert_eq!(lock(&broken).as_ref().map(ToString::to_string), Some("disk".into()));
    }

    #[tokio::test]
    async fn a_stream_that_fails_is_the_apps_own_error() {
        let body = Body::stream(futures_util::stream::iter([Err::<Bytes, BoxError>("disk".into())]));
        let error = body.collect().await.unwrap_err();
        assert!(matches!(&error, Error::Body(source) if source.to_string() == "disk"), "{error:?}");
        assert_eq!(error.side(), Side::Local);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_takes_too_long_ends_in_a_timeout_and_then_for_good() {
        let after = Duration::from_secs(3);
        let stalled = Body::stream(futures_util::stream::pending::<Result<Bytes, BoxError>>());
        let mut body = stalled.until(tokio::time::Instant::now() + after, after);
        let error = body.frame().await.unwrap().unwrap_err();
        assert!(matches!(error, Error::Timeout { phase: Phase::Body, .. }), "{error:?}");
        assert!(body.frame().await.is_none());
    }
}
