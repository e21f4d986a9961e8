//! The answer to a request.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::{Body, Error, Timeline};

/// The answer to a request: its head, and its body as it comes.
pub struct Response {
    response: http::Response<Body>,
    timeline: Timeline,
    url: Uri,
    trailers: Option<HeaderMap>,
}

impl Response {
    pub(crate) const fn new(response: http::Response<Body>, timeline: Timeline, url: Uri) -> Self {
        Self { response, timeline, url, trailers: None }
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.response.status()
    }

    /// Returns the headers.
    #[must_use]
    pub fn headers(&self) -> &HeaderMap {
        self.response.headers()
    }

    /// Returns the URL that this is the answer of: the last one, where redirects were followed.
    #[must_use]
    pub const fn url(&self) -> &Uri {
        &self.url
    }

    /// Returns what was tried to get this answer, from its URL.
    #[must_use]
    pub const fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Returns the next bytes of the body; `None` at its end.
    ///
    /// # Errors
    ///
    /// [`Error::BodyCut`] if the body ends before it is complete, [`Error::Timeout`] if it takes longer than the app gave it, or pauses for too long.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        while let Some(frame) = self.response.body_mut().frame().await {
            match frame?.into_data() {
                Ok(data) => return Ok(Some(data)),
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        self.trailers = Some(trailers);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Returns the trailers, once the body was read to its end and if any came.
    #[must_use]
    pub const fn trailers(&self) -> Option<&HeaderMap> {
        self.trailers.as_ref()
    }

    /// Reads the whole body, up to 64 MiB.
    ///
    /// # Errors
    ///
    /// As [`chunk`](Self::chunk), and [`Error::BodyTooLarge`].
    pub async fn bytes(self) -> Result<Bytes, Error> {
        self.bytes_within(BODY_BYTES_MAX).await
    }

    /// Reads the whole body, up to `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// As [`chunk`](Self::chunk), and [`Error::BodyTooLarge`].
    pub async fn bytes_within(mut self, bytes_max: usize) -> Result<Bytes, Error> {
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        let mut rest = BytesMut::new();
        while let Some(data) = self.chunk().await? {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
            if rest.len() > bytes_max {
                return Err(Error::BodyTooLarge { bytes_max });
            }
        }
        let whole = if rest.is_empty() { first } else { rest.freeze() };
        if whole.len() > bytes_max { Err(Error::BodyTooLarge { bytes_max }) } else { Ok(whole) }
    }

    /// Reads the whole body as text. Bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Self::bytes).
    pub async fn text(self) -> Result<String, Error> {
        Ok(String::from_utf8_lossy(&self.bytes().await?).into_owned())
    }

    /// Reads the whole body as JSON.
    ///
    /// # Errors
    ///
    /// As [`bytes`](Self::bytes), and [`Error::Json`].
    pub async fn json<T: DeserializeOwned>(self) -> Result<T, Error> {
        serde_json::from_slice(&self.bytes().await?).map_err(Error::Json)
    }

    /// Turns into the type other HTTP libraries take. The timeline is among its extensions.
    pub fn into_http(self) -> http::Response<Body> {
        let mut response = self.response;
        response.extensions_mut().insert(self.timeline);
        response
    }
}

impl std::fmt::Debug for Response {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status())
            .field("headers", self.headers())
            .finish_non_exhaustive()
    }
}

/// Bytes of a body that are read into memory unless the app says otherwise. 64 MiB; our choice, so that no service can fill a
/// phone's memory by one answer.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;
